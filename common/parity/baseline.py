"""Regressions between versions: the same runs before and after, by their numbers, speed and memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from parity.common.base.errors import NotComparableError, ParityError, RecordError
from parity.common.execution.session import MINIMUM_MEMBERS
from parity.common.parity.budget import CURVES, ensemble_budget, proof_budget
from parity.common.parity.compare import compare
from parity.common.record import RunRecord, read_record
from parity.common.scaling.analyse import Key, key_of, memory_of
from parity.common.scaling.result import Interval
from parity.common.scaling.statistics import FEWEST_ROUNDS, Rounds, timing_of, widened

THRESHOLD = 0.05
# Fields of a placement that change nothing about the steps that are timed.
_UNTIMED = {"stop_at_step", "phase_repeats", "timeout_seconds"}

Numbers = Literal["bit-equal", "within budget", "different", "inconclusive", "not compared"]
Speed = Literal["faster", "slower", "no change seen", "too noisy to conclude", "not compared"]


@dataclass(frozen=True)
class Change:
    """One configuration, before and after.

    numbers, why: of the curves and states, with the reason in a sentence. speed, ratio, rounds: new
    over old samples per second, and how many rounds the poorer side has. Slower or faster: the interval
    leaves out 1; too noisy: it holds both 1 and a slow-down beyond the threshold, or there are fewer than
    3 rounds. resolution: the smallest
    change that could have been told, as a share; NaN where speeds were not compared. advice: what
    was decided about the speed, or why nothing was. memory: new over old bytes a replica, by what is
    held. regression: what has become worse, in words; empty where nothing has.
    """

    label: str
    global_batch: int
    numbers: Numbers
    why: str
    speed: Speed
    ratio: Interval | None
    rounds: int
    resolution: float
    advice: str
    memory: dict[str, float]
    regression: tuple[str, ...]


@dataclass(frozen=True)
class BaselineResult:
    """Everything that changed between two folders.

    versions: (name, old, new) of what differs; only_old, only_new: configurations without a partner.
    """

    old: str
    new: str
    threshold: float
    versions: tuple[tuple[str, str, str], ...]
    changes: tuple[Change, ...]
    only_old: tuple[str, ...]
    only_new: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """1 on a regression, 3 where something could not be decided, else 0."""
        if any(change.regression for change in self.changes):
            return 1
        undecided = {"inconclusive", "not compared", "too noisy to conclude"}
        return 3 if any({c.numbers, c.speed} & undecided for c in self.changes) else 0


@dataclass(frozen=True)
class _Side:
    """The runs of one configuration on one side: for numbers, as a noise floor, and for speed."""

    record: RunRecord
    floor: list[RunRecord]
    timed: list[RunRecord]


def compare_baseline(old: Path, new: Path, threshold: float = THRESHOLD) -> BaselineResult:
    """Compare two folders: each a record, or a session of `parity run` or `parity scale`.

    Args:
        threshold: the share by which a configuration may become slower.

    Raises:
        RecordError: a folder is neither, or a file in it is damaged.
        NotComparableError: the folders have no configuration in common, or are one.
    """
    if old.resolve() == new.resolve():
        raise NotComparableError(f"{new}: compared with itself; name two different folders")
    before, after = _read(old), _read(new)
    common = [key for key in before if key in after]
    if not common:
        names = (", ".join(label for label, _ in sides) for sides in (before, after))
        raise NotComparableError(f"{old} and {new} have no placement in common: {' and '.join(names)}")
    return BaselineResult(
        str(old),
        str(new),
        threshold,
        _versions([before[key].record for key in common], [after[key].record for key in common]),
        tuple(_change(before[key], after[key], threshold) for key in common),
        tuple(key[0] for key in before if key not in after),
        tuple(key[0] for key in after if key not in before),
    )


def _read(folder: Path) -> dict[Key, _Side]:
    if (folder / "header.json").is_file():
        record = read_record(folder)
        return {key_of(record): _Side(record, [], [record])}
    rounds = _records(folder, "timing/round_*/*/header.json") or _records(folder, "round_*/*/header.json")
    runs = _records(folder, "runs/*/header.json") or rounds
    floors = _records(folder, "floor/*/header.json")
    if not runs:
        raise RecordError(
            f"{folder}: neither a record nor a session that 'parity run' or 'parity scale' wrote"
        )
    sides: dict[Key, _Side] = {}
    for record in runs:
        key = key_of(record)
        # Of a scaling session every round has the same numbers, so that the first one does.
        if key not in sides:
            floor = [member for member in floors if member.placement.label == record.placement.label]
            sides[key] = _Side(record, floor, [timed for timed in rounds if key_of(timed) == key])
    return sides


def _records(folder: Path, pattern: str) -> list[RunRecord]:
    return [read_record(path.parent) for path in sorted(folder.glob(pattern))]


def _versions(old: Sequence[RunRecord], new: Sequence[RunRecord]) -> tuple[tuple[str, str, str], ...]:
    found: dict[tuple[str, str, str], None] = {}
    for before, after in zip(old, new, strict=True):
        a = before.header.versions | {"git revision": before.header.git_revision or "not known"}
        b = after.header.versions | {"git revision": after.header.git_revision or "not known"}
        for name in [*a, *(name for name in b if name not in a)]:
            if a.get(name) != b.get(name):
                found[name, a.get(name, "none"), b.get(name, "none")] = None
    return tuple(found)


def _change(old: _Side, new: _Side, threshold: float) -> Change:
    numbers, why = _numbers(old, new)
    speed, ratio, resolution, advice = _speed(old.timed, new.timed, threshold)
    before, after = (memory_of(side.timed or [side.record]) for side in (old, new))
    regression = [f"numbers: {why}"] if numbers == "different" else []
    if speed == "slower" and ratio is not None and ratio.median < 1 - threshold:
        regression.append(f"speed: {1 - ratio.median:.1%} slower, more than {threshold:.1%}")
    label, batch = old.record.label, old.record.spec.global_batch_size
    held = {name: after[name] / size for name, size in before.items() if name in after and size}
    decided = (speed, ratio, min(len(old.timed), len(new.timed)), resolution, advice)
    return Change(label, batch, numbers, why, *decided, held, tuple(regression))


def _numbers(old: _Side, new: _Side) -> tuple[Numbers, str]:
    """Whether both trained alike: to the last bit, within a budget, or not."""
    before, after = old.record, new.record
    try:
        if _bit_equal(before, after):
            return "bit-equal", f"all curves of {len(before.steps)} steps and the final state"
        if before.spec.precision == "float64":
            budget = proof_budget(before)
        elif len(old.floor) >= MINIMUM_MEMBERS:
            budget = ensemble_budget(before, old.floor)
        else:
            needs = "needs a noise floor, which only a session of 'parity run' has; or use float64"
            return "inconclusive", f"not bit-equal, and {before.spec.precision} {needs}"
        found = compare(before, after, budget)
    except ParityError as error:
        return "not compared", str(error)
    named: dict[str, Numbers] = {"parity": "within budget", "divergent": "different"}
    return named.get(found.verdict, "inconclusive"), found.reason


def _bit_equal(old: RunRecord, new: RunRecord) -> bool:
    """Whether curves and final states are equal bit for bit; what was not recorded is not equal."""
    complete = old.summary is not None and new.summary is not None
    recorded = old.run_options.recording == new.run_options.recording == "full"
    if not (complete and recorded) or old.header.spec_hash != new.header.spec_hash:
        return False
    columns = ("step", "count", "learning_rate", *CURVES)
    if not all(np.array_equal(old.columns[n], new.columns[n], equal_nan=True) for n in columns):
        return False
    ours, theirs = old.state("final"), new.state("final")
    return ours.keys() == theirs.keys() and all(
        value.dtype == theirs[name].dtype and np.array_equal(value, theirs[name], equal_nan=True)
        for name, value in ours.items()
    )


def _speed(
    old: Sequence[RunRecord], new: Sequence[RunRecord], threshold: float
) -> tuple[Speed, Interval | None, float, str]:
    """(verdict, new over old, the smallest change that could be told, in a sentence)."""
    timings = [[timing_of(record) for record in side] for side in (old, new)]
    why_not = "" if old and new else "one side has no timing rounds"
    for other in (*new[:1], *old[1:], *new[1:]) if old else ():
        why_not = why_not or _other_conditions(old[0], other)
    if not why_not and not all(len(timing.rates) for side in timings for timing in side):
        why_not = "a run has too few steps to be timed"
    if why_not:
        return "not compared", None, math.nan, why_not
    before, after = (
        Rounds.of([{name: timing} for timing in side]) for name, side in zip("on", timings, strict=True)
    )
    # The rounds were not run side by side: drifts of the machine are not in the interval, and the threshold must
    # leave room for them.
    median = float(np.median(after.medians["n"]) / np.median(before.medians["o"]))
    draws = np.median(after.draws["n"], axis=-1) / np.median(before.draws["o"], axis=-1)
    ratio = widened(median, draws, min(before.count, after.count))
    resolution = max(1 - ratio.low, ratio.high - 1)
    rounds = min(len(old), len(new))
    if rounds < FEWEST_ROUNDS:
        advice = f"{rounds} of at least {FEWEST_ROUNDS} rounds: how far runs differ is not known"
        return "too noisy to conclude", ratio, math.nan, advice
    if ratio.high < 1:
        return "slower", ratio, resolution, f"{1 - ratio.median:.1%} slower"
    if ratio.low > 1:
        return "faster", ratio, resolution, f"{ratio.median - 1:.1%} faster"
    if ratio.low < 1 - threshold:
        advice = f"could only tell {resolution:.1%}; take more rounds, with nothing beside them"
        return "too noisy to conclude", ratio, resolution, advice
    return "no change seen", ratio, resolution, f"could tell {resolution:.1%}"


def _other_conditions(old: RunRecord, new: RunRecord) -> str:
    """Why two runs' speeds must not be compared; empty where they may be."""
    a, b = old.header, new.header
    places = [
        {name: value for name, value in header.placement.to_dict().items() if name not in _UNTIMED}
        for header in (a, b)
    ]
    for what, pair in {
        "hosts": (a.host, b.host),
        "devices": (", ".join(a.devices), ", ".join(b.devices)),
        "threads": (a.threads, b.threads),
        "specs": (a.spec_hash, b.spec_hash),
        "placements": tuple(places),
    }.items():
        if pair[0] != pair[1]:
            ours, theirs = (_differing(*pair), _differing(*reversed(pair)))
            return f"other {what}, so speeds do not compare: {ours} and {theirs}"
    return ""


def _differing(value: object, other: object) -> str:
    """What of a value is not in the other."""
    if not isinstance(value, dict) or not isinstance(other, dict):
        return str(value)
    parts = [f"{name} {item}" for name, item in value.items() if other.get(name) != item]
    return ", ".join(parts) or "none"
