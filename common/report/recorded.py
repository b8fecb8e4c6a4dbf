"""The diagnosis of two recorded scripts: on the terminal, and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape

from parity import __version__
from parity.common.external.scripts.recorded import RecordedDiagnosis
from parity.common.external.scripts.stage import Stage

_HEADLINE = {
    "parity": ("bold green", "✓"),
    "divergent": ("bold red", "✗"),
    "inconclusive": ("bold yellow", "?"),
}
_MARK = {"agrees": "[green]✓[/green]", "differs": "[red]✗[/red]", "not recorded": "[dim]-[/dim]"}


def print_recorded(diagnosis: RecordedDiagnosis, console: Console, shown: str | None) -> None:
    """When, where and why, in this order; `shown` says where the JSON lies."""
    style, mark = _HEADLINE[diagnosis.verdict]
    who = f"{escape(diagnosis.candidate)} against {escape(diagnosis.reference)}"
    _say(console, f"[{style}]{mark} {diagnosis.verdict}[/{style}]  {escape(diagnosis.name)}, {who}")
    first = diagnosis.first
    if first is not None:
        _say(console, f"\n[bold]When[/bold]   {when(first)}: {escape(first.name)}")
    _say(console, "\n[bold]Where[/bold]  each stage over all steps, in the order of a step")
    for stage in diagnosis.stages:
        at = f" [dim]first {when(stage)}[/dim]" if stage.status == "differs" else ""
        flag = " [bold red]◀ the first[/bold red]" if stage is first else ""
        _say(console, f"  {_MARK[stage.status]} {escape(stage.name):<16}{at} {escape(stage.text)}{flag}")
    if diagnosis.why or diagnosis.settings:
        _say(console, "\n[bold]Why[/bold]")
    for text in diagnosis.why:
        _say(console, f"  [yellow]likely[/yellow]  {escape(text)}")
    for text in diagnosis.settings:
        _say(console, f"  set differently  {escape(text)}")
    for note in diagnosis.notes:
        _say(console, f"note: {escape(note)}")
    if shown is not None:
        _say(console, f"report: {escape(shown)}")


def when(stage: Stage) -> str:
    """Of a stage that differs, the place in time."""
    if stage.step is None or stage.step < 0:
        return "before the first step"
    return "after the last step" if stage.name == "final state" else f"at step {stage.step}"


def to_json(diagnosis: RecordedDiagnosis) -> dict[str, Any]:
    """The whole diagnosis as plain data."""
    return {
        "format": "parity-recorded-diagnosis",
        "schema_version": 1,
        "parity_version": __version__,
        **asdict(diagnosis),
    }


def _say(console: Console, line: str) -> None:
    console.print(line, highlight=False, soft_wrap=True)
