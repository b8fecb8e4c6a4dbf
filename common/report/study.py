"""A study on the terminal and for programs, and what its plan says."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np
from rich.markup import escape

from parity import __version__
from parity.common.base.errors import RunError
from parity.common.base.terminal import Terminal
from parity.common.report.files import finite
from parity.common.report.terminal import figures_table
from parity.common.study.collect import Collected
from parity.common.study.metrics import METRICS
from parity.common.study.power import Spread, seeds_for
from parity.common.study.question import FEWEST_SEEDS, StudySpec
from parity.common.study.result import FigureResult, StudyResult

MARKS = {"equivalent": "✓", "different": "✗", "undecided": "?"}
_STYLE = {"equivalent": "bold green", "different": "bold red", "undecided": "bold yellow"}
_POWERS = (0.8, 0.9)
_LIMIT = 0.8


def study_to_json(result: StudyResult) -> dict[str, Any]:
    """Return a study's result as plain data; numbers that are not finite become text."""
    data: dict[str, Any] = finite(
        {
            "format": "parity-study-report",
            "schema_version": 1,
            "parity_version": __version__,
            "verdict": result.verdict,
            "exit_code": result.exit_code,
            "question": result.question.to_dict(),
            "seeds": result.seeds,
            "trained": result.trained,
            "ended": result.ended,
            "results": [_result(each) for each in result.results],
            "bands": [
                {
                    name: value.tolist() if isinstance(value, np.ndarray) else value
                    for name, value in asdict(band).items()
                }
                for band in result.bands
            ],
            "failures": [asdict(failure) for failure in result.failures],
            "versions": result.versions,
            "seconds_per_seed": list(result.seconds),
            "notes": list(result.notes),
        }
    )
    return data


def _result(result: FigureResult) -> dict[str, Any]:
    data = asdict(result)
    data["figure"] = result.figure.name
    data["margin"] = result.figure.margin.text
    data["saving"] = None if result.saving is None else result.saving._asdict()
    return data


def print_study(result: StudyResult, console: Terminal, report: str) -> None:
    """Print the verdict, a line a figure, and where the report lies."""
    question = result.question
    about = "records of scripts" if question.spec is None else escape(question.spec.name)
    style, mark = _STYLE[result.verdict], MARKS[result.verdict]
    console.say(
        f"[{style}]{mark} {result.verdict}[/{style}]  {about}, {result.seeds} seeds of at most {question.looks[-1]},"
        f" reference {escape(question.labels[0])}",
    )
    if not result.results:
        left = f"{result.trained} of {question.looks[0]} seeds that the first look takes have been trained"
        console.say(f"  {left}; the same command goes on")
    for each in result.results:
        several = f"{escape(each.candidate)}: " if len(question.labels) > 2 else ""
        console.say(
            f"  [{_STYLE[each.verdict]}]{MARKS[each.verdict]}[/{_STYLE[each.verdict]}] {several}{escape(each.sentence)}",
        )
    if result.results:
        console.print(_table(result))
    for line in result.notes:
        console.say(f"  note: {escape(line)}")
    console.say(f"  report: {escape(report)}")


COLUMNS = (
    "figure",
    "#difference",
    "#interval",
    "#margin",
    "#p equivalent",
    "#p different",
    "#by ranks",
    "#bootstrap",
    "#pairing saves",
    "#power",
)


def cells_of(result: FigureResult) -> list[str]:
    """Return a figure's row of the table of COLUMNS."""
    metric, beside = METRICS[result.figure.name], result.beside
    shown = metric.show
    saves = "" if result.saving is None or math.isnan(result.saving.factor) else saving_words(result)
    ranks, ends = "", ""
    if beside is not None:
        ranks = f"{beside.rank_equivalence:.2g}, {beside.rank_difference:.2g}"
        if not math.isnan(beside.bootstrap[0]):
            ends = " to ".join(shown(end) for end in beside.bootstrap)
    return [
        f"{result.figure.name}",
        shown(result.estimate),
        "" if math.isnan(result.interval[0]) else " to ".join(shown(end) for end in result.interval),
        f"{shown(result.margin_size)} ({result.figure.margin.text})",
        f"{result.p_equivalence:.2g}",
        f"{result.p_different:.2g}",
        ranks,
        ends,
        saves,
        "" if math.isnan(result.power) else f"{result.power:.0%}",
    ]


def saving_words(result: FigureResult) -> str:
    """Return by what factor pairing saves seeds, with its interval."""
    saving = result.saving
    assert saving is not None
    if math.isinf(saving.factor):
        return "equal in all seeds"
    if math.isnan(saving.low):
        return f"{saving.factor:.3g}x"
    return f"{saving.factor:.3g}x ({saving.low:.2g} to {saving.high:.2g})"


def _table(result: StudyResult) -> Any:
    """What the sentences do not say."""
    several = len(result.question.labels) > 2
    table = figures_table(["candidate"] * several + [COLUMNS[0], *COLUMNS[4:]])
    for each in result.results:
        name, _, _, _, *cells = cells_of(each)
        table.add_row(*[each.candidate] * several, name, *cells)
    return table


def print_plan(question: StudySpec, pilot: Collected, parallel: int, console: Terminal) -> None:
    """Print what a pilot says of how many seeds and hours a study takes.

    Raises:
        RunError: the pilot is not whole.
    """
    from scipy import special

    if pilot.count < FEWEST_SEEDS:
        raise RunError(
            f"the pilot has {pilot.count} of at least {FEWEST_SEEDS} seeds; the same command goes on"
        )
    seconds = float(np.nanmean(pilot.seconds)) / parallel
    console.say(f"a pilot of {pilot.count} seeds, {seconds:.1f} s a seed with {parallel} side by side")
    powers = [title for wanted in _POWERS for title in (f"#seeds, {wanted:.0%} power", "#hours")]
    table = figures_table(["candidate", "figure", "#margin", "spread", *powers])
    # The pilot's spread may be too small: also planned for is its upper limit of 80 %.
    upper = math.sqrt((pilot.count - 1) / float(special.chdtri(pilot.count - 1, _LIMIT)))
    for number, label in enumerate(question.labels[1:], start=1):
        for figure in question.figures:
            a, b = pilot.values(0, figure.name), pilot.values(number, figure.name)
            head = label, figure.name, figure.margin.text
            if a.ndim > 1 or not (np.isfinite(a).all() and np.isfinite(b).all()):
                table.add_row(
                    *head, "of a curve" if a.ndim > 1 else "not finite", *["not known"] * len(powers)
                )
                continue
            for name, factor in (("as seen", 1.0), (f"{upper:.1f} times it", upper)):
                spread = Spread.of(a, b, question.paired).times(factor, question.paired)
                needed = [
                    seeds_for(spread, figure.margin, wanted, question.alpha, question.paired)
                    for wanted in _POWERS
                ]
                table.add_row(*head, name, *[cell for seeds in needed for cell in _planned(seeds, seconds)])
    console.print(table)


def _planned(seeds: int | None, seconds: float) -> tuple[str, str]:
    return ("over 10,000", "") if seeds is None else (str(seeds), f"{seeds * seconds / 3600:.2g}")
