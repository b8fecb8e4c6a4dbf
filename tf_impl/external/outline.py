"""What a live Keras model, and its optimizer, consist of, as an Outline."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import optimizers as optim

from parity.common.base.errors import ExternalModelError
from parity.common.external.process.calls import Calls, Owned, free_name, qualified
from parity.common.external.process.pass_result import tensors_in
from parity.common.spec.external.outline import OptimizerInfo, Outline, Settings, Shape, positive
from parity.tf_impl.external import settings
from parity.tf_impl.external.calling import call, is_tensor
from parity.tf_impl.external.settings import WATCHED, function_of, kind_of
from parity.tf_impl.private_names import CommonVariable, backend, op_callbacks, path_of

_MOMENTS = {"beta_1": "beta_1", "beta_2": "beta_2", "epsilon": "epsilon"}
# Class -> canonical kind; by canonical name of a number the attribute that holds it; settings that are always so.
_KINDS: dict[type[optim.Optimizer], tuple[str, dict[str, str], Settings]] = {
    optim.SGD: ("sgd", {"momentum": "momentum"}, {"momentum_form": "velocity", "dampening": 0.0}),
    optim.Adam: ("adam", _MOMENTS, {"epsilon_place": "outside"}),
    optim.AdamW: ("adamw", _MOMENTS, {"epsilon_place": "outside"}),
    optim.RMSprop: (
        "rmsprop",
        {"rho": "rho", "epsilon": "epsilon", "momentum": "momentum"},
        {"epsilon_place": "in_root", "momentum_form": "velocity"},
    ),
    optim.Adagrad: (
        "adagrad",
        {"initial_accumulator": "initial_accumulator_value", "epsilon": "epsilon"},
        {"epsilon_place": "in_root", "rate_decay": 0.0},
    ),
    optim.Adadelta: ("adadelta", {"rho": "rho", "epsilon": "epsilon"}, {}),
    optim.Adamax: ("adamax", _MOMENTS, {"epsilon_place": "denominator"}),
    optim.Nadam: ("nadam", _MOMENTS, {"momentum_decay": 1.0}),
    optim.Lion: ("lion", {"beta_1": "beta_1", "beta_2": "beta_2"}, {}),
}
_SWITCHES = ("nesterov", "amsgrad", "centered")


def outline(model: keras.Model, target: str, inputs: Any = None, optimizer: Any = None) -> Outline:
    """Describe a model, and where inputs are given, one forward pass of it, in inference and without gradients.

    The model is left as it was, but that it is built.

    Args:
        model: what the user's code built.
        target: its name, package.module:attribute.
        inputs: an array, or a dict of arrays by name, with the batch.
        optimizer: of keras.optimizers, over any variables.

    Raises:
        ExternalModelError: it needs inputs to be built; it takes other inputs. What the
            model's own code raises comes through as it is.
    """
    began = time.perf_counter()
    if inputs is None and not (model.built and model.weights):
        raise ExternalModelError(f"{target}: is not built yet; give inputs, so that it is")
    if inputs is not None and not all(layer.built for layer in model._flatten_layers()):
        call(model, inputs, training=False)  # so that every layer has its path
    layers = layers_of(model)
    if inputs is None:
        # What was not built when the model was called is none of its: another has taken its place.
        layers = {path: layer for path, layer in layers.items() if layer.built}
    calls = Calls(layers, settings, [path for path, layer in layers.items() if not layer._layers])
    if inputs is not None:
        with _traced(layers, calls):
            calls.end(inputs, tensors_in(call(model, inputs, training=False), is_tensor))
    found = calls.outline(
        model,
        owned(model),
        _purpose,
        framework="tensorflow",
        target=target,
        versions={"tensorflow": tf.__version__, "keras": keras.__version__},
        optimizer=None if optimizer is None else describe(optimizer, model),
        seconds=time.perf_counter() - began,
    )
    also = {
        name: {"penalty": penalty_of(variable), "constraint": _constraint(variable)}
        for _, _, name, variable in owned(model)
    }
    tensors = tuple(info.model_copy(update=also[info.name]) for info in found.tensors)
    attributes = _attributes(model)
    called = tuple(
        info.model_copy(update={"attribute": attributes.get(id(layers[info.path]), "")})
        for info in found.layers
    )
    return found.model_copy(
        update={
            "trained_by": _trained_by(model),
            "rebuilt": getattr(model, "rebuilt_from", ""),
            "compiled": describe(own, model) if (own := getattr(model, "optimizer", None)) else None,
            "output_names": _output_names(model),
            "tensors": tensors,
            "layers": called,
        }
    )


def _attributes(model: keras.Model) -> dict[int, str]:
    """By id of a layer, what the code of a subclassed model calls it; functional models have their layers' names for that."""
    found: dict[int, str] = {}

    def visit(value: Any, name: str) -> None:
        if isinstance(value, keras.Layer):
            if id(value) in found:
                return
            found[id(value)] = name
            if isinstance(value, keras.Sequential):
                inner: Any = list(enumerate(value.layers))
            elif getattr(value, "_inputs_struct", None) is not None:
                names = {layer.name for layer in value.layers}
                # The first of several that Keras itself names: dense, dense_1, ...
                inner = [
                    (f"{layer.name}_0" if f"{layer.name}_1" in names else layer.name, layer)
                    for layer in value.layers
                ]
            else:
                inner = [(key, each) for key, each in vars(value).items() if not key.startswith("_")]
        elif isinstance(value, dict):
            inner = list(value.items())
        elif isinstance(value, list | tuple):
            inner = list(enumerate(value))
        else:
            return
        for key, each in inner:
            visit(each, f"{name}.{key}" if name else str(key))

    visit(model, "")
    return found


