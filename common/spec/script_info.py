"""What is known of a training that someone's own script made: a description, and no spec to train from.

It stands in the header of a record where a TrainSpec would (docs/reference/record.md).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, Strict, model_validator

from parity.common.spec.base import PositiveInt, Spec
from parity.common.spec.precision import LOW, LossScale, Precision

KIND = "script"
# As records of version 0.1 have it.
EARLIER_KIND = "described"
Naming = Literal["keras", "torch", "other"]
Fact = Annotated[bool, Strict()] | Annotated[int, Strict()] | Annotated[float, Strict()] | str | None


class ScriptInfo(Spec):
    """A recorded script. Two of them answer one question where `name` and `precision` are equal.

    name: what the scripts train, chosen by whoever records them. framework: for people ('torch', 'jax', ...).
    naming: whose names the states' tensors have; only 'keras' and 'torch' can be mapped onto each other.
    global_batch_size, steps: None where the script does not tell. world_size: processes that trained together.
    follows: of a followed run, which record it followed (`parity.common.record.followed`).
    invariants: what its recorder checked while it trained (`parity.common.record.script_checks`).
    settings: whatever else is known, shown where it differs and not judged: 'optimizer.epsilon': 1e-7.
    """

    kind: Literal["script"]
    name: str = Field(default="script", pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    precision: Precision = "float32"
    framework: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,32}$")
    naming: Naming = "other"
    global_batch_size: PositiveInt | None = None
    world_size: PositiveInt = 1
    steps: PositiveInt | None = None
    follows: str | None = None
    invariants: tuple[str, ...] = ()
    settings: dict[str, Fact] = {}

    @model_validator(mode="before")
    @classmethod
    def _read_old_kind(cls, data: Any) -> Any:
        is_old = isinstance(data, Mapping) and data.get("kind") == EARLIER_KIND
        return {**data, "kind": KIND} if is_old else data

    def content_hash(self) -> str:
        """16 hexadecimal digits of the SHA-256 of the JSON of what two scripts must have in common."""
        text = json.dumps(self.identity(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def identity(self) -> dict[str, Any]:
        """What two scripts must have in common to be compared."""
        return {"name": self.name, "precision": self.precision}

    @property
    def master_dtype(self) -> str:
        """As of `TrainSpec`: the type of weights and losses."""
        return "float64" if self.precision == "float64" else "float32"

    @property
    def low_dtype(self) -> str | None:
        """As of `TrainSpec`: the type that products round to."""
        return LOW.get(self.precision)

    @property
    def loss_scale(self) -> LossScale | None:
        """Whether steps may be skipped: of float16 alone, by whatever rule the script has."""
        return LossScale() if self.precision == "float16_mixed" else None

    @property
    def per_replica_statistics(self) -> bool:
        """Not known of a script."""
        return False
