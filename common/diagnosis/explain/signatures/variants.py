"""What a layer may have been made into: other settings, kernels turned, gates swapped, axes in another order."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from parity.common.base import rng
from parity.common.base.errors import ParityError
from parity.common.diagnosis import limits
from parity.common.diagnosis.explain.case import Case, once
from parity.common.diagnosis.explain.signatures.base import Match, ratio_of
from parity.common.diagnosis.explain.signatures.layers import (
    DROPPING,
    Layer,
    Try,
    backward_match,
    base,
    divided,
    is_wrong,
    layer_signature,
    most_allowed,
    plain,
    wrong_gradients,
)
from parity.common.diagnosis.explain.spec_variants import neighbours, rounded_fields, said, setting
from parity.common.parity.deviation import tensor_deviation
from parity.common.record.trace import Array
from parity.common.spec.layers.random import threshold
from parity.common.spec.layers.windows import Windowed


def _with(case: Case, layer: Layer, words: str, tensors: dict[str, Array], **facts: str) -> Try:
    """The layer with some of its own tensors replaced; the names of these are a fact."""
    variant = plain(case, layer, tensors=layer.changed(tensors))
    return Try(words, (variant,), {"names": ", ".join(tensors), **facts})


def _kernels(layer: Layer) -> dict[str, Array]:
    return {name: value for name, value in layer.own().items() if value.ndim >= 2}


# Settings.


def other_setting(case: Case) -> Iterator[Match]:
    """The layer with one field of its spec changed."""
    for kind in (_usual_setting, _other_epsilon, _other_decay):
        yield from kind(case)


@layer_signature
def _usual_setting(case: Case, layer: Layer) -> Iterator[Try]:
    shape, node = layer.node.input_shape, layer.node
    for field, value, changed in neighbours(layer.spec):
        if case.step is None and field in DROPPING:
            continue
        try:
            same = changed.output_shape(shape) == node.output_shape
            parameters = {(p.name, p.shape) for p in changed.parameters(shape)}
        except ParityError:
            continue
        if same and parameters <= {(p.name, p.shape) for p in node.parameters}:
            variant = plain(case, layer, layer=changed)
            split = field == "statistics" and value == "per_replica"
            facts = setting(layer.spec, field, value, layer.spec.kind)
            words = f"with {field} {said(value)} instead of {facts['own']}"
            yield Try(words, divided(case, variant) if split else (variant,), facts, split)


def _fitted(case: Case, layer: Layer, field: str, value: float, digits: int) -> Iterator[Try]:
    """The layer with a number that was read off what was made: rounded, since people round, or as it is."""
    value = case.fitted(value)
    for number in dict.fromkeys((float(f"{value:.{digits}g}"), value)):
        changed = layer.spec.model_copy(update={field: number})
        facts = setting(layer.spec, field, number, layer.spec.kind)
        variant = plain(case, layer, layer=changed)
        yield Try(f"with {field} {said(number)}", (variant,), facts, value=number)


@layer_signature
def rounded_setting(case: Case, layer: Layer) -> Iterator[Try]:
    """The layer with a number of its spec, or an attention's scale, that has been through float32."""
    before = is_wrong(case)
    if before is None or before > limits.FLOAT32_LARGEST:
        return
    for field, _, changed in rounded_fields(layer.spec):
        variant = plain(case, layer, layer=changed)
        yield Try(f"with {field} rounded to float32", (variant,), {"what": field})
    for one in attentions(case, layer):
        if one.cause == THROUGH_FLOAT32:
            yield one


@layer_signature
def activity_missing(case: Case, layer: Layer) -> Iterator[Try]:
    """A layer that penalizes its input does not."""
    if layer.spec.kind == "activity_penalty":
        changed = layer.spec.model_copy(update={"l1": 0.0, "l2": 0.0})
        yield Try("without its penalty", (plain(case, layer, layer=changed),))


