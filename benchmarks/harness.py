"""What a benchmark measured, and what is said of it: ratios round by round, medians, intervals, targets.

A row of the table measures some variants in turns. Its measurement is kept as a file, seconds by variant
and round, so that the table can be composed from runs of different days; what the table says is worked
out from the files.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from parity.common.base.errors import RecordError, RunError
from parity.common.execution.processes.child import last_line
from parity.common.record.files import read_json, write_json
from parity.common.scaling.statistics import DRAWS, widened

_SEED = 20_150_101
# A machine with more cores at work than this is not ours alone.
_IDLE = 0.2
# Variants that are packages of their own.
_OTHERS = ("lightning", "accelerate")


@dataclass(frozen=True)
class Target:
    """A figure that a ratio should reach."""

    limit: float
    at_most: bool = False
    # Whether the limit itself will not do.
    beyond: bool = False

    def reached(self, figure: float) -> bool:
        """Whether a figure is on the right side; NaN is not."""
        if self.at_most:
            return figure < self.limit or (figure == self.limit and not self.beyond)
        return figure > self.limit or (figure == self.limit and not self.beyond)

    def __str__(self) -> str:
        sign = {(False, False): "≥", (False, True): ">", (True, False): "≤", (True, True): "<"}
        return f"{sign[self.at_most, self.beyond]} {self.limit:g}"


@dataclass(frozen=True)
class Ratio:
    """The seconds of one variant over those of another, round by round.

    So the throughput of A over that of B is the seconds of B over those of A.
    """

    what: str
    above: str
    below: str
    target: Target | None = None


def speed(what: str, ours: str, other: str, target: Target | None = None) -> Ratio:
    """How many times as fast as `other` `ours` is."""
    return Ratio(what, above=other, below=ours, target=target)


def cost(what: str, dear: str, cheap: str, target: Target | None = None) -> Ratio:
    """How many times as long as `cheap` `dear` takes."""
    return Ratio(what, above=dear, below=cheap, target=target)


@dataclass(frozen=True)
class Row:
    """A measurement that the table shows as some lines.

    measure: takes the number of rounds and a file for a log; gives `seconds` (a step's, or a piece of
        work's) by variant, a number a round, and `versions`. What else it gives is kept.
    figures: what a measurement says besides its ratios.
    """

    name: str
    title: str
    measure: Callable[[int, Path], dict[str, Any]]
    ratios: tuple[Ratio, ...] = ()
    rounds: int = 11
    figures: Callable[[dict[str, Any]], list[Line]] | None = None


@dataclass(frozen=True)
class Line:
    """A line of the table, as texts; `reached` is None where there was no target."""

    what: str
    figure: str
    interval: str = ""
    quartiles: str = ""
    target: str = ""
    reached: bool | None = None
    certain: bool = True
    times: str = ""
    processor: str = ""


def line_of(ratio: Ratio, measured: Mapping[str, Any]) -> Line:
    """What a measurement says of a ratio."""
    above, below = (np.array(measured["seconds"][name], np.float64) for name in (ratio.above, ratio.below))
    ratios = above / below
    median, low, high = interval(ratios)
    target = ratio.target
    reached = None if target is None else target.reached(median)
    ends = (low, high)
    return Line(
        ratio.what,
        f"{median:.3f}",
        f"{low:.3f} - {high:.3f}" if len(ratios) > 1 else "",
        "{:.3f} - {:.3f}".format(*np.quantile(ratios, (0.25, 0.75))),
        "" if target is None else str(target),
        reached,
        target is None or all(target.reached(end) == reached for end in ends),
        f"{milliseconds(above)} / {milliseconds(below)}",
        _of_processor(ratio, measured.get("cpu_seconds", {})),
    )


def _of_processor(ratio: Ratio, seconds: Mapping[str, Sequence[float]]) -> str:
    """The same ratio of the processor's time, which others on the machine change less."""
    if ratio.above not in seconds or ratio.below not in seconds:
        return ""
    return f"{np.median(np.divide(seconds[ratio.above], seconds[ratio.below])):.3f}"


def interval(ratios: np.ndarray) -> tuple[float, float, float]:
    """The median of the rounds' ratios and its 95 % bootstrap interval."""
    middle = float(np.median(ratios))
    if len(ratios) < 2:
        return middle, math.nan, math.nan
    drawn = np.random.default_rng(_SEED).integers(0, len(ratios), (DRAWS, len(ratios)))
    found = widened(middle, np.median(ratios[drawn], axis=1), len(ratios))
    return middle, found.low, found.high


def milliseconds(seconds: Sequence[float] | np.ndarray) -> str:
    """A median in three digits."""
    value = 1000 * float(np.median(seconds))
    return f"{value:.0f}" if value >= 100 else f"{value:#.3g}"


def lines_of(row: Row, measured: Mapping[str, Any]) -> list[Line]:
    """What the table says of a row's measurement."""
    lines = [line_of(ratio, measured) for ratio in row.ratios]
    return lines + ([] if row.figures is None else row.figures(dict(measured)))


# Measuring, and keeping what was measured.


def measure(row: Row, rounds: int | None, folder: Path) -> None:
    """Measure a row and keep it in `folder`; RunError where it cannot be."""
    log = folder / "logs" / f"{row.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    others, begun = busy_cores(), time.monotonic()
    try:
        measured = row.measure(rounds or row.rounds, log)
    except (OSError, ValueError, KeyError) as error:
        # One row's trouble is not the others'.
        raise RunError(f"{row.name}: {type(error).__name__}: {error}") from error
    facts = {
        "name": row.name,
        "date": datetime.now(timezone.utc).date().isoformat(),
        "machine": machine(),
        "rounds": rounds or row.rounds,
        "took_seconds": round(time.monotonic() - begun, 1),
        "cores_busy_before": others,
        **measured,
    }
    write_json(folder / f"{row.name}.json", facts)


def kept(row: Row, folder: Path) -> dict[str, Any] | None:
    """The row's measurement in a folder, None where there is none; RecordError where it does not serve."""
    path = folder / f"{row.name}.json"
    if not path.exists():
        return None
    facts: dict[str, Any] = read_json(path)
    try:
        lengths = {len(facts["seconds"][name]) for ratio in row.ratios for name in (ratio.above, ratio.below)}
        if facts["name"] != row.name or lengths - {facts["rounds"]}:
            raise ValueError("another row's, or cut short")
    except (ValueError, KeyError, TypeError) as error:
        what = f"variant {error} is missing" if isinstance(error, KeyError) else str(error)
        raise RecordError(f"{path}: no measurement of {row.name}: {what}; measure it again") from None
    return facts


def loops(module: str, *arguments: str, seconds_allowed: int = 900) -> Callable[[int, Path], dict[str, Any]]:
    """A measurement by one of the modules of loops, which take turns in one session.

    They print one line of JSON with the seconds of blocks of `block_steps` steps by variant.
    """

    def run(rounds: int, log: Path) -> dict[str, Any]:
        command = [sys.executable, "-m", module, *arguments, "--rounds", str(rounds)]
        found = json.loads(output_of(command, log, seconds_allowed))
        steps = found["block_steps"]
        blocks = {name: [second / steps for second in blocks] for name, blocks in found["seconds"].items()}
        others = {name: importlib.metadata.version(name) for name in _OTHERS if name in blocks}
        versions = {**found["versions"], **others}
        return {**found, "seconds": blocks, "versions": versions, "command": " ".join(command[1:])}

    return run


def output_of(command: Sequence[str], log: Path, seconds_allowed: float) -> str:
    """The last line that a command prints; RunError with its last words where it fails."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    environment["PYTHONPATH"] = str(Path(__file__).resolve().parents[1])
    with open(log, "wb") as errors:
        try:
            done = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=errors, env=environment, timeout=seconds_allowed
            )
        except subprocess.TimeoutExpired:
            raise RunError(f"it took more than {seconds_allowed} s (log: {log})") from None
    lines = done.stdout.decode().strip().splitlines()
    if done.returncode or not lines:
        raise RunError(f"it ended with code {done.returncode}: {last_line(log)} (log: {log})")
    return lines[-1]


def busy_cores(seconds: float = 1.0) -> float:
    """How many cores the machine has at work now, before we begin; 0 where it cannot be known."""

    def times() -> tuple[float, float]:
        """(all, idle) ticks of all cores so far: proc(5), /proc/stat."""
        ticks = [float(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return sum(ticks), ticks[3] + ticks[4]

    try:
        before = times()
        time.sleep(seconds)
        after = times()
    except (OSError, ValueError, IndexError):
        return 0.0
    total, idle = (end - begin for begin, end in zip(before, after, strict=True))
    return round((os.cpu_count() or 1) * (1 - idle / total), 2) if total else 0.0


def machine() -> str:
    """The processor, the cores that we may use, and Python."""
    model = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        names = [line for line in information.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    return f"{model}, {len(os.sched_getaffinity(0))} cores, Linux {platform.release()}, Python {platform.python_version()}"


# The table.


@dataclass
class Page:
    """The table as text, the rows that it lacks, why where they were measured, and the targets missed."""

    text: str
    missing: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    unreached: list[str] = field(default_factory=list)


_HEADER = (
    "| what | figure | 95 % interval | quartiles | target | reached | ms | processor |",
    "| --- | --- | --- | --- | --- | --- | --- | --- |",
)


def compose(rows: Sequence[Row], folder: Path) -> Page:
    """The whole table, from the measurements in a folder."""
    page = Page("")
    facts: dict[str, set[str]] = {"machine": set(), "date": set()}
    versions: dict[str, set[str]] = {}
    parts: list[str] = []
    for row in rows:
        try:
            measured = kept(row, folder)
        except RecordError as error:
            measured = None
            page.damaged.append(str(error))
        if measured is None:
            page.missing.append(row.name)
            continue
        for name, values in facts.items():
            values.add(measured[name])
        for package, version in measured["versions"].items():
            versions.setdefault(package, set()).add(version)
        lines = lines_of(row, measured)
        page.unreached += [f"{row.name}: {line.what}" for line in lines if line.reached is False]
        busy = measured.get("cores_busy_before", 0.0)
        about = f"`{row.name}`, {measured['rounds']} rounds, {measured['date']}"
        about += f"; {busy:.1f} cores were busy with other things" if busy > _IDLE else ""
        parts.append("\n".join((f"### {row.title}", "", about, "", *_HEADER, *map(_cells, lines))))
    head = [
        f"Machine: {'; '.join(sorted(facts['machine']))}.",
        f"Versions: {', '.join(f'{name} ' + ' and '.join(sorted(found)) for name, found in sorted(versions.items()))}.",
        f"Measured: {', '.join(sorted(facts['date']))}.",
    ]
    if page.missing:
        head.append(f"Not measured: {', '.join(page.missing)}.")
    page.text = "\n\n".join(["\n".join(head), *parts]) + "\n" if parts else "Nothing was measured yet.\n"
    return page


def _cells(line: Line) -> str:
    reached = {None: "", True: "yes", False: "no"}[line.reached]
    if not line.certain:
        reached += ", not certain"
    cells = (
        line.what,
        line.figure,
        line.interval,
        line.quartiles,
        line.target,
        reached,
        line.times,
        line.processor,
    )
    return f"| {' | '.join(cell or ' ' for cell in cells)} |"


BEGIN = "<!-- begin: python -m benchmarks writes what follows -->"
END = "<!-- end -->"


def write_page(path: Path, text: str) -> None:
    """Put the table between the page's two marks; what people wrote around them stays."""
    page = path.read_text() if path.exists() else f"# Benchmarks\n\n{BEGIN}\n{END}\n"
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise RecordError(
            f"{path}: has no line {(END if begin else BEGIN)!r}, so there is no place for the table"
        )
    path.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}")
