"""Losses as (sum, count), written out in NumPy. Safe for complex numbers, but for where they clip."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.common.spec import losses as spec
from parity.common.spec.losses import LossBase

Array = NDArray[Any]


def loss_sum_and_count(
    loss: LossBase, outputs: Array, targets: Array, token_mask: NDArray[np.bool_] | None = None
) -> tuple[Any, float]:
    """Sum of the losses of all that counts, and their number.

    Args:
        loss: resolved.
        outputs: (batch, ...) of the model.
        targets: (batch, *loss.target_shape).
        token_mask: False where a token is padding; needed where the loss masks padding.
    """
    if isinstance(loss, spec.SoftmaxCrossEntropy):
        return _cross_entropy(loss, outputs, targets, token_mask)
    if isinstance(loss, spec.KLDivergence):
        return _divergence(loss, outputs, targets).sum(), float(targets[..., 0].size)
    return _elementwise(loss, outputs, targets).sum(), float(targets.size)


def penalty_gradient(loss: LossBase, weight: Array) -> Array:
    """Gradient of the loss's penalties, l1 sum |w| + l2 sum w^2, on one weight: float64, in its shape."""
    weight = np.asarray(weight, np.float64)
    if loss.penalize != "all" and weight.ndim < 2:
        return np.zeros_like(weight)
    gradient: Array = loss.l1 * np.sign(weight) + 2 * loss.l2 * weight
    return gradient


def log_softmax(x: Array) -> Array:
    """Return log(exp(x) / sum exp(x)) along the last axis, of the shape of x (..., classes)."""
    shifted = x - x.real.max(-1, keepdims=True)
    result: Array = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return result


def _cross_entropy(
    loss: spec.SoftmaxCrossEntropy, outputs: Array, targets: Array, token_mask: NDArray[np.bool_] | None
) -> tuple[Any, float]:
    classes = outputs.shape[-1]
    weights = np.ones(outputs.shape[:-1])
    if loss.ignore is not None:
        weights[targets == loss.ignore] = 0
    if loss.mask_padding:
        assert token_mask is not None
        weights[~token_mask] = 0
    if loss.outputs == "logits":
        log_p = log_softmax(outputs)
    elif not loss.clip:
        log_p = np.log(outputs)
    elif loss.targets == "classes":
        p = _clip(outputs, loss.clip, 1 - loss.clip)
        log_p = np.log(p / p.sum(-1, keepdims=True))
    else:
        log_p = np.log(_clip(outputs / outputs.sum(-1, keepdims=True), loss.clip, 1 - loss.clip))
    count = weights.sum()
    if loss.targets == "classes":
        known = np.where(weights > 0, targets, 0)
        hot = np.eye(classes)[known]
        if loss.class_weights is not None:
            weights = weights * np.array(loss.class_weights)[known]
            count = weights.sum() if loss.class_weight_mean == "weights" else count
    else:
        hot = targets
    smooth = (1 - loss.label_smoothing) * hot + loss.label_smoothing / classes
    return -(weights[..., None] * smooth * log_p).sum(), float(count)


def _elementwise(loss: LossBase, y: Array, t: Array) -> Array:
    if isinstance(loss, spec.MeanSquaredError):
        return (y - t) ** 2
    size = np.where((y - t).real < 0, t - y, y - t)
    if isinstance(loss, spec.MeanAbsoluteError):
        return size
    if isinstance(loss, spec.Huber):
        return np.where(size.real <= loss.delta, size**2 / 2, loss.delta * size - loss.delta**2 / 2)
    assert isinstance(loss, spec.BinaryCrossEntropy)
    t = (1 - loss.label_smoothing) * t + loss.label_smoothing / 2
    if loss.outputs == "logits":
        # log(1 + exp(-|y|)) cannot overflow.
        positive = np.where(y.real < 0, -y, y)
        soft = np.log1p(np.exp(-positive))
        yes, no = np.where(y.real < 0, y, 0) - soft, np.where(y.real < 0, 0, -y) - soft
    else:
        p = _clip(y, loss.clip, 1 - loss.clip) if loss.clip else y
        with np.errstate(divide="ignore"):
            yes, no = np.log(p), np.log(1 - p)
        if loss.log_floor is not None:
            yes, no = (np.where(x.real < loss.log_floor, loss.log_floor, x) for x in (yes, no))
    result: Array = -(loss.positive_weight * t * yes + (1 - t) * no)
    return result


def _divergence(loss: spec.KLDivergence, y: Array, t: Array) -> Array:
    if loss.outputs == "logits":
        log_p = log_softmax(y)
    elif loss.outputs == "log_probabilities":
        log_p = y
    else:
        if loss.clip:
            t, y = _clip(t, loss.clip, 1), _clip(y, loss.clip, 1)
        log_p = np.log(y)
    result: Array = t * np.log(np.where(t == 0, 1, t)) - t * log_p
    return result


def _clip(x: Array, low: float, high: float) -> Array:
    return np.where(x.real < low, low, np.where(x.real > high, high, x))
