"""Parallelism, all of it: replicas, where they run, how they share a model, and sums over them."""

from __future__ import annotations

from parity.common.spec import Placement
from parity.tf_impl.strategy.base import Strategy
from parity.tf_impl.strategy.mirrored import Mirrored, MultiWorker

__all__ = ["Strategy", "open_strategy"]

_STRATEGIES: dict[str, type[Strategy]] = {
    "single": Strategy,
    "mirrored": Mirrored,
    "multi_worker": MultiWorker,
}


def open_strategy(placement: Placement) -> Strategy:
    """The strategy of a placement; meets the other workers that the launcher's environment describes."""
    return _STRATEGIES[placement.strategy](placement)
