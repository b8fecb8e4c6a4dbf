"""The largest deviation seen of every entry of the vocabulary, and the page docs/reference/vocabulary.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from parity.common.recipes import RECIPES
from parity.common.spec.base import Spec
from parity.common.spec.imported_loss import ImportedLoss
from parity.common.spec.layers import Imported, LayerSpec
from parity.common.spec.losses import LossBase
from parity.common.spec.optimizers import OptimizerBase
from parity.common.spec.schedules import ScheduleSpec

# Single layers, losses and updates on numbers of order one, in float64: a few dozen roundings.
LIMIT = 1e-12

_HEAD = """# Vocabulary

Look up here everything that a spec can name; the fields of each are under [specs](spec.md). *Switches* are the fields
that the frameworks' defaults differ in, each with its value under `convention: keras` and under `convention: torch`; both sides implement both, and each field
can be set on its own. *Held against* says what the tests compared, beside TensorFlow with PyTorch: NumPy
formulas, and the frameworks' own classes. *Deviation* is the largest seen over all draws, in float64, of
outputs, gradients, buffers or updates, relative to the largest number involved; allowed: 1e-12. Where the
framework's own class computes in float32 (Keras's schedules), the deviation from it is listed apart. Written by
`scripts/test -m "" --vocabulary=docs/reference/vocabulary.md`; do not edit.
"""


@dataclass
class Vocabulary:
    """What the tests measured: (group, entry) -> largest deviation of any draw, and what it was held against."""

    deviations: dict[tuple[str, str], float] = field(default_factory=dict)
    referees: dict[tuple[str, str], set[str]] = field(default_factory=dict)

    def saw(self, group: str, entry: str, deviation: float, referee: str) -> None:
        """Note one comparison, e.g. ("layer", "conv2d", 3e-16, "TensorFlow, PyTorch, NumPy")."""
        key = (group, entry)
        self.deviations[key] = max(float(deviation), self.deviations.get(key, 0.0))
        self.referees.setdefault(key, set()).update(referee.split(", "))

    def write(self, path: Path) -> None:
        """The page; an entry that no test has seen says so."""
        parts = [_HEAD]
        for group, entries in groups().items():
            parts.append(f"\n## {group.capitalize()}\n\n")
            parts.append(
                "| entry | switches (keras / torch) | held against | deviation |\n| --- | --- | --- | --- |\n"
            )
            for entry, spec in sorted(entries.items()):
                parts.append(self._row(group.rstrip("s") if group != "losses" else "loss", entry, spec))
        path.write_text("".join(parts), encoding="utf-8")

    def _row(self, group: str, entry: str, spec: type[Spec] | None) -> str:
        key = (group, entry)
        referees = sorted(self.referees.get(key, set()) - {"TensorFlow", "PyTorch"})
        seen = f"{self.deviations[key]:.1e}" if key in self.deviations else "not measured"
        switches = "" if spec is None else _switches(spec)
        return f"| `{entry}` | {switches} | {', '.join(referees)} | {seen} |\n"


def _switches(spec: type[Spec]) -> str:
    switches = ((name, *values) for name, values in spec.conventions.items())
    return "; ".join(f"{name}: {keras} / {torch}" for name, keras, torch in switches if keras != torch)


def groups() -> dict[str, dict[str, type[Spec] | None]]:
    """Every entry of the vocabulary: group -> kind -> spec class."""
    schedules = get_args(get_args(ScheduleSpec)[0])
    return {
        # An imported model is what its user wrote; parity_tests/test_imported.py has what was seen.
        "layers": {kind: cls for cls in LayerSpec.known if cls is not Imported for kind in _kind(cls)},
        "losses": {kind: cls for cls in _below(LossBase) if cls is not ImportedLoss for kind in _kind(cls)},
        "optimizers": {kind: cls for cls in _below(OptimizerBase) for kind in _kind(cls)},
        "schedules": {kind: cls for cls in schedules for kind in _kind(cls)},
        "recipes": dict.fromkeys(RECIPES),
    }


def _below(cls: type[Spec]) -> Iterator[type[Spec]]:
    for child in cls.__subclasses__():
        yield child
        yield from _below(child)


def _kind(cls: type[Spec]) -> list[str]:
    default = cls.model_fields["kind"].default if "kind" in cls.model_fields else None
    return [default] if isinstance(default, str) else []
