"""Faults of the order of samples, of their shares, and of what belongs to them (22 to 24, 26)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed as dist

from parity.common.data import augment, plan, sources
from parity.common.data.plan import BatchPlan
from parity.common.data.samples import Samples
from parity.torch_impl import data
from parity_tests.faults.torch_ground import fault


@fault
def never_reshuffled() -> Iterator[None]:  # 22
    real = plan._shuffled
    with patch.object(plan, "_shuffled", lambda seed, epoch, *rest: real(seed, 0, *rest)):
        yield


@fault
def shuffled_by_another_seed() -> Iterator[None]:  # 22: whole, but in another order
    real = plan._shuffled
    with patch.object(plan, "_shuffled", lambda seed, *rest: real(seed + 1, *rest)):
        yield


def _other_share(share: Callable[[Any, Any, Any, int], Any]) -> Any:
    """share(real, plan, ids, replica) in place of the plan's."""
    real = BatchPlan.share
    return patch.object(BatchPlan, "share", lambda self, ids, replica: share(real, self, ids, replica))


@fault
def sampler_pads_with_repeats() -> Iterator[None]:  # 23
    def share(real: Any, self: Any, ids: Any, replica: int) -> Any:
        short = -len(ids) % self.replicas
        return real(self, np.concatenate([ids, ids[:short]]), replica)

    with _other_share(share):
        yield


@fault
def sampler_drops_what_is_left() -> Iterator[None]:  # 23: what cannot be divided evenly
    def share(real: Any, self: Any, ids: Any, replica: int) -> Any:
        return real(self, ids[: len(ids) // self.replicas * self.replicas], replica)

    with _other_share(share):
        yield


@fault
def replicas_overlap_by_one() -> Iterator[None]:  # 23: each but the first begins with its neighbour's last
    def share(_: Any, self: Any, ids: Any, replica: int) -> Any:
        size = -(-len(ids) // self.replicas)
        return ids[max(0, replica * size - 1) : (replica + 1) * size]

    with _other_share(share):
        yield


@fault
def replicas_see_the_same_samples() -> Iterator[None]:  # 23
    with _other_share(lambda real, self, ids, replica: real(self, ids, 0)):
        yield


@fault
def labels_one_batch_late() -> Iterator[None]:  # 24: the ids are right, the labels are not
    real = data.batches

    def batches(order: Any, samples: Any, strategy: Any, steps: range) -> Iterator[Any]:
        # Two readers of one order, the second of which is a batch behind.
        behind = real(order, samples, strategy, range(max(0, steps.start - 1), steps.stop))
        for number, (inputs, targets, ids) in zip(steps, real(order, samples, strategy, steps), strict=True):
            late = next(behind)[1] if number else targets
            yield inputs, late if len(late) == len(targets) else targets, ids

    with patch.object(data, "batches", batches):
        yield


def _other_targets(change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    real = data.batches

    def batches(*arguments: Any) -> Iterator[Any]:
        for inputs, targets, ids in real(*arguments):
            yield inputs, change(targets), ids

    return patch.object(data, "batches", batches)


@fault
def labels_in_reverse_order() -> Iterator[None]:  # 24: within each batch
    with _other_targets(lambda targets: targets.flip(0)):
        yield


@fault
def labels_one_sample_off() -> Iterator[None]:  # 24
    with _other_targets(lambda targets: targets.roll(1, 0)):
        yield


@fault
def augmentation_keyed_by_place() -> Iterator[None]:  # 26: the same draws on every replica
    real = augment.Draws.words

    def words(self: Any, *rest: Any) -> Any:
        return real(replace(self, ids=np.arange(len(self.ids))), *rest)

    with patch.object(augment.Draws, "words", words):
        yield


@fault
def augmentation_the_same_in_every_epoch() -> Iterator[None]:  # 26: along the other axis
    real = Samples.rows
    with patch.object(Samples, "rows", lambda self, ids, epoch=0: real(self, ids, 0)):
        yield


@fault
def inputs_in_float32() -> Iterator[None]:  # 33
    real = Samples.rows

    def rows(self: Any, ids: Any, epoch: int = 0) -> Any:
        inputs, targets = real(self, ids, epoch)
        return inputs.astype(np.float32).astype(inputs.dtype), targets

    with patch.object(Samples, "rows", rows):
        yield


@fault
def one_replica_not_augmented() -> Iterator[None]:
    real = sources.augmented

    def augmented(spec: Any, *rest: Any) -> Any:
        plain = dist.is_initialized() and dist.get_rank() == 1
        return real(spec.model_copy(update={"augment": ()}) if plain else spec, *rest)

    with patch.object(sources, "augmented", augmented):
        yield
