"""Batch plan -> what this rank receives, through a DataLoader."""

from __future__ import annotations

import functools
import multiprocessing
import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from parity.common.base import rng
from parity.common.base.errors import ParityError
from parity.common.data.loading import leave_cores_of_replicas
from parity.common.data.plan import BatchPlan, Ids, own_order
from parity.common.data.samples import Samples
from parity.common.execution.operating_system import die_with_parent, keep_freed_memory
from parity.common.spec import Placement, TrainSpec
from parity.torch_impl.strategy import Strategy


def plan_of(spec: TrainSpec, placement: Placement) -> BatchPlan:
    """The batch plan of a run; where shuffling is stock, in the order of a `DistributedSampler`."""
    plan = BatchPlan.of(spec, placement)
    if "shuffling" not in spec.stock:
        return plan
    # Not the seed itself: the sampler adds the epoch to it, so that the next seed would shuffle alike one epoch earlier.
    sampler: DistributedSampler = DistributedSampler(
        range(plan.samples), 1, 0, seed=rng.derive_key(spec.seed, "stock shuffle")[0]
    )

    def order(epoch: int) -> Ids:
        sampler.set_epoch(epoch)
        return np.fromiter(sampler, np.int64, plan.samples)

    return own_order(plan, order)


def batches(plan: BatchPlan, samples: Samples, strategy: Strategy, steps: range) -> Iterator[Any]:
    """Per step: (inputs, targets, sample ids) of this rank."""
    mine = strategy.local_replicas
    items = ((np.concatenate([plan.local_ids(s, r) for r in mine]), plan.epoch(s)) for s in steps)
    return _loaded(items, samples, strategy)


def chunks(plan: BatchPlan, samples: Samples, strategy: Strategy) -> Iterator[Any]:
    """All samples once, in batches split over the replicas as the plan splits."""
    mine, wholes = strategy.local_replicas, plan.chunks(len(samples), samples.first_id)
    items = ((np.concatenate([plan.share(ids, r) for r in mine]), 0) for ids in wholes)
    return _loaded(items, samples, strategy)


class _Rows(Dataset):
    """Whole batches by (sample ids, epoch): (inputs, targets, sample ids), or the error that they met."""

    def __init__(self, samples: Samples) -> None:
        self.samples = samples

    def __getitems__(self, item: tuple[Ids, int]) -> tuple[torch.Tensor, ...] | ParityError:
        ids, epoch = item
        try:
            rows = self.samples.rows(ids, epoch)
        except ParityError as error:
            # As a value, since a worker's exception arrives with its traceback as its message.
            return error
        # A copy of the ids: as a tensor they want memory of their own.
        return tuple(torch.from_numpy(array) for array in (*rows, ids.copy()))


def _loaded(items: Iterable[tuple[Ids, int]], samples: Samples, strategy: Strategy) -> Iterator[Any]:
    """Batches of (sample ids, epoch), made by processes where the placement asks for loader workers."""
    loader = DataLoader(_Rows(samples), batch_sampler=items, collate_fn=_as_it_is, **_workers(strategy))
    for batch in loader:
        if isinstance(batch, ParityError):
            raise batch
        inputs, targets, ids = batch
        yield inputs.to(strategy.device), targets.to(strategy.device), ids


def _workers(strategy: Strategy) -> dict[str, Any]:
    placement = strategy.placement
    if not placement.loader_workers:
        return {}
    # Forking this process would hang where OpenMP has threads; a fork server has none.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "parity.torch_impl.data"])
    return {
        "num_workers": placement.loader_workers,
        "prefetch_factor": placement.prefetch_batches,
        "multiprocessing_context": context,
        "worker_init_fn": functools.partial(_begin_worker, os.sched_getaffinity(os.getppid())),
    }


def _begin_worker(cores: set[int], number: int) -> None:
    del number
    die_with_parent()
    leave_cores_of_replicas(cores)
    keep_freed_memory()


def _as_it_is(batch: Any) -> Any:
    return batch
