"""The optimizers and losses that Keras ships, with a spec's hyperparameters; what they cannot say is refused."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from parity.common.base.errors import SpecError
from parity.common.spec import TrainSpec, losses, optimizers
from parity.common.spec.losses import LossBase
from parity.common.spec.optimizers import OptimizerBase
from parity.common.state.canonical import parameter_specs
from parity.tf_impl.model import Model

_MOMENTS = {"first_moment": "_momentums", "second_moment": "_velocities"}


class _Stock(NamedTuple):
    """A class of Keras, of the name of the spec's: what fields that it does not take must be, and where it keeps which slot."""

    required: dict[str, Any]
    slots: dict[str, str]


_ADAM = _Stock({"epsilon_place": "outside"}, {**_MOMENTS, "largest_second_moment": "_velocity_hats"})
_OPTIMIZERS: dict[type[OptimizerBase], _Stock] = {
    optimizers.SGD: _Stock({"momentum_form": "velocity"}, {"momentum_velocity": "momentums"}),
    optimizers.Adam: _ADAM,
    optimizers.AdamW: _ADAM,
    optimizers.Adamax: _Stock(
        {"epsilon_place": "denominator"}, {"first_moment": "_m", "infinity_norm": "_u"}
    ),
    optimizers.Nadam: _Stock({"momentum_decay": 1.0}, _MOMENTS),
    optimizers.RMSprop: _Stock(
        {"epsilon_place": "in_root", "momentum_form": "velocity"},
        {
            "second_moment": "_velocities",
            "momentum_velocity": "_momentums",
            "first_moment": "_average_gradients",
        },
    ),
    optimizers.Adagrad: _Stock(
        {"epsilon_place": "in_root", "rate_decay": 0.0}, {"accumulator": "_accumulators"}
    ),
    optimizers.Adadelta: _Stock(
        {}, {"second_moment": "_accumulated_grads", "squared_change": "_accumulated_delta_vars"}
    ),
    optimizers.Lion: _Stock({}, {"first_moment": "_momentums"}),
}
_SHARED = {"weight_decay_mode": "decoupled", "clip_epsilon": 0.0}
_CLIPS = {"clip_global_norm": "global_clipnorm", "clip_norm": "clipnorm", "clip_value": "clipvalue"}


def check(train_spec: TrainSpec) -> None:
    """Raise SpecError where no optimizer or no loss of Keras computes what a resolved spec says."""
    stock_loss(train_spec.loss)
    spec = train_spec.optimizer
    stock = _OPTIMIZERS.get(type(spec))
    if stock is None:
        names = ", ".join(kind.__name__ for kind in _OPTIMIZERS)
        raise SpecError(f"engine 'keras': optimizer '{spec.kind}' is not wired to stock Keras; take {names}")
    clips = any(getattr(spec, name) is not None for name in _CLIPS)
    applies = {
        "weight_decay_mode": bool(spec.weight_decay),
        "clip_epsilon": clips,
        "momentum_form": bool(getattr(spec, "momentum", 0)),
    }
    for name, wanted in {**stock.required, **_SHARED}.items():
        received = getattr(spec, name)
        if received != wanted and applies.get(name, True):
            raise SpecError(
                f"engine 'keras': Keras's {type(spec).__name__} knows {name} {wanted!r} only, received"
                f" {received!r}; set convention to keras, or use the own engine"
            )
    if spec.ema is not None:
        raise SpecError(
            "engine 'keras': stock fit sets the weights to their average when it ends, which no spec says;"
            " take optimizer.ema away, or use the own engine"
        )


