"""Comparisons in float32 in which nothing is wrong: of specs, placements and kernels drawn by a seeded generator.

    python -m parity_tests.clean_float32 draw runs.jsonl --seed 1 --count 24
    python -m parity_tests.clean_float32 resolve runs.jsonl --seed 1 --count 6
    python -m parity_tests.clean_float32 write runs.jsonl docs/evidence/float32.md

`draw` trains each of `count` specs on eight placements, under each set of kernels, as `parity run` does, with its noise floor
and, where that does not explain a difference, with the same runs in float64. Then it compares every two of the eight, as
a person may who takes another one as the reference. Nothing is wrong in any of them: *divergent* is a false alarm.

`resolve` asks how small a defect may be that is still seen: of DDP, whose gradients are all 1 + e times what is due.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

from parity.common.base.errors import SpecError
from parity.common.base.files import numbered_folders
from parity.common.base.terminal import Terminal
from parity.common.execution import session
from parity.common.execution.worker import Workers
from parity.common.parity.budget import Allowance
from parity.common.parity.compare import Comparison, compare
from parity.common.parity.result import Result, trained
from parity.common.parity.sample_ids import audit
from parity.common.record import RunRecord, read_record
from parity.common.spec import Placement, RunConfig, TrainSpec
from parity_tests.clean_runs import OPTIMIZERS, SCHEDULES, SMALL
from parity_tests.faults.registry import spec_of
from parity_tests.helpers.hooks import in_ranks
from parity_tests.tables import float32

PLACEMENTS = (
    *("torch:single:1", "torch:ddp:2", "torch:fsdp2:2", "torch:manual:3"),
    *(f"tensorflow:mirrored:{replicas}" for replicas in (1, 2, 3, 4)),
)
# Every fourth spec is of one of these, which TensorFlow takes long to trace.
LARGER = ("digits_transformer", "gru_tagger:tiny", "lstm_classifier:tiny", "gpt2:tiny", "bert_base:tiny")
STEPS = 30
# What oneDNN, PyTorch's own kernels and MKL may use of the processor; without oneDNN TensorFlow takes Eigen's.
KERNELS = {
    "all": {},
    "AVX2": {
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    },
    "SSE": {
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "TF_ENABLE_ONEDNN_OPTS": "0",
    },
}


def drawn(seed: int, number: int) -> TrainSpec:
    """The spec of a number, from 0 on without end."""
    draw = random.Random(f"{seed}:{number}")
    while True:
        recipe = draw.choice(LARGER if number % 4 == 3 else SMALL)
        more = [*draw.choice(OPTIMIZERS), *draw.choice(SCHEDULES), "precision=float32", f"steps={STEPS}"]
        more += [f"convention={draw.choice(('keras', 'torch'))}", f"seed={draw.randrange(1000)}"]
        try:
            spec = spec_of(recipe, tuple(more)).resolved()
            session.check(spec, configs())
        except SpecError:
            continue  # what does not go together
        return spec


def configs() -> list[RunConfig]:
    """The eight placements."""
    return [RunConfig(placement=Placement.from_text(text)) for text in PLACEMENTS]


def compared(spec: TrainSpec, runs: Sequence[RunConfig], folder: Path, workers: Workers) -> list[Comparison]:
    """Every two of a spec's runs; they and their floor are left in the folder."""
    quiet, stages = Terminal(quiet=True), session.stages_of(spec, runs, folder, 0)
    whole = set(trained(stages, spec, runs, folder, quiet, True, workers).amplified)
    records = [read_record(path) for path in numbered_folders(folder / "runs")]
    found = _pairs(records, folder)
    # As `trained` does of the first run's pairs.
    asked = {place for pair, result in found.items() if result.amplified for place in pair} - whole
    if asked:
        exact = session.exact_of(spec, [runs[place] for place in sorted(asked)], folder)
        session.work([exact], folder, quiet, True, workers)
        found = _pairs(records, folder)
    return [result.comparisons[0] for result in found.values()]


def _pairs(records: Sequence[RunRecord], folder: Path) -> dict[tuple[int, int], Result]:
    floors = [read_record(path) for path in numbered_folders(folder / "floor")]
    allowed, audits = Allowance.of(records, floors), [audit(record) for record in records]
    found = {}
    for a, b in combinations(range(len(records)), 2):
        both, seen = (records[a], records[b]), (audits[a], audits[b])
        found[a, b] = Result(both, (compare(*both, allowed.between(both), seen),), seen, None)
    return found


