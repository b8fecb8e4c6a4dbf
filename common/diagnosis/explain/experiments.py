"""How a cause is confirmed or refuted: what it says must make the divergence go away."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parity.common.base.errors import ParityError
from parity.common.diagnosis import limits
from parity.common.diagnosis.explain.signatures.base import Case, Match, Tensors
from parity.common.diagnosis.result import Confidence
from parity.common.parity.deviation import tensor_deviation
from parity.common.record.trace import INJECTABLE, stage_of
from parity.common.state.canonical import State


@dataclass(frozen=True)
class Outcome:
    """What an experiment says of a cause, and what was seen. verdict: None where it is refuted."""

    verdict: Confidence | None
    seen: str


def formula(case: Case, match: Match) -> Outcome:
    """The signature has computed it already: what the cause makes is what was made, and what is due is not."""
    if (
        match.after <= max(case.allowed, limits.FITS) < match.before
        or match.after <= limits.UNEXPLAINED * match.before
    ):
        return Outcome("confirmed", match.tried)
    return Outcome("likely", match.tried)


def replay(case: Case, match: Match) -> Outcome:
    """Repeat the step with the reference's tensors up to the place, and there what the candidate should have made.

    What it then makes by itself of the corrected tensors has to be the reference's.
    """
    if case.suspect == "reference" or not match.corrected:
        return formula(case, match)
    injections = _injections(case, match)
    try:
        trace = case.evidence.experiments.corrected(case.step, injections)
    except ParityError as error:
        return Outcome("likely", f"{match.tried}; the step could not be repeated: {error}")
    given: Tensors = case.given.replicas[0]
    after = {
        name: max(tensor_deviation(given[name], state[name]) for state in trace.replicas)
        for name in _next(case, match)
    }
    before = _before(case, list(after))
    worst = max(after.values(), default=float("inf"))
    if not after:
        return formula(case, match)
    first = next(iter(after))
    what = first.partition("/")[0] if not first.startswith("after") else "the new state"
    if worst <= max(limits.FITS_READ_OFF, 10 * case.allowed):
        return Outcome(
            "confirmed",
            f"{match.tried}; with that put right, the repeated step's {what} agrees to {worst:.0e} (before: {before:.0e})",
        )
    if _after_another(case, match):
        # What is made of another defect's tensors is not the reference's, however right it is.
        return formula(case, match)
    return Outcome("likely", f"{match.tried}; with that put right, {what} is still {worst:.0e} off")


def _after_another(case: Case, match: Match) -> bool:
    """Whether the corrected tensors are not the reference's, since they are made of the run's own, wrong ones."""
    given: Tensors = case.given.replicas[0]
    names = [name for name in match.corrected[0] if name.startswith("gradient/") and name in given]
    return any(tensor_deviation(given[name], match.corrected[0][name]) > 10 * case.allowed for name in names)


def by_size(case: Case, match: Match) -> Outcome:
    """Nothing but the size of the deviation speaks for the cause."""
    if match.after <= limits.UNEXPLAINED * match.before:
        return Outcome("confirmed", match.tried)
    return Outcome("likely", match.tried)


def _injections(case: Case, match: Match) -> list[State]:
    """Everything of the reference before the corrected tensors, and these."""
    place = min(_place(name) for tensors in match.corrected for name in tensors)
    injections: list[State] = []
    for given, corrected in zip(case.evidence.injections, match.corrected, strict=True):
        state: State = {name: value for name, value in given.items() if _place(name) < place or name == "ids"}
        injections.append({**state, **{n: np.asarray(v) for n, v in corrected.items()}})
    return injections


def _place(name: str) -> int:
    """Where a tensor that can be injected stands in a step; scalars are injected first but change the last."""
    head = name.partition("/")[0]
    return INJECTABLE.index(head) if head in INJECTABLE else len(INJECTABLE)


def _next(case: Case, match: Match) -> list[str]:
    """The tensors that are made of the corrected ones, those that come first."""
    corrected = next(iter(match.corrected[0]))
    stage = stage_of(corrected)
    after = {
        "inputs": "gradient/",
        "backward": "gradient/",
        "total": "gradient/",
        "gradient": "clipped/",
        "clipped": "after/parameters/",
        "scalar": "after/parameters/",
    }
    wanted = after.get(stage, "after/parameters/")
    return [n for n in case.given.names if n.startswith(wanted) and not case.is_zero_gradient(n)]


def _before(case: Case, names: list[str]) -> float:
    """How far the candidate was off as trained."""
    as_trained = case.evidence.as_trained
    if as_trained is None:
        return float("nan")
    given: Tensors = case.given.replicas[0]
    each = [
        tensor_deviation(given[n], state[n]) for n in names for state in as_trained.replicas if n in state
    ]
    return max(each, default=float("nan"))
