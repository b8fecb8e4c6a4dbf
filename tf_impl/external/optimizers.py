"""Keras's optimizers in canonical settings; see `common/external/lint/settings.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
from keras import optimizers as optim

from parity.common.external.process.calls import qualified
from parity.common.spec.external.outline import OptimizerInfo, Setting

Settings = dict[str, Setting]

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


def describe(optimizer: Any) -> OptimizerInfo:
    """The settings of an optimizer of keras.optimizers; of another class, '' as kind and none."""
    cls = type(optimizer)
    scale: Settings = {}
    if isinstance(optimizer, optim.LossScaleOptimizer):
        scale = {"loss_scale": float(optimizer.initial_scale)}
        optimizer = optimizer.inner_optimizer
    name = qualified(cls)
    if type(optimizer) not in _KINDS:
        return OptimizerInfo(kind="", type=name)
    kind, numbers, always = _KINDS[type(optimizer)]
    own: Settings = {
        canonical: float(getattr(optimizer, attribute)) for canonical, attribute in numbers.items()
    }
    own |= {switch: bool(getattr(optimizer, switch)) for switch in _SWITCHES if hasattr(optimizer, switch)}
    return OptimizerInfo(kind=kind, type=name, settings={**_common(optimizer), **own, **always, **scale})


def _common(optimizer: Any) -> Settings:
    schedule = getattr(optimizer, "_learning_rate", None)
    scheduled = isinstance(schedule, optim.schedules.LearningRateSchedule)
    ema = optimizer.use_ema
    return {
        "learning_rate": _number(schedule(0) if scheduled else optimizer.learning_rate),
        "schedule": _text_of(schedule) if scheduled else None,
        "weight_decay": float(optimizer.weight_decay or 0.0),
        "weight_decay_mode": "decoupled",
        "decay_mask": _decay_mask(optimizer),
        "clip_global_norm": _number(optimizer.global_clipnorm),
        "clip_norm": _number(optimizer.clipnorm),
        "clip_value": _number(optimizer.clipvalue),
        "ema": float(optimizer.ema_momentum) if ema else None,
        "accumulation": int(optimizer.gradient_accumulation_steps or 1),
        "maximize": False,
    }


def _number(value: Any) -> float | None:
    """What a person wrote: .001 of a float32 variable that holds .0010000000474974513."""
    if value is None:
        return None
    if isinstance(value, int | float):
        return float(value)
    array = np.asarray(value)
    return float(str(array[()])) if array.dtype == np.float32 else float(array)


def _text_of(schedule: Any) -> str:
    config = {key: value for key, value in schedule.get_config().items() if key != "name"}
    return f"{type(schedule).__name__}({', '.join(f'{key}={value}' for key, value in config.items())})"


def _decay_mask(optimizer: Any) -> str:
    """Which tensors decay: 'all', or all but those that a pattern or a list leaves out."""
    pattern = getattr(optimizer, "_exclude_from_weight_decay_pattern", None)
    left_out = getattr(optimizer, "_exclude_from_weight_decay", None) or ()
    excluded = [] if pattern is None else sorted(pattern.pattern.split("|"))
    if left_out:
        excluded.append(f"{len(left_out)} tensors")
    return f"all but {', '.join(excluded)}" if excluded else "all"
