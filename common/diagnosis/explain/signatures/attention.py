"""Signatures of attention and softmax, computed in NumPy: another scale, mask or axis."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import numpy as np

from parity.common.base import rng
from parity.common.diagnosis.explain import step_reference
from parity.common.diagnosis.explain.signatures.base import Case, Match
from parity.common.diagnosis.explain.signatures.layers import Layer, computed, layer_of
from parity.common.record.trace import Array
from parity.common.spec.layers.random import threshold


def attention(case: Case, which: str, **facts: str) -> Match | None:
    """An attention with another scale, mask or softmax; computed here."""
    layer = layer_of(case)
    if layer is None or layer.spec.kind != "self_attention" or getattr(layer.spec, "rotary", None):
        return None
    return computed(case, _attentions(case, layer, which), **facts)


def _attentions(case: Case, layer: Layer, which: str) -> Iterator[tuple[str, Array]]:
    spec, own, x = layer.spec, layer.own(), np.asarray(layer.x, np.float64)
    size = spec.size(layer.node.input_shape)

    def heads(part: str) -> Array:
        flat = x @ own[f"{part}_kernel"] + own.get(f"{part}_bias", 0.0)
        split: Array = np.swapaxes(flat.reshape(*flat.shape[:-1], -1, size), 1, 2)
        return np.repeat(split, spec.heads // split.shape[1], axis=1)

    query, key, value = heads("query"), heads("key"), heads("value")
    tokens = x.shape[1]

    def finished(mixed: Array) -> Array:
        flat = np.swapaxes(mixed, 1, 2).reshape(len(x), tokens, -1)
        y: Array = flat @ own["output_kernel"] + own.get("output_bias", 0.0)
        return y

    def mask(shift: int | None, padding: bool) -> Array | None:
        allowed = np.ones((1, 1, tokens, tokens), bool)
        if shift is not None:
            allowed = allowed & np.tril(np.ones((tokens, tokens), bool), shift)
        if padding and case.token_mask is not None:
            allowed = allowed & case.token_mask[:, None, None, :]
        return allowed

    attend = functools.partial(step_reference.attended, query, key, value, kept=_kept(case, layer))
    causal = 0 if spec.causal else None
    usual = mask(causal, spec.masked)
    if which == "scale":
        for words, scale in (
            ("without a scale", 1.0),
            ("scaled by 1 / head size", 1 / size),
            ("scaled by 1 / sqrt(features)", x.shape[-1] ** -0.5),
            ("scaled by sqrt(head size)", size**0.5),
            ("scaled by 1 / sqrt(heads)", spec.heads**-0.5),
        ):
            yield words, finished(attend(usual, scale))
    elif which == "rounded":
        for scale in (
            np.float32(size**-0.5),
            1 / np.float32(np.sqrt(size)),
            np.float32(1) / np.sqrt(np.float32(size)),
        ):
            words = "with its scale rounded to float32"
            yield words, finished(attend(usual, float(scale)))
    elif which == "axis":
        for axis, words in ((-2, "over the queries"), (1, "over the heads"), (0, "over the samples")):
            yield f"with softmax {words}", finished(attend(usual, None, axis))
    elif which == "shift":
        for shift in (1, -1, 2):
            words = f"with the causal mask {abs(shift)} token{'s' if abs(shift) > 1 else ''} off"
            yield words, finished(attend(mask(shift, spec.masked)))
    else:
        for words, allowed in (
            ("without the causal mask", mask(None, spec.masked)),
            ("without the mask of the padding", mask(causal, False)),
            ("without any mask", None),
            ("with a causal mask", mask(0, spec.masked)),
            ("with the padding masked", mask(causal, True)),
        ):
            yield words, finished(attend(allowed))


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


def softmax_axis(case: Case) -> Match | None:
    """An activation's softmax runs over another axis."""
    layer = layer_of(case)
    if layer is None or getattr(layer.spec, "function", "") not in ("softmax", "log_softmax"):
        return attention(case, "axis")
    x, found = np.asarray(layer.x, np.float64), []
    for axis in range(x.ndim - 1):
        e = np.exp(x - x.max(axis, keepdims=True))
        y = e / e.sum(axis, keepdims=True)
        found.append((f"over axis {axis}", np.log(y) if layer.spec.function == "log_softmax" else y))
    return computed(case, found)
