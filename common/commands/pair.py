"""`parity pair`: a Keras model and its PyTorch port, trained alike and held against each other."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console

from parity.common.base.errors import SpecError
from parity.common.commands import add_command
from parity.common.diagnosis.result import Diagnosis
from parity.common.execution.worker import require
from parity.common.external.pairs.pair import ASKED, Outcome, PairOptions, compare_pair
from parity.common.external.pairs.request import PairRequest, SampleFile, parsed_loss, parsed_optimizer
from parity.common.report.diagnosis import EXIT_CODES, write_diagnosis_json
from parity.common.report.files import page_or_data
from parity.common.report.terminal_diagnosis import print_diagnosis
from parity.common.report.verdict import conclude
from parity.common.spec import RunConfig
from parity.common.spec.external.target import Target


def add(commands: Any) -> None:
    """Register the subcommand."""
    command = add_command(
        commands,
        "pair",
        run,
        "compare a Keras model with its PyTorch port: weights copied, trained alike, differences named",
        "Exit codes: 0 parity, 1 divergent, 2 usage or run error, 3 inconclusive.",
    )
    command.add_argument(
        "--keras", required=True, metavar="MODULE:ATTRIBUTE", help="what gives the Keras model"
    )
    command.add_argument(
        "--torch", required=True, metavar="MODULE:ATTRIBUTE", help="what gives the PyTorch model"
    )
    command.add_argument("--data", type=Path, required=True, help="an .npz file, one row a sample")
    command.add_argument(
        "--inputs",
        default="",
        metavar="NAME[,NAME...]",
        help="its arrays that are inputs [all but the targets]",
    )
    command.add_argument(
        "--targets", metavar="NAME", help="its array that holds the targets [y, targets or labels]"
    )
    command.add_argument(
        "--divide-by", type=float, default=1.0, metavar="NUMBER", help="all inputs, e.g. 255 for pixels [1]"
    )
    command.add_argument(
        "--loss",
        default="softmax_cross_entropy",
        metavar="KIND[,FIELD=VALUE...]",
        help="of both sides [softmax_cross_entropy]",
    )
    command.add_argument(
        "--optimizer",
        metavar="KIND[,FIELD=VALUE...]",
        help="of both sides, in Keras's convention, e.g. adam,learning_rate=1e-3 [sgd,learning_rate=0.01]",
    )
    command.add_argument(
        "--keras-optimizer", metavar="MODULE:ATTRIBUTE", help="instead of --optimizer, the user's own"
    )
    command.add_argument(
        "--torch-optimizer",
        metavar="MODULE:ATTRIBUTE",
        help="likewise; called with the model's parameters",
    )
    command.add_argument("--steps", type=int, default=50, help="how many are trained [50]")
    command.add_argument("--global-batch", type=int, default=32, help="samples of a step [32]")
    command.add_argument("--replicas", type=int, default=2, help="of the default placements [2]")
    command.add_argument(
        "--placement",
        action="append",
        metavar="FRAMEWORK:STRATEGY:REPLICAS[,FIELD=VALUE...]",
        help="what to run instead of the default, as in 'parity run'; repeatable",
    )
    command.add_argument("--device", choices=["auto", "cpu", "gpu"], default="auto")
    command.add_argument(
        "--precision", choices=["float64", "float32"], default="float64", help="of the training [float64]"
    )
    command.add_argument(
        "--mapping", type=Path, help="a mapping.yaml that says which tensors correspond [it is proposed]"
    )
    command.add_argument(
        "--weights", choices=["keras", "torch"], default="keras", help="whose initial weights to copy [keras]"
    )
    command.add_argument(
        "--without-dropout", action="store_true", help="set all rates of dropout to 0, on both sides"
    )
    command.add_argument("--timing-rounds", type=int, default=0, help="interleaved timing rounds [0]")
    command.add_argument(
        "--out", type=Path, default=Path("runs/pair"), help="folder of the results [runs/pair]"
    )
    command.add_argument("--overwrite", action="store_true", help="remove what OUT holds of an earlier call")


def run(options: argparse.Namespace) -> int:
    """Compare; 0 where the two train alike."""
    asked = _asked(options)
    placements = None
    if options.placement is not None:
        usual = {"device": options.device, "pin": True}
        placements = [RunConfig.from_text(text, **usual) for text in options.placement]
    for framework in ("tensorflow", "torch"):
        require(framework)
    way = PairOptions(
        placements,
        options.replicas,
        options.device,
        options.mapping,
        options.timing_rounds,
        options.overwrite,
    )
    outcome = compare_pair(asked, way, options.out, Console(stderr=True))
    return _concluded(outcome, options.out)


def _concluded(outcome: Outcome, folder: Path) -> int:
    """Write and print what came of it; gives the exit code."""
    console = Console(emoji=False)
    code = 0 if outcome.result is None else conclude(outcome.result, folder)
    found = outcome.diagnosis
    if found is not None:
        if outcome.result is not None:
            print()
        print_diagnosis(found, console, _write(outcome, found, folder / "diagnosis"))
        code = code or EXIT_CODES[found.verdict]
    console.print(f"results: {folder}", highlight=False, soft_wrap=True, markup=False)
    return code


def _write(outcome: Outcome, found: Diagnosis, path: Path) -> str:
    """Write path.json and path.html; says where what is for people lies."""
    from parity.common.report.html.diagnosis import Subject, write_diagnosis_html

    page, data = path.with_suffix(".html"), path.with_suffix(".json")
    write_diagnosis_json(found, data)
    asked = (path.parent / ASKED).read_text()
    subject = Subject.of_models((found.reference, found.candidate), outcome.outlines, asked)
    return page_or_data(page, data, lambda: write_diagnosis_html(found, subject, page))


def _asked(options: argparse.Namespace) -> PairRequest:
    for flag in ("steps", "global_batch", "replicas"):
        if getattr(options, flag) < 1:
            raise SpecError(
                f"--{flag.replace('_', '-')} must be at least 1, received {getattr(options, flag)}"
            )
    if options.timing_rounds < 0 or not options.divide_by > 0:
        raise SpecError("--timing-rounds must be at least 0 and --divide-by above 0")
    own = options.keras_optimizer, options.torch_optimizer
    if (own[0] is None) != (own[1] is None):
        raise SpecError("--keras-optimizer and --torch-optimizer are given together or not at all")
    if own[0] is not None and options.optimizer is not None:
        raise SpecError("give either --optimizer or --keras-optimizer and --torch-optimizer")
    ours = None if own[0] is not None else options.optimizer or "sgd,learning_rate=0.01"
    names = tuple(filter(None, options.inputs.split(",")))
    return PairRequest(
        keras=Target.of(options.keras),
        torch=Target.of(options.torch),
        loss=parsed_loss(options.loss),
        optimizer=None if ours is None else parsed_optimizer(ours),
        optimizers=None if own[0] is None else (Target.of(own[0]), Target.of(own[1])),
        data=SampleFile.of(options.data, names, options.targets, options.divide_by),
        steps=options.steps,
        global_batch=options.global_batch,
        precision=options.precision,
        weights=options.weights,
        without_dropout=options.without_dropout,
    )
