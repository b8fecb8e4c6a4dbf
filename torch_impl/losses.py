"""Losses as (sum, count): the step divides once, globally. Formulas as in `common/reference/losses.py`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from parity.common.execution.pass_context import Context
from parity.common.spec import losses as spec
from parity.common.spec.imported_loss import ImportedLoss
from parity.common.spec.losses import LossBase


def loss_sum_and_count(
    loss: LossBase,
    outputs: Tensor,
    targets: Tensor,
    context: Context,
    sample_weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Sum of the losses of all that counts, and their number, both scalars of the outputs' type.

    Args:
        loss: which loss.
        outputs: (batch, ...) of the model.
        targets: (batch, *loss.target_shape), int64 classes or numbers.
        context: gives the token mask and what the layers add to the sum.
        sample_weights: (batch,), factors of each sample's part of the sum; the count is as if all were 1, as in Keras.
    """
    if isinstance(loss, ImportedLoss):
        total, count = outputs.sum(0).unbind()
        count = count.detach()
    elif isinstance(loss, spec.SoftmaxCrossEntropy):
        total, count = _cross_entropy(loss, outputs, targets, context, sample_weights)
    elif isinstance(loss, spec.KLDivergence):
        total = _weighted(_divergence(loss, outputs, targets), sample_weights).sum()
        count = total.new_tensor(targets[..., 0].numel())
    else:
        total = _weighted(_elementwise(loss, outputs, targets), sample_weights).sum()
        count = total.new_tensor(targets.numel())
    for penalty in context.penalties:
        total = total + penalty
    return total, count


def correct(loss: LossBase, outputs: Tensor, targets: Tensor, context: Context) -> Tensor:
    """How many of the counted classes are right, a scalar; 0 where there are no classes."""
    if not loss.classes:
        return outputs.new_zeros(())
    if loss.targets == "distributions":
        targets = targets.argmax(-1)
    right = (outputs.argmax(-1) == targets).to(outputs.dtype)
    return (right * _counted(loss, outputs, targets, context)).sum()


def _counted(loss: spec.SoftmaxCrossEntropy, outputs: Tensor, targets: Tensor, context: Context) -> Tensor:
    """1 for each class target that counts, else 0, in the outputs' type; shape of the class targets."""
    counted = torch.ones(outputs.shape[:-1], dtype=torch.bool, device=outputs.device)
    if loss.ignore is not None:
        counted = counted & (targets != loss.ignore)
    if loss.mask_padding:
        counted = counted & context.token_mask
    return counted.to(outputs.dtype)


def _weighted(losses: Tensor, weights: Tensor | None) -> Tensor:
    """Losses (batch, ...) times weights (batch,)."""
    return losses if weights is None else losses * weights.reshape(-1, *[1] * (losses.dim() - 1))


def _cross_entropy(
    loss: spec.SoftmaxCrossEntropy,
    outputs: Tensor,
    targets: Tensor,
    context: Context,
    sample_weights: Tensor | None,
) -> tuple[Tensor, Tensor]:
    if loss.is_plain and sample_weights is None:
        total = F.cross_entropy(outputs.flatten(0, -2), targets.flatten(), reduction="sum")
        return total, total.new_full((), targets.numel())
    weights = _counted(loss, outputs, targets, context)
    if loss.targets == "classes":
        # An ignored target may be no class at all.
        targets = targets.clamp(0, outputs.shape[-1] - 1)
    log_p = _log_probabilities(loss, outputs)
    if loss.targets == "classes":
        losses = -log_p.gather(-1, targets[..., None])[..., 0]
        if loss.label_smoothing:
            losses = (1 - loss.label_smoothing) * losses - loss.label_smoothing * log_p.mean(-1)
    else:
        smooth = (1 - loss.label_smoothing) * targets + loss.label_smoothing / targets.shape[-1]
        losses = -(smooth * log_p).sum(-1)
    count = weights.sum()
    if loss.class_weights is not None:
        weights = weights * outputs.new_tensor(loss.class_weights)[targets]
        if loss.class_weight_mean == "weights":
            count = weights.sum()
    return _weighted(weights * losses, sample_weights).sum(), count


def _log_probabilities(loss: spec.SoftmaxCrossEntropy, outputs: Tensor) -> Tensor:
    if loss.outputs == "logits":
        return outputs.log_softmax(-1)
    if not loss.clip:
        return outputs.log()
    if loss.targets == "classes":
        return _normalised(outputs.clamp(loss.clip, 1 - loss.clip)).log()
    return _normalised(outputs).clamp(loss.clip, 1 - loss.clip).log()


def _normalised(p: Tensor) -> Tensor:
    return p / p.sum(-1, keepdim=True)


def _elementwise(loss: LossBase, outputs: Tensor, targets: Tensor) -> Tensor:
    error = outputs - targets
    if isinstance(loss, spec.MeanSquaredError):
        return error.square()
    if isinstance(loss, spec.MeanAbsoluteError):
        return error.abs()
    if isinstance(loss, spec.Huber):
        size = error.abs()
        return torch.where(size <= loss.delta, 0.5 * error.square(), loss.delta * size - 0.5 * loss.delta**2)
    assert isinstance(loss, spec.BinaryCrossEntropy)
    targets = (1 - loss.label_smoothing) * targets + loss.label_smoothing / 2
    if loss.outputs == "logits":
        yes, no = F.logsigmoid(outputs), F.logsigmoid(-outputs)
    else:
        p = outputs.clamp(loss.clip, 1 - loss.clip) if loss.clip else outputs
        yes, no = p.log(), (1 - p).log()
        if loss.log_floor is not None:
            yes, no = yes.clamp(min=loss.log_floor), no.clamp(min=loss.log_floor)
    return -(loss.positive_weight * targets * yes + (1 - targets) * no)


def _divergence(loss: spec.KLDivergence, outputs: Tensor, targets: Tensor) -> Tensor:
    if loss.outputs == "logits":
        log_p = outputs.log_softmax(-1)
    elif loss.outputs == "log_probabilities":
        log_p = outputs
    else:
        if loss.clip:
            targets, outputs = targets.clamp(loss.clip, 1), outputs.clamp(loss.clip, 1)
        log_p = outputs.log()
    return torch.xlogy(targets, targets) - targets * log_p
