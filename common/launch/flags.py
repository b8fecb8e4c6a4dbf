"""A placement as the flags of `python -m tf_impl` and `python -m torch_impl`."""

from __future__ import annotations

from common.errors import SpecError
from common.spec import Placement
from common.spec.placement import said

# What the flags cannot say: settings for loaders and benchmarks, given in Python.
_WITHOUT_FLAG = ("recording", "loader_workers", "prefetch_batches", "replay")


def flags_of(placement: Placement) -> list[str]:
    """The flags that make this placement, those at their defaults left out.

    Raises:
        SpecError: a field was changed that no flag sets.
    """
    changed = placement.chosen()
    for name in _WITHOUT_FLAG:
        if name in changed:
            raise SpecError(f"{name}={changed[name]} of {placement.label} has no flag; leave it out")
    flags = {"strategy": placement.strategy, "replicas": placement.replicas, **changed}
    options = placement.options.chosen()
    return [f"--{name}={said(value)}" for name, value in flags.items()] + [
        f"--option={name}={said(value)}" for name, value in options.items()
    ]
