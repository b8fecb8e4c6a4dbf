"""Flags: dashes and underscores are the same everywhere, every field has its flag with the same help, commands share theirs."""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from parity.common import recipes
from parity.common.base.command_line import spelled
from parity.common.base.package import MODULES
from parity.common.commands import COMMANDS as LISTED
from parity.common.commands import GROUPS
from parity.common.spec import Placement, RunConfig, RunOptions, TrainSpec, override
from parity.common.spec.capabilities import lacks
from parity.common.spec.run_options import Saving
from parity.common.spec.strategies import Framework
from parity.common.study.question import Arm
from parity_tests.helpers import ROOT
from parity_tests.helpers.commands import PARSER, Cli
from parity_tests.helpers.records import MIRRORED, TORCH, Run, tiny_spec

FRAMEWORKS: tuple[Framework, ...] = ("tensorflow", "torch")
# Fields without a flag of their name: the module says the framework; --option and --save_... set the others.
ELSEWHERE = {"framework", "options", "save"}
# Defines the flags of a training, and parses all of them in both spellings; prints their help.
FLAGS = """
import json, sys
from absl import flags
from parity.common.execution import training_cli
from parity.common.base.command_line import spelled
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


COMMANDS = dict(parsers(PARSER))


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


LEAVES = {path: parser for path, parser in COMMANDS.items() if parser.get_default("command")}


def test_every_command_has_its_group_and_every_group_its_commands() -> None:
    assert len(GROUPS) == 4 and {path[0] for path in LEAVES} == set(LISTED)
    text = PARSER.format_help()
    for title, group in GROUPS.items():
        assert f"\n{title}:\n" in text
        assert all(f"\n  {name} " in text for name in group)


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_examples_of_a_command_are_understood(path: tuple[str, ...]) -> None:
    examples = LEAVES[path].get_default("examples")
    assert len(examples) == 2
    text = LEAVES[path].format_help()
    for example in examples:
        words = shlex.split(example.partition(" | ")[0])
        assert tuple(words[: len(path)]) == path and f"\n  parity {example}\n" in text
        options = PARSER.parse_args(words)
        assert options.command is LEAVES[path].get_default("command")
        if getattr(options, "recipe", None):
            override(recipes.get(options.recipe), options.set)
        texts = getattr(options, "placement", None) or []
        for text_form in [texts] if isinstance(texts, str) else texts:
            form = text_form if text_form.count(":") == 2 else f"{text_form}:1"
            Arm.of(form)


def test_an_example_that_is_wrong_is_seen(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        PARSER.parse_args(["run", "digits_mlp", "--placment", "torch:ddp:2"])
    assert "did you mean '--placement'?" in capsys.readouterr().err


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_command_has_the_flags_that_all_have(path: tuple[str, ...]) -> None:
    flags = {"--json", "--quiet", "--verbose"} - ({"--json"} if path == ("completion",) else set())
    assert flags <= set(options_of(path))
    if "--set" in options_of(path):
        recipe = next(a for a in LEAVES[path]._actions if a.dest == "recipe" and not a.option_strings)
        assert recipe.nargs == "?" and "--recipe" in options_of(path) and "--spec" in options_of(path)


@pytest.mark.parametrize(
    ("words", "file"),
    [
        (["--json", "gpt2"], "-"),
        (["gpt2", "--json"], "-"),
        (["--json=a.txt", "gpt2"], "a.txt"),
        (["--json", "a.json", "gpt2"], "a.json"),
        (["gpt2", "--set", "steps=3", "--json"], "-"),
        (["--set", "steps=3", "gpt2"], None),
        (["--set", "steps=3", "--recipe", "gpt2"], None),
    ],
)
def test_a_recipe_is_found_wherever_it_stands(words: list[str], file: str | None) -> None:
    options = PARSER.parse_args(["plan", *words])
    assert (options.recipe, options.json) == ("gpt2", file)


def test_json_is_all_that_is_printed_and_quiet_prints_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    parity, run = Cli(tmp_path, capsys), Run.of(tiny_spec(), TORCH)
    spoiled = run.copy(MIRRORED)
    spoiled.column("loss_sum")[2] *= 0.5
    run.write(tmp_path / "a")
    spoiled.write(tmp_path / "b")
    code, out, err = parity("compare", "a", "b", "--json")
    assert (code, err) == (1, "") and json.loads(out)["verdict"] == "divergent"
    code, out, _ = parity("compare", "a", "b", "--json", "c.json", "--verbose")
    assert code == 1 and json.loads((tmp_path / "c.json").read_text())["exit_code"] == 1
    assert (
        "✗ divergent" in out
        and "loss curve" in out
        and out.endswith("parity diagnose a b --out b-diagnosis\n")
    )
    assert parity("compare", "a", "b", "--quiet") == (1, "", "")
    code, out, err = parity("compare", "a", "c", "--quiet")
    assert (code, out) == (2, "") and "there is no such folder" in err
    code, out, _ = parity("steps", "a", "--json", "--head", "3", "--tail", "1")
    assert code == 0 and json.loads(out)["step"] == 2
    code, out, err = parity("steps", "a", "--last", "1")
    assert code == 0 and len(out.splitlines()) == 3 and "--last-step" in err and "--tail" in err
    assert json.loads(parity("recipes", "--json")[1])[0]["recipe"] == "digits_mlp"
    assert TrainSpec.parse(json.loads(parity("show", "gpt2", "--json")[1])) == recipes.get("gpt2").resolved()


def test_help_imports_no_command() -> None:
    code = (
        "import sys; sys.argv = ['parity', '--help']\n"
        "from parity.common.commands import main\n"
        "try: main.main()\n"
        "finally: print(sorted({'numpy', 'pydantic', 'rich', 'yaml', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=100)
    assert done.returncode == 0 and "Port a model:" in done.stdout and done.stdout.endswith("[]\n"), (
        done.stderr
    )


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_shell_completes_commands_and_flags(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shell: str
) -> None:
    pytest.importorskip("shtab", reason="makes the scripts")
    code, out, err = Cli(tmp_path, capsys)("completion", shell)
    assert (code, err) == (0, "") and "--first-step" in out and "collectives" in out
    if shell == "bash":
        # As a user who has typed 'parity com' and presses the tab key.
        typed = 'COMP_WORDS=(parity com); COMP_CWORD=1; $(complete -p parity | sed "s/.*-F *//; s/ .*//"); echo "${COMPREPLY[@]}"'
        done = subprocess.run(["bash"], input=f"{out}\n{typed}", capture_output=True, text=True, timeout=60)
        assert (done.stdout, done.stderr) == ("compare completion\n", "")
