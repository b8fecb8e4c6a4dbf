"""The benchmark table: our trainers beside code written by hand, and what each switch costs or brings.

Run: python -m benchmarks [--rounds N] [--only NAME,...] [--out docs/evidence/benchmarks.md]

Every row is measured in a session of its own, its variants in turns, and kept as a file under --results,
so that rows can be measured one by one and again. The table holds what is there; --show measures nothing.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from benchmarks import harness
from benchmarks.rows import ROWS
from parity.common.base.errors import ParityError


def main() -> int:
    """1 where a row could not be measured; a target that is missed is in the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, help="of every row; 3 for a quick look [each row's own]")
    parser.add_argument("--only", metavar="NAME,...", help=f"of {', '.join(row.name for row in ROWS)}")
    parser.add_argument("--show", action="store_true", help="measure nothing, show what is kept")
    parser.add_argument("--results", type=Path, default=Path("runs/benchmarks"), help="[runs/benchmarks]")
    parser.add_argument("--out", type=Path, help="a page to write the table into, between its two marks")
    options = parser.parse_args()
    known = {row.name: row for row in ROWS}
    chosen = list(known) if options.only is None else options.only.split(",")
    unknown = [name for name in chosen if name not in known]
    if unknown:
        parser.error(f"unknown {', '.join(unknown)}; known: {', '.join(known)}")
    if options.rounds is not None and options.rounds < 1:
        parser.error(f"--rounds must be at least 1, received {options.rounds}")
    failed = (
        [] if options.show else measure([known[name] for name in chosen], options.rounds, options.results)
    )
    page = harness.compose(ROWS, options.results)
    print(page.text)
    if options.out is not None:
        harness.write_page(options.out, page.text)
    for line in page.damaged:
        _say(line)
    for line in page.unreached:
        _say(f"target missed: {line}")
    for name in failed:
        _say(f"not measured: {name}")
    return int(bool(failed))


def measure(rows: list[harness.Row], rounds: int | None, results: Path) -> list[str]:
    """Measure rows one after another; the names of those that failed."""
    failed = []
    for number, row in enumerate(rows, 1):
        _say(f"[{number}/{len(rows)}] {row.name}: {row.title}")
        begun = time.monotonic()
        try:
            harness.measure(row, rounds, results)
        except ParityError as error:
            _say(f"  failed: {error}")
            failed.append(row.name)
            continue
        lines = harness.lines_of(row, harness.kept(row, results) or {})
        for line in lines:
            _say(f"  {line.what}: {line.figure}  [{line.interval}]  {line.target}")
        _say(f"  {time.monotonic() - begun:.0f} s")
    return failed


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ParityError as error:
        sys.exit(f"benchmarks: error: {error}")
