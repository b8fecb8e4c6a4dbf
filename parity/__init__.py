"""The TensorFlow/PyTorch parity toolkit: `parity.compare`, `parity.pair`, ...; see `parity.common.api`.

Importing it loads neither framework, and nothing else before it is asked for. In the repository `parity.common` and its
siblings are folders of the top level, and the ones in here are links to them, so that one name serves a checkout, an
editable install and a wheel alike.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parity.common.api import *  # noqa: F403

__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    if not name.startswith("_"):
        api = importlib.import_module("parity.common.api")
        if name in api.__all__:
            return getattr(api, name)
    raise AttributeError(f"module 'parity' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *importlib.import_module("parity.common.api").__all__]
