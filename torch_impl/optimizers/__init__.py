"""Optimizers in either framework's convention; formulas as in `common/reference/optimizers`."""

import parity.torch_impl.rules  # noqa: F401 - they register themselves
from parity.torch_impl.optimizers.base import Optimizer, build_optimizer
from parity.torch_impl.wrapped.rule import RuleOptimizer, groups_of

__all__ = ["Optimizer", "RuleOptimizer", "build_optimizer", "groups_of"]
