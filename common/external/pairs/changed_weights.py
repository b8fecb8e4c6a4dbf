"""Weights that a pass in training changes by itself, before any update: a limit on their norm, a value written into them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from parity.common.base.words import listed
from parity.common.diagnosis import limits
from parity.common.diagnosis.result import Explanation, Finding, TensorComparison
from parity.common.external.pairs.bench import Bench, taken
from parity.common.external.pairs.explain import by_setting, ways_of
from parity.common.external.pairs.search import Search, finding_of
from parity.common.external.process.pass_result import Arrays
from parity.common.parity.deviation import tensor_deviation

_LISTED = 4
_SIDES = ("keras", "torch")


def changed_weights(search: Search) -> Iterator[Finding]:
    """Yield which weights a pass in training of one side changes as the other's does not; the weights are left as they were.

    A setting that does so is put right. What cannot be put right bars all that follows: it is of other weights.
    """
    bench = search.bench
    changed = _changed(bench)
    for number, side in enumerate(_SIDES):
        off = changed[number]
        if not off:
            continue
        rows = [
            TensorComparison(f"before/parameters/{name}", None, deviation, limits.INJECTED_FLOAT64)
            for name, deviation in off.items()
        ]
        names = _native(bench, number, off)
        why = _by_setting(search, number, names)
        if why is not None:
            yield finding_of("before", rows, why=why)
            changed = _changed(bench)
            continue
        ours, theirs = ("Keras", "torch") if side == "keras" else ("torch", "Keras")
        other = f"none of {theirs} does"
        fix = f"do the same in {theirs}, or take it out of {ours}; what follows was not compared, being of other weights"
        if off.keys() & changed[1 - number].keys():
            other = f"one of {theirs} writes other numbers"
            fix = "write the same on both sides; what follows was not compared, being of other weights"
        text = f"a pass of {ours} in training writes into {listed(names, _LISTED)} by itself, before any update; {other}"
        evidence = "by experiment: the weights were read before a pass and after it"
        yield finding_of(
            "before",
            rows,
            why=Explanation("weights_written", text, "confirmed", fix, evidence, defect=side),
        )
        search.bar(0, rows[0].name)
        return


def _by_setting(search: Search, number: int, names: Sequence[str]) -> Explanation | None:
    """The difference of settings that changes them, put right from now on; None where none does."""
    bench, side = search.bench, _SIDES[number]
    layers = {info.layer for info in bench.outlines[number].tensors if info.name in names}
    for suspect in search.suspects:
        ways = [way for way in ways_of(suspect) if way.side == side and way.layer in layers]
        back = search.made(ways[0]) if ways and suspect.changes == "forward" else None
        if back is None:
            continue
        if _changed(bench)[number]:
            back.make(bench)
            continue
        search.used.add(suspect)
        evidence = (
            f"by experiment: a pass in training changes {listed(names, _LISTED)}, and with it alike none"
        )
        return by_setting(suspect, "confirmed", evidence)
    return None


def _changed(bench: Bench) -> list[dict[str, float]]:
    """By Keras's name of a trained tensor how far a pass in training of each side changes it, where the other's does not do the same."""
    begun = [side.read() for side, _, _ in bench.sides]
    ended = []
    for (side, _, inputs), loss in zip(bench.sides, bench.losses, strict=True):
        passed = taken(side, inputs, loss, training=True, taps=False)
        # Frozen ones, of a teacher that follows, are there again after a pass.
        ended.append(side.read() | passed.buffers)
    after = _as_keras(bench, ended)
    for (side, _, _), state in zip(bench.sides, begun, strict=True):
        side.write(state)
    before = _as_keras(bench, begun)
    trained = [info.name for info in bench.outlines[0].tensors if not info.buffer]
    shared = [name for name in trained if all(name in state for state in (*before, *after))]
    apart = [
        name
        for name in shared
        if not tensor_deviation(after[0][name], after[1][name]) <= limits.INJECTED_FLOAT64
    ]
    return [
        {
            name: tensor_deviation(was[name], now[name])
            for name in apart
            if not np.array_equal(was[name], now[name], equal_nan=True)
        }
        for was, now in zip(before, after, strict=True)
    ]


def _as_keras(bench: Bench, states: Sequence[Arrays]) -> list[Arrays]:
    return [states[0], bench.mapping.to_keras(states[1], partial=True)]


def _native(bench: Bench, number: int, keras: dict[str, float]) -> list[str]:
    """The names that one side has for Keras's."""
    pairs = [pair for pair in bench.mapping.tensors if set(pair.keras) & set(keras)]
    return [name for pair in pairs for name in getattr(pair, _SIDES[number])]
