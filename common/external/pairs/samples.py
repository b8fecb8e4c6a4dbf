"""Samples of `parity pair` in other forms than an .npz file, made one: read or decoded once, the same numbers for both sides."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from parity.common.base.errors import SpecError
from parity.common.data.images import first_size, open_folder
from parity.common.data.samples import Reordered
from parity.common.data.tables import parquet_arrays
from parity.common.external.process.pass_result import Array
from parity.common.spec.sources import ImageFolder


def arrays_of(path: Path, image_size: Sequence[int] | None = None) -> dict[str, Array]:
    """Return all samples of a Parquet file (its columns), or of a folder of pictures (x and y), (samples, ...) each.

    Args:
        path: of either.
        image_size: height and width that pictures are scaled and cut to; None: those of the first.

    Raises:
        SpecError: it is neither, or cannot be read.
        MissingPackageError: what reads it is not installed.
    """
    if path.is_dir():
        size = tuple(image_size) if image_size is not None else first_size(path)
        source = open_folder(ImageFolder.parse({"path": str(path.resolve()), "size": list(size)})).train
        # By class they would be no batches.
        rows = Reordered(source, 0)
        inputs, targets = rows.rows(np.arange(rows.size or 0))
        return {"x": inputs, "y": targets}
    if path.suffix == ".parquet":
        # Dates and the like are no samples, and are no arrays without pickle.
        return {name: each for name, each in parquet_arrays(path).items() if each.dtype.kind != "O"}
    raise SpecError(
        f"--data {path}: there is no reader for it; give an .npz or .parquet file, or a folder with a sub-folder of"
        " pictures for each class"
    )


def as_npz(path: Path, image_size: Sequence[int] | None = None) -> Path:
    """Return the path of a new temporary .npz file with what `arrays_of` gives; the caller moves it where it belongs."""
    arrays = arrays_of(path, image_size)
    folder = Path(tempfile.mkdtemp(prefix="parity-pair-"))
    np.savez(folder / "data.npz", **arrays)  # type: ignore[arg-type]
    return folder / "data.npz"
