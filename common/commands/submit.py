"""`parity submit`: hand trainings and their comparison, or a scaling sweep, to a SLURM cluster."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from parity.common.base.errors import SpecError
from parity.common.commands import add_command, add_spec_flags
from parity.common.execution.training_cli import choose_spec
from parity.common.planning.submission.submit import SCRIPTS, Job, Size, comparison, script, submit, sweep
from parity.common.planning.submission.sweep import placements_of
from parity.common.scaling.experiment import Question
from parity.common.spec import TrainSpec

_STEPS = 60


def add(commands: Any) -> None:
    """Register the subcommand."""
    command = add_command(
        commands,
        "submit",
        run,
        "train on a SLURM cluster and compare there, by the scripts in slurm/",
        "Follow the jobs with: parity status OUT. What a site must change is in slurm/env.sh.",
    )
    add_spec_flags(command)
    command.add_argument("--out", type=Path, help="new folder that all nodes can write [runs/NAME-slurm]")
    command.add_argument(
        "--placement",
        action="append",
        metavar="FRAMEWORK:STRATEGY[,FIELD=VALUE...]",
        help="what to run, e.g. torch:fsdp2,wrap=blocks; the first is the reference; repeatable [torch:ddp,"
        " and tf:mirrored, on several nodes tf:multi_worker]",
    )
    command.add_argument("--scale", metavar="N,N,...", help="a sweep over numbers of replicas instead")
    command.add_argument("--rounds", type=int, default=5, help="of a sweep [5]")
    command.add_argument("--nodes", type=int, default=1)
    each = command.add_mutually_exclusive_group()
    each.add_argument("--gpus-per-node", type=int, metavar="N", help="a process for each")
    each.add_argument("--tasks-per-node", type=int, default=1, metavar="N", help="without GPUs [1]")
    for name in ("partition", "account", "time"):
        command.add_argument(f"--{name}", help="as sbatch's")
    command.add_argument(
        "--sbatch", action="append", default=[], metavar="OPTION", help="another of sbatch's; repeatable"
    )
    command.add_argument("--dry-run", action="store_true", help="print the commands and the scripts only")


def run(options: argparse.Namespace) -> int:
    """Submit, or print what would be."""
    spec = choose_spec(options.recipe, options.spec, options.set)
    folder = (options.out or Path("runs") / f"{spec.name}-slurm").resolve()
    gpus = options.gpus_per_node is not None
    size = Size(options.nodes, options.gpus_per_node if gpus else options.tasks_per_node, gpus)
    if min(size.nodes, size.per_node, options.rounds) < 1:
        raise SpecError("--nodes, --gpus-per-node, --tasks-per-node and --rounds must be at least 1")
    named = {name: getattr(options, name) for name in ("partition", "account", "time")}
    given = [f"--{name}={value}" for name, value in named.items() if value] + options.sbatch
    question = None
    if options.scale is None:
        texts = options.placement or ["torch:ddp", "tf:multi_worker" if size.nodes > 1 else "tf:mirrored"]
        jobs = comparison(spec, texts, size, given, folder)
    else:
        question = _question(options, spec, size)
        counts = sorted({config.placement.replicas for config in question.placements})
        jobs = sweep(question, counts, size, given, folder)
    if options.dry_run:
        _show(jobs)
        return 0
    submission = submit(jobs, spec, folder, question)
    for job in submission.jobs:
        print(f"job {job.id}: {job.name}")
    print(f"follow them with: parity status {folder} --wait 3600")
    return 0


def _question(options: argparse.Namespace, spec: TrainSpec, size: Size) -> Question:
    try:
        counts = [int(text) for text in options.scale.split(",")]
    except ValueError:
        raise SpecError(
            f"--scale {options.scale!r}: expected numbers with commas between, e.g. 1,2,4"
        ) from None
    texts = options.placement or ["torch:ddp", "tf:multi_worker"]
    placements = placements_of(texts, counts, size, min(_STEPS, spec.steps))
    return Question(spec=spec.resolved(), placements=tuple(placements), mode="strong", rounds=options.rounds)


def _show(jobs: list[Job]) -> None:
    print(script(jobs), end="")
    for name in dict.fromkeys(["env.sh", "job.sh", *(job.script for job in jobs)]):
        print(f"\n--- {SCRIPTS / name}\n{(SCRIPTS / name).read_text()}", end="")
