"""TrainSpec and its parts: what is trained. It alone decides the loss curve."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, model_validator

from common.errors import SpecError
from common.spec.base import Convention, NonNegativeInt, Number, PositiveInt, Spec
from common.spec.layers import AnyLayer, Node, Sequential, Shape


class ModelSpec(Spec):
    """A tree of layers applied to one input. `input_shape` leaves out the batch, images are HWC."""

    input_shape: tuple[PositiveInt, ...] = Field(min_length=1)
    layers: tuple[AnyLayer, ...] = Field(min_length=1)

    def tree(self) -> Node:
        """The layers in their places; the root's path is empty."""
        return Sequential(layers=self.layers).node("", self.input_shape)

    def output_shape(self) -> Shape:
        return self.tree().output_shape


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it, in execution order."""
    yield node
    for child in node.children:
        yield from walk(child)


class DataSpec(Spec):
    """Which samples, in which order, split how.

    `split` is here and not in the Placement because under per-replica batch norm it changes the
    mathematics; `tail` because dropping samples always does.
    """

    source: Literal["digits"] = "digits"
    train_samples: PositiveInt = Field(1437, description="the first N samples are trained on")
    eval_samples: NonNegativeInt = Field(360, description="the next N are evaluated on at the end")
    shuffle: bool = Field(True, description="a new order every epoch, keyed by (seed, epoch)")
    split: Literal["contiguous", "strided"] = Field(
        "contiguous", description="replica r of R gets the r-th run of ceil(B/R) samples, or every R-th"
    )
    tail: Literal["keep", "drop"] = Field("keep", description="the smaller batch at the end of an epoch")


class LossSpec(Spec):
    """Always (sum, count); the step divides once, globally."""

    kind: Literal["softmax_cross_entropy"] = "softmax_cross_entropy"


class OptimizerBase(Spec):
    """Fields every optimizer has. Formulas: `common/reference.py`."""

    convention: Convention | None = Field(None, description="default: the TrainSpec's")
    learning_rate: Number = Field(gt=0)
    clip_global_norm: Number | None = Field(None, gt=0, description="applied after the reduction")
    clip_epsilon: Number | None = Field(None, ge=0, description="g * min(1, clip / (norm + clip_epsilon))")
    weight_decay: Number | None = Field(None, ge=0)
    weight_decay_mode: Literal["decoupled", "coupled"] | None = Field(
        None, description="decoupled: w -= lr*wd*w before the update; coupled: g += wd*w"
    )


class SGD(OptimizerBase):
    """Gradient descent with momentum. `momentum_form` decides what a changing learning rate does."""

    conventions = {
        "keras": {
            "momentum_form": "velocity",
            "weight_decay": 0.0,
            "weight_decay_mode": "decoupled",
            "clip_epsilon": 0.0,
        },
        "torch": {
            "momentum_form": "buffer",
            "weight_decay": 0.0,
            "weight_decay_mode": "coupled",
            "clip_epsilon": 1e-6,
        },
    }
    kind: Literal["sgd"] = "sgd"
    momentum: Number = Field(0.0, ge=0, lt=1)
    nesterov: bool = False
    momentum_form: Literal["velocity", "buffer"] | None = Field(
        None, description="velocity: v = mu*v - lr*g, w += v; buffer: b = mu*b + g, w -= lr*b"
    )

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> SGD:
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov needs a momentum above 0")
        return self


_ADAM = {
    "keras": {"epsilon": 1e-7, "epsilon_place": "outside", "clip_epsilon": 0.0},
    "torch": {"epsilon": 1e-8, "epsilon_place": "inside", "clip_epsilon": 1e-6},
}


class AdamBase(OptimizerBase):
    """Adam's own fields. `epsilon_place` says whether bias correction touches epsilon (row 11)."""

    beta_1: Number = Field(0.9, ge=0, lt=1)
    beta_2: Number = Field(0.999, ge=0, lt=1)
    epsilon: Number | None = Field(None, gt=0)
    epsilon_place: Literal["outside", "inside"] | None = Field(
        None, description="outside: sqrt(v) + eps, corrected step size; inside: sqrt(v / (1-b2^t)) + eps"
    )


class Adam(AdamBase):
    """Adam; its weight decay is decoupled in Keras and coupled in PyTorch (row 12)."""

    conventions = {
        "keras": {**_ADAM["keras"], "weight_decay": 0.0, "weight_decay_mode": "decoupled"},
        "torch": {**_ADAM["torch"], "weight_decay": 0.0, "weight_decay_mode": "coupled"},
    }
    kind: Literal["adam"] = "adam"


class AdamW(AdamBase):
    """Adam with decoupled weight decay, .004 in Keras and .01 in PyTorch unless given (row 13)."""

    conventions = {
        "keras": {**_ADAM["keras"], "weight_decay": 0.004, "weight_decay_mode": "decoupled"},
        "torch": {**_ADAM["torch"], "weight_decay": 0.01, "weight_decay_mode": "decoupled"},
    }
    kind: Literal["adamw"] = "adamw"
    weight_decay_mode: Literal["decoupled"] | None = None


OptimizerSpec = Annotated[SGD | Adam | AdamW, Field(discriminator="kind")]


class Constant(Spec):
    """The optimizer's learning rate at every step."""

    kind: Literal["constant"] = "constant"


class WarmupCosine(Spec):
    """Linear warm-up to the optimizer's learning rate, then half a cosine down.

    Step s (from 0) of the warm-up uses (s + 1) / warmup_steps, so the first step already moves.
    """

    kind: Literal["warmup_cosine"] = "warmup_cosine"
    warmup_steps: NonNegativeInt = 0
    decay_steps: PositiveInt | None = Field(None, description="default: the steps after the warm-up")
    final_fraction: Number = Field(0.0, ge=0, le=1)


ScheduleSpec = Annotated[Constant | WarmupCosine, Field(discriminator="kind")]


class TrainSpec(Spec):
    """Everything that decides the loss curve."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    convention: Convention = "keras"
    model: ModelSpec
    data: DataSpec = DataSpec()
    loss: LossSpec = LossSpec()
    optimizer: OptimizerSpec
    schedule: ScheduleSpec = Constant()
    global_batch_size: PositiveInt
    steps: PositiveInt
    seed: NonNegativeInt = 0
    precision: Literal["float64", "float32"] = "float64"

    @model_validator(mode="after")
    def _consistent(self) -> TrainSpec:
        if self.data.tail == "drop" and self.global_batch_size > self.data.train_samples:
            raise ValueError(
                f"global_batch_size {self.global_batch_size} exceeds data.train_samples"
                f" {self.data.train_samples} and data.tail is 'drop', so no batch would remain"
            )
        try:
            output = self.model.output_shape()
        except SpecError as error:
            raise ValueError(str(error)) from None
        if len(output) != 1:
            raise ValueError(f"the model must end in (classes,) for {self.loss.kind}; it ends in {output}")
        return self

    def resolved(self) -> TrainSpec:
        """This spec with every convention written out; what trainers, digests and records use."""
        return self.resolve(self.convention)

    @property
    def per_replica_statistics(self) -> bool:
        """Whether some batch norm makes the replica count part of the mathematics."""
        return any(getattr(n.spec, "statistics", "") == "per_replica" for n in walk(self.model.tree()))
