"""Whole runs of our own trainer in turns, each with a record: for placements that cannot share a process.

Every variant has a worker as large as its placement, since TensorFlow takes its threads from that; all stay
alive, and only one trains at a time. The first round warms up and is not kept.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parity.common.execution.worker import Worker
from parity.common.record import RunRecord, read_record
from parity.common.scaling.statistics import timing_of
from parity.common.spec import Placement, TrainSpec


@dataclass(frozen=True)
class Variant:
    """What one of the turns trains.

    apart: in so many processes at once, each on its own core, which share nothing: `spec` is each one's
        part of the work, and a step has been taken once all have.
    """

    spec: TrainSpec
    placement: str
    apart: int = 1

    def placed(self) -> Placement:
        return Placement.from_text(self.placement, pin=True, device="cpu")


def in_turns(make: Callable[[], Mapping[str, Variant]]) -> Callable[[int, Path], dict[str, Any]]:
    """A measurement of `harness.Row`: the median seconds of a step in each round, by variant."""

    def measure(rounds: int, log: Path) -> dict[str, Any]:
        del log  # a worker's log is kept where it fails, and its error says where
        variants = make()
        seconds: dict[str, list[float]] = {name: [] for name in variants}
        versions: dict[str, str] = {}
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="parity-benchmark-")))
            teams = _teams(stack, variants)
            for number in range(rounds + 1):
                order = list(variants)
                random.Random(number).shuffle(order)
                for name in order:
                    found, with_versions = _train(teams[name], variants[name], folder / "runs")
                    versions |= with_versions
                    if number:
                        seconds[name].append(found)
        shown = {name: variant.placement for name, variant in variants.items()}
        return {"seconds": seconds, "versions": versions, "placements": shown}

    return measure


def _teams(stack: ExitStack, variants: Mapping[str, Variant]) -> dict[str, list[Worker]]:
    """The workers of each variant; those that could be the same are."""
    made: dict[tuple[str, int, int], Worker] = {}
    teams: dict[str, list[Worker]] = {}
    for name, variant in variants.items():
        placement = variant.placed()
        teams[name] = []
        for place in range(variant.apart):
            core = place if variant.apart > 1 else -1
            key = (placement.framework, placement.replicas, core)
            if key not in made:
                log = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "log"
                with _only_core(core):
                    worker = Worker(placement.framework, placement.replicas, log)
                made[key] = stack.enter_context(worker)
            teams[name].append(made[key])
    return teams


@contextmanager
def _only_core(number: int) -> Iterator[None]:
    """Start what is started meanwhile on one of our cores; -1: on any."""
    allowed = os.sched_getaffinity(0)
    if number >= 0:
        os.sched_setaffinity(0, {sorted(allowed)[number % len(allowed)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def _train(team: list[Worker], variant: Variant, folder: Path) -> tuple[float, dict[str, str]]:
    """Seconds of a step of one turn, and the versions that took it; nothing stays on the disk."""
    folder.mkdir()
    try:
        with ThreadPoolExecutor(len(team)) as pool:
            runs = [
                pool.submit(worker.train, variant.spec, variant.placed(), folder / str(number))
                for number, worker in enumerate(team)
            ]
            records = [read_record(run.result()) for run in runs]
        return max(map(seconds_a_step, records)), records[0].header.versions
    finally:
        shutil.rmtree(folder)


def seconds_a_step(record: RunRecord) -> float:
    """Of a full global batch, whose samples or tokens are counted: the median after the warm-up."""
    return float(record.columns["count"].max()) / timing_of(record).median
