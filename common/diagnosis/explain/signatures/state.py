"""Signatures of what a step begins with: replicas, or runs, that do not start alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from parity.common.diagnosis import limits
from parity.common.diagnosis.explain.signatures.base import Case, Match, Tensors, ratio_of
from parity.common.parity.deviation import tensor_deviation
from parity.common.record.trace import Array
from parity.common.spec import TrainSpec
from parity.common.state.canonical import initial_state

_BEFORE = "before/"


def _names(state: Tensors) -> list[str]:
    return [n for n in state if n.startswith(_BEFORE) and n != "before/step"]


def wrong_starts(case: Case) -> dict[int, list[str]]:
    """Of each of the suspect's replicas the tensors that it begins the step with otherwise than it was given."""
    given: Tensors = case.given.replicas[0]
    found = {}
    for replica, state in enumerate(case.made.replicas):
        wrong = [
            n for n in _names(state) if n in given and tensor_deviation(given[n], state[n]) > case.allowed
        ]
        if wrong:
            found[replica] = wrong
    return found


def replicas_start_apart(case: Case) -> Match | None:
    """Some replicas begin with other tensors than the rest."""
    wrong, states = wrong_starts(case), case.made.replicas
    if case.replicas == 1 or not wrong:
        return None
    first: Tensors = states[0]
    apart = {
        r: [n for n in _names(s) if n in first and tensor_deviation(first[n], s[n]) > 0]
        for r, s in enumerate(states)
    }
    if not any(apart.values()):
        return None
    replica = max(wrong)
    names = wrong[replica]
    given: Tensors = case.given.replicas[0]
    ratio = ratio_of([given[n] for n in names], [states[replica][n] for n in names])
    far = max(tensor_deviation(given[n], states[replica][n]) for n in names)
    words = "" if ratio is None or abs(ratio - 1) > 0.1 else f", which are {ratio:.9g} times the others'"
    shown = [n.removeprefix(_BEFORE) for n in names]
    what = ", ".join(shown[:2]) + (f" and {len(shown) - 2} more" if len(shown) > 2 else "")
    replicas = ", ".join(map(str, wrong))
    tried = f"replicas {replicas} begin with other values of {what}{words}"
    return Match({"replicas": replicas, "names": what}, far, 0.0, tried)


def stale_start(case: Case) -> Match | None:
    """A replica begins with what was there some steps before."""
    wrong = wrong_starts(case)
    for replica, names in wrong.items():
        mine: Tensors = case.made.replicas[replica]
        for step, ref, _ in case.evidence.earlier:
            old: Tensors = ref.replicas[0]
            if all(n in old and np.array_equal(old[n], mine[n]) for n in names):
                shown = ", ".join(n.removeprefix(_BEFORE) for n in names[:2])
                given: Tensors = case.given.replicas[0]
                far = max(tensor_deviation(given[n], mine[n]) for n in names)
                tried = f"replica {replica} begins with the {shown} of step {step}, bit for bit"
                return Match({"replicas": str(replica), "names": shown}, far, 0.0, tried)
    return None


def initialized_otherwise(case: Case) -> tuple[str, Match] | None:
    """(field, match): the run begins with the initial values of another spec."""
    wrong = wrong_starts(case)
    if case.step != 0 or not wrong:
        return None
    made: Tensors = case.made.replicas[0]
    names = wrong.get(0, [])
    given: Tensors = case.given.replicas[0]
    for field, value, own, spec in _other_starts(case.spec):
        state: Any = initial_state(spec)
        keys = [n.removeprefix(_BEFORE) for n in names]
        if names and all(k in state and _same(state[k], made[n]) for k, n in zip(keys, names, strict=True)):
            far = max(tensor_deviation(given[n], made[n]) for n in names)
            facts = {"field": field, "value": value, "own": own, "where": "spec"}
            return field, Match(facts, far, 0.0, f"the initial values are those with {field} {value}")
    return None


def _same(a: Array, b: Array) -> bool:
    return a.shape == b.shape and tensor_deviation(a, b) <= limits.FITS_SAME


def _other_starts(spec: TrainSpec) -> Iterator[tuple[str, str, str, TrainSpec]]:
    for seed in (0, 1, 2, 42, spec.seed + 1):
        if seed != spec.seed:
            yield "seed", str(seed), str(spec.seed), spec.model_copy(update={"seed": seed})


def evaluated_apart(case: Case) -> Match | None:
    """Of the evaluation: a replica that makes something else began other steps with other weights of the layer."""
    path = case.name.partition("/")[2]
    replicas = case.evidence.finding.replicas
    for _, given, made in case.traced():
        due: Tensors = given.replicas[0]
        names = [n for n in _names(due) if n.partition("/")[2].partition("/")[2].startswith(f"{path}/")]
        off = {r: [n for n in names if not _same(due[n], made.replicas[r][n])] for r in replicas}
        if names and off and all(off.values()):
            shown = next(iter(off.values()))[0].removeprefix(_BEFORE)
            words = ", ".join(map(str, replicas))
            far = case.evidence.finding.deviation
            tried = f"replicas {words} begin the traced steps, too, with other values of {shown}"
            return Match({"replicas": words, "names": shown}, far, far, tried)
    return None
