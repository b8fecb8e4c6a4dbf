"""Saving: when a run keeps a checkpoint, and how many of them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, Strict

from parity.common.spec.base import NonNegativeInt, PositiveInt, Spec


class Saving(Spec):
    """When a run saves what it would go on from. Neither number given: only when it is asked to stop."""

    every_steps: PositiveInt | None = Field(None, description="save after each so many steps")
    every_minutes: Annotated[float, Strict(), Field(gt=0)] | None = Field(
        None, description="save when so much time has passed since the last"
    )
    keep_last: PositiveInt = Field(2, description="of all checkpoints the latest that stay")
    keep_best: NonNegativeInt = Field(
        0, description="besides, those with the lowest mean training loss since the one before"
    )
    in_background: bool = Field(True, description="write while the next steps train")
    sharded: bool = Field(
        False, description="every rank writes its own parts; for states too large to be gathered (torch)"
    )
