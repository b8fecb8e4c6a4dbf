"""Flags: dashes and underscores are the same everywhere, and every field has its flag with the same help."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from parity.common.base.package import MODULES
from parity.common.commands import cli
from parity.common.execution.flags import spelled
from parity.common.spec import Placement, RunConfig, RunOptions
from parity.common.spec.capabilities import lacks
from parity.common.spec.run_options import Saving
from parity.common.spec.strategies import Framework
from parity_tests.helpers import ROOT

FRAMEWORKS: tuple[Framework, ...] = ("tensorflow", "torch")
# Fields without a flag of their name: the module says the framework; --option and --save_... set the others.
ELSEWHERE = {"framework", "options", "save"}
# Defines the flags of a training, and parses all of them in both spellings; prints their help.
FLAGS = """
import json, sys
from absl import flags
from parity.common.execution import training_cli
from parity.common.execution.flags import spelled
framework = sys.argv[1]
training_cli._define(framework)
own = flags.FLAGS.flags_by_module_dict()[training_cli.__name__]
found = {}
for flag in own:
    value = {"boolean": "true"}.get(flag.flag_type() if flag.flag_type() != "bool" else "boolean")
    if value is None:
        choices = getattr(flag.parser, "enum_values", None)
        value = choices[-1] if choices else "7"
    seen = []
    for name in (flag.name, flag.name.replace("_", "-")):
        flags.FLAGS.unparse_flags()
        for each in own:
            each.unparse()
        flags.FLAGS(["program", *spelled([f"--{name}={value}"], "_")])
        seen.append([str(flag.value), flag.present])
    found[flag.name] = {"help": flag.help, "seen": seen}
print(json.dumps(found))
"""


@cache
def flags_of(framework: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", FLAGS, framework], capture_output=True, text=True, cwd=ROOT, timeout=100
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_flags_of_a_training_take_both_spellings(framework: str) -> None:
    found = flags_of(framework)
    assert len(found) > 30 and any("_" in name for name in found)
    for name, flag in found.items():
        (one, given), (other, again) = flag["seen"]
        assert one == other and given and again, name


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_field_has_its_flag_with_its_help(framework: Framework) -> None:
    found = flags_of(framework)
    for kind in (Placement, RunOptions, Saving):
        for name, field in kind.model_fields.items():
            if name in ELSEWHERE:
                continue
            flag = name if kind is not Saving or name.startswith("keep") else f"save_{name}"
            assert (flag in found) == (not lacks(framework, name)), flag
            # What --resume is resolved to is another thing than what it takes.
            if flag in found and name != "resume":
                # absl shows choices before the text.
                assert field.description and found[flag]["help"].endswith(field.description), flag


def test_flags_that_both_frameworks_have_say_the_same() -> None:
    ours, theirs = map(flags_of, FRAMEWORKS)
    assert set(ours) ^ set(theirs) == {"steps_per_call", "save_sharded"}
    # Each lists strategies, and what these leave to choose, of its own.
    own = {"strategy", "engine", "launcher", "option"}
    for name in ours.keys() & theirs.keys() - own:
        assert ours[name]["help"] == theirs[name]["help"], name


def parsers(
    parser: argparse.ArgumentParser, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(words of a command, its parser) of all commands."""
    yield path, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from parsers(below, (*path, name))


COMMANDS = dict(parsers(cli._parser()))


def options_of(path: tuple[str, ...]) -> list[str]:
    """The long options of a command, without those that absl adds to every program and does not show."""
    actions = [action for action in COMMANDS[path]._actions if action.help is not argparse.SUPPRESS]
    return [option for action in actions for option in action.option_strings if option.startswith("--")]


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: " ".join(("parity", *path)))
def test_options_of_a_command_take_both_spellings(path: tuple[str, ...]) -> None:
    for option in options_of(path):
        assert "_" not in option
        underscored = "--" + option[2:].replace("-", "_")
        for given in (option, underscored, f"{underscored}=1"):
            (read,) = spelled([given], "-")
            assert read.partition("=")[0] in COMMANDS[path]._option_string_actions, given


def test_there_are_options_of_several_words() -> None:
    every = [option for path in COMMANDS for option in options_of(path)]
    assert len(every) > 60 and sum("-" in option[2:] for option in every) > 10
    assert set(MODULES) == set(FRAMEWORKS)


def test_texts_and_values_take_both_spellings() -> None:
    text = "torch:fsdp2:4,shard-group=2,loader-workers=1,phase-repeats=2"
    config = RunConfig.from_text(text)
    assert config == RunConfig.from_text(text.replace("-", "_"))
    assert config.placement.loader_workers == 1 and config.run_options.phase_repeats == 2
    # What stands after '=' is left as it is.
    assert spelled(["--out=my-runs/a_b"], "_") == ["--out=my-runs/a_b"]