def _output_names(model: keras.Model) -> tuple[str, ...]:
    """Of the layers that give a functional model's outputs, where it gives a list and each by another layer."""
    if not isinstance(getattr(model, "_outputs_struct", None), list | tuple):
        return ()
    names = tuple(tensor._keras_history.operation.name for tensor in model.outputs)
    return names if len(set(names)) == len(names) else ()


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
    start = f"{model.name}/"

    def visit(layer: Any, above: str) -> None:
        if id(layer) in seen or isinstance(layer, keras.layers.InputLayer):
            return
        seen.add(id(layer))
        here = f"{above}/{layer.name}" if above else layer.name
        known = bool(kind_of(layer))
        if known or _own(layer) or not layer._layers:
            kept.append(((path_of(layer) or here).removeprefix(start), here.removeprefix(start), layer))
        if not known:
            for child in layer._layers:
                visit(child, here)

    visit(model, "")
    counts = Counter(path for path, _, _ in kept)
    found: dict[str, Any] = {}
    for path, here, layer in kept:
        found[free_name(path if counts[path] == 1 else here, found)] = layer
    return found


def owned(model: keras.Model) -> Iterator[Owned]:
    """Yield every weight of the model, ties under each of their names."""
    used_names: set[str] = set()
    every = [
        (path, layer, variable)
        for path, layer in layers_of(model).items()
        for variable in (layer.weights if kind_of(layer) else _own(layer))
    ]
    attributes = {
        id(value): name
        for _, layer, _ in every
        for name, value in vars(layer).items()
        if isinstance(value, CommonVariable)
    }
    distinct = {(path, id(variable)): variable for path, _, variable in every}
    paths = Counter((path, variable.path) for (path, _), variable in distinct.items())
    makers = {id(variable): layer for _, layer, variable in every if _made_by(layer, variable)}
    for path, layer, variable in every:
        # A tie is an attribute; a list of what others have made is for the code's own use.
        if makers.get(id(variable), layer) is not layer and not any(
            variable is each for each in vars(layer).values()
        ):
            continue
        own = variable.path.removeprefix(f"{path_of(layer)}/") if path_of(layer) else variable.name
        if own == variable.path:
            # Tracked by this layer, but made by another: a tie.
            own = variable.path.rsplit("/", 1)[-1]
        if paths[path, variable.path] > 1:  # several that the layer's code calls alike
            own = attributes.get(id(variable), own)
        name = free_name(f"{path}/{own}", used_names)
        used_names.add(name)
        yield path, own, name, variable


