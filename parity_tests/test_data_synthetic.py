"""Synthetic samples: a function of the id alone, with a rule that can be learnt."""

from __future__ import annotations

import hashlib
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parity.common.base.errors import SpecError
from parity.common.data import sources
from parity.common.data.samples import Samples
from parity.common.spec.data import DataSpec
from parity_tests.helpers.records import one_line

FEW = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
IMAGES = {"shape": [8, 9, 3], "classes": 5}
SOURCES: dict[str, dict[str, Any]] = {
    "images": IMAGES,
    "copies": {**IMAGES, "target": "input", "low": 0.0},
    "masks": {**IMAGES, "target": "masks"},
    "vectors": {"shape": [11], "classes": 3},
    "sequences": {"shape": [6, 4], "classes": 3},
    "numbers": {"shape": [9], "target": "values", "values": 2},
    "table": {"shape": [7], "categories": [3, 9], "classes": 2},
    "table of numbers": {"shape": [7], "categories": [3, 9], "target": "values"},
    "language": {"shape": [20], "vocabulary": 30, "target": "next"},
    "texts": {"shape": [20], "vocabulary": 30, "classes": 4, "pad_id": 0, "shortest": 5},
    "tags": {
        "shape": [20],
        "vocabulary": 30,
        "target": "tags",
        "classes": 6,
        "pad_id": 29,
        "pad_target": -100,
    },
    "masked": {"shape": [20], "vocabulary": 30, "target": "input"},
}
# Of the first eight training samples: they are the same on every machine.
HASHES = {
    "images": "93fff650ee3a",
    "copies": "49d92cd56504",
    "masks": "f57c914772fe",
    "vectors": "acc5a743b5b4",
    "sequences": "980664340493",
    "numbers": "eb4808d033cb",
    "table": "1a0ffffcf095",
    "table of numbers": "fd6141719dfc",
    "language": "c09ca7420995",
    "texts": "e5e0008ecb06",
    "tags": "051777b7768c",
    "masked": "a1a8d233d300",
}


def samples_of(fields: dict[str, Any], count: int = 1000, dtype: str = "float64") -> Samples:
    source = {"kind": "synthetic", **fields}
    spec = DataSpec.parse({"source": source, "train_samples": count, "eval_samples": 10})
    return sources.load(spec, dtype)[0]


