"""Diagnoses of runs of 1,000 steps as a user asks for them, beside training both runs once more.

Run: python -m benchmarks.diagnosis --rounds 3

Either is whole: from the command to the page, frameworks started and ended. The faults are the test suite's, each
planted in one side; a diagnosis that does not name its step and its place is no measurement. Prints one line of JSON:
`seconds` by case and variant.

CASE diagnosed   `parity diagnose A B --out FOLDER`.      CASE trained   both runs, one after the other.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from parity.common import recipes
from parity.common.base.errors import RunError
from parity.common.execution.worker import Worker
from parity.common.record import read_record
from parity.common.record.files import read_json
from parity.common.spec import Instrumentation, Placement, TrainSpec, override

STEPS = 1000
VARIANTS = ("diagnosed", "trained")


@dataclass(frozen=True)
class Case:
    """Two runs, in the second of which something is wrong.

    expected: (step, stage, cause) that the diagnosis must find.
    """

    title: str  # in the table
    recipe: str
    settings: tuple[str, ...]
    reference: str
    candidate: str
    inside: str
    expected: tuple[int, str, str | None]

    def spec(self) -> TrainSpec:
        return override(recipes.get(self.recipe), [f"steps={STEPS}", *self.settings]).resolved()


CASES = {
    "epsilon": Case(
        "digits_cnn, TensorFlow mirrored x2 and PyTorch DDP x2, Adam's epsilon of the other framework",
        "digits_cnn",
        ("optimizer={kind: adam, learning_rate: 0.001}",),
        "tensorflow:mirrored:2",
        "torch:ddp:2",
        "parity_tests.faults.torch:adam_epsilon_of_the_other_framework",
        (0, "update", "setting:epsilon"),
    ),
    "warm_up": Case(
        "digits_mlp, PyTorch and TensorFlow mirrored x2, warm-up off by one",
        "digits_mlp",
        (),
        "torch:single:1",
        "tensorflow:mirrored:2",
        "parity_tests.faults.tensorflow:warm_up_off_by_one",
        (0, "scalar", "schedule_shifted"),
    ),
    "late": Case(
        "digits_cnn, PyTorch and PyTorch, a moving mean moved at step 700, which no curve shows",
        "digits_cnn",
        (),
        "torch:single:1",
        "torch:single:1",
        "parity_tests.late_fault:a_moving_mean_moves_very_late",
        (700, "buffers", None),
    ),
}


def train(case: Case, folder: Path) -> tuple[Path, Path]:
    """Both runs of a case, the second under its fault, each in a framework process of its own."""
    made = []
    for side, text in (("a", case.reference), ("b", case.candidate)):
        placement = Placement.from_text(text, device="cpu")
        folder.mkdir(parents=True, exist_ok=True)
        with Worker(placement.framework, placement.replicas, folder / f"{side}.log") as worker:
            inside = case.inside if side == "b" else None
            made.append(
                worker.train(
                    case.spec(), placement, folder / side, instrumentation=Instrumentation(context=inside)
                )
            )
    return made[0], made[1]


def diagnose(case: Case, runs: tuple[Path, Path], folder: Path) -> None:
    """One diagnosis from the command line; RunError where it does not find what is wrong."""
    command = [sys.executable, "-m", "parity", "diagnose", *map(str, runs)]
    command += ["--inside-b", case.inside, "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode != 1:
        raise RunError(f"{case.title}: exit code {done.returncode}: {done.stderr.strip()[-300:]}")
    findings = read_json(folder / "diagnosis.json")["findings"]
    found = [(each["step"], each["stage"], (each["explanation"] or {}).get("cause")) for each in findings]
    if case.expected not in found:
        raise RunError(f"{case.title}: found {found}, expected {case.expected}")


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=list(CASES), help="one case [all]")
    given = parser.parse_args()
    cases = {name: case for name, case in CASES.items() if given.only in (None, name)}
    seconds: dict[str, list[float]] = {f"{name} {variant}": [] for name in cases for variant in VARIANTS}
    versions: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="parity-benchmark-") as made:
        scratch = Path(made)
        again, page = scratch / "again", scratch / "page"
        runs = {name: train(case, scratch / name) for name, case in cases.items()}
        for folders in runs.values():
            for folder in folders:
                versions |= read_record(folder).header.versions
        for number in range(given.rounds):
            for name, case in cases.items():
                for variant in VARIANTS[:: -1 if number % 2 else 1]:
                    begun = time.perf_counter()
                    if variant == "diagnosed":
                        diagnose(case, runs[name], page)
                    else:
                        train(case, again)
                    seconds[f"{name} {variant}"].append(time.perf_counter() - begun)
                for folder in (again, page):
                    shutil.rmtree(folder)
    print(json.dumps({"seconds": seconds, "versions": versions, "block_steps": 1}))


if __name__ == "__main__":
    main()
