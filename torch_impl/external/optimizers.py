"""PyTorch's optimizers in canonical settings; see `common/external/lint/settings.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import optim

from parity.common.spec.external.outline import OptimizerInfo, Setting

Settings = dict[str, Setting]
Group = dict[str, Any]

_KINDS: dict[type[optim.Optimizer], str] = {
    optim.SGD: "sgd",
    optim.Adam: "adam",
    optim.AdamW: "adamw",
    optim.RMSprop: "rmsprop",
    optim.Adagrad: "adagrad",
    optim.Adadelta: "adadelta",
    optim.Adamax: "adamax",
    optim.NAdam: "nadam",
}


def describe(optimizer: Any) -> OptimizerInfo:
    """The settings of an optimizer of torch.optim; of another class, '' as kind and none.

    Clipping is no part of a torch optimizer: the loop does it, and nothing here tells how.
    """
    cls = type(optimizer)
    kind = _KINDS.get(cls, "")
    groups = getattr(optimizer, "param_groups", [])
    if not kind or not groups:
        return OptimizerInfo(kind="", type=f"{cls.__module__}.{cls.__qualname__}")
    each = [_READERS[kind](group) for group in groups]
    counts = [len(group["params"]) for group in groups]
    settings = {name: _together(name, [one[name] for one in each], counts) for name in each[0]}
    decays = [one["weight_decay"] for one in each]
    if len(set(decays)) == 2 and 0.0 in decays:
        # Biases and norms without decay: one decay, over some of the tensors.
        settings["weight_decay"] = next(decay for decay in decays if decay)
        number = sum(count for count, decay in zip(counts, decays, strict=True) if decay)
        settings["decay_mask"] = f"{number} of {sum(counts)} tensors"
    if kind == "adam" and groups[0].get("decoupled_weight_decay"):
        kind = "adamw"
    return OptimizerInfo(kind=kind, type=f"{cls.__module__}.{cls.__qualname__}", settings=settings)


def _together(name: str, values: list[Setting], counts: list[int]) -> Setting:
    """One value for all groups, or what each of them has."""
    del name
    if all(value == values[0] for value in values):
        return values[0]
    return ", ".join(f"{value} for {count} tensors" for value, count in zip(values, counts, strict=True))


def _common(group: Group, decoupled: bool = False) -> Settings:
    rate = group["lr"]
    return {
        "learning_rate": float(rate),
        "schedule": f"a scheduler, from {group['initial_lr']:g}" if "initial_lr" in group else None,
        "weight_decay": float(group["weight_decay"]),
        "weight_decay_mode": "decoupled" if decoupled else "coupled",
        "decay_mask": "all",
        "clip_global_norm": None,
        "clip_norm": None,
        "clip_value": None,
        "ema": None,
        "accumulation": 1,
        "maximize": bool(group.get("maximize", False)),
    }


def _sgd(group: Group) -> Settings:
    return {
        **_common(group),
        "momentum": float(group["momentum"]),
        "nesterov": bool(group["nesterov"]),
        "momentum_form": "buffer",
        "dampening": float(group["dampening"]),
    }


def _moments(group: Group) -> Settings:
    first, second = group["betas"]
    decoupled = bool(group.get("decoupled_weight_decay", False))
    return {
        **_common(group, decoupled),
        "beta_1": float(first),
        "beta_2": float(second),
        "epsilon": float(group["eps"]),
    }


def _adam(group: Group) -> Settings:
    return {**_moments(group), "epsilon_place": "inside", "amsgrad": bool(group["amsgrad"])}


def _adamax(group: Group) -> Settings:
    return {**_moments(group), "epsilon_place": "norm"}


def _nadam(group: Group) -> Settings:
    return {**_moments(group), "momentum_decay": float(group["momentum_decay"])}


def _rmsprop(group: Group) -> Settings:
    return {
        **_common(group),
        "rho": float(group["alpha"]),
        "epsilon": float(group["eps"]),
        "epsilon_place": "after_root",
        "centered": bool(group["centered"]),
        "momentum": float(group["momentum"]),
        "momentum_form": "buffer",
    }


def _adagrad(group: Group) -> Settings:
    return {
        **_common(group),
        "initial_accumulator": float(group["initial_accumulator_value"]),
        "epsilon": float(group["eps"]),
        "epsilon_place": "after_root",
        "rate_decay": float(group["lr_decay"]),
    }


def _adadelta(group: Group) -> Settings:
    return {**_common(group), "rho": float(group["rho"]), "epsilon": float(group["eps"])}


_READERS: dict[str, Callable[[Group], Settings]] = {
    "sgd": _sgd,
    "adam": _adam,
    "adamw": _adam,
    "rmsprop": _rmsprop,
    "adagrad": _adagrad,
    "adadelta": _adadelta,
    "adamax": _adamax,
    "nadam": _nadam,
}
