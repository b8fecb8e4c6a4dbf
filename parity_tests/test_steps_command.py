"""`parity steps`: what it prints is what was recorded."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest

from parity_tests.helpers.commands import Cli
from parity_tests.helpers.records import TORCH, Run, tiny_spec


@pytest.fixture
def parity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    monkeypatch.chdir(tmp_path)
    return Cli(tmp_path, capsys)


def test_every_digit_is_there_for_programs(parity: Cli) -> None:
    run = Run.of(tiny_spec(), TORCH)
    run.column("gradient_norm")[2] = math.nan
    record = run.write(parity.folder / "run")
    for format_ in ("csv", "jsonl"):
        code, out, err = parity("steps", "run", "--format", format_)
        assert (code, err) == (0, "")
        lines = out.splitlines()
        rows = list(csv.DictReader(lines)) if format_ == "csv" else [json.loads(line) for line in lines]
        assert len(rows) == 6
        for name, column in {**record.columns, "loss": record.loss}.items():
            read = np.array([float(row[name]) for row in rows])
            assert np.array_equal(read, column, equal_nan=True), name


def test_a_part_of_the_steps_as_a_table(parity: Cli) -> None:
    run = Run.of(tiny_spec(), TORCH)
    run.write(parity.folder / "run", finished=False)
    code, out, _ = parity("steps", "run", "--first_step", 2, "--last-step", 9)
    lines = out.splitlines()
    assert code == 0 and lines[0].split()[:3] == ["step", "loss", "loss_sum"]
    assert [line.split()[0] for line in lines[1:]] == ["2", "3", "4", "5"]
    assert float(lines[1].split()[2]) == pytest.approx(run.column("loss_sum")[2], rel=1e-5)
    assert len({len(line) for line in lines}) == 1, "columns do not line up"


def test_what_is_not_there_is_said(parity: Cli) -> None:
    Run.of(tiny_spec(), TORCH).write(parity.folder / "run")
    assert "has the steps 0 to 5, received 6 to 5" in parity.refused("steps", "run", "--first-step", 6)
    assert "not a run record" in parity.refused("steps", "absent")
    (parity.folder / "run" / "summary.json").unlink()
    (parity.folder / "run" / "steps.f64").write_bytes(b"")
    assert "no steps yet" in parity.refused("steps", "run")
