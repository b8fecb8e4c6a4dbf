"""`parity check`: which invariants a run broke, without a second run to compare it with."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from parity.common.api.checked import check
from parity.common.commands import add_command, print_result


def add(commands: Any) -> None:
    """Register the subcommand."""
    command = add_command(
        commands,
        "check",
        run,
        "Runs and recorders check invariants while they train; this reports what they found. Exit codes: 0 none was broken,"
        " 1 one was, 2 usage error, 3 a record was not checked.",
        ("check runs/ddp", "check runs/keras runs/torch --json"),
        result="what was checked and broken",
    )
    command.add_argument("records", type=Path, nargs="+", help="folders of runs or of recorded scripts")


def run(options: argparse.Namespace) -> int:
    """Print the invariants that each record broke."""
    found = [check(folder) for folder in options.records]
    for each in found:
        each.show()
    print_result(options, [each.to_json() for each in found])
    codes = {each.exit_code for each in found}
    return 1 if 1 in codes else max(codes)
