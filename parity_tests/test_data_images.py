"""Images in files: read back from small files written here, and one line for each way they can be wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from parity.common.base.errors import SpecError
from parity_tests.helpers.records import one_line
from parity_tests.helpers.sample_files import (
    IMAGES,
    LABELS,
    RANDOM,
    cifar,
    cut,
    everything,
    mnist,
    opened,
    pictures,
    write_idx,
)

# IDX.


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_mnist_files(tmp_path: Path, suffix: str) -> None:
    source, arrays = mnist(tmp_path, suffix)
    train, test = opened(source, 7, 4)
    inputs, labels = everything(train)
    assert np.array_equal(inputs, arrays["train"][:7, ..., None] / 255) and inputs.dtype == np.float64
    assert np.array_equal(labels, arrays["train labels"][:7]) and labels.dtype == np.int64
    inputs, labels = everything(test)
    assert test.first_id == 7 and np.array_equal(inputs, arrays["t10k"][..., None] / 255)
    assert np.array_equal(labels, arrays["t10k labels"])
    with pytest.raises(SpecError, match="eval_samples is 5, but mnist_idx has 4"):
        opened(source, 7, 5)
    copies, targets = everything(opened({**source, "target": "input", "permute_seed": 3}, 9)[0])
    assert np.array_equal(copies, targets)
    assert np.array_equal(np.sort(copies, 0), np.sort(arrays["train"][..., None] / 255, 0))


BROKEN_IDX: list[tuple[str, Callable[[Path], object], str]] = [
    ("missing", lambda f: (f / LABELS).unlink(), f"{LABELS} is missing; .*yann.lecun.com/exdb/mnist"),
    ("no folder", lambda f: f.rename(f.parent / "moved"), "mnist is missing; .*exdb/mnist"),
    (
        "magic",
        lambda f: (f / IMAGES).write_bytes(b"\x89PNG" + bytes(99)),
        f"{IMAGES} is no IDX file: it begins with 89504e47",
    ),
    ("type", lambda f: write_idx(f / IMAGES, np.zeros((9, 5, 4), np.uint8), 7), "is no IDX file"),
    ("empty", lambda f: (f / IMAGES).write_bytes(b""), "is no IDX file: it begins with nothing"),
    ("header", lambda f: cut(f / IMAGES, 10), "is cut short: its header has 10 bytes"),
    ("cut", lambda f: cut(f / IMAGES, 100), r"is cut short: shape \(9, 5, 4\) is 180 bytes, it has 84"),
    (
        "long",
        lambda f: (f / IMAGES).write_bytes((f / IMAGES).read_bytes() + b"x"),
        "has more than its header says",
    ),
    ("axes", lambda f: write_idx(f / IMAGES, np.zeros((9, 20), np.uint8)), r"expected bytes of \(samples"),
    ("count", lambda f: write_idx(f / LABELS, np.zeros(8, np.uint8)), f"has 9 images, {LABELS} 8 labels"),
]


@pytest.mark.parametrize(("case", "spoil", "words"), BROKEN_IDX, ids=[case for case, _, _ in BROKEN_IDX])
def test_broken_idx_files(tmp_path: Path, case: str, spoil: Callable[[Path], object], words: str) -> None:
    source, _ = mnist(tmp_path / "mnist")
    opened(source, 9, 4)
    spoil(tmp_path / "mnist")
    with pytest.raises(SpecError, match=words) as error:
        opened(source, 9, 4)
    assert str(tmp_path) in one_line(error.value)


@pytest.mark.parametrize("keep", [30, -9])
def test_a_zipped_file_that_is_cut_short(tmp_path: Path, keep: int) -> None:
    source, _ = mnist(tmp_path, ".gz")
    path = tmp_path / f"{IMAGES}.gz"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(SpecError, match=r"cannot be read|cut short") as error:
        opened(source, 9)
    one_line(error.value)
    path.write_bytes(b"no gzip at all")
    with pytest.raises(SpecError, match="cannot be read: Not a gzipped file"):
        opened(source, 9)


# CIFAR.


@pytest.mark.parametrize("labels", [None, "fine", "coarse"])
def test_cifar_files(tmp_path: Path, labels: str | None) -> None:
    source, records = cifar(tmp_path, labels is not None)
    source |= {} if labels is None else {"labels": labels}
    *parts, last = records.values()
    wanted = np.concatenate(parts)
    head = 1 if labels is None else 2
    train, test = opened(source, len(wanted), len(last))
    order = RANDOM.permutation(len(wanted))
    inputs, targets = train.rows(order)
    assert inputs.shape == (len(wanted), 32, 32, 3) and inputs.flags.c_contiguous
    for row, position in enumerate(order):
        red, green, blue = wanted[position, head:].reshape(3, 32, 32) / 255
        assert np.array_equal(inputs[row], np.stack([red, green, blue], -1))
        assert targets[row] == wanted[position, 1 if labels == "fine" else 0]
    inputs, _ = everything(test)
    assert np.array_equal(inputs[0, ..., 0], last[0, head : head + 1024].reshape(32, 32) / 255)


def test_broken_cifar_files(tmp_path: Path) -> None:
    source, records = cifar(tmp_path)
    path = tmp_path / "data_batch_2.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(SpecError, match=r"data_batch_2.bin has 12291 bytes, which are no records of 3073"):
        opened(source, 9)
    path.write_bytes(bytes([11]) + records["data_batch_2"].tobytes()[1:])
    with pytest.raises(SpecError, match=r"data_batch_2.bin: label 11 of 10; damaged\?"):
        everything(opened(source, 9)[0])
    path.unlink()
    with pytest.raises(
        SpecError, match=r"data_batch_2.bin is missing; .*www.cs.toronto.edu/~kriz/cifar.html"
    ):
        opened(source, 9)
    (tmp_path / "data_batch_2").write_bytes(b"\x80\x02}q")
    with pytest.raises(SpecError, match="Python version: pickles, which run code when read") as error:
        opened(source, 9)
    one_line(error.value)


# Folders of pictures.


def test_a_folder_of_pictures(tmp_path: Path) -> None:
    source = pictures(tmp_path)
    inputs, labels = everything(opened(source, 6)[0])
    assert inputs.shape == (6, 4, 5, 3) and inputs.dtype == np.float64
    assert labels.tolist() == [0, 1, 1, 2, 2, 2], "ant, bee, cat"
    # Sorted by name and not by when they were written; one colour stays one colour.
    assert np.array_equal(inputs[:, 0, 0, 0] * 255, [200, 90, 60, 30, 10, 20])
    assert (inputs == inputs[:, :1, :1]).all()
    grey, _ = everything(opened({**source, "channels": 1}, 6)[0])
    assert grey.shape == (6, 4, 5, 1)
    mixed, _ = everything(opened({**source, "permute_seed": 0}, 6)[0])
    assert sorted(mixed[:, 0, 0, 0]) == sorted(inputs[:, 0, 0, 0])
    empty, none = opened(source, 6)[0].rows(np.arange(0))
    assert empty.shape == (0, 4, 5, 3) and none.shape == (0,)


def test_pictures_are_scaled_to_cover_and_cut_to_the_centre(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    source = pictures(tmp_path)
    wide = np.zeros((4, 15, 3), np.uint8)
    wide[:, 5:10] = RANDOM.integers(0, 256, (4, 5, 3))
    for path in (tmp_path / "ant").rglob("*.png"):
        image.fromarray(wide).save(path)
    inputs, _ = opened(source, 6)[0].rows(np.array([0]))
    assert np.array_equal(inputs[0], wide[:, 5:10] / 255)


def test_a_test_folder_and_what_can_be_wrong_with_folders(tmp_path: Path) -> None:
    source = pictures(tmp_path / "train")
    test = {**source, "test_path": str(tmp_path / "test")}
    pictures(tmp_path / "test")
    (tmp_path / "train" / "bug").mkdir()
    with pytest.raises(SpecError, match="bug holds no pictures"):
        opened(source, 6)
    (tmp_path / "train" / "bug").rmdir()
    train, evaluated = opened(test, 6, 6)
    assert np.array_equal(everything(train)[0], everything(evaluated)[0]) and evaluated.first_id == 6
    (tmp_path / "test" / "cat").rename(tmp_path / "test" / "dog")
    with pytest.raises(SpecError, match=r"dog is a class that .*train does not have"):
        opened(test, 6, 6)
    (tmp_path / "train" / "ant" / "9.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    with pytest.raises(SpecError, match=r"ant/9.png is no picture, or it is cut short") as error:
        everything(opened(source, 6)[0])
    one_line(error.value)
    (tmp_path / "ant").mkdir()
    with pytest.raises(SpecError, match="ant has no sub-folders; expected a folder with a sub-folder"):
        opened({**source, "path": str(tmp_path / "ant")}, 1)
    with pytest.raises(SpecError, match="absent is missing; expected a folder"):
        opened({**source, "path": str(tmp_path / "absent")}, 1)
