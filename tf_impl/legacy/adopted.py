"""A model of Keras 2 with code of its own, as layers of Keras 3: that code runs as it is, on its own variables.

Each of its layers has a counterpart among Keras 3's, which holds the same variables and through which its calls go: so
taps, settings and experiments find what they find in any model of Keras 3's.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from parity.common.base.errors import ExternalModelError
from parity.common.parity.deviation import tensor_deviation
from parity.common.spec.external.target import Target
from parity.tf_impl.legacy.keras2 import FusedBatchNormalization
from parity.tf_impl.private_names import path_of

# Between a stock layer in either version, with the same inputs and variables: some constants of Keras 2's go through float32.
_APART = {"float64": 1e-6, "float32": 1e-4}
_COUNTERPART = "_counterpart_in_keras_3"
_FUNCTIONS = ("activation", "recurrent_activation")


class Adopted(keras.layers.Layer):
    """A layer of Keras 2's that runs its own code, with the counterparts of the layers that it holds."""

    def __init__(self, own: Any) -> None:
        super().__init__(name=own.name.replace("/", "_"), trainable=own.trainable)
        # What Keras 2 lets a layer be given: anything, in any place.
        self._convert_input_args, self._allow_non_tensor_positional_args = False, True
        self.supports_masking = True
        vars(self)["own"] = own

    def build(self, input_shape: Any = None) -> None:
        """Take its variables over: they stay the ones that its code reads."""
        del input_shape
        for variable in (*self.own._trainable_weights, *self.own._non_trainable_weights):
            held = self.add_weight(
                shape=variable.shape,
                dtype=variable.dtype.name,
                initializer="zeros",
                trainable=variable.trainable,
            )
            held._value = variable
            # With the scopes that its code has opened within the layer: 'position_embeddings/weight'.
            scopes = f"/{variable.name.partition(':')[0]}".rpartition(f"/{self.own.name}/")[2]
            held._path = f"{path_of(self)}/{scopes.lstrip('/')}"
        self.built = True

    def compute_mask(self, inputs: Any, previous_mask: Any) -> None:
        """No other masks than those that its call has given its outputs."""

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """What Keras 2's layer gives for its own arguments."""
        if "training" not in inspect.signature(self.call).parameters:
            # It hands the mode on to the layers that it calls.
            kwargs["training"] = getattr(self._get_call_context(), "training", None)
        self.own._clear_losses()
        outputs = _calls[0](self.own, *args, **kwargs)
        for loss in self.own._eager_losses:
            self.add_loss(tf.reduce_sum(loss))
        return outputs


class AdoptedModel(Adopted, keras.Model):
    """The whole model; its first call, in which Keras 2 makes the variables, shows what it consists of."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.built:
            _adopt(self, args, {**kwargs, "training": False})
        return super().__call__(*args, **kwargs)


def adopted(model: Any, target: Target) -> AdoptedModel:
    """A model of Keras 2, as yet without its layers and weights: these are those of its first call, which is an eager one."""
    if not _calls:
        layer = sys.modules["tf_keras"].layers.Layer
        _calls.append(layer.__call__)
        layer.__call__ = tf.autograph.experimental.do_not_convert(_called)
    found: AdoptedModel = _of(AdoptedModel, model)
    found.rebuilt_from = f"{target} is of Keras 2: its own code runs as it is, its stock layers are those of Keras 3, which give the same for the same"
    return found


# Keras 2's own Layer.__call__, once there is a model; and by id of a layer its first call, while these are recorded.
_calls: list[Any] = []
_recorded: list[dict[int, tuple[Any, Any, Any]]] = []


def _called(layer: Any, *args: Any, **kwargs: Any) -> Any:
    """A call of a layer of Keras 2's, which goes through its counterpart."""
    counterpart = vars(layer).get(_COUNTERPART)
    if isinstance(counterpart, Adopted):
        # By their names: Keras 3 adds the mode to those, which may be given by its place.
        given = inspect.signature(layer.call).bind_partial(*args)
        if given.args == args and len(given.arguments) == len(args):
            return counterpart(**given.arguments, **kwargs)
        return counterpart(*args, **kwargs)
    if counterpart is not None:
        return _as_keras_3(layer, counterpart, args, kwargs)
    outputs = _calls[0](layer, *args, **kwargs)
    # Building, Keras 2 may call them in a graph, too.
    if _recorded and not any(map(tf.is_symbolic_tensor, tf.nest.flatten(outputs))):
        _recorded[-1].setdefault(id(layer), (args, kwargs, outputs))
    return outputs


def _as_keras_3(layer: Any, counterpart: keras.Layer, args: Any, kwargs: Any) -> Any:
    """A stock layer's call, by the names of its arguments: Keras 3 wants no others than tensors without one."""
    given = inspect.signature(layer.call).bind(*args, **kwargs).arguments
    first = given.pop(next(iter(given)))
    return counterpart(first, **{name: value for name, value in given.items() if value is not None})


