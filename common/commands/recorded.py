"""What `parity compare` and `parity diagnose` do with the records of other people's scripts."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from parity.common.base.errors import AlignmentError, SpecError
from parity.common.diagnosis.result import Diagnosis
from parity.common.external.scripts.recorded import diagnose_recorded, mapped, unwrapped
from parity.common.parity.align import differences
from parity.common.parity.result import budget_of
from parity.common.record import RunRecord, read_record
from parity.common.spec.external.mapping import read_mapping

MAPPING_HELP = (
    "recorded scripts: mapping.yaml, by which a torch script's tensors get Keras's names and layouts"
)


def reader_of(mapping: Path | None) -> Callable[[Path], RunRecord]:
    """What reads a record; where `--mapping` was given, with its tensors named by it."""
    if mapping is None:
        return read_record
    known = read_mapping(mapping)
    return lambda path: mapped(read_record(path), known)


def diagnose(
    records: Sequence[RunRecord], options: argparse.Namespace
) -> tuple[Diagnosis, tuple[RunRecord, RunRecord]]:
    """Diagnose two recorded scripts; returns their records too, with the names that were compared.

    records: the reference, the candidate, and those of `--floor`.

    Raises:
        SpecError: a flag was given that is for replays.
        AlignmentError: the records are of different scripts.
    """
    given = [name for name in ("context_a", "context_b", "keep") if getattr(options, name)]
    if given:
        raise SpecError(
            f"--{given[0].replace('_', '-')} is for replays, and a recorded script cannot be replayed"
        )
    reference, candidate, *floors = unwrapped(records)
    unlike = differences(reference, candidate)
    if unlike:
        raise AlignmentError(
            f"{reference.folder} and {candidate.folder} record different scripts: {'; '.join(unlike)}"
        )
    finished = reference.summary is not None
    budget = budget_of([reference], floors) if finished and floors else None
    return diagnose_recorded(reference, candidate, budget), (reference, candidate)
