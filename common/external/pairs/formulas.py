"""An optimizer's formulas (`parity.common.reference`) on all tensors of a model at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.common import reference
from parity.common.external.process.pass_result import Arrays
from parity.common.spec.optimizers import OptimizerBase

Slots = dict[str, dict[str, NDArray[Any]]]


def slots_of(optimizer: OptimizerBase, state: Arrays) -> Slots:
    """The slots of every tensor before the first step."""
    return {
        name: {
            slot: np.full(initial.shape, initial.value)
            for slot, initial in reference.initial_slots(optimizer, name, value.shape).items()
        }
        for name, value in state.items()
    }


def updated(
    optimizer: OptimizerBase, step: int, state: Arrays, gradients: Arrays, slots: Slots
) -> tuple[Arrays, Slots]:
    """State and slots after a step, at a learning rate that stays; tensors without a gradient as they are.

    Args:
        optimizer: resolved.
        step: its number, from 0.
        state: float64, by canonical name.
        gradients: of the mean loss, likewise; not clipped.
        slots: as `slots_of`, or as a step before has left them.
    """
    scalars = reference.step_scalars(optimizer, step, optimizer.learning_rate or 0.0)
    clipped = reference.clip(optimizer, {name: gradients[name] for name in state if name in gradients})
    found, kept = dict(state), dict(slots)
    for name, gradient in clipped.items():
        found[name], kept[name] = reference.update(
            optimizer, scalars, state[name], gradient, slots[name], name
        )
    return found, kept
