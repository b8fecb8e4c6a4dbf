"""Report a verdict: on the terminal and, with a folder, in its reports."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from parity.common.parity.result import Result
from parity.common.report.files import page_or_data, write_json, write_junit
from parity.common.report.terminal import print_checks, print_verdict


def conclude(result: Result, folder: Path | None, checks: bool = False) -> int:
    """Write the reports, print the verdict (with `checks` every check), and return the exit code."""
    console = Console(emoji=False)
    shown = None if folder is None else write_reports(result, folder)
    if checks:
        for comparison in result.comparisons:
            print_checks(comparison, console)
    print_verdict(result, console, shown)
    return result.exit_code


def write_reports(result: Result, folder: Path) -> str:
    """Write report.json, report.xml and report.html; says where what is for people lies."""
    from parity.common.report.html.comparison import write_html

    page, data = folder / "report.html", folder / "report.json"
    write_json(result, data)
    write_junit(result, folder / "report.xml")
    return page_or_data(page, data, lambda: write_html(result, page))
