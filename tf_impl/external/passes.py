"""What a pass through a user's model needs of Keras: taps, modes, gradients. The model is left as it was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from parity.common.external.process.pass_result import Array, Arrays, same, tensors_in
from parity.common.external.process.tapping import Tapped
from parity.tf_impl.external import load, names
from parity.tf_impl.external.calling import array_of, call, is_tensor
from parity.tf_impl.external.own_step import ROWS
from parity.tf_impl.external.settings import argument_of
from parity.tf_impl.private_names import CommonVariable, masked_as, path_of


class LiveTaps(Tapped):
    """Taps of a pass in Keras; gradients are taken of a tape."""

    is_tensor, array_of = staticmethod(is_tensor), staticmethod(array_of)
    tape = None

    def replaced(self, tensor: tf.Tensor, injected: Array | None, sent: Array | None) -> tf.Tensor:
        if injected is None and sent is None:
            return tensor
        return masked_as(tensor, _replaced(tensor, injected, sent))

    def watched(self, name: str, tensor: tf.Tensor) -> tf.Tensor:
        if not tensor.dtype.is_floating:
            return tensor
        # A node of its own: a layer may give back its input.
        node = tf.identity(tensor)
        if not self.repeating:
            self.tape.watch(node)
            self.live[name] = node
        return masked_as(tensor, node)

    def is_differentiable(self, tensor: tf.Tensor) -> bool:
        return bool(tensor.dtype.is_floating)

    def derivatives(self, mean: tf.Tensor, wanted: Sequence[Any]) -> Sequence[Any]:
        sources = [each.value if isinstance(each, CommonVariable) else each for each in wanted]
        found = self.tape.gradient(mean, sources)
        self.rows = ROWS.left(found, sources)
        return found


def _replaced(tensor: tf.Tensor, injected: Array | None, sent: Array | None) -> tf.Tensor:
    other, back = (
        None if array is None else tf.constant(array.astype(tensor.dtype.as_numpy_dtype))
        for array in (injected, sent)
    )
    other = tensor if other is None else other

    @tf.custom_gradient
    def replaced(own: tf.Tensor) -> Any:
        """Another value; gradients go on to the layer as if it had given that, or another gradient does."""
        return tf.identity(other), lambda gradient: gradient if back is None else back

    return replaced(tensor) if tensor.dtype.is_floating else other


@contextmanager
def visited(model: keras.Layer, taps: Tapped, training: bool) -> Iterator[None]:
    """Have `taps.visit` called at the end of each call of a layer below the model.

    training: the mode, which is nothing to TensorFlow's kernels.
    """
    del training
    paths = {id(layer): path for path, layer in names.layers(model).items()}
    calling = keras.Layer.__call__

    def visiting(layer: keras.Layer, *args: Any, **kwargs: Any) -> Any:
        output = calling(layer, *args, **kwargs)
        path = paths.get(id(layer))
        # A call within a graph, or of symbols, has no values.
        if path is None or not tensors_in(output, is_tensor):
            return output
        return taps.visit(path, output)

    with ExitStack() as stack:
        if taps.differentiable:
            taps.tape = stack.enter_context(tf.GradientTape())
        stack.callback(setattr, keras.Layer, "__call__", calling)
        keras.Layer.__call__ = visiting
        for path, layer in names.layers(model).items():
            _before_activation(stack, f"{path}/before_activation", layer, taps)
        yield


@contextmanager
def watched(taps: Tapped, tensors: Sequence[keras.Variable]) -> Iterator[None]:
    """Have gradients of frozen tensors taken too, within `visited`."""
    for tensor in tensors:
        taps.tape.watch(tensor.value)
    yield


def _before_activation(stack: ExitStack, path: str, layer: keras.Layer, taps: Tapped) -> None:
    """Have `taps.visit` also called with what the function of a layer's `activation` argument is given."""
    if argument_of(layer) is None:
        return
    function = layer.activation

    def visiting(x: Any, *args: Any, **kwargs: Any) -> Any:
        return function(taps.visit(path, x) if is_tensor(x) else x, *args, **kwargs)

    stack.callback(setattr, layer, "activation", function)
    layer.activation = visiting


@contextmanager
def prepared(model: keras.Layer, training: bool, seed: int, keep: bool) -> Iterator[Arrays]:
    """Begin the random numbers of a pass; Keras's calls take the mode themselves.

    Args:
        training: the mode.
        seed: of the random numbers.
        keep: whether buffers, frozen weights and numbers of the code keep what the pass made of them; else they are restored.

    Yields:
        The buffers and frozen weights that the pass changed by name, with their new values; filled at its end.
    """
    del training
    kept = [(variable, array_of(variable)) for variable in model.non_trainable_variables]
    before = {id(variable): value for variable, value in kept}
    changes: Arrays = {}
    counted = [(layer, _numbers(layer)) for layer in model._flatten_layers()]
    load.seed_all(seed)
    for variable, value in kept:
        if _is_seed(variable):
            variable.assign(value + np.array([seed, 0], value.dtype))
    model._clear_losses()
    try:
        yield changes
        for name, variable in names.tensors(model).items():
            value = before.get(id(variable))
            if value is not None and not same(array_of(variable), value):
                changes[name] = array_of(variable)
    finally:
        for layer, numbers in counted if not keep else ():
            vars(layer).update(numbers)
        for variable, value in kept:
            if not keep or _is_seed(variable):
                variable.assign(value)
        model._clear_losses()


@contextmanager
def remembering(model: keras.Layer) -> Iterator[None]:
    """Within, passes leave what the code holds besides variables and numbers as it is, as they do anyway."""
    del model
    yield


def _numbers(layer: keras.Layer) -> dict[str, Any]:
    """What a layer may count its calls by."""
    return {name: value for name, value in vars(layer).items() if type(value) in (int, float)}


def _is_seed(variable: keras.Variable) -> bool:
    return variable.path.endswith("seed_generator_state")


def finish(model: keras.Layer, inputs: Array | Arrays) -> None:
    """Build what is built by its first call, by one pass in inference on `inputs` (batch, ...); nothing where all is built."""
    if not all(layer.built for layer in model._flatten_layers()):
        load.seed_all(0)
        call(model, inputs, False)
        load.convert(model, keras.config.floatx())


def unregistered_parameters(model: keras.Layer, inputs: Array | Arrays) -> list[str]:
    """Name trained tensors that a pass on `inputs` (batch, ...) uses and the model does not own (in a closure, say)."""
    owned = {id(variable._value) for variable in model.weights}
    with prepared(model, training=False, seed=0, keep=False), tf.GradientTape() as tape:
        call(model, inputs, False)
    found = [variable for variable in tape.watched_variables() if id(variable) not in owned]
    named = {
        id(value): f"{name} of {path_of(layer) or layer.name}, a tf.Variable"
        for layer in model._flatten_layers()
        for name, value in vars(layer).items()
    }
    return [f"{named.get(id(each), each.name)} of the shape {tuple(each.shape)}" for each in found]
