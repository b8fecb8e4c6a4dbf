"""A placement as the flags of `python -m parity.tf_impl` and `python -m parity.torch_impl`."""

from __future__ import annotations

from parity.common.base.errors import SpecError
from parity.common.spec import Placement
from parity.common.spec.placement import said
from parity.common.spec.saving import Saving

# What the flags cannot say: settings for loaders and benchmarks, given in Python.
_WITHOUT_FLAG = ("recording", "loader_workers", "prefetch_batches", "replay")


def saving_flags(placement: Placement) -> dict[str, object]:
    """When to save, as flags: names and values.

    Raises:
        SpecError: a way of saving that no flag sets.
    """
    saving = placement.save
    if saving is None:
        return {}
    if not saving.in_background or (saving.every_steps is None and saving.every_minutes is None):
        raise SpecError(
            f"save={saving.given()} of {placement.label} has no flag; give every_steps or every_minutes, and leave"
            " in_background out"
        )
    usual = Saving()
    named = {
        "save_every_steps": (saving.every_steps, None),
        "save_every_minutes": (saving.every_minutes, None),
        "keep_last": (saving.keep_last, usual.keep_last),
        "keep_best": (saving.keep_best, usual.keep_best),
        "save_sharded": (saving.sharded, usual.sharded),
    }
    return {name: value for name, (value, without) in named.items() if value != without}


def flags_of(placement: Placement) -> list[str]:
    """The flags that make this placement, those at their defaults left out.

    Where a run goes on is no part of it: that is found when it begins (--resume).

    Raises:
        SpecError: a field was changed that no flag sets.
    """
    changed = placement.chosen()
    for name in _WITHOUT_FLAG:
        if name in changed:
            raise SpecError(f"{name}={changed[name]} of {placement.label} has no flag; leave it out")
    changed.pop("resume", None)
    if "save" in changed:
        del changed["save"]
        changed |= saving_flags(placement)
    flags = {"strategy": placement.strategy, "replicas": placement.replicas, **changed}
    options = placement.options.chosen()
    return [f"--{name}={said(value)}" for name, value in flags.items()] + [
        f"--option={name}={said(value)}" for name, value in options.items()
    ]
