"""What a study found, in sentences: for a paper, and what a reader must know before believing it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from parity.common.study.collect import Collected
from parity.common.study.metrics import METRICS
from parity.common.study.question import StudySpec
from parity.common.study.result import FigureResult


def sentence_of(result: FigureResult, seeds: int, alpha: float) -> str:
    """Return what a paper would say of a figure."""
    metric = METRICS[result.figure.name]
    margin = result.figure.margin
    shown = metric.show(result.margin_size, unit=False)
    limit = shown if margin.kind == "absolute" else f"{shown} ({margin.text})"
    head = f"over {seeds} seeds the {metric.about} "
    if result.method == "ranks":
        lost = [sum(not math.isfinite(x) for x in values) for values in (result.a, result.b)]
        return (
            f"{head}is not finite in {lost[0]} runs of the reference and {lost[1]} of {result.candidate}; by ranks, where"
            f" these are the worst, p = {result.p_difference:.2g} for a difference"
        )
    low, high = (metric.show(end, unit=False) for end in result.interval)
    level = f"{100 * (1 - 2 * alpha):g} % interval"
    where = {
        "equivalent": f"within the margin of {limit}",
        "different": f"beyond the margin of {limit}",
        "undecided": f"against a margin of {limit}",
    }[result.verdict]
    differ = "differs by" if result.figure.name != "curve" else "differs most, against its margin, by"
    text = f"{head}{differ} {metric.show(result.estimate)}, {level} {low} to {high}, {where}"
    if result.verdict != "different" and result.differs:
        text += f"; that there is a difference is shown (p = {result.p_different:.2g})"
    if result.seeds_needed is not None:
        text += (
            f"; a verdict would take about {result.seeds_needed:,} seeds, if the difference is as it was seen"
        )
    return text


def notes_of(
    question: StudySpec, collected: Collected, results: Sequence[FigureResult], futile: bool
) -> list[str]:
    """Return what a reader must know before believing any of it. futile: whether it ended for want of hope."""
    found = []
    shared = question.shared()
    if shared:
        found.append(
            f"the runs of a seed have in common: {', '.join(shared)}; differences are taken seed by seed"
        )
    elif question.spec is None:
        how = {
            "seed": "by the seed that they recorded",
            "order": "in the order of their names",
            "none": "not",
        }
        found.append(f"runs of the two folders are {how[question.pairing]} taken as pairs")
    modes = sorted({mode for arm in question.arms for mode in arm.stock})
    if modes:
        found.append(f"each framework in its own way: {', '.join(modes)}")
    if len(results) > 1:
        found.append(
            "that all figures are equivalent needs each of them to be, so that no correction is due; of differences"
            " there are several, and their p-values are corrected by Holm's rule"
        )
    if len(question.stages) > 1:
        found.append(
            f"seeds were added {len(question.stages) - 1} times after results were known: each stage has an error of"
            f" {question.alpha:.0%}, all together at most {len(question.stages) * question.alpha:.0%}"
        )
    if futile:
        found.append(
            f"ended early: with the {question.looks[-1]} seeds planned neither verdict is likely, given what was seen"
        )
    for result in results:
        if result.skewed:
            found.append(
                f"{result.figure.name} of {result.candidate}: the differences are skewed, so that a one-sided t-test may be"
                " wrong more often than it says; see the ranks and the bootstrap beside it"
            )
    for failure in collected.failures:
        found.append(f"seed {failure.seed}, {failure.label}: {failure.text}")
    return found
