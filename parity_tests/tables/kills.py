"""What came of the runs that were killed, as the Markdown page docs/kills.md.

From the lines that `python -m parity_tests.kills` has printed: python -m parity_tests.tables.kills FILE... > docs/kills.md
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parity.common.spec.strategies import Framework

# Together 200; what the test runs, and by which seed.
COUNTS: dict[Framework, int] = {"torch": 100, "tensorflow": 100}
SEED = 9

_HEAD = """# Killed at any instant, and resumed

Written by `scripts/test -m "" parity_tests/test_kills.py --kills=docs/kills.md`; do not edit.

Runs of `digits_mlp` with Adam in float32, 100 steps, that keep a checkpoint every 1, 3 or 10 of them. Each is killed
with SIGKILL, one in seven twice: a rank drawn at random, the process that started the ranks, or all of them; at a
moment drawn over the whole run from its first import on, once a drawn number of steps is recorded, or as soon as a
checkpoint is seen being written. A kill that comes when the run is through has killed nothing: the run is made anew,
and killed earlier. It then goes on as `--resume auto` does, until it is through. *Right* is a run
whose joined record holds every step once, whose losses, norms, rates, evaluation and final state are, bit for bit,
those of the same run that was never stopped and never saved, and that has left no process and no half-written file.
"""


@dataclass
class KillTable:
    """Outcomes of kill points, as the plain data that is printed of each."""

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
        right = sum(not each["problems"] for each in self.outcomes)
        kills = [
            (hit, planned)
            for each in self.outcomes
            for hit, planned in zip(each["hit"], each["kills"], strict=True)
        ]
        writing = sum("writing a checkpoint" in hit for hit, _ in kills)
        early = sum("after 0 steps" in hit for hit, _ in kills)
        late = sum(each["late"] for each in self.outcomes)
        nothing = sum(hit.startswith("nothing") for hit, _ in kills)
        lines = [
            _HEAD,
            f"{_cores()} cores, no GPU; seed {SEED}.",
            "",
            f"**{right} of {len(self.outcomes)} kill points right.** They hold {len(kills)} kills: {writing} while a"
            f" checkpoint was being written, {early} before the first step was recorded. {late} more came too"
            f" late, when the run was through, and were drawn anew; {nothing} stayed too late.",
            "",
            "| placement | kill points | right | a rank | the parent | all | too late |",
            "| --- | --- | --- | --- | --- | --- | --- |",
        ]
        for placement in sorted({each["placement"] for each in self.outcomes}):
            own = [each for each in self.outcomes if each["placement"] == placement]
            struck = Counter(hit.split()[0] for each in own for hit in each["hit"])
            counts = [struck[name] for name in ("rank", "parent", "all", "nothing,")]
            good = sum(not each["problems"] for each in own)
            lines.append(f"| {placement} | {len(own)} | {good} | {' | '.join(map(str, counts))} |")
        lines += ["", "| # | placement | saves | killed | went on at step | right |", "| --- " * 6 + "|"]
        for each in self.outcomes:
            at = ", ".join(map(str, each["resumed_at"])) or "-"
            verdict = "yes" if not each["problems"] else f"**no: {'; '.join(each['problems'])}**"
            killed = "; ".join(each["hit"])
            lines.append(
                f"| {each['number']} | {each['placement']} | {each['saving']} | {killed} | {at} | {verdict} |"
            )
        return "\n".join(lines) + "\n"


def _cores() -> int:
    return len(os.sched_getaffinity(0))


if __name__ == "__main__":
    table = KillTable()
    for name in sys.argv[1:]:
        table.add(Path(name).read_text(encoding="utf-8").splitlines())
    print(table.page(), end="")
