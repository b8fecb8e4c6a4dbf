"""NumPy formulas of schedules, optimizers and losses: the referee when the two frameworks differ.

Scalars that change from step to step (learning rate, bias corrections) are computed here in
float64 and handed to both trainers, so no framework can compute them in a narrower type.
"""

from parity.common.reference.optimizers import AVERAGE, clip, clip_factor, initial_slots, step_scalars, update
from parity.common.reference.schedules import LossScaler, StepScalars, learning_rate

__all__ = [
    "AVERAGE",
    "LossScaler",
    "StepScalars",
    "clip",
    "clip_factor",
    "initial_slots",
    "learning_rate",
    "step_scalars",
    "update",
]
