"""`parity map`: the mapping of two models by itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from parity.common.commands.inputs import rows_of
from parity.common.spec.external.mapping import LayerPair, read_mapping
from parity_tests.helpers.commands import Cli

MODELS = "parity_tests.external_models.pair_"
IMAGES = ["--input-shape", "8,8,3"]


def both(keras: str, torch: str) -> list[str]:
    return [f"--keras={MODELS}keras:{keras}", f"--torch={MODELS}torch:{torch}"]


def test_a_file_that_is_there_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mapping.yaml").write_text("keras: mine\n")
    said = Cli(tmp_path, capsys).refused("map", *both("cnn", "CNN"), *IMAGES)
    assert "mapping.yaml is there already" in said


def test_inputs_are_chosen_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("rows.npz", image=np.zeros((9, 2)), age=np.zeros(9))
    assert list(rows_of(Path("rows.npz"), 4, ["image"])) == ["image"]
    assert sorted(rows_of(Path("rows.npz"), 4)) == ["age", "image"]
    said = Cli(tmp_path, capsys).refused("map", *both("a", "B"), "--data", "rows.npz", "--inputs", "picture")
    assert "has no array 'picture'; it has image, age" in said


@pytest.mark.exhaustive
def test_the_exit_code_tells_whether_all_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command, out = Cli(tmp_path, capsys), tmp_path / "found.yaml"
    code, said, _ = command("map", *both("cnn", "CNN"), *IMAGES, "--out", out)
    assert (code, "0 doubtful" in said) == (0, True), said
    found = read_mapping(out)
    assert not found.doubtful and not found.unmapped.torch
    # Layers without tensors too, for the taps of recorders.
    assert LayerPair(keras="pool", torch="pool") in found.layers

    edited = out.read_text().replace("conv1.weight", "conv9.weight")
    (tmp_path / "edited.yaml").write_text(edited)
    said = command.refused(
        "map",
        *both("cnn", "CNN"),
        *IMAGES,
        "--mapping",
        tmp_path / "edited.yaml",
        "--out",
        out,
        "--overwrite",
    )
    assert "no tensor 'conv9.weight'" in said and read_mapping(out) == found

    code, said, _ = command("map", *both("cnn", "OtherActivation"), *IMAGES, "--out", tmp_path / "other.yaml")
    assert code == 3 and read_mapping(tmp_path / "other.yaml").doubtful, said
    half = tmp_path / "half.yaml"
    code, _, said = command("map", *both("tanh_mlp", "Mixed"), "--input-shape", "6", "--out", half)
    assert (
        code == 2 and "no counterpart is known of the trained" in said and read_mapping(half).unmapped.torch
    )
    whole = tmp_path / "whole.yaml"
    code, said, _ = command("map", *both("tanh_mlp", "MixedOnes"), "--input-shape", "6", "--out", whole)
    (pair,) = (pair for pair in read_mapping(whole).tensors if not pair.keras)
    assert (code, pair.torch, pair.rule) == (0, ("mixture",), "constant(1; 7)"), said
