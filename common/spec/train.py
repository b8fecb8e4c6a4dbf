"""TrainSpec: what is trained. It alone decides the loss curve."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from parity.common.base.errors import SpecError
from parity.common.spec.base import Convention, NonNegativeInt, PositiveInt, Spec
from parity.common.spec.data import DataSpec
from parity.common.spec.imported_loss import AnyLoss
from parity.common.spec.losses import SoftmaxCrossEntropy
from parity.common.spec.model import ModelSpec, walk
from parity.common.spec.optimizers import OptimizerSpec
from parity.common.spec.precision import LOW, NUDGE, LossScale, Precision
from parity.common.spec.schedules import Constant, ScheduleSpec
from parity.common.spec.stock import MIXED, StockMode


class TrainSpec(Spec):
    """Everything that decides the loss curve."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
        description="name of what is trained; letters, digits, '_', '.', '-'",
    )
    convention: Convention = Field(
        default="keras", description="whose defaults the fields take that are not given"
    )
    model: ModelSpec = Field(description="layers that are trained")
    data: DataSpec = Field(default=DataSpec(), description="samples that are trained on")
    loss: AnyLoss = Field(default=SoftmaxCrossEntropy(), description="what is minimised")
    optimizer: OptimizerSpec = Field(description="how the parameters are updated")
    schedule: ScheduleSpec = Field(default=Constant(), description="the learning rate of each step")
    global_batch_size: PositiveInt = Field(description="samples of an optimizer step over all replicas")
    steps: PositiveInt = Field(description="optimizer steps")
    seed: NonNegativeInt = Field(default=0, description="of initial values, order, augmentation and dropout")
    precision: Precision = Field(
        default="float64",
        description="number type of the computation; 'mixed': weights in float32, products in the low type",
    )
    tf32: bool = Field(
        default=False, description="let GPUs round the operands of float32 products to 11 bits"
    )
    loss_scale: LossScale | None = Field(
        default=None, description="of float16_mixed; its convention where not given"
    )
    stock: tuple[StockMode, ...] = Field(
        default=(),
        description="what each framework does in its own way; no proof covers it, 'parity study' does",
    )

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
        if self.tf32 and self.precision != "float32":
            raise ValueError(
                f"tf32 is a way to compute float32 products, and precision is '{self.precision}'"
            )
        if self.loss_scale is not None and not self.scales_loss:
            raise ValueError(f"loss_scale belongs to float16_mixed, and precision is '{self.precision}'")
        if len(set(self.stock)) < len(self.stock) or len({*MIXED} & {*self.stock}) > 1:
            raise ValueError(
                f"stock {', '.join(self.stock)}: each mode once, and one mixed precision at most"
            )
        if self.stock_precision and (self.precision != "float32" or self.tf32):
            raise ValueError(
                f"stock {self.stock_precision} keeps weights in float32; precision must be float32, without tf32, and is"
                f" '{self.precision}'"
            )
        return self

    @property
    def stock_precision(self) -> str | None:
        """The mixed precision that each framework computes in by its own rules, by Keras's name; None: not so."""
        return next((mode for mode in self.stock if mode in MIXED), None)

    @property
    def scales_loss(self) -> bool:
        """Whether gradients could vanish in float16, so that the loss is scaled."""
        return self.precision == "float16_mixed" or self.stock_precision == "mixed_float16"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data with every field; without stock modes as it was before there were any."""
        found = super().to_dict()
        if not self.stock:
            del found["stock"]
        return found

    def in_float64(self) -> TrainSpec:
        """The same in float64; of a spec in float32, which has no fields of its own for it."""
        return self.model_copy(update={"precision": "float64"})

    @property
    def master_dtype(self) -> str:
        """Type of weights, slots, losses and everything else but the operands of low products."""
        return "float64" if self.precision == "float64" else "float32"

    @property
    def nudge(self) -> float:
        """By how much the parameters of runs that measure noise are off, relatively.

        Two frameworks round each sample's terms in their own way, and runs of one in another order of samples do not show what that does
        where terms cancel (a gradient through a normalization of two numbers).
        """
        return NUDGE.get(self.precision, 0.0)

    @property
    def allows_tf32(self) -> bool:
        """Whether float32 products on GPUs may use TF32, which takes low operands unrounded."""
        return self.tf32 or self.low_dtype is not None

    @property
    def low_dtype(self) -> str | None:
        """Type that products round their operands and results to, None where they do not."""
        return LOW.get(self.precision)

    @property
    def input_dtype(self) -> str:
        """Type of a batch's inputs."""
        return "int64" if self.model.inputs == "tokens" else self.master_dtype

    @property
    def target_dtype(self) -> str:
        """Type of a batch's targets."""
        return "int64" if self.loss.target_is_integer else self.master_dtype

    @property
    def target_shape(self) -> tuple[int, ...]:
        """Shape of one sample's target."""
        return self.loss.target_shape(self.model.output_shape())

    def resolved(self) -> TrainSpec:
        """This spec with every convention written out; what trainers, digests and records use."""
        spec = self
        if self.scales_loss and self.loss_scale is None:
            spec = self.model_copy(update={"loss_scale": LossScale()})
        return spec.resolve(self.convention)

    @property
    def per_replica_statistics(self) -> bool:
        """Whether some batch norm makes the replica count part of the mathematics."""
        return any(getattr(n.spec, "statistics", "") == "per_replica" for n in walk(self.model.tree()))
