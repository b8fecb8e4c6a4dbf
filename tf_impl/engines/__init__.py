"""Engines: other people's trainers, which own the loop."""

from __future__ import annotations

from parity.common.spec import Placement, TrainSpec
from parity.tf_impl.engines import stock


def check(spec: TrainSpec, placement: Placement) -> None:
    """Raise SpecError where the placement's engine cannot train a resolved spec."""
    if placement.engine == "keras":
        stock.check(spec)
