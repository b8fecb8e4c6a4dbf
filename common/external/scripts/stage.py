"""A stage of a recorded step, as two scripts' records show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["agrees", "differs", "not recorded"]


@dataclass(frozen=True)
class Stage:
    """One stage. step: the first at which it differs; -1 before the first, None where it agrees or was not recorded.

    text: by how much, what was compared, or why it was not.
    """

    name: str
    status: Status
    text: str
    step: int | None = None
