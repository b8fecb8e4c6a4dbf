"""PyTorch's optimizers in canonical settings; see `common/external/lint/settings.py`."""

from __future__ import annotations

from typing import Any

from torch import optim

from parity.common.external.process.calls import qualified
from parity.common.spec.external.outline import OptimizerInfo, Setting

Settings = dict[str, Setting]
Group = dict[str, Any]

# Class -> canonical kind; by canonical name of a number the group's key for it; settings that are always so.
_KINDS: dict[type[optim.Optimizer], tuple[str, dict[str, str], Settings]] = {
    optim.SGD: ("sgd", {"momentum": "momentum", "dampening": "dampening"}, {"momentum_form": "buffer"}),
    optim.Adam: ("adam", {"epsilon": "eps"}, {"epsilon_place": "inside"}),
    optim.AdamW: ("adamw", {"epsilon": "eps"}, {"epsilon_place": "inside"}),
    optim.RMSprop: (
        "rmsprop",
        {"rho": "alpha", "epsilon": "eps", "momentum": "momentum"},
        {"epsilon_place": "after_root", "momentum_form": "buffer"},
    ),
    optim.Adagrad: (
        "adagrad",
        {"initial_accumulator": "initial_accumulator_value", "epsilon": "eps", "rate_decay": "lr_decay"},
        {"epsilon_place": "after_root"},
    ),
    optim.Adadelta: ("adadelta", {"rho": "rho", "epsilon": "eps"}, {}),
    optim.Adamax: ("adamax", {"epsilon": "eps"}, {"epsilon_place": "norm"}),
    optim.NAdam: ("nadam", {"epsilon": "eps", "momentum_decay": "momentum_decay"}, {}),
}
_SWITCHES = ("nesterov", "amsgrad", "centered")


def describe(optimizer: Any) -> OptimizerInfo:
    """The settings of an optimizer of torch.optim; of another class, '' as kind and none.

    Clipping is no part of a torch optimizer: the loop does it, and nothing here tells how.
    """
    cls = type(optimizer)
    name = qualified(cls)
    groups = getattr(optimizer, "param_groups", [])
    if cls not in _KINDS or not groups:
        return OptimizerInfo(kind="", type=name)
    kind, numbers, always = _KINDS[cls]
    each = [{**_of_group(group, numbers), **always} for group in groups]
    counts = [len(group["params"]) for group in groups]
    settings = {setting: _together([one[setting] for one in each], counts) for setting in each[0]}
    decays = [one["weight_decay"] for one in each]
    if len(set(decays)) == 2 and 0.0 in decays:
        # Biases and norms without decay: one decay, over some of the tensors.
        settings["weight_decay"] = next(decay for decay in decays if decay)
        number = sum(count for count, decay in zip(counts, decays, strict=True) if decay)
        settings["decay_mask"] = f"{number} of {sum(counts)} tensors"
    if kind == "adam" and groups[0].get("decoupled_weight_decay"):
        kind = "adamw"
    return OptimizerInfo(kind=kind, type=name, settings=settings)


def _together(values: list[Setting], counts: list[int]) -> Setting:
    """One value for all groups, or what each of them has."""
    if all(value == values[0] for value in values):
        return values[0]
    return ", ".join(f"{value} for {count} tensors" for value, count in zip(values, counts, strict=True))


def _of_group(group: Group, numbers: dict[str, str]) -> Settings:
    """The settings of one parameter group."""
    found: Settings = {
        "learning_rate": float(group["lr"]),
        "schedule": f"a scheduler, from {group['initial_lr']:g}" if "initial_lr" in group else None,
        "weight_decay": float(group["weight_decay"]),
        "weight_decay_mode": "decoupled" if group.get("decoupled_weight_decay") else "coupled",
        "decay_mask": "all",
        "clip_global_norm": None,
        "clip_norm": None,
        "clip_value": None,
        "ema": None,
        "accumulation": 1,
        "maximize": bool(group.get("maximize", False)),
    }
    if "betas" in group:
        found |= {"beta_1": float(group["betas"][0]), "beta_2": float(group["betas"][1])}
    found |= {canonical: float(group[key]) for canonical, key in numbers.items()}
    return found | {switch: bool(group[switch]) for switch in _SWITCHES if switch in group}