@layer_signature
def _other_epsilon(case: Case, layer: Layer) -> Iterator[Try]:
    """Of a norm: the epsilon, whatever it is, from the size of what comes out.

    From normalised values that are r times as large: (v + e') = (v + e) / r^2, by the worst sample.
    """
    if layer.spec.kind not in ("layer_norm", "rms_norm") or layer.spec.axes != 1 or "y" not in layer.made:
        return
    due, made = np.asarray(base(case)["y"]), np.asarray(layer.made["y"], np.float64)
    if made.shape != due.shape:
        return
    x, own, tensors = np.asarray(layer.x, np.float64), layer.spec.epsilon, layer.own()
    variance = (x**2).mean(-1) if layer.spec.kind == "rms_norm" else x.var(-1)
    beta, gamma = tensors.get("beta", np.zeros(1)), tensors.get("gamma", np.ones(1))
    a, b = (due - beta) / gamma, (made - beta) / gamma
    ratio = (a * b).sum(-1) / np.maximum((a * a).sum(-1), limits.NEARLY_ZERO)
    at = np.unravel_index(int(np.argmax(np.abs(ratio - 1))), ratio.shape)
    if not ratio[at]:
        return  # nothing of x is left, whatever epsilon is
    value = float((variance[at] + own) / ratio[at] ** 2 - variance[at])
    if value > 0:
        yield from _fitted(case, layer, "epsilon", value, 3)


@layer_signature
def _other_decay(case: Case, layer: Layer) -> Iterator[Try]:
    """Of moving statistics: new = d old + (1 - d) batch, whatever d is."""
    own, due = getattr(layer.spec, "decay", None), base(case)
    names = [n for n in layer.made if n.startswith("after/buffers/") and n in due]
    if not isinstance(own, float) or not names or own == 1:
        return
    old = [np.asarray(layer.tensors[n.removeprefix("after/")], np.float64) for n in names]
    batch = [(due[n] - own * o) / (1 - own) for n, o in zip(names, old, strict=True)]
    ratio = ratio_of(
        [o - b for o, b in zip(old, batch, strict=True)],
        [layer.made[n] - b for n, b in zip(names, batch, strict=True)],
    )
    if ratio is not None and 0 <= ratio < 1:
        yield from _fitted(case, layer, "decay", ratio, 6)


# Attention and softmax, computed in NumPy: another scale, mask or axis.

OTHER_SCALE, OFF_BY_ONE, NO_MASK = "attention_scale", "mask_off_by_one", "mask_missing"
OTHER_AXIS, THROUGH_FLOAT32 = "softmax_axis", "float32_leak"


@once
def attention(case: Case) -> list[Match]:
    """An attention, or a softmax, with another scale, mask or axis."""
    return list(_attention(case))


@layer_signature
def _attention(case: Case, layer: Layer) -> Iterator[Try]:
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
    usual, narrow, pads = mask(causal, masked), np.float32, case.token_mask is not None
    # Cause, words, mask, and where they are not the spec's the scale and the axis of the softmax.
    rules: list[tuple[Any, ...]] = [
        (OTHER_SCALE, "without a scale", usual, 1.0),
        (OTHER_SCALE, "scaled by 1 / head size", usual, 1 / size),
        (OTHER_SCALE, "scaled by 1 / sqrt(features)", usual, x.shape[-1] ** -0.5),
        (OTHER_SCALE, "scaled by sqrt(head size)", usual, size**0.5),
        (OTHER_SCALE, "scaled by 1 / sqrt(heads)", usual, spec.heads**-0.5),
    ]
    if spec.causal:
        rules += [
            (OFF_BY_ONE, "with the causal mask 1 token off", mask(1, masked)),
            (OFF_BY_ONE, "with the causal mask 1 token off", mask(-1, masked)),
            (OFF_BY_ONE, "with the causal mask 2 tokens off", mask(2, masked)),
            (NO_MASK, "without the causal mask", mask(None, masked)),
        ]
    if masked and pads:
        rules.append((NO_MASK, "without the mask of the padding", mask(causal, False)))
    if spec.causal and masked and pads:
        rules.append((NO_MASK, "without any mask", None))
    if not spec.causal:
        rules.append((NO_MASK, "with a causal mask", mask(0, masked)))
    if not masked and pads:
        rules.append((NO_MASK, "with the padding masked", mask(causal, True)))
    rules += [
        (OTHER_AXIS, "with softmax over the queries", usual, None, -2),
        (OTHER_AXIS, "with softmax over the heads", usual, None, 1),
        (OTHER_AXIS, "with softmax over the samples", usual, None, 0),
    ]
    through = (float(narrow(size**-0.5)), float(1 / narrow(np.sqrt(size))))
    for scale in (*through, float(narrow(1) / np.sqrt(narrow(size)))):
        rules.append((THROUGH_FLOAT32, "with its scale rounded to float32", usual, scale))
    query, key, value = heads("query"), heads("key"), heads("value")
    kept = _kept(case, layer)

    def output(*rule: Any) -> Array:
        mixed = _attended(query, key, value, kept, *rule)
        flat = np.swapaxes(mixed, 1, 2).reshape(len(x), tokens, -1)
        y: Array = flat @ own["output_kernel"] + own.get("output_bias", 0.0)
        return y

    due, made = output(usual), layer.made.get("y")
    if made is None or tensor_deviation(due, made) <= most_allowed(case):
        return  # NumPy's attention is what the suspect made: the layer that tries is the odd one
    for cause, words, *rule in rules:
        y = output(*rule)
        if tensor_deviation(due, y) > limits.FITS or cause == THROUGH_FLOAT32:
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


