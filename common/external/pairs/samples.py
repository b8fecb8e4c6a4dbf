"""Samples of `parity pair` in other forms than an .npz file, made one: read, decoded or drawn once, the same numbers for both sides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from parity.common.base.errors import ExternalModelError, SpecError
from parity.common.base.plain import print_error
from parity.common.base.scratch import make_scratch
from parity.common.data.images import first_size, open_folder
from parity.common.data.samples import Reordered
from parity.common.data.tables import parquet_arrays
from parity.common.external.process.batches import batches_of
from parity.common.external.process.pass_result import Array
from parity.common.spec.external.target import Target
from parity.common.spec.sources import ImageFolder


def gives_batches(path: Path) -> bool:
    """Whether it is no file but names what gives batches."""
    return _target(path) is not None


def is_other(path: Path) -> bool:
    """Whether samples are named that are in no .npz file."""
    return path.is_dir() or path.suffix == ".parquet" or gives_batches(path)


def arrays_of(path: Path, most: int, image_size: Sequence[int] | None = None) -> dict[str, Array]:
    """Return the samples of a Parquet file (its columns), a folder of pictures (x and y), or what gives batches, (samples, ...) each.

    Args:
        path: of a file or folder, or package.module:attribute.
        most: how many are taken of batches.
        image_size: height and width that pictures are scaled and cut to; None: those of the first.

    Raises:
        SpecError: it is none of these, or cannot be read.
        ExternalModelError: of batches, see `batches_of`.
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
    target = _target(path)
    if target is not None:
        arrays, moved = batches_of(target, most)
        if moved:
            print_error(
                f"{target}: {', '.join(moved)} with the channels moved from the second axis to the last"
            )
        return arrays
    raise SpecError(
        f"--data {path}: there is no reader for it; give an .npz or .parquet file, a folder with a sub-folder of"
        " pictures for each class, or package.module:attribute of what gives batches"
    )


def as_npz(path: Path, most: int, image_size: Sequence[int] | None = None) -> Path:
    """Return the path of a new .npz file with what `arrays_of` gives; it is there until this process ends."""
    arrays = arrays_of(path, most, image_size)
    made = make_scratch("pair-") / "data.npz"
    np.savez(made, **arrays)  # type: ignore[arg-type]
    return made


def _target(path: Path) -> Target | None:
    try:
        return None if path.exists() else Target.of(str(path))
    except ExternalModelError:
        return None
