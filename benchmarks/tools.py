"""Scale of our own tools: comparing long records, planning many samples, the size of records of many replicas.

Run: python -m benchmarks.tools [--steps N] [--folder DIR]

The records are synthetic: their numbers are made up. Their files are those that `RecordWriter` writes, byte
for byte (parity_tests/test_record_samples.py holds it), computed many steps at once, since a writer that
flushes a million steps one by one takes a minute.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from parity.common import reference
from parity.common.data.plan import BatchPlan
from parity.common.record import RecordWriter, mixing
from parity.common.record.samples import BLOCK_FIELDS, BLOCK_STEPS, whole_steps
from parity.common.spec import Placement, TrainSpec
from parity.common.state.canonical import initial_state, save_state

STEPS = 1_000_000
REPLICAS = 1024
SAMPLES = 100_000_000
ROUNDS = 5
# Where the loss of one step is so many times what it would be; a plot of it must show them.
SPIKES = {0.3: 50.0, 0.7: 0.01}
FACTS: dict[str, Any] = {
    "versions": {"numpy": np.__version__},
    "devices": ["none: a synthetic record"],
    "threads": {"intra_op": 1, "inter_op": 1, "cores": len(os.sched_getaffinity(0))},
}
SPEC: dict[str, Any] = {
    "name": "long",
    "precision": "float64",
    "model": {"input_shape": [4], "layers": [{"kind": "dense", "units": 3}]},
    "data": {"train_samples": 60_000, "eval_samples": 0},
    "optimizer": {"kind": "sgd", "learning_rate": 0.1},
    "global_batch_size": 32,
}


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    value: str
    wanted: str

    def __str__(self) -> str:
        return f"| {self.what} | {self.value} | {self.wanted} |"


def long_spec(steps: int) -> TrainSpec:
    """A small model, trained for so many steps of 32 samples."""
    return TrainSpec.parse({**SPEC, "steps": steps}).resolved()


def numbers_of(spec: TrainSpec, plan: BatchPlan, noise: float) -> np.ndarray:
    """[step, column] as steps.f64 has them: a loss that falls, with spikes; all off by `noise` relatively."""
    steps = np.arange(spec.steps)
    counts = plan.batch_sizes(steps).astype(float)
    random = np.random.default_rng(0)
    table = np.empty((spec.steps, 9))
    table[:, 0], table[:, 2] = steps, counts
    table[:, 1] = counts * (0.1 + np.exp(-steps / (spec.steps / 8)) + 0.05 * random.random(spec.steps))
    table[:, 3] = reference.learning_rate(spec, 0)
    table[:, 4:7] = 1 + 0.1 * random.random((spec.steps, 3))
    table[:, 7], table[:, 8] = 1.0, 1e-3
    for place, factor in SPIKES.items():
        table[int(place * spec.steps), 1] *= factor
    other = np.random.default_rng(1).standard_normal(spec.steps)
    table[:, [1, 4, 5, 6]] *= 1 + noise * other[:, None]
    return table


def write_long(
    folder: Path, spec: TrainSpec, placement: Placement, noise: float = 0.0, like: Path | None = None
) -> None:
    """Write a complete record of a run that did as planned, its replicas in one process.

    `like` is a record of the same plan, to take the samples' files from.
    """
    folder.mkdir(parents=True)
    plan = BatchPlan.of(spec, placement)
    table = numbers_of(spec, plan, noise)
    writer = RecordWriter(folder, spec, placement, range(placement.replicas), FACTS)
    for rank in range(placement.processes):
        writer.of_rank("memory", rank, dict.fromkeys(("parameters", "slots", "live", "peak_resident"), 10**9))
    writer.close()
    table.astype("<f8").tofile(folder / "steps.f64")
    if like is None:
        _write_samples(folder / "sample_ids" / "replica_0", plan, spec.steps)
    else:
        shutil.copytree(like / "sample_ids", folder / "sample_ids", dirs_exist_ok=True)
    begun = initial_state(spec)
    final = {name: value if name == "step" else value + 0.5 for name, value in begun.items()}
    gradients = {name: value + 0.25 for name, value in begun.items() if name.startswith("parameters/")}
    save_state(folder / "initial.safetensors", begun)
    save_state(folder / "first_gradients.safetensors", gradients)
    save_state(folder / "final.safetensors", {**final, "step": np.array(spec.steps)})
    (folder / "summary.json").write_text(json.dumps({"steps": spec.steps, "wall_seconds": 1.0}))


def _write_samples(path: Path, plan: BatchPlan, steps: int) -> None:
    whole = min(steps, whole_steps(plan))
    ids, sizes = plan.shares(0, whole)
    heads = np.column_stack(
        [np.repeat(np.arange(whole), plan.replicas), np.tile(np.arange(plan.replicas), whole), sizes.ravel()]
    )
    starts = np.repeat(np.cumsum(sizes) - sizes.ravel(), 3)
    np.insert(ids, starts, heads.ravel()).astype("<i8").tofile(path.with_suffix(".ids"))
    if whole == steps:
        return
    with open(path.with_suffix(".hashes"), "xb") as file:
        for first, stop in _blocks(whole, steps):
            file.write(_block(plan, first, stop).tobytes())


def _blocks(first: int, stop: int) -> Iterator[tuple[int, int]]:
    while first < stop:
        end = min(stop, (first // BLOCK_STEPS + 1) * BLOCK_STEPS)
        yield first, end
        first = end


def _block(plan: BatchPlan, first: int, stop: int) -> np.ndarray:
    """The rows of a block, [replica, field]; the steps of large batches a few at a time."""
    rows = np.zeros((plan.replicas, len(BLOCK_FIELDS)), "<u8")
    rows[:, 0], rows[:, 1], rows[:, 2] = np.arange(plan.replicas), first, stop - first
    at_once = max(1, (1 << 17) // plan.global_batch_size)
    for start in range(first, stop, at_once):
        end = min(stop, start + at_once)
        ids, sizes = plan.shares(start, end)
        both = mixing.id_hashes(np.arange(start, end), np.arange(plan.replicas), ids, sizes)
        parts = (sizes, sizes == 0, *both)
        rows[:, 3:] += np.stack([part.astype(np.uint64).sum(axis=0) for part in parts], axis=1)
    return rows


def compare_as_a_process(folder: Path, steps: int, rounds: int = 1) -> list[tuple[float, int]]:
    """(seconds, peak bytes) of `parity compare` on two records of `steps` steps, report included."""
    spec = long_spec(steps)
    ddp = Placement(framework="torch", strategy="ddp", replicas=2)
    mirrored = Placement(framework="tensorflow", strategy="mirrored", replicas=2)
    write_long(folder / "a", spec, ddp)
    write_long(folder / "b", spec, mirrored, noise=1e-15, like=folder / "a")
    command = [
        sys.executable,
        "-m",
        "parity",
        "compare",
        folder / "a",
        folder / "b",
        "--out",
        folder / "report",
    ]
    return [_timed([str(part) for part in command]) for _ in range(rounds)]


# A process's peak is at least what the one that starts it holds at that moment; so a small one starts it.
_TIME = """
import json, os, subprocess, sys, time
begun = time.perf_counter()
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
said = child.stdout.read()
_, status, usage = os.wait4(child.pid, 0)
seconds = time.perf_counter() - begun
child.returncode = os.waitstatus_to_exitcode(status)
print(json.dumps([child.returncode, seconds, usage.ru_maxrss * 1024, said]))
"""


def _timed(command: list[str]) -> tuple[float, int]:
    starter = [sys.executable, "-I", "-c", _TIME, *command]
    done = subprocess.run(starter, stdout=subprocess.PIPE, text=True, check=True)
    code, seconds, peak, said = json.loads(done.stdout)
    if code:
        raise RuntimeError(f"{' '.join(command)} ended with {code}: {said}")
    return seconds, peak


def planned(samples: int, replicas: int, per_replica: int) -> tuple[float, int, int]:
    """(sample ids a second, resident bytes after a tenth of the epoch, at its end) of a whole epoch's plan.

    Every replica's share of every step is taken, as in a run of them all.
    """
    plan = BatchPlan(samples, replicas * per_replica, replicas)
    taken, early, begun = 0, 0, time.perf_counter()
    for step in range(plan.steps_per_epoch):
        ids = plan.global_ids(step)
        taken += sum(len(plan.share(ids, replica)) for replica in range(replicas))
        if step == plan.steps_per_epoch // 10:
            early = _resident()
    rate = taken / (time.perf_counter() - begun)
    if taken != samples:
        raise RuntimeError(f"the plan gave {taken} of {samples} samples")
    return rate, early, _resident()


def _resident() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def bytes_a_step(folder: Path, steps: int, replicas: int = REPLICAS, per_replica: int = 32) -> float:
    """Bytes of all files of a record, by `RecordWriter`, over its steps."""
    spec = long_spec(steps).model_copy(update={"global_batch_size": replicas * per_replica})
    data = spec.data.model_copy(update={"train_samples": 1_000_000})
    write_long(
        folder,
        spec.model_copy(update={"data": data}),
        Placement(framework="torch", strategy="ddp", replicas=replicas),
    )
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / steps


def rows(steps: int = STEPS, samples: int = SAMPLES, rounds: int = ROUNDS) -> list[Row]:
    """Measure everything; some minutes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        times, peaks = zip(*compare_as_a_process(folder / "long", steps, rounds), strict=True)
        size = bytes_a_step(folder / "wide", 1000)
    rate, early, late = planned(samples, REPLICAS, 32)
    return [
        Row(
            f"`parity compare` of two records of {steps:,} steps, HTML report included",
            f"{statistics.median(times):.2f} s (median of {rounds}, {min(times):.2f} to {max(times):.2f})",
            "under 2 s",
        ),
        Row("its peak memory", f"{max(peaks) / 1e6:.0f} MB", "under 500 MB"),
        Row(
            f"batch plan of {samples:,} shuffled samples over {REPLICAS:,} replicas",
            f"{rate / 1e6:.1f} million sample ids/s",
            "at least 1 million",
        ),
        Row(
            "resident memory after a tenth of that epoch, and at its end",
            f"{early / 1e6:.0f} MB, {late / 1e6:.0f} MB",
            "constant",
        ),
        Row(
            f"record of 1,000 steps of {REPLICAS:,} replicas, all files",
            f"{size:.0f} bytes a step",
            "under 1 KB",
        ),
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    table = rows(options.steps, options.samples, options.rounds)
    print(f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}\n")
    print("| what | measured | wanted |\n| --- | --- | --- |")
    print("\n".join(map(str, table)))


if __name__ == "__main__":
    main()
