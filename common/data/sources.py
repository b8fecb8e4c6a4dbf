"""A run's samples, from its spec."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from parity.common.base.errors import SpecError
from parity.common.data import arrays, images, tables
from parity.common.data.augment import Draws, augmented
from parity.common.data.files import check_pin, files_of_one, hash_of_arrays, hash_of_files
from parity.common.data.samples import (
    Array,
    Arrays,
    Change,
    Dataset,
    Fetch,
    Ids,
    Reordered,
    Rows,
    Samples,
    Source,
    Standardised,
    are_whole,
)
from parity.common.data.synthetic import SyntheticSource
from parity.common.spec import sources as spec
from parity.common.spec.data import DataSpec
from parity.common.spec.losses import LossBase, unknown_class
from parity.common.spec.train import TrainSpec

# Samples in memory are converted at once where that takes no more bytes, else batch by batch.
_CONVERT_AT_ONCE = 1 << 27

# What opens a source of each kind; and what names its files, where it has any.
_Files = Callable[[Any], dict[str, Path]]
_KINDS: dict[type[Any], tuple[Callable[[Any], Dataset], _Files | None]] = {
    spec.Digits: (tables.open_digits, None),
    spec.Iris: (tables.open_shipped, None),
    spec.Wine: (tables.open_shipped, None),
    spec.BreastCancer: (tables.open_shipped, None),
    spec.Diabetes: (tables.open_shipped, None),
    spec.MnistIdx: (images.open_idx, images.files_of_idx),
    spec.Cifar10: (images.open_cifar, images.files_of_cifar),
    spec.Cifar100: (images.open_cifar, images.files_of_cifar),
    spec.ImageFolder: (images.open_folder, images.files_of_folder),
    spec.Npy: (arrays.open_npy, arrays.files_of_npy),
    spec.Npz: (arrays.open_npz, files_of_one),
    spec.Csv: (tables.open_table, files_of_one),
    spec.Parquet: (tables.open_table, files_of_one),
    spec.Tokens: (arrays.open_tokens, files_of_one),
    spec.Synthetic: (lambda source: Dataset(SyntheticSource(source)), None),
}


def load(spec: DataSpec, dtype: str, seed: int = 0) -> tuple[Samples, Samples]:
    """The training and the evaluation samples, numbers in `dtype`, for no model in particular.

    Raises SpecError where files are missing or damaged, or samples too few.
    """
    return _load(spec, seed, _Conversion(dtype), lambda part: (_again, (load, part, spec, dtype, seed)))


def load_for(spec: TrainSpec) -> tuple[Samples, Samples]:
    """The training and the evaluation samples of a run, in the types and shapes of its model and loss.

    Raises SpecError where files are missing or damaged, samples too few, or shapes do not suit.
    """
    samples = _load(spec.data, spec.seed, _Conversion.of(spec), lambda part: (_again, (load_for, part, spec)))
    for part in samples:
        inputs, _ = part.rows(np.arange(0))
        if inputs.shape[1:] != spec.model.input_shape:
            raise SpecError(
                f"data: {spec.data.source.kind} has inputs of shape {inputs.shape[1:]},"
                f" the model takes {spec.model.input_shape}"
            )
    return samples


def first_inputs(spec: TrainSpec, count: int) -> Array:
    """Return the inputs of a run's first samples, (count, ...): what a user's code takes. Zeros where the data are not here.

    Unlike real rows, zeros may be what it refuses, such as a sequence without a token.
    """
    try:
        samples, _ = load_for(spec)
    except SpecError:
        return np.zeros((count, *spec.model.input_shape), spec.input_dtype)
    inputs, _ = samples.rows(np.arange(count) % spec.data.train_samples)
    return inputs


def data_hash(data: DataSpec) -> str | None:
    """A hash of what the samples are made from: files or shipped arrays; None where the spec says it all.

    Raises SpecError where the spec pins another one.
    """
    source = data.source
    _, files_of = _KINDS[type(source)]
    if files_of is not None:
        files = files_of(source)
        digest = hash_of_files(files)
        check_pin(getattr(source, "sha256", None), digest, files)
        return digest
    return None if isinstance(source, spec.Synthetic) else hash_of_arrays(tables.shipped(source.kind))


def _again(loaded: Callable[..., tuple[Samples, Samples]], part: int, *arguments: Any) -> Samples:
    return loaded(*arguments)[part]


def _load(
    data: DataSpec, seed: int, convert: _Conversion, reopen: Callable[[int], Any]
) -> tuple[Samples, Samples]:
    opens, _ = _KINDS[type(data.source)]
    dataset = opens(data.source)
    permute_seed = getattr(data.source, "permute_seed", None)
    train = dataset.train if permute_seed is None else Reordered(dataset.train, permute_seed)
    _check_counts(data, train, dataset.test)
    test, count = train if dataset.test is None else dataset.test, data.train_samples
    if dataset.number_columns is not None:
        statistics = _statistics(train, count, dataset.number_columns)
        train, test = Standardised(train, *statistics), Standardised(test, *statistics)
    begin = count if dataset.test is None else 0
    return (
        _made(train, (count, 0, 0), data, _change(data, seed, True, convert), reopen(0)),
        _made(test, (data.eval_samples, count, begin), data, _change(data, seed, False, convert), reopen(1)),
    )


def _check_counts(data: DataSpec, train: Source, test: Source | None) -> None:
    counts, which = {"train_samples": data.train_samples, "eval_samples": data.eval_samples}, " for it"
    if test is None:
        counts, which = {" + ".join(counts): sum(counts.values())}, ""
    for (name, expected), source in zip(counts.items(), (train, test), strict=False):
        if source is not None and source.size is not None and expected > source.size:
            has = f"{data.source.kind} has {source.size} samples{which}"
            raise SpecError(f"data: {name} is {expected}, but {has}")


def _statistics(train: Source, count: int, columns: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of the number columns over the training samples; 0 and 1 of others."""
    inputs, _ = train.rows(np.arange(count))
    mean, std = inputs.mean(0), inputs.std(0)
    # A constant's rounding errors are no deviation.
    varies = columns & (std > 1e-12 * np.abs(mean))
    return np.where(columns, mean, 0.0), np.where(varies, std, 1.0)


