"""Start the ranks of a framework, watch them, and put together what they wrote."""

from __future__ import annotations

import functools
import json
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parity.common.base.errors import RunError
from parity.common.base.package import MODULES
from parity.common.execution.interpreters import require
from parity.common.execution.progress import bars, lines_in
from parity.common.execution.ranks import run_ranks
from parity.common.planning.collectives.bench import Plan
from parity.common.planning.collectives.operations import OPERATIONS, bandwidths
from parity.common.spec.strategies import Framework


@dataclass(frozen=True)
class Row:
    """One operation at one size. Times are of the slowest rank; bandwidths in bytes a second.

    wrong: numbers of all ranks' results that are not NumPy's; for a barrier, how often a rank left before
        the last had come.
    """

    framework: Framework
    operation: str
    how: str
    bytes: int
    elements: int
    wrong: int
    median_seconds: float
    fastest_seconds: float
    slowest_seconds: float
    algorithm_bandwidth: float
    bus_bandwidth: float


def collect(framework: Framework, plan: Plan, folder: Path, entry: str | None = None) -> list[Row]:
    """Run a plan in processes of its own and return a row for each case.

    Args:
        framework: torch has a process for each rank, TensorFlow one with all ranks.
        plan: what to run.
        folder: exists; takes the ranks' lines and logs.
        entry: "module:function" to start instead of the framework's own `collectives:measure`.

    Raises:
        ParityError: the framework is missing, or a rank failed, with its last line.
    """
    require(framework, sys.executable)
    processes = plan.ranks if framework == "torch" else 1
    function = entry or f"{MODULES[framework]}.collectives:measure"
    with bars({framework: functools.partial(lines_in, folder / "rank_0.jsonl")}, len(plan.cases)):
        # Nothing is preloaded: the fork server would then hold both frameworks.
        run_ranks(function, (plan, folder), processes, folder / "logs", [])
    return rows_of(framework, plan, folder)


def rows_of(framework: Framework, plan: Plan, folder: Path) -> list[Row]:
    """Return the rows of what the ranks wrote.

    Raises:
        RunError: lines of a rank are missing.
    """
    ranks = []
    for rank in range(plan.ranks):
        lines = (folder / f"rank_{rank}.jsonl").read_text().splitlines()
        ranks.append([json.loads(line) for line in lines])
        found = [(line["operation"], len(line["seconds"])) for line in ranks[-1]]
        if found != [(operation.name, plan.repeats) for operation, _ in plan.cases]:
            raise RunError(f"{framework}: rank {rank} did {len(lines)} of {len(plan.cases)} cases")
    return [_row(framework, lines) for lines in zip(*ranks, strict=True)]


def _row(framework: Framework, lines: tuple[dict[str, Any], ...]) -> Row:
    """One case from the lines of all ranks. A repeat is over when its slowest rank is done."""
    first = lines[0]
    seconds = [max(times) for times in zip(*(line["seconds"] for line in lines), strict=True)]
    median = statistics.median(seconds)
    wrong = sum(line["wrong"] for line in lines)
    for crossing in zip(*(line.get("crossings", []) for line in lines), strict=True):
        entered, left = zip(*crossing, strict=True)
        wrong += sum(leaving < max(entered) for leaving in left)
    name, how, size, elements = (first[fact] for fact in ("operation", "how", "bytes", "elements"))
    times, speeds = (
        (median, min(seconds), max(seconds)),
        bandwidths(OPERATIONS[name], size, median, len(lines)),
    )
    return Row(framework, name, how, size, elements, wrong, *times, *speeds)
