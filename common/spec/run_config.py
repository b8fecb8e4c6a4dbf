"""RunConfig: the placement, run options and instrumentation of one run, together."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pydantic import Field, model_validator

from parity.common.spec.base import Spec
from parity.common.spec.instrumentation import Instrumentation
from parity.common.spec.placement import Placement, naming_placement, parse_text, said
from parity.common.spec.run_options import RunOptions


class RunConfig(Spec):
    """How one run of a spec is made.

    The fields of all three may also be given in one mapping, as text forms, flags and files of version 0.1 do.
    """

    placement: Placement = Field(description="how the spec is run")
    run_options: RunOptions = Field(default=RunOptions(), description="what is recorded, saved and timed")
    instrumentation: Instrumentation = Field(default=Instrumentation(), description="what a diagnosis adds")

    @model_validator(mode="before")
    @classmethod
    def _in_one_mapping(cls, data: Any) -> Any:
        return divided(data) if isinstance(data, dict) and "framework" in data else data

    @property
    def label(self) -> str:
        """That of the placement."""
        return self.placement.label

    @property
    def parts(self) -> tuple[Placement, RunOptions, Instrumentation]:
        return self.placement, self.run_options, self.instrumentation

    def having(self, **fields: Any) -> RunConfig:
        """The same with other fields of the three."""
        found = {
            part: getattr(self, part).model_copy(
                update={n: v for n, v in fields.items() if n in kind.model_fields}
            )
            for part, kind in _PARTS.items()
        }
        return RunConfig(**found)

    def text(self, leave_out: Collection[str] = ()) -> str:
        """What `from_text` makes this of, but for the fields left out and the instrumentation."""
        more = self.run_options.chosen().items()
        return self.placement.text(leave_out) + "".join(
            f",{name}={said(value)}" for name, value in more if name not in leave_out
        )

    @classmethod
    def from_text(cls, text: str, **usual: Any) -> RunConfig:
        """Placement and run options from 'torch:ddp:2,static_graph=true,stop_at_step=9'; `usual`: further fields.

        Raises:
            SpecError: with one line, for an unknown field too.
        """
        with naming_placement(text):
            head, fields = parse_text(text)
            return cls.with_fields({**usual, **head}, fields)

    @classmethod
    def with_fields(cls, data: dict[str, Any], fields: dict[str, Any]) -> RunConfig:
        """From plain data, and further fields of the placement, its strategy's options or the run options."""
        options = {
            name: value for name, value in {**data, **fields}.items() if name in RunOptions.model_fields
        }
        first, then = ({n: v for n, v in given.items() if n not in options} for given in (data, fields))
        return cls(placement=Placement.with_fields(first, then), run_options=RunOptions.parse(options))


_PARTS: dict[str, type[Spec]] = {
    "placement": Placement,
    "run_options": RunOptions,
    "instrumentation": Instrumentation,
}


def divided(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields in one mapping as {"placement": ..., "run_options": ..., "instrumentation": ...}."""
    found: dict[str, Any] = {}
    for part in ("run_options", "instrumentation"):
        found[part] = {name: value for name, value in fields.items() if name in _PARTS[part].model_fields}
    others = found["run_options"].keys() | found["instrumentation"].keys()
    return found | {"placement": {name: value for name, value in fields.items() if name not in others}}
