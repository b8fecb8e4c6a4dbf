"""Batch plan -> what this rank receives, through a DataLoader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from common.data.plan import BatchPlan
from common.data.sources import Samples
from torch_impl.strategy import Strategy


class _Rows(Dataset):
    """Whole batches by sample id: (inputs, targets, sample ids)."""

    def __init__(self, samples: Samples) -> None:
        self.samples = samples

    def __getitems__(self, ids: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        rows = ids - self.samples.first_id
        picked = (self.samples.inputs[rows], self.samples.targets[rows], ids)
        return tuple(torch.from_numpy(array) for array in picked)


def batches(plan: BatchPlan, samples: Samples, strategy: Strategy, steps: range) -> Iterator[Any]:
    """Per step: (inputs, targets, sample ids) of this rank."""
    (replica,) = strategy.local_replicas
    loader = DataLoader(
        _Rows(samples),
        batch_sampler=_LocalIds(plan, replica, steps),
        collate_fn=lambda batch: batch,
    )
    for inputs, targets, ids in loader:
        yield inputs.to(strategy.device), targets.to(strategy.device), ids


def whole(plan: BatchPlan, samples: Samples, strategy: Strategy) -> Any:
    """All samples as one batch, split over the replicas as the plan splits."""
    (replica,) = strategy.local_replicas
    ids = plan.share(np.arange(len(samples.targets)) + samples.first_id, replica)
    inputs, targets, ids = _Rows(samples).__getitems__(ids)
    return inputs.to(strategy.device), targets.to(strategy.device), ids


class _LocalIds:
    """The rank's sample ids, step by step; drawn lazily, since a plan may have any length."""

    def __init__(self, plan: BatchPlan, replica: int, steps: range) -> None:
        self.plan, self.replica, self.steps = plan, replica, steps

    def __iter__(self) -> Iterator[Any]:
        for step in self.steps:
            # A copy: the ids travel on as a tensor, which wants memory of its own.
            yield self.plan.local_ids(step, self.replica).copy()
