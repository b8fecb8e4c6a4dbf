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
    """The loss of one output, or of all that a model gives; the means of all terms are added, times their weights.

    name: what reports call it. output: as `PassResult.outputs` has it; None: the only one, or for a loss of the user's
    own all that the model gives, as it gives it. targets: names of arrays. form: how a user's own loss takes them; step:
    `own` is a training step, given the model and a batch (in Keras the model itself, whose train_step it is).
    loss: ours, resolved; None where `own` names the user's. channels_first: the output has its channels behind the
    batch, where Keras has them last.
    """

    name: str
    output: str | None = None
    targets: tuple[str, ...] = (ALONE,)
    form: Literal["array", "list", "dict", "step"] = "array"
    loss: LossSpec | None = None
    own: Target | None = None
    weight: float = 1.0
    channels_first: bool = False


class ArrayForm(Spec):
    """How a side takes an array: the shape of one sample, whole numbers or not, and whether Keras's last axis comes first."""

    shape: tuple[NonNegativeInt, ...]
    integer: bool = False
    channels_first: bool = False


class BatchArray(Spec):
    """An array of a batch; a row of the batch has its numbers in the order of Keras's shape.

    name: of the input, or of the targets. role: what it is.
    """

    name: str
    role: Literal["input", "target", "weights"]
    keras: ArrayForm
    torch: ArrayForm

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
    arrays: tuple[BatchArray, ...]
    keras: tuple[Term, ...]
    torch: tuple[Term, ...]
    reduction: Reduction

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
