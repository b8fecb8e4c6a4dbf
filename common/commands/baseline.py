"""`parity compare --baseline`: what a new version of a framework changed, in numbers, speed and memory."""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict
from typing import Any

from rich.markup import escape
from rich.table import Table

from parity import __version__
from parity.common.base.errors import SpecError
from parity.common.base.terminal import Terminal
from parity.common.commands import make_folder, print_result
from parity.common.parity.baseline import BaselineResult, Change, compare_baseline
from parity.common.report.files import finite, write_data
from parity.common.report.terminal import figures_table, table_console

_MARK = {0: "[bold green]✓[/bold green]", 1: "[bold red]✗[/bold red]", 3: "[bold yellow]?[/bold yellow]"}
_WORDS = {0: "no regression", 1: "regression", 3: "undecided"}


def run(options: argparse.Namespace) -> int:
    """Compare each new folder with the old one; 1 where anything has become worse, 3 where that is open.

    Raises:
        SpecError: a flag belongs to comparisons of runs, or the threshold is no share.
    """
    for name in ("floor", "checks", "mapping"):
        if getattr(options, name):
            raise SpecError(f"--{name} belongs to comparisons of runs; leave it out with --baseline")
    if not 0 < options.threshold < 1:
        raise SpecError(f"--threshold must be above 0 and below 1, received {options.threshold:g}")
    results = [compare_baseline(options.reference, new, options.threshold) for new in options.candidates]
    print_result(options, to_json(results))
    shown = None
    if options.out is not None:
        make_folder(options.out)
        write_data(to_json(results), options.out / "baseline.json")
        shown = str(options.out / "baseline.json")
    show(results, table_console(), shown)
    return exit_code(results)


def exit_code(results: list[BaselineResult]) -> int:
    """Of all: a regression says more than what is undecided, that more than what is well."""
    codes = {result.exit_code for result in results}
    return next((code for code in (1, 3) if code in codes), 0)


def to_json(results: list[BaselineResult]) -> dict[str, Any]:
    """The results as plain data; numbers that are not finite become text."""
    return {
        "format": "parity-baseline",
        "schema_version": 1,
        "parity_version": __version__,
        "exit_code": exit_code(results),
        "comparisons": [finite(asdict(result)) | {"exit_code": result.exit_code} for result in results],
    }


def show(results: list[BaselineResult], console: Terminal, report: str | None) -> None:
    """Each comparison: its verdict, the versions that differ, a table, and what has become worse."""
    for result in results:
        code = result.exit_code
        about = f"{escape(result.new)} against {escape(result.old)}"
        console.say(f"{_MARK[code]} [bold]{_WORDS[code]}[/bold]  {about}")
        changed = [f"{name} {old} -> {new}" for name, old, new in result.versions]
        console.say(f"  versions: {escape(', '.join(changed) or 'the same')}")
        console.print(_table(result))
        for change in result.changes:
            for line in change.regression:
                console.say(f"  [red]✗[/red] {escape(change.label)}: {escape(line)}")
            for line in _open(change):
                console.say(f"  ? {escape(change.label)}: {escape(line)}")
        for side, labels in (("old", result.only_old), ("new", result.only_new)):
            if labels:
                console.say(f"  only in the {side} folder: {escape(', '.join(labels))}")
    if report is not None:
        console.say(f"  report: {escape(report)}")


def _open(change: Change) -> list[str]:
    """What could not be decided, and why."""
    lines = []
    if change.numbers in ("inconclusive", "not compared"):
        lines.append(f"numbers {change.numbers}: {change.why}")
    if change.speed in ("too noisy to conclude", "not compared"):
        lines.append(f"speed {change.speed}: {change.advice}")
    return lines


def _table(result: BaselineResult) -> Table:
    figures = ("#new / old", "#could tell", "#peak memory")
    table = figures_table(("configuration", "#batch", "numbers", "speed", *figures))
    for change in result.changes:
        ratio = change.ratio
        peak = next((change.memory[name] for name in change.memory if name.startswith("peak")), math.nan)
        table.add_row(
            change.label,
            f"{change.global_batch:,}",
            change.numbers,
            change.speed,
            "" if ratio is None else f"{ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]",
            "" if math.isnan(change.resolution) else f"{change.resolution:.1%}",
            "" if math.isnan(peak) else f"{peak:.2f}x",
        )
    return table
