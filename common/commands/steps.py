"""`parity steps`: the numbers of a record's steps, for people, spreadsheets and scripts."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from parity.common.base.errors import RecordError
from parity.common.base.plain import print_document, print_line
from parity.common.commands import add_command
from parity.common.record import RunRecord, read_record

_ROWS_AT_ONCE = 1 << 12
_WIDTH = 14


def add(commands: Any) -> None:
    """Register the subcommand."""
    text = "print what a run recorded of its steps; works on a run that goes on, too"
    command = add_command(commands, "steps", run, text)
    command.add_argument("record", type=Path, help="the folder of a run")
    command.add_argument("--first", type=int, help="step to begin with [the first]")
    command.add_argument("--last", type=int, help="step to end with [the last]")
    command.add_argument(
        "--format",
        choices=sorted(_LINES),
        default="table",
        help="table rounds to six digits, csv and jsonl give every digit [table]",
    )


def run(options: argparse.Namespace) -> int:
    """Print the rows."""
    record = read_record(options.record)
    rows = _rows(record, options.first, options.last)
    columns = {"step": record.steps, "loss": record.loss, **record.columns}
    columns = {name: column[rows] for name, column in columns.items()} | {"step": record.steps[rows]}
    names, line = list(columns), _LINES[options.format]
    if options.format != "jsonl":
        print_line(",".join(names) if options.format == "csv" else " ".join(f"{n:>{_WIDTH}}" for n in names))
    for start in range(0, rows.stop - rows.start, _ROWS_AT_ONCE):
        part = [column[start : start + _ROWS_AT_ONCE].tolist() for column in columns.values()]
        print_document("".join(f"{line(names, row)}\n" for row in zip(*part, strict=True)))
    return 0


def _rows(record: RunRecord, first: int | None, last: int | None) -> slice:
    """The rows of steps first..last; RecordError where there are none."""
    steps = record.steps
    if not len(steps):
        raise RecordError(f"{record.folder}: holds no steps yet")
    low, high = int(steps[0]), int(steps[-1])
    start = low if first is None else max(first, low)
    end = high if last is None else min(last, high)
    if start > end:
        asked = f"{low if first is None else first} to {high if last is None else last}"
        raise RecordError(f"{record.folder}: has the steps {low} to {high}, received {asked}")
    return slice(start - low, end - low + 1)


_LINES: dict[str, Callable[[Sequence[str], Sequence[float]], str]] = {
    "table": lambda names, row: " ".join(f"{v:>{_WIDTH}{'' if isinstance(v, int) else '.6g'}}" for v in row),
    "csv": lambda names, row: ",".join(map(repr, row)),
    "jsonl": lambda names, row: json.dumps(dict(zip(names, row, strict=True))),
}
