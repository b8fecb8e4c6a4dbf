"""DataSpec: which samples, in which order, split how."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from common.spec.base import NonNegativeInt, PositiveInt, Spec


class DataSpec(Spec):
    """Which samples, in which order, split how.

    `split` is here and not in the Placement because under per-replica batch norm it changes the
    mathematics; `tail` because dropping samples always does.
    """

    source: Literal["digits"] = "digits"
    train_samples: PositiveInt = Field(1437, description="the first N samples are trained on")
    eval_samples: NonNegativeInt = Field(360, description="the next N are evaluated on at the end")
    shuffle: bool = Field(True, description="a new order every epoch, keyed by (seed, epoch)")
    split: Literal["contiguous", "strided"] = Field(
        "contiguous", description="replica r of R gets the r-th run of ceil(B/R) samples, or every R-th"
    )
    tail: Literal["keep", "drop"] = Field("keep", description="the smaller batch at the end of an epoch")
