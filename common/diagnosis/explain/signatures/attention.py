"""Signatures of attention and softmax, computed in NumPy: another scale, mask or axis."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from parity.common.base import rng
from parity.common.diagnosis.explain.case import Case, once
from parity.common.diagnosis.explain.signatures.layers import Layer, Try, layer_signature
from parity.common.record.trace import Array
from parity.common.spec.layers.random import threshold

OTHER_SCALE, OFF_BY_ONE, NO_MASK = "attention_scale", "mask_off_by_one", "mask_missing"
OTHER_AXIS, THROUGH_FLOAT32 = "softmax_axis", "float32_leak"


@once
@layer_signature
def attention(case: Case, layer: Layer) -> Iterator[Try]:
    """An attention, or a softmax, with another scale, mask or axis."""
    if getattr(layer.spec, "function", "") in ("softmax", "log_softmax"):
        return _softmaxes(layer)
    return (one for one in attentions(case, layer) if one.cause != THROUGH_FLOAT32)


def _softmaxes(layer: Layer) -> Iterator[Try]:
    x = np.asarray(layer.x, np.float64)
    for axis in range(x.ndim - 1):
        e = np.exp(x - x.max(axis, keepdims=True))
        y = e / e.sum(axis, keepdims=True)
        y = np.log(y) if layer.spec.function == "log_softmax" else y
        yield Try(f"over axis {axis}", y=y, cause=OTHER_AXIS)


def attentions(case: Case, layer: Layer) -> Iterator[Try]:
    """Self-attention under each of the rules that someone may take for its own."""
    if layer.spec.kind != "self_attention" or getattr(layer.spec, "rotary", None):
        return
    spec, own, x = layer.spec, layer.own(), np.asarray(layer.x, np.float64)
    size, tokens = spec.size(layer.node.input_shape), x.shape[1]

    def heads(part: str) -> Array:
        flat = x @ own[f"{part}_kernel"] + own.get(f"{part}_bias", 0.0)
        split: Array = np.swapaxes(flat.reshape(*flat.shape[:-1], -1, size), 1, 2)
        return np.repeat(split, spec.heads // split.shape[1], axis=1)

    def mask(shift: int | None, padding: bool) -> Array:
        allowed = np.ones((1, 1, tokens, tokens), bool)
        if shift is not None:
            allowed = allowed & np.tril(np.ones((tokens, tokens), bool), shift)
        if padding and case.token_mask is not None:
            allowed = allowed & case.token_mask[:, None, None, :]
        return allowed

    causal, masked = 0 if spec.causal else None, spec.masked
    usual, narrow = mask(causal, masked), np.float32
    # Cause, words, mask, and where they are not the spec's the scale and the axis of the softmax.
    rules: list[tuple[Any, ...]] = [
        (OTHER_SCALE, "without a scale", usual, 1.0),
        (OTHER_SCALE, "scaled by 1 / head size", usual, 1 / size),
        (OTHER_SCALE, "scaled by 1 / sqrt(features)", usual, x.shape[-1] ** -0.5),
        (OTHER_SCALE, "scaled by sqrt(head size)", usual, size**0.5),
        (OTHER_SCALE, "scaled by 1 / sqrt(heads)", usual, spec.heads**-0.5),
        (OFF_BY_ONE, "with the causal mask 1 token off", mask(1, masked)),
        (OFF_BY_ONE, "with the causal mask 1 token off", mask(-1, masked)),
        (OFF_BY_ONE, "with the causal mask 2 tokens off", mask(2, masked)),
        (NO_MASK, "without the causal mask", mask(None, masked)),
        (NO_MASK, "without the mask of the padding", mask(causal, False)),
        (NO_MASK, "without any mask", None),
        (NO_MASK, "with a causal mask", mask(0, masked)),
        (NO_MASK, "with the padding masked", mask(causal, True)),
        (OTHER_AXIS, "with softmax over the queries", usual, None, -2),
        (OTHER_AXIS, "with softmax over the heads", usual, None, 1),
        (OTHER_AXIS, "with softmax over the samples", usual, None, 0),
        (THROUGH_FLOAT32, "with its scale rounded to float32", usual, float(narrow(size**-0.5))),
        (THROUGH_FLOAT32, "with its scale rounded to float32", usual, float(1 / narrow(np.sqrt(size)))),
        (
            THROUGH_FLOAT32,
            "with its scale rounded to float32",
            usual,
            float(narrow(1) / np.sqrt(narrow(size))),
        ),
    ]
    query, key, value = heads("query"), heads("key"), heads("value")
    kept = _kept(case, layer)
    for cause, words, *rule in rules:
        mixed = _attended(query, key, value, kept, *rule)
        flat = np.swapaxes(mixed, 1, 2).reshape(len(x), tokens, -1)
        y = flat @ own["output_kernel"] + own.get("output_bias", 0.0)
        yield Try(words, facts={"what": "scale"}, y=y, cause=cause)


def _kept(case: Case, layer: Layer) -> Array | None:
    """What dropout multiplies the attention weights by; None where there is none."""
    rate, tokens = layer.spec.dropout, layer.x.shape[1]
    if case.step is None or not rate:
        return None
    ids, shape = np.sort(np.concatenate(case.ids)), (layer.spec.heads, tokens, tokens)
    key = rng.derive_key(case.spec.seed, "dropout", f"{layer.node.path}/weights")
    words = rng.sample_words(key, case.step, ids, math.prod(shape))
    mask: Array = (words >= threshold(rate)).reshape(-1, *shape) / (1 - rate)
    return mask


def _attended(
    query: Array,
    key: Array,
    value: Array,
    kept: Array | None,
    allowed: Array | None,
    scale: float | None = None,
    axis: int = -1,
) -> Array:
    """softmax(scale q k^T) v of (samples, heads, tokens, size); `allowed` (..., tokens, keys)."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = scale * query @ np.swapaxes(key, -1, -2)
    if allowed is not None:
        scores = np.where(allowed, scores, -np.inf)
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(axis, keepdims=True))
        weights = weights / weights.sum(axis, keepdims=True)
    weights = np.where(np.isnan(weights), 0.0, weights)
    result: Array = (weights if kept is None else weights * kept) @ value
    return result
