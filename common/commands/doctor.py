"""`parity doctor`: what is installed, and what of the table of capabilities this machine can run."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from rich.markup import escape

from parity import __version__
from parity.common.base.errors import ParityError, how_to_install
from parity.common.base.package import MODULES
from parity.common.base.terminal import Terminal
from parity.common.commands import add_command, print_result
from parity.common.execution.interpreters import missing_in, python_of, require
from parity.common.execution.worker import describe
from parity.common.spec import Placement
from parity.common.spec.capabilities import ENGINES, LAUNCHERS, STRATEGIES, launchers_of, packages_of, refusal
from parity.common.spec.strategies import Framework

_OPTIONAL = {
    "plotly": "HTML report",
    "sklearn": "digits and other tables",
    "PIL": "image folders",
    "pyarrow": "Parquet",
    "tensorboard": "--tensorboard, parity share",
    "wandb": "parity share",
    "mlflow": "parity share",
}


def add(commands: Any) -> None:
    """Register the subcommand."""
    examples = "doctor", "doctor --json"
    add_command(commands, "doctor", run, "Exit codes: 0 both frameworks run, 2 one does not.", examples)


def run(options: argparse.Namespace) -> int:
    """Print what can run here; the exit code is 2 where a framework cannot."""
    console = Terminal()
    cores = len(os.sched_getaffinity(0))
    console.tell(f"python {sys.version.split()[0]}, {cores} cores, parity {__version__}")
    frameworks: dict[str, Any] = {}
    for framework in MODULES:
        try:
            require(framework)
            facts = describe(framework)
        except ParityError as error:
            console.say(f"[red]✗[/red] {framework}: {escape(str(error))}")
            frameworks[framework] = {"error": str(error)}
            continue
        frameworks[framework] = facts
        versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
        devices = ", ".join(facts["gpus"]) or "no GPU"
        elsewhere = "" if python_of(framework) == sys.executable else f"; by {python_of(framework)}"
        text = f"{versions}; {devices}; collectives of {facts['collectives']}{elsewhere}"
        console.say(f"[green]✓[/green] {framework}: {escape(text)}")
        for line in possible(framework, facts["lacks"]):
            console.tell(f"    {line}")
    packages = {name: importlib.util.find_spec(name) is not None for name in _OPTIONAL}
    for package, use in _OPTIONAL.items():
        there = packages[package]
        mark = "[green]✓[/green]" if there else "[yellow]-[/yellow]"
        console.say(f"{mark} {package} ({use}){'' if there else ': not installed'}")
    about = {"python": sys.version.split()[0], "cores": cores, "parity": __version__}
    print_result(options, {**about, "frameworks": frameworks, "packages": packages})
    return 2 if any("error" in facts for facts in frameworks.values()) else 0


def possible(framework: Framework, lacks: Mapping[str, bool]) -> Iterator[str]:
    """The strategies of a framework, who can run and start them here, and why others cannot.

    Args:
        framework: which one.
        lacks: what this machine lacks, by the names of `REFUSALS`.
    """
    for strategy, row in STRATEGIES[framework].items():
        able, notes = list[str](), list[str]()
        for name, engine in ENGINES[framework].items():
            if strategy not in engine.strategies:
                continue
            data = {"framework": framework, "strategy": strategy, "engine": name}
            placement = Placement.parse({**data, "replicas": 1 if strategy == "single" else 2})
            absent = missing_in(python_of(framework), tuple(packages_of(placement).values()))
            missing = absent[0] if absent else None
            why = f"needs {missing}; {how_to_install(missing)}" if missing else refusal(placement, lacks)
            if why is None:
                able.append(name)
            else:
                notes.append(f"; not {name}: {why.removeprefix(f'{placement.label}: ')}")
        yield f"{strategy}: {row.about}; engines: {', '.join(able) or 'none'}{''.join(notes)}"
    compiled = Placement.parse({"framework": framework, "strategy": "single", "compile": True})
    yield f"compile: {refusal(compiled, lacks) or 'possible'}"
    path = os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)))
    for name in launchers_of(framework):
        launcher = LAUNCHERS[name]
        there = not launcher.program or shutil.which(launcher.program, path=path)
        yield f"launcher {name}: {launcher.about}{'' if there else f'; there is no {launcher.program} here'}"
