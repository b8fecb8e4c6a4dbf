"""What layers on tokens keep for their backward pass: tables, attention, recurrence. See `layers`."""

from __future__ import annotations

import math
from typing import Any

from parity.common.planning.adviser.layers import chain, in_order, masked, own_bytes, product, record, rule
from parity.common.planning.adviser.tape import Storage, Tape, Value
from parity.common.spec import Node, layers
from parity.common.spec.layers.attention import AttentionBase
from parity.common.spec.layers.recurrent import RecurrentBase


def _rows(tape: Tape, x: Value, shape: layers.Shape, parameters: int) -> Value:
    """Rows of a table for each token; the tokens are kept, as integers."""
    tokens = x if tape.tokens else tape.kept(x.shape, 8)
    return tape.apply(x, tape.new(shape), tokens, parameters=parameters)


rule(layers.Embedding)(lambda tape, node, spec, x: _rows(tape, x, node.output_shape, own_bytes(tape, node)))


@rule(layers.SegmentEmbedding)
def _segment_embedding(tape: Tape, node: Node, spec: Any, x: Value) -> Value:
    segments = tape.kept(x.shape, 8)
    return tape.apply(x, tape.new(node.output_shape), segments, parameters=own_bytes(tape, node))


@rule(layers.TiedEmbedding)
def _tied_embedding(tape: Tape, node: Node, spec: layers.TiedEmbedding, x: Value) -> Value:
    beside = len(spec.beside)
    y = _rows(tape, x, (*x.shape, spec.features), own_bytes(tape, node))
    for child in node.children[:beside]:
        y = tape.apply((y, record(tape, child, x)), tape.new(y.shape), passes=True)
    y = in_order(tape, chain(tape, node.children[beside:], y))
    # The table's second gradient is added to the first.
    return product(tape, y, node.output_shape, spec.vocabulary * spec.features)


# Attention.


@rule(layers.SelfAttention, layers.CrossAttention)
def _attention(tape: Tape, node: Node, spec: AttentionBase, x: Value) -> Value:
    # A self-attention has no children, so that its memory is x.
    memory = chain(tape, node.children, x)
    sizes = {p.name: math.prod(p.shape) for p in node.parameters}
    size, queries, keys = spec.size(x.shape), x.shape[0], memory.shape[0]
    inner, shared = spec.heads * size, spec.groups * size

    def project(source: Value, part: str, width: int) -> Value:
        bias = sizes.get(f"{part}_bias", 0)
        y = product(tape, source, (source.shape[0], width), sizes[f"{part}_kernel"])
        if not bias:
            return y
        return tape.apply(y, tape.new(y.shape), parameters=bias * tape.itemsize, passes=True)

    q = project(x, "query", inner)
    k, v = (project(memory, part, shared) for part in ("key", "value"))
    if getattr(spec, "rotary", None):
        q, k = (tape.apply(each, tape.new(each.shape), scratch=tape.bytes_of(each.shape)) for each in (q, k))
    weights, has_mask = (spec.heads, queries, keys), spec.masked and tape.has_padding
    if spec.dropout or tape.low_itemsize is not None:
        mask = tape.kept((queries, keys), 1) if has_mask else Storage(queries * keys)
        mixed = _mixed_in_full(tape, spec, q, k, v, weights, mask)
    else:
        mixed = tape.new((queries, inner))
        sums = tape.kept((spec.heads, queries))
        # The mask as it is and as numbers.
        masks = (tape.kept((queries, keys), 1), tape.kept((queries, keys))) if has_mask else ()
        mixed = tape.apply((q, k, v), mixed, q, k, v, mixed, sums, *masks)
    if has_mask or spec.dropout:
        some = tape.kept((queries,), 1) if has_mask else Storage(queries)
        mixed = tape.apply(mixed, tape.new(mixed.shape), some)
    return project(mixed, "output", node.output_shape[-1])


def _mixed_in_full(
    tape: Tape, spec: AttentionBase, q: Value, k: Value, v: Value, weights: layers.Shape, mask: Storage
) -> Value:
    """Attention whose weights are written out, as dropout needs."""
    low = tape.low_itemsize

    def operand(value: Value) -> Value:
        # In the order that the product wants, heads before tokens; or rounded.
        return tape.apply(value, tape.new(value.shape, itemsize=low))

    q, k = operand(q), operand(k)
    scores = tape.apply((q, k), tape.new(weights), q, k)
    probabilities = tape.new(weights)
    probabilities = tape.apply(scores, probabilities, probabilities, mask)
    if spec.dropout:
        probabilities = masked(tape, probabilities, weights)
    if low is not None:
        probabilities = operand(probabilities)
    v = operand(v)
    return tape.apply((probabilities, v), tape.new((weights[1], q.shape[-1])), probabilities, v)


# Recurrent layers: what PyTorch's CPU kernels keep of each token, in vectors of `units`.

_KEPT_UNITS = {"lstm": 7, "gru": 7, "simple_rnn": 1}


@rule(layers.LSTM, layers.GRU, layers.SimpleRNN)
def _recurrent(tape: Tape, node: Node, spec: RecurrentBase, x: Value) -> Value:
    outputs = tuple(_one_way(tape, node, spec, x, backward) for _, backward in spec.ways)
    if len(outputs) == 1:
        return outputs[0]
    return tape.apply(outputs, tape.new(node.output_shape), passes=spec.merge == "sum")


def _one_way(tape: Tape, node: Node, spec: RecurrentBase, x: Value, backward: bool) -> Value:
    has_mask = spec.masked and tape.has_padding
    tokens, width = x.shape[0], x.shape[-1]

    def reordered(value: Value) -> Value:
        # Along with where each number comes from.
        return tape.apply(value, tape.new(value.shape), value, tape.kept(value.shape, 8))

    x = tape.copied(x) if backward else x
    x = reordered(x) if has_mask else x
    x = tape.copied(x)
    kept = tape.kept((tokens, _KEPT_UNITS[spec.kind] * spec.units))
    # The gates of a GRU are put in PyTorch's order.
    ordered = (width + spec.units) * spec.gates * spec.units * tape.itemsize if spec.kind == "gru" else 0
    parameters = own_bytes(tape, node) // len(spec.ways)
    saved = (x, kept, Storage(ordered))
    y = tape.apply(x, tape.new((tokens, spec.units)), *saved, parameters=parameters, scratch=parameters)
    y = reordered(y) if has_mask else y
    if not spec.return_sequences:
        return tape.part(y, (spec.units,))
    if has_mask and spec.zero_padded:
        y = tape.apply(y, tape.new(y.shape), tape.kept((tokens,), 1))
    return tape.copied(y) if backward else y
