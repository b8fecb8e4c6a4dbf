"""Batches prepared by workers, evaluation in chunks, and the data's digest in the record."""

from __future__ import annotations

import pickle
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.common.base.errors import NotComparableError, RunError, SpecError
from parity.common.data import sources
from parity.common.data.loading import in_order
from parity.common.data.plan import BatchPlan
from parity.common.parity.budget import proof_budget
from parity.common.parity.compare import compare
from parity.common.record import read_record
from parity.common.spec import TrainSpec
from parity_tests.helpers.matrix import tensorflow, torch
from parity_tests.helpers.records import DDP, TORCH, Run, edit_json, one_line, tiny_spec
from parity_tests.helpers.run_cache import RunCache

SIDE = 8
AUGMENT = [
    {"kind": "crop", "padding": 2},
    {"kind": "flip"},
    {"kind": "colour_jitter", "brightness": 0.2, "contrast": 0.2, "saturation": 0.2},
    {"kind": "normalise", "mean": [0.4, 0.5, 0.6], "std": [0.2, 0.25, 0.3]},
    {"kind": "cutout", "size": 3},
    {"kind": "mixup"},
]


def images(source: dict[str, Any], augment: list[dict[str, Any]], **data: Any) -> TrainSpec:
    """A small convolution net on images of five classes; batches of 10 leave an uneven tail of 7."""
    layers = [
        {"kind": "conv2d", "filters": 4},
        {"kind": "activation", "function": "tanh"},
        {"kind": "flatten"},
        {"kind": "dense", "units": 5},
    ]
    return TrainSpec.parse(
        {
            "name": "images",
            "model": {"input_shape": [SIDE, SIDE, 3], "layers": layers},
            "data": {"source": source, "train_samples": 37, "eval_samples": 11, "augment": augment, **data},
            "loss": {"kind": "softmax_cross_entropy", "targets": "distributions"},
            "optimizer": {"kind": "adam", "learning_rate": 0.003},
            "global_batch_size": 10,
            "steps": 30,
        }
    )


SYNTHETIC = {"kind": "synthetic", "shape": [SIDE, SIDE, 3], "classes": 5, "low": 0.0}


# Order and errors.


@pytest.mark.parametrize(("workers", "ahead"), [(0, 2), (1, 1), (3, 2)])
def test_what_workers_make_comes_in_order(workers: int, ahead: int) -> None:
    def slow(item: int) -> int:
        time.sleep(0.002 * (item % 3))
        return item * item

    assert list(in_order(slow, range(20), workers, ahead)) == [i * i for i in range(20)]
    assert list(in_order(slow, range(0), workers, ahead)) == []


def test_workers_run_ahead_but_no_further() -> None:
    started: list[int] = []
    begun = threading.Event()

    def make(item: int) -> int:
        started.append(item)
        if len(started) == 6:
            begun.set()
        return item

    made = in_order(make, range(1000), 2, 3)
    assert next(made) == 0
    assert begun.wait(5)
    time.sleep(0.05)
    assert len(started) <= 2 * 3 + 1
    made.close()  # type: ignore[attr-defined]
    assert threading.active_count() < 20


