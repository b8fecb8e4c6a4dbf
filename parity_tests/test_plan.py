"""The batch plan: every sample once, each on one replica, any step at once."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.common.data.plan import BatchPlan
from parity.common.spec import Placement
from parity_tests.helpers.records import DDP, tiny_spec

PLANS = st.builds(
    BatchPlan,
    samples=st.integers(1, 300),
    global_batch_size=st.integers(1, 80),
    replicas=st.integers(1, 9),
    seed=st.integers(0, 5),
    shuffle=st.booleans(),
    split=st.sampled_from(["contiguous", "strided"]),
    tail=st.sampled_from(["keep", "drop"]),
    sample_order_seed=st.none() | st.integers(0, 3),
).filter(lambda plan: plan.steps_per_epoch > 0)


def in_order(samples: int, batch: int, replicas: int, split: str = "contiguous") -> BatchPlan:
    return BatchPlan(samples, batch, replicas, shuffle=False, split=split)  # type: ignore[arg-type]


def epoch_ids(plan: BatchPlan, epoch: int) -> np.ndarray:
    first = epoch * plan.steps_per_epoch
    return np.concatenate([plan.global_ids(first + step) for step in range(plan.steps_per_epoch)])


@given(PLANS, st.integers(0, 3))
@settings(max_examples=80, deadline=None)
def test_an_epoch_covers_each_sample_at_most_once_and_all_where_the_tail_is_kept(
    plan: BatchPlan, epoch: int
) -> None:
    ids = epoch_ids(plan, epoch)
    assert len(np.unique(ids)) == len(ids)
    assert ids.min() >= 0 and ids.max() < plan.samples
    whole, rest = divmod(plan.samples, plan.global_batch_size)
    assert len(ids) == plan.samples if plan.tail == "keep" else len(ids) == plan.samples - rest
    assert plan.steps_per_epoch == whole + (plan.tail == "keep" and rest > 0)


@given(PLANS, st.integers(0, 1000))
@settings(max_examples=80, deadline=None)
def test_local_batches_partition_the_global_batch(plan: BatchPlan, step: int) -> None:
    wanted = plan.global_ids(step)
    shares = [plan.local_ids(step, replica) for replica in range(plan.replicas)]
    assert np.array_equal(np.sort(np.concatenate(shares)), np.sort(wanted))
    assert sum(map(len, shares)) == len(wanted)
    if plan.split == "contiguous":
        assert np.array_equal(np.concatenate(shares), wanted)
    else:
        for replica, share in enumerate(shares):
            assert share.tolist() == [wanted[i] for i in range(replica, len(wanted), plan.replicas)]


@given(PLANS, st.integers(0, 200), st.integers(1, 9))
@settings(max_examples=50, deadline=None)
def test_replicas_do_not_change_the_global_batch(plan: BatchPlan, step: int, replicas: int) -> None:
    other = replace(plan, replicas=replicas, split="strided")
    assert np.array_equal(plan.global_ids(step), other.global_ids(step))


@pytest.mark.parametrize(
    ("batch", "replicas", "sizes"),
    [
        # tf.distribute rebatches to ceil(B / R) and gives what is left to the last ones.
        (10, 4, [3, 3, 3, 1]),
        (3, 4, [1, 1, 1, 0]),
        (9, 4, [3, 3, 3, 0]),
        (8, 4, [2, 2, 2, 2]),
        (5, 4, [2, 2, 1, 0]),
        (1, 3, [1, 0, 0]),
    ],
)
def test_the_contiguous_split_is_tensorflows(batch: int, replicas: int, sizes: list[int]) -> None:
    plan = in_order(batch, batch, replicas)
    shares = [plan.local_ids(0, replica).tolist() for replica in range(replicas)]
    assert [len(share) for share in shares] == sizes
    assert [sample for share in shares for sample in share] == list(range(batch))


def test_the_tail_is_split_again() -> None:
    plan = in_order(13, 10, 4)
    assert [plan.local_ids(1, r).tolist() for r in range(4)] == [[10], [11], [12], []]


def test_the_strided_split_is_the_distributed_samplers() -> None:
    plan = in_order(10, 10, 4, "strided")
    assert [plan.local_ids(0, r).tolist() for r in range(4)] == [[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]]


def test_fewer_samples_than_replicas_leave_replicas_empty_and_nothing_doubled() -> None:
    for split in ("contiguous", "strided"):
        plan = in_order(2, 64, 5, split)
        shares = [plan.local_ids(0, r) for r in range(5)]
        assert [share.tolist() for share in shares] == [[0], [1], [], [], []]
        assert all(share.dtype == np.int64 for share in shares)


@pytest.mark.parametrize("replica", [-1, 3])
def test_a_replica_that_is_not_there_is_refused(replica: int) -> None:
    with pytest.raises(IndexError, match=rf"0\.\.2, received {replica}"):
        in_order(10, 10, 3).local_ids(0, replica)


def test_epochs_are_shuffled_anew_and_keyed_by_the_seed() -> None:
    plan = BatchPlan(samples=200, global_batch_size=32, replicas=2)
    orders = [epoch_ids(plan, 0), epoch_ids(plan, 1), epoch_ids(replace(plan, seed=1), 0)]
    for a in range(3):
        assert np.array_equal(np.sort(orders[a]), np.arange(200))
        assert not np.array_equal(orders[a], np.arange(200))
        for b in range(a):
            assert (orders[a] == orders[b]).sum() < 20  # one is expected
    assert np.array_equal(epoch_ids(BatchPlan(200, 32, 7), 0), orders[0])
    # A batch does not span two epochs, and does not depend on how large batches are.
    assert np.array_equal(epoch_ids(replace(plan, global_batch_size=13), 1), orders[1])


def test_without_shuffling_samples_come_in_order_every_epoch() -> None:
    plan = in_order(50, 16, 2)
    for epoch in (0, 3):
        assert np.array_equal(epoch_ids(plan, epoch), np.arange(50))
    assert [plan.epoch(step) for step in (0, 3, 4, 8)] == [0, 0, 1, 2]


@given(PLANS, st.integers(0, 100), st.integers(0, 3))
@settings(max_examples=50, deadline=None)
def test_the_sample_order_permutes_inside_the_batch_only(plan: BatchPlan, step: int, seed: int) -> None:
    plain = replace(plan, sample_order_seed=None).global_ids(step)
    permuted = replace(plan, sample_order_seed=seed).global_ids(step)
    assert np.array_equal(np.sort(plain), np.sort(permuted))


@pytest.mark.parametrize("split", ["contiguous", "strided"])
def test_where_replicas_have_statistics_of_their_own_each_share_is_permuted_by_itself(split: str) -> None:
    plan = BatchPlan(50, 13, 3, split=split, sample_order_seed=1, within_replicas=True)
    plain, across = replace(plan, sample_order_seed=None), replace(plan, within_replicas=False)
    moved = 0
    for step in range(8):
        for replica in range(3):
            ours, theirs = plan.local_ids(step, replica), plain.local_ids(step, replica)
            assert sorted(ours) == sorted(theirs)
            moved += not np.array_equal(ours, theirs)
    assert moved > 12
    assert any(sorted(across.local_ids(0, r)) != sorted(plain.local_ids(0, r)) for r in range(3))


def test_the_sample_order_differs_by_seed_and_step() -> None:
    plan = in_order(128, 64, 2)
    orders = [
        replace(plan, sample_order_seed=seed).global_ids(step) % 64 for seed in (0, 1) for step in (0, 1)
    ]
    assert len({tuple(order.tolist()) for order in (*orders, np.arange(64))}) == 5


def test_changing_ids_that_were_given_out_changes_no_later_ones() -> None:
    plan = BatchPlan(samples=100, global_batch_size=10, replicas=2)
    wanted = plan.global_ids(3).copy()
    plan.global_ids(3)[:] = -1
    plan.local_ids(3, 1)[:] = -1
    assert np.array_equal(plan.global_ids(3), wanted)


@given(PLANS, st.integers(0, 40), st.integers(0, 12))
@settings(max_examples=100, deadline=None)
def test_shares_of_many_steps_are_those_of_each(plan: BatchPlan, first: int, count: int) -> None:
    ids, sizes = plan.shares(first, first + count)
    each = [
        [plan.local_ids(first + row, replica) for replica in range(plan.replicas)] for row in range(count)
    ]
    assert sizes.shape == (count, plan.replicas)
    assert sizes.tolist() == [[len(local) for local in row] for row in each]
    assert np.array_equal(
        ids, np.concatenate([np.empty(0, np.int64), *(local for row in each for local in row)])
    )
    assert plan.batch_sizes(np.arange(first, first + count)).tolist() == sizes.sum(axis=1).tolist()


@pytest.mark.parametrize("split", ["contiguous", "strided"])
@pytest.mark.parametrize("size", [8191, 8192, 20_000])
def test_shares_of_large_batches_are_computed_alone_and_are_the_same(
    size: int, split: Literal["contiguous", "strided"]
) -> None:
    plan = BatchPlan(samples=50_001, global_batch_size=size, replicas=7, split=split)
    for step in (0, plan.steps_per_epoch - 1, plan.steps_per_epoch):
        ids = plan.global_ids(step)
        for replica in range(7):
            assert np.array_equal(plan.local_ids(step, replica), plan.share(ids, replica))


def test_a_plan_of_1024_replicas_takes_the_same_memory_at_every_step() -> None:
    plan = BatchPlan(samples=10**8, global_batch_size=32 * 1024, replicas=1024)
    peaks = []
    for steps in (range(3), range(3, 30), range(3000, 3030)):
        tracemalloc.start()
        try:
            for step in steps:
                ids = plan.global_ids(step)
                assert sum(len(plan.share(ids, replica)) for replica in range(1024)) == 32 * 1024
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert max(peaks) < 4 * 2**20, peaks


@pytest.mark.parametrize("size", [1, 100, 16384, 16385, 40_000])
def test_batches_across_internal_blocks_are_whole(size: int) -> None:
    plan = BatchPlan(samples=100_000, global_batch_size=size, replicas=1)
    whole = BatchPlan(samples=100_000, global_batch_size=100_000, replicas=1).global_ids(0)
    for step in {0, 16384 // size, plan.steps_per_epoch - 1}:
        assert np.array_equal(plan.global_ids(step), whole[step * size : (step + 1) * size])


def test_a_late_step_of_a_huge_data_set_is_immediate_and_small() -> None:
    plan = BatchPlan(samples=10**8, global_batch_size=1024, replicas=8)
    step = 123_456_789
    tracemalloc.start()
    try:
        ids = np.concatenate([plan.local_ids(step, replica) for replica in range(8)])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert plan.epoch(step) == step // math.ceil(10**8 / 1024)
    assert len(np.unique(ids)) == 1024 and ids.max() < 10**8
    assert peak < 32 * 2**20, "the permutation itself would take 800 MB"


def test_a_plan_takes_everything_from_spec_and_placement() -> None:
    spec = tiny_spec("seed=3", "data.split=strided", "data.tail=drop", "data.shuffle=false")
    placement = Placement.parse({**DDP.to_dict(), "sample_order_seed": 9})
    wanted = BatchPlan(
        37, 16, 2, 3, shuffle=False, split="strided", tail="drop", sample_order_seed=9, chunk_size=1 << 14
    )
    assert BatchPlan.of(spec, placement) == wanted
    assert BatchPlan.of(spec, DDP) != wanted
