"""Models of Keras 2 are built again in Keras 3, or run their own code: the same model, trained as Keras 2 would."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from parity_tests.helpers.commands import Cli
from parity_tests.helpers.records import one_line
from parity_tests.peers import Peer

MODELS, PORTS = "parity_tests.external_models.keras2_models", "parity_tests.external_models.keras2_ports"


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    np.savez("images.npz", x=draw.normal(size=(64, 8, 8, 1)), y=draw.integers(0, 5, 64))
    words, lengths = draw.integers(1, 12, (64, 7)), draw.integers(3, 8, 64)
    words[np.arange(7) >= lengths[:, None]] = 0
    np.savez("Reader.npz", x=words, y=draw.integers(0, 3, 64))
    np.savez("rows.npz", x=draw.normal(size=(64, 6)), y=draw.integers(0, 3, 64))
    return Cli(tmp_path, capsys)


def pair(name: str, port: str) -> list[str]:
    named = [f"--keras={MODELS}:{name}", f"--torch={PORTS}:{port}", f"--data={port.partition('?')[0]}.npz"]
    return ["pair", *named, "--optimizer=adam,lr=1e-3", "--steps=4", "--replicas=1", "--out=out"]


@pytest.mark.timeout(300)
def test_a_model_of_images_is_proved_with_its_batch_norm(cli: Cli) -> None:
    code, out, _ = cli(*pair("images", "images"))
    assert code == 0 and "✓ parity" in out
    assert f"note: {MODELS}:images is of Keras 2: it was built again in Keras 3" in out


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_of_rows_keras_2_keeps_the_biased_variance_too(cli: Cli) -> None:
    code, out, _ = cli(*pair("rows", "rows"))
    told = "note: stock batch norms (batch_normalization): for evaluation torch keeps a variance over N - 1"
    assert (code, told in out) == (0, True), out
    assert "Keras 2: it was built again" in out


@pytest.mark.timeout(300)
def test_code_of_its_own_runs_as_it_is_with_stock_layers_of_keras_3(cli: Cli) -> None:
    """Its variables, masks, modes and added losses, on two replicas; and where the port is wrong, the line."""
    named = pair("Reader", "Reader")[1:-2]
    rest = [f"--torch-step={PORTS}:step", "--loss=softmax_cross_entropy", "--replicas=2"]
    code, out, err = cli("pair", *named, *rest, "--out=right")
    assert code == 0 and "✓ parity" in out and "mapping: 16 pairs of tensors, 0 doubtful" in err, out
    assert "is of Keras 2: its own code runs as it is, its stock layers are those of Keras 3" in out
    named[1] = named[1].replace("Reader", "WrongReader")
    code, out, _ = cli("pair", *named, *rest, "--out=wrong")
    assert code == 1 and re.search(r"keras2_ports.py:\d+: .*confirmed", out), out


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("penalised", "is a layer of Keras 2 (tf_keras) whose weights have a regularizer"),
        ("mixed", "batch norms of images and of other inputs in one model"),
    ],
)
def test_what_cannot_be_taken_is_one_line(cli: Cli, name: str, said: str) -> None:
    code, _, err = cli("lint", f"--keras={MODELS}:{name}", f"--torch={PORTS}:rows", "--input-shape=6")
    assert code == 2 and said in one_line(err) and "of Keras 2 (tf_keras)" in err


def test_a_model_that_an_import_makes_is_of_float64_too(cli: Cli) -> None:
    shutil.copy("rows.npz", "head.npz")
    code, out, _ = cli(*pair("made_at_import", "head"))
    assert code == 0 and "✓ parity" in out


@pytest.mark.parametrize(("name", "shape"), [("images", (8, 8, 8, 1)), ("rows", (8, 6))])
def test_a_pass_in_training_leaves_the_same_statistics(
    peers: dict[str, Peer], name: str, shape: tuple[int, ...]
) -> None:
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    found = peers["tensorflow"]("keras2:statistics", {"model": name}, {"x": x})
    keys = [key.partition("/")[2] for key in found if key.startswith("2/")]
    assert len(keys) > 6
    for key in keys:
        np.testing.assert_allclose(found[f"3/{key}"], found[f"2/{key}"], rtol=1e-5, atol=1e-6)
