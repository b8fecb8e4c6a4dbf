"""`parity submit` hands trainings and their comparison, a scaling sweep, or a study to a SLURM cluster.

`parity status` follows them to their verdict.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parity.common.base.errors import RunError
from parity.common.base.plain import print_document, print_error, print_line
from parity.common.commands import (
    add_command,
    add_spec_flags,
    check_positive,
    parse_counts,
    print_result,
    study,
)
from parity.common.execution.training_cli import choose_spec
from parity.common.planning.submission import submit as submission
from parity.common.planning.submission.status import REPORT, State, report_of, states_of
from parity.common.planning.submission.submit import SCRIPTS, Job, Size
from parity.common.planning.submission.sweep import placements_of
from parity.common.scaling.experiment import Question
from parity.common.spec import TrainSpec
from parity.common.study.question import StudySpec

_STEPS = 60
NOT_ENDED = 4
_FIRST_POLL_SECONDS, _POLL_SECONDS = 1.0, 15.0


def add(commands: Any) -> None:
    """Register both subcommands."""
    command = add_command(
        commands,
        "submit",
        run,
        "Follow the jobs with: parity status OUT. What a site must change is in slurm/env.sh.",
        (
            "submit digits_cnn --nodes 2 --gpus-per-node 4 --partition gpu --dry-run",
            "submit digits_cnn --scale 1,2,4 --placement torch:ddp",
        ),
        result="the jobs",
    )
    add_spec_flags(command)
    flag = command.add_argument
    flag("--out", type=Path, help="new folder that all nodes can write [runs/NAME-slurm]")
    flag(
        "--placement",
        action="append",
        metavar="FRAMEWORK:STRATEGY[,FIELD=VALUE...]",
        help="what to run, e.g. torch:fsdp2,wrap=blocks; the first is the reference; repeatable [torch:ddp,"
        " and tf:mirrored, on several nodes tf:multi_worker]",
    )
    flag("--scale", metavar="N,N,...", help="a sweep over numbers of replicas instead")
    flag("--rounds", type=int, default=5, help="of a sweep [5]")
    seeds = "a study instead, an element of an array for each seed; the flags of 'parity study' below are its"
    flag("--study", action="store_true", help=seeds)
    flag("--nodes", type=int, default=1)
    each = command.add_mutually_exclusive_group()
    each.add_argument("--gpus-per-node", type=int, metavar="N", help="a process for each")
    each.add_argument("--tasks-per-node", type=int, default=1, metavar="N", help="without GPUs [1]")
    for name in ("partition", "account", "time"):
        flag(f"--{name}", help="as sbatch's")
    another = "another of sbatch's; repeatable"
    flag("--sbatch", action="append", default=[], metavar="OPTION", help=another)
    flag("--dry-run", action="store_true", help="print the commands and the scripts only")
    study.add_question_flags(command)
    _add_status(commands)


def _add_status(commands: Any) -> None:
    command = add_command(
        commands,
        "status",
        follow,
        "Exit codes: those of 'parity compare' or 'parity scale'; 2 also where a job failed; 4 some job has not"
        " ended.",
        ("status runs/digits_cnn-slurm", "status runs/digits_cnn-slurm --wait 3600"),
        result="the jobs' states and, once all have ended, the report",
    )
    command.add_argument("out", type=Path, help="the folder of the submission")
    wait = "for the end, at most so long"
    command.add_argument("--wait", type=float, default=0, metavar="SECONDS", help=wait)


def run(options: argparse.Namespace) -> int:
    """Submit, or print what would be; raises SpecError for flags."""
    spec = choose_spec(options.recipe, options.spec, options.set)
    folder = (options.out or Path("runs") / f"{spec.name}-slurm").resolve()
    gpus = options.gpus_per_node is not None
    size = Size(options.nodes, options.gpus_per_node if gpus else options.tasks_per_node, gpus)
    check_positive(options, "nodes", "gpus_per_node", "tasks_per_node", "rounds")
    named = {"partition": options.partition, "account": options.account, "time": options.time}
    given = [f"--{name}={value}" for name, value in named.items() if value] + options.sbatch
    question: Question | StudySpec | None = None
    if options.study:
        arms = [submission.arm_of(text, size) for text in options.placement or ()]
        question = study.question_of(options, arms, at_once=True)
        jobs = submission.study(question, size, given, folder)
    elif options.scale is None:
        texts = options.placement or ["torch:ddp", "tf:multi_worker" if size.nodes > 1 else "tf:mirrored"]
        jobs = submission.comparison(spec, texts, size, given, folder)
    else:
        sweep = question = _question(options, spec, size)
        counts = sorted({config.placement.replicas for config in sweep.placements})
        jobs = submission.sweep(sweep, counts, size, given, folder)
    if options.dry_run:
        print_result(options, {"out": str(folder), "script": submission.script(jobs)})
        _show(jobs)
        return 0
    submitted = submission.submit(jobs, spec, folder, question).jobs
    print_result(
        options, {"out": str(folder), "jobs": [{"id": job.id, "name": job.name} for job in submitted]}
    )
    for job in submitted:
        print_line(f"job {job.id}: {job.name}")
    print_line(f"follow them with: parity status {folder} --wait 3600")
    return 0


def _question(options: argparse.Namespace, spec: TrainSpec, size: Size) -> Question:
    texts = options.placement or ["torch:ddp", "tf:multi_worker"]
    counts = parse_counts("--scale", options.scale)
    placements = placements_of(texts, counts, size, min(_STEPS, spec.steps))
    return Question(spec=spec.resolved(), placements=tuple(placements), mode="strong", rounds=options.rounds)


def _show(jobs: list[Job]) -> None:
    print_document(submission.script(jobs))
    for name in dict.fromkeys(["env.sh", "job.sh", *(job.script for job in jobs)]):
        print_document(f"\n--- {SCRIPTS / name}\n{(SCRIPTS / name).read_text()}")


def follow(options: argparse.Namespace) -> int:
    """Print every job's state, then the verdict."""
    submitted = submission.read_submission(options.out)
    deadline, pause = time.monotonic() + options.wait, _FIRST_POLL_SECONDS
    states = states_of(submitted, options.out)
    while not all(state.ended for state in states) and (left := deadline - time.monotonic()) > 0:
        # The controller serves all users of a cluster: it is asked less and less often.
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, _POLL_SECONDS)
        states = states_of(submitted, options.out)
    for state in states:
        print_line(f"{state.name} {state.id} {state.word}{f': {state.about}' if state.about else ''}")
    return _conclude(states, options.out, options)


