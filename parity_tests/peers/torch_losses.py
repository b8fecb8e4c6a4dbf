"""Losses in PyTorch: ours, and those it ships."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from parity.common.execution.pass_context import Context
from parity.common.spec.losses import LossBase, parse_loss
from parity.torch_impl.losses import correct, loss_sum_and_count
from parity_tests.peers import Arrays


def loss(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """Sum, count, gradient of the sum, and the number of right classes."""
    spec: LossBase = parse_loss(facts["loss"])
    outputs, targets, mask = (torch.from_numpy(arrays[n].copy()) for n in ("outputs", "targets", "mask"))
    outputs.requires_grad_()
    context = Context(True, token_mask=mask)
    total, count = loss_sum_and_count(spec, outputs, targets, context)
    total.backward()
    return {
        "sum": total.detach().numpy(),
        "count": count.detach().numpy(),
        "gradient": outputs.grad.numpy(),
        "correct": correct(spec, outputs.detach(), targets, context).numpy(),
    }


def stock(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """The mean loss and its gradient by a class of torch.nn; classes along the last axis."""
    outputs, targets = (torch.from_numpy(arrays[n].copy()) for n in ("outputs", "targets"))
    outputs.requires_grad_()
    options = dict(facts["options"])
    if "weight" in options:
        options["weight"] = torch.tensor(options["weight"], dtype=torch.float64)
    if "pos_weight" in options:
        options["pos_weight"] = torch.tensor(options["pos_weight"], dtype=torch.float64)
    stock_loss: nn.Module = getattr(nn, facts["name"])(**options)

    def classes_first(x: Tensor) -> Tensor:
        return x.movedim(-1, 1) if facts["classes_first"] and x.ndim == outputs.ndim else x

    mean = stock_loss(classes_first(outputs), classes_first(targets))
    mean.backward()
    return {"mean": mean.detach().numpy(), "gradient": outputs.grad.numpy()}
