"""What a person asks of `parity pair`: two models, samples, a loss, an optimizer; read from plain text."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from parity.common.base.errors import SpecError, check_least, did_you_mean
from parity.common.base.scratch import remove_scratch
from parity.common.external.pairs.objectives import (
    Objective,
    named_outputs,
    parsed_kind,
    parsed_losses,
    steps_of,
)
from parity.common.external.pairs.samples import as_npz, gives_batches, is_other
from parity.common.external.process.batches import WEIGHTS
from parity.common.external.process.pass_result import Array, Arrays
from parity.common.spec.external.target import Target
from parity.common.spec.losses import LossBase
from parity.common.spec.optimizers import OptimizerBase, OptimizerSpec, parse_optimizer

DATA = "data.npz"
TARGETS = ("y", "targets", "labels")
# So many samples show what a model is.
FEW = 256


@dataclass(frozen=True)
class PairRequest:
    """A pair of models, and how they are to be trained.

    loss, optimizer: resolved in Keras's convention, so that both sides follow the same. loss may be what several
    outputs are trained by, or the users' own losses; () where only the forward pass is asked. optimizers: the user's own
    of Keras and of torch, which take the place of `optimizer`; None where ours is used on both sides.
    weights: whose initial weights both begin with. usual_loss: whether nobody has said which loss.
    """

    keras: Target
    torch: Target
    data: SampleFile
    loss: LossBase | tuple[Objective, ...]
    optimizer: OptimizerBase | None
    optimizers: tuple[Target, Target] | None
    steps: int
    global_batch: int
    precision: Literal["float64", "float32"]
    weights: Literal["keras", "torch"]
    without_dropout: bool
    seed: int = 0
    usual_loss: bool = False

    @property
    def name(self) -> str:
        """As it is called in reports: with what is left out of it."""
        return "pair-without-dropout" if self.without_dropout else "pair"

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """What is added up."""
        return (Objective(None, self.loss),) if isinstance(self.loss, LossBase) else self.loss


class Samples(NamedTuple):
    """Rows of a file, (batch, ...): inputs and targets by name, and what each sample counts, (batch,) or None."""

    inputs: Arrays
    targets: Arrays
    weights: Array | None

    def taken(self, rows: Array) -> Samples:
        """Those of some row numbers."""
        inputs, targets = ({name: value[rows] for name, value in each.items()} for each in self[:2])
        return Samples(inputs, targets, None if self.weights is None else self.weights[rows])


@dataclass(frozen=True)
class SampleFile:
    """An .npz file, which of its arrays are inputs, and which the targets; one row a sample.

    divide_by: of inputs that are integers but no tokens, e.g. 255. weights: the array of sample weights.
    made: it is a temporary one of ours, made of samples in another form.
    """

    path: Path
    inputs: tuple[str, ...]
    targets: tuple[str, ...]
    samples: int
    divide_by: float = 1.0
    weights: str | None = None
    made: bool = False

    @classmethod
    def of(
        cls,
        path: Path,
        inputs: Sequence[str] = (),
        targets: Sequence[str] | None = None,
        divide_by: float = 1.0,
        weights: str | None = None,
        outputs: Sequence[str] = (),
        with_targets: bool = True,
        image_size: Sequence[int] | None = None,
        most: int = FEW,
    ) -> SampleFile:
        """Find out what a file holds.

        Args:
            path: the file; or of samples in another form, see `samples.arrays_of`.
            inputs: names of arrays; none: all that are not the targets.
            targets: names of the targets' arrays; none: as the outputs are called, else y, targets or labels.
            divide_by: as the field.
            weights: as the field.
            outputs: those with a loss each.
            with_targets: whether there must be some.
            image_size: of a folder of pictures, height and width; None: those of the first.
            most: samples that are taken of what gives batches without end.

        Raises:
            SpecError: there is no such file or array, or rows of different numbers.
        """
        made, named_batches = is_other(path), gives_batches(path)
        path = as_npz(path, most, image_size) if made else path
        shapes = _shapes(path)
        if weights is None and named_batches and WEIGHTS in shapes:
            weights = WEIGHTS
        known = [name for name in outputs if name in shapes]
        due = tuple(targets or ()) or (tuple(outputs) if known else ())
        due = due or tuple(name for name in TARGETS if name in shapes)[:1]
        if not due and with_targets:
            raise SpecError(
                f"--data {path}: no array is called {', '.join(TARGETS[:-1])} or {TARGETS[-1]}; it has"
                f" {', '.join(shapes)}; name that of the targets with --targets"
            )
        chosen = tuple(inputs) or tuple(name for name in shapes if name not in (*due, weights))
        used = (*chosen, *due, *(() if weights is None else (weights,)))
        for name in used:
            if name not in shapes:
                raise SpecError(
                    f"--data {path}: has no array {name!r}; it has {', '.join(shapes)}{did_you_mean(name, shapes)}"
                )
        if not chosen:
            raise SpecError(
                f"--data {path}: has no array besides the targets {', '.join(due)}; where inputs are the targets, give both:"
                f" --inputs {due[0]} --targets {due[0]}"
            )
        rows = {name: shapes[name][0] if shapes[name] else 0 for name in used}
        if len(set(rows.values())) > 1 or not min(rows.values()):
            told = ", ".join(f"{name} has {count}" for name, count in rows.items())
            raise SpecError(
                f"--data {path}: arrays have different numbers of rows: {told}; give one row a sample"
            )
        if weights is not None and len(shapes[weights]) != 1:
            raise SpecError(
                f"--data {path}: sample weights are one number a sample; {weights} has the shape {shapes[weights]}"
            )
        return cls(path, chosen, due, rows[chosen[0]], divide_by, weights, made)

    def kept(self, folder: Path) -> SampleFile:
        """The same, in a folder where it stays, where it is a temporary one."""
        if not self.made:
            return self
        path = folder / DATA
        shutil.move(self.path, path)
        remove_scratch(self.path.parent)
        return replace(self, path=path, made=False)

    def rows(self, start: int, count: int) -> Samples:
        """Those of `count` samples from number `start` on; after the last the first ones follow. See `at`."""
        return self.at(np.arange(start, start + count) % self.samples)

    def at(self, ids: Array) -> Samples:
        """Inputs, targets and weights of some samples, numbers as float64, whole numbers as int64.

        Args:
            ids: their numbers, int64 (samples,).

        Raises:
            SpecError: the file is damaged, or holds what is no number, or not finite; or a weight is below 0.
        """
        found: Arrays = {}
        try:
            with np.load(self.path, allow_pickle=False) as archive:
                # One array may be both.
                for name in {*self.inputs, *self.targets} | (
                    set() if self.weights is None else {self.weights}
                ):
                    found[name] = _widened(archive[name][ids])
        except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
            raise SpecError(f"--data {self.path}: cannot be read: {_short(error)}") from None
        for name, array in found.items():
            if array.dtype.kind not in "if":
                raise SpecError(
                    f"--data {self.path}: {name} holds {'texts' if array.dtype.kind in 'US' else array.dtype}; samples are rows of numbers"
                )
            # A NaN may stand for a value that is missing, which the models make up for.
            bad = ~np.isfinite(array) if name == self.weights else np.isinf(array)
            if bad.any():
                row = int(ids[np.argwhere(bad)[0][0]])
                raise SpecError(
                    f"--data {self.path}: {name} has an infinity or a NaN in row {row}; nothing could be compared"
                )
        weights = None if self.weights is None else found[self.weights].astype(np.float64)
        if weights is not None and (weights < 0).any():
            raise SpecError(f"--data {self.path}: {self.weights} has weights below 0")
        inputs = {
            name: found[name] / self.divide_by if self.divide_by != 1 else found[name] for name in self.inputs
        }
        targets = {name: inputs.get(name, found[name]) for name in self.targets}
        return Samples(inputs, targets, weights)


def requested(
    keras: Target,
    torch: Target,
    data: Path | SampleFile,
    *,
    losses: tuple[Sequence[str], Sequence[str], Sequence[str]] = ((), (), ()),
    torch_step: str | None = None,
    optimizers: tuple[str | None, str | None, str | None] = (None, None, None),
    inputs: Sequence[str] = (),
    targets: Sequence[str] = (),
    sample_weights: str | None = None,
    divide_by: float = 1.0,
    image_size: Sequence[int] | None = None,
    steps: int = 50,
    global_batch: int = 32,
    **rest: Any,
) -> PairRequest:
    """What a person asks, from the texts of flags, checked.

    Args:
        keras, torch: the models.
        data: what `SampleFile.of` takes with inputs, targets, sample_weights, divide_by and image_size; or what it gave.
        losses: of both sides; Keras's own; torch's own: see `parsed_losses`.
        torch_step: a training step of torch's, which gives the loss beside a Keras model's train_step.
        optimizers: of both sides; Keras's own; torch's own.
        steps, global_batch, rest: fields of PairRequest.

    Raises:
        SpecError: something cannot be, or does not go together.
    """
    check_least(1, steps=steps, global_batch=global_batch)
    if not divide_by > 0:
        raise SpecError(f"--divide-by must be above 0, received {divide_by:g}")
    ours, *own = optimizers
    if (own[0] is None) != (own[1] is None):
        given, lacking = ("keras", "torch") if own[1] is None else ("torch", "keras")
        raise SpecError(f"--{given}-optimizer is given alone; give --{lacking}-optimizer, too")
    if own[0] is not None and ours is not None:
        raise SpecError("--optimizer would be used on both sides, and each has its own already; leave it out")
    # A Keras model that knows its loss, and torch's, which takes what the model gives.
    others = losses[0] or losses[1] or torch_step is not None
    alone = len(losses[2]) == 1 and not others and "=" not in losses[2][0]
    step = losses[2][0] if alone else torch_step
    loss = parsed_losses(*losses) if step is None else steps_of(keras, step, losses, of_outputs=alone)
    if not isinstance(data, SampleFile):
        data = SampleFile.of(
            data,
            inputs,
            targets,
            divide_by,
            sample_weights,
            named_outputs(loss),
            with_targets=step is None,
            image_size=image_size,
            most=steps * global_batch,
        )
    return PairRequest(
        keras=keras,
        torch=torch,
        data=data,
        loss=loss,
        optimizer=None if own[0] else parsed_optimizer(ours or "sgd,learning_rate=0.01"),
        optimizers=(Target.of(own[0]), Target.of(own[1])) if own[0] and own[1] else None,
        steps=steps,
        global_batch=global_batch,
        usual_loss=torch_step is None and not any(losses),
        **rest,
    )


def parsed_optimizer(text: str) -> OptimizerBase:
    """An optimizer from 'adam,learning_rate=1e-3'; raises SpecError."""
    optimizer: OptimizerBase = parsed_kind("--optimizer", text, parse_optimizer, OptimizerSpec)
    return optimizer


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
