"""`parity diagnose`: when, where and why two runs diverge."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from parity.common import api
from parity.common.base.errors import ParityError, SpecError
from parity.common.base.files import numbered_folders
from parity.common.base.plain import print_error, print_line
from parity.common.commands import VERDICTS, add_command, make_folder, print_result
from parity.common.parity.result import Result
from parity.common.record import read_record

MAPPING_HELP = (
    "recorded scripts: mapping.yaml, by which a torch script's tensors get Keras's names and layouts"
)
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
    found = api.diagnose(
        options.reference,
        options.candidate,
        floor=options.floor,
        mapping=options.mapping,
        contexts=contexts,
        keep=options.out / _REPLAYS if options.keep else None,
    )
    if options.out is not None:
        make_folder(options.out)
        found = found.written(options.out / "diagnosis")
    print_result(options, found.to_json())
    found.show(every=options.verbose)
    return found.exit_code


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
            found = api.diagnose(reference, candidate, floor=floors)
        except ParityError as error:
            print_error(f"parity: {candidate.label} was not diagnosed: {error}")
            continue
        found.written(folder / f"diagnosis_{number}").show()


def _context(flag: str, text: str | None) -> str | None:
    if text is not None and not re.fullmatch(r"[\w.]+:\S+", text):
        raise SpecError(f"{flag} {text!r}: expected MODULE:FUNCTION, e.g. my_package.patches:half_the_rate")
    return text
