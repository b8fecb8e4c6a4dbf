"""What others find the toolkit by and start it with: Dockerfile, GitHub Action, pre-commit hook, citation."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import tomllib
import yaml

from parity import __version__
from parity.common.commands.main import parser_of
from parity_tests.helpers import ROOT
from parity_tests.helpers.processes import lacks
from parity_tests.helpers.records import tiny_spec, write_pair

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ACTION = yaml.safe_load((ROOT / "action" / "action.yml").read_text())
SCRIPT = ROOT / "scripts" / "github_action"


def instructions(text: str) -> list[tuple[str, str]]:
    """(name, argument) of a Dockerfile, continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    return [
        (name, rest.strip()) for name, _, rest in (line.partition(" ") for line in text.splitlines()) if name
    ]


def copied(text: str) -> list[str]:
    """What a Dockerfile takes from the folder it is built in."""
    given = [rest.split() for name, rest in instructions(text) if name == "COPY" and "--from=" not in rest]
    return [path for paths in given for path in paths[:-1]]


def wrong_in_dockerfile(text: str, ignored: str) -> list[str]:
    """Unknown instructions, paths that are missing or not sent along, and versions that are not those of pyproject.toml."""
    lines = instructions(text)
    known = {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "CMD"}
    found = [f"{name} is no instruction that is used here" for name, _ in lines if name not in known]
    found += [f"no {path}" for path in copied(text) if not (ROOT / path).exists()]
    sent = {line.removeprefix("!") for line in ignored.splitlines() if line.startswith("!")}
    found += [f"{path} is ignored" for path in set(copied(text)) - sent]
    arguments = dict(rest.replace('"', "").split("=", 1) for name, rest in lines if name == "ARG")
    extras = PROJECT["optional-dependencies"]
    for name, extra in (("TORCH", "torch"), ("TENSORFLOW", "tf")):
        if arguments[name] not in extras[extra]:
            found.append(f"{name} is not that of [{extra}]")
    found += [f"no extra {name}" for name in arguments["EXTRAS"].split(",") if name not in extras]
    oldest = PROJECT["requires-python"].removeprefix(">=")
    if tuple(map(int, arguments["PYTHON"].split("."))) < tuple(map(int, oldest.split("."))):
        found.append(f"Python before {oldest}")
    return found


DOCKERFILE, IGNORED = ((ROOT / name).read_text() for name in ("Dockerfile", ".dockerignore"))


def test_the_dockerfile_is_of_this_project() -> None:
    assert wrong_in_dockerfile(DOCKERFILE, IGNORED) == []
    # As `parity manifest` starts its containers: command and arguments are its own.
    assert "ENTRYPOINT" not in dict(instructions(DOCKERFILE))


