"""`parity pair`: a Keras model and its PyTorch port, trained alike and held against each other."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from parity.common.base.errors import SpecError
from parity.common.base.plain import print_line
from parity.common.base.terminal import Terminal
from parity.common.commands import (
    VERDICTS,
    add_command,
    add_model_flags,
    check_least,
    check_positive,
    print_result,
)
from parity.common.execution.worker import require
from parity.common.external.pairs.objectives import named_outputs, parsed_losses, steps_of
from parity.common.external.pairs.pair import ASKED, Outcome, PairOptions, compare_pair
from parity.common.external.pairs.request import PairRequest, SampleFile, parsed_optimizer
from parity.common.parity.compare import EXIT_CODES
from parity.common.report.diagnosis import to_json as diagnosis_to_json
from parity.common.report.files import to_json
from parity.common.report.html.diagnosis import Subject, write_diagnosis
from parity.common.report.terminal import conclude
from parity.common.report.terminal_diagnosis import print_diagnosis
from parity.common.spec import RunConfig
from parity.common.spec.external.target import Target

# Flags that are fields of the request.
_AS_GIVEN = ("steps", "global_batch", "precision", "weights", "without_dropout")


def add(commands: Any) -> None:
    """Register the subcommand."""
    command = add_command(
        commands,
        "pair",
        run,
        VERDICTS,
        (
            "pair --keras my_pkg.models:build --torch my_pkg.port:Net --data my.npz --loss mse --optimizer"
            " adam,learning_rate=1e-3",
            "pair --keras my_pkg.models:build --torch my_pkg.port:Net --data pictures --image-size 32,32 --divide-by 255",
        ),
        result="report and diagnosis",
    )
    add_model_flags(command)
    flag = command.add_argument
    flag(
        "--data",
        type=Path,
        required=True,
        metavar="PATH|MODULE:ATTRIBUTE",
        help="an .npz file, one row a sample; a .parquet file; a folder of pictures, a sub-folder a class; or what gives"
        " batches: a tf.data.Dataset, a DataLoader, a generator",
    )
    size = "of the pictures of a folder [those of the first]"
    flag("--image-size", metavar="HEIGHT,WIDTH", help=size)
    inputs = "its arrays that are inputs [all but the targets]"
    flag("--inputs", default="", metavar="NAME[,NAME...]", help=inputs)
    targets = (
        "its arrays that hold the targets [those called as the outputs with a loss; y, targets or labels]"
    )
    flag("--targets", default="", metavar="NAME[,NAME...]", help=targets)
    divisor = "all inputs, e.g. 255 for pixels [1]"
    flag("--divide-by", type=float, default=1.0, metavar="NUMBER", help=divisor)
    flag(
        "--loss",
        action="append",
        default=[],
        metavar="[OUTPUT=]KIND[,FIELD=VALUE...][,weight=NUMBER]",
        help="of both sides, by our name or a framework's (mse, CrossEntropyLoss, ...), of logits unless"
        " outputs=probabilities; repeatable, one for each of several outputs [softmax_cross_entropy]",
    )
    name = "[OUTPUT=]MODULE:ATTRIBUTE[,weight=NUMBER]"
    called = "instead of --loss, the user's own, called as loss(targets, outputs); repeatable"
    flag("--keras-loss", action="append", default=[], metavar=name, help=called)
    called = "likewise, called as loss(outputs, targets), which gives the mean"
    flag("--torch-loss", action="append", default=[], metavar=name, help=called)
    step = "instead of a loss, what gives it in training: called as step(model, batch), beside Keras's train_step"
    flag("--torch-step", metavar="MODULE:ATTRIBUTE", help=step)
    flag(
        "--sample-weights",
        metavar="NAME",
        help="the array that holds the weights of the samples [all count 1]",
    )
    flag(
        "--optimizer",
        metavar="KIND[,FIELD=VALUE...]",
        help="of both sides, in Keras's convention, e.g. adam,learning_rate=1e-3 [sgd,learning_rate=0.01]",
    )
    flag("--keras-optimizer", metavar="MODULE:ATTRIBUTE", help="instead of --optimizer, the user's own")
    likewise = "likewise; called with the model's parameters"
    flag("--torch-optimizer", metavar="MODULE:ATTRIBUTE", help=likewise)
    flag("--steps", type=int, default=50, help="how many are trained [50]")
    flag("--global-batch", type=int, default=32, help="samples of a step [32]")
    flag("--replicas", type=int, default=2, help="of the default placements [2]")
    flag(
        "--placement",
        action="append",
        metavar="FRAMEWORK:STRATEGY:REPLICAS[,FIELD=VALUE...]",
        help="what to run instead of the default, as in 'parity run'; repeatable",
    )
    flag("--device", choices=["auto", "cpu", "gpu"], default="auto")
    precision = "of the training [float64]"
    flag("--precision", choices=["float64", "float32"], default="float64", help=precision)
    mapping = "a mapping.yaml that says which tensors correspond [it is proposed]"
    flag("--mapping", type=Path, help=mapping)
    weights = "whose initial weights to copy [keras]"
    flag("--weights", choices=["keras", "torch"], default="keras", help=weights)
    flag("--without-dropout", action="store_true", help="set all rates of dropout to 0, on both sides")
    flag("--timing-rounds", type=int, default=0, help="interleaved timing rounds [0]")
    flag("--out", type=Path, default=Path("runs/pair"), help="folder of the results [runs/pair]")
    flag("--overwrite", action="store_true", help="remove what OUT holds of an earlier call")


def run(options: argparse.Namespace) -> int:
    """Compare; 0 where the two train alike."""
    asked = _asked(options)
    placements = None
    if options.placement is not None:
        usual = {"device": options.device, "pin": True}
        placements = [RunConfig.from_text(text, **usual) for text in options.placement]
    for framework in ("tensorflow", "torch"):
        require(framework)
    more = (options.device, options.mapping, options.timing_rounds, options.overwrite)
    way = PairOptions(placements, options.replicas, *more)
    outcome = compare_pair(asked, way, options.out, Terminal(stderr=True))
    return _concluded(outcome, options)


def _concluded(outcome: Outcome, options: argparse.Namespace) -> int:
    """Write and print what came of it; gives the exit code."""
    console, folder, found = Terminal(), options.out, outcome.diagnosis
    report = None if outcome.result is None else to_json(outcome.result)
    print_result(
        options, {"report": report, "diagnosis": None if found is None else diagnosis_to_json(found)}
    )
    code = 0 if outcome.result is None else conclude(outcome.result, folder, options.verbose)
    if found is not None:
        if outcome.result is not None:
            print_line()
        asked = (folder / ASKED).read_text()
        subject = Subject.of_models((found.reference, found.candidate), outcome.outlines, asked)
        print_diagnosis(found, console, write_diagnosis(found, subject, folder / "diagnosis"))
        code = code or EXIT_CODES[found.verdict]
    console.tell(f"results: {folder}")
    if code == EXIT_CODES["divergent"]:
        console.tell("next: mend the first difference above, then run this again with --overwrite")
    elif code:
        console.tell(
            "next: run this again with more --steps, and with --precision float64 where it is float32"
        )
    return code


def _asked(options: argparse.Namespace) -> PairRequest:
    check_positive(options, "steps", "global_batch", "replicas")
    check_least(options, 0, "timing_rounds")
    if not options.divide_by > 0:
        raise SpecError(f"--divide-by must be above 0, received {options.divide_by:g}")
    own = options.keras_optimizer, options.torch_optimizer
    if (own[0] is None) != (own[1] is None):
        given, lacking = ("keras", "torch") if own[1] is None else ("torch", "keras")
        raise SpecError(f"--{given}-optimizer is given alone; give --{lacking}-optimizer, too")
    if own[0] is not None and options.optimizer is not None:
        raise SpecError("--optimizer would be used on both sides, and each has its own already; leave it out")
    inputs, targets = (tuple(filter(None, text.split(","))) for text in (options.inputs, options.targets))
    own_losses = options.loss, options.keras_loss, options.torch_loss
    if options.torch_step is not None and any(own_losses):
        raise SpecError("--torch-step gives the loss; give no other beside it")
    loss = (
        parsed_losses(*own_losses)
        if options.torch_step is None
        else steps_of(options.keras, options.torch_step)
    )
    outputs = named_outputs(loss)
    return PairRequest(
        keras=Target.of(options.keras),
        torch=Target.of(options.torch),
        loss=loss,
        optimizer=parsed_optimizer(options.optimizer or "sgd,learning_rate=0.01") if own[0] is None else None,
        optimizers=None if own[0] is None else (Target.of(own[0]), Target.of(own[1])),
        data=SampleFile.of(
            options.data,
            inputs,
            targets,
            options.divide_by,
            options.sample_weights,
            outputs,
            with_targets=options.torch_step is None,
            image_size=_size(options.image_size),
            most=options.steps * options.global_batch,
        ),
        **{name: getattr(options, name) for name in _AS_GIVEN},
    )


def _size(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    parts = text.split(",")
    if len(parts) != 2 or not all(part.isdecimal() and int(part) for part in parts):
        raise SpecError(f"--image-size is HEIGHT,WIDTH in pixels, e.g. 32,32; received {text!r}")
    return tuple(map(int, parts))
