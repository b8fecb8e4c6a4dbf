"""When two runs diverge: from what they recorded, and else by replaying sections of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np

from parity.common.data.plan import BatchPlan
from parity.common.diagnosis import limits
from parity.common.diagnosis.result import FINAL_STATE, When
from parity.common.parity.budget import CURVES, Budget
from parity.common.parity.compare import count_rounding, evaluation_check, unequal_replicas
from parity.common.parity.deviation import column_deviation, state_deviations
from parity.common.parity.rounding import FLOAT64
from parity.common.parity.sample_ids import audit, first_unequal_step
from parity.common.record import RunRecord
from parity.common.spec import TrainSpec
from parity.common.state.canonical import State, tensor_of
from parity.common.state.zero_gradient import zero_gradient_directions

IDS = "ids"
_TITLES = {"loss_sum": "loss"}


def first_outside(reference: RunRecord, candidate: RunRecord, budget: Budget | None) -> When | None:
    """The first step that anything recorded says is outside the budget; None: nothing does.

    budget: None judges only what must be equal: ids, counts, learning rates, what the runs began with.
    The step is None where nothing differs before the evaluation, or only the final state does.
    """
    found = sorted(_by_step(reference, candidate, budget), key=lambda failed: failed[0])
    if found:
        step, what, _ = found[0]
        together = [said for other, _, said in found if other == step]
        return When(step, "; ".join(dict.fromkeys(together)), what=what)
    late = at_the_end(reference, candidate, budget)
    return When(None, late) if late else None


def _by_step(
    reference: RunRecord, candidate: RunRecord, budget: Budget | None
) -> Iterator[tuple[int, str, str]]:
    """(step, what, what is said of it) of every check that fails."""
    start = _worst(reference.state("initial"), candidate.state("initial"), 0.0)
    if start:
        yield 0, "initial", f"initial state: {start}"
    for record in (reference, candidate):
        for problem in audit(record).problems[:1]:
            number = re.match(r"steps? (\d+)", problem)
            yield int(number[1]) if number else 0, IDS, f"{record.label}: {problem}"
        for step, replica in unequal_replicas(record):
            yield step, "replicas", f"{record.label}: replica {replica} is not replica 0"
    unequal = first_unequal_step(reference, candidate)
    if unequal is not None:
        yield int(unequal.split()[1]), IDS, "sample ids differ"
    exact = {"count": count_rounding(reference), "learning_rate": 0.0}
    if reference.spec.loss_scale is not None:
        exact["loss_scale"] = 0.0
    for column, limit in exact.items():
        yield from _first_over(reference, candidate, column, np.full(len(reference.steps), limit))
    if budget is None:
        return
    for column in CURVES:
        yield from _first_over(reference, candidate, column, budget.curves[column])
    ours, theirs = (record.state("first_gradients") for record in (reference, candidate))
    ledger = zero_gradient_directions(reference.spec)
    gradients = _worst(ours, theirs, budget.states["first_gradients"], ledger)
    if gradients:
        yield 0, "first_gradients", f"first gradients: {gradients}"


def _first_over(
    reference: RunRecord, candidate: RunRecord, column: str, allowed: np.ndarray
) -> Iterator[tuple[int, str, str]]:
    deviation = column_deviation(column, reference, candidate)
    over = np.flatnonzero(~(deviation <= allowed))
    if len(over):
        row, title = int(over[0]), _TITLES.get(column, column.replace("_", " "))
        said = f"{title} off by {deviation[row]:.2g}, allowed {allowed[row]:.2g}"
        yield int(reference.steps[row]), column, said


def at_the_end(reference: RunRecord, candidate: RunRecord, budget: Budget | None) -> str:
    """What differs of the final states and of the evaluation, in words; nothing where both agree."""
    if budget is None:
        return ""
    ledger = zero_gradient_directions(reference.spec)
    final = _worst(reference.state("final"), candidate.state("final"), budget.states["final"], ledger)
    if final:
        return f"{FINAL_STATE}: {final}"
    check = evaluation_check(reference, candidate, budget.evaluation)
    if check.passed:
        return ""
    off = "" if check.is_unequal else f" off by {check.deviation:.2g}, allowed {check.budget:.2g}"
    return f"evaluation: {check.where}{off}"


def _worst(
    ours: State, theirs: State, allowed: float | Mapping[str, float], ledger: Collection[str] = ()
) -> str:
    """The tensor farthest outside, in words; nothing where all are inside."""
    over = {}
    for name, deviation in state_deviations(ours, theirs).items():
        limit = allowed if isinstance(allowed, float) else allowed.get(name, 0.0)
        if not deviation <= limit and tensor_of(name) not in ledger:
            over[name] = deviation
    if not over:
        return ""
    worst = max(over, key=lambda name: over[name])
    return f"{worst} off by {over[worst]:.2g}"


def chosen_steps(spec: TrainSpec, plan: BatchPlan, steps: int, outside: int | None) -> tuple[int, ...]:
    """The steps to trace, ascending: where defects begin to show.

    The first two; the first outside the budget and the one after; the last of the first epoch, whose batch
    may be smaller, and the one after; the last of the warm-up and the one after.
    """
    wanted = [0, 1] if outside is None else [0, outside, outside + 1, 1]
    wanted += [plan.steps_per_epoch - 1, plan.steps_per_epoch]
    warmup = getattr(spec.schedule, "warmup_steps", 0) or getattr(
        getattr(spec.schedule, "warmup", None), "steps", 0
    )
    if warmup:
        wanted += [warmup - 1, warmup]
    farthest = min(steps - 1, max(limits.FARTHEST_BORDER, 0 if outside is None else outside + 1))
    usable = dict.fromkeys(step for step in wanted if 0 <= step <= farthest)
    return tuple(sorted(list(usable)[: limits.MOST_STEPS]))


def states_differ(spec: TrainSpec, reference: State, candidate: State) -> bool:
    """Whether two canonical states are farther apart than rounding takes them in float64."""
    limit = dict.fromkeys(reference, FLOAT64["final"])
    return bool(_worst(reference, candidate, limit, zero_gradient_directions(spec)))


def narrowed(
    begin: int,
    stop: int,
    differ: Callable[[int, Sequence[int]], Mapping[int, bool]],
    sections: int = limits.SECTIONS,
) -> tuple[int, int] | None:
    """The step from `begin` to `stop` that makes the states differ, and how many rounds it took to find it.

    Until they differ, the points lie ever farther apart: most defects show early, and one that shows late
    costs no more for it, since every round goes on from states that agree.

    Args:
        differ: (begin, points) -> whether the states before the steps `points` differ, replayed from those before
            `begin`, which agree.
        sections: states that a round compares, but for the first; the more, the fewer steps are trained again.

    Returns:
        None where they differ nowhere.
    """
    low, high, rounds = begin, None, 0
    while high is None or high - low > 1:
        if low:
            end = min(stop, limits.SEARCH_GROWTH * low) if high is None else high
            points = np.linspace(low, end, sections + 1).round()[1:].astype(int).tolist()
        else:
            points = [min(stop, 2**power) for power in range(limits.SECTIONS)]
        points = sorted({*points} - {low})
        found = differ(low, points)
        rounds += 1
        over = next((point for point in points if found[point]), None)
        if over is None and points[-1] == stop:
            return None
        low = max([low, *(point for point in points if over is None or point < over)])
        high = high if over is None else over
    return low, rounds
