"""`parity diagnose`: when, where and why two runs diverge."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from parity.common.base.errors import NotComparableError, ParityError, RecordError, RunError, SpecError
from parity.common.base.files import numbered_folders
from parity.common.base.plain import print_error, print_line
from parity.common.base.scratch import scratch_folder
from parity.common.base.terminal import Terminal
from parity.common.commands import VERDICTS, add_command, make_folder, print_result
from parity.common.diagnosis.observe.replays import Contexts
from parity.common.diagnosis.replays import diagnose
from parity.common.diagnosis.result import Diagnosis
from parity.common.execution.worker import Workers, require
from parity.common.external.pairs.replay import diagnose_records
from parity.common.external.scripts.recorded import diagnose_recorded, mapped, unwrapped
from parity.common.parity.budget import budget_of
from parity.common.parity.comparable import check_comparable, differences
from parity.common.parity.compare import EXIT_CODES
from parity.common.parity.result import Result
from parity.common.record import RunRecord, read_record
from parity.common.report.diagnosis import to_json
from parity.common.report.html.diagnosis import Subject, write_diagnosis
from parity.common.report.terminal_diagnosis import print_diagnosis
from parity.common.spec.external.mapping import read_mapping

MAPPING_HELP = (
    "recorded scripts: mapping.yaml, by which a torch script's tensors get Keras's names and layouts"
)
_MOST_FIELDS = 6
_REPLAYS = "replays"


def add(commands: Any) -> None:
    """Register the subcommand."""
    command = add_command(
        commands,
        "diagnose",
        run,
        f"Replays parts of both runs, so it needs their frameworks. {VERDICTS}",
        (
            "diagnose runs/tf runs/ddp --out why",
            "diagnose runs/tf runs/ddp --floor runs/floor/00 runs/floor/01 --json=all.json --keep --out why",
        ),
        result="the whole diagnosis",
    )
    flag = command.add_argument
    flag("reference", type=Path, metavar="RUN_A", help="record of a finished run: the reference")
    flag("candidate", type=Path, metavar="RUN_B", help="record of one that differs from it")
    flag("--out", type=Path, help="folder for diagnosis.html and diagnosis.json [none: terminal only]")
    floor = "below float64: permuted runs that show the noise floor"
    flag("--floor", type=Path, nargs="+", default=[], help=floor)
    for side, name in (("a", "RUN_A"), ("b", "RUN_B")):
        flag(
            f"--context-{side}",
            f"--inside-{side}",  # as it was called before
            metavar="MODULE:FUNCTION",
            help=f"context manager, MODULE:FUNCTION, that {name} was made in; its replays are made in it, too",
        )
    flag("--mapping", type=Path, help=MAPPING_HELP)
    flag("--keep", action="store_true", help=f"keep the replays, in OUT/{_REPLAYS}")


def run(options: argparse.Namespace) -> int:
    """Diagnose, report; 1 where the runs differ, 3 where that cannot be known. Raises SpecError for flags."""
    contexts = _context("--context-a", options.context_a), _context("--context-b", options.context_b)
    if options.keep and options.out is None:
        raise SpecError("--keep needs --out, the folder to keep the replays in")
    read = reader_of(options.mapping)
    reference, candidate = read(options.reference), read(options.candidate)
    floors = [read(path) for path in options.floor]
    if reference.train_spec is None and candidate.train_spec is None:
        found, (reference, candidate) = diagnosis_of_scripts([reference, candidate, *floors], options)
    else:
        check(reference, candidate)
        kept = options.out / _REPLAYS if options.keep else None
        found = diagnosis_of(reference, candidate, contexts, floors, kept)
    shown = None
    if options.out is not None:
        make_folder(options.out)
        shown = write_diagnosis(found, Subject.of_records(reference, candidate), options.out / "diagnosis")
    print_result(options, to_json(found))
    print_diagnosis(found, Terminal(), shown)
    return EXIT_CODES[found.verdict]


def after_run(result: Result, folder: Path) -> None:
    """Diagnose what a session found divergent, of each framework the first; write it beside its report.

    A diagnosis that fails says so on standard error: the verdict stands without it.
    """
    reference, *candidates = result.records
    floors = [read_record(path) for path in numbered_folders(folder / "floor")]
    told: set[str] = set()
    pairs = zip(candidates, result.comparisons, strict=True)
    for number, (candidate, comparison) in enumerate(pairs, start=1):
        if comparison.verdict != "divergent":
            continue
        print_line()
        if candidate.placement.framework in told:
            print_line(
                f"{candidate.label} differs, too: parity diagnose {reference.folder} {candidate.folder}"
            )
            continue
        told.add(candidate.placement.framework)
        try:
            found = diagnosis_of(reference, candidate, floors=floors)
        except ParityError as error:
            print_error(f"parity: {candidate.label} was not diagnosed: {error}")
            continue
        subject = Subject.of_records(reference, candidate)
        shown = write_diagnosis(found, subject, folder / f"diagnosis_{number}")
        print_diagnosis(found, Terminal(), shown)


def check(reference: RunRecord, candidate: RunRecord) -> None:
    """Raise a ParityError, with what to do, where the two cannot be diagnosed."""
    fields = differences(reference, candidate)
    if fields:
        more = f", and {len(fields) - _MOST_FIELDS} more" if len(fields) > _MOST_FIELDS else ""
        raise NotComparableError(
            f"{reference.folder} and {candidate.folder} differ because their specs do:"
            f" {'; '.join(fields[:_MOST_FIELDS])}{more}; run both from one spec"
        )
    check_comparable(reference, candidate)
    for record in (reference, candidate):
        require(record.placement.framework)


def diagnosis_of(
    reference: RunRecord,
    candidate: RunRecord,
    contexts: Contexts = (None, None),
    floors: Sequence[RunRecord] = (),
    kept: Path | None = None,
) -> Diagnosis:
    """Diagnose in processes of its own; progress goes to standard error.

    Of a user's own models no step is replayed: both are opened, and looked at side by side.

    Args:
        kept: new folder to leave the replays in; None removes them.

    Raises:
        RecordError: `kept` is there already.
        SpecError: contexts or `kept` are given for what cannot be replayed.
        RunError: a person interrupted.
    """
    if kept is not None:
        if kept.exists():
            raise RecordError(f"{kept}: there already; remove it, or name another --out")
        make_folder(kept)
        # The processes that replay may work in another folder.
        kept = kept.resolve()
    told = Terminal(stderr=True)
    if reference.spec.model.imported is not None:
        if contexts != (None, None) or kept is not None:
            raise SpecError(
                "contexts and --keep are for runs whose steps can be replayed, and these are of your own models"
            )
        return diagnose_records(reference, candidate, told)
    with scratch_folder("diagnose-") as scratch:
        folder = scratch if kept is None else kept
        try:
            with Workers(folder / "logs") as replayer:
                return diagnose(
                    reference, candidate, replayer, folder / "runs", contexts, floors, told, kept is not None
                )
        except KeyboardInterrupt:
            raise RunError("interrupted; nothing was written") from None


def reader_of(mapping: Path | None) -> Callable[[Path], RunRecord]:
    """What reads a record; where `--mapping` was given, with its tensors named by it."""
    if mapping is None:
        return read_record
    known = read_mapping(mapping)
    return lambda path: mapped(read_record(path), known)


def diagnosis_of_scripts(
    records: Sequence[RunRecord], options: argparse.Namespace
) -> tuple[Diagnosis, tuple[RunRecord, RunRecord]]:
    """Diagnose two recorded scripts; returns their records too, with the names that were compared.

    records: the reference, the candidate, and those of `--floor`.

    Raises:
        SpecError: a flag was given that is for replays.
        NotComparableError: the records are of different scripts.
    """
    given = [name for name in ("context_a", "context_b", "keep") if getattr(options, name)]
    if given:
        raise SpecError(
            f"--{given[0].replace('_', '-')} is for replays, and a recorded script cannot be replayed"
        )
    reference, candidate, *floors = unwrapped(records)
    unlike = differences(reference, candidate)
    if unlike:
        raise NotComparableError(
            f"{reference.folder} and {candidate.folder} record different scripts: {'; '.join(unlike)}"
        )
    finished = reference.summary is not None
    budget = budget_of([reference], floors) if finished and floors else None
    return diagnose_recorded(reference, candidate, budget), (reference, candidate)


def _context(flag: str, text: str | None) -> str | None:
    if text is not None and not re.fullmatch(r"[\w.]+:\S+", text):
        raise SpecError(f"{flag} {text!r}: expected MODULE:FUNCTION, e.g. my_package.patches:half_the_rate")
    return text
