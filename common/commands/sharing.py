"""`parity share` and `parity table`: what was recorded and found, for the places where people look and publish."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from parity.common.base.errors import RecordError, SpecError
from parity.common.base.files import naming_os_errors, numbered_folders, replacing
from parity.common.base.plain import print_document, print_line
from parity.common.commands import add_command, print_result
from parity.common.external.scripts.recorded import unwrapped
from parity.common.parity.result import judge
from parity.common.record import claim_folder, read_record
from parity.common.record.files import read_json
from parity.common.report.files import to_json
from parity.common.report.share import WRITERS, check_installed, shared
from parity.common.report.table import FORMATS, table_of


def add(commands: Any) -> None:
    """Register both subcommands."""
    share = add_command(
        commands,
        "share",
        run,
        "Nothing is sent anywhere: each library writes files. csv keeps every digit, mlflow and wandb too,"
        " tensorboard those of float32.",
        (
            "share runs/digits_cnn --to tensorboard --out board",
            "share runs/tf runs/ddp --to csv --out tables",
        ),
        result="what was written",
    )
    share.add_argument("records", type=Path, nargs="+", help="folders of runs, or of sessions with several")
    share.add_argument("--to", choices=sorted(WRITERS), required=True, help="whose files to write")
    share.add_argument("--out", type=Path, required=True, help="new folder for them")
    table = add_command(
        commands,
        "table",
        _table,
        examples=(
            "table runs/digits_cnn --format latex --hardware '2x NVIDIA H100' --out parity.tex",
            "table runs/tf runs/ddp",
        ),
        result="the comparison, as report.json has it,",
    )
    table.add_argument(
        "paths",
        type=Path,
        nargs="+",
        metavar="PATH",
        help="a report.json, or the folder with it, that 'parity run', 'parity pair' or 'parity compare --out' wrote;"
        " or several records, the reference first",
    )
    table.add_argument("--format", choices=sorted(FORMATS), default="markdown", help="[markdown]")
    hardware = (
        "what the machines are, e.g. '2x NVIDIA H100'; records know devices and cores, not their models"
    )
    table.add_argument("--hardware", metavar="TEXT", help=hardware)
    table.add_argument("--out", type=Path, metavar="FILE", help="instead of standard output")


def run(options: argparse.Namespace) -> int:
    """Write the records."""
    check_installed(options.to)
    folders = [path for given in options.records for path in (numbered_folders(given / "runs") or [given])]
    runs = shared([read_record(folder) for folder in folders])
    claim_folder(options.out)
    opened = WRITERS[options.to](runs, options.out)
    written = [{"name": each.name, "steps": len(each.steps), "columns": list(each.columns)} for each in runs]
    print_result(options, {"runs": written, "folder": str(options.out), "open": opened})
    for each in runs:
        print_line(f"{each.name}: {len(each.steps)} steps, {len(each.columns)} columns")
    print_line(f"open: {opened}")
    return 0


def _table(options: argparse.Namespace) -> int:
    first, *others = options.paths
    if others:
        records = unwrapped([read_record(path) for path in options.paths])
        report: Any = to_json(judge(records))
    elif (first / "header.json").is_file():
        raise SpecError(
            f"{first}: one record; a table is of several, the reference first, or of a report.json"
        )
    else:
        report = read_json(first / "report.json" if first.is_dir() else first)
    print_result(options, report)
    text = table_of(report, str(first), FORMATS[options.format], options.hardware)
    if options.out is None:
        print_document(text)
        return 0
    with (
        naming_os_errors(RecordError, f"{options.out}: cannot be written"),
        replacing(options.out) as path,
    ):
        path.write_text(text, encoding="utf-8")
    return 0
