"""Loss specs. Always (sum, count): the step divides once, globally.

What a loss counts is what its mean is over: samples or tokens for classes, elements for numbers.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal

from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, TypeAdapter, model_validator

from parity.common.base.errors import SpecError
from parity.common.spec.base import Number, Spec
from parity.common.spec.layers import Shape


def unknown_class(labels: NDArray[Any], classes: int, ignored: int | None = None) -> int | None:
    """The first of class numbers (any shape) that is neither one of so many classes nor ignored; None where there is none."""
    unknown = labels[((labels < 0) | (labels >= classes)) & (labels != ignored)]
    return int(unknown[0]) if unknown.size else None


class LossBase(Spec):
    """Fields that every loss has.

    `l1` and `l2` add l1 * sum|w| + l2 * sum w^2 over the chosen parameters to the mean loss, once,
    whatever the replica count; the gradient of the second is 2 * l2 * w (row 10).
    """

    # Whether outputs are scores of classes, so that the share of right ones can be told.
    classes: ClassVar[bool] = False
    l1: Number = Field(default=0.0, ge=0, description="factor of the sum of the parameters' absolute values")
    l2: Number = Field(default=0.0, ge=0, description="factor of the sum of the parameters' squares")
    penalize: Literal["matrices", "all"] = Field(
        default="matrices", description="tensors of two or more axes, or all"
    )

    def target_shape(self, output_shape: Shape) -> Shape:
        """Shape of one sample's target; raises SpecError where the model's output does not suit."""
        return output_shape

    def counted(self, output_shape: Shape) -> int | None:
        """What a sample adds to the count; None where that depends on the sample."""
        return math.prod(output_shape)

    @property
    def target_is_integer(self) -> bool:
        return getattr(self, "targets", "") == "classes"

    def unknown_class(self, targets: NDArray[Any], classes: int) -> int | None:
        """The first of targets (any shape) that is none of so many classes; None where all are, and where they are no classes."""
        return None


class SoftmaxCrossEntropy(LossBase):
    """-sum_c t_c log p_c for classes along the last axis; counts samples, pixels or tokens.

    `outputs: probabilities` follows Keras: integer classes clip p to [clip, 1 - clip] and then
    normalise it, distributions normalise p and then clip. PyTorch clips nothing (row 32).
    `class_weight_mean` says what a weighted mean divides by (row 23): `count`, the number of
    targets, or `weights`, the sum of their weights.
    """

    conventions = {"clip": (1e-7, 0.0), "class_weight_mean": ("count", "weights")}
    classes = True
    kind: Literal["softmax_cross_entropy"] = "softmax_cross_entropy"
    outputs: Literal["logits", "probabilities"] = Field(default="logits", description="what the model gives")
    targets: Literal["classes", "distributions"] = Field(
        default="classes", description="classes: whole numbers; distributions: one number a class"
    )
    label_smoothing: Number = Field(default=0.0, ge=0, lt=1, description="t = (1 - s) * t + s / classes")
    class_weights: tuple[Number, ...] | None = Field(
        default=None, description="weight of each class; null: all 1"
    )
    class_weight_mean: Literal["count", "weights"] | None = Field(
        default=None,
        description="what a weighted mean divides by: the number of targets, or the sum of their weights",
    )
    ignore: int | None = Field(
        default=None, strict=True, description="targets of this value count for nothing"
    )
    mask_padding: bool = Field(default=False, description="leave out the tokens that are the model's pad_id")
    clip: Number | None = Field(
        default=None, ge=0, lt=0.5, description="with probabilities: they are kept within clip and 1 - clip"
    )

    @property
    def is_plain(self) -> bool:
        """Whether every class target counts once, so that PyTorch's own loss of logits says the same."""
        from_classes = self.targets == "classes" and self.outputs == "logits"
        weighs = self.label_smoothing or self.class_weights is not None
        return from_classes and not (weighs or self.ignore is not None or self.mask_padding)

    @model_validator(mode="after")
    def _suits(self) -> SoftmaxCrossEntropy:
        if self.targets == "distributions" and (self.class_weights is not None or self.ignore is not None):
            raise ValueError("class_weights and ignore need integer targets; targets is 'distributions'")
        return self

    def target_shape(self, output_shape: Shape) -> Shape:
        if self.class_weights is not None and len(self.class_weights) != output_shape[-1]:
            raise SpecError(
                f"loss.class_weights has {len(self.class_weights)} entries,"
                f" the model ends in {output_shape[-1]} classes"
            )
        return output_shape if self.targets == "distributions" else output_shape[:-1]

    def unknown_class(self, targets: NDArray[Any], classes: int) -> int | None:
        return unknown_class(targets, classes, self.ignore) if self.targets == "classes" else None

    def counted(self, output_shape: Shape) -> int | None:
        weighted = self.class_weights is not None and self.class_weight_mean == "weights"
        if self.ignore is not None or self.mask_padding or weighted:
            return None
        return math.prod(output_shape[:-1])


