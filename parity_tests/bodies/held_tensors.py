"""Counts what looked-into steps of a torch run leave behind in memory; the run fails where it grows."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import torch

from parity.torch_impl.probe import Probe, _Look
from parity_tests.helpers.hooks import in_ranks


def counted() -> AbstractContextManager[None]:
    return in_ranks("parity_tests.bodies.held_tensors:counting")


def counted_unreleased() -> AbstractContextManager[None]:
    """Where the probe does not let go of the step's tensors."""
    return in_ranks("parity_tests.bodies.held_tensors:counting_unreleased")


@contextmanager
def counting() -> Iterator[None]:
    """Within it a rank fails once tensors are left behind."""
    real, held = Probe.traced, []

    def traced(self: Probe, *given: Any) -> Any:
        seen = real(self, *given)
        gc.collect()
        held.append(sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects()))
        # What is left behind adds up step by step; a tensor more in one of them may be on its way out.
        if len(held) > 3 and held[-1] > held[-2] > held[-3]:
            raise MemoryError(f"tensors held after each step: {held}")
        return seen

    with patch.object(Probe, "traced", traced):
        yield


@contextmanager
def counting_unreleased() -> Iterator[None]:
    """`counting`, where the probe lets go of nothing."""
    with patch.object(_Look, "release", lambda self: None), counting():
        yield
