"""`parity COMMAND ...`: reads the command line and runs one command, whose module alone is imported."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, redirect_stdout
from typing import Any, NoReturn

from absl import app, flags
from absl.flags import argparse_flags

from parity import __version__
from parity.common.base.command_line import check_flagfile, spelled
from parity.common.base.ending import exit_code_of
from parity.common.base.errors import ParityError, did_you_mean
from parity.common.base.plain import print_error
from parity.common.base.stop import interrupting
from parity.common.commands import COMMANDS, GROUPS, VERDICTS, take_recipe, wrapped

_PACKAGE = __name__.rpartition(".")[0]
_MOST_NAMED = 3
# What training scripts call their flags.
_CALLED = {
    "--lr": "--optimizer",
    "--learning-rate": "--optimizer",
    "--momentum": "--optimizer",
    "--weight-decay": "--optimizer",
    "--batch-size": "--global-batch",
    "--epochs": "--steps",
}


def main() -> None:
    """Console entry point."""
    app.run(dispatch, flags_parser=parse)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The options of a command line, the program's name first; ends the process with one line where there are none."""
    words = list(argv[1:])
    names = [word for word in words if word in COMMANDS][:1]
    # Without a command there is help to show, or one that is misspelled, or stands in a --flagfile.
    needed = names or (COMMANDS if any(not word.startswith("-") for word in words) else ())
    flagfile = any("flagfile" in word for word in words)
    parser = parser_of(COMMANDS if flagfile else needed)
    try:
        check_flagfile(argv)
        namespace: argparse.Namespace = parser.parse_args(words)
    except flags.Error as error:  # absl's own flags, such as --flagfile
        parser.error(str(error))
    return namespace


def dispatch(options: argparse.Namespace) -> int:
    """Run a command; gives its exit code, or that of how it failed."""
    with interrupting():
        return exit_code_of("parity", lambda: _run(options), keep_traceback=options.verbose)


def _run(options: argparse.Namespace) -> int:
    from parity.common.base.terminal import Terminal  # slow; the command has it already

    with ExitStack() as stack:
        options.stdout = sys.stdout  # for `print_result`
        if options.quiet or options.json == "-":
            stack.enter_context(redirect_stdout(stack.enter_context(open(os.devnull, "w"))))
        if options.quiet:
            stack.enter_context(Terminal.silenced())
        return int(options.command(options))


