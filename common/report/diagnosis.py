"""What the reports of a diagnosis share: words and JSON. They are the same for every source of observations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from parity import __version__
from parity.common.diagnosis.isolate.stages import number, worst_by_name
from parity.common.diagnosis.result import BEFORE_FIRST, Diagnosis, Finding, TensorComparison
from parity.common.parity.compare import EXIT_CODES
from parity.common.record.trace import TITLES
from parity.common.report.files import finite

FORMAT_VERSION = 2
UNKNOWN = "first differs here, no known cause fits"
WITHOUT_EFFECT = "Set differently, without an effect on what was compared"
NOT_FOUND = "not found: no isolated tensor of the traced steps deviates"


def supposed(diagnosis: Diagnosis) -> str:
    """', ' and what the verdict supposes, if anything."""
    return f", {diagnosis.premise}" if diagnosis.premise else ""


def amount(tensor: TensorComparison) -> str:
    """How far a tensor is off, in words."""
    if math.isinf(tensor.deviation):
        return "not equal"
    return f"deviation {number(tensor.deviation)}, allowed {number(tensor.allowed)}"


def step_name(step: int | None) -> str:
    """Of a step or, for None, the evaluation."""
    if step == BEFORE_FIRST:
        return "before the first step"
    return "evaluation" if step is None else f"step {step}"


def path_of(name: str) -> list[str]:
    """The parts of a tensor's name below its stage: of forward/block_0/dense the layers; of ids itself."""
    head, _, rest = name.partition("/")
    if head in ("after", "before"):
        rest = rest.partition("/")[2] or rest
    return (rest or head).split("/")


def traced(diagnosis: Diagnosis) -> str:
    """Which steps were traced, how many tensors, how far apart at most; or how many stages were compared."""
    numbers = [str(step.step) for step in diagnosis.steps if step.step is not None]
    words = [f"step{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"] if numbers else []
    words += ["the evaluation"] if any(step.step is None for step in diagnosis.steps) else []
    if not words:
        compared = sum(stage.status != "not recorded" for stage in diagnosis.stages)
        return (
            f"{compared} of {len(diagnosis.stages)} stages were recorded"
            if compared
            else "no step was traced"
        )
    tensors = [len({tensor.name for tensor in step.as_trained}) for step in diagnosis.steps]
    worst = max((tensor.deviation for step in diagnosis.steps for tensor in step.as_trained), default=0.0)
    return (
        f"traced {' and '.join(words)}: {sum(tensors):,} tensors,"
        f" as trained {f'off by at most {number(worst)}' if worst else 'equal'}"
    )


def place(finding: Finding) -> str:
    """Step, stage and tensor of a finding."""
    stage = TITLES.get(first_tensor(finding).stage, finding.stage)
    return f"{step_name(finding.step)}, {stage}" + (f": {finding.name}" if finding.name != stage else "")


def first_tensor(finding: Finding) -> TensorComparison:
    """The comparison of a finding's first tensor."""
    return next((tensor for tensor in finding.tensors if tensor.name == finding.name), finding.tensors[0])


def others_of(finding: Finding) -> list[TensorComparison]:
    """What a finding explains beside its first tensor; of the same stage first, other layers that is."""
    others = [tensor for tensor in worst_by_name(finding.tensors) if tensor.name != finding.name]
    return sorted(others, key=lambda tensor: tensor.stage != first_tensor(finding).stage)


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
    data: dict[str, Any] = finite(_plain(diagnosis))
    return {
        "format": "parity-diagnosis",
        "schema_version": FORMAT_VERSION,
        "parity_version": __version__,
        "exit_code": EXIT_CODES[diagnosis.verdict],
        **data,
    }


def _plain(value: Any) -> Any:
    """Dataclasses as dictionaries, tensors with their stage."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if not is_dataclass(value):
        return value
    data = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, TensorComparison):
        data = {"stage": value.stage, **data, "by_replica": dict(value.by_replica)}
    return data


def lines_of(finding: Finding) -> str:
    """The lines of code of a finding by file: 'model.py, lines 12, 15'; '' where none are known."""
    by_file: dict[str, set[int]] = {}
    for each in finding.code:
        file, _, number = each.rpartition(":")
        by_file.setdefault(file, set()).add(int(number))
    return "; ".join(
        f"{file}, line{'s' if len(numbers) > 1 else ''} {', '.join(map(str, sorted(numbers)))}"
        for file, numbers in by_file.items()
    )