def rows_of(fields: dict[str, Any], count: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    return samples_of(fields, count).rows(np.arange(count))


@pytest.mark.parametrize("name", SOURCES)
@given(ids=st.lists(st.integers(0, 2**62), max_size=9, unique=True))
@FEW
def test_a_sample_depends_on_its_id_alone(name: str, ids: list[int]) -> None:
    samples = samples_of(SOURCES[name])
    inputs, targets = samples.rows(np.array(ids, np.int64))
    assert inputs.shape == (len(ids), *SOURCES[name]["shape"]) and len(targets) == len(ids)
    for row, sample in enumerate(ids):
        one, target = samples.rows(np.array([sample]), epoch=7)
        assert np.array_equal(one[0], inputs[row]) and np.array_equal(target[0], targets[row])


@pytest.mark.parametrize("name", SOURCES)
def test_samples_are_the_same_on_every_machine(name: str) -> None:
    arrays = rows_of(SOURCES[name], 8)
    assert all(array.dtype in (np.float64, np.int64) for array in arrays)
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()
    assert digest[:12] == HASHES[name]


@pytest.mark.parametrize("name", SOURCES)
def test_samples_and_seeds_differ(name: str) -> None:
    inputs, _ = rows_of(SOURCES[name], 50)
    assert len({row.tobytes() for row in inputs}) == 50
    assert not np.array_equal(inputs, rows_of({**SOURCES[name], "seed": 1}, 50)[0])


def test_evaluation_continues_the_training_samples() -> None:
    spec = DataSpec.parse(
        {"source": {"kind": "synthetic", **IMAGES}, "train_samples": 30, "eval_samples": 10}
    )
    _, evaluated = sources.load(spec, "float64")
    assert len(evaluated) == 10 and evaluated.first_id == 30
    ids = np.arange(30, 40)
    assert all(map(np.array_equal, evaluated.rows(ids), samples_of(IMAGES).rows(ids)))


def test_numbers_lie_in_their_range_and_in_the_runs_type() -> None:
    inputs, targets = samples_of({**IMAGES, "low": 2.0, "high": 3.0}, dtype="float32").rows(np.arange(100))
    assert inputs.dtype == np.float32 and targets.dtype == np.int64
    assert inputs.min() >= 2.0 and inputs.max() <= 3.0 and inputs.std() > 0.1


def test_the_huge_are_lazy() -> None:
    samples = samples_of({"shape": [4], "classes": 2}, 10**15)
    tracemalloc.start()
    try:
        samples.rows(np.array([10**15 - 1, 0]))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**20


# What is to be learnt. Each is also asked of shuffled targets, where nothing is to be found.


def accuracy_of_nearest(inputs: np.ndarray, labels: np.ndarray) -> float:
    """Of the nearest class mean of the first half, on the second."""
    flat = inputs.reshape(len(inputs), -1)
    half = len(flat) // 2
    means = np.stack([flat[:half][labels[:half] == c].mean(0) for c in range(labels.max() + 1)])
    nearest = ((flat[half:, None] - means) ** 2).sum(-1).argmin(1)
    return float((nearest == labels[half:]).mean())


def shuffled(values: np.ndarray) -> np.ndarray:
    return np.random.default_rng(0).permutation(values)


@pytest.mark.parametrize("name", ["images", "vectors", "sequences"])
def test_classes_have_patterns(name: str) -> None:
    inputs, labels = rows_of(SOURCES[name])
    assert accuracy_of_nearest(inputs, labels) > 0.95
    assert accuracy_of_nearest(inputs, shuffled(labels)) < 0.5
    counts = np.bincount(labels)
    assert len(counts) == SOURCES[name]["classes"] and counts.min() > 0.8 * 1000 / len(counts)


def unexplained(inputs: np.ndarray, targets: np.ndarray) -> float:
    """Share of the variance that a linear fit leaves."""
    design = np.column_stack([inputs, np.ones(len(inputs))])
    left = targets - design @ np.linalg.lstsq(design, targets, rcond=None)[0]
    return float((left.var(0) / targets.var(0)).max())


def test_values_are_linear_in_the_inputs() -> None:
    inputs, targets = rows_of(SOURCES["numbers"])
    assert targets.shape == (1000, 2)
    assert unexplained(inputs, targets) < 0.1 < 0.9 < unexplained(inputs, shuffled(targets))
    assert unexplained(*rows_of({**SOURCES["numbers"], "noise": 0.0})) < 1e-20


def test_the_columns_of_a_table_decide_together() -> None:
    inputs, targets = rows_of({**SOURCES["table of numbers"], "noise": 0.0})
    codes = inputs[:, 5:]
    assert np.array_equal(codes, np.floor(codes)) and codes.min(0).tolist() == [0, 0]
    assert codes.max(0).tolist() == [2, 8]
    hot = np.concatenate(
        [inputs[:, :5], np.eye(3)[codes[:, 0].astype(int)], np.eye(9)[codes[:, 1].astype(int)]], 1
    )
    assert unexplained(hot, targets) < 1e-20
    assert unexplained(inputs, targets) > 0.1, "codes are no numbers"
    _, labels = rows_of(SOURCES["table"])
    assert set(labels.tolist()) == {0, 1}


def test_masks_have_their_classes_colours() -> None:
    inputs, masks = rows_of(SOURCES["masks"], 60)
    assert masks.shape == (60, 8, 9) and masks.dtype == np.int64
    pixels, labels = inputs.reshape(-1, 3), masks.ravel()
    assert accuracy_of_nearest(pixels, labels) > 0.9 > 0.5 > accuracy_of_nearest(pixels, shuffled(labels))
    assert (masks[:, :4, :4] == masks[:, :1, :1]).all() and len(np.unique(masks)) == 5


def test_a_token_tells_the_next() -> None:
    inputs, targets = rows_of(SOURCES["language"])
    assert np.array_equal(inputs[:, 1:], targets[:, :-1])
    pairs = np.zeros((30, 30))
    np.add.at(pairs, (inputs, targets), 1)
    told = pairs.max(1).sum() / pairs.sum()
    # All but the share `noise`, and of that one in thirty by chance.
    assert told == pytest.approx(0.75 + 0.25 / 30, abs=0.01)
    assert len(np.unique(pairs.argmax(1))) == 30
    assert pairs.sum(0).min() > 0.8 * pairs.sum() / 30


def test_texts_of_a_class_share_words_and_are_padded() -> None:
    inputs, labels = rows_of(SOURCES["texts"])
    lengths = (inputs != 0).sum(1)
    assert lengths.min() == 5 and lengths.max() == 20 and abs(lengths.mean() - 12.5) < 0.5
    assert all(
        (row[:length] != 0).all() and (row[length:] == 0).all()
        for row, length in zip(inputs, lengths, strict=True)
    )
    counts = np.stack([np.bincount(row, minlength=30)[1:] for row in inputs]).astype(float)
    assert accuracy_of_nearest(counts, labels) > 0.9 > 0.5 > accuracy_of_nearest(counts, shuffled(labels))


def test_tags_follow_from_a_token_and_its_predecessor() -> None:
    inputs, tags = rows_of(SOURCES["tags"])
    padded = inputs == 29
    assert (tags[padded] == -100).all() and tags[~padded].min() == 0 and tags[~padded].max() == 5
    real = ~padded[:, 1:]
    before, token, tag = inputs[:, :-1][real], inputs[:, 1:][real], tags[:, 1:][real]
    table = np.zeros((30, 30, 6))
    np.add.at(table, (before, token, tag), 1)
    alone = table.sum(0)
    known = 0.75 + 0.25 / 6
    assert table.max(-1).sum() / table.sum() == pytest.approx(known, abs=0.04)
    assert alone.max(-1).sum() / alone.sum() < 0.6, "the token alone does not tell"


def test_inputs_as_targets_have_memory_of_their_own() -> None:
    for name in ("copies", "masked"):
        inputs, targets = rows_of(SOURCES[name], 5)
        assert np.array_equal(inputs, targets)
        targets[:] = 0
        assert inputs.any()


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"shape": []}, "shape"),
    ({"shape": [0]}, "greater than 0"),
    ({"shape": [4], "target": "tags"}, "target of numbers must be one of classes, values, masks, input"),
    ({"shape": [4], "target": "masks"}, "height, width, channels"),
    ({"shape": [4], "vocabulary": 9, "target": "values"}, "target of tokens must be one of"),
    ({"shape": [4, 4], "vocabulary": 9}, r"shape of \(tokens,\)"),
    ({"shape": [4], "pad_id": 0}, "pad_id needs a vocabulary"),
    ({"shape": [4], "vocabulary": 9, "pad_id": 9}, "pad_id 9 is not below"),
    ({"shape": [4], "vocabulary": 20, "shortest": 5}, "shortest 5 exceeds the 4 tokens"),
    ({"shape": [4], "vocabulary": 10, "pad_id": 0}, "too small for 10 classes"),
    ({"shape": [4], "vocabulary": 20, "categories": [2]}, "columns of a table"),
    ({"shape": [2], "categories": [2, 2, 2]}, "a column for each"),
    ({"shape": [4], "categories": [2], "target": "input"}, "classes or values"),
    ({"shape": [4], "low": 1.0, "high": 1.0}, "low must be below high"),
    ({"shape": [4], "noise": 1.5}, "less than or equal to 1"),
]


@pytest.mark.parametrize(("fields", "words"), WRONG, ids=[words[:20] for _, words in WRONG])
def test_what_cannot_be_made_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words) as error:
        samples_of(fields)
    assert one_line(error.value).startswith("source")
