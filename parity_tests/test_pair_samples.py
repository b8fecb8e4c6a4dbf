"""Samples of `parity pair` that are in no .npz file: Parquet, folders of pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from parity.common.base.errors import ExternalModelError, SpecError
from parity.common.external.pairs.request import DATA, SampleFile

pyarrow = pytest.importorskip("pyarrow")
Image = pytest.importorskip("PIL.Image")


def write_table(path: Path, **columns: object) -> Path:
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def write_pictures(folder: Path) -> dict[str, int]:
    """Pictures of 4 x 6 pixels in one colour each; the first channel's value by class."""
    values = {"cat": 10, "dog": 200}
    for name, value in values.items():
        (folder / name).mkdir(parents=True)
        for number in range(5):
            picture = Image.new("RGB", (6, 4), (value, number, 0))
            picture.save(folder / name / f"{number}.png")
    return values


def test_columns_are_arrays_and_lists_have_axes(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    tokens, numbers = random.integers(0, 9, (12, 3)), random.normal(size=12)
    path = write_table(
        tmp_path / "samples.parquet",
        tokens=tokens.tolist(),
        numbers=numbers,
        y=list(range(12)),
        name=["text"] * 12,
    )
    data = SampleFile.of(path, ("tokens", "numbers"))
    assert (data.targets, data.samples) == (("y",), 12)
    found = data.rows(2, 4)
    assert found.inputs["tokens"].dtype == np.int64
    np.testing.assert_array_equal(found.inputs["tokens"], tokens[2:6])
    np.testing.assert_array_equal(found.inputs["numbers"], numbers[2:6])
    np.testing.assert_array_equal(found.targets["y"], [2, 3, 4, 5])
    kept = data.kept(tmp_path)
    assert kept.path == tmp_path / DATA and not data.path.exists()
    np.testing.assert_array_equal(kept.rows(2, 4).inputs["tokens"], tokens[2:6])


def test_pictures_have_the_class_of_their_folder(tmp_path: Path) -> None:
    values = write_pictures(tmp_path / "pictures")
    data = SampleFile.of(tmp_path / "pictures")
    found = data.rows(0, 10)
    images, labels = found.inputs["x"], found.targets["y"]
    assert images.shape == (10, 4, 6, 3)
    # Classes are numbered in the order of their names, as in both frameworks.
    np.testing.assert_allclose(images[:, 0, 0, 0] * 255, np.take(list(values.values()), labels), rtol=1e-12)
    assert len({(label, image[0, 0, 1]) for label, image in zip(labels, images, strict=True)}) == 10
    assert len(set(labels[:5].tolist())) == 2, "in the order of the folders a batch would have one class"
    assert SampleFile.of(tmp_path / "pictures", image_size=(2, 2)).rows(0, 1).inputs["x"].shape == (
        1,
        2,
        2,
        3,
    )


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    ragged = write_table(tmp_path / "ragged.parquet", x=[[1, 2], [3]], y=[0, 1])
    lacking = write_table(tmp_path / "lacking.parquet", x=[1.0, None], y=[0, 1])
    text = write_table(tmp_path / "text.parquet", x=["a", "b"], y=[0, 1])
    (tmp_path / "cut.parquet").write_bytes(ragged.read_bytes()[:50])
    (tmp_path / "empty").mkdir()
    cases = {
        ragged: "several lengths",
        lacking: "missing values",
        tmp_path / "cut.parquet": "cut short",
        tmp_path / "empty": "no sub-folders",
        tmp_path / "samples.csv": "there is no such file",
    }
    for path, expected in cases.items():
        with pytest.raises(SpecError, match=expected) as raised:
            SampleFile.of(path)
        assert "\n" not in str(raised.value)
    with pytest.raises(SpecError, match="samples are rows of numbers"):
        SampleFile.of(text).rows(0, 1)


def test_inputs_may_be_their_own_targets(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.arange(8).reshape(4, 2))
    found = SampleFile.of(tmp_path / "x.npz", ("x",), ("x",), divide_by=2).rows(0, 4)
    np.testing.assert_array_equal(found.inputs["x"], found.targets["x"])
    assert found.inputs["x"][3, 1] == 3.5


BATCHES = """
import numpy as np


def images():
    import torch

    x = torch.arange(10 * 3 * 4 * 5, dtype=torch.float32).reshape(10, 3, 4, 5)
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, torch.arange(10)), batch_size=4)


def weighted():
    import tensorflow as tf

    rows = np.arange(12.0).reshape(6, 2)
    return tf.data.Dataset.from_tensor_slices(({"a": rows, "b": rows + 1}, rows[:, 0], rows[:, 1])).batch(4)


def endless():
    while True:
        yield np.ones((3, 2)), np.zeros(3)


def ragged():
    yield np.ones((3, 2)), np.zeros(3)
    yield np.ones((3, 4)), np.zeros(3)


def broken():
    raise KeyError("no such split")
    yield


def many():
    yield [np.ones((3, 2))] * 4


nothing = []
number = 3
"""


@pytest.mark.slow
def test_batches_are_read_in_a_process_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own_batches.py").write_text(BATCHES)
    monkeypatch.chdir(tmp_path)
    images = SampleFile.of(Path("own_batches:images"), most=6)
    found = images.rows(0, 6)
    # Torch has channels second, and samples are as Keras takes them.
    expected = np.arange(10 * 3 * 4 * 5.0).reshape(10, 3, 4, 5)[:6].transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(found.inputs["x"], expected)
    np.testing.assert_array_equal(found.targets["y"], np.arange(6))
    assert "x with the channels moved" in capsys.readouterr().err
    weighted = SampleFile.of(Path("own_batches:weighted"))
    assert (weighted.inputs, weighted.targets, weighted.weights) == (("a", "b"), ("y",), "sample_weight")
    assert weighted.samples == 6 and weighted.rows(5, 1).weights == 11
    assert SampleFile.of(Path("own_batches:endless"), most=100).samples == 100
    refused = {
        "ragged": "x of batch 1 has the shape (3, 4)",
        "broken": "no such split",
        "many": "a list of 4; give (inputs, targets), or arrays by name",
        "nothing": "gives no batches",
        "number": "type int; it must be something to iterate over",
        "absent": "has no 'absent'",
    }
    for name, said in refused.items():
        with pytest.raises(ExternalModelError) as raised:
            SampleFile.of(Path(f"own_batches:{name}"))
        assert said in str(raised.value) and "\n" not in str(raised.value)
