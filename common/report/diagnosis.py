"""What the reports of a diagnosis share: words, the order of a step's stages, JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from parity import __version__
from parity.common.diagnosis.result import Diagnosis, Finding, StepComparison, TensorComparison
from parity.common.record.trace import STAGES
from parity.common.report.files import finite, write_data

TITLES = {
    "ids": "sample ids",
    "inputs": "inputs and targets",
    "before": "state before the step",
    "forward": "forward",
    "loss": "loss sum and count",
    "backward": "backward",
    "local_gradient": "each replica's own gradients",
    "total": "sums over the replicas",
    "gradient": "reduced gradients",
    "clipped": "gradients after clipping",
    "scalar": "learning rate and other scalars",
    "slots": "optimizer slots",
    "update": "updated parameters",
    "buffers": "buffers",
    "evaluation": "evaluation",
}
UNKNOWN = "first differs here, no known cause fits"
EXIT_CODES = {"parity": 0, "divergent": 1}

Status = Literal["agrees", "follows", "differs"]


@dataclass(frozen=True)
class StageSeen:
    """One stage of a step. by_itself: fed the reference's input; trained: as trained."""

    stage: str
    by_itself: tuple[TensorComparison, ...]
    trained: tuple[TensorComparison, ...]

    @property
    def title(self) -> str:
        return TITLES.get(self.stage, self.stage)

    @property
    def status(self) -> Status:
        """Whether it differs by itself; "follows": only as trained, from what came before it."""
        if any(not seen.agrees for seen in self.by_itself):
            return "differs"
        if all(seen.agrees for seen in self.trained):
            return "agrees"
        return "follows" if self.by_itself else "differs"


def stages_of(step: StepComparison) -> list[StageSeen]:
    """The stages of a step that have tensors, in execution order; of each tensor the worst replica."""
    found = {seen.stage for seen in (*step.forced, *step.free)}
    return [
        StageSeen(
            stage, *(worst_by_name(s for s in seen if s.stage == stage) for seen in (step.forced, step.free))
        )
        for stage in [*STAGES, *sorted(found.difference(STAGES))]
        if stage in found
    ]


def worst_by_name(seen: Iterable[TensorComparison]) -> tuple[TensorComparison, ...]:
    """Of each tensor the entry furthest outside its budget, in the order of first appearance.

    It names a replica only where another one agrees.
    """
    found: dict[str, list[TensorComparison]] = {}
    for one in seen:
        found.setdefault(one.name, []).append(one)
    worst = {name: max(entries, key=excess) for name, entries in found.items()}
    return tuple(
        replace(worst[name], replica=None) if len({one.agrees for one in entries}) == 1 else worst[name]
        for name, entries in found.items()
    )


def excess(seen: TensorComparison) -> float:
    """Deviation in units of what is allowed; infinite where that is nothing."""
    if not seen.deviation:
        return 0.0
    return seen.deviation / seen.allowed if seen.allowed and not math.isnan(seen.deviation) else math.inf


def number(value: float) -> str:
    """A deviation for people."""
    if math.isnan(value):
        return "not a number"
    return "infinite" if math.isinf(value) else f"{value:.2g}"


def amount(seen: TensorComparison) -> str:
    """How far a tensor is off, in words."""
    if math.isinf(seen.deviation) and not seen.allowed:
        return "not equal"
    return f"deviation {number(seen.deviation)}, allowed {number(seen.allowed)}"


def step_name(step: int | None) -> str:
    """Of a step or, for None, the evaluation."""
    return "evaluation" if step is None else f"step {step}"


def path_of(name: str) -> list[str]:
    """The parts of a tensor's name below its stage: of forward/block_0/dense the layers; of ids itself."""
    head, _, rest = name.partition("/")
    if head in ("after", "before"):
        rest = rest.partition("/")[2] or rest
    return (rest or head).split("/")


def looked_into(diagnosis: Diagnosis) -> str:
    """Which steps, how many tensors, how far apart at most."""
    numbers = [str(step.step) for step in diagnosis.steps if step.step is not None]
    words = [f"step{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"] if numbers else []
    words += ["the evaluation"] if any(step.step is None for step in diagnosis.steps) else []
    if not words:
        return "no step was looked into"
    tensors = [len({(seen.stage, seen.name) for seen in step.free}) for step in diagnosis.steps]
    worst = max((seen.deviation for step in diagnosis.steps for seen in step.free), default=0.0)
    return (
        f"looked into {' and '.join(words)}: {sum(tensors):,} tensors,"
        f" as trained {f'off by at most {number(worst)}' if worst else 'equal'}"
    )


def place(finding: Finding) -> str:
    """Step, stage and tensor of a finding."""
    stage = TITLES.get(first_seen(finding).stage, finding.stage)
    return f"{step_name(finding.step)}, {stage}: {finding.name}"


def first_seen(finding: Finding) -> TensorComparison:
    """The entry of a finding's first tensor."""
    return next((seen for seen in finding.seen if seen.name == finding.name), finding.seen[0])


def others_of(finding: Finding) -> list[TensorComparison]:
    """What a finding explains beside its first tensor; of the same stage first, other layers that is."""
    others = [seen for seen in worst_by_name(finding.seen) if seen.name != finding.name]
    return sorted(others, key=lambda seen: seen.stage != first_seen(finding).stage)


def replicas(numbers: Sequence[int]) -> str:
    """'replica 1', 'replicas 0, 1'; nothing where there are none."""
    if not numbers:
        return ""
    return f"replica{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def title(finding: Finding) -> str:
    """Why, in one sentence; or that it is not known."""
    return UNKNOWN if finding.explanation is None else finding.explanation.text


def to_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """The whole diagnosis as plain data; deviations that are infinite become the text 'inf'."""
    data: dict[str, Any] = finite(asdict(diagnosis))
    return {
        "format": "parity-diagnosis",
        "schema_version": 1,
        "parity_version": __version__,
        "exit_code": EXIT_CODES[diagnosis.verdict],
        **data,
    }


def write_diagnosis_json(diagnosis: Diagnosis, path: Path) -> None:
    """Write it, whole or not at all."""
    write_data(to_json(diagnosis), path)
