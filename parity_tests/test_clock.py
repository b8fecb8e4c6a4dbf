"""The time of day jumps while ranks train: PyTorch trains on, and TensorFlow's workers say what has parted them.

Every process of a run reads its clock through `bodies/clock.c`. The kernel's own clock is left alone, so a wait that has
begun is not ended by a jump.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from parity.common.base.package import MODULES
from parity.common.execution.flags import flags_of
from parity.common.execution.processes.child import command
from parity.common.parity.budget import proof_budget
from parity.common.parity.compare import compare
from parity.common.record import read_record
from parity.common.spec import RunConfig, TrainSpec
from parity.common.spec.io import dump_yaml
from parity_tests.chains import recorded
from parity_tests.helpers import ROOT
from parity_tests.helpers.matrix import small, torch
from parity_tests.helpers.processes import wait_until
from parity_tests.helpers.records import one_line
from parity_tests.helpers.run_cache import RunCache

pytestmark = [
    pytest.mark.slow,
    pytest.mark.waits,
    pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc"),
]
HOUR = 3600
Train = Callable[..., tuple[int, str]]


@pytest.fixture
def train(tmp_path: Path) -> Train:
    """Trains a spec; once so many steps are recorded, the clock is so many seconds off. Returns exit code and error."""
    library, clock, written = tmp_path / "clock.so", tmp_path / "clock", tmp_path / "spec.yaml"
    source = Path(__file__).parent / "bodies" / "clock.c"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)

    def run(spec: TrainSpec, text: str, out: Path, jumps: dict[int, int]) -> tuple[int, str]:
        written.write_text(dump_yaml(spec))
        placement, options, _ = RunConfig.from_text(text).parts
        clock.write_bytes(struct.pack("q", 0))
        moved = {**os.environ, "LD_PRELOAD": str(library), "PARITY_TEST_CLOCK": str(clock)}
        flags = [f"--spec={written}", f"--out={out}", *flags_of(placement, options)]
        process = subprocess.Popen(
            command(MODULES[placement.framework], *flags),
            cwd=ROOT,
            env=moved,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for steps, seconds in jumps.items():
            wait_until(
                "it did not train", lambda steps=steps: process.poll() is not None or recorded(out) >= steps
            )
            with open(clock, "r+b") as file:
                file.write(struct.pack("q", seconds))
        said = process.communicate(timeout=300)[1]
        return process.returncode, said

    return run


def test_ranks_of_torch_train_on(run_cache: RunCache, train: Train, tmp_path: Path) -> None:
    spec = small("digits_mlp", "steps=800")
    text = "torch:ddp:2,timeout_seconds=20,save={every_steps: 200}"
    code, said = train(spec, text, tmp_path / "run", {100: HOUR, 300: -HOUR, 500: 0, 700: 24 * HOUR})
    assert code == 0, said
    straight, record = run_cache.record(spec, torch("single", 1)), read_record(tmp_path / "run")
    comparison = compare(straight, record, proof_budget(straight))
    assert comparison.verdict == "parity", comparison.reason
    assert 0 < record.columns["seconds"].max() < HOUR


@pytest.mark.parametrize("jump", [HOUR, pytest.param(-HOUR, marks=pytest.mark.exhaustive)])
def test_workers_of_tensorflow_say_what_parts_them(train: Train, tmp_path: Path, jump: int) -> None:
    """Its coordination service counts the time between heartbeats by the time of day.

    Whichever rank hears of it first: one that gets no answer, or one that is told who has fallen silent.
    """
    text = "tf:multi_worker:2,timeout_seconds=20,save={every_steps: 100}"
    code, said = train(small("digits_mlp", "steps=1000000"), text, tmp_path / "run", {300: jump})
    why = f"heartbeats, which TensorFlow counts by the time of day; that has jumped by {jump:+d} s)"
    assert code == 2 and why in one_line(said), said
    assert list((tmp_path / "run" / "checkpoints").glob("step_*"))
