"""The verdict on the terminal, in about ten lines; and of a scaling session tables, causes and projections."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from parity.common.base.terminal import Terminal, styled
from parity.common.parity.compare import Check, Comparison
from parity.common.parity.result import Result
from parity.common.report.files import to_json, write_both, write_junit
from parity.common.report.html.comparison import write_html
from parity.common.report.html.scaling import (
    UNCHECKED,
    error_words,
    interval,
    is_checked,
    number,
    titled,
    usual,
)
from parity.common.scaling.result import Projection, Ratio, Scaling, Target

if TYPE_CHECKING:
    from parity.common.scaling.experiment import ScaleResult

_STYLE = {"parity": "bold green", "divergent": "bold red", "inconclusive": "bold yellow"}
_KNOWN = {True: "[bold green]✓[/bold green]", False: "[bold yellow]?[/bold yellow]"}
_MARK = {"parity": "✓", "divergent": "✗", "inconclusive": "?"}
# A table of figures, whole.
_TABLE_WIDTH = 160
# From here on a deviation that is allowed looks like a mistake.
_LARGE = 0.1


def write_reports(result: Result, folder: Path) -> str:
    """Write report.json, report.xml and report.html; says where what is for people lies."""
    write_junit(result, folder / "report.xml")
    return write_both(folder / "report", to_json(result), lambda page: write_html(result, page))


def table_console() -> Terminal:
    """Standard output, wide enough for a table of figures: a long line is better than a number cut off."""
    return Terminal(width=max(Terminal().width, _TABLE_WIDTH))


def figures_table(columns: Sequence[str], title: str | None = None) -> Table:
    """A table without lines; the names of columns of numbers begin with #."""
    table = Table(title=title, box=None)
    for name in columns:
        right = name.startswith("#")
        table.add_column(name.lstrip("#"), justify="right" if right else "left", no_wrap=True)
    return table


def headline(verdict: str, text: str) -> str:
    """A verdict with its mark, then what it is of, as rich's markup."""
    style = _STYLE[verdict]
    return f"[{style}]{_MARK[verdict]} {verdict}[/{style}]  {text}"


def print_verdict(result: Result, console: Terminal, report: str | None) -> None:
    """Proved or not, by how much, splits, speedups, where the report lies."""
    spec = result.records[0].run_info
    about = f"{escape(spec.name)}, {spec.precision}, {len(result.records[0].steps)} steps"
    console.say(headline(result.verdict, f"{about}, reference {escape(result.records[0].label)}"))
    for comparison in result.comparisons:
        console.say(f"  {_comparison_line(comparison)}")
    console.say(f"  batch splits: {escape(_splits_line(result))}")
    if result.scaling is not None:
        for ratio in result.scaling.speedups:
            console.say(f"  speedup 1 -> {_speedup_line(ratio)}")
    if report is not None:
        console.say(f"  report: {escape(report)}")


def _comparison_line(comparison: Comparison) -> str:
    style, mark = _STYLE[comparison.verdict], _MARK[comparison.verdict]
    head = f"[{style}]{mark}[/{style}] {escape(comparison.candidate)}: "
    unjudged = f"; {escape(comparison.unjudged)}" if comparison.unjudged else ""
    if comparison.verdict != "parity":
        return head + escape(comparison.reason) + unjudged
    found = {check.name: check for check in comparison.checks}
    shown = [name for name in ("loss curve", "first-step gradients", "final state") if name in found]
    amounts = ", ".join(map(_amount, (found[name] for name in shown)))
    return head + (amounts if "loss curve" in found else escape(comparison.reason)) + unjudged


def _amount(check: Check) -> str:
    """A check's deviation; where it is large and allowed all the same, since rounding alone makes as much there, so."""
    amount = f"{check.name} {check.deviation:.1e}"
    if check.deviation < _LARGE:
        return amount
    return f"{amount} (by rounding alone up to {check.budget:.1e}, in {escape(check.where)})"


def _splits_line(result: Result) -> str:
    for audit in result.audits:
        if not audit.passed:
            return f"NOT as planned: {audit.label}, {audit.problems[0]}"
    if result.records[0].train_spec is None:
        return _unplanned_line(result)
    parts = sorted({audit.replicas for audit in result.audits})
    bounded = [audit for audit in result.audits if audit.audited_steps < audit.steps]
    # Of a run too long to audit whole, only what was audited is claimed.
    how = "none missing or doubled" if not bounded else f"as hashes say; as planned in {bounded[0].extent}"
    trained = result.records[0].train_spec.data.train_samples
    return (
        f"the same samples at every step, {how} ({result.audits[0].samples} visits to {trained} samples,"
        f" over {', '.join(map(str, parts))} replicas)"
    )


