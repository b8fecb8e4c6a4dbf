"""Recorders say what no script may do, and nothing of scripts that are right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import parity
from parity.common.base.errors import RecordError
from parity.common.commands.main import dispatch, parse
from parity.common.record import read_record
from parity.common.record.invariants import GRADIENT, REPLICAS
from parity.common.spec import Placement
from parity_tests.helpers import ROOT
from parity_tests.helpers.records import Run, tiny_spec
from parity_tests.recorded.checked import KERAS, RANKED, SCRIPTS, UNCHECKED, Broken


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("checked")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    for module, given in (("checked_scripts", ()), ("checked_keras", KERAS)):
        command = [sys.executable, "-m", f"parity_tests.recorded.{module}", str(made), *given]
        ended = subprocess.run(
            command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=500
        )
        assert ended.returncode == 0, ended.stderr
    return made


def broken(record: Path) -> Broken:
    """The invariant that was broken, of which there is one at most, and its first step."""
    found = [(violation.invariant, violation.step) for violation in read_record(record).violations]
    assert len({name for name, _ in found}) <= 1, found
    return found[0] if found else None


@pytest.mark.parametrize(("name", "due"), SCRIPTS.items())
def test_a_mistake_that_shows_by_itself_is_told_at_its_step(
    folder: Path, name: str, due: Broken, capsys: pytest.CaptureFixture[str]
) -> None:
    said = (folder / f"{name}.err").read_text()
    assert broken(folder / name) == due
    assert said.startswith(f"invariant broken at step {due[1]}: {due[0]}") if due else not said
    assert dispatch(parse(["parity", "check", str(folder / name)])) == (1 if due else 0)
    printed = capsys.readouterr().out
    assert f"step {due[1]}: {due[0]}: " in printed if due else "nothing was broken in 12 steps" in printed


@pytest.mark.parametrize(("name", "due"), [*RANKED.items(), *KERAS.items()])
def test_what_ranks_and_keras_may_not_do_is_told(folder: Path, name: str, due: Broken) -> None:
    assert broken(folder / name) == due


def test_a_model_that_was_fitted_before_has_its_gradients_recorded(folder: Path) -> None:
    assert read_record(folder / "fitted before").columns["gradient_norm"][0] > 0


def test_what_is_worth_a_look_is_no_breach(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch(parse(["parity", "check", str(folder / "shrunk_weights"), "--json"])) == 0
    (told,) = json.loads(capsys.readouterr().out)
    unfed = "in the first 8 updates there was no gradient of spare.weight, spare.bias"
    assert told["notes"] == {"parameters changed between two updates": 1, unfed: 0} and not told["broken"]


def test_notes_that_are_damaged_are_one_line(folder: Path) -> None:
    path = folder / "plain" / "notes.json"
    path.write_text("[1]")
    with pytest.raises(RecordError, match="the file is damaged"):
        parity.check(folder / "plain").to_json()
    path.unlink()


def test_nothing_is_checked_where_it_is_not_asked_for(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [str(folder / f"unchecked_{name}") for name in UNCHECKED]
    assert dispatch(parse(["parity", "check", *records, "--json"])) == 3
    for told in json.loads(capsys.readouterr().out):
        assert not (told["checked"] or told["broken"] or told["notes"]) and told["steps"] == 12


def test_a_tensor_that_is_not_there_cannot_be_frozen(folder: Path) -> None:
    assert "no tensor 'bod.weight'; did you mean" in (folder / "refused.err").read_text()
    assert not (folder / "refused").exists()


@pytest.mark.parametrize(("strategy", "compared"), [("ddp", True), ("fsdp2", False)])
def test_replicas_that_are_sharded_are_not_said_to_be_equal(
    tmp_path: Path, strategy: str, compared: bool
) -> None:
    placement = Placement(framework="torch", strategy=strategy, replicas=2)
    found = parity.check(Run.of(tiny_spec(), placement).write(tmp_path / "run"))
    assert (REPLICAS in found.checked) == compared and GRADIENT in found.checked
