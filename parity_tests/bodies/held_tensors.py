"""Counts what looked-into steps of a torch run leave behind in memory; the run fails where it grows."""

from __future__ import annotations

import gc
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import torch

from parity.torch_impl import train
from parity.torch_impl.probe import Probe, _Look
from parity_tests.helpers.rerouted import rerouted


def counted() -> AbstractContextManager[None]:
    return rerouted(train, "parity_tests.bodies.held_tensors:counting_rank")


def counted_unreleased() -> AbstractContextManager[None]:
    """Where the probe does not let go of the step's tensors."""
    return rerouted(train, "parity_tests.bodies.held_tensors:unreleasing_rank")


def counting_rank(*arguments: Any) -> None:
    real, held = Probe.traced, []

    def counting(self: Probe, *given: Any) -> Any:
        seen = real(self, *given)
        gc.collect()
        held.append(sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects()))
        if len(held) > 2 and held[-1] > held[-2]:
            raise MemoryError(f"tensors held after each step: {held}")
        return seen

    with patch.object(Probe, "traced", counting):
        train._train_rank(*arguments)


def unreleasing_rank(*arguments: Any) -> None:
    with patch.object(_Look, "release", lambda self: None):
        counting_rank(*arguments)
