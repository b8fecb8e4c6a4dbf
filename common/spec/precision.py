"""What is computed in which number type. It changes the curve, so it belongs to the TrainSpec.

`float64` and `float32` compute everything in that type. With `tf32`, GPUs may round the operands of
float32 products to 11 significant bits, as their tensor cores do.

The mixed precisions keep the state in float32: weights, slots, losses, norms, statistics, gradients, and
every reduction over replicas. Only the products of the layers see the low type. A product is what a
dense layer, a convolution, an attention's four projections, its scores and its weighting of values, a
recurrent layer's products with its kernels, and the logits of a tied embedding are made of:

    y = low(sum of low(a) * low(b)), summed in float32         the two operands, and the result, are rounded
    da = low(sum of low(dy) * low(b)), summed in float32       the same for an operand that is an activation
    dw = sum of low(a) * low(dy), summed in float32            a weight's gradient is not rounded

All that lies between (biases, activations, softmax, normalisation, residual sums, embeddings, pooling)
is computed in float32, on values that the products have rounded. Two reasons. A chain of roundings between
products would depend on which operations a framework fuses into one kernel, so the spec could not name
it. And a weight's gradient is a sum over samples: rounded, it would be rounded once for each replica and
micro-batch, and the placement would change the mathematics. (`torch.autocast` keeps sums and activations
low where their inputs are, and rounds weights' gradients; Keras's mixed policies keep all but the insides
of normalisations low.)

`float16_mixed` multiplies the loss by a dynamic scale before the backward pass: see `LossScale`.

`float8_mixed` is `bfloat16_mixed` but for the products of activations with dense kernels, whose operands
are rounded to e4m3 and whose gradients to e5m2, each tensor scaled so that its largest element is the
type's largest number.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, Strict

from parity.common.spec.base import Conventions, PositiveInt, Spec

Precision = Literal["float64", "float32", "bfloat16_mixed", "float16_mixed", "float8_mixed"]

# What a product's operands are rounded to; of float8 where it is not taken.
LOW = {"bfloat16_mixed": "bfloat16", "float16_mixed": "float16", "float8_mixed": "bfloat16"}

# By how much the parameters of runs that measure noise are off, relatively: 2^-13 of the spacing of low
# numbers, so that of some thousand roundings one falls on the other side. See `common/parity/budget.py`.
# In float64 one unit in the last place.
NUDGE = {"bfloat16_mixed": 2.0**-20, "float16_mixed": 2.0**-23, "float8_mixed": 2.0**-20, "float64": 2.0**-52}


def _power_of_two(value: float) -> float:
    if not value > 0 or math.frexp(value)[0] != 0.5:
        raise ValueError("must be a power of two, by which scaling does not round")
    return value


PowerOfTwo = Annotated[float, Strict(), AfterValidator(_power_of_two)]


class LossScale(Spec):
    """Dynamic loss scaling: gradients too small for float16 are kept from vanishing.

    The loss is multiplied by the scale before the backward pass, and the global gradients, summed over
    micro-batches and replicas, are divided by it again. Where any of them is not finite, the step is
    skipped on all replicas: weights, slots, the average of the weights and the count of updates that bias
    corrections go by stay as they are, and the scale is multiplied by `backoff`. After `growth_interval`
    updates in a row without a skipped step it is multiplied by `growth`. (Moving statistics of batch
    norm belong to the forward pass, and are updated all the same, as both frameworks do.)

    initial: keras starts at 2^15 (LossScaleOptimizer), torch at 2^16 (GradScaler).
    schedule: on a skipped step the learning rate's schedule 'waits', as Keras's count of iterations does,
        or 'advances', as it does where a scheduler is stepped beside PyTorch's GradScaler.
    """

    initial: PowerOfTwo | None = Field(default=None, description="scale of the first step, a power of two")
    growth: PowerOfTwo = Field(
        default=2.0, description="factor after growth_interval steps without a skipped one, a power of two"
    )
    backoff: PowerOfTwo = Field(default=0.5, description="factor after a skipped step, a power of two")
    growth_interval: PositiveInt = Field(
        default=2000, description="steps in a row after which the scale grows"
    )
    schedule: Literal["waits", "advances"] | None = Field(
        default=None, description="what the learning rate's schedule does on a skipped step"
    )

    conventions: ClassVar[Conventions] = {"initial": (2.0**15, 2.0**16), "schedule": ("waits", "advances")}
