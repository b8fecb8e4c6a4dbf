"""Engines: other people's trainers, which own the loop."""

from __future__ import annotations

import importlib
from typing import Any

from parity.common.spec import Placement, TrainSpec


def owns_loop(placement: Placement) -> bool:
    """Whether the placement's engine runs the training loop itself."""
    return placement.engine != "own"


def check(spec: TrainSpec, placement: Placement) -> None:
    """Raise SpecError where the placement's engine cannot train a resolved spec."""
    if owns_loop(placement):
        _engine(placement).check(spec, placement)


def build(spec: TrainSpec, model: Any, strategy: Any) -> tuple[Any, Any]:
    """The optimizer and the loop of the engine of the strategy's placement."""
    return _engine(strategy.placement).build(spec, model, strategy)


def _engine(placement: Placement) -> Any:
    return importlib.import_module(f"parity.tf_impl.engines.{placement.engine}_fit")