def _conclude(states: Sequence[State], folder: Path, options: argparse.Namespace) -> int:
    # A divergent pair ends its report with a code that SLURM calls a failure.
    trained = [state for state in states[:-1] if state.ended]
    failed = next((state for state in trained if not state.succeeded), None)
    if failed is not None:
        raise RunError(f"{failed.name} (job {failed.id}) has not succeeded, so there is no verdict")
    jobs = [{"id": state.id, "name": state.name, "state": state.word} for state in states]
    if not all(state.ended for state in states):
        print_result(options, {"jobs": jobs, "report": None})
        print_error("not all jobs have ended")
        return NOT_ENDED
    if not (folder / REPORT).is_file():
        raise RunError(
            f"job {states[-1].id} wrote no {REPORT}; see {folder}/logs/{states[-1].name}-{states[-1].id}.log"
        )
    report = report_of(folder)
    print_result(options, {"jobs": jobs, "report": report})
    print_line(f"verdict: {report['verdict']}; report: {folder / 'report.html'}")
    for found in report.get("results", ()):
        print_line(f"  {found['verdict']}: {found['sentence']}")
    for pair in report.get("comparisons", ()):
        print_line(f"  {pair['candidate']} against {pair['reference']}: {pair['reason']}")
    return int(report["exit_code"])
