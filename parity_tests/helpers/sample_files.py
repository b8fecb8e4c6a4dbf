"""Small files of samples, one writer a format, and how tests read them back."""

from __future__ import annotations

import gzip
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.common.data import sources
from parity.common.data.samples import Samples
from parity.common.spec.data import DataSpec

RANDOM = np.random.default_rng(0)

# name: rows, columns, classes
SHIPPED = {"iris": (150, 4, 3), "wine": (178, 13, 3), "breast_cancer": (569, 30, 2), "diabetes": (442, 10, 0)}
IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


def opened(
    source: dict[str, Any], train: int, evaluated: int = 0, dtype: str = "float64"
) -> tuple[Samples, Samples]:
    spec = DataSpec.parse({"source": source, "train_samples": train, "eval_samples": evaluated})
    return sources.load(spec, dtype)


def everything(samples: Samples) -> tuple[np.ndarray, np.ndarray]:
    return samples.rows(np.arange(len(samples)) + samples.first_id)


def digest(source: dict[str, Any]) -> str | None:
    return sources.data_hash(DataSpec.parse({"source": source, "train_samples": 1, "eval_samples": 0}))


def write_idx(path: Path, array: np.ndarray, kind: int = 8) -> Path:
    content = struct.pack(f">HBB{array.ndim}I", 0, kind, array.ndim, *array.shape)
    content += array.astype(array.dtype.newbyteorder(">")).tobytes()
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wb") as file:
        file.write(content)
    return path


def mnist(folder: Path, suffix: str = "") -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    folder.mkdir(exist_ok=True)
    arrays = {}
    for part, count in (("train", 9), ("t10k", 4)):
        arrays[part] = RANDOM.integers(0, 256, (count, 5, 4)).astype(np.uint8)
        arrays[f"{part} labels"] = RANDOM.integers(0, 10, count).astype(np.uint8)
        write_idx(folder / f"{part}-images-idx3-ubyte{suffix}", arrays[part])
        write_idx(folder / f"{part}-labels-idx1-ubyte{suffix}", arrays[f"{part} labels"])
    return {"kind": "mnist_idx", "path": str(folder)}, arrays


def cut(path: Path, size: int) -> None:
    os.truncate(path, size)


def cifar(folder: Path, hundred: bool = False) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    folder.mkdir(exist_ok=True)
    names = ["train", "test"] if hundred else [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]
    records = {}
    for number, name in enumerate(names):
        labels = RANDOM.integers(0, 10, (3 + number, 1 + hundred))
        pixels = RANDOM.integers(0, 256, (3 + number, 3072))
        records[name] = np.concatenate([labels, pixels], 1).astype(np.uint8)
        (folder / f"{name}.bin").write_bytes(records[name].tobytes())
    return {"kind": "cifar100" if hundred else "cifar10", "path": str(folder)}, records


def pictures(folder: Path) -> dict[str, Any]:
    image = pytest.importorskip("PIL.Image")
    for name, colours in (("cat", [10, 20, 30]), ("ant", [200]), ("bee", [90, 60])):
        (folder / name / "deeper").mkdir(parents=True)
        for number, colour in enumerate(colours):
            place = folder / name / ("deeper" if number == 1 else "") / f"{9 - number}.png"
            image.new("RGB", (8 + number, 6), (colour, 0, 255 - colour)).save(place)
        (folder / name / "notes.txt").write_text("no picture")
    (folder / ".hidden").mkdir()
    return {"kind": "image_folder", "path": str(folder), "size": [4, 5], "permute_seed": None}


ROWS = [
    ("1.5", "red", "10", "yes", "0.1"),
    ("-2", "blue", "9", "no", "0.2"),
    ("1e3", "red, dark", "10", "yes", "0.3"),
    ("0", "blue", "-1", "maybe", "0.4"),
]
NAMES = ["size", "colour", "grade", "sold", "price"]
TABLE = {"inputs": ["size", "grade", "colour"], "categorical": ["colour", "grade"], "target": "sold"}


def table(kind: str, path: Path, rows: list[tuple[str, ...]] = ROWS) -> dict[str, Any]:
    if kind == "csv":
        lines = [
            ",".join(f'"{cell}"' if "," in cell else cell for cell in row) for row in [tuple(NAMES), *rows]
        ]
        path.write_text("\n".join(lines) + "\n")
    else:
        pyarrow = pytest.importorskip("pyarrow")
        size, colour, grade, sold, price = zip(*rows, strict=True)
        columns = [
            list(map(float, size)),
            list(colour),
            list(map(int, grade)),
            list(sold),
            list(map(float, price)),
        ]
        pytest.importorskip("pyarrow.parquet").write_table(
            pyarrow.table(dict(zip(NAMES, columns, strict=True))), path, row_group_size=2
        )
    return {"kind": kind, "path": str(path), **TABLE}
