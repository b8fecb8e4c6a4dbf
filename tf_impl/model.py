"""ModelSpec -> model whose tensors are found by canonical name."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from parity.common.data.plan import BatchPlan
from parity.common.execution.pass_context import Context
from parity.common.spec import Node, Placement, TrainSpec
from parity.common.state.canonical import canonical_name, parameter_specs
from parity.tf_impl import runtime
from parity.tf_impl.layers import EmptySafe, build_layer, imported
from parity.tf_impl.layers.normalization import BatchNorm
from parity.tf_impl.layers.products import low_of, set_low
from parity.tf_impl.private_names import CommonVariable
from parity.tf_impl.strategy import Strategy


class Model:
    """The layer tree with its variables by canonical name. specs: of `tensors`, by the same names.

    Of an imported model the canonical names and layouts are its own.
    """

    def __init__(self, spec: TrainSpec, placement: Placement) -> None:
        keras.config.set_floatx(spec.master_dtype)
        # Not only floatx: a policy set by an earlier run of this process would win.
        keras.config.set_dtype_policy(spec.stock_precision or spec.master_dtype)
        self.spec = spec
        # What dropout draws by: the key of all masks, or Keras's own generator.
        self.seed: Any = keras.random.SeedGenerator(spec.seed) if "dropout" in spec.stock else spec.seed
        plan = BatchPlan.of(spec, placement)
        may_be_empty = placement.accumulates or plan.may_be_empty(spec.data.eval_samples)
        tree = spec.model.tree()
        self.root = build_layer(tree) if spec.model.imported is None else imported.build(spec)
        for layer in self.root._flatten_layers():
            if isinstance(layer, EmptySafe | BatchNorm | imported.ImportedModel):
                layer.guarded = may_be_empty
        set_low(self.root, low_of(spec, runtime.uses_gpu(placement)))
        self.specs = parameter_specs(spec)
        if spec.model.imported is None:
            self.tensors = tensors_of(tree, self.root)
        else:
            variables = self.root.tensors()
            self.tensors = {name: variables[tensor.name] for name, tensor in self.specs.items()}

    def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        """Outputs (batch, ...) of canonical inputs (batch, ...)."""
        y = self.root(inputs, context=context)
        # As Keras's losses do with what a mixed policy gives them.
        return y if self.spec.stock_precision is None else tf.cast(y, self.spec.master_dtype)

    def context(self, training: bool, inputs: tf.Tensor, sample_ids: tf.Tensor, step: Any = 0) -> Context:
        """What the layers may know of a pass over `inputs`."""
        pad = self.spec.model.pad_id
        return Context(training, self.seed, step, sample_ids, None if pad is None else inputs != pad)

    @property
    def parameters(self) -> dict[str, tf.Variable]:
        """Trainable variables by canonical name, in execution order."""
        return {n: v for n, v in self.tensors.items() if n.startswith("parameters/")}


def tensors_of(node: Node, layer: keras.layers.Layer) -> dict[str, tf.Variable]:
    """The variables of a node and of everything below it, by canonical name."""
    found = {}
    for tensor in node.parameters:
        variable = getattr(layer, tensor.name)
        native = variable.value if isinstance(variable, CommonVariable) else variable
        found[canonical_name(node.path, tensor)] = native
    for child, child_layer in zip(node.children, getattr(layer, "children", ()), strict=True):
        found |= tensors_of(child, child_layer)
    return found


def build_model(spec: TrainSpec, strategy: Strategy) -> Model:
    """The model of a resolved spec on the strategy's replicas, with uninitialised values."""
    with strategy.native.scope():
        return Model(spec, strategy.placement)
