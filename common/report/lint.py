"""What `parity lint` found, on the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from parity.common.base.terminal import Terminal
from parity.common.external.lint.lint import MAPPED_AWAY, Audit, Difference, Unread
from parity.common.external.lint.settings import ROWS, said
from parity.common.spec.external.outline import Outline

# Of layers of which the same is said.
_LISTED = 1


def print_audit(found: Audit, keras: Outline, torch: Outline, traced: bool, console: Terminal) -> None:
    """A row for what is said of one layer or of several alike, how to settle it, and a line that sums up.

    traced: whether a pass was made. console: wide enough for a table of figures.
    """
    groups = _grouped(found.differences)
    if groups:
        table = Table("row", "setting", "Keras", "PyTorch", "changes", "layers", box=None)
        table.columns[-1].overflow = "fold"
        for group in groups:
            table.add_row(*_cells(group))
        console.print(table)
        console.print()
        console.print("Each can be settled on either side:")
        for one, *_ in groups:
            settled = f"{_named(one)}: in Keras {one.fix_keras}; in PyTorch {one.fix_torch}"
            console.tell(f"  {settled}")
    for line in _unread_lines(found.unread):
        console.tell(f"not read: {line}")
    if not traced:
        console.tell(
            "no forward pass was made; with --input-shape or --data, functions that are no layers and padding"
            " by the size of the input are compared, too"
        )
    kinds = [group for group in groups if group[0].changes not in MAPPED_AWAY]
    count = sum(map(len, kinds))
    verdict = f"{count or 'no'} difference{'' if count == 1 else 's'}"
    verdict += f" of {len(kinds)} kinds" if kinds else ""
    counts: Counter[str] = Counter(one.changes for one in found.differences)
    more = "".join(f", {counts[each]} {what} only" for each, what in MAPPED_AWAY.items() if counts[each])
    optimizers = "" if keras.optimizer is None and torch.optimizer is None else " and the optimizers"
    where = f"in {len(found.pairs)} pairs of layers{optimizers}: {keras.target}, {torch.target}"
    console.tell(f"{verdict}{more} {where}")


def _grouped(differences: Sequence[Difference]) -> list[list[Difference]]:
    """Those that say the same of several layers, together; by row, those without one at the end."""
    groups: dict[tuple[Any, ...], list[Difference]] = {}
    for one in differences:
        key = (one.row, one.setting, one.kind, one.keras is None, one.keras_value, one.torch_value)
        groups.setdefault(key, []).append(one)
    return sorted(groups.values(), key=lambda group: group[0].row or len(ROWS) + max(ROWS))


def _cells(group: Sequence[Difference]) -> list[str]:
    one = group[0]
    row = "" if one.row is None else f"{one.row} {ROWS[one.row]}"
    layers = list(dict.fromkeys(_where(each) or "optimizer" for each in group))
    more = f" and {len(layers) - _LISTED} more" if len(layers) > _LISTED else ""
    values = [
        "no counterpart" if one.setting == "counterpart" and value is None else said(value)
        for value in (one.keras_value, one.torch_value)
    ]
    return [row, _named(one), *values, one.changes, "; ".join(layers[:_LISTED]) + more]


def _named(one: Difference) -> str:
    return one.kind if one.setting in ("counterpart", "kind") else f"{one.kind} {one.setting}"


def _where(one: Difference | Unread) -> str:
    """The layers, of Keras and of torch; '' where neither is named."""
    return " - ".join(path or "(model)" for path in (one.keras, one.torch) if path is not None)


def _unread_lines(unread: Sequence[Unread]) -> list[str]:
    groups: dict[tuple[str, str], list[str]] = {}
    for one in unread:
        groups.setdefault((one.what, one.why), []).append(_where(one))
    lines = []
    for (what, why), places in groups.items():
        more = f" and {len(places) - _LISTED} more" if len(places) > _LISTED else ""
        place = ", ".join(filter(None, places[:_LISTED])) + more
        lines.append(f"{what}{f' of {place}' if place else ''}: {why}")
    return lines
