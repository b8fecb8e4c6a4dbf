"""What a test gives an assertion, checked and made into what `parity pair` takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from parity.common.base.errors import SpecError
from parity.common.external.pairs.request import PairRequest, SampleFile, requested
from parity.common.external.process.naming import target_of

Array = NDArray[Any]
Inputs = Array | Sequence[Array] | Mapping[str, Array] | str | Path

SAMPLES = "samples.npz"
_TARGETS = "targets"


@dataclass(frozen=True)
class Tolerance:
    """How far tensors may be apart, relative to the largest element; in which precision; and why so far."""

    limit: float
    precision: Literal["float64", "float32"]
    reason: str


TOLERANCES = {
    "exact": Tolerance(1e-10, "float64", "sums in another order, in float64"),
    "keras_constants": Tolerance(
        1e-7,
        "float64",
        "as exact, but for what a framework computes in float32 by itself, as resizing does",
    ),
    "float32": Tolerance(1e-4, "float32", "sums in another order, in float32, through some dozens of layers"),
}


def tolerance_of(name: str) -> Tolerance:
    """One of TOLERANCES; raises SpecError with their names."""
    if name not in TOLERANCES:
        known = ", ".join(f"{key!r} ({value.limit:g})" for key, value in TOLERANCES.items())
        raise SpecError(f"tolerance is one of {known}; received {name!r}")
    return TOLERANCES[name]


def named(inputs: Inputs) -> dict[str, Array]:
    """Arrays by name: of Keras's inputs, or of their places."""
    if isinstance(inputs, str | Path):
        sample = SampleFile.of(Path(inputs), with_targets=False)
        return sample.rows(0, sample.samples).inputs
    if isinstance(inputs, Mapping):
        named = {str(name): np.asarray(array) for name, array in inputs.items()}
    elif isinstance(inputs, list | tuple) and inputs and all(hasattr(each, "shape") for each in inputs):
        named = {f"input_{number}": np.asarray(array) for number, array in enumerate(inputs)}
    else:
        named = {"x": np.asarray(inputs)}
    for name, array in named.items():
        if array.dtype.kind not in "biuf" or not array.ndim or not len(array):
            raise SpecError(
                f"inputs: {name} is of type {array.dtype} and shape {array.shape}; give numbers, one row a sample"
            )
    return named


def forward_asked(keras: Any, torch: Any, arrays: dict[str, Array], path: Path, **rest: Any) -> PairRequest:
    """A pair of which only the forward pass is asked; its samples are written to `path`. rest: fields of PairRequest."""
    rows = len(next(iter(arrays.values())))
    np.savez(path, **arrays, **{_TARGETS: np.zeros(rows)})  # type: ignore[arg-type]
    data = SampleFile.of(path, tuple(arrays), (_TARGETS,))
    asked = training_asked(
        keras, torch, data, "mean_squared_error", path.parent, steps=1, global_batch=rows, **rest
    )
    return replace(asked, loss=())


def training_asked(
    keras: Any,
    torch: Any,
    data: Path | SampleFile,
    loss: str | Mapping[str, str] | None,
    folder: Path,
    optimizers: tuple[str | None, str | None, str | None] = (None, None, None),
    own_losses: tuple[str | Mapping[str, str] | None, str | Mapping[str, str] | None] = (None, None),
    targets: Sequence[str] = (),
    sample_weights: str | None = None,
    **rest: Any,
) -> PairRequest:
    """A pair that is trained.

    keras, torch: as `target_of` takes them, which writes into `folder`.
    loss: of both, or by output; None: the usual one, or `own_losses`. optimizers: of both, Keras's own, torch's own.
    own_losses: Keras's and torch's, by output where there are several. targets, sample_weights: names of arrays.
    rest: fields of PairRequest.
    """
    return requested(
        target_of(keras, "tensorflow", folder),
        target_of(torch, "torch", folder),
        data,
        losses=(as_flags(loss), as_flags(own_losses[0]), as_flags(own_losses[1])),
        optimizers=optimizers,
        targets=targets,
        sample_weights=sample_weights,
        **rest,
    )


def as_flags(loss: str | Mapping[str, str] | None) -> list[str]:
    """As the flags of `parity pair` have a loss, or one for each output."""
    if isinstance(loss, Mapping):
        return [f"{output}={text}" for output, text in loss.items()]
    return [] if loss is None else [loss]


def written(data: str | Path | Mapping[str, Array], folder: Path) -> Path:
    """The samples as a file, written into `folder` where they are arrays."""
    if isinstance(data, str | Path):
        return Path(data)
    if not isinstance(data, Mapping):
        raise SpecError(f"data is an .npz file, or arrays by name; received a {type(data).__name__}")
    path = folder / SAMPLES
    np.savez(path, **{str(name): np.asarray(array) for name, array in data.items()})  # type: ignore[arg-type]
    return path
