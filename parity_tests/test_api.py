"""`import parity`: what the commands do, as functions; results as objects; models given as objects."""

from __future__ import annotations

import doctest
import functools
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import parity
from parity.common.api import models, trainings
from parity.common.api import records as records_module
from parity.common.base.errors import ExternalModelError, RecordError, SpecError
from parity.common.external.process.naming import name_of, target_of
from parity_tests.helpers import ROOT
from parity_tests.helpers.commands import Cli
from parity_tests.helpers.records import DDP, MIRRORED, TENSORFLOW, TORCH, Run, tiny_spec
from parity_tests.peers import Peer, PeerError
from parity_tests.walkthrough import walk


def records(folder: Path, change: float) -> tuple[Path, Path]:
    """An honest run, and one of another placement whose loss at step 3 is off by a share."""
    reference = Run.of(tiny_spec(), TORCH)
    candidate = reference.copy(MIRRORED)
    candidate.column("loss_sum")[3] *= 1 + change
    return reference.write(folder / "a").folder, candidate.write(folder / "b").folder


def test_importing_loads_nothing_heavy_until_it_is_asked() -> None:
    code = (
        "import sys, parity\n"
        "assert not {'numpy', 'pydantic', 'tensorflow', 'torch'} & set(sys.modules)\n"
        "assert 'compare' in dir(parity) and parity.compare\n"
        "assert not {'tensorflow', 'torch', 'keras'} & set(sys.modules)\n"
        "parity.nothing"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert ended.stderr.strip().endswith("module 'parity' has no attribute 'nothing'")


@pytest.mark.parametrize(("change", "verdict"), [(0, "parity"), (1e-9, "divergent")])
def test_records_are_compared_as_by_the_command(
    change: float, verdict: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = records(tmp_path, change)
    found = parity.compare(*folders)
    code, out, _ = Cli(tmp_path, capsys)("compare", *folders)
    assert (found.verdict, found.exit_code) == (verdict, code)
    assert str(found).split("report:")[0].split() == out.split()
    assert found.to_json(tmp_path / "found.json")["verdict"] == verdict
    assert json.loads((tmp_path / "found.json").read_text()) == json.loads(json.dumps(found.to_json()))
    checks = parity.Compared(found.result).table("checks")
    wrong = {name for name, passed in zip(checks["check"], checks["passed"], strict=True) if not passed}
    assert bool(wrong) == (verdict == "divergent")
    steps = found.table("steps")
    assert len(steps["loss"]) == 12
    assert found.tables == ("checks", "steps")


def test_an_answer_shows_itself_in_a_notebook_and_escapes_names(tmp_path: Path) -> None:
    result = parity.compare(*records(tmp_path, 0)).result
    (comparison,) = result.comparisons
    found = parity.Compared(replace(result, comparisons=(replace(comparison, candidate="<b>bold</b>"),)))
    shown = found._repr_html_()
    assert shown.startswith("<pre") and "&lt;b&gt;bold" in shown and "<b>bold" not in shown
    assert "✓ parity" in shown


def test_a_table_that_is_not_there_and_a_page_that_is_none_are_one_line(tmp_path: Path) -> None:
    found = parity.compare(*records(tmp_path, 0))
    with pytest.raises(SpecError, match="no table 'figures'; there are checks, steps"):
        found.table("figures")
    with pytest.raises(SpecError, match="no page of this"):
        parity.Answer().to_html(tmp_path / "page.html")
    with pytest.raises(RecordError):
        parity.compare(tmp_path / "a")
    with pytest.raises(RecordError, match=r"received builtins\.str"):
        parity.Recorder(tmp_path / "new", "no model")


def test_a_spec_is_read_by_name_file_or_itself(tmp_path: Path) -> None:
    spec = parity.read_spec("digits_mlp", {"optimizer.learning_rate": 0.5, "steps": 7})
    assert (spec.steps, spec.optimizer.learning_rate) == (7, 0.5)
    (tmp_path / "my.json").write_text(json.dumps(spec.to_dict()))
    assert parity.read_spec(tmp_path / "my.json") == parity.read_spec(str(tmp_path / "my.json")) == spec
    assert parity.read_spec(spec) == spec
    with pytest.raises(SpecError):
        parity.read_spec("digits_mlq")
    with pytest.raises(SpecError, match="at least 1"):
        parity.run(spec, replicas=0)


def examples(module: ModuleType) -> list[doctest.DocTest]:
    """Of the public functions of a module, those that are found on the site."""
    tests = doctest.DocTestFinder().find(module, extraglobs={"parity": parity})
    return [test for test in tests if test.examples]


def failed(test: doctest.DocTest) -> str:
    """What an example gave that it should not; '' where all are right."""
    said: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append)
    return "".join(said)


def test_examples_of_the_reference_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = Run.of(tiny_spec(), TENSORFLOW)
    for name, change in (("tf", None), ("ddp", 0), ("faulty", 0.1)):
        each = run if change is None else run.copy(DDP)
        each.column("loss_sum")[3] *= 1 + (change or 0)
        each.write(tmp_path / "runs" / name)
    tests = examples(records_module) + examples(trainings)
    assert len(tests) == 3 and [failed(test) for test in tests] == [""] * 3
    wrong = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, None)
    assert "Expected:" in failed(wrong)


