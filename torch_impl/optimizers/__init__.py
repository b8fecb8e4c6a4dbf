"""Optimizers in either framework's convention; formulas as in `common/reference/optimizers`."""

# The rules register themselves.
from parity.torch_impl.optimizers import adam, adaptive, descent, matrix
from parity.torch_impl.optimizers.base import Optimizer, build_optimizer
from parity.torch_impl.wrapped.rule import RuleOptimizer, groups_of

__all__ = [
    "Optimizer",
    "RuleOptimizer",
    "adam",
    "adaptive",
    "build_optimizer",
    "descent",
    "groups_of",
    "matrix",
]
