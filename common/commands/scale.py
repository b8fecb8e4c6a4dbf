"""`parity scale`: how speed grows with replicas, what is lost on the way, and what to expect of more."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from parity.common.base.errors import SpecError
from parity.common.base.terminal import Terminal
from parity.common.commands import add_command, add_spec_flags, check_positive, parse_counts, print_result
from parity.common.execution.training_cli import choose_spec
from parity.common.report.files import scale_to_json, write_both
from parity.common.report.html.comparison import write_scale_html
from parity.common.report.terminal import print_scale, table_console
from parity.common.scaling import experiment
from parity.common.scaling.experiment import DEFAULT_PLACEMENTS, Question
from parity.common.scaling.links import PRESETS, parse_link
from parity.common.scaling.projection import PROJECTED_DEVICES
from parity.common.spec import TrainSpec

_ROUNDS, _STEPS = 5, 60
# Flags that are fields of the question.
_AS_GIVEN = ("mode", "rounds", "target_loss", "target_accuracy", "project", "link")


def add(commands: Any) -> None:
    """Register the subcommand."""
    command = add_command(
        commands,
        "scale",
        run,
        "Exit codes: 0 the speedups are known, 2 usage or run error, 3 too noisy to conclude. After an"
        " interruption 'parity report OUT' reads the rounds that were finished.",
        (
            "scale digits_cnn --mode both",
            "scale digits_mlp --placement torch:ddp --replicas 1,2,4 --rounds 3",
        ),
        result="the report",
    )
    add_spec_flags(command)
    flag = command.add_argument
    flag("--out", type=Path, default=None, help="new folder [runs/NAME-scale]")
    flag("--overwrite", action="store_true", help="remove a session that OUT holds")
    flag(
        "--placement",
        action="append",
        metavar="FRAMEWORK:STRATEGY[,FIELD=VALUE...]",
        help=f"what to scale, e.g. torch:fsdp2,wrap=blocks; repeatable [{', '.join(DEFAULT_PLACEMENTS)}]",
    )
    flag("--replicas", default="1,2", help="counts, 1 among them [1,2]")
    flag("--device", choices=["auto", "cpu", "gpu"], default="auto")
    flag(
        "--mode",
        choices=["strong", "weak", "both"],
        default="strong",
        help="strong: the same global batch; weak: the same batch a replica, so that spec.global_batch_size"
        " grows with the replicas [strong]",
    )
    flag("--rounds", type=int, default=_ROUNDS, help=f"interleaved [{_ROUNDS}]")
    steps = f"of each run [{_STEPS}; all that the spec has, where there is a target]"
    flag("--steps", type=int, help=steps)
    flag("--target-loss", type=float, metavar="X", help="report the time to this loss")
    flag("--target-accuracy", type=float, metavar="X", help="the same for accuracy, 0 to 1")
    devices = f"devices to project to [{PROJECTED_DEVICES}]"
    flag("--project", type=int, default=PROJECTED_DEVICES, metavar="N", help=devices)
    flag(
        "--link",
        help=f"between devices, for the projection: {', '.join(PRESETS)}, alpha=5us,beta=25GB/s, a file that"
        " 'parity collectives --json' wrote, or one in a node and one between nodes as nvlink4*8+ndr"
        " [as measured here]",
    )


def run(options: argparse.Namespace) -> int:
    """Measure and report; 3 where it was too noisy."""
    question = question_of(options)
    folder = options.out or Path("runs") / f"{question.spec.name}-scale"
    experiment.run_scale(question, folder, Terminal(stderr=True), options.overwrite)
    return report(folder, options)


def question_of(options: argparse.Namespace) -> Question:
    """What the flags ask; raises SpecError with one line where they cannot be."""
    spec = choose_spec(options.recipe, options.spec, options.set).resolved()
    check_positive(options, "rounds", "project")
    if options.link is not None:
        parse_link(options.link)
    usual = {"device": options.device, "pin": True, "stop_at_step": _steps(spec, options)}
    placements = experiment.placements_of(
        options.placement or DEFAULT_PLACEMENTS, parse_counts("--replicas", options.replicas), **usual
    )
    return Question.parse(
        {
            "spec": spec.to_dict(),
            "placements": [config.to_dict() for config in placements],
            **{name: getattr(options, name) for name in _AS_GIVEN},
        }
    )


def _steps(spec: TrainSpec, options: argparse.Namespace) -> int:
    if options.steps is None:
        targets = (options.target_loss, options.target_accuracy)
        return min(_STEPS, spec.steps) if targets == (None, None) else spec.steps
    if not 1 <= options.steps <= spec.steps:
        raise SpecError(
            f"--steps must be from 1 to the spec's {spec.steps}, received {options.steps}; for more add"
            f" --set steps={max(1, options.steps)}"
        )
    return int(options.steps)


def report(folder: Path, options: argparse.Namespace) -> int:
    """Analyse a session, write its reports and say what was found."""
    result = experiment.read_scale(folder)
    data = scale_to_json(result)
    print_result(options, data)
    shown = write_both(folder / "report", data, lambda page: write_scale_html(result, page))
    print_scale(result, table_console(), shown)
    return result.exit_code
