"""What long trainings were seen to take, as the Markdown page docs/evidence/soak.md.

From the lines that `python -m parity_tests.soak` has printed: python -m parity_tests.tables.soak FILE... > docs/evidence/soak.md
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

_HEAD = """# Long trainings, and what they take

Written by `scripts/test -m "" parity_tests/test_soak.py --soak=docs/evidence/soak.md`, or, from the
lines of `python -m parity_tests.soak FOLDER --only torch:ddp:2` and others, by `python -m parity_tests.tables.soak FILE...`; do not edit.

A net of two layers (`digits_mlp`, float32) is trained on each placement by its command, with a checkpoint every 500 steps.
All its processes are looked at from outside some 300 times. A pair of figures is the least seen between 10 % and 30 % of
the steps, and between 80 % and 98 %: what leaks makes the least grow. *Flat*: threads and descriptors by no
more than two (after 16,384 steps a record holds hashes of sample ids in place of the ids, in a file of their own), memory of
the process's own by no more than 2 MiB and 32 bytes a step, a record that takes no more bytes for each step, and no
more checkpoints than are kept.
"""


@dataclass
class SoakTable:
    """Outcomes of long trainings, as the plain data that is printed of each."""

    outcomes: list[dict[str, Any]] = field(default_factory=list)

    def add(self, lines: Iterable[str]) -> list[dict[str, Any]]:
        """Take in what was printed, one JSON object a line; returns it."""
        found = [json.loads(line) for line in lines if line.startswith("{")]
        self.outcomes += found
        return found

    def write(self, path: Path) -> None:
        """Write the page; nothing, where there is nothing to say."""
        if self.outcomes:
            path.write_text(self.page(), encoding="utf-8")

    def page(self) -> str:
        flat = sum(not each["problems"] for each in self.outcomes)
        lines = [
            _HEAD,
            f"{date.today()}, {len(os.sched_getaffinity(0))} cores, no GPU.",
            "",
            f"**{flat} of {len(self.outcomes)} trainings flat.**",
            "",
            "| placement | steps | minutes | process | threads | descriptors | MiB of its own | record, bytes a step | flat |",
            "| --- | ---: | ---: | --- | --- | --- | --- | --- | --- |",
        ]
        for each in self.outcomes:
            first, last = each["record_bytes_a_step"]
            verdict = "yes" if not each["problems"] else f"**no: {'; '.join(each['problems'])}**"
            begun = [each["placement"], f"{each['steps']:,}", f"{each['seconds'] / 60:.0f}"]
            ended = [f"{first:.1f}, {last:.1f}", verdict]
            for name, (threads, descriptors, memory) in each["processes"].items():
                figures = [_pair(threads), _pair(descriptors), _pair([b / 2**20 for b in memory], ".1f")]
                lines.append(f"| {' | '.join([*begun, name, *figures, *ended])} |")
                begun, ended = [""] * 3, [""] * 2
            if not each["processes"]:
                lines.append(f"| {' | '.join([*begun, '', '', '', '', *ended])} |")
        return "\n".join(lines) + "\n"


def _pair(values: Iterable[float], form: str = "d") -> str:
    return ", ".join(f"{value:{form}}" for value in values)


if __name__ == "__main__":
    table = SoakTable()
    for name in sys.argv[1:]:
        table.add(Path(name).read_text(encoding="utf-8").splitlines())
    print(table.page(), end="")
