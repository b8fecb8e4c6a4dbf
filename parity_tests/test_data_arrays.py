"""NumPy files and token files, mapped and not read, and one line for each way they can be wrong."""

from __future__ import annotations

import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.common.base.errors import SpecError
from parity_tests.helpers.records import one_line
from parity_tests.helpers.sample_files import RANDOM, cut, everything, opened

# NumPy files.


def test_npy_files(tmp_path: Path) -> None:
    numbers = RANDOM.random((7, 2, 3)).astype(np.float32)
    labels = np.arange(7, dtype=np.int32)
    for name, array in (("x", numbers), ("y", labels), ("tx", numbers[:3] + 1), ("ty", labels[:3])):
        np.save(tmp_path / f"{name}.npy", array)
    source = {"kind": "npy", "path": str(tmp_path / "x.npy"), "targets_path": str(tmp_path / "y.npy")}
    train, rest = opened(source, 5, 2)
    inputs, targets = everything(train)
    assert np.array_equal(inputs, numbers[:5]) and inputs.dtype == np.float64 and targets.dtype == np.int64
    assert np.array_equal(everything(rest)[1], labels[5:])
    test = {**source, "test_path": str(tmp_path / "tx.npy"), "test_targets_path": str(tmp_path / "ty.npy")}
    assert np.array_equal(everything(opened(test, 7, 3)[1])[0], numbers[:3] + 1)
    alone = {"kind": "npy", "path": str(tmp_path / "y.npy"), "divide_by": 2}
    inputs, targets = everything(opened(alone, 7)[0])
    assert np.array_equal(inputs, labels / 2) and np.array_equal(targets, inputs)
    inputs[:] = 0
    assert targets.any() and np.load(tmp_path / "y.npy").any()


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_npz_files(tmp_path: Path, write: Callable[..., None]) -> None:
    numbers, labels = RANDOM.random((7, 3)), np.arange(7)
    write(tmp_path / "data.npz", x=numbers, y=labels, f=np.asfortranarray(numbers), none=numbers[:0])
    source = {"kind": "npz", "path": str(tmp_path / "data.npz")}
    train, _ = opened(source, 7)
    inputs, targets = train.rows(np.array([5, 2]))
    assert np.array_equal(inputs, numbers[[5, 2]]) and np.array_equal(targets, [5, 2])
    fortran, _ = everything(opened({**source, "inputs": "f", "targets": None}, 7)[0])
    assert np.array_equal(fortran, numbers)
    with pytest.raises(SpecError, match="has no array 'z'; it has x, y, f, none"):
        opened({**source, "inputs": "z"}, 7)
    with pytest.raises(SpecError, match=r"has 0 rows of inputs, .* 7 of targets"):
        opened({**source, "inputs": "none"}, 7)
    with pytest.raises(SpecError, match="npz has 0 samples"):
        opened({**source, "inputs": "none", "targets": "none"}, 7)


class Unpickled:
    """Shows that a pickle was read."""

    def __reduce__(self) -> tuple:
        return pytest.fail, ("a pickle was read",)


def test_broken_numpy_files(tmp_path: Path) -> None:
    path, archive = tmp_path / "x.npy", tmp_path / "x.npz"

    def refused(words: str, **fields: Any) -> None:
        kind = (
            {"kind": "npy", "path": str(path)}
            if not fields
            else {"kind": "npz", "path": str(archive), **fields}
        )
        with pytest.raises(SpecError, match=words) as error:
            opened(kind, 1)
        assert str(tmp_path) in one_line(error.value)

    refused("x.npy is missing; give the path")
    path.mkdir()
    refused("x.npy is no file")
    path.rmdir()
    path.write_bytes(b"nothing of the kind")
    refused("no .npy array, or it is cut short")
    np.save(path, np.zeros((9, 9)))
    cut(path, 500)
    refused("no .npy array, or it is cut short")
    np.save(path, np.array([Unpickled()], object), allow_pickle=True)
    refused("no .npy array.*[Oo]bject|pickle")
    np.save(path, np.array(["text"]))
    refused("holds <U4 of shape")
    np.save(path, np.array(3.0))
    refused("holds float64 of shape")
    np.savez(archive, x=np.array([Unpickled()], object))
    refused("npz archive.*objects", targets=None)
    np.savez_compressed(archive, x=np.array([Unpickled()], object))
    refused("npz archive.*allow_pickle", targets=None)
    np.savez(archive, x=np.zeros((50, 50)))
    whole = archive.read_bytes()
    archive.write_bytes(whole[:900])
    refused("no .npz archive, or it is cut short", targets=None)
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("x.npy", whole[50:200])
    refused("no .npz archive, or it is cut short", targets=None)
    archive.rename(path)
    refused("no .npy array.*source kind npz")