class Parser(argparse_flags.ArgumentParser):
    """argparse's, whose errors are one line that says what was probably meant."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = _json_joined(spelled(sys.argv[1:] if args is None else args, "-"))
        found, left = self.parse_known_args(words, namespace)
        for word in left:
            # argparse takes an optional word only before the first flag.
            if not hasattr(found, "recipe") or word.startswith("-"):
                getattr(found, "parser", self).error(f"unexpected argument {word[:200]!r}")
            take_recipe(found.parser, found, word)
        return found

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        for action in self._actions:
            # A misspelt command is told before the flags behind it.
            if isinstance(action, argparse._SubParsersAction) and args and not args[0].startswith("-"):
                self._check_value(action, args[0])
        for word in _own(self, args):
            self._check_flag(word.partition("=")[0][:80])
        return super().parse_known_args(args, namespace)  # type: ignore[no-untyped-call]

    def _check_flag(self, flag: str) -> None:
        known = [name for name in self._option_string_actions if name.startswith("--")]
        if any(name.startswith(flag) for name in known):
            return
        if _commands_of(self):
            self.error(f"{flag}: flags come after the command{did_you_mean(flag, known)}")
        name = flag[2:].replace("-", "_")
        if "--set" in known and (field := _field_of_specs(name)):
            self.error(f"{flag} is a field of the spec: --set {field}=VALUE")
        whose = _owners(flag)
        if whose:
            self.error(f"{flag} belongs to {' and '.join(whose)}")
        if name in _fields_of_placements():
            if "--placement" not in known:
                self.error(f"{flag} belongs to python -m parity.tf_impl and parity.torch_impl")
            more = "" if name in ("framework", "strategy") else f",{name}=VALUE"
            self.error(f"{flag} is part of a placement: --placement FRAMEWORK:STRATEGY:REPLICAS{more}")
        shown = [name for name in known if self._option_string_actions[name].help != argparse.SUPPRESS]
        self.error(f"unknown flag {flag}{did_you_mean(flag, shown, _CALLED)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known, value = [str(choice) for choice in action.choices], str(value)[:80]
        if isinstance(action, argparse._SubParsersAction):
            # Of the commands only the one that is run is there.
            near = did_you_mean(value, COMMANDS if action.metavar == "COMMAND" else known)
            self.error(f"unknown {str(action.metavar).lower()} {value!r}{near}")
        flag = "/".join(action.option_strings) or action.dest
        self.error(f"{flag} {value!r}: one of {', '.join(known)}{did_you_mean(value, known)}")

    def error(self, message: str) -> NoReturn:
        message = re.sub(r"^argument (\S+): invalid (int|float) value: ('.*')$", _no_number, message)
        self.exit(ParityError.exit_code, f"{self.prog}: error: {message}; see {self.prog} --help\n")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        if message:
            print_error(message.removesuffix("\n").replace("?;", "?"))
        sys.exit(status)


def parser_of(names: Sequence[str] | dict[str, Any] = COMMANDS, *, listed: bool = False) -> Parser:
    """`parity`'s parser with these commands, and with those that their modules add besides.

    Args:
        names: of commands.
        listed: argparse lists them in a help of its own; otherwise it is left to their groups.
    """
    parser = Parser(  # type: ignore[no-untyped-call]
        prog="parity",
        usage="parity COMMAND ... [--help]",
        description="Train one spec in TensorFlow and in PyTorch; prove that the trainings are the same.",
        epilog=_groups(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"parity {__version__}")
    text = None if listed else argparse.SUPPRESS
    commands = parser.add_subparsers(required=True, prog="parity", metavar="COMMAND", help=text)
    for module in dict.fromkeys(COMMANDS[name].module for name in names):
        importlib.import_module(f"{_PACKAGE}.{module}").add(commands)
    return parser


def _no_number(match: re.Match[str]) -> str:
    flag, kind, value = match.groups()
    return f"{flag} {value}: expected a {'whole ' * (kind == 'int')}number"


def _groups() -> str:
    """All commands, in their groups."""
    lines = []
    for title, group in GROUPS.items():
        lines += [f"{title}:"]
        lines += [wrapped(f"  {name:<12} {listed.about}", " " * 15) for name, listed in group.items()]
        lines += [""]
    lines += ["Begin with: parity doctor, parity run digits_mlp, parity COMMAND --help.", wrapped(VERDICTS)]
    return "\n".join(lines)


def _json_joined(words: Sequence[str]) -> list[str]:
    """Words in which --json has its file after '=', or '-': a word after it is its file where that ends in .json."""
    found: list[str] = []
    for word in words:
        if found and found[-1] == "--json=-" and word.endswith(".json"):
            found[-1] = f"--json={word}"
        else:
            found.append("--json=-" if word == "--json" else word)
    return found


def _own(parser: argparse.ArgumentParser, words: Sequence[str]) -> Iterator[str]:
    """The words that argparse takes for long flags of this parser, and not of one below it."""
    for word in words:
        if word == "--" or word in _commands_of(parser):
            return
        if word.startswith("--") and " " not in word:
            yield word


def _commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _owners(flag: str) -> list[str]:
    """The commands that have a flag: the first few, and how many more."""
    whose = [
        f"parity {name}"
        for name, each in _commands_of(parser_of()).items()
        if flag in each._option_string_actions
    ]
    more = len(whose) - _MOST_NAMED
    return whose if more <= 0 else [", ".join(whose[:_MOST_NAMED]), f"{more} more"]


def _field_of_specs(name: str) -> str:
    """The path of a spec's field that is called so, by a framework perhaps; '' for another name."""
    from parity.common.spec import TrainSpec
    from parity.common.spec.base import FRAMEWORK_NAMES

    name = FRAMEWORK_NAMES.get(name, name)
    return (
        name if name in TrainSpec.model_fields else {"learning_rate": "optimizer.learning_rate"}.get(name, "")
    )


def _fields_of_placements() -> set[str]:
    from parity.common.spec import Placement, RunOptions

    return {*Placement.model_fields, *RunOptions.model_fields}
