"""Passes through a user's model: tapped and fed, forward and backward. The model is left as it was."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src import backend

from parity.common.base.errors import ExternalModelError
from parity.common.external.process.calling import (
    check_reached,
    check_target,
    chosen_outputs,
    unused_injections,
)
from parity.common.external.process.pass_result import (
    Array,
    Arrays,
    PassResult,
    same,
    tap_name,
    tensors_in,
    with_tensors,
)
from parity.common.spec.losses import LossBase
from parity.tf_impl.context import Context
from parity.tf_impl.external import floating_point, load, names
from parity.tf_impl.external.calling import array_of, call, is_tensor, tensor_of
from parity.tf_impl.external.settings import argument_of
from parity.tf_impl.losses import loss_sum_and_count

Taps = bool | Sequence[str]
# What a visitor is given of a call: path with its number, layer, outputs; gives the outputs to go on with.
_Visit = Callable[[str, keras.Layer, Any], Any]


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
    """Outputs and activations.

    Args:
        model: in any mode; it is left in the one that it was in.
        inputs: one array or arrays by name, (batch, ...); handed over as `calling.call` says.
        training: the mode of the pass.
        taps: whether to give activations, or the names of those wanted.
        feed: what takes the place of outputs, by tap name, in the model's own layout; gradients go on to the
            layer as if it had given that.
        seed: of what the pass draws; the same for the same seed.
        keep: whether buffers keep what the pass made of them; else they are restored.

    Raises:
        ExternalModelError: the model does not take these inputs, or a name in `inject` is of no call.
    """
    finish(model, inputs)
    tapped = _Tapped(taps, inject, None)
    with _pass(model, seed, keep) as changed, _visited(model, tapped):
        outputs = tensors_in(call(model, inputs, training), is_tensor)
        penalty = _penalty(model)
    unused_injections(tapped.inject, tapped.used, tapped.seen)
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
    """A forward pass, its loss, and the gradients of loss_sum / count; arguments as of `forward`.

    Args:
        targets: for the one output, or by output; the losses of several are added up.
        loss: resolved, without l1 and l2.
        penalties: whether gradients are also of what the model itself adds to the loss; torch models add nothing.

    Raises:
        ExternalModelError: as `forward`; or no output suits the targets or the loss.
    """
    finish(model, inputs)
    with tf.GradientTape() as tape:
        tapped = _Tapped(taps, inject, tape)
        with _pass(model, seed, keep) as changed, _visited(model, tapped):
            outputs = tensors_in(call(model, inputs, training), is_tensor)
            pairs = chosen_outputs(outputs, targets)
            for name, target in pairs:
                check_target(loss, name, tuple(outputs[name].shape), target)
            context = Context(training=training)
            parts = [loss_sum_and_count(loss, outputs[name], _target(t), context) for name, t in pairs]
            penalty = _penalty(model)
        total, count = (tf.add_n(list(part)) for part in zip(*parts, strict=True))
        mean = total / count
        if penalties:
            mean = mean + tf.cast(penalty, mean.dtype)
    trained = names.trained(model)
    wanted: dict[str, Any] = {name: variable.value for name, variable in trained.items()} | tapped.live
    found = dict(zip(wanted, tape.gradient(mean, list(wanted.values())), strict=True))
    unused_injections(tapped.inject, tapped.used, tapped.seen)
    reached = {name: array_of(value) for name, value in found.items() if value is not None}
    check_reached(trained, reached)
    return PassResult(
        outputs={name: array_of(tensor) for name, tensor in outputs.items()},
        activations=tapped.activations,
        activation_gradients={name: reached[name] for name in tapped.live if name in reached},
        loss_sum=float(total),
        count=float(count),
        gradients={name: reached[name] for name in trained if name in reached},
        untouched=tuple(name for name in trained if name not in reached),
        buffers=changed(),
        penalty=float(penalty),
    )


def stochastic(model: keras.Layer, inputs: Array | Arrays) -> list[str]:
    """Tap names of the calls that, in training, give different outputs for the same inputs.

    The second pass has other random numbers, and every call is fed what it gave in the first: so only what differs
    by itself does. A function that draws between layers is seen at the next layer behind it.
    """
    first = forward(model, inputs, training=True, seed=0)
    second = forward(model, inputs, training=True, seed=1, inject=first.activations)
    return [name for name, value in first.activations.items() if not same(value, second.activations[name])]


def unregistered_parameters(model: keras.Layer, inputs: Array | Arrays) -> list[str]:
    """Trained tensors that a pass uses and that the model does not own (kept in a closure, say), in words."""
    finish(model, inputs)
    owned = {id(variable._value) for variable in model.weights}
    with _pass(model, 0, False), tf.GradientTape() as tape:
        call(model, inputs, False)
    found = [variable for variable in tape.watched_variables() if id(variable) not in owned]
    return [f"{variable.name} of the shape {tuple(variable.shape)}" for variable in found]


def finish(model: keras.Layer, inputs: Array | Arrays) -> None:
    """Build what is built by its first call, by one pass in inference; nothing where all is there."""
    if not all(layer.built for layer in model._flatten_layers()):
        load.seed_all(0)
        call(model, inputs, False)
        floating_point.convert(model, keras.config.floatx())


class _Tapped:
    """Visits calls: keeps what they give and puts in its place what is fed."""

    def __init__(self, taps: Taps, inject: Arrays | None, tape: tf.GradientTape | None) -> None:
        self._taps = taps if isinstance(taps, bool) else frozenset(taps)
        self._tape = tape
        self.inject = inject or {}
        self.used: set[str] = set()
        self.seen: list[str] = []
        self.activations: Arrays = {}
        self.live: dict[str, tf.Tensor] = {}

    def __call__(self, path: str, layer: keras.Layer, output: Any) -> Any:
        leaves = tensors_in(output, is_tensor)
        path, _, number = path.partition("#")
        tags = [tap_name(path, int(number or 0), k if len(leaves) > 1 else None) for k in range(len(leaves))]
        following = iter(tags)
        return with_tensors(output, is_tensor, lambda tensor: self._one(next(following), tensor))

    def _one(self, name: str, tensor: tf.Tensor) -> tf.Tensor:
        self.seen.append(name)
        wanted = self._taps if isinstance(self._taps, bool) else name in self._taps
        if wanted:
            self.activations[name] = array_of(tensor)
        mask, given = backend.get_keras_mask(tensor), tensor
        if name in self.inject:
            self.used.add(name)
            tensor = _injected(name, self.inject[name], tensor)
        if self._tape is not None and wanted and tensor.dtype.is_floating:
            # A node of its own: a layer may give back its input.
            tensor = tf.identity(tensor)
            self._tape.watch(tensor)
            self.live[name] = tensor
        if mask is not None and tensor is not given:
            backend.set_keras_mask(tensor, mask)
        return tensor


def _injected(name: str, array: Array, tensor: tf.Tensor) -> tf.Tensor:
    if tensor.dtype.is_complex and array.ndim == len(tensor.shape) + 1:
        array = array[..., 0] + 1j * array[..., 1]
    if tuple(array.shape) != tuple(tensor.shape):
        raise ExternalModelError(
            f"feed {name}: the layer gives the shape {tuple(tensor.shape)}, received {tuple(array.shape)}"
        )
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
        return visit(tap_name(path, number, None), layer, output)

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
            x = visit(tap_name(path, next(count), None), layer, x)
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
