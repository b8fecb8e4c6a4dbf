"""TensorFlow in one environment, PyTorch in another, and the command in a third, which has neither."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from parity_tests.helpers import ROOT
from parity_tests.helpers.environments import TENSORFLOW, TORCH, environment_without
from parity_tests.helpers.records import one_line

KERAS = """
import sys
from keras import Sequential
from keras.layers import Dense, Input

def build():
    assert "torch_env" not in sys.prefix
    return Sequential([Input((6,)), Dense(8, "tanh"), Dense(3)])
"""
PYTORCH = """
import sys
from torch import nn

def build():
    assert "torch_env" in sys.prefix
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
"""


@pytest.fixture(scope="module")
def pythons(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("environments")
    return {
        "command": environment_without(folder / "command_env", *TENSORFLOW, *TORCH),
        "tensorflow": environment_without(folder / "tensorflow_env", *TORCH),
        "torch": environment_without(folder / "torch_env", *TENSORFLOW),
    }


def parity(
    pythons: dict[str, Path], cwd: Path, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    named = {"PARITY_TF_PYTHON": str(pythons["tensorflow"]), "PARITY_TORCH_PYTHON": str(pythons["torch"])}
    return subprocess.run(
        [pythons["command"], "-m", "parity", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), **named, **variables},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture
def models(tmp_path: Path) -> Path:
    (tmp_path / "keras_side.py").write_text(KERAS)
    (tmp_path / "torch_side.py").write_text(PYTORCH)
    draw = np.random.default_rng(0)
    np.savez(tmp_path / "my.npz", x=draw.normal(size=(64, 6)), y=draw.integers(0, 3, 64))
    return tmp_path


PAIR = (
    "pair",
    "--keras=keras_side:build",
    "--torch=torch_side:build",
    "--data=my.npz",
    "--optimizer=sgd,lr=0.1",
)


@pytest.mark.timeout(300)
def test_a_pair_is_proved(pythons: dict[str, Path], models: Path) -> None:
    done = parity(
        pythons, models, *PAIR, "--steps=5", "--placement=torch:ddp:2", "--placement=tensorflow:mirrored:2"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "✓ parity" in done.stdout and "torch ddp x2" in done.stdout


def test_doctor_says_by_which_python(pythons: dict[str, Path], tmp_path: Path) -> None:
    done = parity(pythons, tmp_path, "doctor")
    assert done.returncode == 0, done.stdout
    for framework in ("tensorflow", "torch"):
        line = next(line for line in done.stdout.splitlines() if line.startswith(f"✓ {framework}:"))
        assert line.endswith(f"; by {pythons[framework]}")


def test_what_is_missing_is_said(pythons: dict[str, Path], models: Path) -> None:
    wrong = str(pythons["tensorflow"])
    done = parity(pythons, models, *PAIR, PARITY_TORCH_PYTHON=wrong)
    said = one_line(done.stderr)
    assert (
        done.returncode == 2
        and f"PARITY_TORCH_PYTHON={wrong} lacks torch; run: {wrong} -m pip install torch" in said
    )
    done = parity(pythons, models, *PAIR, PARITY_TORCH_PYTHON="/no/such/python")
    assert done.returncode == 2 and "PARITY_TORCH_PYTHON=/no/such/python: No such file" in one_line(
        done.stderr
    )
    done = parity(pythons, models, *PAIR, PARITY_TF_PYTHON="/bin/false")
    assert done.returncode == 2 and "PARITY_TF_PYTHON=/bin/false: it is no Python that runs" in one_line(
        done.stderr
    )
    done = parity(pythons, models, *PAIR, PARITY_TF_PYTHON="", PARITY_TORCH_PYTHON="")
    assert done.returncode == 2 and "name in PARITY_TF_PYTHON the Python that has it" in one_line(done.stderr)
    assert {path.name for path in models.iterdir()} == {"keras_side.py", "my.npz", "torch_side.py"}
