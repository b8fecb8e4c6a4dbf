"""Records that version 0.1 wrote are read, compared, continued and diagnosed as those of today.

records_0_1.tar.xz was written by the commit da02070: digits_mlp with 2 hidden units, batches of 6, 3 steps.

    torch, tf                  ddp and mirrored on two replicas, with --digests and --taps
    faulty                     as torch, with the planted fault gradients_not_zeroed
    resumed                    torch for 2 steps, then TensorFlow from its checkpoint to step 4
    broken                     a learning rate of 1e300
    script, script_other_rate  the recorder with taps=True, in a loop with SGD at 0.25 and at 0.5
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from parity.common.base.errors import RecordError
from parity.common.record import read_record
from parity.common.record.invariants import FINITE
from parity_tests.helpers.records import received_ids

ARCHIVE = Path(__file__).with_name("records_0_1.tar.xz")


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records_0_1")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


def parity(*arguments: object, code: int, module: str = "parity") -> str:
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_the_records_are_of_the_old_form(records: Path) -> None:
    header = json.loads((records / "torch" / "header.json").read_text())
    assert {"digest", "data_digest"} < header.keys() and header["versions"]["parity"] == "0.1.0"
    assert "taps" in header["placement"]
    assert (records / "torch" / "splits").is_dir() and (records / "broken" / "breaches").is_dir()


@pytest.mark.parametrize("name", ["torch", "tf"])
def test_all_of_a_record_is_read(records: Path, name: str) -> None:
    record = read_record(records / name)
    assert record.steps.tolist() == [0, 1, 2] and np.isfinite(record.loss).all()
    assert [[len(ids) for ids in steps] for steps in received_ids(record)] == [[3, 3, 3], [3, 3, 3]]
    assert [len(steps) for steps in record.fingerprints] == [3, 3]
    assert record.taps is not None and record.taps.values.shape[:2] == (2, 3)
    assert all(record.state(which) for which in ("initial", "first_gradients", "final"))
    assert record.memory and record.violations == ()


def test_violations_are_read(records: Path) -> None:
    assert {violation.invariant for violation in read_record(records / "broken").violations} == {FINITE}


def test_a_run_that_went_on_is_read_as_one(records: Path) -> None:
    record = read_record(records / "resumed")
    assert record.label == "torch single x1, from step 2 tensorflow mirrored x1"
    assert record.steps.tolist() == [0, 1, 2, 3]


def test_records_are_compared(records: Path) -> None:
    said = parity("compare", records / "torch", records / "tf", "--checks", code=0)
    assert said.count("replicas equal") == 2 and "invariants" in said
    assert "loss curve at step 2" in parity("compare", records / "torch", records / "faulty", code=1)


def test_a_session_is_reported(records: Path, tmp_path: Path) -> None:
    for number, name in enumerate(("torch", "tf")):
        shutil.copytree(records / name, tmp_path / "runs" / f"0{number}_{name}")
    assert "✓ parity" in parity("report", tmp_path, code=0)


def test_steps_are_printed(records: Path) -> None:
    rows = parity("steps", records / "resumed", "--format=jsonl", code=0).splitlines()
    assert [json.loads(row)["step"] for row in rows] == [0, 1, 2, 3]


def test_recorded_scripts_are_diagnosed(records: Path, tmp_path: Path) -> None:
    pair = records / "script", records / "script_other_rate"
    said = parity("diagnose", *pair, "--out", tmp_path / "out", code=1)
    assert "learning rate    first at step 0 0.25 and 0.5" in said and "taps=True" not in said


@pytest.mark.slow
@pytest.mark.exhaustive
def test_runs_are_diagnosed(records: Path, tmp_path: Path) -> None:
    """The fault is not in the code of today, so the replays agree."""
    pair = records / "torch", records / "faulty"
    said = parity("diagnose", *pair, "--out", tmp_path / "out", code=1)
    assert "✓ updated parameters" in said and (tmp_path / "out" / "diagnosis.html").is_file()


def test_a_run_goes_on_from_a_checkpoint(records: Path, tmp_path: Path) -> None:
    start = f"--resume={records / 'resumed' / 'checkpoints' / 'step_00000002'}"
    parity(start, f"--out={tmp_path / 'out'}", module="parity.torch_impl", code=0)
    whole, again = read_record(records / "resumed"), read_record(tmp_path / "out")
    assert np.allclose(again.loss[-2:], whole.loss[-2:], rtol=1e-12, atol=0)


def test_a_record_without_its_old_folders_is_refused(records: Path, tmp_path: Path) -> None:
    """A control: the old names are what is read."""
    for name in ("splits", "digests"):
        shutil.copytree(records / "torch", tmp_path / name)
        (tmp_path / name / name).rename(tmp_path / name / "elsewhere")
    with pytest.raises(RecordError, match="sample_ids"):
        received_ids(read_record(tmp_path / "splits"))
    with pytest.raises(RecordError, match="fingerprints"):
        _ = read_record(tmp_path / "digests").fingerprints