class BinaryCrossEntropy(LossBase):
    """-(t log p + (1 - t) log(1 - p)) elementwise; counts elements.

    On probabilities, Keras clips p to [clip, 1 - clip]; PyTorch clamps the logarithms at -100
    (`log_floor`; row 32).
    """

    conventions = {"clip": (1e-7, 0.0), "log_floor": (None, -100.0)}
    kind: Literal["binary_cross_entropy"] = "binary_cross_entropy"
    outputs: Literal["logits", "probabilities"] = Field(default="logits", description="what the model gives")
    label_smoothing: Number = Field(default=0.0, ge=0, lt=1, description="t = (1 - s) * t + s / 2")
    positive_weight: Number = Field(default=1.0, gt=0, description="multiplies the term of t")
    clip: Number | None = Field(
        default=None, ge=0, lt=0.5, description="with probabilities: they are kept within clip and 1 - clip"
    )
    log_floor: Number | None = Field(
        default=None, description="with probabilities: smallest value of a logarithm"
    )


class MeanSquaredError(LossBase):
    """(y - t)^2; counts elements."""

    kind: Literal["mean_squared_error"] = "mean_squared_error"


class MeanAbsoluteError(LossBase):
    """|y - t|; counts elements. Its gradient at 0 is 0."""

    kind: Literal["mean_absolute_error"] = "mean_absolute_error"


class Huber(LossBase):
    """e^2 / 2 where |e| <= delta, else delta * |e| - delta^2 / 2; counts elements (Huber 1964)."""

    kind: Literal["huber"] = "huber"
    delta: Number = Field(default=1.0, gt=0, description="error at which the loss becomes linear")


class KLDivergence(LossBase):
    """sum_c t_c log(t_c / p_c) along the last axis; counts the distributions, PyTorch's `batchmean`.

    On probabilities, Keras clips t and p to [clip, 1]; on log-probabilities, as in PyTorch, 0 log 0 is 0.
    """

    conventions = {"outputs": ("probabilities", "log_probabilities"), "clip": (1e-7, 0.0)}
    kind: Literal["kl_divergence"] = "kl_divergence"
    outputs: Literal["logits", "probabilities", "log_probabilities"] | None = Field(
        default=None, description="what the model gives"
    )
    clip: Number | None = Field(
        default=None, ge=0, lt=0.5, description="with probabilities: both sides are kept within clip and 1"
    )

    def counted(self, output_shape: Shape) -> int | None:
        return math.prod(output_shape[:-1])


def with_a_kind(value: Any) -> Any:
    """A loss without a kind is the usual one, so that --set loss.label_smoothing=0.1 is enough."""
    return {"kind": "softmax_cross_entropy", **value} if isinstance(value, dict) else value


LossSpec = Annotated[
    SoftmaxCrossEntropy | BinaryCrossEntropy | MeanSquaredError | MeanAbsoluteError | Huber | KLDivergence,
    Field(discriminator="kind"),
    BeforeValidator(with_a_kind),
]


def parse_loss(data: dict[str, object]) -> LossBase:
    """A loss from plain data, by its `kind`."""
    loss: LossBase = TypeAdapter(LossSpec).validate_python(data)
    return loss
