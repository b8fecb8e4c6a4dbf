"""Several inputs, several outputs, losses of the user's own, sample weights: as one row of numbers a sample, and as a loss
that the models give themselves, so that every strategy trains them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from parity.common.base.errors import SpecError
from parity.common.diagnosis import limits
from parity.common.external.mapping.models import exact_constants
from parity.common.external.pairs.bench import Bench, taken
from parity.common.external.pairs.request import PairRequest, Samples
from parity.common.external.pairs.setup import drawn_rows, formed, losses_of, size_of
from parity.common.external.process.objective import step_of
from parity.common.external.process.pass_result import Array
from parity.common.parity.deviation import tensor_deviation
from parity.common.spec.imported_loss import ArrayForm, BatchArray, ImportedLoss, Reduction
from parity.common.spec.losses import LossBase

SAMPLES = "samples.npz"
# Whole numbers up to here are the same in float32.
_EXACT_IN_FLOAT32 = 1 << 24
Role = Literal["input", "target", "weights"]


def is_plain(asked: PairRequest, bench: Bench) -> bool:
    """Whether a spec of one input, of more than one number a sample, and one loss of ours says it all."""
    (first, *others) = asked.objectives
    alone = not others and first.weights == (1, 1) and isinstance(first.loss, LossBase)
    several = all(array.ndim > 1 for array in bench.inputs[0].values())
    return alone and several and len(asked.data.inputs) == 1 and asked.data.weights is None


def join_samples(asked: PairRequest, bench: Bench, path: Path) -> tuple[ImportedLoss, tuple[str, ...]]:
    """Write all samples as Keras takes them, one array a name.

    Args:
        asked: what is trained.
        bench: both models.
        path: of the .npz file.

    Returns:
        what the models give as their loss, and the names of the arrays in the file.

    Raises:
        SpecError: whole numbers are too large for float32.
    """
    samples = asked.data.rows(0, asked.data.samples)
    losses = losses_of(asked, bench.outlines, samples)
    inputs = formed(bench, samples.inputs)
    stored: dict[str, Array] = {}
    arrays = []
    given: list[tuple[Role, str, Array, Array]] = [
        *(("input", name, value, inputs[1][name]) for name, value in inputs[0].items()),
        *(("target", name, value, losses[1].targets[name]) for name, value in losses[0].targets.items()),
    ]
    if samples.weights is not None:
        given.append(("weights", str(asked.data.weights), samples.weights, samples.weights))
    for role, name, ours, theirs in given:
        whole = asked.precision == "float32" and ours.dtype.kind == "i"
        if whole and np.abs(ours).max(initial=0) > _EXACT_IN_FLOAT32:
            raise SpecError(
                f"--data {asked.data.path}: {name} has whole numbers above {_EXACT_IN_FLOAT32}, which float32 does not"
                " hold; leave --precision out"
            )
        stored[name if name not in stored else f"{name} ({role})"] = ours
        arrays.append(BatchArray(name=name, role=role, keras=_form(ours), torch=_form(theirs, ours)))
    np.savez(path, **stored)  # type: ignore[arg-type]
    loss = ImportedLoss(
        arrays=tuple(arrays),
        keras=bench.losses[0].terms,
        torch=bench.losses[1].terms,
        reduction=_reduction(asked, bench),
    )
    return loss, tuple(stored)


def _form(array: Array, keras: Array | None = None) -> ArrayForm:
    moved = keras is not None and not np.array_equal(
        array.reshape(len(array), -1), keras.reshape(len(keras), -1)
    )
    return ArrayForm(shape=array.shape[1:], integer=array.dtype.kind != "f", channels_first=moved)


def _reduction(asked: PairRequest, bench: Bench) -> Reduction:
    """What makes the loss of a batch of those of its parts, on both sides, of several sets of samples."""
    terms = bench.losses[0].terms
    if len(terms) == 1 and terms[0].own is None and terms[0].weight == 1:
        return "counted"
    normed = any(info.kind == "batch_norm" for outline in bench.outlines for info in outline.layers)
    if step_of(terms) and normed:
        return "batch"  # a step is in training, where each sample changes the others' outputs
    fits: list[Reduction] = ["samples", "weights", "sum"]
    for samples in drawn_rows(asked, bench):
        rows = np.arange(size_of(samples))
        cut = max(1, len(rows) // 3)  # two parts of unequal sizes
        parts = [samples.taken(some) for some in (rows, rows[:cut], rows[cut:])]
        for side in range(2):
            values = [_loss(asked, bench, part, side) for part in parts]
            divisors = {
                "samples": [float(size_of(part)) for part in parts],
                "weights": [0.0 if part.weights is None else float(part.weights.sum()) for part in parts],
                "sum": [1.0 for _ in parts],
            }
            fits = [fit for fit in fits if _adds_up(values, divisors[fit])]
    return fits[0] if fits else "batch"


def _loss(asked: PairRequest, bench: Bench, samples: Samples, side: int) -> float:
    """Of some samples, in inference, where no sample changes what a model gives for another; steps have no such mode."""
    loss = losses_of(asked, bench.outlines, samples)[side]
    inputs = formed(bench, samples.inputs)[side]
    with exact_constants(bench):
        passed = taken(
            bench.sides[side][0], inputs, loss, training=step_of(loss.terms) is not None, taps=False
        )
    assert passed.loss_sum is not None and passed.count
    return passed.loss_sum / passed.count


def _adds_up(values: list[float], divisors: list[float]) -> bool:
    """Whether the first value is made of the others."""
    whole, *parts = [value * divisor for value, divisor in zip(values, divisors, strict=True)]
    if not all(divisors) or not np.isfinite(values).all():
        return False
    largest = max(map(abs, parts))
    return (
        tensor_deviation(np.array([whole, largest]), np.array([sum(parts), largest])) <= limits.LIVE_FLOAT64
    )
