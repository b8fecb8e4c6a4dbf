"""What a person asks of `parity pair`: two models, samples, a loss, an optimizer; read from plain text."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import ValidationError

from parity.common.base.errors import SpecError
from parity.common.base.yaml import parse_yaml
from parity.common.external.process.pass_result import Array, Arrays
from parity.common.spec.base import Spec, explain
from parity.common.spec.external.target import Target
from parity.common.spec.losses import LossBase, parse_loss
from parity.common.spec.optimizers import OptimizerBase, parse_optimizer

_TARGETS = ("y", "targets", "labels")
_PART = re.compile(r",([^=,]+=(?:\[[^\[\]]*\]|\{[^{}]*\}|[^,\[\]{}]*))")


@dataclass(frozen=True)
class PairRequest:
    """A pair of models, and how they are to be trained.

    loss, optimizer: resolved in Keras's convention, so that both sides follow the same. optimizers: the user's own
    of Keras and of torch, which take the place of `optimizer`; None where ours is used on both sides.
    weights: whose initial weights both begin with.
    """

    keras: Target
    torch: Target
    data: SampleFile
    loss: LossBase
    optimizer: OptimizerBase | None
    optimizers: tuple[Target, Target] | None
    steps: int
    global_batch: int
    precision: Literal["float64", "float32"]
    weights: Literal["keras", "torch"]
    without_dropout: bool
    seed: int = 0


@dataclass(frozen=True)
class SampleFile:
    """An .npz file, which of its arrays are inputs, and which the targets; one row a sample.

    divide_by: of inputs that are integers but no tokens, e.g. 255.
    """

    path: Path
    inputs: tuple[str, ...]
    targets: str
    samples: int
    divide_by: float = 1.0

    @classmethod
    def of(cls, path: Path, inputs: Sequence[str], targets: str | None, divide_by: float = 1.0) -> SampleFile:
        """Find out what a file holds.

        Args:
            path: the file.
            inputs: names of arrays; none: all that are not the targets.
            targets: name of the targets' array; None: y, targets or labels.
            divide_by: as the field.

        Raises:
            SpecError: there is no such file or array, or rows of different numbers.
        """
        shapes = _shapes(path)
        if targets is None:
            targets = next((name for name in _TARGETS if name in shapes), None)
            if targets is None:
                raise SpecError(
                    f"--data {path}: no array is called {', '.join(_TARGETS[:-1])} or {_TARGETS[-1]}; it has"
                    f" {', '.join(shapes)}; name that of the targets with --targets"
                )
        chosen = tuple(inputs) or tuple(name for name in shapes if name != targets)
        for name in (*chosen, targets):
            if name not in shapes:
                raise SpecError(f"--data {path}: has no array {name!r}; it has {', '.join(shapes)}")
        if not chosen:
            raise SpecError(f"--data {path}: has no array besides the targets {targets!r}")
        rows = {name: shapes[name][0] if shapes[name] else 0 for name in (*chosen, targets)}
        if len(set(rows.values())) > 1 or not min(rows.values()):
            told = ", ".join(f"{name} has {count}" for name, count in rows.items())
            raise SpecError(f"--data {path}: every array has one row a sample: {told}")
        return cls(path, chosen, targets, rows[targets], divide_by)

    def rows(self, start: int, count: int, integer_targets: bool) -> tuple[Arrays, Array]:
        """Inputs by name and targets of some samples, numbers as float64, whole numbers as int64.

        Args:
            start: the first; after the last the first ones follow.
            count: how many.
            integer_targets: whether the loss takes classes.

        Raises:
            SpecError: the file is damaged, or holds what is no number, or not finite.
        """
        ids = np.arange(start, start + count) % self.samples
        found: Arrays = {}
        try:
            with np.load(self.path, allow_pickle=False) as archive:
                for name in (*self.inputs, self.targets):
                    found[name] = _widened(archive[name][ids])
        except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
            raise SpecError(f"--data {self.path}: cannot be read: {_short(error)}") from None
        for name, array in found.items():
            if array.dtype.kind not in "if":
                raise SpecError(
                    f"--data {self.path}: {name} holds {array.dtype}; samples are rows of numbers"
                )
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                row = start + int(np.argwhere(~np.isfinite(array))[0][0])
                raise SpecError(
                    f"--data {self.path}: {name} has a NaN or an infinity in row {row}; nothing could be compared"
                )
        targets = found.pop(self.targets)
        if self.divide_by != 1:
            found = {name: value / self.divide_by for name, value in found.items()}
        if not integer_targets:
            return found, targets.astype(np.float64)
        if targets.dtype.kind != "i":
            raise SpecError(
                f"--data {self.path}: the loss takes classes, and {self.targets} are no whole numbers"
            )
        return found, targets


def parsed_loss(text: str) -> LossBase:
    """A loss from 'softmax_cross_entropy,label_smoothing=0.1'; raises SpecError."""
    loss: LossBase = _parsed("--loss", text, parse_loss)
    return loss


def parsed_optimizer(text: str) -> OptimizerBase:
    """An optimizer from 'adam,learning_rate=1e-3'; raises SpecError."""
    optimizer: OptimizerBase = _parsed("--optimizer", text, parse_optimizer)
    return optimizer


def _parsed(flag: str, text: str, parse: Callable[[dict[str, object]], Any]) -> Any:
    match = re.fullmatch(rf"(\w+)((?:{_PART.pattern})*)", text)
    if match is None:
        raise SpecError(
            f"{flag} {text[:200]!r}: expected kind[,field=value...], e.g. adam,learning_rate=1e-3; docs/vocabulary.md"
            " lists the kinds"
        )
    data: dict[str, Any] = {"kind": match[1]}
    for part in _PART.findall(match[2]):
        name, _, value = part.partition("=")
        # As in a spec's file, where 1e-3 is a number.
        data[name.strip()] = parse_yaml(value, f"{flag} {part}")
    try:
        found: Spec = parse(data)
    except ValidationError as error:
        raise SpecError(f"{flag}: {explain(error, data, match[1])}") from None
    return found.resolve("keras")


def _shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Of the arrays in an .npz file, read from their headers only."""
    if not path.is_file():
        raise SpecError(f"--data {path}: there is no such file; give an .npz file with one row a sample")
    found: dict[str, tuple[int, ...]] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for entry in archive.namelist():
                with archive.open(entry) as file:
                    version = np.lib.format.read_magic(file)
                    read = np.lib.format.read_array_header_1_0
                    if version != (1, 0):
                        read = np.lib.format.read_array_header_2_0
                    found[entry.removesuffix(".npy")] = read(file)[0]
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zipfile.LargeZipFile) as error:
        raise SpecError(f"--data {path}: is no .npz archive, or it is cut short: {_short(error)}") from None
    if not found:
        raise SpecError(f"--data {path}: holds no arrays")
    return found


def _widened(array: Array) -> Array:
    if array.dtype.kind in "biu":
        return array.astype(np.int64)
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
