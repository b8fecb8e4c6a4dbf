"""The figures of a study's finished seeds, read from its records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from parity.common.base.errors import ParityError, RecordError
from parity.common.base.files import numbered_folders
from parity.common.record import RunRecord, read_record
from parity.common.record.files import read_json, write_json
from parity.common.study.equivalence import Numbers
from parity.common.study.metrics import METRICS, curve_of, figure_of
from parity.common.study.question import StudySpec

FAILED = "failed.json"
ELAPSED = "elapsed.json"


@dataclass(frozen=True)
class Failure:
    """A run that ended in an error: what its last line said."""

    seed: int
    label: str
    text: str


@dataclass(frozen=True)
class Collected:
    """The records of the seeds that all arms have trained, from the first on without a gap.

    records: by arm, then by seed; None for a run that counts as the worst. seconds: of each seed, all arms together.
    """

    question: StudySpec
    records: tuple[tuple[RunRecord | None, ...], ...]
    failures: tuple[Failure, ...]
    seconds: tuple[float, ...]

    @property
    def count(self) -> int:
        """Seeds; where runs are no pairs, those of the arm that has most."""
        return (min if self.question.paired else max)(map(len, self.records))

    @property
    def steps(self) -> int:
        """Steps of a run of the reference."""
        return next((len(record.steps) for record in self.records[0] if record is not None), 0)

    @property
    def versions(self) -> dict[str, str]:
        """Of the packages that trained."""
        first = [next((each for each in arm if each is not None), None) for arm in self.records]
        return {
            name: version
            for record in first
            if record is not None
            for name, version in record.header.versions.items()
        }

    def values(self, arm: int, name: str) -> Numbers:
        """Return a figure of an arm, float64 (seeds,); of the curve float64 (seeds, points)."""
        if name == "curve":
            return self.curves(arm)
        target = self.question.target_loss
        return np.array(
            [
                METRICS[name].worst if each is None else figure_of(each, name, target)
                for each in self.records[arm]
            ]
        )

    def curves(self, arm: int) -> Numbers:
        """Return the curves of an arm, float64 (seeds, points), NaN where a run counts as the worst."""
        found = [None if each is None else curve_of(each) for each in self.records[arm]]
        points = {len(curve) for curve in found if curve is not None}
        if len(points) != 1:
            return np.empty((len(found), 0))
        empty = np.full(points.pop(), np.nan)
        return np.array([empty if curve is None else curve for curve in found])


def is_trained(folder: Path) -> bool:
    """Whether a run's record is complete."""
    return (folder / "summary.json").is_file()


def collect(question: StudySpec, out: Path) -> Collected:
    """Return what a study's folder has of its seeds.

    Raises:
        RecordError: a record is damaged, or of another spec than the study's.
    """
    if question.spec is None:
        return _recorded(question)
    records: list[list[RunRecord | None]] = [[] for _ in question.arms]
    failures, seconds = [], []
    for seed in range(question.first_seed, question.first_seed + question.looks[-1]):
        row: list[RunRecord | None] = []
        took = 0.0
        for number, arm in enumerate(question.arms):
            folder = question.folder_of(out, seed, number)
            failed = _failure(folder.parent / f"{folder.name}.{FAILED}")
            if is_trained(folder):
                record = read_record(folder)
                expected = arm.spec_of(question.spec, seed).content_hash()
                if record.header.spec_hash != expected:
                    raise RecordError(f"{folder}: of another spec than the study's seed {seed}")
                row.append(record)
                took += float(_number(folder / ELAPSED))
            elif failed is not None:
                failures.append(Failure(seed, arm.label, failed))
                if question.failed == "worst":
                    row.append(None)
        if len(row) < len(question.arms):
            break
        for each, column in zip(row, records, strict=True):
            column.append(each)
        seconds.append(took)
    return Collected(question, tuple(map(tuple, records)), tuple(failures), tuple(seconds))


def _failure(path: Path) -> str | None:
    if not path.is_file():
        return None
    data = read_json(path)
    return str(data.get("error")) if isinstance(data, dict) else "its error was not kept"


def _number(path: Path) -> float:
    try:
        data = read_json(path)
    except ParityError:
        return float("nan")
    return float(data["seconds"]) if isinstance(data, dict) and "seconds" in data else float("nan")


def write_failure(folder: Path, error: ParityError) -> None:
    """Note that a run ended in an error."""
    write_json(folder.parent / f"{folder.name}.{FAILED}", {"error": str(error)})


def _recorded(question: StudySpec) -> Collected:
    """Records of scripts: those of each folder, paired as the question says."""
    folders = [numbered_folders(Path(name)) for name in question.records]
    arms = [
        [read_record(folder) for folder in each if (folder / "header.json").is_file()] for each in folders
    ]
    unfinished = next((record for records in arms for record in records if record.summary is None), None)
    if unfinished is not None:
        raise RecordError(
            f"{unfinished.folder}: the run did not finish; take it out of the folder, or run it again"
        )
    if question.pairing == "seed":
        arms = _by_seed(question.records, arms)
    elif question.pairing == "order" and len({len(records) for records in arms}) > 1:
        counts = ", ".join(
            f"{len(records)} in {name}" for name, records in zip(question.records, arms, strict=True)
        )
        raise RecordError(f"pairs in order need as many records in each folder, there are {counts}")
    return Collected(question, tuple(map(tuple, arms)), (), ())


def _by_seed(names: Sequence[str], arms: list[list[RunRecord]]) -> list[list[RunRecord]]:
    """The records of the seeds that all folders have, in the order of the seeds."""
    found: list[dict[Any, RunRecord]] = []
    for name, records in zip(names, arms, strict=True):
        seeds = [seed_of(record) for record in records]
        if None in seeds or len(set(seeds)) < len(seeds):
            raise RecordError(
                f"{name}: its records do not each have a seed of their own (settings={{'seed': 7}} of a recorder); say"
                " --pairing order or --pairing none"
            )
        found.append(dict(zip(seeds, records, strict=True)))
    common = sorted(set.intersection(*map(set, found)))
    lone = sorted(set.union(*map(set, found)) - set(common))
    if lone:
        raise RecordError(
            f"seed {lone[0]} is not in all of {', '.join(names)}; take its records out, or record it"
        )
    return [[records[seed] for seed in common] for records in found]


def seed_of(record: RunRecord) -> int | None:
    """The seed that a record has, of a spec or among a script's settings; None where it has none."""
    if record.train_spec is not None:
        return record.train_spec.seed
    seed = getattr(record.run_info, "settings", {}).get("seed")
    return seed if isinstance(seed, int) and not isinstance(seed, bool) else None


def count_of_records(folders: Sequence[str], pairing: str) -> int:
    """Return how many seeds some folders of records have; raises RecordError where one has none."""
    counts = []
    for name in folders:
        found = [folder for folder in numbered_folders(Path(name)) if (folder / "header.json").is_file()]
        if not found:
            raise RecordError(f"{name}: holds no records; give a folder with one record for each seed")
        counts.append(len(found))
    return (max if pairing == "none" else min)(counts)
