"""The users' own optimizers, both given the same gradients of the mapped tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parity.common.diagnosis import limits
from parity.common.external.mapping.models import exact_constants
from parity.common.external.pairs.bench import Bench, frozen_apart
from parity.common.external.process.pass_result import Arrays
from parity.common.parity.deviation import tensor_deviation
from parity.common.spec.external.target import Target
from parity.common.state.zero_gradient import measured_zero_gradients


def mapped_alone(bench: Bench, state: Arrays) -> Arrays:
    """Of Keras's tensors those that have a counterpart."""
    names = {name for pair in bench.mapping.tensors for name in pair.keras if pair.torch}
    return {name: value for name, value in state.items() if name in names}


def moved_by(bench: Bench, gradients: Arrays, weights: Arrays) -> Arrays:
    """The gradients, by Keras's names, of weights that both sides train by more than rounding: an optimizer that divides by a gradient's size
    makes steps of what is only that.
    """
    zero = measured_zero_gradients(gradients).keys() | frozen_apart(bench).keys()
    return {name: value for name, value in gradients.items() if name in weights and name not in zero}


def as_torch_takes(bench: Bench, gradients: Arrays) -> Arrays:
    """Gradients of Keras's tensors as torch's optimizer is given them: of two biases one may be frozen, the other has it all.

    A part of a fused tensor that was left out, as nothing but rounding moves it, is zero.
    """
    shapes = {info.name: info.shape for info in bench.outlines[0].tensors}
    fused = (pair.keras for pair in bench.mapping.tensors if gradients.keys() & {*pair.keras})
    whole: Arrays = {name: np.zeros(shapes[name]) for names in fused for name in names}
    found = bench.mapping.to_torch(whole | gradients, partial=True)
    # A tied tensor is updated once, by the first of its names.
    tied = bench.mapping.tied.torch
    trained = {info.name for info in bench.outlines[1].tensors if info.trainable and info.name not in tied}
    for pair in bench.mapping.tensors:
        if pair.rule == "two_biases" and pair.torch[0] in found.keys() - trained:
            found[pair.torch[1]] = found[pair.torch[0]]
    return {name: value for name, value in found.items() if name in trained}


def moves(
    bench: Bench, optimizers: tuple[Target, Target], sets: Sequence[Arrays], rate: float | None
) -> tuple[Arrays, Arrays]:
    """What either optimizer makes of the weights, by Keras's names."""
    before = bench.keras.read()
    with exact_constants(bench):
        ours = bench.keras.update(optimizers[0], list(sets), rate=rate)
    given = [as_torch_takes(bench, each) for each in sets]
    theirs = bench.mapping.to_keras(bench.torch.read() | bench.torch.update(optimizers[1], given, rate=rate))
    moved, other = (
        {name: np.subtract(each[name], before[name]) for name in sets[0]} for each in (ours, theirs)
    )
    return moved, other


def clipped_share(
    bench: Bench, optimizers: tuple[Target, Target], gradients: Arrays, rate: float | None
) -> str:
    """How a limit on the common norm shows: given one gradient alone, one update is a share of the other's, in all tensors."""
    moved, other = moves(bench, optimizers, [gradients], rate)
    for who, large, small in (("torch", moved, other), ("Keras", other, moved)):
        sizes = [
            float(np.sqrt(sum(float(np.square(v).sum()) for v in each.values()))) for each in (large, small)
        ]
        share = sizes[1] / sizes[0] if sizes[0] else 1.0
        alike = all(
            tensor_deviation(share * large[name], small[name]) <= limits.ROUNDED_CONSTANT for name in large
        )
        if share < 1 - limits.ROUNDED_CONSTANT and alike:
            norm = float(np.sqrt(sum(float(np.square(value).sum()) for value in gradients.values())))
            return (
                f": given its gradients alone, of the common norm {norm:.6g}, {who}'s is {share:.6g} times the other's, as where that norm is"
                f" clipped at {share * norm:.6g}"
            )
    return ""
