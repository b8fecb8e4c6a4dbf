"""`parity checkpoint list | verify | export`."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from parity.common.checkpoint import checkpoints_of
from parity.common.reference import StepScalars
from parity.common.spec import TrainSpec
from parity.common.state.canonical import initial_state, load_state
from parity_tests.helpers.commands import Cli
from parity_tests.helpers.records import DDP, one_line, tiny_spec, write_checkpoint


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    return Cli(tmp_path, capsys)


def save(run: Path, spec: TrainSpec, step: int, loss: float | None = None) -> Path:
    """A checkpoint of a run that has learned nothing yet."""
    folder = run / "checkpoints" / f"step_{step:08d}"
    state = initial_state(spec) | {"step": np.array(step, np.int64)}
    write_checkpoint(folder, spec, DDP, state, StepScalars(spec).kept(), loss)
    return folder


def flip(path: Path) -> None:
    """Another bit than was written."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with checkpoints before the steps 2 and 4."""
    folder = tmp_path / "run"
    for step, loss in ((2, 0.75), (4, None)):
        save(folder, tiny_spec(), step, loss)
    return folder


def test_list_names_each_checkpoint(cli: Cli, run: Path) -> None:
    code, out, err = cli("checkpoint", "list", run)
    assert (code, err) == (0, "")
    first, second = out.splitlines()[1:]
    for words, line in ((["step_00000002", "2", "6", "0.75", DDP.label, "whole"], first),
                        (["step_00000004", "4", "6", DDP.label, "whole"], second)):  # fmt: skip
        assert all(word in line for word in words)
        assert "KiB" in line or " B " in line


def test_list_says_which_is_damaged_and_why(cli: Cli, run: Path) -> None:
    flip(run / "checkpoints/step_00000004/state.safetensors")
    shutil.rmtree(run / "checkpoints/step_00000002")
    (run / "checkpoints/step_00000002").mkdir()
    code, out, _ = cli("checkpoint", "list", run)
    first, second = out.splitlines()[1:]
    assert code == 0
    assert "damaged: not a checkpoint (no manifest.json)" in first
    assert "damaged: state.safetensors: its SHA-256" in second and "whole" not in second


def test_a_run_without_checkpoints_is_refused(cli: Cli, tmp_path: Path) -> None:
    for action in ("list", "verify"):
        assert "holds no checkpoint" in cli.refused("checkpoint", action, tmp_path)
        assert "holds no checkpoint" in cli.refused("checkpoint", action, tmp_path / "nothing")


def test_verify_takes_a_run_or_a_checkpoint(cli: Cli, run: Path) -> None:
    code, out, _ = cli("checkpoint", "verify", run)
    assert code == 0 and [line.split()[0] for line in out.splitlines()] == ["whole", "whole"]
    code, out, _ = cli("checkpoint", "verify", checkpoints_of(run)[0])
    assert code == 0 and "step 2 of 6, 1 file," in one_line(out)


def test_verify_fails_where_one_is_damaged(cli: Cli, run: Path) -> None:
    flip(run / "checkpoints/step_00000002/state.safetensors")
    code, out, err = cli("checkpoint", "verify", run)
    assert code == 2 and [line.split()[0] for line in out.splitlines()] == ["damaged", "whole"]
    assert "1 of 2 checkpoints are damaged" in one_line(err) and "SHA-256" in err
    assert "SHA-256" in cli.refused("checkpoint", "verify", checkpoints_of(run)[0])


def test_export_refuses_before_it_starts_a_framework(cli: Cli, run: Path, tmp_path: Path) -> None:
    there = tmp_path / "there.pt"
    there.write_bytes(b"mine")
    ask = ("checkpoint", "export", run, "--to")
    assert "ends in .pt or .pth" in cli.refused(*ask, "state_dict", "--out", "a.keras")
    assert "ends in .keras" in cli.refused(*ask, "keras", "--out", "a.h5")
    assert "already there" in cli.refused(*ask, "state_dict", "--out", there)
    half = there.with_name("another.pt.partial")
    half.write_text("of somebody else")
    assert f"{half}: already there" in cli.refused(*ask, "state_dict", "--out", half.with_suffix(""))
    assert half.read_text() == "of somebody else"
    assert "its folder is not there" in cli.refused(*ask, "state_dict", "--out", "no/a.pt")
    assert "no such folder" in cli.refused(
        "checkpoint", "export", "none", "--to", "state_dict", "--out", "a.pt"
    )
    assert there.read_bytes() == b"mine"


def test_export_writes_torchs_layouts_and_names(cli: Cli, run: Path) -> None:
    code, out, err = cli("checkpoint", "export", run, "--to", "safetensors", "--out", "a.safetensors")
    assert (code, err) == (0, "")
    assert "step 4 from" in one_line(out) and "4 tensors, 35 numbers" in out
    state = load_state(checkpoints_of(run)[-1] / "state.safetensors")
    found = load_file("a.safetensors")
    assert set(found) == {"dense_1.weight", "dense_1.bias", "dense_2.weight", "dense_2.bias"}
    for name, tensor in found.items():
        path, _, kind = name.partition(".")
        native = state[f"parameters/{path}/{'kernel' if kind == 'weight' else 'bias'}"].T
        np.testing.assert_array_equal(tensor, native)
    with safe_open("a.safetensors", framework="np") as file:
        assert file.metadata() == {"format": "pt"}


def test_export_takes_the_latest_whole_one_and_says_so(cli: Cli, run: Path) -> None:
    flip(run / "checkpoints/step_00000004/state.safetensors")
    code, out, _ = cli("checkpoint", "export", run, "--to", "safetensors", "--out", "a.safetensors")
    passed, wrote = out.splitlines()
    assert code == 0 and passed.startswith("passed over: ") and "SHA-256" in passed
    assert "step 2 from" in wrote
    flip(run / "checkpoints/step_00000002/state.safetensors")
    error = cli.refused("checkpoint", "export", run, "--to", "safetensors", "--out", "b.safetensors")
    assert "none of its 2 checkpoints is whole" in error


@pytest.mark.slow
def test_export_to_keras_ends_in_a_file_or_in_a_line(cli: Cli, run: Path, tmp_path: Path) -> None:
    code, out, err = cli("checkpoint", "export", run, "--to", "keras", "--out", "a.keras")
    assert (code, err) == (0, "") and "loaded again, outputs within" in one_line(out)
    assert (tmp_path / "a.keras").stat().st_size > 1000
    rotary = tiny_spec(
        "model.input_shape=[3, 4]",
        "model.layers=[{kind: self_attention, heads: 1, rotary: half}, {kind: flatten}, {kind: dense, units: 3}]",
    )
    save(tmp_path / "other", rotary, 2)
    error = cli.refused("checkpoint", "export", "other", "--to", "keras", "--out", "b.keras")
    assert "layer self_attention (self_attention): Keras has no stock layer" in error
