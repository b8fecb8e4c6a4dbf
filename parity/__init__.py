"""The TensorFlow/PyTorch parity toolkit: `parity.common`, `parity.tf_impl`, `parity.torch_impl`.

Importing it loads neither framework. In the repository the three are folders of the top level, and the ones in here are
links to them, so that one name serves a checkout, an editable install and a wheel alike.
"""

__version__ = "0.2.0"
