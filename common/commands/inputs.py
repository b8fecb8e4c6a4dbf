"""Inputs that two models are called with, for commands that train nothing."""

from __future__ import annotations

import argparse
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from parity.common.base.errors import SpecError
from parity.common.external.pairs.request import TARGETS
from parity.common.external.pairs.samples import as_npz, is_other
from parity.common.external.process.pass_result import Array, Arrays


def add_input_flags(command: Any, required: bool) -> None:
    """The flags that `inputs_of` takes."""
    inputs = command.add_mutually_exclusive_group(required=required)
    inputs.add_argument(
        "--input-shape",
        action="append",
        metavar="[NAME=]SIDE,SIDE,...[:int]",
        help="of one sample, as Keras takes it, e.g. 32,32,3, or tokens=128:int; repeatable",
    )
    inputs.add_argument("--data", type=Path, help="samples, as 'parity pair' takes them")
    command.add_argument(
        "--inputs",
        default="",
        metavar="NAME[,NAME...]",
        help="names of the input arrays in --data [all but y, targets, labels]",
    )
    command.add_argument(
        "--targets", default="", metavar="NAME[,NAME...]", help="its arrays that are no inputs"
    )


def inputs_of(options: argparse.Namespace, rows: int) -> Arrays | None:
    """Inputs (rows, ...) by name as the flags say; None where they say nothing.

    Args:
        options: with `input_shape`, `data` and `inputs`.
        rows: samples; fewer where the file has fewer. They are drawn where only shapes are given.

    Raises:
        SpecError: a shape that is none, or a file that cannot be read.
    """
    if options.data is not None:
        inputs, targets = (tuple(filter(None, text.split(","))) for text in (options.inputs, options.targets))
        return rows_of(options.data, rows, inputs, targets)
    if not options.input_shape:
        return None
    found: Arrays = {}
    for text in options.input_shape:
        name, _, sides = text.rpartition("=")
        sides, _, kind = sides.partition(":")
        try:
            shape = tuple(int(side) for side in sides.split(",") if side)
        except ValueError:
            shape = ()
        if kind not in ("", "int", "float") or not shape or min(shape) < 1:
            raise SpecError(f"--input-shape is like 32,32,3 or tokens=128:int; received {text[:80]!r}")
        name = name or ("inputs" if len(options.input_shape) == 1 else f"input_{len(found)}")
        found[name] = drawn((rows, *shape), np.int64 if kind == "int" else np.float32)
    return found


def rows_of(path: Path, rows: int, names: Sequence[str] = (), others: Sequence[str] = ()) -> Arrays:
    """The first rows of named arrays of samples, whole numbers as int64; without names of all but targets and `others`.

    Raises:
        SpecError: there are none.
    """
    try:
        if is_other(path):
            path = as_npz(path, rows)
        with np.load(path, allow_pickle=False) as archive:
            lacking = [name for name in names if name not in archive.files]
            if lacking:
                raise SpecError(
                    f"--data {path}: has no array {lacking[0]!r}; it has {', '.join(archive.files)}"
                )
            chosen = names or [name for name in archive.files if name not in (*TARGETS, *others)]
            found = {name: archive[name][:rows] for name in chosen}
    except (OSError, ValueError, EOFError, KeyError, IndexError, AttributeError, zipfile.BadZipFile) as error:
        raise SpecError(f"--data {path}: cannot be read: {' '.join(str(error).split())[:200]}") from None
    if not found:
        raise SpecError(f"--data {path}: has no array but targets ({', '.join((*TARGETS, *others))})")
    return {
        name: array.astype(np.int64) if array.dtype.kind in "iu" else array for name, array in found.items()
    }


def drawn(shape: tuple[int, ...], dtype: type) -> Array:
    """Random numbers; whole ones are 0 or 1, which a vocabulary of any size has."""
    random = np.random.default_rng(0)
    return random.integers(0, 2, shape) if dtype is np.int64 else random.normal(size=shape).astype(dtype)
