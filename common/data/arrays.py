"""NumPy files and flat token files, mapped into memory and not read."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from parity.common.base.errors import SpecError
from parity.common.data.files import files_of_one, located, present
from parity.common.data.samples import Array, Dataset, Ids, Rows, Source, Stored
from parity.common.spec import sources as spec

_YOURS = "give the path of a file that you have"
_LOCAL_HEADER = 30


def files_of_npy(source: spec.Npy) -> dict[str, Path]:
    paths = {
        "inputs/": source.path,
        "targets/": source.targets_path,
        "test_inputs/": source.test_path,
        "test_targets/": source.test_targets_path,
    }
    return {name + Path(path).name: present(located(path), _YOURS) for name, path in paths.items() if path}


def open_npy(source: spec.Npy) -> Dataset:
    paths = list(files_of_npy(source).values())
    each = 1 if source.targets_path is None else 2
    parts = []
    for at in range(0, len(paths), each):
        first, last = paths[at], paths[at + each - 1]
        targets = None if each == 1 else mapped_npy(last)
        parts.append(_paired(mapped_npy(first), targets, source.divide_by, first, last))
    return Dataset(*parts)


def open_npz(source: spec.Npz) -> Dataset:
    parts: list[Source] = []
    for path in files_of_one(source).values():
        if not isinstance(source.inputs, str):
            parts.append(Joined([_member(path, name) for name in source.inputs]))
            continue
        inputs = _member(path, source.inputs)
        targets = None if source.targets is None else _member(path, source.targets)
        parts.append(_paired(inputs, targets, source.divide_by, path, path))
    return Dataset(*parts)


class Joined(Source):
    """Several arrays as one row of float64 numbers a sample, array after array; the row is also the target."""

    def __init__(self, arrays: Sequence[Array]) -> None:
        self.arrays, self.size = arrays, len(arrays[0])
        self.in_memory = not any(isinstance(array, np.memmap) for array in arrays)

    def rows(self, positions: Ids) -> Rows:
        found = [np.asarray(array[positions], np.float64) for array in self.arrays]
        joined = np.concatenate(
            [each.reshape(len(positions), math.prod(each.shape[1:])) for each in found], 1
        )
        return joined, joined.copy()


def _paired(inputs: Array, targets: Array | None, divide_by: float, path: Path, targets_path: Path) -> Stored:
    for array, where in ((inputs, path), (targets, targets_path)):
        if array is not None and (array.ndim == 0 or array.dtype.kind not in "biuf"):
            raise SpecError(
                f"data: {where} holds {array.dtype} of shape {array.shape}; samples are rows of numbers"
            )
    if targets is not None and len(targets) != len(inputs):
        raise SpecError(
            f"data: {path} has {len(inputs)} rows of inputs, {targets_path} {len(targets)} of targets"
        )
    return Stored(inputs, targets, None if divide_by == 1 else divide_by)


def mapped_npy(path: Path) -> Array:
    """Return the array of an .npy file, of the file's shape and dtype, mapped and not read yet.

    Raises:
        SpecError: it is no .npy file, or cut short.
    """
    try:
        return npy.open_memmap(path, mode="r")
    except (OSError, ValueError, EOFError) as error:
        hint = "an .npz archive is of source kind npz" if zipfile.is_zipfile(path) else _short(error)
        raise SpecError(f"data: {path} is no .npy array, or it is cut short: {hint}") from None


def _member(path: Path, name: str) -> Array:
    """An array of an .npz archive: mapped where it is stored as it is, read where it is compressed."""
    try:
        with zipfile.ZipFile(path) as archive:
            known = [entry.removesuffix(".npy") for entry in archive.namelist()]
            if name not in known:
                raise SpecError(f"data: {path} has no array {name!r}; it has {', '.join(known) or 'none'}")
            entry = archive.getinfo(f"{name}.npy")
            if entry.compress_type == zipfile.ZIP_STORED:
                return _mapped_member(path, entry)
            with archive.open(entry) as file:
                array: Array = npy.read_array(file, allow_pickle=False)
                return array
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zipfile.LargeZipFile) as error:
        raise SpecError(f"data: {path} is no .npz archive, or it is cut short: {_short(error)}") from None


def _mapped_member(path: Path, entry: zipfile.ZipInfo) -> Array:
    with open(path, "rb") as file:
        file.seek(entry.header_offset)
        local = file.read(_LOCAL_HEADER)
        # The local header's own lengths of name and extra field: they may differ from the directory's.
        lengths = int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:30], "little")
        begin = entry.header_offset + _LOCAL_HEADER + lengths
        file.seek(begin)
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(file)
        if dtype.hasobject:
            raise ValueError("an array of objects, which only pickle can read")
        size = int(np.prod(shape)) * dtype.itemsize
        if file.tell() + size > begin + entry.file_size:
            raise ValueError("an array larger than its entry")
        if not size:
            return np.empty(shape, dtype)
        order = "F" if fortran else "C"
        return np.memmap(path, dtype, "r", file.tell(), shape, order)  # type: ignore[call-overload, no-any-return]


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


# Tokens.


def open_tokens(source: spec.Tokens) -> Dataset:
    return Dataset(*(TokenWindows(source, path) for path in files_of_one(source).values()))


class TokenWindows(Source):
    """See parity.common.spec.sources.Tokens."""

    def __init__(self, source: spec.Tokens, path: Path) -> None:
        self._path = path
        self._tokens = mapped_npy(path) if path.suffix == ".npy" else _raw(path, source.dtype)
        if self._tokens.ndim != 1 or self._tokens.dtype.kind not in "iu":
            raise SpecError(
                f"data: {path} holds {self._tokens.dtype} of shape {self._tokens.shape};"
                " tokens are whole numbers in one row"
            )
        self._length, self._stride = source.length, source.stride or source.length
        self._vocabulary = source.vocabulary
        # A window needs one token more, the target of its last.
        self.size = max(0, (len(self._tokens) - source.length - 1) // self._stride + 1)

    def rows(self, positions: Ids) -> Rows:
        places = positions[:, None] * self._stride + np.arange(self._length + 1)
        window = np.asarray(self._tokens[places], np.int64)
        if (
            self._vocabulary is not None
            and window.size
            and not 0 <= window.min() <= window.max() < self._vocabulary
        ):
            wrong = window[(window < 0) | (window >= self._vocabulary)][0]
            raise SpecError(
                f"data: {self._path}: token {wrong} is outside the vocabulary of {self._vocabulary}"
            )
        return window[:, :-1].copy(), window[:, 1:].copy()


def _raw(path: Path, dtype: str) -> Array:
    kind = np.dtype(dtype).newbyteorder("<")
    size = path.stat().st_size
    if not size or size % kind.itemsize:
        raise SpecError(f"data: {path} has {size} bytes, which are no {dtype} tokens; cut short?")
    return np.memmap(path, kind, "r")
