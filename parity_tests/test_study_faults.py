"""Faults of a few percent, which a study of seeds finds: by hand, before a release.

scripts/test -m exhaustive -n0 parity_tests/test_study_faults.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parity_tests.helpers.commands import Cli

ARM = "torch:ddp:2,stock=mixed_bfloat16"
FAULTS = "context=parity_tests.faults.torch"
GPT = ("--recipe", "gpt2:tiny", "--set", "steps=200")
CNN = ("--recipe", "digits_cnn", "--set", "steps=100", "--set", "data.augment=[{kind: crop, padding: 1}]")
SMALL = (
    "learning_rate_off_by_three_percent",
    "second_moment_decays_otherwise",
    "weight_decay_doubled",
)


def study(tmp_path: Path, capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    """The report of a study that has its verdict."""
    flags = ("--set", "precision=float32", "--seeds", 8, "--looks", 8, "--out", tmp_path / "out")
    code, _, err = Cli(tmp_path, capsys)("study", *arguments, *flags)
    assert code in (0, 1, 3), err
    found: dict[str, Any] = json.loads((tmp_path / "out" / "report.json").read_text())
    return found


def by_candidate(found: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    labels: dict[str, list[dict[str, Any]]] = {}
    for each in found["results"]:
        labels.setdefault(each["candidate"].rpartition("=")[2], []).append(each)
    return labels


@pytest.mark.exhaustive
def test_small_faults_are_different_or_within_the_margin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arms = [f"--placement={ARM}", *(f"--placement={ARM},{FAULTS}:{name}" for name in SMALL)]
    found = study(
        tmp_path, capsys, *GPT, *arms, "--margin", "0.1%", "--metric", "final_loss", "--metric", "loss_area"
    )
    assert set(by_candidate(found)) == {*SMALL}
    for name, results in by_candidate(found).items():
        # A margin of a thousandth: each is beyond it, or shown to be smaller than it.
        assert any(each["verdict"] == "different" for each in results) or all(
            each["verdict"] == "equivalent" for each in results
        ), name


@pytest.mark.exhaustive
def test_augmentation_missing_on_one_replica_is_different(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faulty = f"{ARM},{FAULTS}:one_replica_not_augmented"
    found = study(tmp_path, capsys, *CNN, "--placement", ARM, "--placement", faulty, "--metric", "loss_area")
    assert found["verdict"] == "different"
