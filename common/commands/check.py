"""`parity check`: what records broke of that which must hold in every run, without a second run beside them."""

from __future__ import annotations

import argparse
from itertools import groupby
from pathlib import Path
from typing import Any

from parity.common.base.plain import print_line
from parity.common.commands import add_command, print_result
from parity.common.record import RunRecord, read_record
from parity.common.record.files import read_json
from parity.common.record.invariants import INVARIANTS, REPLICAS
from parity.common.record.script import NOTES
from parity.common.record.script_checks import ORDER, SHARES
from parity.common.spec import ScriptInfo


def add(commands: Any) -> None:
    """Register the subcommand."""
    command = add_command(
        commands,
        "check",
        run,
        "Runs and recorders check it while they train; this tells what they found. Exit codes: 0 nothing was broken,"
        " 1 something was, 2 usage error, 3 a record was not checked.",
        ("check runs/ddp", "check runs/keras runs/torch --json"),
        result="what was checked and broken",
    )
    command.add_argument("records", type=Path, nargs="+", help="folders of runs or of recorded scripts")


def run(options: argparse.Namespace) -> int:
    """Print what each record broke."""
    found = [_told(read_record(folder)) for folder in options.records]
    for each in found:
        for line in _lines(each):
            print_line(line)
    print_result(options, found)
    if any(each["broken"] for each in found):
        return 1
    return 0 if all(each["checked"] for each in found) else 3


def _told(record: RunRecord) -> dict[str, Any]:
    by_name = sorted(record.violations, key=lambda violation: violation.invariant)
    rows = [list(group) for _, group in groupby(by_name, lambda violation: violation.invariant)]
    broken = [
        {"invariant": first.invariant, "step": first.step, "text": first.text, "steps": 1 + len(more)}
        for first, *more in sorted(rows, key=lambda group: group[0].step)
    ]
    return {
        "record": str(record.folder),
        "steps": len(record.steps),
        "checked": _checked(record),
        "broken": broken,
        "notes": _notes(record.folder / NOTES),
    }


def _notes(path: Path) -> dict[str, int]:
    return {str(text): int(step) for text, step in read_json(path).items()} if path.exists() else {}


def _checked(record: RunRecord) -> list[str]:
    info = record.run_info
    if not isinstance(info, ScriptInfo):
        whole = record.header.run_options.recording == "full"
        alone = record.header.placement.replicas == 1
        return [name for name in INVARIANTS if not (alone and name == REPLICAS)] if whole else []
    ids = record.folder / "sample_ids"
    return [name for name in info.invariants if name not in (SHARES, ORDER) or ids.exists()]


def _lines(told: dict[str, Any]) -> list[str]:
    name, count = told["record"], f"{told['steps']} steps"
    lines = [
        f"✗ {name}: step {each['step']}: {each['invariant']}: {each['text']}"
        + (f" ({each['steps']} times in all)" if each["steps"] > 1 else "")
        for each in told["broken"]
    ]
    worth = [f"· {name}: step {step}: worth a look: {text}" for text, step in told["notes"].items()]
    if not told["checked"]:
        return [*lines, f"? {name}: nothing was checked while it trained ({count})"]
    checked = ", ".join(told["checked"])
    return (lines or [f"✓ {name}: nothing was broken in {count}; checked: {checked}"]) + worth
