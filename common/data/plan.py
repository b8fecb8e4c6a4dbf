"""The batch plan: step -> sample ids of the global batch; (step, replica) -> those of the local batch.

A pure function of the spec and of the replica count. Nothing is drawn in sequence and nothing is
stored, so any step can be asked for at once, at any scale.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from parity.common.base import rng
from parity.common.spec import Placement, TrainSpec

Ids = NDArray[np.int64]

# Shuffled ids are computed this many at a time and kept: NumPy costs the same for one as for 1,000.
_BLOCK = 1 << 14
_CHUNK_NUMBERS = 1 << 16
_NUMBERS_OF_TOKEN = 1 << 10


@dataclass(frozen=True)
class BatchPlan:
    """Sample ids of every batch. `sample_order_seed` permutes each global batch before the split.

    `within_replicas`: it permutes each replica's share by itself, since which samples are together there matters.
    `chunk_size` is the batch of an evaluation; None: the global batch.
    """

    samples: int
    global_batch_size: int
    replicas: int
    seed: int = 0
    shuffle: bool = True
    split: Literal["contiguous", "strided"] = "contiguous"
    tail: Literal["keep", "drop"] = "keep"
    sample_order_seed: int | None = None
    chunk_size: int | None = None
    within_replicas: bool = False

    @classmethod
    def of(cls, spec: TrainSpec, placement: Placement) -> BatchPlan:
        """The plan of a run."""
        return cls(
            samples=spec.data.train_samples,
            global_batch_size=spec.global_batch_size,
            replicas=placement.replicas,
            seed=spec.seed,
            shuffle=spec.data.shuffle,
            split=spec.data.split,
            tail=spec.data.tail,
            sample_order_seed=placement.sample_order_seed,
            chunk_size=_chunk_size(spec),
            within_replicas=spec.per_replica_statistics,
        )

    @property
    def steps_per_epoch(self) -> int:
        """Global batches an epoch, the smaller one at its end counted where it is kept."""
        whole, rest = divmod(self.samples, self.global_batch_size)
        return whole + (1 if rest and self.tail == "keep" else 0)

    def epoch(self, step: int) -> int:
        """The epoch, from 0, that a step belongs to. A batch never spans two epochs."""
        return step // self.steps_per_epoch

    def global_ids(self, step: int) -> Ids:
        """Return the sample ids of the global batch of a step, int64 (global batch,), in the order in which it is split."""
        epoch, within = divmod(step, self.steps_per_epoch)
        return self._permuted(step, self._epoch_ids(epoch, within, within + 1))

    def local_ids(self, step: int, replica: int) -> Ids:
        """Return the sample ids of the local batch of one replica, int64 (local batch,); empty where there are too few to go round."""
        if 2 * self.global_batch_size < _BLOCK or not self.shuffle or self.sample_order_seed is not None:
            return self.share(self.global_ids(step), replica)
        # Of a large batch, only what falls to the replica is computed.
        epoch, within = divmod(step, self.steps_per_epoch)
        positions = self.share(np.arange(*self._positions(within, within + 1)), replica)
        return rng.permute(rng.derive_key(self.seed, "shuffle", epoch), positions, self.samples)

    def batch_sizes(self, steps: Ids) -> Ids:
        """Return how many samples the global batches of some steps hold: int64, one number for each of `steps`."""
        # NumPy divides by one number several times faster than it takes remainders.
        within = steps - steps // self.steps_per_epoch * self.steps_per_epoch
        left: Ids = self.samples - within * self.global_batch_size
        return left.clip(max=self.global_batch_size)

    def share_sizes(self, batch_sizes: Ids) -> Ids:
        """Local batch sizes [batch, replica] of global batches of these sizes."""
        replicas, sizes = np.arange(self.replicas), batch_sizes[:, None]
        share = -(-sizes // self.replicas)
        result: Ids = np.clip(sizes - replicas * share, 0, share)
        if self.split == "strided":
            result = (sizes - 1 - replicas) // self.replicas + 1
        return result

    def shares(self, first: int, stop: int) -> tuple[Ids, Ids]:
        """Local batches of steps first..stop-1, many at once.

        Returns:
            The sample ids, step by step and within a step replica by replica; and how many there are
            of each, [step, replica].
        """
        parts: list[Ids] = []
        at = first
        while at < stop:
            epoch, within = divmod(at, self.steps_per_epoch)
            count = min(stop - at, self.steps_per_epoch - within)
            parts += self._ordered(at, self._epoch_ids(epoch, within, within + count))
            at += count
        sizes = self.share_sizes(self.batch_sizes(np.arange(first, stop)))
        return np.concatenate([np.empty(0, np.int64), *parts]), sizes

    def _epoch_ids(self, epoch: int, first: int, stop: int) -> Ids:
        """Sample ids of the epoch's global batches first..stop-1, before any order of their own."""
        start, end = self._positions(first, stop)
        if self.shuffle:
            return _shuffled(self.seed, epoch, self.samples, start, end)
        return np.arange(start, end, dtype=np.int64)

    def _positions(self, first: int, stop: int) -> tuple[int, int]:
        """Where in the epoch's order the global batches first..stop-1 begin and end."""
        return first * self.global_batch_size, min(stop * self.global_batch_size, self.samples)

    def _ordered(self, step: int, ids: Ids) -> Iterator[Ids]:
        """The ids of batches from `step` on, each batch in the order of `shares`."""
        size = self.global_batch_size
        if self.sample_order_seed is None and self.split == "contiguous":
            yield ids
        elif self.sample_order_seed is None:
            whole = len(ids) // size * size
            yield ids[:whole].reshape(-1, size)[:, self._dealt(size)].ravel()
            yield ids[whole:][self._dealt(len(ids) - whole)]
        else:
            for number, start in enumerate(range(0, len(ids), size)):
                batch = self._permuted(step + number, ids[start : start + size])
                yield batch[self._dealt(len(batch))]

    def _dealt(self, size: int) -> Ids:
        """Positions in a batch, replica by replica."""
        positions = np.arange(size)
        if self.split == "contiguous":
            return positions
        # A stable sort by the remainder: the positions of replica 0 first, each replica's ascending.
        return np.argsort(positions % self.replicas, kind="stable")

    def _permuted(self, step: int, ids: Ids) -> Ids:
        if self.sample_order_seed is None:
            return ids
        key = rng.derive_key(self.sample_order_seed, "sample order", step)
        order = rng.permute(key, np.arange(len(ids), dtype=np.int64), len(ids))
        if self.within_replicas:
            permuted, order = order, np.empty_like(order)
            for replica in range(self.replicas):
                own = self.share(np.arange(len(ids), dtype=np.int64), replica)
                order[own] = own[np.argsort(permuted[own])]
        return ids[order]

    def chunks(self, count: int, first_id: int) -> Iterator[Ids]:
        """Yield sample ids from `first_id` on, int64 (batch,), in the batches of an evaluation."""
        size = self.chunk_size or self.global_batch_size
        for start in range(0, count, size):
            yield np.arange(start, min(start + size, count)) + first_id

    def may_be_empty(self, *evaluated: int) -> bool:
        """Whether some replica's share of a global batch, or of a batch of an evaluation, is empty.

        `evaluated` are numbers of samples to evaluate.
        """
        chunk = self.chunk_size or self.global_batch_size
        sizes = [min(self.global_batch_size, self.samples)]
        for count in evaluated:
            sizes += [min(count, chunk), count % chunk]
        if self.tail == "keep":
            sizes.append(self.samples % self.global_batch_size)
        # Under either split the last replica is the first to go empty.
        return any(size and not len(self.share(np.arange(size), self.replicas - 1)) for size in sizes)

    def share(self, ids: Ids, replica: int) -> Ids:
        """Return the part of `ids` (samples,) that a replica receives: a contiguous run of ceil(B/R), or every R-th.

        Raises:
            IndexError: there is no such replica.
        """
        if not 0 <= replica < self.replicas:
            raise IndexError(f"replica must be in 0..{self.replicas - 1}, received {replica}")
        if self.split == "strided":
            return ids[replica :: self.replicas]
        size = -(-len(ids) // self.replicas)
        return ids[replica * size : (replica + 1) * size]


@dataclass(frozen=True)
class OwnOrderPlan(BatchPlan):
    """A plan whose order the framework draws. order: epoch -> all sample ids of that epoch, int64 (samples,)."""

    order: Callable[[int], Ids] = np.arange

    def local_ids(self, step: int, replica: int) -> Ids:
        return self.share(self.global_ids(step), replica)

    def _epoch_ids(self, epoch: int, first: int, stop: int) -> Ids:
        start, end = self._positions(first, stop)
        return self.order(epoch)[start:end]


def own_order(plan: BatchPlan, order: Callable[[int], Ids]) -> OwnOrderPlan:
    """Return a plan of the same batches in the framework's order, int64 (samples,) of an epoch; the latest are kept."""
    return OwnOrderPlan(**vars(plan), order=functools.lru_cache(2)(order))


def _chunk_size(spec: TrainSpec) -> int:
    """The global batch, which fits into memory, or more where samples are small: each chunk costs time.

    A token counts as many numbers, since it becomes a vector and logits.
    """
    numbers = math.prod(spec.model.input_shape) * (_NUMBERS_OF_TOKEN if spec.model.inputs == "tokens" else 1)
    return max(spec.global_batch_size, _CHUNK_NUMBERS // numbers)


def _shuffled(seed: int, epoch: int, samples: int, start: int, stop: int) -> Ids:
    """The epoch's shuffled ids at positions start..stop-1."""
    if 2 * (stop - start) >= _BLOCK:  # more than keeping is worth
        return rng.permute(rng.derive_key(seed, "shuffle", epoch), np.arange(start, stop), samples)
    first, last = start // _BLOCK, (stop - 1) // _BLOCK
    if first == last:  # most often, and four times as fast
        block = _shuffled_block(seed, epoch, samples, first)
        return block[start - first * _BLOCK : stop - first * _BLOCK].copy()
    blocks = [_shuffled_block(seed, epoch, samples, block) for block in range(first, last + 1)]
    return np.concatenate(blocks)[start - first * _BLOCK : stop - first * _BLOCK]


@functools.lru_cache(maxsize=8)
def _shuffled_block(seed: int, epoch: int, samples: int, block: int) -> Ids:
    positions = np.arange(block * _BLOCK, min((block + 1) * _BLOCK, samples), dtype=np.int64)
    return rng.permute(rng.derive_key(seed, "shuffle", epoch), positions, samples)
