"""A scaling analysis on the terminal: one table, causes, projections, targets, where the report lies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from parity.common.report.html.scaling import error_words, interval, number, titled, usual
from parity.common.report.terminal import figures_table, say
from parity.common.scaling.result import Projection, Ratio, Scaling, Target

if TYPE_CHECKING:
    from parity.common.scaling.experiment import ScaleResult

_MARK = {True: "[bold green]✓[/bold green]", False: "[bold yellow]?[/bold yellow]"}


def print_scale(result: ScaleResult, console: Console, report: str) -> None:
    """What `parity scale` found."""
    question, scaling = result.question, result.scaling
    kind = "strong and weak" if question.mode == "both" else question.mode
    say(
        console,
        f"{_MARK[result.exit_code == 0]} [bold]{result.verdict}[/bold]  {escape(question.spec.name)}, {kind} scaling,"
        f" {scaling.rounds} of {question.rounds} rounds, global batch {question.spec.global_batch_size}",
    )
    console.print(_table(scaling))
    for ratio in scaling.between:
        say(console, f"  {escape(titled(ratio.name, ratio.mode))}: {escape(interval(ratio, '.2f', 'x'))}")
    for ratio in (*scaling.speedups, *scaling.between):
        if ratio.conclusion != "conclusive":
            say(console, f"  ? {escape(titled(ratio.name, ratio.mode))}: {escape(ratio.advice)}")
    for loss in scaling.losses:
        say(console, f"  {escape(loss.sentence)}")
    for projection in scaling.projections:
        for line in _projected(projection):
            say(console, f"  {escape(line)}")
    if scaling.targets:
        console.print(_targets(scaling.targets))
    for note in scaling.notes:
        say(console, f"  note: {escape(note)}")
    say(console, f"  report: {escape(report)}")


def _table(scaling: Scaling) -> Table:
    figures = ("#batch", "#samples/s", "#per unit", "#speedup", "#efficiency", "#usual")
    table = figures_table(("configuration", *figures, "verdict"))
    found = {(ratio.name, ratio.mode): ratio for ratio in scaling.speedups}
    for c in scaling.configurations:
        ratio = found.get((c.label, c.mode))
        table.add_row(
            escape(titled(c.label, c.mode)),
            f"{c.global_batch:,}",
            escape(interval(c.samples_per_second, ",.0f")),
            f"{number(c.per_unit.median, ',.0f')} a {c.unit}",
            *_speedup(ratio),
        )
    return table


def _speedup(ratio: Ratio | None) -> tuple[str, str, str, str]:
    if ratio is None:
        return "", "", "", ""
    return (
        escape(interval(ratio, ".2f", "x")),
        number(ratio.efficiency, ".0%"),
        usual(ratio.expected),
        f"{_MARK[ratio.conclusion == 'conclusive']} {ratio.conclusion}",
    )


def _projected(projection: Projection) -> list[str]:
    """The largest projected number of devices in each mode, and how far the model can be believed."""
    name = f"{projection.framework} {projection.strategy}"
    if projection.why_not:
        return [f"{name}: not projected: {projection.why_not}"]
    last = {point.mode: point for point in projection.points}
    parts = [
        f"{p.mode} {number(p.speedup, ',.1f')}x on {p.devices:,} devices (efficiency {number(p.efficiency, '.0%')})"
        for p in last.values()
    ]
    # Where each figure of a link comes from is said on the page.
    link = re.sub(r" \([^()]*\)", "", projection.link)
    return [f"{name}, projected over {link}: {', '.join(parts)}. {error_words(projection)}"]


def _targets(targets: Sequence[Target]) -> Table:
    table = figures_table(("configuration", "target", "#seconds", "#samples", "#steps"))
    for t in targets:
        effort = (f"{t.seconds:,.2f}", f"{t.samples:,.0f}", f"{t.steps:,.0f}")
        if not t.reached:
            effort = (f"best {t.best:.4g}", "", "")
        table.add_row(escape(titled(t.label, t.mode)), f"{t.quality} {t.target:g}", *effort)
    return table
