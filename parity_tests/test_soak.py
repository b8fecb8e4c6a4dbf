"""Trainings take no more at their end than at their beginning; what would leak is seen."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from parity_tests.helpers import ROOT
from parity_tests.soak import PLACEMENTS, Look, Outcome, judged
from parity_tests.tables.soak import SoakTable

STEPS = 10_000


@pytest.mark.exhaustive
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_long_training_is_flat(tmp_path: Path, soak: SoakTable, placement: str) -> None:
    command = [sys.executable, "-m", "parity_tests.soak", str(tmp_path / "runs"), "--only", placement]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    (outcome,) = soak.add(done.stdout.splitlines())
    assert outcome["problems"] == []


def looks(**more: float) -> list[Look]:
    """Of a process that takes by each step as much more as is given, and now and then a thread for a moment."""
    base = Look(0, 7, 20, 300 << 20)
    return [
        replace(
            base,
            steps=step,
            threads=base.threads + step % 3 // 2 + int(more.get("threads", 0) * step),
            descriptors=base.descriptors + int(more.get("descriptors", 0) * step),
            memory=base.memory + int(more.get("memory", 0) * step),
        )
        for step in range(0, STEPS, 40)
    ]


def outcome_of(seen: list[Look], bytes_a_step: float = 72.0, kept: int = 3) -> Outcome:
    record = [(look.steps, int(bytes_a_step * look.steps)) for look in seen]
    return judged("torch single x1", STEPS, 60.0, {"training": looks(), "rank 0": seen}, record, kept)


def test_what_is_flat_is_called_flat() -> None:
    assert outcome_of(looks(memory=10.0, descriptors=1 / 7000)).problems == []


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (outcome_of(looks(threads=1 / 2000)), "rank 0: 7 threads have become 11"),
        (outcome_of(looks(descriptors=1 / 2000)), "rank 0: 20 descriptors have become 24"),
        (outcome_of(looks(memory=760.0)), "rank 0: 315332800 bytes have become 320652800"),
        (outcome_of(looks()[:200]), "rank 0 was not there from the beginning to the end"),
        (outcome_of(looks(), kept=9), "9 checkpoints at once"),
        (outcome_of(looks(), kept=0), "0 checkpoints at once"),
    ],
    ids=["threads", "descriptors", "memory", "gone", "checkpoints", "none"],
)
def test_what_leaks_is_seen(outcome: Outcome, said: str) -> None:
    assert said in outcome.problems, outcome.problems


def test_a_record_that_grows_is_seen() -> None:
    seen = looks()
    record = [(look.steps, 72 * look.steps + look.steps**2 // 10_000) for look in seen]
    (problem,) = judged("torch single x1", STEPS, 60.0, {"rank 0": seen}, record, 3).problems
    assert problem.startswith("the record took 72.4 bytes a step, then 73.8")


def test_the_page_says_which_is_not_flat() -> None:
    table = SoakTable()
    table.add(["not a result", *(json.dumps(asdict(outcome_of(looks(threads=t)))) for t in (0, 1 / 2000))])
    page = table.page()
    assert "**1 of 2 trainings flat.**" in page
    assert (
        "| torch single x1 | 10,000 | 1 | training | 7, 7 | 20, 20 | 300.0, 300.0 | 72.0, 72.0 | yes |"
        in page
    )
    assert "**no: rank 0: 7 threads have become 11**" in page
