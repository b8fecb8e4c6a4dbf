"""Data sets as arrays: inputs in canonical layout (HWC), labels as integers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.errors import MissingPackageError, SpecError, how_to_install
from common.spec.data import DataSpec


@dataclass(frozen=True)
class Samples:
    """inputs (N, ...), targets (N, ...) in the spec's types; row i has sample id first_id + i."""

    inputs: NDArray[np.generic]
    targets: NDArray[np.generic]
    first_id: int = 0


def load(spec: DataSpec, dtype: str) -> tuple[Samples, Samples]:
    """The training and the evaluation samples. Raises SpecError where there are too few."""
    inputs, labels = _digits()
    wanted = spec.train_samples + spec.eval_samples
    if wanted > len(labels):
        raise SpecError(
            f"data: train_samples + eval_samples is {wanted}, but {spec.source} has {len(labels)} samples"
        )
    inputs = inputs.astype(dtype)
    cut = spec.train_samples
    return (
        Samples(inputs[:cut], labels[:cut]),
        Samples(inputs[cut:wanted], labels[cut:wanted], first_id=cut),
    )


def _digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """1797 handwritten digits of 8x8 pixels, scaled from 0..16 to 0..1 (exact in binary)."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MissingPackageError(f"the digits need scikit-learn; {how_to_install('tf,torch')}") from None
    digits = load_digits()
    return digits.images[..., None] / 16.0, digits.target.astype(np.int64)
