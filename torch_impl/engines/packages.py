"""The packages behind engines and strategies, and what they start themselves."""

from __future__ import annotations

import importlib.metadata

from parity.common.spec import Placement

# engine, or strategy that needs one -> package, which is also the name of the extra that installs it.
_PACKAGES = {
    "lightning": "lightning",
    "fabric": "lightning",
    "accelerate": "accelerate",
    "deepspeed": "deepspeed",
}


def needed(placement: Placement) -> dict[str, str]:
    """The packages behind a placement, by what of it needs them."""
    named = {
        f"engine={placement.engine}": placement.engine,
        f"strategy={placement.strategy}": placement.strategy,
    }
    return {shown: _PACKAGES[name] for shown, name in named.items() if name in _PACKAGES}


def versions(placement: Placement) -> dict[str, str]:
    """The versions of the packages behind a placement, for the record."""
    return {package: importlib.metadata.version(package) for package in needed(placement).values()}


def starts_ranks(placement: Placement) -> bool:
    """Whether the placement's engine starts the ranks itself, as Lightning's ddp_spawn does."""
    return placement.engine == "lightning" and placement.launcher == "mp_spawn"
