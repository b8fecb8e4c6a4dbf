"""NumPy formulas of schedules, optimizers and losses: the referee when the two frameworks differ.

Scalars that change from step to step (learning rate, bias corrections) are computed here in
float64 and handed to both trainers, so no framework can compute them in a narrower type.
"""

from common.reference.losses import softmax_cross_entropy
from common.reference.optimizers import clip_factor, slot_names, step_scalars, update
from common.reference.schedules import learning_rate

__all__ = [
    "clip_factor",
    "learning_rate",
    "slot_names",
    "softmax_cross_entropy",
    "step_scalars",
    "update",
]
