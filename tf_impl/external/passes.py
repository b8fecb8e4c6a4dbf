"""Passes through a user's model: tapped and fed, forward and backward. The model is left as it was."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src import backend

from parity.common.execution.pass_context import Context
from parity.common.external.process import tapping
from parity.common.external.process.calling import check_target, chosen_outputs
from parity.common.external.process.pass_result import Array, Arrays, PassResult, same, tensors_in
from parity.common.external.process.tapping import Tapped, Taps
from parity.common.spec.losses import LossBase
from parity.tf_impl.external import floating_point, load, names
from parity.tf_impl.external.calling import array_of, call, is_tensor, tensor_of
from parity.tf_impl.external.settings import argument_of
from parity.tf_impl.losses import loss_sum_and_count

# What a visitor is given of a call: the layer's path, the call's number, the outputs; gives those to go on with.
_Visit = Callable[[str, int, Any], Any]


def forward(
    model: keras.Layer,
    inputs: Array | Arrays,
    *,
    training: bool = False,
    taps: Taps = True,
    inject: Arrays | None = None,
    seed: int = 0,
    keep: bool = False,
) -> PassResult:
    """Return outputs and activations.

    Args:
        model: in any mode; it is left in the one that it was in.
        inputs: one array or arrays by name, (batch, ...); `calling.call` says how they are handed over.
        training: the mode of the pass.
        taps: whether to give activations, or the names of those wanted.
        inject: what takes the place of outputs, by tap name, in the model's own layout; gradients go on to the
            layer as if it had given that.
        seed: of the random numbers of the pass.
        keep: whether buffers keep what the pass made of them; else they are restored.

    Raises:
        ExternalModelError: the model does not take these inputs, or a name in `inject` is of no call.
    """
    finish(model, inputs)
    tapped = _Tapped(taps, inject, None)
    with _pass(model, seed, keep) as changed, _visited(model, tapped.visit):
        outputs = tensors_in(call(model, inputs, training), is_tensor)
        penalty = _penalty(model)
    tapped.check_used()
    return PassResult(
        outputs={name: array_of(tensor) for name, tensor in outputs.items()},
        activations=tapped.activations,
        buffers=changed(),
        penalty=float(penalty),
    )


def gradients(
    model: keras.Layer,
    inputs: Array | Arrays,
    targets: Array | Arrays,
    loss: LossBase,
    *,
    training: bool = True,
    taps: Taps = True,
    inject: Arrays | None = None,
    seed: int = 0,
    keep: bool = False,
    penalties: bool = False,
) -> PassResult:
    """Return a forward pass, its loss, and the gradients of loss_sum / count; arguments as of `forward`.

    Args:
        targets: (batch, ...), for the one output, or by output; the losses of several are added up.
        loss: resolved, without l1 and l2.
        penalties: whether gradients are also of what the model itself adds to the loss; torch models add nothing.

    Raises:
        ExternalModelError: as `forward`; or no output suits the targets or the loss.
    """
    finish(model, inputs)
    with tf.GradientTape() as tape:
        tapped = _Tapped(taps, inject, tape)
        with _pass(model, seed, keep) as changed, _visited(model, tapped.visit):
            outputs = tensors_in(call(model, inputs, training), is_tensor)
            pairs = chosen_outputs(outputs, targets)
            for name, target in pairs:
                check_target(loss, name, tuple(outputs[name].shape), target)
            context = Context(training=training)
            sums = [loss_sum_and_count(loss, outputs[name], _target(t), context) for name, t in pairs]
            penalty = _penalty(model)
        total, count = (tf.add_n(list(each)) for each in zip(*sums, strict=True))
        mean = total / count
        if penalties:
            mean = mean + tf.cast(penalty, mean.dtype)
    trained = names.trained(model)
    wanted: dict[str, Any] = {name: variable.value for name, variable in trained.items()} | tapped.live
    found = dict(zip(wanted, tape.gradient(mean, list(wanted.values())), strict=True))
    tapped.check_used()
    reached = {name: array_of(value) for name, value in found.items() if value is not None}
    return tapped.gradients_result(
        {name: array_of(tensor) for name, tensor in outputs.items()},
        trained,
        reached,
        loss_sum=float(total),
        count=float(count),
        buffers=changed(),
        penalty=float(penalty),
    )


def stochastic(model: keras.Layer, inputs: Array | Arrays) -> list[str]:
    """Return the tap names of the calls that draw random numbers in training; see `tapping.stochastic`."""
    return tapping.stochastic(partial(forward, model, inputs, training=True))


def unregistered_parameters(model: keras.Layer, inputs: Array | Arrays) -> list[str]:
    """Trained tensors that a pass uses and that the model does not own (kept in a closure, say), in words."""
    finish(model, inputs)
    owned = {id(variable._value) for variable in model.weights}
    with _pass(model, 0, False), tf.GradientTape() as tape:
        call(model, inputs, False)
    found = [variable for variable in tape.watched_variables() if id(variable) not in owned]
    return [f"{variable.name} of the shape {tuple(variable.shape)}" for variable in found]


def finish(model: keras.Layer, inputs: Array | Arrays) -> None:
    """Build what is built by its first call, by one pass in inference on `inputs` (batch, ...); nothing where all is built."""
    if not all(layer.built for layer in model._flatten_layers()):
        load.seed_all(0)
        call(model, inputs, False)
        floating_point.convert(model, keras.config.floatx())


class _Tapped(Tapped):
    """Keeps what calls give, in a tape where there is one, and puts injected values in its place."""

    def __init__(self, taps: Taps, inject: Arrays | None, tape: tf.GradientTape | None) -> None:
        super().__init__(taps, inject, is_tensor)
        self._tape = tape

    def replaced(self, name: str, tensor: tf.Tensor) -> tf.Tensor:
        wanted = self.wants(name)
        if wanted:
            self.activations[name] = array_of(tensor)
        mask, given = backend.get_keras_mask(tensor), tensor
        if name in self.inject:
            tensor = _replaced(tensor, self.injected(name, tensor.shape, tensor.dtype.is_complex))
        if self._tape is not None and wanted and tensor.dtype.is_floating:
            # A node of its own: a layer may give back its input.
            tensor = tf.identity(tensor)
            self._tape.watch(tensor)
            self.live[name] = tensor
        if mask is not None and tensor is not given:
            backend.set_keras_mask(tensor, mask)
        return tensor


def _replaced(tensor: tf.Tensor, array: Array) -> tf.Tensor:
    other = tf.constant(array.astype(tensor.dtype.as_numpy_dtype))

    @tf.custom_gradient
    def replaced(own: tf.Tensor) -> Any:
        """Another value; gradients go on to the layer as if it had given that."""
        return tf.identity(other), lambda gradient: gradient

    return replaced(tensor) if tensor.dtype.is_floating else other


@contextmanager
def _visited(model: keras.Layer, visit: _Visit) -> Iterator[None]:
    """Have `visit` called at the end of each call of a layer below the model."""
    paths = {id(layer): path for path, layer in names.layers(model).items()}
    counts: dict[str, int] = {}
    calling = keras.Layer.__call__

    def visiting(layer: keras.Layer, *args: Any, **kwargs: Any) -> Any:
        output = calling(layer, *args, **kwargs)
        path = paths.get(id(layer))
        # A call within a graph, or of symbols, has no values.
        if path is None or not tensors_in(output, is_tensor):
            return output
        number = counts[path] = counts.get(path, -1) + 1
        return visit(path, number, output)

    with ExitStack() as stack:
        stack.callback(setattr, keras.Layer, "__call__", calling)
        keras.Layer.__call__ = visiting
        for path, layer in names.layers(model).items():
            _before_activation(stack, f"{path}/before_activation", layer, visit)
        yield


def _before_activation(stack: ExitStack, path: str, layer: keras.Layer, visit: _Visit) -> None:
    """Have `visit` also called with what the function of a layer's `activation` argument is given."""
    if argument_of(layer) is None:
        return
    function, count = layer.activation, itertools.count()

    def visiting(x: Any, *args: Any, **kwargs: Any) -> Any:
        if is_tensor(x):
            x = visit(path, next(count), x)
        return function(x, *args, **kwargs)

    stack.callback(setattr, layer, "activation", function)
    layer.activation = visiting


