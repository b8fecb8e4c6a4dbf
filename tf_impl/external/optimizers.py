"""Keras's optimizers in canonical settings; see `common/external/lint/settings.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from keras import optimizers as optim

from parity.common.spec.external.outline import OptimizerInfo, Setting

Settings = dict[str, Setting]

_KINDS: dict[type[optim.Optimizer], str] = {
    optim.SGD: "sgd",
    optim.Adam: "adam",
    optim.AdamW: "adamw",
    optim.RMSprop: "rmsprop",
    optim.Adagrad: "adagrad",
    optim.Adadelta: "adadelta",
    optim.Adamax: "adamax",
    optim.Nadam: "nadam",
    optim.Lion: "lion",
}


def describe(optimizer: Any) -> OptimizerInfo:
    """The settings of an optimizer of keras.optimizers; of another class, '' as kind and none."""
    cls = type(optimizer)
    scale: Settings = {}
    if isinstance(optimizer, optim.LossScaleOptimizer):
        scale = {"loss_scale": float(optimizer.initial_scale)}
        optimizer = optimizer.inner_optimizer
    kind = _KINDS.get(type(optimizer), "")
    if not kind:
        return OptimizerInfo(kind="", type=f"{cls.__module__}.{cls.__qualname__}")
    settings = {**_common(optimizer, kind), **_READERS[kind](optimizer), **scale}
    return OptimizerInfo(kind=kind, type=f"{cls.__module__}.{cls.__qualname__}", settings=settings)


def _common(optimizer: Any, kind: str) -> Settings:
    schedule = getattr(optimizer, "_learning_rate", None)
    scheduled = isinstance(schedule, optim.schedules.LearningRateSchedule)
    ema = optimizer.use_ema
    del kind
    return {
        "learning_rate": _number(schedule(0) if scheduled else optimizer.learning_rate),
        "schedule": _said(schedule) if scheduled else None,
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


def _said(schedule: Any) -> str:
    config = {key: value for key, value in schedule.get_config().items() if key != "name"}
    return f"{type(schedule).__name__}({', '.join(f'{key}={value}' for key, value in config.items())})"


def _decay_mask(optimizer: Any) -> str:
    """Which tensors decay: 'all', or all but those that a pattern or a list leaves out."""
    pattern = getattr(optimizer, "_exclude_from_weight_decay_pattern", None)
    left_out = getattr(optimizer, "_exclude_from_weight_decay", None) or ()
    said = [] if pattern is None else sorted(pattern.pattern.split("|"))
    if left_out:
        said.append(f"{len(left_out)} tensors")
    return f"all but {', '.join(said)}" if said else "all"


def _sgd(optimizer: Any) -> Settings:
    return {
        "momentum": float(optimizer.momentum),
        "nesterov": bool(optimizer.nesterov),
        "momentum_form": "velocity",
        "dampening": 0.0,
    }


def _moments(optimizer: Any) -> Settings:
    return {
        "beta_1": float(optimizer.beta_1),
        "beta_2": float(optimizer.beta_2),
        "epsilon": float(optimizer.epsilon),
    }


def _adam(optimizer: Any) -> Settings:
    return {**_moments(optimizer), "epsilon_place": "outside", "amsgrad": bool(optimizer.amsgrad)}


def _adamax(optimizer: Any) -> Settings:
    return {**_moments(optimizer), "epsilon_place": "denominator"}


def _nadam(optimizer: Any) -> Settings:
    return {**_moments(optimizer), "momentum_decay": 1.0}


def _rmsprop(optimizer: Any) -> Settings:
    return {
        "rho": float(optimizer.rho),
        "epsilon": float(optimizer.epsilon),
        "epsilon_place": "in_root",
        "centered": bool(optimizer.centered),
        "momentum": float(optimizer.momentum),
        "momentum_form": "velocity",
    }


def _adagrad(optimizer: Any) -> Settings:
    return {
        "initial_accumulator": float(optimizer.initial_accumulator_value),
        "epsilon": float(optimizer.epsilon),
        "epsilon_place": "in_root",
        "rate_decay": 0.0,
    }


def _adadelta(optimizer: Any) -> Settings:
    return {"rho": float(optimizer.rho), "epsilon": float(optimizer.epsilon)}


def _lion(optimizer: Any) -> Settings:
    return {"beta_1": float(optimizer.beta_1), "beta_2": float(optimizer.beta_2)}


_READERS: dict[str, Callable[[Any], Settings]] = {
    "sgd": _sgd,
    "adam": _adam,
    "adamw": _adam,
    "rmsprop": _rmsprop,
    "adagrad": _adagrad,
    "adadelta": _adadelta,
    "adamax": _adamax,
    "nadam": _nadam,
    "lion": _lion,
}
