"""Faults of the PyTorch side that show in no curve: at one step, late or very late, a moving mean is moved."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import torch

from parity.torch_impl import train
from parity.torch_impl.step import Step, StepResult
from parity_tests.helpers.rerouted import rerouted

LATE, VERY_LATE = 11, 700


def a_moving_mean_moves_late() -> AbstractContextManager[None]:
    return rerouted(train, "parity_tests.late_fault:faulty_rank", LATE)


def a_moving_mean_moves_very_late() -> AbstractContextManager[None]:
    return rerouted(train, "parity_tests.late_fault:faulty_rank", VERY_LATE)


def faulty_rank(late: int, *arguments: Any) -> None:
    """A rank's whole life under the fault."""
    real = Step.__call__

    def faulty(self: Step, batch: Any, scalars: dict[str, float], number: int) -> StepResult:
        result = real(self, batch, scalars, number)
        if number == late:
            with torch.no_grad():
                for name, tensor in self.model.tensors.items():
                    if name.endswith("moving_mean"):
                        tensor.live.add_(1e-3)
        return result

    with patch.object(Step, "__call__", faulty):
        train._train_rank(*arguments)
