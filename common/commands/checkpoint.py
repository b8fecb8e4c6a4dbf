"""`parity checkpoint list | verify | export`: what a run has saved, whether it is whole, and out of the toolkit.

And `parity export`: a checkpoint of a user's Keras model as one of its torch port, or back."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.table import Table

from parity.common.base.errors import CheckpointError
from parity.common.base.plain import print_line
from parity.common.base.units import show_size
from parity.common.checkpoint import Checkpoint, checkpoints_of, find, read_checkpoint
from parity.common.commands import COMMANDS, add_command, print_result
from parity.common.commands.inputs import rows_of
from parity.common.external.checkpoints import (
    FORMATS,
    End,
    check_destination,
    convert_checkpoint,
    export_checkpoint,
)
from parity.common.report.terminal import table_console

# Samples that a model without weights is called with.
_ROWS = 2


def add(commands: Any) -> None:
    """Register both subcommands."""
    text = COMMANDS["checkpoint"].about
    group = commands.add_parser("checkpoint", help=text, description=f"{text.capitalize()}.")
    actions = group.add_subparsers(required=True, metavar="ACTION")
    listing = add_command(
        actions,
        "list",
        _list,
        examples=("checkpoint list runs/ddp", "checkpoint list runs/ddp --json"),
        text="list the checkpoints of a run; needs neither framework",
        result="them",
    )
    listing.add_argument("run", type=Path, help="the folder of a run")
    verify = add_command(
        actions,
        "verify",
        _verify,
        "Exit codes: 0 all whole, 2 one is damaged or there is none.",
        ("checkpoint verify runs/ddp", "checkpoint verify runs/ddp/checkpoints/step_00000100"),
        text="check every file of a checkpoint, or of all of a run, against its manifest; needs neither framework",
        result="what is whole and what is damaged",
    )
    verify.add_argument("path", type=Path, help="the folder of a checkpoint, or of a run")
    export = add_command(
        actions,
        "export",
        _export,
        "Of a run: its final state, or else its latest whole checkpoint. Where the spec evaluates with the average"
        " of the weights, that is what is written. A checkpoint that your own Keras or torch code has saved is"
        " turned into the other framework's by `parity export`.",
        (
            "checkpoint export runs/ddp --to keras --out model.keras",
            "checkpoint export runs/tf --to safetensors --out model.safetensors",
        ),
        text="write the weights of a run, or of one checkpoint, in a framework's own format",
        result="what was written",
    )
    export.add_argument("path", type=Path, help="the folder of a checkpoint, or of a run")
    export.add_argument(
        "--to",
        choices=sorted(FORMATS),
        required=True,
        help="keras: a model of stock layers; state_dict: tensors for stock modules, by torch.save;"
        " safetensors: the same tensors; dcp: the same, as a folder of torch.distributed.checkpoint",
    )
    export.add_argument("--out", type=Path, required=True, help="new file, or folder of dcp")
    export.add_argument("--overwrite", action="store_true", help="replace a file that OUT is")
    _add_export(commands)


def _add_export(commands: Any) -> None:
    command = add_command(
        commands,
        "export",
        _export_user_checkpoint,
        "Training then goes on in the other framework where it stopped. What the toolkit itself has trained is"
        " written by `parity checkpoint export`. mapping.yaml is what `parity pair` writes.",
        (
            "export --mapping runs/pair/mapping.yaml --from model.weights.h5 --to model.pt --keras my_pkg.models:build",
            "export --mapping runs/pair/mapping.yaml --from model.safetensors --to model.keras --keras"
            " my_pkg.models:build --weights-only",
        ),
        result="what was written",
    )
    flag, builder = command.add_argument, "MODULE:ATTRIBUTE"
    flag("--mapping", type=Path, required=True, help="mapping.yaml of the two models")
    flag(
        "--from",
        dest="source",
        type=Path,
        required=True,
        metavar="FILE",
        help="model.keras or x.weights.h5 (Keras 3); x.pt, x.pth or x.safetensors (torch): a state_dict, or"
        " {'model': ..., 'optimizer': ..., 'step': ...} of some",
    )
    new = "new file of the other framework, named as above"
    flag("--to", dest="destination", type=Path, required=True, metavar="FILE", help=new)
    for side, needed, carried in (
        ("keras", "needed for .weights.h5 and to write a file of Keras", " where the file does not say"),
        ("torch", "needed to carry an optimizer", ""),
    ):
        flag(f"--{side}", metavar=builder, help=f"what builds the {side} model; {needed}")
        slots = f"what makes the {side} optimizer; needed to carry its slots{carried}"
        flag(f"--{side}-optimizer", metavar=builder, help=slots)
    samples = "an .npz file, as of `parity pair`: samples that models are called with that have no weights before that"
    flag("--data", type=Path, metavar="FILE", help=samples)
    flag("--overwrite", action="store_true", help="replace a file that is there once the new one is whole")
    flag("--weights-only", action="store_true", help="leave out the optimizer and the step")


def _list(options: argparse.Namespace) -> int:
    folders = checkpoints_of(options.run)
    if not folders:
        find(options.run)  # says why
    table = Table("checkpoint", "step", "of", "mean loss", "placement", "size", "written", "", box=None)
    rows = [(folder.name, *_row(folder)) for folder in folders]
    for row in rows:
        table.add_row(*row)
    names = ("checkpoint", "step", "steps", "loss", "placement", "size", "written", "state")
    print_result(options, [dict(zip(names, row, strict=True)) for row in rows])
    table_console().print(table)
    return 0


def _row(folder: Path) -> tuple[str, ...]:
    try:
        checkpoint = read_checkpoint(folder)
    except CheckpointError as error:
        problem = str(error).removeprefix(f"{folder}/").removeprefix(f"{folder}: ")
        return ("", "", "", "", "", "", f"damaged: {problem}")
    manifest = checkpoint.manifest
    loss = "" if manifest.loss is None else f"{manifest.loss:.6g}"
    steps = str(checkpoint.step), str(checkpoint.spec.steps)
    return (*steps, loss, manifest.placement.label, _size(checkpoint), manifest.written, "whole")


def _size(checkpoint: Checkpoint) -> str:
    return show_size(sum(stored.bytes for stored in checkpoint.manifest.files.values()))


def _verify(options: argparse.Namespace) -> int:
    folders = checkpoints_of(options.path)
    if not folders:
        checkpoint, _ = find(options.path)
        print_result(options, {"whole": [str(checkpoint.folder)], "damaged": []})
        _say_whole(checkpoint)
        return 0
    damaged: list[str] = []
    whole: list[str] = []
    for folder in folders:
        try:
            _say_whole(read_checkpoint(folder))
            whole.append(str(folder))
        except CheckpointError as error:
            damaged.append(str(error))
            print_line(f"damaged  {error}")
    print_result(options, {"whole": whole, "damaged": damaged})
    if damaged:
        raise CheckpointError(
            f"{options.path}: {len(damaged)} of {len(folders)} checkpoints are damaged; a run that goes on passes"
            f" them over: {damaged[0]}"
        )
    return 0


def _say_whole(checkpoint: Checkpoint) -> None:
    files = len(checkpoint.manifest.files)
    print_line(
        f"whole    {checkpoint.folder}: step {checkpoint.step} of {checkpoint.spec.steps}, {files} file{'s' * (files > 1)},"
        f" {_size(checkpoint)}"
    )


def _export(options: argparse.Namespace) -> int:
    endings = FORMATS[options.to][1]
    if options.out.suffix not in endings:
        raise CheckpointError(
            f"--out {options.out}: what is written by --to {options.to} ends in {' or '.join(endings)}"
        )
    check_destination(options.out, CheckpointError, options.overwrite)
    if not options.path.is_dir():
        raise CheckpointError(f"{options.path}: no such folder; give that of a run or of a checkpoint")
    answer = export_checkpoint(options.path.resolve(), options.to, options.out.resolve())
    print_result(options, {**answer, "out": str(options.out)})
    for problem in answer["passed_over"]:
        print_line(f"passed over: {problem}")
    print_line(f"{options.out}: step {answer['step']} from {answer['source']}; {answer['said']}")
    return 0


def _export_user_checkpoint(options: argparse.Namespace) -> int:
    given = {
        "tensorflow": (options.keras, options.keras_optimizer),
        "torch": (options.torch, options.torch_optimizer),
    }
    inputs = None if options.data is None else rows_of(options.data, _ROWS)
    source, destination = (
        End(path, *given[End(path).framework], inputs) for path in (options.source, options.destination)
    )
    lines = convert_checkpoint(options.mapping, source, destination, options.weights_only, options.overwrite)
    print_result(options, {"out": str(options.destination), "notes": lines})
    for line in lines:
        print_line(line)
    return 0
