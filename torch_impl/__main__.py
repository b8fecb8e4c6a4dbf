"""absl shell: python -m torch_impl --help"""

from common.launch import shell

if __name__ == "__main__":
    shell.run("torch")