def _unplanned_line(result: Result) -> str:
    """Of scripts, which have no plan: whether they used the same samples."""
    checks = [check for c in result.comparisons for check in c.checks if check.name == "sample ids"]
    if len(checks) < len(result.comparisons):
        return "sample ids were not recorded"
    wrong = next((check for check in checks if not check.passed), None)
    if wrong is not None:
        return f"NOT the same samples at {wrong.where}"
    return f"the same samples at every step ({result.audits[0].samples} samples)"


def _speedup_line(ratio: Ratio) -> str:
    low, high = ratio.expected or (None, None)
    expected = "" if low is None else f", usual ~{low:g}x" if low == high else f", usual ~{low:g}-{high:g}x"
    unknown = "" if ratio.conclusion == "conclusive" else f" ({ratio.conclusion})"
    return (
        f"{ratio.replicas}: {escape(ratio.name)} {ratio.median:.2f}x"
        f" \\[{ratio.low:.2f}, {ratio.high:.2f}], efficiency {ratio.efficiency:.0%}{expected}{unknown}"
    )


def print_checks(comparison: Comparison, console: Terminal) -> None:
    """Every check of a comparison, and the ledger."""
    table = Table("", "check", "deviation", "allowed", "where", title=comparison.candidate, box=None)
    for check in comparison.checks:
        mark = styled("[green]✓[/green]" if check.passed else "[red]✗[/red]")
        amounts = f"{check.deviation:.2e}", f"{check.budget:.2e}"
        table.add_row(mark, check.name, *amounts, check.where)
    console.print(table)
    for entry in comparison.excepted:
        why = f"({escape(entry.reason)}), deviation {entry.deviation:.1e}"
        console.say(f"  left out: {escape(entry.tensor)} {why}")


def print_scale(result: ScaleResult, console: Terminal, report: str) -> None:
    """What `parity scale` found."""
    question, scaling = result.question, result.scaling
    kind = "strong and weak" if question.mode == "both" else question.mode
    console.say(
        f"{_KNOWN[result.exit_code == 0]} [bold]{result.verdict}[/bold]  {escape(question.spec.name)}, {kind} scaling,"
        f" {scaling.rounds} of {question.rounds} rounds, global batch {question.spec.global_batch_size}",
    )
    console.print(_scaling_table(scaling))
    for ratio in scaling.between:
        console.say(f"  {escape(titled(ratio.name, ratio.mode))}: {escape(interval(ratio, '.2f', 'x'))}")
    for ratio in (*scaling.speedups, *scaling.between):
        if ratio.conclusion != "conclusive":
            console.say(f"  ? {escape(titled(ratio.name, ratio.mode))}: {escape(ratio.advice)}")
    for loss in scaling.losses:
        console.say(f"  {escape(loss.sentence)}")
    for projection in scaling.projections:
        for line in _projected(projection):
            console.say(f"  {escape(line)}")
    if scaling.targets:
        console.print(_targets(scaling.targets))
    for note in scaling.notes:
        console.say(f"  note: {escape(note)}")
    console.say(f"  report: {escape(report)}")


def _scaling_table(scaling: Scaling) -> Table:
    figures = ("#batch", "#samples/s", "#per unit", "#speedup", "#efficiency", "#usual")
    table = figures_table(("configuration", *figures, "verdict"))
    found = {(ratio.name, ratio.mode): ratio for ratio in scaling.speedups}
    for c in scaling.configurations:
        ratio = found.get((c.label, c.mode))
        table.add_row(
            titled(c.label, c.mode),
            f"{c.global_batch:,}",
            interval(c.samples_per_second, ",.0f"),
            f"{number(c.per_unit.median, ',.0f')} a {c.unit}",
            *([""] * 4 if ratio is None else _speedup_cells(ratio)),
        )
    return table


def _speedup_cells(ratio: Ratio) -> tuple[str | Text, ...]:
    return (
        interval(ratio, ".2f", "x"),
        number(ratio.efficiency, ".0%"),
        usual(ratio.expected),
        styled(f"{_KNOWN[ratio.conclusion == 'conclusive']} {escape(ratio.conclusion)}"),
    )


def _projected(projection: Projection) -> list[str]:
    """The largest projected number of devices in each mode, and how far the model can be believed."""
    name = f"{projection.framework} {projection.strategy}"
    if not is_checked(projection):
        return [f"{name}: not projected: {projection.why_not or UNCHECKED}"]
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
        table.add_row(titled(t.label, t.mode), f"{t.quality} {t.target:g}", *effort)
    return table
