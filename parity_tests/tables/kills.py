"""What came of the runs that were killed, as the Markdown page docs/evidence/kills.md.

From the lines that `python -m parity_tests.kills` has printed: python -m parity_tests.tables.kills FILE... > docs/evidence/kills.md
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from parity.common.spec.strategies import Framework

# Between the placements of a chain.
ARROW = " -> "
# Together 200, and so many chains; what the test runs, and by which seed.
COUNTS: dict[Framework, int] = {"torch": 100, "tensorflow": 100}
CHAINS = 100
SEED = 9

_HEAD = """# Killed at any instant, and resumed

Written by `scripts/test -m "" parity_tests/test_kills.py --kills=docs/evidence/kills.md`; do not edit.

Runs of `digits_mlp` with Adam in float32, 100 steps, that keep a checkpoint every 1, 3 or 10 of them. Each is killed
with SIGKILL, one in seven twice: a rank drawn at random, the process that started the ranks, or all of them; at a
moment drawn over the whole run from its first import on, once a drawn number of steps is recorded, or as soon as a
checkpoint is seen being written. A kill that comes when the run is through has killed nothing: the run is made anew,
and killed earlier. It then goes on as `--resume auto` does, until it is through. *Right* is a run
whose joined record holds every step once, whose losses, norms, rates, evaluation and final state are, bit for bit,
those of the same run that was never stopped and never saved, and that has left no process and no half-written file.
"""


_CHAINS = """
## Ranks killed in the middle of a step, and runs that go on elsewhere

`python -m parity_tests.chains` draws chains of two to four placements, of either framework and of every strategy that
trains float64. `digits_mlp` with Adam in float64, 300 steps, goes through them; on each but the last one rank is killed with
SIGKILL within a step that is drawn at random, and the next goes on as `--resume auto` does. *Right*: the run ended in time and
named the rank, no process and no half-written file is left, and the joined record holds each step once and is parity with
a run on one replica of PyTorch that was never stopped.
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
        """The page: runs that went on where they were, then chains over placements."""
        return (
            "\n".join(
                [
                    _HEAD,
                    f"{date.today()}, {_cores()} cores, no GPU; seed {SEED}.",
                    *self._kills(),
                    *self._chains(),
                ]
            )
            + "\n"
        )

    def _chains(self) -> list[str]:
        chains = [each for each in self.outcomes if ARROW in each["placement"]]
        if not chains:
            return []
        right = sum(not each["problems"] for each in chains)
        hits = [hit for each in chains for hit in each["hit"]]
        struck = Counter(hit.partition(" of ")[2].partition(" after")[0] for hit in hits)
        seconds = [float(found[1]) for hit in hits if (found := re.search(r"ended in ([\d.]+) s", hit))]
        lines = [
            _CHAINS,
            f"{date.today()}, {_cores()} cores. **{right} of {len(chains)} chains right.** They hold {len(hits)} kills of a rank, and none of the process that"
            f" started it. The run ended {_seconds(seconds)} after it.",
            "",
            "| placement | killed there |",
            "| --- | --- |",
            *(f"| {name} | {count} |" for name, count in sorted(struck.items())),
            "",
            "| # | placements | saves | killed | went on at step | right |",
            "| --- " * 6 + "|",
        ]
        return lines + [_row(each) for each in chains]

    def _kills(self) -> list[str]:
        outcomes = [each for each in self.outcomes if ARROW not in each["placement"]]
        right = sum(not each["problems"] for each in outcomes)
        kills = [
            (hit, planned)
            for each in outcomes
            for hit, planned in zip(each["hit"], each["kills"], strict=True)
        ]
        writing = sum("writing a checkpoint" in hit for hit, _ in kills)
        early = sum("after 0 steps" in hit for hit, _ in kills)
        late = sum(each["late"] for each in outcomes)
        nothing = sum(hit.startswith("nothing") for hit, _ in kills)
        lines = [
            "",
            f"**{right} of {len(outcomes)} kill points right.** They hold {len(kills)} kills: {writing} while a"
            f" checkpoint was being written, {early} before the first step was recorded. {late} more came too"
            f" late, when the run was through, and were drawn anew; {nothing} stayed too late.",
            "",
            "| placement | kill points | right | a rank | the parent | all | too late |",
            "| --- | --- | --- | --- | --- | --- | --- |",
        ]
        for placement in sorted({each["placement"] for each in outcomes}):
            own = [each for each in outcomes if each["placement"] == placement]
            struck = Counter(hit.split()[0] for each in own for hit in each["hit"])
            counts = [struck[name] for name in ("rank", "parent", "all", "nothing,")]
            good = sum(not each["problems"] for each in own)
            lines.append(f"| {placement} | {len(own)} | {good} | {' | '.join(map(str, counts))} |")
        lines += ["", "| # | placement | saves | killed | went on at step | right |", "| --- " * 6 + "|"]
        return lines + [_row(each) for each in outcomes]


def _row(each: dict[str, Any]) -> str:
    at = ", ".join(map(str, each["resumed_at"])) or "-"
    verdict = "yes" if not each["problems"] else f"**no: {'; '.join(each['problems'])}**"
    killed = "; ".join(each["hit"])
    return f"| {each['number']} | {each['placement']} | {each['saving']} | {killed} | {at} | {verdict} |"


def _seconds(values: list[float]) -> str:
    if not values:
        return "at no time"
    ordered = sorted(values)
    return f"{ordered[len(ordered) // 2]:.1f} s (median) to {ordered[-1]:.1f} s (longest)"


def _cores() -> int:
    return len(os.sched_getaffinity(0))


if __name__ == "__main__":
    table = KillTable()
    for name in sys.argv[1:]:
        table.add(Path(name).read_text(encoding="utf-8").splitlines())
    print(table.page(), end="")
