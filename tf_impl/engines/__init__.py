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
        engine_of(placement).check(spec, placement)


def engine_of(placement: Placement) -> Any:
    """The module of the placement's engine."""
    return importlib.import_module(f"parity.tf_impl.engines.{placement.engine}_fit")