@pytest.mark.slow
def test_the_readme_and_its_example_in_the_reference_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two models to a verdict, as on the first page."""
    assert [command.text for command in walk(ROOT / "README.md", tmp_path)] == ["python verdict.py"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    shutil.rmtree(tmp_path / "runs")
    draw = np.random.default_rng(0)
    data = {"x": draw.normal(size=(256, 20)), "y": draw.integers(0, 10, 256)}
    (test,) = examples(models)
    test.globs["data"] = data
    assert failed(test) == ""


def outer() -> object:
    return lambda: None


def test_functions_and_classes_are_named(tmp_path: Path) -> None:
    assert name_of(Path) == name_of("pathlib:Path") == f"{Path.__module__}:Path"
    partial = functools.partial(outer, size=3)
    assert str(target_of(partial, "torch", tmp_path)) == f"{__name__}:outer(size=3)"
    assert str(target_of("a.b:c", "torch", tmp_path)) == "a.b:c"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (outer(), "defined in another function"),
        (functools.partial(outer, 3), "positional arguments"),
        (3, "received a"),
        (type("Net", (), {"__module__": "__main__"}), "a script or notebook that runs"),
        (type("Path", (), {"__module__": Path.__module__}), "no Path that is this one"),
    ],
)
def test_what_another_process_cannot_import_is_refused(given: object, text: str, tmp_path: Path) -> None:
    with pytest.raises(ExternalModelError, match=text):
        target_of(given, "torch", tmp_path)


def test_live_torch_modules_are_written_and_made_again(peers: dict[str, Peer], tmp_path: Path) -> None:
    found = peers["torch"]("saved:round_trips", {"folder": str(tmp_path)}, {})
    names = {name.partition("/")[0] for name in found}
    assert len(names) == 5
    for name in names:
        # What was written is the same to the bit. What a pass computes from it is not everywhere: MKL may round
        # otherwise where the same numbers lie at another alignment.
        np.testing.assert_allclose(
            found[f"{name}/before"], found[f"{name}/after"], 1e-12, 1e-12, err_msg=name
        )


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("lambda", "activation is or holds .*<lambda>.*cannot import"),
        ("generator", "generator is of type .*Generator, which cannot be written"),
        ("parametrized", "ParametrizedLinear, which another process cannot import"),
        ("method", "act is or holds builtins.method"),
        ("reloaded", "Mixed as it was before that module was loaded again; make it anew"),
    ],
)
def test_what_of_a_module_cannot_be_written_is_named(
    model: str, text: str, peers: dict[str, Peer], tmp_path: Path
) -> None:
    with pytest.raises(PeerError, match=text):
        peers["torch"]("saved:refused", {"folder": str(tmp_path), "model": model}, {})


@pytest.mark.slow
def test_live_models_are_paired(peers: dict[str, Peer], tmp_path: Path) -> None:
    """The same verdicts as by name, with the weights that the given model has."""
    random = np.random.default_rng(0)
    arrays = {"x": random.normal(size=(60, 8, 8, 3)), "y": random.integers(0, 5, 60).astype(float)}
    for side, name, verdict in (
        ("torch", "CNN", "parity"),
        ("torch", "OtherEpsilon", "divergent"),
        ("tensorflow", "cnn", "parity"),
        ("tensorflow", "chain", "parity"),
    ):
        facts = {"folder": str(tmp_path / f"{side}_{name}"), "model": name}
        told = peers[side]("saved:paired", facts, arrays)
        assert bytes(told["verdict"]).decode() == verdict
        assert told["kept"].all()  # the record of the pair can be diagnosed later: its model is beside it
        assert told["begins"].all()  # with the live model's weights, which no seed gives
