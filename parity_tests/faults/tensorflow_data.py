"""Faults of data: which samples a replica gets, in which order, with which labels; augmentation."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import tensorflow as tf

from parity.common.data import augment
from parity.common.data.plan import BatchPlan, Ids
from parity.common.data.samples import Samples
from parity.tf_impl import data
from parity_tests.faults.tensorflow_base import fault

# The order.


@fault
def never_reshuffled() -> Iterator[None]:  # 22: shuffle(reshuffle_each_iteration=False)
    real = BatchPlan._epoch_ids
    with patch.object(BatchPlan, "_epoch_ids", lambda self, epoch, *rest: real(self, 0, *rest)):
        yield


@fault
def shuffled_by_another_seed() -> Iterator[None]:  # 22
    real = BatchPlan._epoch_ids

    def epoch_ids(self: Any, *rest: Any) -> Ids:
        return real(replace(self, seed=self.seed + 1), *rest)

    with patch.object(BatchPlan, "_epoch_ids", epoch_ids):
        yield


# The shares.


def _shares(change: Any) -> Any:
    """Replace what falls to a replica: change(ids, replica, of how many)."""

    def share(self: Any, ids: Ids, replica: int) -> Ids:
        return change(ids, replica, self.replicas)

    return patch.object(BatchPlan, "share", share)


def _part(ids: Ids, replica: int, replicas: int) -> Ids:
    size = -(-len(ids) // replicas)
    return ids[replica * size : (replica + 1) * size]


@fault
def replicas_see_the_same_samples() -> Iterator[None]:  # 23: AutoShardPolicy.OFF over one file
    with _shares(lambda ids, replica, replicas: _part(ids, 0, replicas)):
        yield


@fault
def padded_with_repeats() -> Iterator[None]:  # 23: to batches that all replicas share evenly
    def share(ids: Ids, replica: int, replicas: int) -> Ids:
        return _part(np.concatenate([ids, ids[: -len(ids) % replicas]]), replica, replicas)

    with _shares(share):
        yield


@fault
def remainder_dropped() -> Iterator[None]:  # 23: batch(drop_remainder=True) on each worker
    with _shares(lambda ids, replica, n: _part(ids[: len(ids) // n * n], replica, n)):
        yield


@fault
def shares_overlap() -> Iterator[None]:  # 23: each replica but the first begins one sample early
    def share(ids: Ids, replica: int, replicas: int) -> Ids:
        size = -(-len(ids) // replicas)
        start = replica * size - (replica > 0)
        return ids[start : start + size]

    with _shares(share):
        yield


# Labels and inputs.


def _rows(change: Any) -> Any:
    """Change what each replica is given to train on: change(inputs, targets)."""
    real = data.batches

    def batches(plan: Any, samples: Any, strategy: Any, steps: range) -> Iterator[Any]:
        first = strategy.local_replicas.start
        for batch in real(plan, samples, strategy, steps):
            given = zip(*map(strategy.unpack, batch), strict=True)
            made = [(*change(np.array(x), np.array(y)), np.array(ids)) for x, y, ids in given]

            def local(context: Any, made: list = made) -> tuple:
                return tuple(map(tf.constant, made[context.replica_id_in_sync_group - first]))

            yield strategy.distribute(local)

    return patch.object(data, "batches", batches)


@fault
def labels_one_batch_late() -> Iterator[None]:  # 24
    real = data.batches

    def batches(plan: Any, samples: Any, strategy: Any, steps: range) -> Iterator[Any]:
        late, wider = None, range(max(steps.start - 1, 0), steps.stop)
        for number, (inputs, labels, ids) in zip(wider, real(plan, samples, strategy, wider), strict=True):
            sizes = [len(x) for x in strategy.unpack(labels)]
            usable = late is not None and [len(x) for x in strategy.unpack(late)] == sizes
            if number in steps:
                yield inputs, late if usable else labels, ids
            late = labels

    with patch.object(data, "batches", batches):
        yield


@fault
def labels_in_another_order() -> Iterator[None]:  # 24: shuffled apart from their inputs
    with _rows(lambda inputs, targets: (inputs, targets[::-1].copy())):
        yield


@fault
def inputs_scaled_twice() -> Iterator[None]:  # 24: a Rescaling layer, and the loader does it too
    with _rows(lambda inputs, targets: (inputs / 16, targets)):
        yield


@fault
def inputs_through_float32() -> Iterator[None]:  # 33
    def narrow(inputs: Any, targets: Any) -> tuple:
        return inputs.astype(np.float32).astype(inputs.dtype), targets

    with _rows(narrow):
        yield


# Augmentation.


@fault
def augmented_alike_every_epoch() -> Iterator[None]:  # 26: cached behind the augmentation
    real = Samples.rows
    with patch.object(Samples, "rows", lambda self, ids, epoch=0: real(self, ids, 0)):
        yield


@fault
def augmentation_keyed_by_place() -> Iterator[None]:  # 26: the same draws on every replica
    real = augment.Draws.words

    def words(self: Any, *rest: Any) -> Any:
        return real(replace(self, ids=np.arange(len(self.ids))), *rest)

    with patch.object(augment.Draws, "words", words):
        yield


# No faults of the numbers.


@fault
def the_process_dies() -> Iterator[None]:
    real = data.batches

    def batches(*arguments: Any) -> Iterator[Any]:
        for number, batch in enumerate(real(*arguments)):
            if number == 5:
                print("tensorflow: out of memory, says this line", flush=True)
                os._exit(9)
            yield batch

    with patch.object(data, "batches", batches):
        yield