def _made_by(layer: Any, variable: Any) -> bool:
    path = path_of(layer)
    return bool(path) and variable.path.startswith(f"{path}/")


def _purpose(layer: Any, variable: Any) -> tuple[bool, bool]:
    # Weights that no gradient is ever taken for, whatever the layer's trainable says.
    made_to_be_trained = [each for inner in layer._flatten_layers() for each in inner._trainable_variables]
    buffer = not any(variable is each for each in made_to_be_trained)
    return bool(not buffer and variable.trainable and layer.trainable), buffer


def penalty_of(variable: Any) -> tuple[float, float] | None:
    """The factors of L1 and of L2 of a variable's regularizer; None where it has none, or another."""
    regularizer = variable.regularizer
    if not isinstance(regularizer, keras.regularizers.L1 | keras.regularizers.L2 | keras.regularizers.L1L2):
        return None
    l1, l2 = (_number(getattr(regularizer, name, 0.0)) or 0.0 for name in ("l1", "l2"))
    return l1, l2


def _constraint(variable: Any) -> str:
    """A variable's constraint with its settings, '' where it has none."""
    constraint = variable.constraint
    if constraint is None:
        return ""
    settings = constraint.get_config() if isinstance(constraint, keras.constraints.Constraint) else {}
    name = getattr(constraint, "__name__", type(constraint).__name__)
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in settings.items())})"


@contextmanager
def _traced(layers: dict[str, Any], calls: Calls) -> Iterator[None]:
    """One pass, reported to `calls`, with the ids of the variables whose values it reads."""
    paths = {id(layer): path for path, layer in layers.items()}
    with ExitStack() as stack:
        _replace(stack, keras.layers.Layer, "__call__", lambda old: _reporting(old, paths, calls))
        # Not by Keras's variables: code of Keras 2's reads TensorFlow's.
        variables = {id(v): v for layer in layers.values() for v in layer.variables}
        handles = {id(v._value.handle): number for number, v in variables.items()}

        def seen(kind: Any, inputs: Any, *_: Any, **graph: Any) -> None:
            del kind, graph
            if inputs and id(inputs[0]) in handles:
                calls.touched.setdefault(handles[id(inputs[0])])

        op_callbacks.add_op_callback(seen)
        stack.callback(op_callbacks.remove_op_callback, seen)
        inner: list[str] = []
        for module in (backend.nn, backend.numpy, tf.nn, tf):
            for name in WATCHED:
                if hasattr(module, name):
                    _replace(stack, module, name, _watching(name, module, calls, inner))
        # Of an operation that is given the variable itself only a tape sees that it is read.
        tape = stack.enter_context(tf.GradientTape())
        yield
        read = {id(each) for each in tape.watched_variables()}
        calls.touched |= dict.fromkeys(n for n, v in variables.items() if id(v._value) in read)