def stock_optimizer(spec: OptimizerBase, model: Model) -> keras.optimizers.Optimizer:
    """The Keras optimizer of a checked spec. Call it in the strategy's scope."""
    kind = getattr(keras.optimizers, type(spec).__name__)
    taken = inspect.signature(kind.__init__).parameters
    given = {name: _exact(getattr(spec, name)) for name in type(spec).model_fields if name in taken}
    given |= {theirs: _exact(getattr(spec, ours)) for ours, theirs in _CLIPS.items()}
    if isinstance(spec, optimizers.Adagrad):
        given["initial_accumulator_value"] = _exact(spec.initial_accumulator)
    if isinstance(spec, optimizers.RMSprop | optimizers.SGD):
        given["momentum"] = np.float64(given["momentum"])
    # Keras takes a rate of 0 for no decay asked for, but AdamW must be told.
    given["weight_decay"] = _exact(spec.weight_decay or None)
    if isinstance(spec, optimizers.AdamW):
        given["weight_decay"] = np.float64(spec.weight_decay)
    optimizer = kind(**given | {"learning_rate": np.float64(spec.learning_rate)})
    shapes = parameter_specs(model.spec)
    kept = [
        variable
        for name, variable in model.parameters.items()
        if not spec.decays(name.removeprefix("parameters/"), shapes[name].shape)
    ]
    if kept and spec.weight_decay:
        optimizer.exclude_from_weight_decay(var_list=kept)
    return optimizer


def slots_of(
    spec: OptimizerBase, optimizer: keras.optimizers.Optimizer, names: list[str]
) -> dict[str, dict[str, Any]]:
    """A built optimizer's slots: slot -> name of the parameter -> variable; `names` in building order."""
    found = {}
    for slot, attribute in _OPTIMIZERS[type(spec)].slots.items():
        variables = getattr(optimizer, attribute, None) or []
        if variables and len(variables) == len(names):
            found[slot] = {n: v.value for n, v in zip(names, variables, strict=True) if v is not None}
    return found


def _exact(value: Any) -> Any:
    """Numbers as NumPy's: Keras sends a Python float through float32 on its way to float64."""
    return np.float64(value) if isinstance(value, float) else value


def stock_loss(loss: LossBase) -> keras.losses.Loss:
    """The Keras loss of a spec, with Keras's own reduction, the mean over a replica's samples.

    Raises:
        SpecError: Keras has no such loss.
    """
    if loss.l1 or loss.l2:
        raise SpecError(
            "engine 'keras': stock Keras has no penalty on all weights; set loss.l1 and loss.l2 to 0, or use"
            " the own engine"
        )
    if isinstance(loss, losses.SoftmaxCrossEntropy) and loss.outputs == "logits":
        plain = loss.class_weights is None and loss.ignore is None and not loss.mask_padding
        if plain and loss.targets == "distributions":
            smoothing = np.float64(loss.label_smoothing)
            return keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=smoothing)
        if plain and not loss.label_smoothing:
            return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    if isinstance(loss, losses.BinaryCrossEntropy) and loss.outputs == "logits" and loss.positive_weight == 1:
        return keras.losses.BinaryCrossentropy(
            from_logits=True, label_smoothing=np.float64(loss.label_smoothing)
        )
    if isinstance(loss, losses.MeanSquaredError):
        return keras.losses.MeanSquaredError()
    if isinstance(loss, losses.MeanAbsoluteError):
        return keras.losses.MeanAbsoluteError()
    if isinstance(loss, losses.Huber):
        return keras.losses.Huber(delta=np.float64(loss.delta))
    raise SpecError(
        f"engine 'keras': stock Keras has no '{loss.kind}' as the spec describes it: it wants logits, without"
        " weights, ignored targets or a mask, and smooths distributions only; set the loss so, or use the own engine"
    )


class StockAccuracy(keras.metrics.Mean):
    """Keras's accuracy of classes, kept as (total, count)."""

    def __init__(self, loss: LossBase) -> None:
        super().__init__(name="accuracy")
        self._whole = loss.target_is_integer

    def update_state(self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: Any = None) -> None:
        del sample_weight
        matches = (
            keras.metrics.sparse_categorical_accuracy if self._whole else keras.metrics.categorical_accuracy
        )
        super().update_state(matches(y_true, y_pred))
