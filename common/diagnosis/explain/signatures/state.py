"""Signatures of what a step begins with: replicas, or runs, that do not start alike."""

from __future__ import annotations

import numpy as np

from parity.common.base.words import listed
from parity.common.diagnosis import limits
from parity.common.diagnosis.explain.case import Case, once
from parity.common.diagnosis.explain.signatures.base import Match, Tensors, farthest, ratio_of
from parity.common.diagnosis.explain.spec_variants import setting
from parity.common.parity.deviation import tensor_deviation
from parity.common.state.canonical import initial_state

_BEFORE = "before/"


def _off(given: Tensors, state: Tensors, allowed: float) -> list[str]:
    """What a state has otherwise than it was given."""
    names = [n for n in state if n.startswith(_BEFORE) and n != "before/step" and n in given]
    return [n for n in names if tensor_deviation(given[n], state[n]) > allowed]


def _plainly(names: list[str]) -> list[str]:
    return [name.removeprefix(_BEFORE) for name in names]


@once
def _wrong_starts(case: Case) -> dict[int, list[str]]:
    """Of each of the suspect's replicas the tensors that it begins the step with otherwise than it was given."""
    off = {r: _off(case.given, state, case.allowed) for r, state in enumerate(case.made.replicas)}
    return {replica: names for replica, names in off.items() if names}


def replicas_start_apart(case: Case) -> Match | None:
    """Some replicas begin with other tensors than the rest."""
    wrong, states = _wrong_starts(case), case.made.replicas
    if case.replicas == 1 or not wrong or not any(_off(states[0], state, 0.0) for state in states):
        return None
    replica = max(wrong)
    given, made, names = case.given, states[replica], wrong[replica]
    ratio = ratio_of([given[n] for n in names], [made[n] for n in names])
    times = "" if ratio is None or abs(ratio - 1) > 0.1 else f", which are {ratio:.9g} times the others'"
    what, replicas = listed(_plainly(names), 2), ", ".join(map(str, wrong))
    tried = f"replicas {replicas} begin with other values of {what}{times}"
    return Match(
        {"replicas": replicas, "names": what}, farthest({n: given[n] for n in names}, made), 0.0, tried
    )


def stale_start(case: Case) -> Match | None:
    """A replica begins with what was there some steps before."""
    for replica, names in _wrong_starts(case).items():
        mine: Tensors = case.made.replicas[replica]
        for step, ref, *_ in case.others:
            old: Tensors = ref.replicas[0]
            if (case.step is None or step < case.step) and all(
                n in old and np.array_equal(old[n], mine[n]) for n in names
            ):
                shown = ", ".join(_plainly(names)[:2])
                tried = f"replica {replica} begins with the {shown} of step {step}, bit for bit"
                facts = {"replicas": str(replica), "names": shown}
                return Match(facts, farthest({n: case.given[n] for n in names}, mine), 0.0, tried)
    return None


def other_seed(case: Case) -> Match | None:
    """The run begins with the initial values of another seed."""
    own, names, made = case.spec.seed, _wrong_starts(case).get(0, []), case.made.replicas[0]
    if case.step != 0 or not names:
        return None
    for seed in (0, 1, 2, 42, own + 1):
        if seed == own:
            continue
        due = initial_state(case.spec.model_copy(update={"seed": seed}))
        named = zip(names, _plainly(names), strict=True)
        if all(n in due and tensor_deviation(due[n], made[name]) <= limits.FITS_SAME for name, n in named):
            facts = setting(case.spec, "seed", seed, "spec")
            far = farthest({n: case.given[n] for n in names}, made)
            return Match(facts, far, 0.0, f"the initial values are those with seed {seed}")
    return None


def evaluated_apart(case: Case) -> Match | None:
    """Of the evaluation: a replica that makes something else began other steps with other weights of the layer."""
    path, replicas = case.finding.name.partition("/")[2], case.finding.replicas
    heads = (f"before/parameters/{path}/", f"before/buffers/{path}/")
    for step in case.steps:
        off = [_off(step.given, step.made.replicas[r], limits.FITS_SAME) for r in replicas]
        inside = [[n for n in names if n.startswith(heads)] for names in off]
        if inside and all(inside):
            shown, words = inside[0][0].removeprefix(_BEFORE), ", ".join(map(str, replicas))
            tried = f"replicas {words} begin the traced steps, too, with other values of {shown}"
            facts = {"replicas": words, "names": shown}
            return Match(facts, case.finding.deviation, case.finding.deviation, tried)
    return None
