"""The batch plan: step -> sample ids of the global batch; (step, replica) -> those of the local batch.

A pure function of the spec and of the replica count. Nothing is drawn in sequence and nothing is
stored, so any step can be asked for at once, at any scale.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from common import rng
from common.spec import Placement, TrainSpec

Ids = NDArray[np.int64]

# Shuffled ids are computed this many at a time and kept: NumPy costs the same for one as for 1,000.
_BLOCK = 1 << 14
_CHUNK_NUMBERS = 1 << 16
_NUMBERS_OF_TOKEN = 1 << 10


@dataclass(frozen=True)
class BatchPlan:
    """Sample ids of every batch. `sample_order_seed` permutes each global batch before the split.

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
        """Sample ids of the global batch, in the order in which it is split."""
        epoch, within = divmod(step, self.steps_per_epoch)
        start = within * self.global_batch_size
        stop = min(start + self.global_batch_size, self.samples)
        ids = np.arange(start, stop, dtype=np.int64)
        if self.shuffle:
            ids = _shuffled(self.seed, epoch, self.samples, start, stop)
        if self.sample_order_seed is not None:
            key = rng.derive_key(self.sample_order_seed, "sample order", step)
            ids = ids[rng.permute(key, np.arange(len(ids), dtype=np.int64), len(ids))]
        return ids

    def local_ids(self, step: int, replica: int) -> Ids:
        """Sample ids of one replica's local batch; empty where there are too few to go round."""
        return self.share(self.global_ids(step), replica)

    def chunks(self, count: int, first_id: int) -> Iterator[Ids]:
        """Ids from `first_id` on, in the batches of an evaluation."""
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
        """The part of `ids` that falls to a replica: a contiguous run of ceil(B/R), or every R-th."""
        if not 0 <= replica < self.replicas:
            raise IndexError(f"replica must be in 0..{self.replicas - 1}, received {replica}")
        if self.split == "strided":
            return ids[replica :: self.replicas]
        size = -(-len(ids) // self.replicas)
        return ids[replica * size : (replica + 1) * size]


def _chunk_size(spec: TrainSpec) -> int:
    """The global batch, which fits into memory, or more where samples are small: each chunk costs time.

    A token counts as many numbers, since it becomes a vector and logits.
    """
    numbers = math.prod(spec.model.input_shape) * (_NUMBERS_OF_TOKEN if spec.model.inputs == "tokens" else 1)
    return max(spec.global_batch_size, _CHUNK_NUMBERS // numbers)


def _shuffled(seed: int, epoch: int, samples: int, start: int, stop: int) -> Ids:
    """The epoch's shuffled ids at positions start..stop-1."""
    first, last = start // _BLOCK, (stop - 1) // _BLOCK
    blocks = [_shuffled_block(seed, epoch, samples, block) for block in range(first, last + 1)]
    return np.concatenate(blocks)[start - first * _BLOCK : stop - first * _BLOCK]


@functools.lru_cache(maxsize=8)
def _shuffled_block(seed: int, epoch: int, samples: int, block: int) -> Ids:
    positions = np.arange(block * _BLOCK, min((block + 1) * _BLOCK, samples), dtype=np.int64)
    return rng.permute(rng.derive_key(seed, "shuffle", epoch), positions, samples)
