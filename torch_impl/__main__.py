"""absl shell: python -m torch_impl --help"""

from parity.common.execution import shell

if __name__ == "__main__":
    shell.run("torch")
