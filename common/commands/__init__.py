"""The commands of `parity`: which there are, and what they share. Each module adds its own.

Imports nothing heavy: `parity --help` reads this and no command's module.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

from parity.common.base import errors
from parity.common.base.errors import RecordError, SpecError
from parity.common.base.files import naming_os_errors
from parity.common.base.plain import print_document


class Listed(NamedTuple):
    """A command: the module below this package that adds it, and what it does, without capital and full stop."""

    module: str
    about: str


GROUPS: dict[str, dict[str, Listed]] = {
    "Port a model": {
        "lint": Listed(
            "lint", "compare the settings of a Keras model and its PyTorch port, without training"
        ),
        "map": Listed("mapping", "find out which tensors and layers of both correspond, without training"),
        "pair": Listed("pair", "copy the weights, train both alike, and name what differs"),
        "export": Listed("checkpoint", "turn a checkpoint of your Keras model into one of its port, or back"),
    },
    "Train and compare": {
        "run": Listed("cli", "train a spec on several placements, compare them, write a report"),
        "compare": Listed("cli", "compare run records, or with --baseline versions; needs neither framework"),
        "diagnose": Listed("diagnose", "find the step, the tensor and the cause by which two runs diverge"),
        "check": Listed("check", "report which invariants a run broke, without a second run"),
        "study": Listed(
            "study", "show whether trainings that cannot be equal are equivalent: over seeds, within a margin"
        ),
        "report": Listed("cli", "analyse a finished session, write its reports again"),
    },
    "Distributed and clusters": {
        "scale": Listed(
            "scale", "measure speedup, efficiency and what they are lost to, over replicas and frameworks"
        ),
        "advise": Listed("advise", "estimate the memory of every strategy on some GPUs, and recommend one"),
        "collectives": Listed(
            "collectives", "check collective operations against NumPy, and time them over sizes"
        ),
        "submit": Listed("submit", "train on a SLURM cluster and compare there, by the scripts in slurm/"),
        "status": Listed("submit", "follow the jobs of 'parity submit' to their verdict"),
        "manifest": Listed("manifest", "print Kubernetes objects that train a spec, for kubectl apply -f -"),
    },
    "Look and convert": {
        "doctor": Listed("doctor", "what is installed, which devices, which strategies can run here"),
        "recipes": Listed("look", "list the recipes"),
        "show": Listed("look", "print a spec: its layer tree, or as YAML or JSON"),
        "plan": Listed("look", "print which replica gets which samples; needs no framework"),
        "share": Listed(
            "sharing", "write records for TensorBoard, Weights & Biases, MLflow or a spreadsheet"
        ),
        "table": Listed("sharing", "print a comparison as a table for a paper, with versions and hardware"),
        "steps": Listed("steps", "print what a run recorded of its steps; works on a run that goes on, too"),
        "checkpoint": Listed("checkpoint", "list, verify and export what a run has saved"),
        "completion": Listed("completion", "print a script that completes commands and flags in your shell"),
    },
}
COMMANDS = {name: listed for group in GROUPS.values() for name, listed in group.items()}
VERDICTS = "Exit codes: 0 parity, 1 divergent, 2 usage or run error, 3 inconclusive."


def add_command(
    commands: Any,
    name: str,
    function: Callable[..., int],
    notes: str = "",
    examples: Sequence[str] = (),
    *,
    text: str | None = None,
    result: str = "the result",
) -> Any:
    """Add a subcommand with the flags that all have; gives its parser.

    Args:
        commands: what argparse's `add_subparsers` gave.
        name: as in COMMANDS, which describes it.
        function: takes the parsed options and gives the exit code.
        notes: shown after the flags.
        examples: command lines without 'parity', which a test parses.
        text: describes an action that is not in COMMANDS.
        result: what --json prints; '' where there is no such flag.
    """
    text = text or COMMANDS[name].about
    command = commands.add_parser(
        name,
        help=text,
        description=wrapped(f"{text[0].upper()}{text[1:]}."),
        epilog=_epilog(notes, examples),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(command=function, parser=command, examples=tuple(examples))
    group = command.add_argument_group("output")
    command.set_defaults(json=None)
    as_json = f"print {result} as JSON, and nothing else; --json=FILE: write it there besides"
    if result:
        group.add_argument("--json", nargs="?", const="-", metavar="FILE", help=as_json)
    group.add_argument(
        "--quiet", action="store_true", help="print nothing but errors, and what --json asks for"
    )
    every = "print all rows and checks, and the traceback of an unexpected error"
    group.add_argument("--verbose", action="store_true", help=every)
    return command


def wrapped(text: str, indent: str = "") -> str:
    """Text in lines as wide as the terminal, those after the first indented."""
    return textwrap.fill(text, shutil.get_terminal_size().columns - 2, subsequent_indent=indent)


def _epilog(notes: str, examples: Sequence[str]) -> str:
    lines = [f"  parity {example}" for example in examples]
    return "\n".join([wrapped(notes), "", "examples:", *lines] if notes else ["examples:", *lines])


class _Recipe(argparse.Action):
    """A recipe by position or by --recipe, and one only."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        take_recipe(parser, namespace, values)


