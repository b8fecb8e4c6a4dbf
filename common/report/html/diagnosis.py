"""The page of a diagnosis: what was found, then the layer tree of each step coloured by deviation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from parity import __version__
from parity.common.diagnosis.result import Diagnosis, Finding, StepComparison, TensorComparison
from parity.common.record import RunRecord
from parity.common.record.trace import STAGES
from parity.common.report.diagnosis import (
    TITLES,
    amount,
    first_seen,
    looked_into,
    number,
    others_of,
    path_of,
    place,
    replicas,
    stages_of,
    step_name,
    title,
    worst_by_name,
)
from parity.common.report.html.comparison import SYMBOLS, run_facts
from parity.common.report.html.page import write_page
from parity.common.spec import Node, dump_yaml, walk

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


class Drawn(NamedTuple):
    """A layer as the page shows it. shape: of its output."""

    path: str
    kind: str
    shape: tuple[int | None, ...]


class About(NamedTuple):
    """What the page says of the two. labels: their names. facts: rows of a table, a cell each. text: the question."""

    labels: tuple[str, ...]
    facts: list[tuple[str, list[str]]]
    text: str


def write_diagnosis_html(
    diagnosis: Diagnosis, reference: RunRecord, candidate: RunRecord, path: Path
) -> None:
    """Write the page, whole or not at all, replacing an older one.

    Args:
        diagnosis: of the two.
        reference, candidate: finished records.
        path: the file.

    Raises:
        MissingPackageError: jinja2 is not installed.
        RecordError: the file cannot be written.
    """
    layers = [_drawn(node) for node in walk(reference.spec.model.tree()) if node.path]
    records = (reference, candidate)
    about = About(tuple(record.label for record in records), run_facts(records), dump_yaml(reference.spec))
    write_drawn(diagnosis, layers, about, path)


def write_drawn(diagnosis: Diagnosis, layers: Sequence[Drawn], about: About, path: Path) -> None:
    """Write the page of a diagnosis with these layers; raises as `write_diagnosis_html`."""
    names = list(dict.fromkeys((seen.stage, seen.name) for seen in _all(diagnosis.steps)))
    cells = [cell_of(stage, name, layers) for stage, name in names]
    drawn = {cell.partition(":")[2] for cell in cells if cell.startswith("layer-")}
    words = {
        "headline": {"verdict": diagnosis.verdict, "title": _headline(diagnosis), "why": _why(diagnosis)},
        "symbols": SYMBOLS,
        "version": __version__,
        "spec": {"name": diagnosis.spec_name},
        "diagnosis": diagnosis,
        "facts_of_head": _head(diagnosis),
        "cards": [_card(count, f, diagnosis, layers) for count, f in enumerate(diagnosis.findings, start=1)],
        "steps": [{"name": step_name(step.step), "status": _status(step)} for step in diagnosis.steps],
        "shown_step": _shown(diagnosis),
        "replicas": sorted({s.replica for s in _all(diagnosis.steps) if s.replica is not None}),
        "stages": [(stage, TITLES[stage]) for stage in STAGES if stage in {stage for stage, _ in names}],
        "columns": {stage: text for stage, text in COLUMNS.items() if stage in drawn},
        "layers": [_layer(layer) for layer in layers],
        "legend": LEGEND,
        "labels": about.labels,
        "facts": about.facts,
        "yaml": about.text,
        "data": _data(diagnosis, names, cells),
    }
    write_page(path, "diagnosis.html.j2", words, {}, "diagnosis.js")


def cell_of(stage: str, name: str, layers: Sequence[Drawn]) -> str:
    """The cell of the page that a tensor belongs to: of a layer, or of its stage alone."""
    if stage in COLUMNS:
        parts = path_of(name)
        if stage == "slots":
            parts = parts[1:]
        places = {layer.path: count for count, layer in enumerate(layers)}
        for length in range(len(parts), 0, -1):
            if (count := places.get("/".join(parts[:length]))) is not None:
                return f"layer-{count}:{stage}"
    return f"stage-{stage}"


def level_of(seen: TensorComparison) -> int:
    """The colour of a deviation, an index of LEGEND."""
    return 0 if seen.agrees else 1 + sum(not seen.deviation < bound for bound in BOUNDS)


def _all(steps: Sequence[StepComparison]) -> Iterator[TensorComparison]:
    for step in steps:
        yield from step.forced
        yield from step.free


def _data(diagnosis: Diagnosis, names: Sequence[tuple[str, str]], cells: Sequence[str]) -> Any:
    """What the script draws, as JSON that may stand inside a script element."""
    from markupsafe import Markup

    index = {key: count for count, key in enumerate(names)}

    def entries(seen: Sequence[TensorComparison]) -> list[list[Any]]:
        return [
            [index[s.stage, s.name], level_of(s), number(s.deviation), number(s.allowed), s.replica, s.where]
            for s in seen
        ]

    data = {
        "names": [name for _, name in names],
        "stages": [stage for stage, _ in names],
        "cells": cells,
        "steps": [{"forced": entries(step.forced), "free": entries(step.free)} for step in diagnosis.steps],
        "findings": [
            [_step_index(diagnosis, f), index.get((first_seen(f).stage, f.name), -1)]
            for f in diagnosis.findings
        ],
    }
    text = json.dumps(data, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _headline(diagnosis: Diagnosis) -> str:
    if diagnosis.verdict == "parity":
        return "Parity"
    at = (
        "the evaluation"
        if diagnosis.when is None or diagnosis.when.step is None
        else f"step {diagnosis.when.step}"
    )
    return f"They part at {at}"


def _why(diagnosis: Diagnosis) -> str:
    if diagnosis.verdict == "parity":
        return f"{diagnosis.candidate} agrees with {diagnosis.reference}: {looked_into(diagnosis)}."
    if not diagnosis.findings:
        return (
            f"{diagnosis.candidate} differs from {diagnosis.reference}, but no tensor of the steps looked into"
            " differs by itself."
        )
    first, more = diagnosis.findings[0], len(diagnosis.findings) - 1
    others = f" And {more} more {'defect' if more == 1 else 'defects'}, below." if more else ""
    text = title(first)
    return f"{text[0].upper()}{text[1:]}: {first.name}.{others}"


def _head(diagnosis: Diagnosis) -> dict[str, str]:
    known = sum(finding.explanation is not None for finding in diagnosis.findings)
    when = diagnosis.when
    facts = {"Spec": diagnosis.spec_name, "Reference": diagnosis.reference, "Candidate": diagnosis.candidate}
    if when is not None:
        facts["First outside its budget"] = step_name(when.step)
        facts["Defects found"] = f"{len(diagnosis.findings)}, of {known} the cause is known"
        facts["Replayed"] = (
            "parted as the runs did" if diagnosis.reproduced else "did not part as the runs did"
        )
    return facts


def _card(count: int, finding: Finding, diagnosis: Diagnosis, layers: Sequence[Drawn]) -> dict[str, Any]:
    """What the page says of one finding."""
    why, first = finding.explanation, first_seen(finding)
    return {
        "number": count,
        "name": finding.name,
        "title": title(finding),
        "confidence": "unknown cause" if why is None else why.confidence,
        "tone": "divergent" if why is None else _CONFIDENCE[why.confidence],
        "explanation": why,
        "place": place(finding),
        "amount": amount(first),
        "at": ", ".join(filter(None, [replicas(finding.replicas), first.where])),
        "step": _step_index(diagnosis, finding),
        "cell": cell_of(first.stage, finding.name, layers),
        "agreeing": [(seen.name, number(seen.deviation)) for seen in worst_by_name(finding.agreeing)],
        "others": others_of(finding),
    }


def _step_index(diagnosis: Diagnosis, finding: Finding) -> int:
    steps = [step.step for step in diagnosis.steps]
    return steps.index(finding.step) if finding.step in steps else 0


def _shown(diagnosis: Diagnosis) -> int:
    """The step that the page opens with."""
    return _step_index(diagnosis, diagnosis.findings[0]) if diagnosis.findings else 0


def _status(step: StepComparison) -> str:
    found = {stage.status for stage in stages_of(step)}
    return next(
        status for status in ("differs", "follows", "agrees") if status in found or status == "agrees"
    )


def _drawn(node: Node) -> Drawn:
    return Drawn(node.path, node.spec.kind, node.output_shape)


def _layer(layer: Drawn) -> Mapping[str, Any]:
    shape = " × ".join(map(str, layer.shape))
    own, depth = layer.path.rpartition("/")[2], layer.path.count("/")
    return {"path": layer.path, "name": own, "kind": layer.kind, "shape": shape, "depth": depth}
