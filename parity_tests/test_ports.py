"""Ports by hand, written without a look at our code: every correct one is parity, every wrong one divergent.

`ports/first` were there while `parity pair` was worked on, the others were judged once before. What
was seen then is in docs/tutorials/port_a_model.md. Each folder has both models, samples, and `truth.json`: what its author knows of it, checked by hand.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from parity_tests.helpers import ROOT
from parity_tests.helpers.commands import Cli

FOLDERS = sorted(path.parent for path in Path(__file__).parent.glob("ports/*/*/truth.json"))
# CI tries one of each; a verdict on another takes as long.
SOME = ("p10_tabular", "q16_groupnorm_cnn")


def cases() -> list[Any]:
    found = []
    for folder in FOLDERS:
        marks = [pytest.mark.slow if folder.name in SOME else pytest.mark.exhaustive]
        # What is wrong with the verdict still.
        if reason := json.loads((folder / "truth.json").read_text()).get("unmended"):
            marks.append(pytest.mark.xfail(reason=reason, strict=True))
        found.append(pytest.param(folder, id=folder.name, marks=marks))
    return found


def test_there_are_ports_of_each_kind() -> None:
    truths = [json.loads((folder / "truth.json").read_text())["correct"] for folder in FOLDERS]
    assert (len(truths), sum(truths)) == (794, 389)


@pytest.mark.parametrize("folder", cases())
def test_the_verdict_on_a_port_is_right(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = json.loads((folder / "truth.json").read_text())
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    command = shlex.split(truth["command"])[1:]
    code, out, err = Cli(tmp_path, capsys)(*command, "--out", tmp_path / "out")
    assert code == (0 if truth["correct"] else 1), out + err