def _of(kind: type[Adopted], layer: Any) -> Any:
    """A layer's counterpart of a kind, of a class with the layer's name and arguments."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return Adopted.call(self, *args, **kwargs)

    own, signature = type(layer), inspect.signature(layer.call)
    me = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    call.__signature__ = signature.replace(parameters=[me, *signature.parameters.values()])  # type: ignore[attr-defined]
    return type(own.__name__, (kind,), {"call": call, "__module__": own.__module__})(layer)


def _adopt(model: AdoptedModel, args: Any, kwargs: Any) -> None:
    """Give a model its layers and weights, by a call of it."""
    _recorded.append({})
    try:
        _calls[0](model.own, *args, **kwargs)
    finally:
        calls = _recorded.pop()
    _fill(model, {id(model.own): model}, calls)


def _fill(model: Adopted, made: dict[int, Any], calls: dict[int, tuple[Any, Any, Any]]) -> None:
    """Give a layer the counterparts of those that it holds, by the names of its attributes, and build it."""

    def counterpart(layer: Any) -> Any:
        if id(layer) not in made:
            found = _stock(layer, *calls[id(layer)]) if id(layer) in calls else None
            made[id(layer)] = found or _of(Adopted, layer)
            if found is None:
                _fill(made[id(layer)], made, calls)
            vars(layer)[_COUNTERPART] = made[id(layer)]
        return made[id(layer)]

    held = list(model.own._flatten_layers(recursive=False, include_self=False))
    known = {id(layer) for layer in held}

    def counterparts(value: Any) -> Any:
        if id(value) in known:
            return counterpart(value)
        if isinstance(value, dict):
            found = {key: each for key, part in value.items() if (each := counterparts(part))}
        elif isinstance(value, list | tuple):
            found = [each for part in value if (each := counterparts(part))]
        else:
            return None
        return found or None

    with model._open_name_scope():
        for name, value in list(vars(model.own).items()):
            found = None if name.startswith("_") else counterparts(value)
            if found is not None and not hasattr(Adopted, name):
                setattr(model, name, found)
        for layer in held:
            if not any(each is counterpart(layer) for each in model._layers):
                model._layers.append(counterpart(layer))
    if model.own._losses or model.own._callable_losses:
        raise ExternalModelError(
            f"{model.name} is a layer of Keras 2 (tf_keras) whose weights have a regularizer, which nothing here would train; add it in the"
            " loss, or derive the layer from Keras 3's keras.layers.Layer"
        )
    model.build()


def _stock(layer: Any, args: Any, kwargs: Any, outputs: Any) -> keras.Layer | None:
    """A stock layer of Keras 2's as Keras 3 has it, on the same variables; None where it has none that gives the same."""
    name = type(layer).__name__
    kind = getattr(keras.layers, name, None)
    if not type(layer).__module__.startswith("tf_keras.") or kind is None or issubclass(kind, keras.Model):
        return None
    try:
        # As it runs in float32, by the kernel of images.
        images = tf.nest.flatten(outputs)[0].shape.rank in (4, 5)
        if name == "BatchNormalization" and images and not getattr(layer, "synchronized", False):
            kind = FusedBatchNormalization
        found = kind.from_config(_config(kind, layer.get_config()))
        for function in _FUNCTIONS:
            own = getattr(layer, function, None)
            if own is not None and not own.__module__.startswith("tf_keras."):
                setattr(found, function, own)
        _as_keras_3(layer, found, args, kwargs)
        pairs = list(zip(_kept(found), layer.weights, strict=True))
        if any(tuple(ours.shape) != tuple(theirs.shape) for ours, theirs in pairs):
            return None
        for ours, theirs in pairs:
            if theirs.trainable:
                ours._value = theirs
            else:  # statistics, which each version has of the replicas in its own way
                ours.assign(theirs)
        given = _as_keras_3(layer, found, args, kwargs)
        ends = zip(keras.tree.flatten(outputs), keras.tree.flatten(given), strict=True)
        apart = max(tensor_deviation(np.asarray(a), np.asarray(b)) for a, b in ends)
        return found if apart <= _APART[keras.config.floatx()] else None
    except Exception:  # whatever keeps Keras 3 from having it: then the layer's own code stands
        return None


def _config(kind: type[keras.Layer], config: Mapping[str, Any]) -> dict[str, Any]:
    """Keras 2's settings of a layer, and of those within it, that Keras 3 knows; functions of a user's own are set besides."""
    known = inspect.signature(kind.__init__).parameters.keys() | {"name", "trainable"}
    found: dict[str, Any] = {}
    for key, value in config.items():
        if key not in known:
            continue
        if isinstance(value, dict) and (inner := getattr(keras.layers, str(value.get("class_name")), None)):
            value = {**value, "config": _config(inner, value["config"])}
        if key == "axis" and isinstance(value, list) and len(value) == 1:
            value = value[0]
        # Of a function the name, or else what only Keras 2 can find.
        found[key] = None if key in _FUNCTIONS and not isinstance(value, str) else value
    return {**found, "dtype": keras.config.floatx()}


def _kept(layer: keras.Layer) -> list[Any]:
    """A layer's weights without the states of random numbers."""
    return [each for each in layer.weights if not each.path.endswith("seed_generator_state")]
