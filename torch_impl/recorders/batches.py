"""What recorders must know of other people's batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from parity.common.base.errors import RecordError
from parity.torch_impl.private_names import tree_leaves


def size_of(batch: Any) -> int:
    """How many samples a batch holds: the length of its first tensor."""
    first = next((leaf for leaf in tree_leaves(batch) if isinstance(leaf, torch.Tensor) and leaf.ndim), None)
    if first is None:
        raise RecordError("the batch holds no tensor to count samples by; give the recorder count=")
    return len(first)


def with_indices(loader: DataLoader) -> Iterator[tuple[list[Any], Any]]:
    """The batches of a loader, each with the indices that its batch sampler gave for it.

    Raises RecordError where that cannot be seen.
    """
    sampler, unseen = (
        getattr(loader, "batch_sampler", None),
        "which samples a batch is of; give step() the ids=",
    )
    streams = isinstance(getattr(loader, "dataset", None), IterableDataset)
    if sampler is None or streams or not getattr(loader, "in_order", True):
        raise RecordError(
            f"batches: a {type(loader).__name__} has no batch sampler that says, in order, {unseen}"
        )
    kind, indices = type(sampler), deque[list[Any]]()

    def noted(self: Any) -> Iterator[Any]:
        for batch in kind.__iter__(self):
            indices.append(list(batch))
            yield batch

    # A loader lets nobody exchange its sampler. Its iterator asks for the sampler's at once, and ahead of the batches
    # where it has workers. What is asked later is of another loop over the same loader.
    sampler.__class__ = type(kind.__name__, (kind,), {"__iter__": noted})
    try:
        batches = iter(loader)
    finally:
        sampler.__class__ = kind
    for batch in batches:
        if not indices:
            raise RecordError(f"batches: {type(loader).__name__} does not show {unseen}")
        yield indices.popleft(), batch