# Kernels.


@layer_signature
def transposed(case: Case, layer: Layer) -> Iterator[Try]:
    """A kernel whose shape allows it is used transposed."""
    turned: dict[str, Array] = {}
    for name, kernel in _kernels(layer).items():
        for one, two in itertools.combinations(range(kernel.ndim), 2):
            if kernel.shape[one] == kernel.shape[two]:
                turned[name] = np.swapaxes(kernel, one, two)
                yield _with(case, layer, f"with {name} transposed", {name: turned[name]})
        columns, rows = kernel.shape[-1], kernel.shape[-2]
        if kernel.ndim == 2 and columns > rows and columns % rows == 0:
            gates = np.split(kernel, columns // rows, axis=-1)
            turned[name] = np.concatenate([gate.T for gate in gates], axis=-1)
            yield _with(case, layer, f"with each gate of {name} transposed", {name: turned[name]})
    if len(turned) > 1:
        yield _with(case, layer, "with all kernels transposed", turned)


@layer_signature
def flipped(case: Case, layer: Layer) -> Iterator[Try]:
    """A convolution's kernel is used backwards along its window."""
    if isinstance(layer.spec, Windowed):
        for name, kernel in _kernels(layer).items():
            for axes in _some_of(list(range(layer.spec.rank))):
                yield _with(case, layer, f"with {name} flipped", {name: np.flip(kernel, axes)})


def _some_of(axes: list[int]) -> Iterator[tuple[int, ...]]:
    """Every choice of some axes, the largest first."""
    for count in range(len(axes), 0, -1):
        yield from itertools.combinations(axes, count)


@layer_signature
def padding_side(case: Case, layer: Layer) -> Iterator[Try]:
    """The odd cell of a padding is on the other side."""
    if not isinstance(layer.spec, Windowed):
        return
    pads = layer.spec.pads(layer.node.input_shape)
    for axes in _some_of([axis for axis, (before, after) in enumerate(pads) if before != after]):
        rows = tuple(axis + 1 for axis in axes)
        own = {name: np.flip(kernel, axes) for name, kernel in _kernels(layer).items()}
        variant = plain(case, layer, x=np.flip(layer.x, rows), tensors=layer.changed(own), dy=None)
        yield Try("padded on the other side", (variant,), flipped=rows)


@layer_signature
def gates_swapped(case: Case, layer: Layer) -> Iterator[Try]:
    """A recurrent layer's gates are in another order."""
    gates = getattr(layer.spec, "gates", 1)
    if gates < 3:
        return
    names = "ifco" if gates == 4 else "zrh"
    for order in list(itertools.permutations(range(gates)))[1:]:
        own = {}
        for name, value in layer.own().items():
            parts = np.split(value, gates, axis=-1)
            own[name] = np.concatenate([parts[place] for place in order], axis=-1)
        words = "".join(names[place] for place in order)
        yield _with(case, layer, f"with gates {words} for {names}", own, order=words, own=names)


_OTHER_BIASES = (("bias_doubled", 2.0, "doubled"), ("bias_missing", 0.0, "left out"))


@once
def other_bias(case: Case) -> list[Match]:
    """A bias counts twice, or for nothing."""
    by_gradient = (_bias_of_gradient(case, *other) for other in _OTHER_BIASES)
    return [*_bias_in_use(case), *(found for found in by_gradient if found is not None)]


@layer_signature
def _bias_in_use(case: Case, layer: Layer) -> Iterator[Try]:
    own = {n: v for n, v in layer.own().items() if _is_bias(n) and np.any(v)}
    for cause, factor, words in _OTHER_BIASES:
        scaled = {n: factor * v for n, v in own.items()}
        for name, value in scaled.items():
            yield replace(_with(case, layer, f"with {name} {words}", {name: value}), cause=cause)
        if len(own) > 1:
            yield replace(_with(case, layer, f"with all biases {words}", scaled), cause=cause)


def _bias_of_gradient(case: Case, cause: str, factor: float, words: str) -> Match | None:
    """A bias that is still zero shows in its gradient only."""
    wrong = {n: pair for n, pair in wrong_gradients(case).items() if _is_bias(n)}
    pairs = [(factor * due, made) for due, made in wrong.values()]
    if not wrong or any(tensor_deviation(*pair) > limits.FITS for pair in pairs):
        return None
    names = ", ".join(n.rpartition("/")[2] for n in wrong)
    tried = f"the gradient of {names} is that of a bias {words}"
    return backward_match(case, 0.0, tried, cause, names=names)


def _is_bias(name: str) -> bool:
    return name.endswith(("bias", "beta"))


# Inputs and outputs.


@layer_signature
def axes_swapped(case: Case, layer: Layer) -> Iterator[Try]:
    """Axes of the output, or of the input, are swapped."""
    due, made = base(case)["y"], layer.made.get("y")
    if made is None:
        return
    for one, two in itertools.combinations(range(1, due.ndim), 2):
        other = np.swapaxes(due, one, two)
        yield Try(f"with axes {one} and {two} of the output swapped", y=other)
        if due.size == made.size:
            words = f"with axes {one} and {two} swapped and the shape kept"
            yield Try(words, y=other.reshape(made.shape))
    for axis in range(1, due.ndim):
        # Tokens, or features, that are a grid's cells row by row.
        for rows in range(2, due.shape[axis]):
            if due.shape[axis] % rows == 0:
                order = np.arange(due.shape[axis]).reshape(rows, -1).T.ravel()
                yield Try(f"with axis {axis} column by column", y=np.take(due, order, axis))
    for one, two in itertools.combinations(range(1, layer.x.ndim), 2):
        x = np.ascontiguousarray(np.swapaxes(layer.x, one, two)).reshape(layer.x.shape)
        words = f"with axes {one} and {two} of the input swapped"
        yield Try(words, (plain(case, layer, x=x, dy=None),))


@layer_signature
def flattened_otherwise(case: Case, layer: Layer) -> Iterator[Try]:
    """An image is flattened in another order of its axes."""
    if layer.spec.kind not in ("flatten", "reshape", "patchify"):
        return
    axes, shape = range(1, layer.x.ndim), layer.made.get("y", layer.x).shape
    names = ".HWC" if layer.x.ndim == 4 else "0123456789"
    for order in list(itertools.permutations(axes))[1:]:
        words = "in the order " + "".join(names[axis] for axis in order)
        yield Try(words, y=layer.x.transpose(0, *order).reshape(shape))


@layer_signature
def features_permuted(case: Case, layer: Layer) -> Iterator[Try]:
    """The output is the due one with its features, or tokens, in another order."""
    due, made = base(case)["y"], layer.made.get("y")
    if made is None or due.shape != made.shape:
        return
    for axis in range(made.ndim - 1, 0, -1):
        order = _order_along(due, made, axis)
        if order is not None:
            yield Try(f"with axis {axis} in another order", y=np.take(due, order, axis))
    for axis in range(1, due.ndim):
        for shift in (1, -1):
            yield Try(f"with axis {axis} shifted by {shift}", y=np.roll(due, shift, axis))


def _order_along(due: Array, made: Array, axis: int) -> list[int] | None:
    """Which slice of what is due each slice of what was made is; None where it is none, or no permutation."""
    a = np.moveaxis(due, axis, 0).reshape(due.shape[axis], -1)
    b = np.moveaxis(made, axis, 0).reshape(made.shape[axis], -1)
    order = [int(np.argmin(np.abs(a - row).max(1))) for row in b]
    near = np.abs(a[order] - b).max() <= limits.FITS * np.abs(a).max(initial=0.0)
    return order if near and len(set(order)) == len(order) else None


@layer_signature
def output_scaled(case: Case, layer: Layer) -> Iterator[Try]:
    """The output is the due one times a number."""
    due = base(case)["y"]
    factor = ratio_of([due], [layer.made["y"]]) if "y" in layer.made else None
    factor = factor and case.fitted(factor)
    if factor and abs(factor - 1) > limits.FLOAT32_FACTOR:
        facts = {"factor": f"{factor:.9g}"}
        yield Try(f"times {factor:.9g}", y=factor * due, facts=facts, value=factor)


@layer_signature
def skip_missing(case: Case, layer: Layer) -> Iterator[Try]:
    """A residual gives its branch without its input."""
    if layer.spec.kind == "residual":
        yield Try("without its input added", y=base(case)["y"] - layer.x)
        yield Try("without its branch", y=layer.x)