def scaled(error: float) -> Any:
    """A rank inside it makes gradients that are all 1 + error times what is due, and a right loss."""
    from parity_tests.faults.torch_ground import scaled_gradient  # loads torch, which the ranks alone need

    return scaled_gradient(lambda *_: 1 + error)


off_1, off_2, off_3, off_4, off_5, off_6 = (
    partial(in_ranks, "parity_tests.clean_float32:scaled", 10.0**-power) for power in range(1, 7)
)


def resolve(out: Path, seed: int, count: int) -> None:
    """Append a line of JSON for each spec: the smallest power of ten that is divergent, and all larger ones with it."""
    with tempfile.TemporaryDirectory() as name, Workers(Path(name) / "logs") as workers:
        for number in range(count):
            spec, seen = drawn(seed, number), 0
            while seen < 6:
                context = f"parity_tests.clean_float32:off_{seen + 1}"
                single, ddp = (config.placement for config in configs()[:2])
                runs = [RunConfig(placement=single), RunConfig(placement=ddp).having(context=context)]
                folder = Path(name) / f"{number}_{seen}"
                stages, quiet = session.stages_of(spec, runs, folder, 0), Terminal(quiet=True)
                found = trained(stages, spec, runs, folder, quiet, True, workers)
                if found.verdict != "divergent":
                    break
                seen += 1
            line = {"seed": seed, "number": number, "resolved": _described(spec), "power": seen}
            _append(out, line)


def _described(spec: TrainSpec) -> str:
    return f"{spec.name}, {spec.optimizer.kind}, {spec.convention}, seed {spec.seed}"


def _append(out: Path, line: dict[str, Any]) -> None:
    with out.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(line) + "\n")
    print(json.dumps(line), flush=True)


def draw(out: Path, seed: int, count: int, kernels: str) -> None:
    """Append a line of JSON for each spec, under one set of kernels, which this process must have been started with."""
    with tempfile.TemporaryDirectory() as name, Workers(Path(name) / "logs") as workers:
        for number in range(count):
            spec, began = drawn(seed, number), time.monotonic()
            folder = Path(name) / str(number)
            told = compared(spec, configs(), folder, workers)
            line = {
                "seed": seed,
                "number": number,
                "kernels": kernels,
                "versions": _versions(folder),
                "trained": _described(spec),
                "verdicts": Counter(one.verdict for one in told),
                "nearest": max(map(nearest, told)),
                "not parity": [
                    f"{one.reference} and {one.candidate}: {one.reason}"
                    for one in told
                    if one.verdict != "parity"
                ],
                "seconds": round(time.monotonic() - began, 1),
            }
            _append(out, line)
            shutil.rmtree(folder)


def _versions(folder: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in numbered_folders(folder / "runs"):
        found |= read_record(path).header.versions
    return found


def nearest(one: Comparison) -> float:
    """The largest part of its budget that a check used; from 1 on it failed."""
    return max((check.deviation / check.budget for check in one.checks if check.budget), default=0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("command", choices=("draw", "resolve", "write"))
    parser.add_argument("drawn", type=Path, help="a file with a line for each spec and set of kernels")
    parser.add_argument("page", type=Path, nargs="?")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=24, help="specs")
    parser.add_argument("--kernels", choices=KERNELS, help="one set alone, of which this process was started")
    options = parser.parse_args()
    if options.command == "write":
        lines = [json.loads(line) for line in options.drawn.read_text(encoding="utf-8").splitlines()]
        options.page.write_text(float32.page(lines), encoding="utf-8")
    elif options.command == "resolve":
        resolve(options.drawn, options.seed, options.count)
    elif options.kernels:
        draw(options.drawn, options.seed, options.count, options.kernels)
    else:
        for name, variables in KERNELS.items():
            subprocess.run(
                [sys.executable, "-m", "parity_tests.clean_float32", *sys.argv[1:], "--kernels", name],
                env={**os.environ, **variables},
                check=True,
            )


if __name__ == "__main__":
    main()
