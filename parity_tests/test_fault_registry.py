"""The registry of faults is whole: every body has its entry, every entry a body, trials and a row on the page."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

from parity_tests.faults.registry import (
    BEHAVIOURS,
    Diagnosed,
    Fault,
    Judged,
    Tapped,
    Trial,
    Violated,
    every_fault,
    every_pair,
    trials,
)
from parity_tests.helpers import ROOT
from parity_tests.tables.diagnosis import page_row

HERE = Path(__file__).parent
FOLDER = HERE / "faults"


def bodies(folder: Path) -> Counter[tuple[str, str]]:
    """Return (framework, name) of all functions that are declared a fault."""
    found: Counter[tuple[str, str]] = Counter()
    for path in folder.glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                decorators = {ast.unparse(decorator).partition("(")[0] for decorator in node.decorator_list}
                if "fault" in decorators:
                    found[path.name.partition("_")[0], node.name] += 1
    return found


def unregistered(folder: Path) -> set[tuple[str, str]]:
    """Return the faults of which only the body is there, or only the entry."""
    return set(bodies(folder)) ^ {(fault.framework, fault.name) for fault in every_fault()}


def test_every_fault_has_its_entry_and_every_entry_its_body(tmp_path: Path) -> None:
    assert unregistered(FOLDER) == set()
    assert max(bodies(FOLDER).values()) == 1
    names = [(fault.framework, fault.name) for fault in every_fault()]
    assert len(set(names)) == len(names) > 200
    # The negative control: one more body, and one fewer.
    for path in FOLDER.glob("*.py"):
        (tmp_path / path.name).write_text(path.read_text())
    with open(tmp_path / "torch_data.py", "a") as file:
        file.write("\n\n@fault\ndef forgotten():\n    yield\n")
    (tmp_path / "tensorflow_attention.py").unlink()
    missing = unregistered(tmp_path)
    assert ("torch", "forgotten") in missing and ("tensorflow", "softmax_over_the_wrong_axis") in missing


def untried(fault: Fault) -> bool:
    """Whether no suite plants a fault."""
    own = [(HERE / each.file, each.text or fault.name) for each in fault.own]
    return not fault.trials and not any(path.is_file() and text in path.read_text() for path, text in own)


def test_every_fault_is_planted_by_some_test() -> None:
    assert [fault.name for fault in every_fault() if untried(fault)] == []
    assert untried(Fault.of("torch", "forgotten", 1))


def test_a_trial_is_of_its_faults_framework() -> None:
    for fault in every_fault():
        assert {trial.placement.framework for trial in fault.trials} <= {fault.framework}
        assert {(trial.fault, trial.behaviour) for trial in fault.trials} <= {(fault.name, fault.behaviour)}
        assert fault.behaviour is None or fault.behaviour in BEHAVIOURS


def test_every_behaviour_is_diagnosed_in_every_strategy() -> None:
    """Where it can occur; a behaviour of sharded optimizers cannot in one process."""
    cases, pairs = trials(Diagnosed), every_pair()
    assert {case.behaviour for case in cases} == set(BEHAVIOURS)
    assert (len(cases), len(pairs)) == (230, 29)
    strategies = {
        framework: {case.placement.strategy for case in trials(Diagnosed, framework)}
        for framework in ("torch", "tensorflow")
    }
    assert strategies["torch"] >= {"ddp", "fsdp1", "fsdp2", "manual", "zero_redundancy"}
    assert strategies["tensorflow"] >= {"mirrored", "multi_worker"}


def test_each_trial_has_an_id_of_its_own() -> None:
    kinds: list[list] = [[*trials(Diagnosed), *every_pair()]]
    kinds += [trials(kind) for kind in (Judged, Violated, Tapped)]
    for cases in kinds:
        ids = [case.id for case in cases]
        assert len(set(ids)) == len(ids) > 2


def test_each_suite_has_fast_trials() -> None:
    fast = Counter(type(trial) for trial in trials(Trial) if trial.suite == "default")
    assert min(fast[kind] for kind in (Diagnosed, Judged, Violated, Tapped)) >= 1
    assert fast[Judged] >= 20


def test_the_page_lists_the_trials_of_the_registry() -> None:
    """docs/evidence/faults.md is written by a run of all; one of other trials than today's is stale."""
    page = (ROOT / "docs" / "evidence" / "faults.md").read_text(encoding="utf-8").splitlines()
    rows = Counter(page_row(case) for case in [*trials(Diagnosed), *every_pair()])
    listed = Counter(row for line in page for row in rows if line.startswith(row))
    assert listed == rows
