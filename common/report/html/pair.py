"""The page of a diagnosis of two models of a user's own: that of any diagnosis, with Keras's layers."""

from __future__ import annotations

from pathlib import Path

from parity.common.diagnosis.result import Diagnosis
from parity.common.report.html.diagnosis import About, Drawn, write_drawn
from parity.common.spec.external.outline import Outline


def write_pair_html(diagnosis: Diagnosis, outlines: tuple[Outline, Outline], asked: str, path: Path) -> None:
    """Write the page, whole or not at all.

    Args:
        diagnosis: of the two.
        outlines: Keras's and torch's, with a traced pass.
        asked: what was asked, as text.
        path: the file.

    Raises:
        MissingPackageError: jinja2 is not installed.
        RecordError: the file cannot be written.
    """
    layers = [
        Drawn(
            info.path, info.kind or info.type.rpartition(".")[2], info.outputs[0][1:] if info.outputs else ()
        )
        for info in outlines[0].layers
        if info.calls
    ]
    facts = [
        ("Model", [outline.target for outline in outlines]),
        ("Class", [outline.type for outline in outlines]),
        ("Tensors", [f"{len(outline.tensors):,}" for outline in outlines]),
        ("Trained numbers", [f"{_trained(outline):,}" for outline in outlines]),
        ("Versions", [", ".join(f"{n} {v}" for n, v in outline.versions.items()) for outline in outlines]),
    ]
    write_drawn(diagnosis, layers, About((diagnosis.reference, diagnosis.candidate), facts, asked), path)


def _trained(outline: Outline) -> int:
    count = 0
    for info in outline.tensors:
        size = 1
        for side in info.shape:
            size *= side
        count += size if info.trainable and info.tied_to is None else 0
    return count
