"""`parity run | compare | report`: sessions and their verdicts."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from parity.common import api
from parity.common.commands import (
    VERDICTS,
    add_command,
    add_spec_flags,
    baseline,
    diagnose,
    make_folder,
    print_result,
    scale,
    study,
)
from parity.common.execution.training_cli import choose_spec
from parity.common.parity.baseline import THRESHOLD
from parity.common.parity.result import read_session
from parity.common.report.terminal import write_reports
from parity.common.scaling.experiment import is_scale
from parity.common.study.question import STUDY, read_question


def add(commands: Any) -> None:
    """Register the subcommands."""
    run = add_command(
        commands,
        "run",
        _run,
        VERDICTS,
        (
            "run digits_mlp",
            "run digits_cnn --set precision=float32 --placement torch:single:1 --placement torch:ddp:2 --diagnose",
        ),
        result="the report",
    )
    add_spec_flags(run)
    run.add_argument("--out", type=Path, default=None, help="new folder for records and report [runs/NAME]")
    run.add_argument("--replicas", type=int, default=2, help="replicas of the default placements [2]")
    run.add_argument("--device", choices=["auto", "cpu", "gpu"], default="auto")
    run.add_argument(
        "--placement",
        action="append",
        metavar="FRAMEWORK:STRATEGY:REPLICAS[,FIELD=VALUE...]",
        help="what to run instead of the default, e.g. torch:ddp:4 or torch:fsdp2:4,wrap=blocks,accumulation=2;"
        " the first is the reference; repeatable",
    )
    run.add_argument("--digests", action="store_true", help="check after each step that replicas are equal")
    run.add_argument("--timing-rounds", type=int, default=3, help="interleaved timing rounds, 0 for none [3]")
    why = "where a candidate is divergent, find out when, where and why: diagnosis_N.html"
    run.add_argument("--diagnose", action="store_true", help=why)
    run.add_argument("--overwrite", action="store_true", help="remove a record or session that OUT holds")

    compare = add_command(
        commands,
        "compare",
        _compare,
        f"{VERDICTS} With --baseline: 0 no regression, 1 regression, 2 usage or run error, 3 undecided.",
        (
            "compare runs/tf runs/ddp --verbose --out runs/report",
            "compare --baseline runs/old runs/new --json",
        ),
        result="the report",
    )
    compare.add_argument("reference", type=Path, help="a record; with --baseline also a session, the old one")
    compare.add_argument("candidates", type=Path, nargs="+", help="likewise; with --baseline the new ones")
    versions = "find regressions between versions of a framework: in numbers, speed and memory"
    compare.add_argument("--baseline", action="store_true", help=versions)
    share = f"with --baseline: the share by which speed may drop [{THRESHOLD:g}]"
    compare.add_argument("--threshold", type=float, default=THRESHOLD, help=share)
    floor = "float32: permuted runs that show the noise floor"
    compare.add_argument("--floor", type=Path, nargs="+", default=[], help=floor)
    out = "folder for report.html, report.json and report.xml; with --baseline for baseline.json"
    compare.add_argument("--out", type=Path, help=out)
    compare.add_argument("--checks", action="store_true", help="list every check, as --verbose does")
    compare.add_argument("--mapping", type=Path, help=diagnose.MAPPING_HELP)

    report = add_command(
        commands,
        "report",
        _report,
        VERDICTS,
        ("report runs/digits_cnn", "report runs/digits_cnn-scale --json"),
        result="the report",
    )
    report.add_argument(
        "session", type=Path, help="the folder that 'parity run', 'parity scale' or 'parity study' wrote"
    )
    report.add_argument("--checks", action="store_true", help="list every check, as --verbose does")


def _run(options: argparse.Namespace) -> int:
    spec = choose_spec(options.recipe, options.spec, options.set)
    folder = options.out or Path("runs") / spec.name
    found = api.run(
        spec,
        options.placement or (),
        replicas=options.replicas,
        out=folder,
        device=options.device,
        digests=options.digests,
        timing_rounds=options.timing_rounds,
        overwrite=options.overwrite,
    )
    print_result(options, found.to_json())
    found.show(every=options.verbose, advice=not options.diagnose)
    if options.diagnose and found.verdict == "divergent":
        diagnose.after_run(found.result, folder)
        write_reports(found.result, folder)
    return found.exit_code


def _compare(options: argparse.Namespace) -> int:
    if options.baseline:
        return baseline.run(options)
    found = api.compare(options.reference, *options.candidates, floor=options.floor, mapping=options.mapping)
    if options.out is not None:
        make_folder(options.out)
        found = found.written(options.out)
    print_result(options, found.to_json())
    found.show(every=options.checks or options.verbose)
    return found.exit_code


def _report(options: argparse.Namespace) -> int:
    if is_scale(options.session):
        return scale.report(options.session, options)
    if (options.session / STUDY).is_file():
        return study.report(read_question(options.session), options.session, options)
    found = api.Compared(read_session(options.session)).written(options.session)
    print_result(options, found.to_json())
    found.show(every=options.checks or options.verbose)
    return found.exit_code
