"""A user's own model as the model of a run: called with canonical inputs, with its tensors by name."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from parity.common.base.errors import ExternalModelError
from parity.common.data.sources import first_inputs
from parity.common.execution.pass_context import Context
from parity.common.execution.processes.user_errors import blame
from parity.common.external.process.objective import batch_of, batch_sums, compiled_of, evaluated, step_of
from parity.common.external.process.pass_result import tensors_in
from parity.common.external.process.resolve import prepare_import_path
from parity.common.spec import TrainSpec
from parity.common.spec.external.target import Target
from parity.common.spec.imported_loss import ImportedLoss
from parity.common.state.imported import PROBED, chosen, drawing, forget_object, one_input, probed_shape
from parity.tf_impl import losses
from parity.tf_impl.external import names
from parity.tf_impl.external.outline import penalty_of
from parity.tf_impl.graphs.eager import run_eagerly
from parity.tf_impl.layers.registry import Contextual
from parity.tf_impl.private_names import path_of


class ImportedModel(Contextual):
    """outputs = model(inputs, context), both canonical.

    It adds nothing to what the user's model computes, but that an empty batch does not reach it.

    guarded: whether there may be an empty one.
    """

    guarded = False

    def __init__(self, model: keras.Model, target: Target, spec: TrainSpec) -> None:
        # Its own policy would turn tokens into numbers.
        super().__init__(autocast=False)
        self.model, self.target, self.layer = model, target, spec.model.imported
        self._shape = spec.model.output_shape()
        self.own_loss = spec.loss if isinstance(spec.loss, ImportedLoss) else None
        self._global_batch = spec.global_batch_size

    def call(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        """Outputs (batch, ...) of inputs (batch, ...)."""
        if not self.guarded:
            return self.outputs(inputs, context)
        return tf.cond(
            tf.shape(inputs)[0] > 0,
            lambda: self.outputs(inputs, context),
            lambda: tf.zeros([0, *self._shape], self.dtype),
        )

    def outputs(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        """What the user's model makes of inputs; of rows its losses, where it gives these.

        Raises:
            ExternalModelError: it failed, or gives several tensors and none was chosen.
        """
        # Only here: it has settings of its own for the processes that it is made for.
        from parity.tf_impl.external import dropout, load

        exact = load.in_float64 if self.layer.constants != "stock" else nullcontext
        keyed: Any = nullcontext()
        # The call that makes the layers is of no pass; one of Keras 2's calls them several times in it.
        if self.layer.stochastic == "keyed" and self.model.built:
            keyed = dropout.keyed(self.model, self.layer.keras_dropout, context)
        try:
            with exact(), keyed:
                if self.own_loss is not None:
                    return self._shares(inputs, self.own_loss, context)
                result = self.model(inputs, training=context.training)
        except Exception as error:
            blamed: Any = blame(error, str(self.target))
            # Else Keras adds a paragraph about this layer, which is none of the user's.
            blamed._keras_call_info_injected = True
            raise blamed from None
        return chosen(tensors_in(result, tf.is_tensor), self.layer.keras_output, "keras_output", self.target)

    def _shares(self, rows: tf.Tensor, loss: ImportedLoss, context: Context) -> tf.Tensor:
        """(batch, 2): of each sample its share of the loss sum, and of what the mean divides by."""
        from parity.tf_impl.external import own_loss, own_step
        from parity.tf_impl.external.calling import call_with

        parts: dict[str, dict[str, tf.Tensor]] = {"input": {}, "target": {}, "weights": {}}
        columns = tf.split(rows, [array.width for array in loss.arrays], axis=1)
        for array, part in zip(loss.arrays, columns, strict=True):
            # A size that is known stays so.
            part = tf.reshape(part, [-1 if rows.shape[0] is None else rows.shape[0], *array.keras.shape])
            parts[array.role][array.name] = tf.cast(part, tf.int64) if array.keras.integer else part
        weights, step = next(iter(parts["weights"].values()), None), step_of(loss.keras)
        if step is None:
            given = call_with(self.model, parts["input"], context.training)
        else:
            batch = batch_of(parts["input"], parts["target"], weights)
            compiled = compiled_of(loss.keras)
            given = {"loss": own_step.loss(step, self.model, batch, context.step, compiled)}
        outputs = tensors_in(given, tf.is_tensor)
        total, count, _ = evaluated(
            loss.keras,
            given,
            outputs,
            parts["target"],
            weights,
            losses=losses,
            own_loss=own_loss,
            added=own_loss.added(self.model),
        )
        samples = tf.cast(tf.shape(rows)[0], rows.dtype)
        weight = samples if weights is None else tf.reduce_sum(weights)
        sums = batch_sums(loss, total, count, samples, weight, self._global_batch)
        return tf.broadcast_to(
            tf.stack([tf.cast(each, rows.dtype) for each in sums]) / samples, [tf.shape(rows)[0], 2]
        )

    def tensors(self) -> dict[str, tf.Variable]:
        """The variable of every tensor that the spec names.

        Raises:
            ExternalModelError: the model has other tensors than the spec says.
        """
        live = names.tensors(self.model)
        named = {tensor.name for tensor in self.layer.keras_tensors}
        for name in names.trained(self.model):
            if name not in named:
                raise ExternalModelError(
                    f"{self.target} has a variable {name!r} that the spec's keras_tensors lack"
                )
        found = {}
        for tensor in self.layer.keras_tensors:
            if tensor.name not in live:
                raise ExternalModelError(
                    f"{self.target} has no tensor {tensor.name!r}, which the spec's keras_tensors name"
                )
            shape = tuple(live[tensor.name].shape)
            if shape != tensor.shape:
                raise ExternalModelError(
                    f"{self.target}: {tensor.name} is of shape {shape}, the spec says {tensor.shape}"
                )
            found[tensor.name] = live[tensor.name].value
        return found


def build(spec: TrainSpec) -> ImportedModel:
    """The user's model of a resolved spec, within the scope of a strategy, its values still its own.

    Raises:
        ExternalModelError: it cannot be imported or built, does not take the spec's inputs, or is another than the spec
            describes.
    """
    # Only here: it has settings of its own for the processes that it is made for.
    from parity.tf_impl.external import load

    layer = spec.model.imported
    target = Target.of(layer.keras, layer.keras_arguments)
    prepare_import_path(Path.cwd(), "tensorflow")
    # As it may have been for the model of a run before.
    run_eagerly(False)
    forget_object(target, keras.Layer)
    with load.in_float64() if layer.constants != "stock" else nullcontext():
        made = load.build(target, spec.master_dtype, spec.seed, layer.constants == "exact_from_build")
    root = ImportedModel(made, target, spec)
    for part in made._flatten_layers():
        for rate in _rates(part, layer.stochastic == "keyed"):
            drawing(layer, target, path_of(part) or part.name, rate, getattr(part, rate))
            setattr(part, rate, 0.0)
    _try(root, spec)
    root.tensors()
    return root


# What draws by other functions than dropout's.
_UNKEYED = (keras.layers.AlphaDropout, keras.layers.GaussianDropout, keras.layers.GaussianNoise)


def _rates(layer: keras.Layer, keyed: bool) -> list[str]:
    """The attributes by which a layer changes what it computes in training at random, where it is given no masks."""

    # A user's own layer that has a rate of something else has no seed.
    seeded = type(layer).__module__.startswith("keras.") or layer._seed_generators
    if not seeded or (keyed and not isinstance(layer, _UNKEYED)):
        return []
    named = ("rate", "dropout", "recurrent_dropout", "_dropout", "stddev")
    # A recurrent layer only shows its cell's rates; the cell is a layer, too.
    own = (name for name in named if not isinstance(getattr(type(layer), name, None), property))
    return [name for name in own if isinstance(getattr(layer, name, None), float) and getattr(layer, name)]


def _try(root: ImportedModel, spec: TrainSpec) -> None:
    """Call it once: layers get their variables, and what it gives must be what the spec says."""
    named = [tensor.name for tensor in getattr(root.model, "inputs", None) or ()]
    if root.own_loss is None:
        one_input(root.model.call, named, root.target)
    inputs = tf.constant(first_inputs(spec, PROBED))
    context = Context(False, sample_ids=tf.range(PROBED, dtype=tf.int64))
    try:
        outputs = root.outputs(inputs, context)
    except ExternalModelError as error:
        if "custom_gradient" not in str(error):
            raise
        # Of a strategy's variable it is refused outside of a graph; a training step is one.
        outputs = tf.function(lambda: root.outputs(inputs, context))()
    probed_shape(tuple(outputs.shape), spec, root.target)
    for variable in root.model.variables:
        if penalty_of(variable) == (0.0, 0.0):  # l2(0.0), as code with an option for it has
            variable.regularizer = None
    # What a training step of the user's own adds is a part of its loss.
    counted = root.own_loss is not None and (
        step_of(root.own_loss.keras) is not None or any(term.penalized for term in root.own_loss.keras)
    )
    if root.model.losses and not counted:
        raise ExternalModelError(
            f"{root.target} adds {len(root.model.losses)} terms to the loss (regularizers, add_loss), which the torch"
            " model would not; leave them out, and give the spec loss.l2 or optimizer.weight_decay"
        )
