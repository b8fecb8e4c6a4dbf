"""Losses as (sum, count): the step divides once, globally."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from common.spec.train import LossSpec


def loss_sum_and_count(loss: LossSpec, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Sum of the samples' losses and their number, both scalars of the logits' type.

    Args:
        loss: which loss.
        logits: (batch, classes).
        labels: (batch,) int64.
    """
    assert loss.kind == "softmax_cross_entropy"
    return F.cross_entropy(logits, labels, reduction="sum"), logits.new_tensor(labels.numel())
