"""What every optimizer spec shares: clipping, weight decay, and the average of the weights."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from parity.common.spec.base import Convention, Conventions, Number, PositiveInt, Spec

# The rows that every optimizer has in common; weight decay is off unless a class says otherwise.
COMMON: Conventions = {
    "clip_epsilon": (0.0, 1e-6),
    "weight_decay": (0.0, 0.0),
    "weight_decay_mode": ("decoupled", "coupled"),
}

DecayMode = Literal["decoupled", "coupled"]


class WeightAverage(Spec):
    """An exponential moving average of the weights, kept as the slot `average`.

    a = d * a + (1 - d) * w after each step; the first step copies, as in both frameworks (their
    decays are .99 in Keras and .999 in PyTorch). Buffers are not averaged.
    """

    decay: Number = Field(ge=0, lt=1, description="share of the average that a step keeps")
    overwrite_every: PositiveInt | None = Field(
        default=None, description="set the weights to their average after every N steps, as Keras can"
    )
    evaluate: bool = Field(default=True, description="evaluate with the average in place of the weights")


class OptimizerBase(Spec):
    """Fields every optimizer has. Formulas: `common/reference/optimizers`.

    Order within a step: reduction, clipping, decay, update, average. Of the clippings at most one
    may be given, as in Keras.
    """

    # Whether the update of an element depends on no other of its tensor, but for clip_norm.
    elementwise: ClassVar[bool] = True
    convention: Convention | None = Field(default=None, description="default: the TrainSpec's")
    learning_rate: Number | None = Field(default=None, gt=0, description="default: the framework's own")
    clip_global_norm: Number | None = Field(default=None, gt=0, description="applied after the reduction")
    clip_norm: Number | None = Field(
        default=None, gt=0, description="the same for each tensor by its own norm"
    )
    clip_value: Number | None = Field(default=None, gt=0, description="limits each element to [-v, v]")
    clip_epsilon: Number | None = Field(
        default=None, ge=0, description="g * min(1, clip / (norm + clip_epsilon))"
    )
    weight_decay: Number | None = Field(
        default=None, ge=0, description="factor wd; AdamW and Muon have defaults of their own"
    )
    weight_decay_mode: DecayMode | None = Field(
        default=None, description="decoupled: w -= lr*wd*w before the update; coupled: g += wd*w"
    )
    decay_mask: Literal["all", "matrices"] | tuple[str, ...] = Field(
        default="all",
        description="which tensors decay: all, those of two or more axes, or all but these patterns",
    )
    ema: WeightAverage | None = Field(default=None, description="keep a moving average of the weights")

    @model_validator(mode="after")
    def _one_clipping(self) -> OptimizerBase:
        given = [n for n in ("clip_global_norm", "clip_norm", "clip_value") if getattr(self, n) is not None]
        if len(given) > 1:
            raise ValueError(f"at most one kind of clipping may be given, received {' and '.join(given)}")
        return self

    def decays(self, name: str, shape: tuple[int, ...]) -> bool:
        """Whether weight decay applies to a tensor, by its name below `parameters/`."""
        if self.decay_mask == "all":
            return True
        if self.decay_mask == "matrices":
            return len(shape) >= 2
        return not any(fnmatchcase(name, pattern) for pattern in self.decay_mask)

    def rule_of(self, name: str, shape: tuple[int, ...]) -> OptimizerBase:
        """The optimizer that updates a tensor: this one, unless its rule suits only some tensors."""
        del name, shape
        return self

    def rule_for(self, name: str, shape: tuple[int, ...]) -> OptimizerBase:
        """`rule_of` a tensor, without weight decay where the tensor does not decay."""
        rule = self.rule_of(name, shape)
        return rule if self.decays(name, shape) else rule.model_copy(update={"weight_decay": 0.0})
