"""Recorders say what no script may do, and nothing of scripts that are right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import parity
from parity.common.base.errors import RecordError
from parity.common.commands.main import dispatch, parse
from parity.common.record import read_record
from parity_tests.helpers import ROOT
from parity_tests.recorded import checked_scripts
from parity_tests.recorded.checked_scripts import KERAS, RANKED, SCRIPTS, Broken


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def broken(folder: Path) -> Broken:
    """The invariant that was broken, of which there is one at most, and its first step."""
    found = [(violation.invariant, violation.step) for violation in read_record(folder).violations]
    assert len({name for name, _ in found}) <= 1, found
    return found[0] if found else None


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_mistake_that_shows_by_itself_is_told_at_its_step(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script, due = SCRIPTS[name]
    script(tmp_path / "run")
    told = capsys.readouterr().err
    assert broken(tmp_path / "run") == due
    assert told.startswith(f"invariant broken at step {due[1]}: {due[0]}") if due else not told
    assert dispatch(parse(["parity", "check", str(tmp_path / "run")])) == (1 if due else 0)
    printed = capsys.readouterr().out
    assert f"step {due[1]}: {due[0]}: " in printed if due else "nothing was broken in 12 steps" in printed


def test_what_is_worth_a_look_is_no_breach(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    SCRIPTS["shrunk_weights"][0](tmp_path / "run")
    assert dispatch(parse(["parity", "check", str(tmp_path / "run"), "--json"])) == 0
    (told,) = json.loads(capsys.readouterr().out)
    unfed = "in the first 8 updates there was no gradient of spare.weight, spare.bias"
    assert told["notes"] == {"parameters changed between two updates": 1, unfed: 0} and not told["broken"]


def test_notes_that_are_damaged_are_one_line(tmp_path: Path) -> None:
    SCRIPTS["plain"][0](tmp_path / "run")
    (tmp_path / "run" / "notes.json").write_text("[1]")
    with pytest.raises(RecordError, match="the file is damaged"):
        parity.check(tmp_path / "run").to_json()


def test_nothing_is_checked_where_it_is_not_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = checked_scripts.Recorder
    monkeypatch.setattr(
        checked_scripts, "Recorder", lambda *given, **named: recorder(*given, **named, checks=False)
    )
    scripts = ("not_zeroed", "shrunk_weights")  # of which one is worth a look
    for name in scripts:
        SCRIPTS[name][0](tmp_path / name)
    assert not capsys.readouterr().err
    assert dispatch(parse(["parity", "check", *(str(tmp_path / name) for name in scripts), "--json"])) == 3
    for told in json.loads(capsys.readouterr().out):
        assert not (told["checked"] or told["broken"] or told["notes"]) and told["steps"] == 12


def test_a_tensor_that_is_not_there_cannot_be_frozen(tmp_path: Path) -> None:
    model = checked_scripts.Net()
    with pytest.raises(RecordError, match=r"no tensor 'bod\.weight'; did you mean"):
        checked_scripts.loop(tmp_path / "run", model, checked_scripts.sgd(model), frozen=["bod.weight"])
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="session")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What needs processes of its own: two ranks of torch, and TensorFlow."""
    folder = tmp_path_factory.mktemp("checked")
    for module, given in (("checked_scripts", ()), ("checked_keras", KERAS)):
        command = [sys.executable, "-m", f"parity_tests.recorded.{module}", str(folder), *given]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
        ended = subprocess.run(
            command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=300
        )
        assert ended.returncode == 0, ended.stderr
    return folder


@pytest.mark.parametrize(("name", "due"), [*RANKED.items(), *KERAS.items()])
def test_what_ranks_and_keras_may_not_do_is_told(processes: Path, name: str, due: Broken) -> None:
    assert broken(processes / name) == due
