"""What the layers of a recorded script gave: three numbers of each output, in `taps/` of its record.

    sum of squares    of all elements
    projection        <sum over the samples of x_s, r>, r = `parity.common.record.taps.script_vector`
    moved             the same of x with its second axis moved to the end: channels first as channels last

So the order of the samples and the layout of channels do not matter, and exchanged channels or another padding show.
A step of several micro-batches, or of several ranks, has their sums. Every number is float64; NaN was not taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from parity.common.base.errors import RecordError, check_printable
from parity.common.record.files import ROWS_LIMIT, read_columns, read_json, write_json
from parity.common.record.version_0_1 import stored

Fingerprint = Sequence[float]
NUMBERS = 3
# Steps at which layers are tapped where nothing else was asked for: the first ones, and then powers of two.
_FIRST = 8


def is_tapped(step: int, every: int | None) -> bool:
    """Whether a step is tapped: multiples of `every`; None: 0 to 8, 16, 32, 64, ..., the same in all records."""
    return step % every == 0 if every else step <= _FIRST or step & (step - 1) == 0


class TapWriter:
    """Writes `taps/` of a record."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: tuple[str, ...] = ()
        self._file: IO[bytes] | None = None

    def write(self, step: int, fingerprints: Mapping[str, Fingerprint]) -> None:
        """Append a step. The layers are those of the first call; a later one that lacks one has NaN for it.

        A sum of squares that is no number is written as infinite, so that it can be told from one that was not taken.
        """
        if self._file is None:
            self._folder.mkdir(exist_ok=True)
            self._names = tuple(fingerprints)
            write_json(self._folder / "names.json", list(self._names))
            self._file = open(self._folder / "fingerprints.f64", "xb", buffering=0)
        unknown = (np.nan,) * NUMBERS
        rows = np.array([fingerprints.get(name, unknown) for name in self._names], "<f8")
        known = [name in fingerprints for name in self._names]
        rows[known & np.isnan(rows[:, 0]), 0] = np.inf
        self._file.write(np.array([step, *rows.ravel()], "<f8").tobytes())

    def close(self) -> None:
        """No further step."""
        if self._file is not None:
            self._file.close()


@dataclass(frozen=True)
class ScriptTaps:
    """steps: [rows]. digests: by layer, in the order in which the outputs were computed, [rows, 3]."""

    steps: NDArray[np.int64]
    fingerprints: dict[str, NDArray[np.float64]]


def read_taps(folder: Path) -> ScriptTaps | None:
    """What `TapWriter` wrote into `taps/`, or None; raises RecordError where it is damaged or foreign."""
    if not (folder / "names.json").exists():
        return None
    names = read_json(folder / "names.json")
    if not isinstance(names, list) or len({*map(str, names)}) != len(names):
        raise RecordError(f"{folder / 'names.json'}: expected a list of different names")
    check_printable(map(str, names), folder / "names.json", RecordError)
    width = 1 + NUMBERS * len(names)
    path = stored(folder, "fingerprints.f64")
    columns = read_columns(path, width, ROWS_LIMIT // (8 * width))
    with np.errstate(invalid="ignore"):
        steps = columns[0].astype(np.int64)
    if (steps != columns[0]).any() or (np.diff(steps) <= 0).any():
        raise RecordError(f"{path}: its steps do not increase; the file is damaged")
    tables = columns[1:].reshape(len(names), NUMBERS, -1).transpose(0, 2, 1)
    return ScriptTaps(steps, dict(zip(map(str, names), tables, strict=True)))
