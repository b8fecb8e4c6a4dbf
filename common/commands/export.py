"""`parity export`: a checkpoint of a Keras model as one of its torch port, or back."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from parity.common.commands import add_command
from parity.common.external.checkpoints import End, convert_checkpoint


def add(commands: Any) -> None:
    """Register the subcommand."""
    command = add_command(
        commands,
        "export",
        _export,
        "turn a checkpoint of your own Keras model into one of its torch port, or back: weights, optimizer, step",
        "Training then goes on in the other framework where it stopped. What the toolkit itself has trained is"
        " written by `parity checkpoint export`. mapping.yaml is what `parity pair` writes.",
    )
    command.add_argument("--mapping", type=Path, required=True, help="mapping.yaml of the two models")
    command.add_argument(
        "--from",
        dest="source",
        type=Path,
        required=True,
        metavar="FILE",
        help="model.keras or x.weights.h5 (Keras 3); x.pt, x.pth or x.safetensors (torch): a state_dict, or"
        " {'model': ..., 'optimizer': ..., 'step': ...} of some",
    )
    command.add_argument(
        "--to",
        dest="destination",
        type=Path,
        required=True,
        metavar="FILE",
        help="new file of the other framework, named as above",
    )
    for side, needed in (
        ("keras", "needed for .weights.h5 and to write a file of Keras"),
        ("torch", "needed to carry an optimizer"),
    ):
        command.add_argument(
            f"--{side}", metavar="MODULE:ATTRIBUTE", help=f"what builds the {side} model; {needed}"
        )
        command.add_argument(
            f"--{side}-optimizer",
            metavar="MODULE:ATTRIBUTE",
            help=f"what makes the {side} optimizer; needed to carry its slots"
            + (" where the file does not say" if side == "keras" else ""),
        )
    command.add_argument("--weights-only", action="store_true", help="leave out the optimizer and the step")


def _export(options: argparse.Namespace) -> int:
    given = {
        "tensorflow": (options.keras, options.keras_optimizer),
        "torch": (options.torch, options.torch_optimizer),
    }
    source, destination = (
        End(path, *given[End(path).framework]) for path in (options.source, options.destination)
    )
    for line in convert_checkpoint(options.mapping, source, destination, options.weights_only):
        print(line)
    return 0
