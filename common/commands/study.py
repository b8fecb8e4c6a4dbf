"""`parity study`: whether two trainings that cannot be equal are equivalent, over seeds and against a margin."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parity.common.base.errors import SpecError, did_you_mean
from parity.common.base.terminal import Terminal
from parity.common.commands import add_command, add_spec_flags, check_positive, parse_counts, print_result
from parity.common.execution.training_cli import choose_spec
from parity.common.record import claim_folder
from parity.common.report.files import write_both
from parity.common.report.html.study import write_study_html
from parity.common.report.study import print_plan, print_study, study_to_json
from parity.common.report.terminal import table_console
from parity.common.spec.stock import MODES
from parity.common.study.collect import collect, count_of_records
from parity.common.study.equivalence import Margin
from parity.common.study.judge import judge_study
from parity.common.study.metrics import METRICS, check_metrics, usual_metrics
from parity.common.study.question import (
    DEFAULT_MARGIN,
    FEWEST_SEEDS,
    STUDY,
    Arm,
    StudySpec,
    looks_of,
    read_question,
    with_more_seeds,
    write_question,
)
from parity.common.study.result import StudyResult
from parity.common.study.session import begin_study, room_for, run_study, train_seeds

_SEEDS = 20
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
    flag("--pilot", type=int, default=FEWEST_SEEDS, help=f"seeds of --plan [{FEWEST_SEEDS}]")
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
    flag("--seeds", type=int, help=f"how many at most [{_SEEDS}]")
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
    data = study_to_json(result)
    print_result(options, data)
    shown = write_both(folder / "report", data, lambda page: write_study_html(result, page))
    print_study(result, table_console(), shown)
    return result.exit_code


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
        return _continued(options, read_question(options.out), options.out), options.out
    if not asks and options.out is not None:
        raise SpecError(
            f"--out {options.out}: holds no study to go on with; give --recipe, --spec or --records"
        )
    question = question_of(options)
    name = "records" if question.spec is None else question.spec.name
    folder = options.out or Path("runs") / f"{name}-study"
    if question.spec is None:
        _claim(folder)
        write_question(question, folder)
        return question, folder
    return _continued(options, begin_study(question, folder), folder), folder


def _claim(folder: Path) -> None:
    """Make the folder of a study of records; raises ParityError where it holds something else."""
    if (folder / STUDY).is_file():
        if read_question(folder).spec is not None:
            raise SpecError(f"--out {folder}: holds a study that was trained; give another")
        return
    claim_folder(folder)


def _continued(options: argparse.Namespace, question: StudySpec, folder: Path) -> StudySpec:
    """A study's question with the seeds that are added, written again where there are any."""
    changed = question
    if options.seeds is not None and options.seeds > question.looks[-1]:
        found = judge_study(question, collect(question, folder))
        if found.verdict != "undecided":
            raise SpecError(
                f"--seeds {options.seeds}: the study has ended after {found.seeds} seeds, {found.verdict}; for another give"
                " another --out"
            )
        changed = with_more_seeds(question, options.seeds, found.seeds)
    if options.failed is not None and options.failed != question.failed:
        changed = changed.model_copy(update={"failed": options.failed})
    if changed != question:
        write_question(changed, folder)
    return changed


def question_of(options: argparse.Namespace, arms: Sequence[Arm] = (), at_once: bool = False) -> StudySpec:
    """Return what the flags ask; raises SpecError with one line.

    Args:
        options: the flags.
        arms: in place of --placement.
        at_once: whether all seeds are trained before the first look.
    """
    records = list(map(str, getattr(options, "records", [])))
    if records and (options.recipe or options.spec or options.placement):
        raise SpecError("--records stand instead of --recipe, --spec and --placement; give either")
    spec = None if records else choose_spec(options.recipe, options.spec, options.set).resolved()
    if spec is not None and spec.stock:
        raise SpecError("stock modes belong to the arms: give them to --placement as stock=MODE+MODE")
    made = list(arms) or [Arm.of(text, device=options.device) for text in options.placement]
    pairing = getattr(options, "pairing", None) or "seed"
    if spec is not None and pairing != "seed":
        raise SpecError(f"--pairing {pairing} is for --records; runs of a seed begin alike, and are pairs")
    names = options.metric or (["loss_area"] if spec is None else usual_metrics(spec))
    check_metrics(names, spec)
    count = options.seeds or (_SEEDS if spec is not None else count_of_records(records, pairing))
    stage = [count] if at_once or spec is None else list(looks_of(count))
    if options.looks:
        stage = [*(look for look in parse_counts("--looks", options.looks) if look < count), count]
    given = {
        "target_loss": options.target_loss,
        "first_seed": options.first_seed,
        "alpha": options.alpha,
        "failed": options.failed,
    }
    return StudySpec.parse(
        {
            "spec": None if spec is None else spec.to_dict(),
            "arms": [arm.to_dict() for arm in made],
            "records": records,
            "figures": _figures(names, options.margin),
            "stages": [stage],
            "pairing": pairing,
            **{name: value for name, value in given.items() if value is not None},
        }
    )


def _figures(names: Sequence[str], margins: Sequence[str]) -> list[dict[str, Any]]:
    """The figures with their margins; one without a name is that of all others."""
    unknown = [name for name in names if name not in METRICS]
    if unknown:
        near = did_you_mean(unknown[0], METRICS)
        raise SpecError(f"--metric {unknown[0]}: expected one of {', '.join(METRICS)}{near}")
    default, own = DEFAULT_MARGIN, {}
    for text in margins:
        name, equals, size = text.rpartition("=")
        if equals and name not in names:
            raise SpecError(f"--margin {text}: {name!r} is not compared; compared are {', '.join(names)}")
        if equals:
            own[name] = Margin.of(size)
        else:
            default = Margin.of(size)
    return [{"name": name, "margin": own.get(name, default).to_dict()} for name in names]
