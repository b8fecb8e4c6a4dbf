"""The layers of sequences among those of `tf_impl/stock/model.py`."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from parity.common.spec import Node
from parity.common.spec import layers as spec
from parity.common.state.canonical import State
from parity.tf_impl.stock.model import Build, Tensor, constant, missing, name_of, register


@register(spec.Embedding)
def _embedding(build: Build, node: Node, x: Tensor) -> Tensor:
    layer = keras.layers.Embedding(node.spec.vocabulary, node.spec.features, name=name_of(node))
    return build.put(layer, [build.own(node)["embedding"]], x)


@register(spec.TiedEmbedding)
def _tied(build: Build, node: Node, x: Tensor) -> Tensor:
    own, beside = build.own(node), len(node.spec.beside)
    layer = keras.layers.ReversibleEmbedding(node.spec.vocabulary, node.spec.features, name=name_of(node))
    y = build.put(layer, [own["embedding"]], x)
    for child in node.children[:beside]:
        y = y + build(child, x)
    y = layer(build.chain(node.children[beside:], y), reverse=True)
    return y + constant(own["output_bias"]) if "output_bias" in own else y


def _row(build: Build, node: Node, numbers: Tensor) -> Tensor:
    """Rows of a node's table; its numbers are computed, not given."""
    table = build.own(node)["embedding"]
    rows, features = table.reshape(-1, table.shape[-1]).shape
    layer = keras.layers.Embedding(rows, features, name=name_of(node))
    return build.put(layer, [table.reshape(rows, features)], numbers)


@register(spec.PositionEmbedding)
def _positions(build: Build, node: Node, x: Tensor) -> Tensor:
    numbers = ops.cumsum(ops.ones_like(x[..., 0], dtype="int32"), axis=1) - 1
    return x + _row(build, node, numbers)


@register(spec.SinusoidalPositions)
def _sinusoidal(build: Build, node: Node, x: Tensor) -> Tensor:
    return x + constant(node.spec.table(node.input_shape))


@register(spec.SegmentEmbedding)
def _segments(build: Build, node: Node, x: Tensor) -> Tensor:
    if node.spec.separator_id is None:
        return _row(build, node, ops.zeros_like(x, dtype="int32"))
    separators = ops.cast(ops.equal(x, node.spec.separator_id), "int32")
    before = ops.cumsum(separators, axis=1) - separators
    return _row(build, node, ops.minimum(before, node.spec.types - 1))


@register(spec.ClassToken)
def _class_token(build: Build, node: Node, x: Tensor) -> Tensor:
    first = _row(build, node, ops.zeros_like(x[:, :1, 0], dtype="int32"))
    return keras.layers.Concatenate(axis=1)([first, x])


@register(spec.SelfAttention)
def _self_attention(build: Build, node: Node, x: Tensor) -> Tensor:
    if node.spec.rotary:
        raise missing(node, "rotary positions")
    return _attention(build, node, x, x, node.spec.causal)


@register(spec.CrossAttention)
def _cross_attention(build: Build, node: Node, x: Tensor) -> Tensor:
    return _attention(build, node, x, build.chain(node.children, x), False)


def _attention(build: Build, node: Node, x: Tensor, memory: Tensor, causal: bool) -> Tensor:
    layer, own = node.spec, build.own(node)
    if ("query_bias" in own) != ("output_bias" in own):
        raise missing(node, "a bias of the output alone, or of all but it")
    size, inner = layer.size(node.input_shape), layer.heads * layer.size(node.input_shape)
    common = {"use_bias": layer.use_bias, "dropout": layer.dropout, "name": name_of(node)}
    if layer.groups == layer.heads:
        made = keras.layers.MultiHeadAttention(layer.heads, size, **common)
    else:
        made = keras.layers.GroupQueryAttention(size, layer.heads, layer.groups, **common)
    values = []
    for part, heads in (("query", layer.heads), ("key", layer.groups), ("value", layer.groups)):
        values.append(own[f"{part}_kernel"].reshape(-1, heads, size))
        if f"{part}_bias" in own:
            values.append(own[f"{part}_bias"].reshape(heads, size))
    values.append(own["output_kernel"].reshape(layer.heads, inner // layer.heads, -1))
    values.append(own.get("output_bias"))
    masked: dict[str, Any] = {"use_causal_mask": causal}
    if layer.masked and build.kept is not None:
        masked["attention_mask"] = ops.expand_dims(build.kept, 1)
    return build.put(made, values, x, value=memory, **masked)


@register(spec.LSTM, spec.GRU, spec.SimpleRNN)
def _recurrent(build: Build, node: Node, x: Tensor) -> Tensor:
    layer, own = node.spec, build.own(node)
    both = layer.direction == "both"
    mask = build.kept if layer.masked else None
    if mask is not None and layer.return_sequences and layer.zero_padded != both:
        raise missing(node, f"padded_outputs {layer.padded_outputs}")
    kind: Any = {
        spec.LSTM: keras.layers.LSTM,
        spec.GRU: keras.layers.GRU,
        spec.SimpleRNN: keras.layers.SimpleRNN,
    }[type(layer)]
    more = {"reset_after": layer.reset == "after"} if isinstance(layer, spec.GRU) else {}
    made: keras.layers.Layer = kind(
        layer.units,
        return_sequences=layer.return_sequences,
        use_bias=layer.use_bias,
        go_backwards=layer.direction == "backward",
        name=name_of(node),
        **more,
    )
    if both:
        merge = "concat" if layer.merge == "concatenate" else "sum"
        made = keras.layers.Bidirectional(made, merge_mode=merge, name=f"{name_of(node)}.both")
    values = [value for prefix, _ in layer.ways for value in _cell(layer, own, prefix)]
    y = build.put(made, values, x, **({} if mask is None else {"mask": mask}))
    if mask is not None and layer.return_sequences:
        # An operation leaves behind the mask that Keras would hand on to layers that are to see padding.
        y = ops.copy(y)
    # Keras leaves outputs in the order of their making.
    return ops.flip(y, axis=1) if layer.direction == "backward" and layer.return_sequences else y


def _cell(layer: Any, own: State, prefix: str) -> list[np.ndarray | None]:
    """Kernel, recurrent kernel and bias of one direction."""
    bias, second = own.get(f"{prefix}bias"), own.get(f"{prefix}recurrent_bias")
    if second is not None:
        # Keras has two in a GRU alone; in the others they are added, and one sum does.
        bias = np.stack([bias, second]) if isinstance(layer, spec.GRU) else bias + second
    return [own[f"{prefix}kernel"], own[f"{prefix}recurrent_kernel"], bias]
