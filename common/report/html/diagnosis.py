"""The page of a diagnosis: what was found, then the layer tree of each traced step coloured by deviation.

Of recorded scripts, which have no traced steps, the stages and the curves.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from parity.common.base.plain import without_controls
from parity.common.diagnosis.isolate.stages import number, stages_of, worst_by_name
from parity.common.diagnosis.result import Diagnosis, Finding, StepComparison, TensorComparison, When
from parity.common.record import RunRecord
from parity.common.record.trace import TITLES
from parity.common.report import diagnosis as words
from parity.common.report import next_steps
from parity.common.report.files import write_both
from parity.common.report.html import plots
from parity.common.report.html.comparison import ran, run_facts
from parity.common.report.html.page import write_page
from parity.common.spec import dump_yaml, walk
from parity.common.spec.external.outline import Outline

# What belongs to a layer, in the order of the data's way; each a column.
COLUMNS = {
    "before": "state before",
    "forward": "forward",
    "backward": "backward",
    "local_gradient": "own gradient",
    "gradient": "reduced gradient",
    "clipped": "clipped",
    "slots": "optimizer slots",
    "update": "update",
    "buffers": "buffers",
}
# Colours: 0 for what agrees, 1 to 5 for what does not, below these and beyond.
BOUNDS = (1e-9, 1e-6, 1e-3, 1.0)
LEGEND = ("agrees", "below 1e-9", "1e-9 to 1e-6", "1e-6 to 1e-3", "1e-3 to 1", "1 and more")
_CONFIDENCE = {"confirmed": "parity", "likely": "inconclusive"}
_STATUS_TONES = {
    "agrees": "parity",
    "inherits": "inconclusive",
    "differs": "divergent",
    "undecided": "inconclusive",
    "not recorded": "inconclusive",
}
_CURVES = {
    "loss_sum": "mean loss of the global batch",
    "gradient_norm": "norm of the gradient",
    "learning_rate": "learning rate",
}


@dataclass(frozen=True)
class DrawnLayer:
    """A layer as the page shows it. shape: of its output."""

    path: str
    kind: str
    shape: tuple[int | None, ...]


@dataclass(frozen=True)
class Subject:
    """What a page says of the two beside the diagnosis.

    labels: their names. facts: rows of a table, a cell each. text: the specs, or what was asked. curves: by column
    the title and the figure. ran: when, where and with what. records: none of models.
    """

    labels: tuple[str, ...]
    facts: list[tuple[str, list[str]]]
    text: str
    layers: Sequence[DrawnLayer] = ()
    curves: Mapping[str, tuple[str, plots.Figure]] = field(default_factory=dict)
    ran: Mapping[str, str] = field(default_factory=dict)
    records: Sequence[RunRecord] = ()

    @classmethod
    def of_records(cls, *records: RunRecord) -> Subject:
        """Of runs of one spec, their layers; of recorded scripts, their curves."""
        labels, facts = tuple(record.label for record in records), run_facts(records)
        more: dict[str, Any] = {"ran": ran(records), "records": records}
        spec = records[0].train_spec
        if spec is not None:
            nodes = [node for node in walk(spec.model.tree()) if node.path]
            layers = [DrawnLayer(node.path, node.spec.kind, node.output_shape) for node in nodes]
            return cls(labels, facts, dump_yaml(spec), layers, **more)
        curves = {
            name: (title, plots.column_figure(records, name, title))
            for name, title in _CURVES.items()
            if any(np.isfinite(record.columns[name]).any() for record in records)
        }
        return cls(
            labels, facts, "\n".join(dump_yaml(record.run_info) for record in records), (), curves, **more
        )

    @classmethod
    def of_models(cls, labels: tuple[str, str], outlines: tuple[Outline, Outline], asked: str) -> Subject:
        """Of Keras's and torch's models, with a traced pass; asked: what was asked, as text."""
        layers = [
            DrawnLayer(info.path, info.kind or info.type.rpartition(".")[2], next(iter(info.outputs), ())[1:])
            for info in outlines[0].layers
            if info.calls
        ]
        versions = [", ".join(f"{n} {v}" for n, v in outline.versions.items()) for outline in outlines]
        facts = [
            ("Model", [outline.target for outline in outlines]),
            ("Class", [outline.type for outline in outlines]),
            ("Tensors", [f"{len(outline.tensors):,}" for outline in outlines]),
            ("Trained numbers", [f"{_trained_numbers(outline):,}" for outline in outlines]),
            ("Versions", versions),
        ]
        # The page is written where and when the models were compared.
        ran = {"Host": platform.node(), "Versions": ", ".join(dict.fromkeys(", ".join(versions).split(", ")))}
        return cls(labels, facts, asked, layers, ran=ran)


def _trained_numbers(outline: Outline) -> int:
    return sum(prod(info.shape) for info in outline.tensors if info.trainable and info.tied_to is None)


def write_diagnosis(diagnosis: Diagnosis, subject: Subject, path: Path) -> str:
    """Write PATH.json and PATH.html; says where what is for people lies."""
    data = words.to_json(diagnosis)
    return write_both(path, data, lambda page: write_diagnosis_html(diagnosis, subject, page))


def write_diagnosis_html(diagnosis: Diagnosis, subject: Subject, path: Path) -> None:
    """Write the page, whole or not at all, replacing an older one.

    Args:
        diagnosis: of the two.
        subject: what else is known of them.
        path: the file.

    Raises:
        RecordError: the file cannot be written.
    """
    layers = subject.layers
    names = list(dict.fromkeys((tensor.stage, tensor.name) for tensor in _all(diagnosis.steps)))
    cells = [cell_of(stage, name, layers) for stage, name in names]
    drawn = {cell.partition(":")[2] for cell in cells if cell.startswith("layer-")}
    parts = [part for tensor in _all(diagnosis.steps) for part in tensor.parts]
    said = {
        "headline": {"verdict": diagnosis.verdict, "title": _headline(diagnosis), "why": _why(diagnosis)},
        "spec": {"name": diagnosis.name},
        "diagnosis": diagnosis,
        "ran": subject.ran,
        "next_steps": next_steps.after_diagnosis(diagnosis, subject.records),
        "not_found": words.NOT_FOUND,
        "facts_of_head": _head(diagnosis),
        "cards": [_card(count, f, diagnosis, layers) for count, f in enumerate(diagnosis.findings, start=1)],
        "summaries": [
            (
                stage,
                _STATUS_TONES[stage.status],
                When(stage.step, "").place if stage.status == "differs" else "",
            )
            for stage in diagnosis.stages
        ],
        "firsts": {finding.stage for finding in diagnosis.findings},
        "curves": {name: title for name, (title, _) in subject.curves.items()},
        "steps": [{"name": words.step_name(step.step), "status": _status(step)} for step in diagnosis.steps],
        "shown_step": _step_index(diagnosis, *diagnosis.findings[:1]),
        "replicas": sorted({part.replica for part in parts if part.replica is not None}),
        "stages": [
            (stage, title) for stage, title in TITLES.items() if stage in {stage for stage, _ in names}
        ],
        "columns": {stage: text for stage, text in COLUMNS.items() if stage in drawn},
        "layers": [_layer(layer) for layer in layers],
        "legend": LEGEND,
        "labels": subject.labels,
        "facts": subject.facts,
        "yaml": subject.text,
        "data": _data(diagnosis, names, cells),
    }
    figures = {name: figure for name, (_, figure) in subject.curves.items()}
    write_page(path, "diagnosis.html.j2", said, figures, "report.js" if subject.curves else "diagnosis.js")


def cell_of(stage: str, name: str, layers: Sequence[DrawnLayer]) -> str:
    """The cell of the page that a tensor belongs to: of a layer, or of its stage alone."""
    if stage in COLUMNS:
        parts = words.path_of(name)
        if stage == "slots":
            parts = parts[1:]
        places = {layer.path: count for count, layer in enumerate(layers)}
        for length in range(len(parts), 0, -1):
            if (count := places.get("/".join(parts[:length]))) is not None:
                return f"layer-{count}:{stage}"
    return f"stage-{stage}"


def level_of(tensor: TensorComparison) -> int:
    """The colour of a deviation, an index of LEGEND."""
    return 0 if tensor.agrees else 1 + sum(not tensor.deviation < bound for bound in BOUNDS)


def _all(steps: Sequence[StepComparison]) -> Iterator[TensorComparison]:
    for step in steps:
        yield from step.injected
        yield from step.as_trained


def _data(diagnosis: Diagnosis, names: Sequence[tuple[str, str]], cells: Sequence[str]) -> Any:
    """What the script draws, as JSON that may stand inside a script element."""
    from markupsafe import Markup

    index = {key: count for count, key in enumerate(names)}

    def entries(tensors: Sequence[TensorComparison]) -> list[list[Any]]:
        return [
            [
                index[t.stage, t.name],
                level_of(t),
                number(t.deviation),
                number(t.allowed),
                t.replica,
                without_controls(t.where),
            ]
            for tensor in tensors
            for t in tensor.parts
        ]

    data = {
        "names": [without_controls(name) for _, name in names],
        "stages": [stage for stage, _ in names],
        "cells": cells,
        "steps": [
            {"injected": entries(step.injected), "as_trained": entries(step.as_trained)}
            for step in diagnosis.steps
        ],
        "findings": [
            [_step_index(diagnosis, f), index.get((words.first_tensor(f).stage, f.name), -1)]
            for f in diagnosis.findings
        ],
    }
    return Markup(plots.in_script(json.dumps(data, separators=(",", ":"))))


def _headline(diagnosis: Diagnosis) -> str:
    if diagnosis.verdict == "parity":
        return "Parity"
    if diagnosis.when is None:
        return diagnosis.verdict.capitalize()
    return f"They diverge {diagnosis.when.place}"


def _why(diagnosis: Diagnosis) -> str:
    if diagnosis.verdict == "parity":
        return f"{diagnosis.candidate} agrees with {diagnosis.reference}: {words.traced(diagnosis)}."
    if diagnosis.when is None:
        return f"{diagnosis.candidate} and {diagnosis.reference}: nothing differs, but not all can be judged."
    if not diagnosis.findings:
        return f"{diagnosis.candidate} differs from {diagnosis.reference}: {words.NOT_FOUND}{words.supposed(diagnosis)}."
    first, more = diagnosis.findings[0], len(diagnosis.findings) - 1
    others = f" And {more} more {'defect' if more == 1 else 'defects'}, below." if more else ""
    # A cause may begin with the name of a setting, which is as it is.
    said = "No known cause fits" if first.explanation is None else f"First: {words.title(first)}"
    return f"{said}: {first.name}{words.supposed(diagnosis)}.{others}"


def _head(diagnosis: Diagnosis) -> dict[str, str]:
    known = sum(finding.explanation is not None for finding in diagnosis.findings)
    when = diagnosis.when
    facts = {"Spec": diagnosis.name, "Reference": diagnosis.reference, "Candidate": diagnosis.candidate}
    if when is not None:
        facts["First outside its budget"] = when.place.removeprefix("at ")
        facts["Defects found"] = f"{len(diagnosis.findings)}, {known} with a known cause"
    if when is not None and diagnosis.source == "replays":
        facts["Replayed"] = f"{'diverged' if diagnosis.reproduced else 'did not diverge'} as the runs did"
    return facts


def _card(count: int, finding: Finding, diagnosis: Diagnosis, layers: Sequence[DrawnLayer]) -> dict[str, Any]:
    """What the page says of one finding."""
    why, first = finding.explanation, words.first_tensor(finding)
    return {
        "number": count,
        "name": finding.name,
        "title": words.title(finding),
        "confidence": "unknown cause" if why is None else why.confidence,
        "tone": "divergent" if why is None else _CONFIDENCE[why.confidence],
        "explanation": why,
        "place": words.place(finding),
        "amount": words.amount(first),
        "at": ", ".join(filter(None, [words.replicas(finding.replicas), first.where])),
        "step": _step_index(diagnosis, finding),
        "cell": cell_of(first.stage, finding.name, layers),
        "agreeing": [(t.name, number(t.deviation)) for t in worst_by_name(finding.agreeing)],
        "others": words.others_of(finding),
        "code": words.lines_of(finding),
    }


def _step_index(diagnosis: Diagnosis, finding: Finding | None = None) -> int:
    """The traced step of a finding; the first without one."""
    steps = [step.step for step in diagnosis.steps]
    return steps.index(finding.step) if finding is not None and finding.step in steps else 0


def _status(step: StepComparison) -> str:
    found = {stage.status for stage in stages_of(step)}
    return next((status for status in ("differs", "inherits") if status in found), "agrees")


def _layer(layer: DrawnLayer) -> Mapping[str, Any]:
    shape = " × ".join(map(str, layer.shape))
    own, depth = layer.path.rpartition("/")[2], layer.path.count("/")
    return {"path": layer.path, "name": own, "kind": layer.kind, "shape": shape, "depth": depth}
