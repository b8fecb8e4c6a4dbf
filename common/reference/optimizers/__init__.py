"""NumPy formulas of the optimizers, and the scalars that both trainers are handed."""

# The rules register themselves.
from parity.common.reference.optimizers import adam, adaptive, descent, matrix
from parity.common.reference.optimizers.base import (
    AVERAGE,
    InitialSlot,
    clip,
    clip_factor,
    initial_slots,
    step_scalars,
    update,
)

__all__ = [
    "AVERAGE",
    "InitialSlot",
    "adam",
    "adaptive",
    "clip",
    "clip_factor",
    "descent",
    "initial_slots",
    "matrix",
    "step_scalars",
    "update",
]
