"""What a live Keras model, and its optimizer, consist of, as an Outline."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src import backend
from keras.src.backend.common.variables import Variable as CommonVariable

from parity.common.base.errors import ExternalModelError
from parity.common.external.process.calls import Calls, Owned, free_name, qualified
from parity.common.external.process.pass_result import tensors_in
from parity.common.spec.external.outline import LayerInfo, OperationInfo, Outline, Shape
from parity.tf_impl.external import settings
from parity.tf_impl.external.calling import call, is_tensor
from parity.tf_impl.external.functions import WATCHED, function_of
from parity.tf_impl.external.optimizers import describe
from parity.tf_impl.external.settings import argument_of, is_stochastic, kind_of


def outline(model: keras.Model, target: str, inputs: Any = None, optimizer: Any = None) -> Outline:
    """Describe a model, and where inputs are given, one forward pass of it, in inference and without gradients.

    The model is left as it was, but that it is built.

    Args:
        model: what the user's code built.
        target: its name, package.module:attribute.
        inputs: an array, or a dict of arrays by name, with the batch.
        optimizer: of keras.optimizers, over any variables.

    Raises:
        ExternalModelError: what was built is no model; it needs inputs to be built; it takes other inputs. What the
            model's own code raises comes through as it is.
    """
    if not isinstance(model, keras.layers.Layer):
        raise ExternalModelError(f"{target}: expects a keras.Model, received {type(model).__name__}")
    began = time.perf_counter()
    if not all(layer.built for layer in model._flatten_layers()):
        if inputs is None:
            raise ExternalModelError(f"{target}: is not built yet; give inputs, so that it is")
        call(model, inputs, training=False)  # so that every layer has its path
    layers = layers_of(model)
    calls = Calls(layers, settings, [path for path, layer in layers.items() if not layer._layers])
    given: dict[str, Shape] = {}
    outputs: dict[str, Shape] = {}
    touched: set[int] = set()
    if inputs is not None:
        named = inputs if isinstance(inputs, dict) else {"inputs": inputs}
        given = {name: np.shape(value) for name, value in named.items()}
        with _traced(layers, calls, touched):
            result = call(model, inputs, training=False)
        outputs = {name: tuple(value.shape) for name, value in tensors_in(result, is_tensor).items()}
    owned_here = list(owned(model))
    variables = {name: variable for _, _, name, variable in owned_here}
    tensors = calls.tensors(owned_here, _purpose)
    infos = calls.placed(tensors)
    arguments = _arguments(infos, layers)
    order: list[str] = []
    for path in calls.order:
        order += [path, arguments[path].path] if path in arguments else [path]
    dropped = [info.path for info in infos if is_stochastic(layers[info.path])]
    return Outline(
        framework="tensorflow",
        target=target,
        type=qualified(type(model)),
        versions={"tensorflow": tf.__version__, "keras": keras.__version__},
        layers=infos,
        operations=(*calls.operations, *arguments.values()),
        order=tuple(order),
        tensors=tensors,
        inputs=given,
        outputs=outputs,
        stochastic=tuple(dropped),
        unused=tuple(
            info.name for info in tensors if inputs is not None and id(variables[info.name]) not in touched
        ),
        optimizer=None if optimizer is None else describe(optimizer),
        seconds=time.perf_counter() - began,
    )


def _own(layer: keras.layers.Layer) -> list[Any]:
    """The variables that are a layer's own, without those of random numbers and of metrics."""
    return [*layer._trainable_variables, *layer._non_trainable_variables]


def layers_of(model: keras.Model) -> dict[str, keras.layers.Layer]:
    """By path, in order of definition: layers of a known kind, and of the others leaves and owners of variables.

    A path is the one that Keras gives the layer's variables, without the model's own name where all begin with
    it. Where two layers have the same, it is the names of the layers that contain it and its own.
    """
    kept: list[tuple[str, str, Any]] = []
    seen: set[int] = set()

    def visit(layer: Any, above: str) -> None:
        if id(layer) in seen:
            return
        seen.add(id(layer))
        here = f"{above}/{layer.name}" if above else layer.name
        known = bool(kind_of(layer))
        if known or _own(layer) or not layer._layers:
            kept.append((layer.path or here, here, layer))
        if not known:
            for child in layer._layers:
                visit(child, here)

    visit(model, "")
    kept = [entry for entry in kept if not isinstance(entry[2], keras.layers.InputLayer)]
    start = f"{model.name}/"
    native = [(path.removeprefix(start), here.removeprefix(start), layer) for path, here, layer in kept]
    counts = Counter(path for path, _, _ in native)
    found: dict[str, Any] = {}
    for path, here, layer in native:
        found[free_name(path if counts[path] == 1 else here, found)] = layer
    return found


