"""absl shell: python -m torch_impl --help"""

from common.launch import shell
from torch_impl.runtime import configure, describe
from torch_impl.train import train

if __name__ == "__main__":
    shell.run("torch", train, configure, describe)
