"""What the callbacks must know of other people's batches."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from parity.common.base.errors import RecordError


def size_of(batch: Any) -> int:
    """How many samples a batch holds: the length of its first tensor."""
    first = next((leaf for leaf in tree_leaves(batch) if isinstance(leaf, torch.Tensor) and leaf.ndim), None)
    if first is None:
        raise RecordError("the batch holds no tensor to count samples by; give the recorder count=")
    return len(first)
