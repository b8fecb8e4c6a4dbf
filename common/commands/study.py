"""`parity study`: whether two trainings that cannot be equal are equivalent, over seeds and against a margin."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parity.common.api import trainings
from parity.common.base.errors import SpecError
from parity.common.base.terminal import Terminal
from parity.common.commands import add_command, add_spec_flags, check_positive, parse_counts, print_result
from parity.common.execution.training_cli import choose_spec
from parity.common.report.study import print_plan
from parity.common.report.terminal import table_console
from parity.common.spec.stock import MODES
from parity.common.study.collect import collect
from parity.common.study.judge import judge_study
from parity.common.study.metrics import METRICS
from parity.common.study.question import (
    DEFAULT_MARGIN,
    FEWEST_SEEDS,
    STUDY,
    Arm,
    StudySpec,
    read_question,
)
from parity.common.study.result import StudyResult
from parity.common.study.session import room_for, run_study, train_seeds

_EPILOG = (
    "Exit codes: 0 equivalent, 1 different, 2 usage or run error, 3 undecided. The same command goes on where it was stopped;"
    " --out with more --seeds adds seeds."
)
_EXAMPLES = (
    "study digits_cnn --set precision=float32 --placement torch:ddp:2,stock=mixed_bfloat16 --placement"
    " tf:mirrored:2,stock=mixed_bfloat16 --margin score=0.005",
    "study --records runs/keras_seeds --records runs/torch_seeds --margin 2%",
)


def add(commands: Any) -> None:
    """Register the subcommand."""
    command = add_command(
        commands,
        "study",
        run,
        _EPILOG,
        _EXAMPLES,
        result="the report",
    )
    add_flags(command)
    flag = command.add_argument
    flag("--out", type=Path, help="folder of the study, new or to go on with [runs/NAME-study]")
    records = (
        "instead of a spec: a folder of recorded scripts, one a seed; repeatable, the first is the reference"
    )
    flag("--records", type=Path, action="append", default=[], metavar="FOLDER", help=records)
    pairing = "of --records: what makes two of them a pair [seed]"
    flag("--pairing", choices=["seed", "order", "none"], default=None, help=pairing)
    flag("--parallel", type=int, metavar="N", help="runs side by side [as the cores or GPUs allow]")
    flag(
        "--plan", action="store_true", help="train a pilot only, and print how many seeds and hours it takes"
    )
    flag(
        "--pilot",
        type=int,
        default=FEWEST_SEEDS,
        help=f"seeds of --plan [{FEWEST_SEEDS}]",
    )
    flag("--report", action="store_true", help="analyse what is there; train nothing")
    flag(
        "--element", type=int, metavar="N", help="train the N-th seed only, from 0: an element of a job array"
    )


def add_flags(command: Any) -> None:
    """The flags that say what a study asks, which `parity submit --study` has too."""
    add_spec_flags(command)
    flag = command.add_argument
    flag(
        "--placement",
        action="append",
        default=[],
        metavar="FRAMEWORK:STRATEGY:REPLICAS[,stock=MODE+MODE][,FIELD=VALUE...]",
        help=f"an arm, the first is the reference; repeatable. Stock modes: {', '.join(MODES)}",
    )
    flag("--device", choices=["auto", "cpu", "gpu"], default="auto")
    add_question_flags(command)


def add_question_flags(command: Any) -> None:
    """Those of `add_flags` that no other command has."""
    flag = command.add_argument
    flag("--seeds", type=int, help=f"how many at most [{trainings.MOST_SEEDS}]")
    flag("--first-seed", type=int, help="the first of them [0]")
    looks = "after how many seeds it is looked whether the study may end [40 %%, 70 %% and all of them]"
    flag("--looks", metavar="N,N,...", help=looks)
    flag(
        "--margin",
        action="append",
        default=[],
        metavar="[METRIC=]SIZE",
        help="what is too small to matter: 0.2, 2%% of the reference's mean, or 0.5sd of its seeds; repeatable"
        f" [{DEFAULT_MARGIN.text}: half of what another seed makes]",
    )
    metric = f"a figure to compare, of {', '.join(METRICS)}; repeatable [final_loss, score and loss_area, as the spec has them]"
    flag("--metric", action="append", default=[], help=metric)
    flag("--target-loss", type=float, metavar="X", help="of steps_to_target and seconds_to_target")
    alpha = "probability of a wrong 'equivalent', and of a wrong 'different' [0.05]"
    flag("--alpha", type=float, default=None, help=alpha)
    failed = "what a run that ended in an error is: an error of the study, or the worst result [error]"
    flag("--failed", choices=["error", "worst"], default=None, help=failed)


def run(options: argparse.Namespace) -> int:
    """Train, analyse and report; 0 equivalent, 1 different, 3 undecided. Raises SpecError for flags."""
    if options.pilot < FEWEST_SEEDS:
        raise SpecError(f"--pilot must be at least {FEWEST_SEEDS}, received {options.pilot}")
    if options.parallel is not None:
        check_positive(options, "parallel")
    if options.json is not None and (options.plan or options.element is not None):
        raise SpecError("--json is for a study's verdict, which --plan and --element do not give")
    console = Terminal(stderr=True)
    question, folder = _begun(options)
    if question.spec is not None and not options.report:
        parallel = options.parallel or room_for(question)
        if options.element is not None:
            return _element(question, folder, options.element, console)
        if options.plan:
            train_seeds(question, folder, options.pilot, console, parallel)
            print_plan(question, collect(question, folder), parallel, table_console())
            return 0
        return _conclude(run_study(question, folder, console, parallel), folder, options)
    return report(question, folder, options)


def report(question: StudySpec, folder: Path, options: argparse.Namespace) -> int:
    """Analyse what a study has of its seeds, write its reports and say what was found; returns the exit code."""
    return _conclude(judge_study(question, collect(question, folder)), folder, options)


def _conclude(result: StudyResult, folder: Path, options: argparse.Namespace) -> int:
    found = trainings.studied(result, folder)
    print_result(options, found.to_json())
    found.show(table_console(), every=options.verbose)
    return found.exit_code


def _element(question: StudySpec, folder: Path, place: int, console: Terminal) -> int:
    """Train one seed, as one of many jobs that share the folder."""
    if not 0 <= place < question.looks[-1]:
        raise SpecError(f"--element {place}: the study has {question.looks[-1]} seeds")
    train_seeds(question, folder, question.looks[-1], console, 1, [place])
    return 0


def _begun(options: argparse.Namespace) -> tuple[StudySpec, Path]:
    """The question and the folder of a study that begins or goes on."""
    asks = options.recipe or options.spec or options.records
    if not asks and options.out is not None and (options.out / STUDY).is_file():
        question = read_question(options.out)
        return trainings.continued(question, options.out, options.seeds, options.failed), options.out
    if not asks and options.out is not None:
        raise SpecError(
            f"--out {options.out}: holds no study to go on with; give --recipe, --spec or --records"
        )
    return trainings.begun(question_of(options), options.out, options.seeds, options.failed)


def question_of(options: argparse.Namespace, arms: Sequence[Arm] = (), at_once: bool = False) -> StudySpec:
    """Return what the flags ask; raises SpecError with one line.

    Args:
        options: the flags.
        arms: in place of --placement.
        at_once: whether all seeds are trained before the first look.
    """
    records = list(map(str, getattr(options, "records", [])))
    named = options.recipe or options.spec
    return trainings.study_question(
        None if records and not named else choose_spec(options.recipe, options.spec, options.set).resolved(),
        list(arms) or [Arm.of(text, device=options.device) for text in options.placement],
        records=records,
        margins=options.margin,
        metrics=options.metric,
        seeds=options.seeds,
        looks=parse_counts("--looks", options.looks) if options.looks else (),
        at_once=at_once,
        pairing=getattr(options, "pairing", None),
        target_loss=options.target_loss,
        first_seed=options.first_seed,
        alpha=options.alpha,
        failed=options.failed,
    )
