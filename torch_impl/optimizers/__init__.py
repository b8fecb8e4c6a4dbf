"""Optimizers in either framework's convention; formulas as in `common/reference/optimizers`."""

# The rules register themselves.
from torch_impl.optimizers import adam, adaptive, descent, matrix
from torch_impl.optimizers.base import Optimizer, build_optimizer
from torch_impl.optimizers.rule import RuleOptimizer, groups_of

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
