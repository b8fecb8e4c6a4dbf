"""From the seeds of a study to its verdict: the tests at each look, and when it ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from parity.common.study.collect import Collected
from parity.common.study.curves import Band, band_of, compare_curves
from parity.common.study.decision import ended
from parity.common.study.equivalence import (
    Margin,
    Numbers,
    Tested,
    beside,
    holm,
    rank_tests,
    saving,
    t_tests,
)
from parity.common.study.metrics import middles_of
from parity.common.study.power import Spread, power_of, seeds_at_once, seeds_to_differ
from parity.common.study.question import DEFAULT_MARGIN, Figure, StudySpec
from parity.common.study.result import FigureResult, StudyResult, Verdict, overall
from parity.common.study.sentences import notes_of, sentence_of
from parity.common.study.sequential import levels, study_p_value

_WANTED = 0.8
# A study ends without a verdict where either would be reached with less than this probability.
_FUTILE = 0.1
_STUDIES = 2000  # simulated for a probability, which is then known to a point
# Skewness of the differences from which one-sided t-tests are known to be too bold, in its standard errors.
_SKEWED = 2.0


@dataclass
class _Looked:
    """What one figure showed at the looks so far: p-values by look."""

    equivalence: list[float]
    difference: list[float]
    outside: list[bool]
    estimate: float = math.nan
    tested: Tested | None = None
    margin_size: float = math.nan
    method: Literal["t", "ranks"] = "t"


def judge_study(question: StudySpec, collected: Collected) -> StudyResult:
    """Return what the seeds of a study say: the verdict at the first look that has one, else that of the last look."""
    paired = question.paired
    pairs = [(number, figure) for number in range(1, len(question.labels)) for figure in question.figures]
    looked = [_Looked([], [], []) for _ in pairs]
    verdicts: list[Verdict] = ["undecided"] * len(pairs)
    looks = [look for look in question.looks if look <= collected.count]
    adjusted = [1.0] * len(pairs)
    done, look = False, 0
    for look in looks:
        for (number, figure), state in zip(pairs, looked, strict=True):
            _look(state, collected, number, figure, look, paired)
        sofar = looks[: looks.index(look) + 1]
        adjusted = holm([_of_study(question, sofar, state.difference, 2) for state in looked])
        for place, state in enumerate(looked):
            equal = _of_study(question, sofar, state.equivalence, 1) <= question.alpha
            shown = adjusted[place] <= question.alpha
            equivalent, different = ended(equal, shown, state.outside[-1])
            verdicts[place] = "equivalent" if equivalent else "different" if different else "undecided"
        done = overall(verdicts) != "undecided" or look == question.looks[-1]
        if done:
            break
    sofar = [each for each in looks if each <= look]
    results = tuple(
        _concluded(question, collected, pair, state, verdict, p, look, sofar)
        for pair, state, verdict, p in zip(pairs, looked, verdicts, adjusted, strict=True)
        if look
    )
    futile = bool(results) and not done and _futile(question, results)
    return StudyResult(
        question,
        overall(verdicts) if look else "undecided",
        results,
        tuple(_bands(question, collected, look or collected.count)),
        look,
        collected.count,
        done or futile,
        collected.failures,
        collected.versions,
        collected.seconds,
        tuple(notes_of(question, collected, results, futile)),
        tuple(record for arm in collected.records for record in arm if record is not None),
    )


def _look(state: _Looked, collected: Collected, number: int, figure: Figure, look: int, paired: bool) -> None:
    """Add what a figure shows after `look` seeds."""
    a, b = (collected.values(arm, figure.name)[:look] for arm in (0, number))
    finite = bool(np.isfinite(a).all() and np.isfinite(b).all())
    if figure.name == "curve" and finite:
        found = compare_curves(a, b, figure.margin, paired)
        worst = int(np.argmax(found.tested.equivalence))
        state.tested = Tested(*(np.asarray(each)[worst] for each in found.tested))
        state.margin_size = float(found.margin[worst])
        p_equivalence, p_difference = found.equivalence, found.difference
    elif figure.name == "curve":
        p_equivalence, p_difference, state.tested = 1.0, 1.0, None
    elif finite:
        state.tested = t_tests(a, b, figure.margin, paired)
        state.margin_size = float(figure.margin.of_seeds(a).mean(-1))
        p_equivalence, p_difference = float(state.tested.equivalence), float(state.tested.difference)
    else:
        size = figure.margin.value if figure.margin.kind == "absolute" else math.nan
        state.tested, state.method, state.margin_size = None, "ranks", size
        p_equivalence, p_difference = rank_tests(a, b, size, paired)
    state.estimate = _median_difference(a, b) if state.tested is None else float(state.tested.estimate)
    state.equivalence.append(p_equivalence)
    state.difference.append(p_difference)
    # Of two medians of which one is not finite, nothing is within a margin.
    state.outside.append(not abs(state.estimate) < state.margin_size)


def _median_difference(a: Numbers, b: Numbers) -> float:
    if a.ndim > 1:
        return math.nan
    ours, theirs = (float(np.sort(each)[len(each) // 2]) for each in (a, b))
    return 0.0 if ours == theirs else theirs - ours


def _of_study(
    question: StudySpec, looks: Sequence[int], p_values: Sequence[float], sides: Literal[1, 2]
) -> float:
    """The p-value of all looks so far: the least of the stages', each of which has an error of its own."""
    found, begin = [1.0], 0
    for stage in question.stages:
        taken = [look for look in looks if look in stage]
        if taken:
            shares = [look / stage[-1] for look in taken]
            found.append(study_p_value(shares, p_values[begin : begin + len(taken)], sides))
        begin += len(stage)
    return min(found)


