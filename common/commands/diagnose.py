"""`parity diagnose`: when, where and why two runs diverge."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console

from parity.common.base.errors import AlignmentError, ParityError, RecordError, RunError, SpecError
from parity.common.base.files import numbered_folders
from parity.common.commands import add_command, make_folder, recorded, write_json
from parity.common.diagnosis.observe.replays import Contexts
from parity.common.diagnosis.replays import diagnose
from parity.common.diagnosis.result import Diagnosis
from parity.common.execution.replay import Replayer
from parity.common.execution.worker import require
from parity.common.external.pairs.replay import diagnose_records
from parity.common.parity.align import check_alignment, differences
from parity.common.parity.result import Result
from parity.common.record import RunRecord, read_record
from parity.common.report.diagnosis import EXIT_CODES, to_json, write_diagnosis_json
from parity.common.report.files import page_or_data
from parity.common.report.terminal_diagnosis import print_diagnosis

_MOST_FIELDS = 6
_REPLAYS = "replays"


def add(commands: Any) -> None:
    """Register the subcommand."""
    command = add_command(
        commands,
        "diagnose",
        run,
        "find the step, the tensor and the cause by which two runs diverge",
        "Replays parts of both runs, so it needs their frameworks. Exit codes: 0 parity, 1 divergent, 2 usage or"
        " run error, 3 inconclusive.",
    )
    command.add_argument(
        "reference", type=Path, metavar="RUN_A", help="record of a finished run: the reference"
    )
    command.add_argument("candidate", type=Path, metavar="RUN_B", help="record of one that differs from it")
    command.add_argument(
        "--out", type=Path, help="folder for diagnosis.html and diagnosis.json [none: terminal only]"
    )
    command.add_argument(
        "--json", type=Path, metavar="FILE", help="also write the whole diagnosis as JSON there"
    )
    command.add_argument(
        "--floor",
        type=Path,
        nargs="+",
        default=[],
        help="below float64: permuted runs that show the noise floor",
    )
    for side, name in (("a", "RUN_A"), ("b", "RUN_B")):
        command.add_argument(
            f"--context-{side}",
            f"--inside-{side}",  # as it was called before
            metavar="MODULE:FUNCTION",
            help=f"context manager, MODULE:FUNCTION, that {name} was made in; its replays are made in it, too",
        )
    command.add_argument("--mapping", type=Path, help=recorded.MAPPING_HELP)
    command.add_argument("--keep", action="store_true", help=f"keep the replays, in OUT/{_REPLAYS}")


def run(options: argparse.Namespace) -> int:
    """Diagnose, report; 1 where the runs differ, 3 where that cannot be known."""
    contexts = _context("--context-a", options.context_a), _context("--context-b", options.context_b)
    if options.keep and options.out is None:
        raise SpecError("--keep needs --out, the folder to keep the replays in")
    read = recorded.reader_of(options.mapping)
    reference, candidate = read(options.reference), read(options.candidate)
    floors = [read(path) for path in options.floor]
    if reference.train_spec is None and candidate.train_spec is None:
        found, (reference, candidate) = recorded.diagnose([reference, candidate, *floors], options)
    else:
        check(reference, candidate)
        kept = options.out / _REPLAYS if options.keep else None
        found = diagnosis_of(reference, candidate, contexts, floors, kept)
    shown = None
    if options.out is not None:
        make_folder(options.out)
        shown = write_reports(found, reference, candidate, options.out / "diagnosis")
    if options.json is not None:
        write_json(options.json, to_json(found))
    print_diagnosis(found, Console(emoji=False), shown)
    return EXIT_CODES[found.verdict]


def after_run(result: Result, folder: Path) -> None:
    """Diagnose what a session found divergent, of each framework the first; write it beside its report.

    A diagnosis that fails says so on standard error: the verdict stands without it.
    """
    reference, *candidates = result.records
    divergent = [
        (number, candidate)
        for number, (candidate, c) in enumerate(zip(candidates, result.comparisons, strict=True), start=1)
        if c.verdict == "divergent"
    ]
    floors = [read_record(path) for path in numbered_folders(folder / "floor")]
    told: set[str] = set()
    for number, candidate in divergent:
        print()
        if candidate.placement.framework in told:
            print(f"{candidate.label} differs, too: parity diagnose {reference.folder} {candidate.folder}")
            continue
        told.add(candidate.placement.framework)
        try:
            found = diagnosis_of(reference, candidate, floors=floors)
        except ParityError as error:
            print(f"parity: {candidate.label} was not diagnosed: {error}", file=sys.stderr)
            continue
        shown = write_reports(found, reference, candidate, folder / f"diagnosis_{number}")
        print_diagnosis(found, Console(emoji=False), shown)


def check(reference: RunRecord, candidate: RunRecord) -> None:
    """Raise a ParityError, with what to do, where the two cannot be diagnosed."""
    fields = differences(reference, candidate)
    if fields:
        more = f", and {len(fields) - _MOST_FIELDS} more" if len(fields) > _MOST_FIELDS else ""
        raise AlignmentError(
            f"{reference.folder} and {candidate.folder} differ because their specs do: "
            + "; ".join(fields[:_MOST_FIELDS])
            + f"{more}; run both from one spec"
        )
    check_alignment(reference, candidate)
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

    kept: new folder to leave the replays in; None removes them.
    """
    if kept is not None:
        if kept.exists():
            raise RecordError(f"{kept}: there already; remove it, or name another --out")
        make_folder(kept)
        # The processes that replay may work in another folder.
        kept = kept.resolve()
    told = Console(stderr=True)
    if reference.spec.model.imported is not None:
        if contexts != (None, None) or kept is not None:
            raise SpecError("--context-a, --context-b and --keep are for runs whose steps can be replayed")
        return diagnose_records(reference, candidate, told)
    with TemporaryDirectory(prefix="parity-diagnose-") as scratch:
        folder = Path(scratch) if kept is None else kept
        try:
            with Replayer(logs=folder / "logs") as replayer:
                return diagnose(
                    reference, candidate, replayer, folder / "runs", contexts, floors, told, kept is not None
                )
        except KeyboardInterrupt:
            raise RunError("interrupted; nothing was written") from None


def write_reports(diagnosis: Diagnosis, reference: RunRecord, candidate: RunRecord, path: Path) -> str:
    """Write path.json and path.html; says where what is for people lies."""
    from parity.common.report.html.diagnosis import Subject, write_diagnosis_html

    page, data = path.with_suffix(".html"), path.with_suffix(".json")
    write_diagnosis_json(diagnosis, data)
    records = (reference, candidate)
    return page_or_data(
        page, data, lambda: write_diagnosis_html(diagnosis, Subject.of_records(*records), page)
    )


def _context(flag: str, text: str | None) -> str | None:
    if text is not None and not re.fullmatch(r"[\w.]+:\S+", text):
        raise SpecError(f"{flag} {text!r}: expected MODULE:FUNCTION, e.g. my_package.patches:half_the_rate")
    return text
