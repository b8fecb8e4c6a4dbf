"""Optimizers in either framework's convention, by the formulas of `common/reference/optimizers`."""

from parity.tf_impl.optimizers.base import Optimizer, build_optimizer

__all__ = ["Optimizer", "build_optimizer"]
