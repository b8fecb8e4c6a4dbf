"""Subcommands of `parity` that stand by themselves; each module adds its own.

Here is what they share, with one another and with those in `parity.common.commands.cli`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from parity.common import recipes
from parity.common.base.errors import RecordError, SpecError
from parity.common.base.files import naming_os_errors


def add_command(
    commands: Any, name: str, function: Callable[..., int], text: str, epilog: str | None = None
) -> Any:
    """Add a subcommand that `text`, without capital and full stop, describes; gives its parser."""
    about = f"{text[0].upper()}{text[1:]}."
    command = commands.add_parser(name, help=text, description=about, epilog=epilog)
    command.set_defaults(command=function)
    return command


def add_spec_flags(command: Any) -> None:
    """The flags that `parity.common.execution.training_cli.choose_spec` takes."""
    command.add_argument(
        "--recipe", help=f"one of {', '.join(recipes.RECIPES)}; most also made small, as NAME:tiny"
    )
    command.add_argument("--spec", help="a TrainSpec file (YAML or JSON) instead")
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="override a field, e.g. optimizer.learning_rate=0.05; repeatable",
    )


def add_model_flags(command: Any) -> None:
    """The flags that name a Keras model and its PyTorch port, each to be read by `Target.of`."""
    for flag, framework in (("--keras", "Keras"), ("--torch", "PyTorch")):
        text = f"what gives the {framework} model"
        command.add_argument(flag, required=True, metavar="MODULE:ATTRIBUTE", help=text)


def check_positive(options: argparse.Namespace, *names: str) -> None:
    """Raise SpecError unless the whole numbers of these flags are at least 1."""
    for name in names:
        value = getattr(options, name)
        if value < 1:
            raise SpecError(f"--{name.replace('_', '-')} must be at least 1, received {value}")


def parse_counts(flag: str, text: str) -> list[int]:
    """The numbers of '1,2,4'; raises SpecError where a flag's text is something else."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() and len(part) < 7 for part in parts):
        raise SpecError(f"{flag} {text!r}: expected numbers with commas between them, e.g. 1,2,4")
    return [int(part) for part in parts]


def write_json(path: Path, data: Any) -> None:
    """Write what `--json FILE` asks for; raises RecordError where it cannot be written."""
    with naming_os_errors(RecordError, f"{path}: cannot be written"):
        path.write_text(json.dumps(data, indent=1) + "\n")


def make_folder(path: Path) -> None:
    """Make the folder that `--out` names; raises RecordError where it cannot be one."""
    with naming_os_errors(RecordError, f"{path}: cannot be used as an output folder"):
        path.mkdir(parents=True, exist_ok=True)
