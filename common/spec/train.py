"""TrainSpec: what is trained. It alone decides the loss curve."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from common.errors import SpecError
from common.spec.base import Convention, NonNegativeInt, PositiveInt, Spec
from common.spec.data import DataSpec
from common.spec.losses import LossSpec, SoftmaxCrossEntropy
from common.spec.model import ModelSpec, walk
from common.spec.optimizers import OptimizerSpec
from common.spec.schedules import Constant, ScheduleSpec


class TrainSpec(Spec):
    """Everything that decides the loss curve."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    convention: Convention = "keras"
    model: ModelSpec
    data: DataSpec = DataSpec()
    loss: LossSpec = SoftmaxCrossEntropy()
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
            self.loss.target_shape(self.model.output_shape())
            tokens, ignore = self.model.inputs == "tokens", getattr(self.loss, "ignore", None)
            self.data.check_augment(self.model.input_shape, tokens, self.loss.target_is_integer, ignore)
        except SpecError as error:
            raise ValueError(str(error)) from None
        if getattr(self.loss, "mask_padding", False) and self.model.pad_id is None:
            raise ValueError("loss.mask_padding needs a model.pad_id")
        return self

    @property
    def input_dtype(self) -> str:
        """Type of a batch's inputs."""
        return "int64" if self.model.inputs == "tokens" else self.precision

    @property
    def target_dtype(self) -> str:
        """Type of a batch's targets."""
        return "int64" if self.loss.target_is_integer else self.precision

    @property
    def target_shape(self) -> tuple[int, ...]:
        """Shape of one sample's target."""
        return self.loss.target_shape(self.model.output_shape())

    def resolved(self) -> TrainSpec:
        """This spec with every convention written out; what trainers, digests and records use."""
        return self.resolve(self.convention)

    @property
    def per_replica_statistics(self) -> bool:
        """Whether some batch norm makes the replica count part of the mathematics."""
        return any(getattr(n.spec, "statistics", "") == "per_replica" for n in walk(self.model.tree()))