def take_recipe(parser: argparse.ArgumentParser, namespace: argparse.Namespace, name: str) -> None:
    """Note the recipe that was named; a second one is an error of the parser."""
    if namespace.recipe not in (None, name):
        parser.error(f"two recipes are given, {namespace.recipe!r} and {name!r}")
    namespace.recipe = name


def add_spec_flags(command: Any) -> None:
    """The arguments that `parity.common.execution.training_cli.choose_spec` takes."""
    text = "what to train, as 'parity recipes' lists it; most also made small, as NAME:tiny"
    command.add_argument(
        "recipe", nargs="?", action=_Recipe, default=argparse.SUPPRESS, metavar="RECIPE", help=text
    )
    command.add_argument("--recipe", action=_Recipe, metavar="RECIPE", help="the same, as a flag")
    command.add_argument("--spec", metavar="FILE", help="a TrainSpec file (YAML or JSON) instead")
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
    check_least(options, 1, *names)


def check_least(options: argparse.Namespace, least: int, *names: str) -> None:
    """Raise SpecError unless the whole numbers of these flags are at least `least`; None is a flag that is not given."""
    errors.check_least(least, **{name: getattr(options, name) for name in names})


def parse_counts(flag: str, text: str) -> list[int]:
    """The numbers of '1,2,4'; raises SpecError where a flag's text is something else."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() and len(part) < 7 for part in parts):
        raise SpecError(f"{flag} {text!r}: expected numbers with commas between them, e.g. 1,2,4")
    return [int(part) for part in parts]


def print_result(options: argparse.Namespace, data: Any) -> None:
    """Write plain data where --json says: to standard output, or to a FILE; nothing where it is not given.

    Raises:
        RecordError: the file cannot be written.
    """
    if options.json is not None:
        _write(options, [json.dumps(data, indent=1)])


def print_rows(options: argparse.Namespace, rows: Iterable[Any]) -> None:
    """The same with one line of JSON for each of `rows`."""
    _write(options, map(json.dumps, rows))


def _write(options: argparse.Namespace, texts: Iterable[str]) -> None:
    if options.json == "-":
        # While the command runs, nothing else gets there: see `main.dispatch`.
        with redirect_stdout(getattr(options, "stdout", sys.stdout)):
            for text in texts:
                print_document(f"{text}\n")
        return
    with naming_os_errors(RecordError, f"{options.json}: cannot be written"), open(options.json, "w") as file:
        file.writelines(f"{text}\n" for text in texts)


def make_folder(path: Path) -> None:
    """Make the folder that `--out` names; raises RecordError where it cannot be one."""
    with naming_os_errors(RecordError, f"{path}: cannot be used as an output folder"):
        path.mkdir(parents=True, exist_ok=True)
