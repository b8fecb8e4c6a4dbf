"""Two live models as a training has them before a later step, for what the first step does not show.

A limit on norms, a counter or a schedule inside of a model: with the weights that both begin with they may agree, and
part later. Weights and buffers are those of the reference's training, the samples those of that step.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from parity.common.data.plan import BatchPlan
from parity.common.diagnosis import limits
from parity.common.diagnosis.result import Diagnosis
from parity.common.external.pairs.bench import Bench, taken
from parity.common.external.pairs.request import PairRequest
from parity.common.external.pairs.setup import losses_of
from parity.common.external.process.layouts import to_torch_input
from parity.common.external.process.pass_result import Array
from parity.common.spec import Placement, TrainSpec
from parity.common.state.canonical import State

_PREFIXES = ("parameters/model/", "buffers/model/")


def bench_before(step: int, bench: Bench, asked: PairRequest, spec: TrainSpec, state: State) -> Bench:
    """Return both models as they are before a step of the training, on its samples.

    Args:
        step: at least 1.
        bench: the models; they are given other weights and buffers.
        asked: where the samples are.
        spec: of the training.
        state: canonical, after `step` steps of the reference.

    Raises:
        ExternalModelError: a model does not take the samples.
    """
    # What a model counts for itself, and the mapping does not know.
    for _ in range(min(step, limits.PASSES_REPEATED)):
        for (side, _, inputs), loss in zip(bench.sides, bench.losses, strict=True):
            taken(side, inputs, loss, training=True, taps=False, keep=True)
    weights = {
        name.removeprefix(prefix): value
        for name, value in state.items()
        for prefix in _PREFIXES
        if name.startswith(prefix)
    }
    bench.keras.write(weights)
    bench.torch.write(bench.mapping.to_torch(weights, partial=True))
    return bench_at(step, bench, asked, spec)


def bench_at(step: int, bench: Bench, asked: PairRequest, spec: TrainSpec) -> Bench:
    """Return both models as they are, on the samples of a step of the training; arguments as of `bench_before`."""
    ids = BatchPlan.of(spec, Placement.from_text("torch:single:1")).global_ids(step)
    rows = bench.rows
    # At the end of an epoch there may be few samples, of which little can be told.
    samples = asked.data.at(np.concatenate([ids, np.arange(max(0, rows - len(ids)))]))
    ours, theirs = (
        {name: _in_form_of(given[name], value) for name, value in samples.inputs.items()}
        for given in bench.inputs
    )
    return replace(bench, inputs=(ours, theirs), losses=losses_of(asked, bench.outlines, samples))


def told_of(step: int, found: Diagnosis) -> Diagnosis:
    """Return what was found of the models before a step as of that step."""
    findings = tuple(replace(finding, step=step) for finding in found.findings)
    steps = tuple(replace(compared, step=step) for compared in found.steps)
    note = f"the models were compared as the reference's training has them before step {step}, on its samples"
    return replace(found, findings=findings, steps=steps, notes=(note, *found.notes))


def _in_form_of(known: Array, value: Array) -> Array:
    """Samples (batch, ...) in the layout and of the numbers that a model takes."""
    moved = to_torch_input(value) if value.ndim > 2 and known.shape[1:] != value.shape[1:] else value
    return moved.astype(known.dtype)
