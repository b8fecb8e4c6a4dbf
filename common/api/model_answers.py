"""What the functions about two models give."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from parity.common.api.answers import Answer, Compared, Diagnosed, Rows
from parity.common.base.terminal import Terminal
from parity.common.external.lint.lint import Audit
from parity.common.external.mapping.models import doubts_of, left_of
from parity.common.external.pairs.pair import MAPPING, Outcome
from parity.common.report.lint import print_audit
from parity.common.report.next_steps import NextStep
from parity.common.spec.external import mapping as mappings
from parity.common.spec.external.outline import Outline

# Doubts that `show` lists.
_LISTED = 12


@dataclass(frozen=True, repr=False)
class Paired(Answer):
    """A Keras model and its port. folder: of all results. compared, diagnosed: the training, and where the two part; one of
    them at least.
    """

    outcome: Outcome
    folder: Path
    compared: Compared | None
    diagnosed: Diagnosed | None

    @property
    def verdict(self) -> str:
        told = [each.verdict for each in (self.compared, self.diagnosed) if each is not None]
        # What was trained and judged stands; a diagnosis says why.
        return told[0] if told[0] != "parity" else told[-1]

    @property
    def mapping(self) -> mappings.Mapping:
        """Which tensor is which."""
        return mappings.read_mapping(self.folder / MAPPING)

    def _print(self, console: Terminal, every: bool) -> None:
        for number, part in enumerate(self._parts):
            if number:
                console.print()
            part._print(console, every)
        for note in self.outcome.notes:
            console.tell(f"note: {note}")
        console.tell(f"results: {self.folder}")

    def _next_steps(self) -> Sequence[NextStep]:
        return self._parts[-1]._next_steps()

    def to_html(self, path: str | Path) -> Path:
        """Write the page of the diagnosis where there is one, else that of the training; see `Answer.to_html`."""
        return self._parts[-1].to_html(path)

    @property
    def _parts(self) -> list[Compared | Diagnosed]:
        return [part for part in (self.compared, self.diagnosed) if part is not None]

    def _json(self) -> dict[str, Any]:
        named = {"comparison": self.compared, "diagnosis": self.diagnosed}
        return {
            "format": "parity-pair-report",
            "schema_version": 1,
            "verdict": self.verdict,
            "exit_code": self.exit_code,
            "folder": str(self.folder),
            "notes": list(self.outcome.notes),
            **{name: None if part is None else part.to_json() for name, part in named.items()},
        }

    def _tables(self) -> Mapping[str, Callable[[], Rows]]:
        return {name: make for part in self._parts for name, make in part._tables().items()}


@dataclass(frozen=True, repr=False)
class Linted(Answer):
    """Settings in which two models differ: 'equal' or 'different'. traced: whether a pass was made."""

    audit: Audit
    keras: Outline
    torch: Outline
    traced: bool

    @property
    def verdict(self) -> str:
        return "different" if self.audit.differ else "equal"

    @property
    def exit_code(self) -> int:
        return int(self.audit.differ)

    def _print(self, console: Terminal, every: bool) -> None:
        print_audit(self.audit, self.keras, self.torch, self.traced, console)

    def _json(self) -> dict[str, Any]:
        return {**self.audit.to_dict(), "keras": self.keras.target, "torch": self.torch.target}

    def _tables(self) -> Mapping[str, Callable[[], Rows]]:
        names = "keras", "torch", "setting", "keras_value", "torch_value", "changes", "fix_keras", "fix_torch"
        rows = [{name: getattr(one, name) for name in names} for one in self.audit.differences]
        return {"differences": lambda: [{**row, **_said(row)} for row in rows]}


@dataclass(frozen=True, repr=False)
class Mapped(Answer):
    """Which tensor and layer is which: 'mapped', 'doubtful', or 'incomplete' where a trained tensor has no counterpart.

    outlines: of Keras's and of torch's model. path: where the mapping was written, if it was.
    """

    mapping: mappings.Mapping
    outlines: tuple[Outline, Outline]
    path: Path | None = None

    @property
    def verdict(self) -> str:
        if left_of(self.mapping, self.outlines):
            return "incomplete"
        return "doubtful" if self.mapping.doubtful else "mapped"

    @property
    def exit_code(self) -> int:
        return {"mapped": 0, "incomplete": 2, "doubtful": 3}[self.verdict]

    def write(self, path: str | Path) -> Mapped:
        """Write mapping.yaml, which `pair`, `export` and others take; raises ExternalModelError where it cannot be."""
        mappings.write_mapping(Path(path), self.mapping)
        return replace(self, path=Path(path))

    def _print(self, console: Terminal, every: bool) -> None:
        doubts, mapping = doubts_of(self.mapping), self.mapping
        for line in doubts if every else doubts[:_LISTED]:
            console.tell(f"  {line}")
        if len(doubts) > _LISTED and not every:
            console.tell(
                f"  and {len(doubts) - _LISTED} more{'' if self.path is None else f', in {self.path}'}"
            )
        console.tell(
            f"{len(mapping.tensors)} pairs of tensors, {len(mapping.doubtful)} doubtful; {len(mapping.layers)} pairs of"
            f" layers{'' if self.path is None else f': {self.path}'}"
        )

    def _json(self) -> dict[str, Any]:
        return {"verdict": self.verdict, "exit_code": self.exit_code, **self.mapping.to_dict()}

    def _tables(self) -> Mapping[str, Callable[[], Rows]]:
        tensors = [
            {
                "keras": " ".join(pair.keras),
                "torch": " ".join(pair.torch),
                "rule": pair.rule,
                "source": pair.source,
                "doubt": pair.doubt or "",
            }
            for pair in self.mapping.tensors
        ]
        layers = [{"keras": pair.keras, "torch": pair.torch} for pair in self.mapping.layers]
        return {"tensors": lambda: tensors, "layers": lambda: layers}


def _said(row: Mapping[str, Any]) -> dict[str, str]:
    """Both values as text: a column has one type."""
    return {
        name: "" if row[name] is None else json.dumps(row[name]) for name in ("keras_value", "torch_value")
    }