def _change(data: DataSpec, seed: int, training: bool, convert: _Conversion) -> Change:
    def change(fetch: Fetch, ids: Ids, epoch: int) -> Rows:
        if not data.augment:
            return convert(fetch(ids))
        draws = Draws(seed, 0, ids, epoch if training else 0, training)
        return convert(augmented(data, draws, convert.mixable, fetch))

    return change


def _made(
    source: Source, place: tuple[int, int, int], data: DataSpec, change: Change, reopen: Any
) -> Samples:
    """Samples of a source at a place: how many, the first one's id, its position."""
    count, first_id, first_position = place
    samples = Samples(source, count, first_id, first_position, change, reopen)
    if data.augment or not source.in_memory or count > _CONVERT_AT_ONCE // 8:
        return samples
    inputs, targets = samples.rows(np.arange(first_id, first_id + min(count, 1)))
    if count * (inputs.nbytes + targets.nbytes) > _CONVERT_AT_ONCE:
        return samples
    converted = Arrays(*samples.rows(np.arange(first_id, first_id + count)))
    return Samples(converted, count, first_id, reopen=reopen)


@dataclass(frozen=True)
class _Conversion:
    """Rows in the types of a run, and where a model is known, targets in its loss's shape."""

    dtype: str
    tokens: bool | None = None
    target_dtype: str = ""
    target_shape: tuple[int, ...] = ()
    loss: LossBase | None = None
    classes: int = 0

    @classmethod
    def of(cls, spec: TrainSpec) -> _Conversion:
        tokens = spec.model.inputs == "tokens"
        outputs = spec.model.output_shape()
        classes = outputs[-1] if outputs else 0
        return cls(spec.master_dtype, tokens, spec.target_dtype, spec.target_shape, spec.loss, classes)

    def __call__(self, rows: Rows) -> Rows:
        inputs, targets = rows
        if self.tokens is None:
            return self._plain(inputs), self._plain(targets)
        if self.tokens and inputs.dtype.kind == "f":
            raise SpecError("data: the model takes tokens, but the inputs are not whole numbers")
        return inputs.astype("int64" if self.tokens else self.dtype, copy=False), self._target(targets)

    def _plain(self, values: Array) -> Array:
        return values.astype(self.dtype if values.dtype.kind == "f" else "int64", copy=False)

    def _target(self, targets: Array) -> Array:
        if self.target_dtype == "int64" and targets.dtype.kind == "f" and not are_whole(targets):
            raise SpecError("data: the loss takes classes, but the targets are not whole numbers")
        targets = self._shaped(targets)
        if targets.shape[1:] != self.target_shape:
            raise SpecError(
                f"data: targets have shape {targets.shape[1:]}, model and loss expect {self.target_shape}"
            )
        targets = targets.astype(self.target_dtype, copy=False)
        if self.loss is not None:
            _refuse_class(self.loss.unknown_class(targets, self.classes), self.classes)
        return targets

    def _shaped(self, targets: Array) -> Array:
        """Classes as distributions where the loss has an axis for them; a lone last axis as it needs it."""
        shape = targets.shape[1:]
        if shape == (*self.target_shape, 1):
            return targets[..., 0]
        if self.target_dtype == "int64" or shape == self.target_shape:
            return targets
        if targets.dtype.kind == "i" and self.target_shape[:-1] == shape and self.target_shape[-1] > 1:
            return _one_hot(targets, self.target_shape[-1])
        return targets[..., None] if (*shape, 1) == self.target_shape else targets

    def mixable(self, targets: Array) -> Array:
        """Targets in float64, classes as distributions."""
        if self.tokens is None and targets.dtype.kind != "f":
            raise SpecError("data.augment: mixup of classes needs a loss that says how many there are")
        return targets.astype(np.float64) if self.tokens is None else self._shaped(targets).astype(np.float64)


def _refuse_class(unknown: int | None, classes: int) -> None:
    if unknown is not None:
        raise SpecError(f"data: a target is class {unknown}, the model ends in {classes} classes")


def _one_hot(labels: Array, classes: int) -> Array:
    _refuse_class(unknown_class(labels, classes), classes)
    hot: Array = (labels[..., None] == np.arange(classes)).astype(np.float64)
    return hot