def owned(model: keras.Model) -> Iterator[Owned]:
    """Yield every weight of the model, ties under each of their names."""
    used_names: set[str] = set()
    for path, layer in layers_of(model).items():
        variables = layer.weights if kind_of(layer) else _own(layer)
        for variable in variables:
            own = variable.path.removeprefix(f"{layer.path}/") if layer.path else variable.name
            if own == variable.path:
                # Tracked by this layer, but made by another: a tie.
                own = variable.path.rsplit("/", 1)[-1]
            name = free_name(f"{path}/{own}", used_names)
            used_names.add(name)
            yield path, own, name, variable


def _purpose(layer: Any, variable: Any) -> tuple[bool, bool]:
    # Weights that no gradient is ever taken for, whatever the layer's trainable says.
    made_to_be_trained = [each for inner in layer._flatten_layers() for each in inner._trainable_variables]
    buffer = not any(variable is each for each in made_to_be_trained)
    return bool(not buffer and variable.trainable and layer.trainable), buffer


def _arguments(infos: tuple[LayerInfo, ...], layers: dict[str, Any]) -> dict[str, OperationInfo]:
    """By layer, the function of its `activation` argument."""
    found = {}
    for info in infos:
        function = argument_of(layers[info.path])
        if function is not None:
            found[info.path] = OperationInfo(
                path=f"{info.path}/activation",
                kind="activation",
                type=f"{info.type}(activation)",
                settings=function,
                calls=info.calls,
                inputs=info.outputs,
                outputs=info.outputs,
                owner=info.path,
            )
    return found


@contextmanager
def _traced(layers: dict[str, Any], calls: Calls, touched: set[int]) -> Iterator[None]:
    """One pass, reported to `calls`; `touched` gathers the ids of the variables whose values it reads."""
    paths = {id(layer): path for path, layer in layers.items()}
    with ExitStack() as stack:
        _replace(stack, keras.layers.Layer, "__call__", lambda old: _reporting(old, paths, calls))
        reading = CommonVariable.value

        def value(variable: Any) -> Any:
            touched.add(id(variable))
            return reading.fget(variable)

        stack.callback(setattr, CommonVariable, "value", reading)
        CommonVariable.value = property(value)
        inner: list[str] = []
        for module in (backend.nn, backend.numpy, tf.nn, tf):
            for name in WATCHED:
                if hasattr(module, name):
                    _replace(stack, module, name, _watching(name, module, calls, inner))
        yield


def _replace(stack: ExitStack, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    old = getattr(owner, name)
    stack.callback(setattr, owner, name, old)
    setattr(owner, name, make(old))


def _reporting(old: Any, paths: dict[int, str], calls: Calls) -> Any:
    def reporting(layer: Any, *args: Any, **given: Any) -> Any:
        path = paths.get(id(layer), layer.path or layer.name)
        calls.enter(path)
        result: Any = None
        try:
            result = old(layer, *args, **given)
        finally:
            calls.leave(path, shapes((args, given)), shapes(result))
        return result

    return reporting


def _watching(name: str, module: Any, calls: Calls, inner: list[str]) -> Any:
    """A function that reports its calls, but for those from inside of another one."""

    def make(old: Any) -> Any:
        def watching(*args: Any, **given: Any) -> Any:
            if inner or calls.hidden:
                return old(*args, **given)
            inner.append(name)
            try:
                result = old(*args, **given)
            finally:
                inner.pop()
            found = function_of(old, args, given, result)
            if found is not None:
                type_ = f"{module.__name__}.{name}"
                calls.operation(found[0], type_, *found[1:], shapes((args, given)), shapes(result))
            return result

        return watching

    return make


def shapes(values: Any) -> tuple[Shape, ...]:
    """The shapes of all tensors in nested lists and dicts."""
    flat = keras.tree.flatten(values)
    return tuple(tuple(v.shape) for v in flat if isinstance(v, tf.Tensor | np.ndarray | CommonVariable))
