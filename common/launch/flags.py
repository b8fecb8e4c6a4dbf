"""A placement as the flags of `python -m tf_impl` and `python -m torch_impl`."""

from __future__ import annotations

from typing import Any

from common.errors import SpecError
from common.spec import Placement

# What the flags cannot say: settings for loaders and benchmarks, given in Python.
_WITHOUT_FLAG = ("recording", "loader_workers", "prefetch_batches")


def flags_of(placement: Placement) -> list[str]:
    """The flags that make this placement, those at their defaults left out.

    Raises:
        SpecError: a field was changed that no flag sets.
    """
    usual = Placement(framework=placement.framework, strategy=placement.strategy, replicas=placement.replicas)
    changed = {
        name: getattr(placement, name)
        for name in Placement.model_fields.keys() - {"framework", "strategy", "replicas", "options"}
        if getattr(placement, name) != getattr(usual, name)
    }
    for name in _WITHOUT_FLAG:
        if name in changed:
            raise SpecError(f"{name}={changed[name]} of {placement.label} has no flag; leave it out")
    flags = {"strategy": placement.strategy, "replicas": placement.replicas}
    if "accumulation" in changed:
        changed["accumulation"] = dict(placement.accumulation)
    texts = [f"--{name}={_text(value)}" for name, value in {**flags, **dict(sorted(changed.items()))}.items()]
    plain = type(placement.options)()
    options = {name: getattr(placement.options, name) for name in type(plain).model_fields}
    return texts + [
        f"--option={name}={_text(value)}" for name, value in options.items() if value != getattr(plain, name)
    ]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
