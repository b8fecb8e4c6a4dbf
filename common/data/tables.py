"""Tables: those that scikit-learn ships, CSV and Parquet. Held in memory."""

from __future__ import annotations

import csv
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from parity.common.base.errors import MissingPackageError, SpecError, how_to_install
from parity.common.data.files import files_of_one
from parity.common.data.samples import Array, Dataset, Stored
from parity.common.spec import sources as spec

Column = Sequence[Any]
Table = dict[str, Column]


# scikit-learn's.


@functools.lru_cache(maxsize=1)
def shipped(kind: str) -> tuple[Array, Array]:
    """Return inputs (samples, columns) and targets (samples,) of a data set that scikit-learn ships.

    Raises:
        MissingPackageError: scikit-learn is not installed.
    """
    try:
        import sklearn.datasets
    except ImportError:
        raise MissingPackageError(f"{kind} needs scikit-learn; {how_to_install('data')}") from None
    bunch = getattr(sklearn.datasets, f"load_{kind}")()
    if kind == "digits":
        # From 0..16 to 0..1, exact in binary.
        return bunch.images[..., None] / 16.0, bunch.target.astype(np.int64)
    classes = kind != "diabetes"
    return bunch.data, bunch.target.astype(np.int64) if classes else bunch.target[:, None].astype(np.float64)


def open_digits(source: spec.Digits) -> Dataset:
    inputs, targets = shipped("digits")
    return Dataset(Stored(inputs, None if source.target == "input" else targets))


def open_shipped(source: spec.ShippedTable) -> Dataset:
    inputs, targets = shipped(source.kind)
    numbers = np.ones(inputs.shape[1], bool) if source.standardise else None
    return Dataset(Stored(inputs, targets), number_columns=numbers)


# Files.


def open_table(source: spec.TableFile) -> Dataset:
    paths = list(files_of_one(source).values())
    targets = (source.target,) if isinstance(source.target, str) else source.target
    wanted = list(dict.fromkeys((*source.inputs, *targets)))
    read = _read_csv if isinstance(source, spec.Csv) else _read_parquet
    tables = [read(source, path, wanted) for path in paths]
    coded = {*source.categorical, *(targets if source.target_kind == "classes" else ())}
    columns: dict[str, list[Array]] = {}
    for name in wanted:
        values = [table[name] for table in tables]
        numbers = (_numbers(p, name, v) for p, v in zip(paths, values, strict=True))
        columns[name] = _codes(values) if name in coded else list(numbers)
    opened = []
    for part in range(len(tables)):
        inputs = np.stack([columns[name][part].astype(np.float64) for name in source.inputs], 1)
        wanted_targets = [columns[name][part] for name in targets]
        classes = source.target_kind == "classes"
        opened.append(Stored(inputs, wanted_targets[0] if classes else np.stack(wanted_targets, 1)))
    number_columns = np.array([name not in source.categorical for name in source.inputs])
    return Dataset(*opened, number_columns=number_columns if source.standardise else None)


def _read_csv(source: spec.TableFile, path: Path, wanted: list[str]) -> Table:
    assert isinstance(source, spec.Csv)
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=source.delimiter, strict=True)
            names = next(reader, [])
            places = [_place(path, names, name) for name in wanted]
            columns: list[list[str]] = [[] for _ in wanted]
            for row in reader:
                if not row:
                    continue
                if len(row) != len(names):
                    raise SpecError(
                        f"data: {path}, line {reader.line_num}: {len(row)} fields under {len(names)} names"
                    )
                for column, place in zip(columns, places, strict=True):
                    column.append(row[place])
    except OSError as error:
        raise SpecError(f"data: {path} cannot be read: {error.strerror or error}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise SpecError(f"data: {path} is no CSV text: {error}") from None
    return dict(zip(wanted, columns, strict=True))


def _place(path: Path, names: Sequence[str], name: str) -> int:
    if name not in names:
        shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
        raise SpecError(f"data: {path} has no column {name!r}; it has {shown or 'none'}")
    return list(names).index(name)


def parquet_arrays(path: Path) -> dict[str, Array]:
    """Return every column of a Parquet file as an array (rows, ...); lists of equal lengths have an axis each.

    Raises:
        MissingPackageError: pyarrow is not installed.
        SpecError: it is no such file, a value is missing, or lists of a column have several lengths.
    """
    found = {}
    for name, values in _read_parquet(None, path, None).items():
        try:
            found[name] = np.array(values)
        except ValueError:
            raise SpecError(
                f"data: {path}: the lists of column {name!r} have several lengths; pad them to one"
            ) from None
    return found


def _read_parquet(source: spec.TableFile | None, path: Path, wanted: list[str] | None) -> Table:
    """The columns that are wanted, None: all."""
    del source
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingPackageError(f"{path.name}: Parquet needs pyarrow; {how_to_install('data')}") from None
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            wanted = names if wanted is None else wanted
            for name in wanted:
                _place(path, names, name)
            table = file.read(columns=wanted)
    except (pyarrow.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise SpecError(f"data: {path} is no Parquet file, or it is cut short: {reason[:200]}") from None
    for name in wanted:
        if table.column(name).null_count:
            raise SpecError(
                f"data: {path}: column {name!r} has {table.column(name).null_count} missing values"
            )
    return {name: table.column(name).to_pylist() for name in wanted}


def _numbers(path: Path, name: str, values: Column) -> Array:
    found = []
    for row, value in enumerate(values):
        try:
            found.append(float(value))
        except (TypeError, ValueError):
            raise SpecError(
                f"data: {path}: column {name!r}, row {row + 1}: {str(value)[:40]!r} is no number;"
                " name it in categorical?"
            ) from None
    numbers = np.array(found, np.float64)
    if not np.isfinite(numbers).all():
        row = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise SpecError(f"data: {path}: column {name!r}, row {row + 1}: {numbers[row]} is not finite")
    return numbers


def _codes(columns: list[Column]) -> list[Array]:
    """Codes of values by their sorted order over all columns: as numbers where all are whole, else as text."""
    texts = [[str(value) for value in column] for column in columns]
    distinct = {text for column in texts for text in column}
    whole = all(text.strip().lstrip("+-").isdecimal() for text in distinct)
    order = sorted(distinct, key=lambda text: (int(text), text)) if whole else sorted(distinct)
    code = {text: number for number, text in enumerate(order)}
    return [np.array([code[text] for text in column], np.int64) for column in texts]
