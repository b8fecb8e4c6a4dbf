"""DataSpec: which samples, in which order, split how."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from parity.common.base.errors import SpecError
from parity.common.spec.augment import AugmentSpec
from parity.common.spec.base import NonNegativeInt, PositiveInt, Spec
from parity.common.spec.sources import Digits, SourceSpec


class DataSpec(Spec):
    """Which samples, changed how, in which order, split how.

    `split` is here and not in the Placement because under per-replica batch norm it changes the
    mathematics; `tail` because dropping samples always does.
    """

    source: SourceSpec = Field(
        default=Digits(),
        description="where samples come from: the name of a table that is shipped, or a source with its fields",
    )
    augment: tuple[AugmentSpec, ...] = Field(default=(), description="of training samples, in this order")
    train_samples: PositiveInt = Field(default=1437, description="the first N samples are trained on")
    eval_samples: NonNegativeInt = Field(
        default=360, description="the next N, or the first N of the test files, are evaluated on at the end"
    )
    shuffle: bool = Field(default=True, description="a new order every epoch, keyed by (seed, epoch)")
    split: Literal["contiguous", "strided"] = Field(
        default="contiguous",
        description="replica r of R gets the r-th run of ceil(B/R) samples, or every R-th",
    )
    tail: Literal["keep", "drop"] = Field(
        default="keep", description="the smaller batch at the end of an epoch"
    )

    @model_validator(mode="after")
    def _mixable(self) -> DataSpec:
        kinds = [op.kind for op in self.augment]
        for kind in ("mixup", "mask_tokens"):
            if kinds.count(kind) > 1:
                raise ValueError(f"augment has {kind} twice")
        if "mixup" in kinds and self.train_samples < 2:
            raise ValueError("mixup needs two training samples or more")
        return self

    def check_augment(
        self, input_shape: tuple[int, ...], tokens: bool, integer_targets: bool, ignore: int | None
    ) -> None:
        """Raise SpecError where an op does not suit a model's inputs or a loss's targets."""
        for op in self.augment:
            if op.works_on == "images" and (tokens or len(input_shape) != 3):
                raise SpecError(
                    f"data.augment: {op.kind} needs images (height, width, channels), received {input_shape}"
                )
            if tokens != (op.works_on == "tokens"):
                raise SpecError(f"data.augment: {op.kind} is for {op.works_on}, the model's inputs are not")
            if op.kind == "mixup" and integer_targets:
                raise SpecError("data.augment: mixup mixes targets; the loss needs targets 'distributions'")
            if op.kind == "mask_tokens" and not integer_targets:
                raise SpecError("data.augment: mask_tokens asks for tokens; the loss needs targets 'classes'")
            if op.kind == "mask_tokens" and op.ignore != ignore:
                raise SpecError(
                    f"data.augment: mask_tokens gives tokens it does not ask for the target {op.ignore};"
                    f" loss.ignore must be that, received {ignore}"
                )
            if op.kind == "colour_jitter" and op.saturation and input_shape[-1] != 3:
                raise SpecError("data.augment: saturation needs three channels, use 0")