def test_an_error_comes_in_its_place() -> None:
    def make(item: int) -> int:
        if item == 3:
            raise SpecError("item 3")
        return item

    for workers in (0, 2):
        made = in_order(make, range(9), workers, 2)
        assert [next(made) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(SpecError, match="item 3"):
            next(made)


def test_samples_travel_to_other_processes_as_their_spec(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((500, SIDE, SIDE, 3)))
    np.save(tmp_path / "y.npy", np.arange(500) % 5)
    files = {"kind": "npy", "path": str(tmp_path / "x.npy"), "targets_path": str(tmp_path / "y.npy")}
    for source in (files, SYNTHETIC):
        for part, ids in enumerate((np.arange(37), np.arange(37, 48))):
            for samples in (
                sources.load_for(images(source, AUGMENT))[part],
                sources.load(images(source, AUGMENT[:5]).data, "float64", 3)[part],
            ):
                sent = pickle.dumps(samples)
                assert len(sent) < 20_000 < (tmp_path / "x.npy").stat().st_size
                arrived = pickle.loads(sent)
                assert all(map(np.array_equal, arrived.rows(ids, 2), samples.rows(ids, 2)))


# Evaluation in chunks.


@pytest.mark.parametrize(("chunk", "count"), [(None, 37), (10, 37), (100, 37), (7, 35), (7, 0)])
def test_chunks_have_every_sample_once(chunk: int | None, count: int) -> None:
    plan = BatchPlan(1000, 16, 3, chunk_size=chunk)
    chunks = list(plan.chunks(count, 1000))
    assert [i for ids in chunks for i in ids.tolist()] == list(range(1000, 1000 + count))
    size = chunk or 16
    assert all(len(ids) == size for ids in chunks[:-1])
    shares = [plan.share(ids, replica) for ids in chunks for replica in range(3)]
    # The negative control of may_be_empty: it must see each empty share.
    assert plan.may_be_empty(count) or all(map(len, shares))


def test_small_samples_are_evaluated_at_once_and_large_ones_by_the_batch() -> None:
    digits = tiny_spec(
        "model.input_shape=[8, 8, 1]", "model.layers=[{kind: flatten}, {kind: dense, units: 3}]"
    )
    large = images(SYNTHETIC, []).to_dict()
    large["model"]["input_shape"] = [512, 512, 3]
    assert BatchPlan.of(digits, TORCH).chunk_size == 1024
    assert BatchPlan.of(TrainSpec.parse(large), TORCH).chunk_size == 10


# The record.


def test_runs_on_other_data_are_not_compared(tmp_path: Path) -> None:
    run = Run.of(tiny_spec(), TORCH)
    reference, candidate = run.write(tmp_path / "a"), run.copy(DDP).write(tmp_path / "b")
    budget = proof_budget(reference)
    assert reference.header.data_hash is None
    assert compare(reference, candidate, budget).verdict == "parity"
    for ours, theirs in (("a" * 64, "b" * 64), ("a" * 64, None)):
        edit_json(tmp_path / "a" / "header.json", data_hash=ours)
        edit_json(tmp_path / "b" / "header.json", data_hash=theirs)
        with pytest.raises(
            NotComparableError, match=f"different data: their data_hash is {ours} and"
        ) as error:
            compare(read_record(tmp_path / "a"), read_record(tmp_path / "b"), budget)
        one_line(error.value)
    edit_json(tmp_path / "b" / "header.json", data_hash="a" * 64)
    again = [read_record(tmp_path / name) for name in "ab"]
    assert compare(*again, budget).verdict == "parity"


@pytest.mark.slow
# Whole runs.
def test_augmentation_is_the_same_in_both_frameworks_whoever_prepares_it(run_cache: RunCache) -> None:
    spec = images(SYNTHETIC, AUGMENT)
    alone, threads = tensorflow(2), tensorflow(2, loader_workers=1, prefetch_batches=3)
    processes, other_split = torch("ddp", 2, loader_workers=1), torch("single", 1)
    for placement in (alone, threads, processes, other_split):
        run_cache.begin(spec, placement)
    reference = run_cache.record(spec, alone)
    for placement in (threads, processes, other_split):
        record = run_cache.record(spec, placement)
        comparison = compare(reference, record, proof_budget(reference))
        assert comparison.verdict == "parity", comparison.reason
        assert comparison.loss_deviation.max() <= 1e-12
    same = run_cache.record(spec, threads)
    assert np.array_equal(same.columns["loss_sum"], reference.columns["loss_sum"])
    final, other = reference.state("final"), same.state("final")
    assert all(np.array_equal(final[name], other[name]) for name in final)
    # The negative control: the augmentation is what was trained on.
    plain = run_cache.record(images(SYNTHETIC, AUGMENT[:-1]), alone)
    assert not np.allclose(plain.loss, reference.loss, rtol=1e-3)
    assert reference.summary is not None and reference.summary.eval_count == 11


@pytest.mark.slow
def test_runs_on_files_carry_their_digest(run_cache: RunCache, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    path = tmp_path / "data.npz"
    arrays = {"x": random.integers(0, 256, (60, SIDE, SIDE, 3)).astype(np.uint8), "y": np.arange(60) % 5}
    np.savez(path, **arrays)
    source = {"kind": "npz", "path": str(path), "divide_by": 255, "permute_seed": 1}
    spec = images(source, AUGMENT[:2], eval_samples=23)
    run_cache.begin(spec, tensorflow(2))
    first, second = (run_cache.record(spec, placement) for placement in (torch("ddp", 2), tensorflow(2)))
    assert first.header.data_hash == second.header.data_hash == sources.data_hash(spec.data)
    comparison = compare(first, second, proof_budget(first))
    assert comparison.verdict == "parity", comparison.reason
    arrays["x"][0, 0, 0, 0] ^= 1
    np.savez(path, **arrays)
    # Another key of the cache: the same run again.
    third = run_cache.record(spec, torch("ddp", 2, prefetch_batches=5))
    with pytest.raises(NotComparableError, match="trained on different data"):
        compare(first, third, proof_budget(first))
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(RunError, match=r"data.npz is no .npz archive, or it is cut short"):
        run_cache.record(spec, torch("ddp", 2, prefetch_batches=6))


def test_a_worker_that_meets_a_broken_picture_says_which(run_cache: RunCache, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for number in range(5):
        (tmp_path / f"class_{number}").mkdir()
        for picture in range(10):
            image.new("RGB", (9, 9), (picture * 20, number * 40, 0)).save(
                tmp_path / f"class_{number}" / f"{picture}.png"
            )
    broken = tmp_path / "class_2" / "3.png"
    broken.write_bytes(broken.read_bytes()[:45])
    spec = images(
        {"kind": "image_folder", "path": str(tmp_path), "size": [SIDE, SIDE]},
        [],
        train_samples=45,
        eval_samples=5,
    )
    with pytest.raises(RunError, match=r"class_2/3.png is no picture, or it is cut short") as error:
        run_cache.record(spec, torch("ddp", 2, loader_workers=1))
    one_line(error.value)
