"""What a user's own model is trained by where that is more than one loss of one output: losses of several outputs, losses
and training steps of the user's own, sample weights. All of it happens within the model, on whole batches."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from parity.common.base.errors import SpecError
from parity.common.spec.base import NonNegativeInt, Spec
from parity.common.spec.external.target import Target
from parity.common.spec.layers import Shape
from parity.common.spec.losses import (
    BinaryCrossEntropy,
    Huber,
    KLDivergence,
    LossBase,
    LossSpec,
    MeanAbsoluteError,
    MeanSquaredError,
    SoftmaxCrossEntropy,
    with_a_kind,
)

# What a target is called that was given by itself.
ALONE = "(one array without a name)"
Reduction = Literal["counted", "samples", "weights", "sum", "batch"]


class Term(Spec):
    """The loss of one output, or of all that a model gives; the means of all terms are added, times their weights."""

    name: str = Field(description="name of the term in reports")
    output: str | None = Field(
        default=None,
        description="output that it is of; null: the only one, or for a loss of your own all of them",
    )
    targets: tuple[str, ...] = Field(default=(ALONE,), description="names of the arrays of targets")
    form: Literal["array", "list", "dict", "step"] = Field(
        default="array", description="how a loss of your own takes its targets; step: own is a training step"
    )
    loss: LossSpec | None = Field(
        default=None, description="a loss by name; of a step of Keras's, one that its compute_loss gives"
    )
    own: Target | None = Field(default=None, description="a loss or step of your own")
    compiled: Target | None = Field(
        default=None, description="of a step of Keras's: a loss of your own that its compute_loss gives"
    )
    weight: float = Field(default=1.0, description="factor of the term")
    penalized: bool = Field(
        default=False, description="with what the model adds to its loss itself (regularizers, add_loss)"
    )
    channels_first: bool = Field(
        default=False, description="the output has its channels behind the batch, where Keras has them last"
    )


class ArrayForm(Spec):
    """How a side takes an array: the shape of one sample, whole numbers or not, and whether Keras's last axis comes first."""

    shape: tuple[NonNegativeInt, ...] = Field(description="shape of one sample")
    integer: bool = Field(default=False, description="whether it holds whole numbers")
    channels_first: bool = Field(default=False, description="whether Keras's last axis comes first")


class BatchArray(Spec):
    """An array of a batch; a row of the batch has its numbers in the order of Keras's shape."""

    name: str = Field(description="name of the input or of the targets")
    role: Literal["input", "target", "weights"] = Field(description="what the array is")
    keras: ArrayForm = Field(description="how the Keras model takes it")
    torch: ArrayForm = Field(description="how the torch model takes it")

    @property
    def width(self) -> int:
        """How many numbers of a row it has."""
        return math.prod(self.keras.shape)


class ImportedLoss(LossBase):
    """A loss that the imported model gives itself: for each sample a share of the sum, and of what the mean divides by.

    arrays: of which a row of inputs consists, one after another. keras, torch: what is added up on each side.
    reduction: what makes the loss of a batch of those of its parts. counted: sum and count of the one loss, ours;
    samples: the mean over the samples; weights: over the sum of their weights; sum: their sum; batch: nothing does, so
    that the replica count is a part of the mathematics, and the mean over the replicas, each times its samples, is taken.
    """

    kind: Literal["imported"] = "imported"
    arrays: tuple[BatchArray, ...] = Field(
        description="arrays that a row of inputs consists of, one after another"
    )
    keras: tuple[Term, ...] = Field(description="terms that are added up on Keras's side")
    torch: tuple[Term, ...] = Field(description="terms that are added up on torch's side")
    reduction: Reduction = Field(description="what makes the loss of a batch of the losses of its parts")

    def __hash__(self) -> int:
        # Arguments of targets are dicts, which have no hash of their own.
        return hash(self.content_hash())

    def target_shape(self, output_shape: Shape) -> Shape:
        if output_shape != (2,):
            raise SpecError(
                f"loss 'imported' is given by an imported model, received outputs of shape {output_shape}"
            )
        # The row has the targets, too.
        return (sum(array.width for array in self.arrays),)

    def counted(self, output_shape: Shape) -> int | None:
        return 1 if self.reduction in ("samples", "batch") else None


# Every loss that a run may have.
AnyLoss = Annotated[
    SoftmaxCrossEntropy
    | BinaryCrossEntropy
    | MeanSquaredError
    | MeanAbsoluteError
    | Huber
    | KLDivergence
    | ImportedLoss,
    Field(discriminator="kind"),
    BeforeValidator(with_a_kind),
]