def _concluded(
    question: StudySpec,
    collected: Collected,
    pair: tuple[int, Figure],
    state: _Looked,
    verdict: Verdict,
    p_different: float,
    look: int,
    looks: Sequence[int],
) -> FigureResult:
    number, figure = pair
    alpha, paired = question.alpha, question.paired
    a, b = (collected.values(arm, figure.name)[:look] for arm in (0, number))
    interval = (math.nan, math.nan)
    if state.tested is not None:
        low, high = state.tested.interval(_level(question, look))
        interval = float(low), float(high)
    scalar = figure.name != "curve"
    finite = scalar and state.method == "t" and state.tested is not None
    spread = Spread.of(a, b, paired) if finite else None
    power, needed = math.nan, None
    if spread is not None:
        planned = question.stages[-1]
        power = power_of(spread, figure.margin, planned, alpha, paired, studies=_STUDIES).equivalent
        if verdict == "undecided":
            needed = _needed(spread, figure.margin, alpha, paired, state.estimate)
    result = FigureResult(
        candidate=question.labels[number],
        figure=figure,
        a=tuple(a.tolist()) if scalar else (),
        b=tuple(b.tolist()) if scalar else (),
        estimate=state.estimate,
        interval=interval,
        margin_size=state.margin_size,
        p_equivalence=_of_study(question, looks, state.equivalence, 1),
        p_difference=_of_study(question, looks, state.difference, 2),
        p_different=p_different,
        differs=p_different <= alpha,
        method=state.method,
        verdict=verdict,
        beside=beside(a, b, figure.margin, paired, alpha) if scalar else None,
        saving=saving(a, b) if scalar and paired else None,
        power=power,
        seeds_needed=needed,
        skewed=finite and _is_skewed(b - a if paired else np.concatenate([a - a.mean(), b - b.mean()])),
    )
    return replace(result, sentence=sentence_of(result, look, alpha))


def _level(question: StudySpec, look: int) -> float:
    """What the interval taken at a look leaves outside on either side, so that all looks' intervals hold together."""
    stage = next(stage for stage in question.stages if look in stage)
    shares = tuple(each / stage[-1] for each in stage[: stage.index(look) + 1])
    return levels(shares, question.alpha, 1)[-1]


def _needed(spread: Spread, margin: Margin, alpha: float, paired: bool, estimate: float) -> int | None:
    """With how many seeds either verdict would be reached, if the difference is as it was seen."""
    counts = [
        seeds_at_once(spread, margin, _WANTED, alpha, paired, estimate),
        seeds_to_differ(spread, _WANTED, alpha, paired, estimate),
    ]
    return min((count for count in counts if count is not None), default=None)


def _futile(question: StudySpec, results: Sequence[FigureResult]) -> bool:
    """Whether neither verdict is likely with all seeds that are planned, if the differences are as they were seen."""
    equivalent, different = [], []
    for result in results:
        if result.verdict == "equivalent":
            continue
        if result.method != "t" or not result.a:
            return False
        spread = Spread.of(np.array(result.a), np.array(result.b), question.paired)
        found = [
            power_of(
                spread,
                result.figure.margin,
                question.looks[-1:],
                question.alpha,
                question.paired,
                d,
                _STUDIES,
            )
            for d in (result.estimate, 0.0)
        ]
        equivalent.append(max(each.equivalent for each in found))
        different.append(found[0].different)
    return min(equivalent, default=1.0) < _FUTILE and max(different, default=1.0) < _FUTILE


def _is_skewed(differences: Numbers) -> bool:
    n, centred = len(differences), differences - differences.mean()
    spread = float(np.sqrt((centred**2).mean()))
    if n < 4 or spread == 0:
        return False
    error = math.sqrt(6 * (n - 2) / ((n + 1) * (n + 3)))
    return bool(abs((centred**3).mean()) / spread**3 > _SKEWED * error)


def _bands(question: StudySpec, collected: Collected, seeds: int) -> list[Band]:
    """The curves of each candidate beside the reference's; none where the arms took other numbers of steps."""
    margin = next((f.margin for f in question.figures if f.name == "curve"), DEFAULT_MARGIN)
    paired, found = question.paired, []
    for number, label in enumerate(question.labels[1:], start=1):
        a, b = (collected.curves(arm)[:seeds] for arm in (0, number))
        if a.shape[1:] != b.shape[1:] or not a.size or not b.size:
            continue
        middles = middles_of(collected.steps)
        band = band_of(label, middles, a, b, margin, paired, question.alpha)
        found += [] if band is None else [band]
    return found