def test_larger_than_memory(tmp_path: Path) -> None:
    """A file of 256 GB with a hole in it: only the rows asked for are read."""
    path = tmp_path / "huge.npy"
    shape = (1 << 21, 32, 1024)
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
        begin = file.tell()
        file.truncate(begin + int(np.prod(shape)) * 4)
        file.seek(begin + (shape[0] - 1) * 32 * 1024 * 4)
        file.write(np.float32(7).tobytes())
    assert path.stat().st_size > 250e9 and path.stat().st_blocks * 512 < 10e6
    tracemalloc.start()
    try:
        train, _ = opened({"kind": "npy", "path": str(path), "permute_seed": None}, shape[0])
        inputs, _ = train.rows(np.array([shape[0] - 1, 5]))
        mixed, _ = opened({"kind": "npy", "path": str(path), "permute_seed": 1}, shape[0])
        mixed.rows(np.array([17]))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert inputs[0, 0, 0] == 7 and inputs.sum() == 7 and inputs.dtype == np.float64
    assert peak < 50e6


# Tokens.


@pytest.mark.parametrize("kind", ["uint16", "uint32", "npy"])
def test_token_files(tmp_path: Path, kind: str) -> None:
    tokens = RANDOM.integers(0, 50, 103)
    path = tmp_path / ("tokens.npy" if kind == "npy" else "tokens.bin")
    if kind == "npy":
        np.save(path, tokens)
    else:
        path.write_bytes(tokens.astype(np.dtype(kind).newbyteorder("<")).tobytes())
    source = {"kind": "tokens", "path": str(path), "length": 10, "dtype": "uint16" if kind == "npy" else kind}
    train, rest = opened(source, 8, 2)
    inputs, targets = everything(train)
    assert inputs.dtype == targets.dtype == np.int64
    assert np.array_equal(inputs, tokens[:80].reshape(8, 10)) and np.array_equal(
        targets, tokens[1:81].reshape(8, 10)
    )
    assert np.array_equal(everything(rest)[0], tokens[80:100].reshape(2, 10))
    with pytest.raises(SpecError, match="but tokens has 10 samples"):
        opened(source, 11)
    overlapping, _ = opened({**source, "stride": 3}, 31)
    inputs, targets = overlapping.rows(np.array([30]))
    assert np.array_equal(inputs[0], tokens[90:100]) and np.array_equal(targets[0], tokens[91:101])
    with pytest.raises(SpecError, match="but tokens has 31 samples"):
        opened({**source, "stride": 3}, 32)
    with pytest.raises(SpecError, match=r"token \d+ is outside the vocabulary of 20"):
        everything(opened({**source, "vocabulary": 20}, 8)[0])


def test_broken_token_files(tmp_path: Path) -> None:
    path = tmp_path / "tokens.bin"
    source = {"kind": "tokens", "path": str(path), "length": 4}
    for content in (b"", b"abc"):
        path.write_bytes(content)
        with pytest.raises(SpecError, match=f"has {len(content)} bytes, which are no uint16 tokens"):
            opened(source, 1)
    path.write_bytes(bytes(8))
    with pytest.raises(SpecError, match="tokens has 0 samples"):
        opened(source, 1)
    np.save(tmp_path / "tokens.npy", np.zeros((3, 3)))
    with pytest.raises(SpecError, match="whole numbers in one row"):
        opened({**source, "path": str(tmp_path / "tokens.npy")}, 1)
