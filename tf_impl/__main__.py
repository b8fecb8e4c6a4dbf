"""absl shell: python -m tf_impl --help"""

from common.launch import shell
from tf_impl.runtime import configure, describe
from tf_impl.train import train

if __name__ == "__main__":
    shell.run("tensorflow", train, configure, describe)
