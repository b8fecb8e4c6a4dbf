"""The kinds of files in a record: JSON, lines of JSON, and rows of 64-bit numbers."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from parity.common.base.errors import RecordError
from parity.common.base.files import naming_os_errors, replacing, unique_keys
from parity.common.spec import Spec
from parity.common.spec.base import explain

SpecT = TypeVar("SpecT", bound=Spec)
# What is larger was written by no run of ours: of a run's facts, and of rows of text or of sample ids.
_FACTS_LIMIT, ROWS_LIMIT = 1 << 24, 1 << 30
# Of lines of JSON, which take ten times as much in memory.
_LINES_LIMIT = 1 << 28
_ROWS_AT_ONCE = 1 << 12  # they stay in the cache while they are turned into columns


def parse(kind: type[SpecT], path: Path) -> SpecT:
    """Return a JSON file as `kind`; raises RecordError where it cannot be read, or is not of that kind."""
    data = read_json(path)
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise RecordError(f"{path}: {explain(error, data, kind.__name__, kind)}") from None


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; raises RecordError where it cannot be read, is too large, or is not JSON."""
    try:
        with _reading(path, _FACTS_LIMIT):
            return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=unique_keys)
    except (ValueError, RecursionError):
        raise RecordError(f"{path}: not JSON; the file is cut short or foreign") from None


@contextmanager
def _reading(path: Path, limit: int) -> Iterator[None]:
    """Raise RecordError for what is no file, or may fill the memory, and within it for what cannot be read."""
    with naming_os_errors(RecordError, f"{path}: cannot be read"):
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise RecordError(f"{path}: not a file, but a folder, a device or a pipe")
        if found.st_size > limit:
            raise RecordError(
                f"{path}: holds {found.st_size} bytes, a record at most {limit}; the file is foreign"
            )
        yield


def write_json(path: Path, data: Any) -> None:
    """Write a JSON file, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def append(file: IO[bytes], data: bytes) -> None:
    """Write all of it and keep nothing back; raises OSError where the disk is full."""
    file.write(data)
    file.flush()


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the JSON objects of a file, one a line; half a last line, which a killed run leaves, is dropped.

    Raises:
        RecordError: the file cannot be read, or another line is not a JSON object.
    """
    try:
        with _reading(path, _LINES_LIMIT):
            text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise RecordError(f"{path}: not text; the file is foreign") from None
    whole = text[: text.rfind("\n") + 1].splitlines()
    try:
        rows: list[dict[str, Any]] = json.loads("[" + ",".join(whole) + "]", object_pairs_hook=unique_keys)
    except (ValueError, RecursionError):
        raise RecordError(f"{path}: a line is not JSON; the file is damaged") from None
    if not all(isinstance(row, dict) for row in rows):
        raise RecordError(f"{path}: a line is not a JSON object; the file is foreign")
    return rows


def read_words(path: Path) -> NDArray[np.int64]:
    """Return the integers of a file of little-endian 64-bit integers, int64 (n,); half a last one is dropped.

    Raises:
        RecordError: the file cannot be read, or is too large.
    """
    with _reading(path, ROWS_LIMIT):
        return np.fromfile(path, "<i8").astype(np.int64, copy=False)


def read_columns(path: Path, width: int, most: int) -> NDArray[np.float64]:
    """Return rows of little-endian float64 as an array (width, rows).

    Half a last row, which a killed run leaves, is dropped. Read piece by piece, so that each number is in memory once.

    Args:
        width: numbers in a row.
        most: rows that a file may have.

    Raises:
        RecordError: the file cannot be read, or has more rows.
    """
    # Half a row more is what a kill leaves.
    with _reading(path, 8 * width * (most + 1)), open(path, "rb") as file:
        rows = os.fstat(file.fileno()).st_size // (8 * width)
        columns = np.empty((width, rows))
        for first in range(0, rows, _ROWS_AT_ONCE):
            part = columns[:, first : first + _ROWS_AT_ONCE]
            # A file that is being written may only grow.
            part[:] = np.fromfile(file, "<f8", part.size).reshape(-1, width).T
    return columns
