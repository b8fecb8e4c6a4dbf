"""`parity pair`: a Keras model and its PyTorch port, trained alike and held against each other."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from parity.common import api
from parity.common.base.errors import SpecError
from parity.common.commands import (
    VERDICTS,
    add_command,
    add_model_flags,
    print_result,
)
from parity.common.external.pairs.spellings import LOSS_KINDS, OPTIMIZER_KINDS

# Flags that are arguments of `parity.pair`.
_AS_GIVEN = (
    *("loss", "keras_loss", "torch_loss", "torch_step", "optimizer", "keras_optimizer", "torch_optimizer"),
    *("sample_weights", "divide_by", "steps", "global_batch", "replicas", "device", "precision", "mapping"),
    *("weights", "without_dropout", "timing_rounds", "out", "overwrite"),
)


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
    inputs = "names of the input arrays in --data [all but the targets]"
    flag("--inputs", default="", metavar="NAME[,NAME...]", help=inputs)
    targets = "names of the target arrays in --data [those named like outputs, else y, targets or labels]"
    flag("--targets", default="", metavar="NAME[,NAME...]", help=targets)
    divisor = "all inputs, e.g. 255 for pixels [1]"
    flag("--divide-by", type=float, default=1.0, metavar="NUMBER", help=divisor)
    flag(
        "--loss",
        action="append",
        default=[],
        metavar="[OUTPUT=]KIND[,FIELD=VALUE...][,weight=NUMBER]",
        help=f"of both sides, one of {', '.join(LOSS_KINDS)}, or a framework's name for it (mse, CrossEntropyLoss, ...); of logits"
        " unless outputs=probabilities; repeatable, one for each of several outputs [softmax_cross_entropy]",
    )
    name = "[OUTPUT=]MODULE:ATTRIBUTE[,weight=NUMBER]"
    called = "instead of --loss, the user's own, called as loss(targets, outputs); repeatable"
    flag("--keras-loss", action="append", default=[], metavar=name, help=called)
    called = "likewise, called as loss(outputs, targets), which gives the mean"
    flag("--torch-loss", action="append", default=[], metavar=name, help=called)
    step = (
        "a function step(model, batch) that returns the loss, the counterpart of the Keras model's train_step,"
        " which takes one --keras-loss or --loss beside it as a compiled one"
    )
    flag("--torch-step", metavar="MODULE:ATTRIBUTE", help=step)
    flag(
        "--sample-weights",
        metavar="NAME",
        help="the array that holds the weights of the samples [all count 1]",
    )
    flag(
        "--optimizer",
        metavar="KIND[,FIELD=VALUE...]",
        help=f"of both sides, in Keras's convention, e.g. adam,learning_rate=1e-3; one of {', '.join(OPTIMIZER_KINDS)}"
        " [sgd,learning_rate=0.01]",
    )
    flag("--keras-optimizer", metavar="MODULE:ATTRIBUTE", help="instead of --optimizer, the user's own")
    likewise = (
        "likewise; called with the model's parameters, and may give its scheduler too: optimizer, scheduler"
    )
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
    found = api.pair(
        options.keras,
        options.torch,
        options.data,
        inputs=_names(options.inputs),
        targets=_names(options.targets),
        image_size=_size(options.image_size),
        placements=options.placement or (),
        **{name: getattr(options, name) for name in _AS_GIVEN},
    )
    print_result(options, found.to_json())
    found.show(every=options.verbose)
    return found.exit_code


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def _size(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    parts = text.split(",")
    if len(parts) != 2 or not all(part.isdecimal() and int(part) for part in parts):
        raise SpecError(f"--image-size is HEIGHT,WIDTH in pixels, e.g. 32,32; received {text!r}")
    return tuple(map(int, parts))
