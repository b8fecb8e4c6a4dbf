"""Violations of a run's invariants: violations/replica_N.jsonl, one line each, N the process's first replica."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO

from parity.common.base.errors import RecordError
from parity.common.record.files import read_lines
from parity.common.record.invariants import Violation

# Of each invariant, a process keeps the breaches of so many steps, and counts the rest.
KEPT = 1 << 12


class ViolationWriter:
    """Writes what one process breached, and says the first breach of each invariant at once."""

    def __init__(self, folder: Path, replica: int) -> None:
        """`folder` and a file in it are made at the first breach."""
        self._path = folder / f"replica_{replica}.jsonl"
        self._file: IO[str] | None = None
        self._first: dict[str, Violation] = {}
        self._counts: Counter[str] = Counter()

    def write(self, violations: Sequence[Violation]) -> None:
        """Append the breaches of a step."""
        for violation in violations:
            name = violation.invariant
            self._counts[name] += 1
            if name not in self._first:
                self._first[name] = violation
                _say(f"invariant broken at step {violation.step}: {name}: {violation.text}")
            if self._counts[name] <= KEPT:
                self._append(violation)

    def _append(self, violation: Violation) -> None:
        if self._file is None:
            self._path.parent.mkdir(exist_ok=True)
            self._file = open(self._path, "x", encoding="utf-8")
        self._file.write(json.dumps(asdict(violation)) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Stop writing, and say how often what was said once has happened."""
        for name, count in self._counts.items():
            if count > 1:
                _say(f"invariant broken in {count} steps from {self._first[name].step} on: {name}")
        self._counts.clear()
        if self._file is not None:
            self._file.close()


def read_violations(folder: Path) -> tuple[Violation, ...]:
    """Those of all processes, by step; raises RecordError for a file that is damaged."""
    found = []
    for path in sorted(folder.glob("replica_*.jsonl")):
        for row in read_lines(path):
            try:
                found.append(
                    Violation(int(row["step"]), str(row["invariant"]), str(row["text"]), int(row["replica"]))
                )
            except (KeyError, TypeError, ValueError):
                raise RecordError(f"{path}: a line is no breach; the file is damaged or foreign") from None
    return tuple(sorted(found, key=lambda violation: (violation.step, violation.replica)))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
