"""NumPy formulas of the optimizers, and the scalars that both trainers are handed."""

from parity.common.reference.optimizers import (  # noqa: F401 - they register their rules
    adam,
    adaptive,
    descent,
    matrix,
)
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
    "clip",
    "clip_factor",
    "initial_slots",
    "step_scalars",
    "update",
]
