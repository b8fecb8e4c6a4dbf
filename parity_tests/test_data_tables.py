"""Tables: shipped, CSV and Parquet, and one line for each way they can be wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.common.base.errors import SpecError
from parity.common.spec.data import DataSpec
from parity_tests.helpers.records import one_line
from parity_tests.helpers.sample_files import NAMES, ROWS, SHIPPED, TABLE, everything, opened, table

# What scikit-learn ships.


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_table_is_mixed_and_standardised_by_its_training_samples(name: str) -> None:
    size, columns, classes = SHIPPED[name]
    train, evaluated = opened({"kind": name}, size - 50, 50)
    inputs, targets = everything(train)
    others, _ = everything(evaluated)
    assert inputs.shape == (size - 50, columns) and others.shape == (50, columns)
    assert np.abs(inputs.mean(0)).max() < 1e-12 and np.abs(inputs.std(0) - 1).max() < 1e-12
    assert np.abs(others.mean(0)).max() > 0.01, "statistics of the training samples only"
    if classes:
        assert targets.dtype == np.int64 and set(targets.tolist()) == set(range(classes))
        assert np.bincount(targets).min() > 20, "sorted by class in the file"
    else:
        assert targets.shape == (size - 50, 1) and targets.dtype == np.float64
    raw, _ = everything(opened({"kind": name, "standardise": False}, size)[0])
    in_order, _ = everything(opened({"kind": name, "standardise": False, "permute_seed": None}, size)[0])
    assert not np.array_equal(raw, in_order)
    assert np.array_equal(np.sort(raw, 0), np.sort(in_order, 0))


def test_the_digits_are_as_they_were() -> None:
    train, evaluated = opened({"kind": "digits"}, 37, 5, "float32")
    inputs, targets = everything(train)
    assert inputs.shape == (37, 8, 8, 1) and inputs.dtype == np.float32 and targets.dtype == np.int64
    assert targets[:10].tolist() == list(range(10)) and evaluated.first_id == 37 and len(evaluated) == 5
    again, _ = train.rows(np.array([3, 1]))
    assert np.array_equal(again, inputs[[3, 1]])
    copies = everything(opened({"kind": "digits", "target": "input"}, 9)[0])
    assert np.array_equal(*copies)
    assert (
        DataSpec.parse({"source": "digits"}) == DataSpec.parse({"source": {"kind": "digits"}}) == DataSpec()
    )


def test_too_few_samples() -> None:
    with pytest.raises(SpecError, match="eval_samples is 160, but iris has 150 samples"):
        opened({"kind": "iris"}, 100, 60)


# Tables.


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_tables(tmp_path: Path, kind: str) -> None:
    source = table(kind, tmp_path / "table")
    inputs, targets = everything(opened(source, 4)[0])
    # -1, 9, 10 as numbers; blue, red and "red, dark" as text; maybe, no, yes.
    assert inputs.tolist() == [[1.5, 2, 1], [-2, 1, 0], [1000, 2, 2], [0, 0, 0]]
    assert targets.tolist() == [2, 1, 2, 0] and targets.dtype == np.int64
    values = {
        **source,
        "target": ["price", "size"],
        "target_kind": "values",
        "inputs": ["size"],
        "categorical": [],
    }
    assert everything(opened(values, 4)[0])[1].tolist() == [[0.1, 1.5], [0.2, -2], [0.3, 1000], [0.4, 0]]
    alone = everything(opened({**values, "target": "price"}, 4)[0])[1]
    assert alone.shape == (4, 1)
    scaled, _ = opened({**source, "standardise": True}, 2, 2)
    inputs, _ = everything(scaled)
    assert inputs[:, 0].tolist() == [1, -1] and inputs[:, 1:].tolist() == [[2, 1], [1, 0]]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_codes_are_those_of_both_files(tmp_path: Path, kind: str) -> None:
    source = table(kind, tmp_path / "train", ROWS[:2])
    table(kind, tmp_path / "test", ROWS[2:])
    train, test = opened({**source, "test_path": str(tmp_path / "test")}, 2, 2)
    assert everything(train)[0].tolist() == [[1.5, 2, 1], [-2, 1, 0]]
    assert everything(test)[0].tolist() == [[1000, 2, 2], [0, 0, 0]]
    assert everything(test)[1].tolist() == [2, 0]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_broken_tables(tmp_path: Path, kind: str) -> None:
    source = table(kind, tmp_path / "table")

    def refused(words: str, **fields: Any) -> None:
        with pytest.raises(SpecError, match=words) as error:
            opened({**source, **fields}, 1)
        one_line(error.value)

    refused(
        "has no column 'weight'; it has size, colour, grade, sold, price", inputs=["weight"], categorical=[]
    )
    refused("column 'colour', row 1: 'red' is no number; name it in categorical", categorical=[])
    refused("table.x is missing", path=str(tmp_path / "table.x"))
    refused("names 'price', which is not among inputs", categorical=["price"])
    refused("several columns; classes need one", target=["sold", "price"])
    refused("names a column twice", inputs=["size", "size"], categorical=[])
    whole = (tmp_path / "table").read_bytes()
    (tmp_path / "table").write_bytes(whole[:-10])
    refused("line 5: 4 fields under 5 names" if kind == "csv" else "no Parquet file, or it is cut short")
    (tmp_path / "table").write_bytes(b"\xff\xfe\x00")
    refused("no CSV text|no Parquet file")
    (tmp_path / "table").write_bytes(b"")
    refused("it has none|no Parquet file")


def test_a_number_must_be_one(tmp_path: Path) -> None:
    rows = [*ROWS[:3], ("nan", *ROWS[3][1:])]
    with pytest.raises(SpecError, match="column 'size', row 4: nan is not finite"):
        opened(table("csv", tmp_path / "table", rows), 1)
    pyarrow = pytest.importorskip("pyarrow")
    holes = pyarrow.table({**{name: ["1", "2"] for name in NAMES}, "sold": ["yes", None]})
    pytest.importorskip("pyarrow.parquet").write_table(holes, tmp_path / "holes")
    source = {"kind": "parquet", "path": str(tmp_path / "holes"), **TABLE}
    with pytest.raises(SpecError, match="column 'sold' has 1 missing values"):
        opened(source, 1)
