"""Faults of the PyTorch side that show in no curve: at one step, late or very late, a moving mean is moved."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from parity.common.execution.hooks import Hook, Hooks
from parity_tests.helpers.hooks import in_ranks

LATE, VERY_LATE = 11, 700


def a_moving_mean_moves_late() -> AbstractContextManager[None]:
    return in_ranks("parity_tests.late_fault:moved", LATE)


def a_moving_mean_moves_very_late() -> AbstractContextManager[None]:
    return in_ranks("parity_tests.late_fault:moved", VERY_LATE)


@contextmanager
def moved(late: int) -> Iterator[Hooks]:
    """A rank inside it has the fault."""

    def take(step: Any, part: Hook, batch: Any, scalars: dict[str, float], number: int) -> Any:
        result = part(batch, scalars, number)
        if number == late:
            with torch.no_grad():
                for name, tensor in step.model.tensors.items():
                    if name.endswith("moving_mean"):
                        tensor.live.add_(1e-3)
        return result

    yield Hooks(take=take)
