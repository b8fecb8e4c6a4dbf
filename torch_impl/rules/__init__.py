"""The optimizers' formulas on lists of tensors, by foreach kernels. TensorFlow takes those of `common/reference`."""

# They register themselves.
from parity.torch_impl.rules import adam, adaptive, descent, matrix

__all__ = ["adam", "adaptive", "descent", "matrix"]