def _replace(stack: ExitStack, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    old = getattr(owner, name)
    stack.callback(setattr, owner, name, old)
    setattr(owner, name, make(old))


def _reporting(old: Any, paths: dict[int, str], calls: Calls) -> Any:
    def reporting(layer: Any, *args: Any, **given: Any) -> Any:
        path = paths.get(id(layer), path_of(layer) or layer.name)
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
                called, kind, settled = found
                ends = {"inputs": shapes((args, given)), "outputs": shapes(result)}
                calls.operation(called, kind=kind, type=f"{module.__name__}.{name}", settings=settled, **ends)
            return result

        return watching

    return make


def shapes(values: Any) -> tuple[Shape, ...]:
    """The shapes of all tensors in nested lists and dicts."""
    flat = keras.tree.flatten(values)
    return tuple(tuple(v.shape) for v in flat if isinstance(v, tf.Tensor | np.ndarray | CommonVariable))


def _trained_by(model: keras.Layer) -> str:
    """What a model is trained by, in words; '' for a cross-entropy of classes by number, or where nothing says."""
    if not isinstance(model, keras.Model):
        return ""
    for name in ("train_step", "compute_loss"):
        if getattr(type(model), name) is not getattr(keras.Model, name):
            return f"a {name} of its own"
    loss = getattr(model, "loss", None)
    named = loss if isinstance(loss, str) else getattr(loss, "name", None) or getattr(loss, "__name__", None)
    if loss is None or named == "sparse_categorical_crossentropy":
        return ""
    return f"the loss {named}, which it is compiled with" if named else "the losses that it is compiled with"


def describe(optimizer: Any, model: keras.Model) -> OptimizerInfo:
    """The settings of an optimizer for a model; of a class of one's own, '' as kind, and the one that it is like as base."""
    cls = type(optimizer)
    scale: Settings = {}
    if isinstance(optimizer, optim.LossScaleOptimizer):
        scale = {"loss_scale": float(optimizer.initial_scale)}
        optimizer = optimizer.inner_optimizer
    name = qualified(cls)
    if not isinstance(optimizer, optim.Optimizer):
        return OptimizerInfo(kind="", type=name)
    kind, numbers, always = _KINDS[_stock(optimizer)]
    own: Settings = {
        canonical: float(getattr(optimizer, attribute))
        for canonical, attribute in numbers.items()
        if isinstance(getattr(optimizer, attribute, None), int | float)
    }
    own |= {switch: bool(getattr(optimizer, switch)) for switch in _SWITCHES if hasattr(optimizer, switch)}
    schedule = getattr(optimizer, "_learning_rate", None)
    scheduled = isinstance(schedule, optim.schedules.LearningRateSchedule)
    if scheduled:
        config: dict[str, Any] = {}
        # Of a class without it, as people write them, the rates say all.
        with suppress(NotImplementedError):
            config = {key: value for key, value in schedule.get_config().items() if key != "name"}
        given = ", ".join(f"{key}={value}" for key, value in config.items())
    common: Settings = {
        "learning_rate": _number(schedule(0) if scheduled else optimizer.learning_rate),
        "schedule": f"{type(schedule).__name__}({given})" if scheduled else None,
        "weight_decay": float(optimizer.weight_decay or 0.0),
        "weight_decay_mode": "decoupled",
        "decay_mask": _decay_mask(optimizer),
        "clip_global_norm": _number(optimizer.global_clipnorm),
        "clip_norm": _number(optimizer.clipnorm),
        "clip_value": _number(optimizer.clipvalue),
        "ema": float(optimizer.ema_momentum) if optimizer.use_ema else None,
        "accumulation": int(optimizer.gradient_accumulation_steps or 1),
        "maximize": False,
    }
    trained = {} if not optimizer.weight_decay else {name: each for _, _, name, each in owned(model)}
    undecayed = tuple(
        name for name, each in trained.items() if each.trainable and not optimizer._use_weight_decay(each)
    )
    settings = {**common, **own, **always, **scale}
    info = OptimizerInfo(kind=kind, type=name, settings=settings, undecayed=undecayed)
    if type(optimizer) in _KINDS:
        return info
    return info.model_copy(update={"kind": "", "base": kind, "numbers": positive(vars(optimizer))})


def _stock(optimizer: optim.Optimizer) -> type[optim.Optimizer]:
    """The class of keras.optimizers that one is, derives from, or by its attributes looks like."""
    derived = next((base for base in type(optimizer).__mro__ if base in _KINDS), None)
    looks: type[optim.Optimizer] = optim.SGD
    if hasattr(optimizer, "beta_1"):
        looks = optim.Adam
    elif hasattr(optimizer, "rho"):
        looks = optim.RMSprop
    return derived or looks


def _number(value: Any) -> float | None:
    """What a person wrote: .001 of a float32 variable that holds .0010000000474974513."""
    if value is None:
        return None
    if isinstance(value, int | float):
        return float(value)
    array = np.asarray(value)
    return float(str(array[()])) if array.dtype == np.float32 else float(array)


def _decay_mask(optimizer: Any) -> str:
    """Which tensors decay: 'all', or all but those that a pattern or a list leaves out."""
    pattern = getattr(optimizer, "_exclude_from_weight_decay_pattern", None)
    left_out = getattr(optimizer, "_exclude_from_weight_decay", None) or ()
    excluded = [] if pattern is None else sorted(pattern.pattern.split("|"))
    if left_out:
        excluded.append(f"{len(left_out)} tensors")
    return f"all but {', '.join(excluded)}" if excluded else "all"
