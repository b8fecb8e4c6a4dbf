"""The stages of a step, in execution order: which agree, which differ by themselves, which inherit an error."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from parity.common.diagnosis.result import StageSummary, Status, StepComparison, TensorComparison
from parity.common.record.trace import TITLES

_LITTLE_BUT_ROUNDING = 0.01  # allowed: only a tensor that is zero up to rounding may be so far off
_WORST_FIRST: tuple[Status, ...] = ("differs", "inherits", "agrees")


@dataclass(frozen=True)
class StageComparison:
    """One stage of one step. injected: given the reference's input; as_trained: from the run's own state."""

    stage: str
    injected: tuple[TensorComparison, ...]
    as_trained: tuple[TensorComparison, ...]

    @property
    def title(self) -> str:
        return TITLES.get(self.stage, self.stage)

    @property
    def status(self) -> Status:
        """Whether it differs by itself; "inherits": only as trained, from what came before it."""
        if any(not tensor.agrees for tensor in self.injected):
            return "differs"
        if all(tensor.agrees for tensor in self.as_trained):
            return "agrees"
        return "inherits" if self.injected else "differs"

    @property
    def text(self) -> str:
        """By how much, in words."""
        tensors = self.injected or self.as_trained
        if self.status == "agrees":
            return agreeing_text(tensors)
        if self.status == "inherits":
            return f"as trained off by {number(max(self.as_trained, key=excess).deviation)}"
        return f"{sum(not tensor.agrees for tensor in tensors)} of {len(tensors)} differ"


def stages_of(step: StepComparison) -> list[StageComparison]:
    """The stages of a step that have tensors, in execution order; of each tensor the worst replica."""
    found = {tensor.stage for tensor in (*step.injected, *step.as_trained)}
    return [
        StageComparison(
            stage,
            *(
                worst_by_name(tensor for tensor in tensors if tensor.stage == stage)
                for tensors in (step.injected, step.as_trained)
            ),
        )
        for stage in [*TITLES, *sorted(found.difference(TITLES))]
        if stage in found
    ]


def summarized(steps: Sequence[StepComparison]) -> tuple[StageSummary, ...]:
    """Each stage over all steps: what is said of the first step at which its status is worst."""
    by_title: dict[str, list[tuple[int | None, StageComparison]]] = {}
    for step in steps:
        for stage in stages_of(step):
            by_title.setdefault(stage.title, []).append((step.step, stage))
    titles = [title for title in TITLES.values() if title in by_title]
    found = []
    for title in titles + [title for title in by_title if title not in titles]:
        entries = by_title[title]
        first, worst = min(entries, key=lambda entry: _WORST_FIRST.index(entry[1].status))
        farthest = max(worst.injected or worst.as_trained, key=excess)
        found.append(
            StageSummary(
                title,
                worst.status,
                worst.text,
                None if worst.status == "agrees" else first,
                farthest.deviation,
                farthest.allowed,
            )
        )
    return tuple(found)


def worst_by_name(tensors: Iterable[TensorComparison]) -> tuple[TensorComparison, ...]:
    """Of each tensor the entry farthest outside its budget, in the order of first appearance.

    It names a replica only where another one agrees.
    """
    by_name: dict[str, list[TensorComparison]] = {}
    for tensor in tensors:
        by_name.setdefault(tensor.name, []).extend(tensor.parts)
    worst = {name: max(entries, key=excess) for name, entries in by_name.items()}
    return tuple(
        replace(worst[name], replica=None) if len({one.agrees for one in entries}) == 1 else worst[name]
        for name, entries in by_name.items()
    )


def excess(tensor: TensorComparison) -> float:
    """Deviation in units of what is allowed; infinite where that is nothing."""
    if not tensor.deviation:
        return 0.0
    if not tensor.allowed or math.isnan(tensor.deviation):
        return math.inf
    return tensor.deviation / tensor.allowed


def number(value: float) -> str:
    """A deviation for people."""
    if math.isnan(value):
        return "not a number"
    return "infinite" if math.isinf(value) else f"{value:.2g}"


def agreeing_text(tensors: Sequence[TensorComparison]) -> str:
    """How many tensors, and how far off at most; those that are little but rounding, and so may be off by much, are counted."""
    count = f"{len(tensors)} tensor{'s' if len(tensors) > 1 else ''}"
    rounding = sum(tensor.allowed >= _LITTLE_BUT_ROUNDING for tensor in tensors)
    worst = max((t.deviation for t in tensors if t.allowed < _LITTLE_BUT_ROUNDING), default=0.0)
    text = f"{count}, equal" if not worst else f"{count}, at most {number(worst)}"
    return f"{text}; {rounding} of rounding alone" if rounding else text
