"""absl shell: python -m tf_impl --help"""

from parity.common.execution import shell

if __name__ == "__main__":
    shell.run("tensorflow")
