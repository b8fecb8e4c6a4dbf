"""Optimizers in either framework's convention; formulas as in `common/reference/optimizers`."""

# The rules register themselves.
from parity.torch_impl.optimizers import adam, adaptive, descent, matrix
from parity.torch_impl.optimizers.base import Optimizer, build_optimizer

__all__ = ["Optimizer", "adam", "adaptive", "build_optimizer", "descent", "matrix"]
