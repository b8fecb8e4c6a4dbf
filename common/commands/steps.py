"""`parity steps`: the numbers of a record's steps, for people, spreadsheets and scripts."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from parity.common.base.errors import RecordError
from parity.common.base.plain import print_document, print_error, print_line
from parity.common.commands import add_command, check_positive, print_rows
from parity.common.record import RunRecord, read_record

_ROWS_AT_ONCE = 1 << 12
_WIDTH = 14


def add(commands: Any) -> None:
    """Register the subcommand."""
    examples = ("steps runs/ddp --tail 5", "steps runs/ddp --first-step 100 --last-step 199 --format csv")
    command = add_command(commands, "steps", run, examples=examples, result="a line for each step")
    command.add_argument("record", type=Path, help="the folder of a run")
    command.add_argument("--head", type=int, metavar="N", help="of the steps chosen the first N")
    command.add_argument("--tail", type=int, metavar="N", help="of the steps chosen the last N")
    command.add_argument("--first-step", type=int, metavar="STEP", help="step to begin with [the first]")
    command.add_argument("--last-step", type=int, metavar="STEP", help="step to end with [the last]")
    # As they were called before; --last does not say whether it counts.
    command.add_argument("--first", dest="first_step", type=int, help=argparse.SUPPRESS)
    command.add_argument("--last", type=int, help=argparse.SUPPRESS)
    command.add_argument(
        "--format",
        choices=sorted(_LINES),
        default="table",
        help="table rounds to six digits, csv and jsonl give every digit [table]",
    )


def run(options: argparse.Namespace) -> int:
    """Print the rows."""
    check_positive(options, "head", "tail")
    if options.last is not None:
        print_error("parity: --last is now --last-step, the step to end with; --tail N prints the last N")
        options.last_step = options.last
    record = read_record(options.record)
    rows = _rows(record, options.first_step, options.last_step)
    if options.head is not None:
        rows = slice(rows.start, min(rows.stop, rows.start + options.head))
    if options.tail is not None:
        rows = slice(max(rows.start, rows.stop - options.tail), rows.stop)
    columns = {"step": record.steps, "loss": record.loss, **record.columns}
    columns = {name: column[rows] for name, column in columns.items()} | {"step": record.steps[rows]}
    names, line = list(columns), _LINES[options.format](columns)
    if options.json:
        each = (dict(zip(names, row, strict=True)) for part in _parts(columns) for row in part)
        print_rows(options, each)
        if options.json == "-":
            return 0
    if options.format != "jsonl":
        print_line(",".join(names) if options.format == "csv" else " ".join(f"{n:>{_WIDTH}}" for n in names))
    # A part is printed at once: a call for each row of a million takes most of the time.
    for part in _parts(columns):
        print_document("".join(f"{line(row)}\n" for row in part))
    return 0


def _parts(columns: Mapping[str, Any]) -> Iterator[Iterator[tuple[float, ...]]]:
    """The rows of columns, of which few are held at once."""
    count = len(next(iter(columns.values())))
    for start in range(0, count, _ROWS_AT_ONCE):
        part = [column[start : start + _ROWS_AT_ONCE].tolist() for column in columns.values()]
        yield zip(*part, strict=True)


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


def _table(columns: Mapping[str, Any]) -> Callable[[tuple[float, ...]], str]:
    kinds = ("d" if column.dtype.kind in "iu" else ".6g" for column in columns.values())
    return " ".join(f"%{_WIDTH}{kind}" for kind in kinds).__mod__


_LINES: dict[str, Callable[[Mapping[str, Any]], Callable[[tuple[float, ...]], str]]] = {
    "table": _table,
    "csv": lambda _: lambda row: ",".join(map(repr, row)),
    "jsonl": lambda columns: lambda row: json.dumps(dict(zip(columns, row, strict=True))),
}