@contextmanager
def _pass(model: keras.Layer, seed: int, keep: bool) -> Iterator[Callable[[], Arrays]]:
    """Random numbers of a pass. Gives a function for the buffers that it changed, with their values."""
    kept = [(variable, array_of(variable)) for variable in model.non_trainable_variables]
    before = {id(variable): value for variable, value in kept}
    changes: Arrays = {}
    load.seed_all(seed)
    for variable, value in kept:
        if _is_seed(variable):
            variable.assign(value + np.array([seed, 0], value.dtype))
    model._clear_losses()
    try:
        yield lambda: changes
        for name, variable in names.tensors(model).items():
            value = before.get(id(variable))
            if value is not None and not same(array_of(variable), value):
                changes[name] = array_of(variable)
    finally:
        for variable, value in kept:
            if not keep or _is_seed(variable):
                variable.assign(value)
        model._clear_losses()


def _penalty(model: keras.Layer) -> Any:
    """What regularizers and add_loss add to the mean loss."""
    losses = model.losses
    return tf.add_n([tf.cast(loss, keras.config.floatx()) for loss in losses]) if losses else tf.constant(0.0)


def _is_seed(variable: keras.Variable) -> bool:
    return variable.path.endswith("seed_generator_state")


def _target(array: Array) -> tf.Tensor:
    tensor = tensor_of(array)
    return tensor if tensor.dtype.is_floating else tf.cast(tensor, tf.int64)
