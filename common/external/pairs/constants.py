"""Constants that the code of two models makes float32, for a training in float32: tables, means and scales of the data, angles.

Each side rounds them in its own steps. So where the models differ their code is tried with float64 in these places, on both sides; a
library's code stays as it is, and may round as the other one does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from parity.common.base.errors import ExternalModelError
from parity.common.diagnosis import limits
from parity.common.diagnosis.result import TensorComparison
from parity.common.external.mapping.models import exact_constants
from parity.common.external.pairs.bench import Bench, LoadedPair, losses, taken
from parity.common.external.pairs.dropout import settle_randomness
from parity.common.external.pairs.request import PairRequest
from parity.common.external.process.objective import step_of
from parity.common.external.process.pass_result import Arrays
from parity.common.spec.external.mapping import Mapping

_SAYS = "the models' code is imported with float64 where it says float32"


def settle_built_constants(
    asked: PairRequest, opened: LoadedPair, mapping: Mapping, canonical: Arrays
) -> tuple[LoadedPair, str]:
    """Import and build both models again with constants of their code in float64, where they are nearer to each other so.

    Args:
        asked, opened: both models, with equal weights and nothing drawn at random. mapping: of their tensors.
        canonical: those weights.

    Returns:
        The models as they are from now on, and a line that says so; '' where nothing changed.
    """
    if opened.built_exact:
        return opened, f"{_SAYS}: as it is written its code mixes both"
    bench = Bench(**vars(opened), mapping=mapping)
    # A small constant that is rounded, as below a root, may show only where trainings are compared.
    with limits.as_of_trainings():
        if _agree(bench):
            return opened, ""
        before = _seen(bench)
        try:
            _build(asked, opened, mapping, canonical, exact=True)
            after = _seen(bench)
        except ExternalModelError:
            after = []
    agreed = [{one.name for one in rows if one.agrees} for rows in (before, after)]
    differ = any(one.deviation > limits.LIVE_FLOAT64 for one in before)
    if not after or not (agreed[0] <= agreed[1] if differ else agreed[0] < agreed[1]):
        _build(asked, opened, mapping, canonical, exact=False)
        return opened, ""
    exact = replace(opened, built_exact=True)
    if agreed[0] == agreed[1]:
        return exact, f"{_SAYS}: what differs is looked for without what it rounds"
    agree = [*map(len, agreed)]
    return exact, (
        f"{_SAYS}: constants that it rounds, each side in its own steps; {agree[1]} of {len(after)} places agree instead of {agree[0]}, and the models are compared so; no fault of the port"
    )


def _agree(bench: Bench) -> bool:
    """Whether outputs and losses do, of which a few passes say so."""
    with exact_constants(bench):
        passes = [side.forward(inputs, taps=False) for side, _, inputs in bench.sides]
        try:
            rows = losses(bench, bench.reference(True), bench.torch_pass(True))
        except ExternalModelError:
            return False
        return all(one.agrees for one in (*bench.outputs(*passes), *rows))


def _seen(bench: Bench) -> list[TensorComparison]:
    """Each point by itself, the losses given equal outputs, where the targets suit them yet, and outputs and losses as they are."""
    with exact_constants(bench):
        try:
            trace = bench.trace(False)
            rows = [*trace.tensors, *_as_they_are(bench.outputs(trace.reference, trace.as_trained))]
        except ExternalModelError:
            rows = bench.passes(bench.reference(False), bench.torch_pass(False), False)
        try:
            trace = bench.trace(True)
            by_itself, as_it_is = (
                losses(bench, trace.reference, each) for each in (trace.injected, trace.as_trained)
            )
            return [*rows, *by_itself, *_as_they_are(as_it_is)]
        except ExternalModelError:
            return rows


def _as_they_are(rows: Sequence[TensorComparison]) -> list[TensorComparison]:
    return [replace(one, name=f"as it is: {one.name}") for one in rows]


def _build(asked: PairRequest, opened: LoadedPair, mapping: Mapping, canonical: Arrays, exact: bool) -> None:
    states = canonical, mapping.to_torch(canonical)
    given = zip(opened.sides, (asked.keras, asked.torch), opened.losses, states, strict=True)
    for (side, _, inputs), target, loss, state in given:
        side.hold(target, seed=asked.seed, exact=exact)
        side.outline(inputs)  # which builds a lazy one
        if step_of(loss.terms):  # which may call, and so build, more
            taken(side, inputs, loss, training=True, taps=False)
        side.write(state)
    settle_randomness(asked, opened)
