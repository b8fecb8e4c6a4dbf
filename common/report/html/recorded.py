"""The page of a diagnosis of two recorded scripts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from parity.common.external.scripts.recorded import RecordedDiagnosis
from parity.common.record import RunRecord
from parity.common.report.html import plots
from parity.common.report.html.comparison import run_facts
from parity.common.report.html.page import write_page
from parity.common.report.recorded import when
from parity.common.spec import dump_yaml

_CURVES = {
    "loss_sum": "mean loss of the global batch",
    "gradient_norm": "norm of the gradient",
    "learning_rate": "learning rate",
}
_TONES = {"agrees": "parity", "differs": "divergent", "not recorded": "inconclusive"}


def write_recorded_html(
    diagnosis: RecordedDiagnosis, reference: RunRecord, candidate: RunRecord, path: Path
) -> None:
    """Write the page, whole or not at all, replacing an older one.

    Raises:
        MissingPackageError: plotly or jinja2 is not installed.
        RecordError: the file cannot be written.
    """
    records = (reference, candidate)
    drawn = {name: title for name, title in _CURVES.items() if _is_known(name, records)}
    figures = {name: plots.column_figure(records, name, title) for name, title in drawn.items()}
    first = diagnosis.first
    words = {
        "headline": {
            "verdict": diagnosis.verdict,
            "title": diagnosis.verdict.capitalize(),
            "why": "No stage differs."
            if first is None
            else f"{first.name.capitalize()}, {when(first)}: {first.text}.",
        },
        "tones": _TONES,
        "spec": reference.run_info,
        "diagnosis": diagnosis,
        "stages": [(s, when(s) if s.status == "differs" else "") for s in diagnosis.stages],
        "curves": drawn,
        "labels": [record.label for record in records],
        "facts": run_facts(records),
        "yaml": "\n".join(dump_yaml(record.run_info) for record in records),
    }
    write_page(path, "recorded.html.j2", words, figures)


def _is_known(column: str, records: Sequence[RunRecord]) -> bool:
    return any(np.isfinite(record.columns[column]).any() for record in records)
