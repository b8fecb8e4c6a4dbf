"""ModelSpec -> model whose tensors are found by canonical name."""

from __future__ import annotations

import keras
import tensorflow as tf

from common.data.plan import BatchPlan
from common.spec import Node, Placement, TrainSpec
from common.state import canonical_name
from tf_impl.layers import EmptySafe, build_layer
from tf_impl.strategy import Strategy


class Model:
    """The layer tree with its variables by canonical name."""

    def __init__(self, spec: TrainSpec, placement: Placement) -> None:
        keras.config.set_floatx(spec.precision)
        # Not only floatx: a policy set by an earlier run of this process would win.
        keras.config.set_dtype_policy(spec.precision)
        self._may_be_empty = BatchPlan.of(spec, placement).may_be_empty(spec.data.eval_samples)
        tree = spec.model.tree()
        self.root = build_layer(tree)
        self.tensors: dict[str, tf.Variable] = {}
        self._collect(tree, self.root)

    def __call__(self, inputs: tf.Tensor, training: bool) -> tf.Tensor:
        """Logits (batch, classes) of canonical inputs (batch, ...)."""
        return self.root(inputs, training=training)

    @property
    def parameters(self) -> dict[str, tf.Variable]:
        """Trainable variables by canonical name, in execution order."""
        return {n: v for n, v in self.tensors.items() if n.startswith("parameters/")}

    def _collect(self, node: Node, layer: keras.layers.Layer) -> None:
        if isinstance(layer, EmptySafe):
            layer.guarded = self._may_be_empty
        for tensor in node.parameters:
            variable = getattr(layer, tensor.name)
            native = variable.value if isinstance(variable, keras.Variable) else variable
            self.tensors[canonical_name(node.path, tensor)] = native
        for child, child_layer in zip(node.children, getattr(layer, "children", ()), strict=True):
            self._collect(child, child_layer)


def build_model(spec: TrainSpec, strategy: Strategy) -> Model:
    """The model of a resolved spec on the strategy's replicas, with uninitialised values."""
    with strategy.native.scope():
        return Model(spec, strategy.placement)
