"""How a cause is confirmed or refuted: what it says must make the divergence go away."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from parity.common.base.errors import ParityError
from parity.common.diagnosis import limits
from parity.common.diagnosis.explain.case import Case
from parity.common.diagnosis.explain.signatures.base import Match, Tensors
from parity.common.diagnosis.result import Confidence
from parity.common.parity.deviation import tensor_deviation
from parity.common.record.trace import INJECTABLE, stage_of
from parity.common.state.canonical import State


@dataclass(frozen=True)
class Outcome:
    """What an experiment says of a cause, and what was seen."""

    confidence: Confidence
    seen: str


def formula(case: Case, match: Match) -> Outcome:
    """The signature has computed it already: what the cause makes is what was made, and what is due is not."""
    if match.after <= max(case.allowed, limits.FITS) < match.before:
        return Outcome("confirmed", match.tried)
    return by_size(case, match)


def by_size(_: Case, match: Match) -> Outcome:
    """Nothing but the size of the deviation speaks for the cause."""
    fits = match.after <= limits.UNEXPLAINED * match.before
    return Outcome("confirmed" if fits else "likely", match.tried)


def replay(case: Case, match: Match) -> Outcome:
    """Repeat the step with the reference's tensors up to the place, and there what the candidate should have made.

    What it then makes by itself of the corrected tensors has to be the reference's.
    """
    if case.suspect == "reference" or not match.corrected:
        return formula(case, match)
    try:
        trace = case.experiments.corrected(case.step, _injections(case, match))
    except ParityError as error:
        return Outcome("likely", f"{match.tried}; the step could not be repeated: {error}")
    names = _next(case, match)
    if not names:
        return formula(case, match)
    after = _farthest(case, trace.replicas, names)
    before = float("nan")
    if case.as_trained is not None:
        before = _farthest(case, case.as_trained.replicas, names)
    what = "the new state" if names[0].startswith("after") else names[0].partition("/")[0]
    if after <= max(limits.FITS_READ_OFF, 10 * case.allowed):
        agrees = f"the repeated step's {what} agrees to {after:.0e} (before: {before:.0e})"
        return Outcome("confirmed", f"{match.tried}; with that put right, {agrees}")
    if _after_another(case, match):
        # What is made of another defect's tensors is not the reference's, however right it is.
        return formula(case, match)
    return Outcome("likely", f"{match.tried}; with that put right, {what} is still {after:.0e} off")


def _after_another(case: Case, match: Match) -> bool:
    """Whether the corrected tensors are not the reference's, since they are made of the run's own, wrong ones."""
    corrected = match.corrected[0]
    names = [name for name in corrected if name.startswith("gradient/") and name in case.given]
    return any(tensor_deviation(case.given[name], corrected[name]) > 10 * case.allowed for name in names)


def _injections(case: Case, match: Match) -> list[State]:
    """Everything of the reference before the corrected tensors, and these."""
    place = min(_place(name) for tensors in match.corrected for name in tensors)
    injections: list[State] = []
    for given, corrected in zip(case.injections, match.corrected, strict=True):
        state: State = {name: value for name, value in given.items() if _place(name) < place or name == "ids"}
        injections.append({**state, **{n: np.asarray(v) for n, v in corrected.items()}})
    return injections


def _place(name: str) -> int:
    """Where a tensor that can be injected stands in a step; scalars are injected first but change the last."""
    head = name.partition("/")[0]
    return INJECTABLE.index(head) if head in INJECTABLE else len(INJECTABLE)


def _next(case: Case, match: Match) -> list[str]:
    """The tensors that are made of the corrected ones, those that come first."""
    after = {"inputs": "gradient/", "backward": "gradient/", "total": "gradient/", "gradient": "clipped/"}
    wanted = after.get(stage_of(next(iter(match.corrected[0]))), "after/parameters/")
    return [n for n in case.given if n.startswith(wanted) and not case.is_zero_gradient(n)]


def _farthest(case: Case, states: Iterable[Tensors], names: list[str]) -> float:
    """How far the replicas' tensors are from the reference's."""
    each = [tensor_deviation(case.given[n], state[n]) for n in names for state in states if n in state]
    return max(each, default=float("nan"))
