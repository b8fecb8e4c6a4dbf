"""Check one record by itself: whether the run broke an invariant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parity.common.api.answers import Answer, Rows
from parity.common.base.errors import RecordError
from parity.common.base.terminal import Terminal
from parity.common.parity.sample_ids import has_ids
from parity.common.record import RunRecord, read_record
from parity.common.record.files import read_json
from parity.common.record.invariants import INVARIANTS, REPLICAS
from parity.common.record.script import NOTES
from parity.common.record.script_checks import ORDER, SHARES, checkable
from parity.common.spec import ScriptInfo

# Strategies whose replicas have whole parameters, which runs compare; see docs/reference/record.md.
_REPLICATED = ("mirrored", "multi_worker", "ddp", "zero_redundancy", "manual")
# What is seen of some scripts only, as it is told.
_SEEN_BY = {ORDER: f"{ORDER} (by a DistributedSampler)"}
_EXIT_CODES = {"unbroken": 0, "broken": 1, "unchecked": 3}


@dataclass(frozen=True, repr=False)
class Checked(Answer):
    """What one record shows by itself: 'unbroken', 'broken', or 'unchecked' where nothing was checked while it trained."""

    record: RunRecord

    @property
    def verdict(self) -> str:
        if self.record.violations:
            return "broken"
        return "unbroken" if self.checked and len(self.record.steps) else "unchecked"

    @property
    def exit_code(self) -> int:
        return _EXIT_CODES[self.verdict]

    @property
    def checked(self) -> list[str]:
        """The names of what was checked."""
        info, header = self.record.run_info, self.record.header
        if isinstance(info, ScriptInfo):
            ids = has_ids(self.record)
            return [name for name in info.invariants if ids or name not in (SHARES, ORDER)]
        if header.run_options.recording != "full":
            return []
        placement = header.placement
        compared = placement.replicas > 1 and placement.strategy in _REPLICATED
        return [name for name in INVARIANTS if compared or name != REPLICAS]

    @property
    def unchecked(self) -> list[str]:
        """The names of what a script's recorder checks where it is given one optimizer, and this one was not or could not."""
        info = self.record.run_info
        if not isinstance(info, ScriptInfo) or not info.invariants:
            return []
        torch = info.framework == "torch"
        every = checkable(optimizer=True, gradients=torch, modes=False, ranks=1, sharded=False)
        return [name for name in every if name not in info.invariants]

    @property
    def notes(self) -> dict[str, int]:
        """What is worth a look and may well be meant, with the step at which it was seen first."""
        path = self.record.folder / NOTES
        try:
            return {str(text): int(step) for text, step in read_json(path).items()} if path.exists() else {}
        except (AttributeError, TypeError, ValueError):
            raise RecordError(f"{path}: not an object of steps; the file is damaged") from None

    def _broken(self) -> list[dict[str, Any]]:
        return [
            {"invariant": first.invariant, "step": first.step, "text": first.text, "steps": count}
            for first, count in self.record.first_violations()
        ]

    def _print(self, console: Terminal, every: bool) -> None:
        name, steps = self.record.folder, f"{len(self.record.steps)} steps"
        for each in self._broken():
            more = f" ({each['steps']} times in all)" if each["steps"] > 1 else ""
            console.tell(f"✗ {name}: step {each['step']}: {each['invariant']}: {each['text']}{more}")
        if self.verdict == "unchecked":
            console.tell(f"? {name}: nothing was checked while it trained ({steps})")
        elif self.verdict == "unbroken":
            left = f"; not checked, as that takes one optimizer and whole parameters: {', '.join(self.unchecked)}"
            console.tell(
                f"✓ {name}: nothing was broken in {steps}; checked: {', '.join(_SEEN_BY.get(c, c) for c in self.checked)}{left if self.unchecked else ''};"
                " not seen without another run: a wrong loss, setting or input (parity compare)"
            )
        for text, step in self.notes.items():
            console.tell(f"· {name}: step {step}: worth a look: {text}")

    def _json(self) -> dict[str, Any]:
        steps, checked = len(self.record.steps), self.checked
        told = {"record": str(self.record.folder), "verdict": self.verdict, "steps": steps}
        return {**told, "checked": checked, "broken": self._broken(), "notes": self.notes}

    def _tables(self) -> Mapping[str, Callable[[], Rows]]:
        return {"broken": self._broken}


def check(record: str | Path | RunRecord) -> Checked:
    """Return which invariants a run broke, as `parity check`; needs neither framework.

    Args:
        record: the folder of a run or of a recorded script, or what `read_record` gave.

    Raises:
        RecordError: it is none, or damaged.

    Examples:
        >>> print(parity.check("runs/ddp"))
        ✓ runs/ddp: nothing was broken in 6 steps; checked: sample ids disjoint, as planned, loss finite, ...
    """
    return Checked(record if isinstance(record, RunRecord) else read_record(Path(record)))