@pytest.mark.parametrize(
    ("taken", "put", "said"),
    [
        ("COPY slurm slurm", "COPY slum slum", "no slum"),
        ("COPY slurm slurm", "COPY docs docs", "docs is ignored"),
        ("torch>=2.4", "torch>=2.3", "TORCH is not that of [torch]"),
        ("EXTRAS=tf", "EXTRAS=tensorflow", "no extra tensorflow"),
        ("PYTHON=3.11", "PYTHON=3.9", "Python before 3.10"),
        ("WORKDIR /work", "WORKDRI /work", "WORKDRI is no instruction"),
    ],
)
def test_what_is_wrong_with_a_dockerfile_is_seen(taken: str, put: str, said: str) -> None:
    assert taken in DOCKERFILE
    assert any(said in each for each in wrong_in_dockerfile(DOCKERFILE.replace(taken, put), IGNORED))


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
def test_the_image_is_built() -> None:
    if shutil.which("docker") is None or subprocess.run(["docker", "info"], capture_output=True).returncode:
        lacks("needs a container tool that runs")
    built = subprocess.run(["docker", "build", "-q", "."], cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    call = ["docker", "run", "--rm", "--network=none", built.stdout.strip(), "parity", "doctor"]
    done = subprocess.run(call, capture_output=True, text=True)
    assert done.returncode == 0 and "✓ torch" in done.stdout and "✓ tensorflow" in done.stdout


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    required = {"cff-version", "message", "title", "authors"}  # of the Citation File Format 1.2.0
    assert required <= citation.keys() and citation["cff-version"] == "1.2.0"
    assert citation["version"] == __version__ and citation["license"] == PROJECT["license"]
    assert citation["authors"] and all(author.keys() <= {"name", "website"} for author in citation["authors"])
    assert citation["type"] in ("software", "dataset") and date.fromisoformat(citation["date-released"])


def test_the_hooks_are_commands() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    for hook in hooks:
        assert {"id", "name", "entry", "language"} <= hook.keys() and hook["language"] == "system"
        program, command = hook["entry"].split()
        assert program == "parity" and not hook["pass_filenames"]
        with pytest.raises(SystemExit, match="0"):
            parser_of().parse_args([command, "--help"])


def test_the_action_calls_the_script_as_it_wants_to_be_called() -> None:
    install, run = ACTION["runs"]["steps"]
    inputs = set(re.findall(r"inputs\.([\w-]+)", str(ACTION["runs"])))
    assert inputs == ACTION["inputs"].keys() and ACTION["runs"]["using"] == "composite"
    # What GitHub puts into a script's text would be run by it.
    assert not any("${{" in step["run"] for step in (install, run))
    assert all(step["shell"] == "bash" for step in (install, run))
    help_text = subprocess.run([SCRIPT, "--help"], capture_output=True, text=True, check=True).stdout
    assert all(f"  {name} " in help_text for name in run["env"])
    assert run["run"].strip('"') == "$GITHUB_ACTION_PATH/../scripts/github_action"
    written = re.findall(r'"([\w-]+)=\$', SCRIPT.read_text())
    for name, output in ACTION["outputs"].items():
        assert output["value"] == f"${{{{ steps.{run['id']}.outputs.{name} }}}}" and name in written
    extras = ACTION["inputs"]["extras"]["default"].split(",")
    assert set(extras) <= PROJECT["optional-dependencies"].keys()


def test_shellcheck_finds_nothing() -> None:
    if shutil.which("shellcheck") is None:
        lacks("shellcheck is not installed")
    scripts = [
        path
        for path in (ROOT / "scripts").iterdir()
        if path.is_file() and path.read_text().startswith("#!/usr/bin/env bash")
    ]
    assert SCRIPT in scripts
    found = subprocess.run(["shellcheck", *scripts], capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (0, "")


class Job:
    """A step of a job as GitHub runs it: its files are appended to, its folder is the user's checkout."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.files = folder, {name: folder / name for name in ("summary", "output")}
        for path in self.files.values():
            path.write_text("of an earlier step\n")
        program = folder / "bin" / "parity"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m parity "$@"\n')
        program.chmod(0o755)

    def __call__(self, arguments: str, **more: str) -> tuple[int, str, dict[str, str]]:
        """(exit code, what was added to the summary, outputs)."""
        given: dict[str, Any] = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "PARITY_COMMAND": "compare",
            "PARITY_ARGUMENTS": arguments,
            "PARITY_OUT": "results of it",
            "GITHUB_STEP_SUMMARY": str(self.files["summary"]),
            "GITHUB_OUTPUT": str(self.files["output"]),
        }
        done = subprocess.run(
            [SCRIPT], cwd=self.folder, env={**os.environ, **given, **more}, capture_output=True, text=True
        )
        before, summary = self.files["summary"].read_text().split("\n", 1)
        assert before == "of an earlier step"
        lines = self.files["output"].read_text().splitlines()[1:]
        return done.returncode, summary, dict(line.split("=", 1) for line in lines)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


@pytest.mark.sweep
@pytest.mark.parametrize(("noise", "code", "verdict"), [(0.0, 0, "parity"), (1e-3, 1, "divergent")])
def test_a_step_has_its_verdict_in_summary_and_outputs(
    job: Job, noise: float, code: int, verdict: str
) -> None:
    write_pair(job.folder / "my records", tiny_spec(), noise)
    arguments = "  my records/reference\r\n\nmy records/candidate\n--checks\n"
    found, summary, outputs = job(arguments)
    assert found == code
    assert outputs == {"verdict": verdict, "exit-code": str(code), "results": "results of it"}
    assert summary.startswith(f"## parity compare: {verdict}\n")
    assert f"| tensorflow mirrored x2 | {verdict} |" in summary
    assert re.search(rf"^    . {verdict} ", summary, re.MULTILINE), "what was printed is shown as it was"
    assert (job.folder / "results of it" / "report.html").is_file()


def test_a_step_that_fails_says_why(job: Job) -> None:
    code, summary, outputs = job("nowhere\nelsewhere\n--threshold   0.2")
    assert (code, outputs["verdict"], outputs["exit-code"]) == (2, "error", "2")
    assert (
        summary.startswith("## parity compare: error\n")
        and "    parity: error: nowhere: not a run" in summary
    )


def test_a_step_runs_nothing_of_its_arguments(job: Job) -> None:
    code, summary, _ = job("$(touch ran)\n`touch ran`; touch ran\n--mapping=x; touch ran")
    assert code == 2 and not (job.folder / "ran").exists() and "x; touch ran: cannot be read" in summary


@pytest.mark.parametrize(
    ("name", "value"), [("PARITY_COMMAND", "doctor"), ("PARITY_OUT", "a\nverdict=parity")]
)
def test_a_step_that_is_called_wrong_writes_nothing(job: Job, name: str, value: str) -> None:
    code, summary, outputs = job("a\nb", **{name: value})
    assert (code, summary, outputs) == (2, "", {})
