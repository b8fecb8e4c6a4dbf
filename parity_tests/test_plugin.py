"""The pytest plugin, in a repository of a user's own that has nothing of ours but the install."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity_pytest
from parity.common.assertions import assertions
from parity.common.assertions.arguments import TOLERANCES
from parity.common.assertions.assertions import Assertions
from parity.common.base.errors import RecordError, SpecError
from parity_tests.helpers import ROOT

pytest_plugins = ["pytester"]

PAGE = ROOT / "docs" / "how_to" / "pytest.md"

KERAS = """
import keras
from keras import layers

def build(norm=None):
    image = keras.Input((6, 5, 3))
    x = layers.Conv2D(4, 3, padding="same", name="conv")(image)
    x = (norm or layers.GroupNormalization(2, name="norm"))(x)
    x = layers.Activation("relu", name="act")(x)
    x = layers.Flatten(name="flat")(x)
    return keras.Model(image, layers.Dense(2, name="head")(x))

def build_with_batch_norm():
    return build(layers.BatchNormalization(name="norm"))
"""
TORCH = """
from torch import nn

class Net(nn.Module):
    epsilon = 1e-3
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.GroupNorm(2, 4, eps=self.epsilon)
        self.act = nn.ReLU()
        self.head = nn.Linear(120, 2)
    def forward(self, x):
        return self.head(self.act(self.norm(self.conv(x))).flatten(1))

class Port(Net):
    epsilon = 1e-5

class BatchNormed(Net):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(4, eps=1e-3)

def broken():
    raise ValueError("no weights today")
"""
TESTS = """
import numpy as np
import pytest
import sys

X = np.random.default_rng(0).normal(size=(3, 6, 5, 3))
PAIR = {"keras": "my_pkg.models:build", "torch": "my_pkg.port:Net", "inputs": X}

def test_same(parity):
    parity.assert_same_forward(**PAIR)

def test_other_epsilon(parity):
    parity.assert_same_forward(**PAIR | {"torch": "my_pkg.port:Port"})

@pytest.mark.parity(keras="my_pkg.models:build", torch="my_pkg.port:Net", tolerance="float32")
def test_marked(parity):
    parity.assert_same_forward(inputs=X)

def test_function():
    from parity_pytest import assert_same_forward
    assert_same_forward(**PAIR | {"torch": "my_pkg.port:broken"})

def test_neither_framework_is_here(parity):
    assert not {"tensorflow", "keras", "torch"} & set(sys.modules)
"""


@pytest.fixture
def repository(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A user's, with a package of models; none of the toolkit's folders is on a path that was set by hand."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    package = pytester.mkpydir("my_pkg")
    (package / "models.py").write_text(KERAS)
    (package / "port.py").write_text(TORCH)
    return pytester


def run(repository: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return repository.runpytest_subprocess(
        "-p", "no:randomly", "-p", "no:cacheprovider", *arguments, timeout=300
    )


def test_it_is_installed(tmp_path: Path) -> None:
    code = "import importlib.metadata as m; print([e.value for e in m.entry_points(group='pytest11')])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert "'parity_pytest'" in done.stdout, "install the repository again: pip install --no-deps -e ."


@pytest.mark.parametrize(
    "spread", [pytest.param((), marks=pytest.mark.slow), pytest.param(("-n2",), marks=pytest.mark.exhaustive)]
)
def test_a_repository_with_nothing_but_the_install(
    repository: pytest.Pytester, spread: tuple[str, ...]
) -> None:
    repository.makepyfile(test_port=TESTS)
    done = run(repository, *spread)
    done.assert_outcomes(passed=3, failed=2)
    text = done.stdout.str()
    assert "my_pkg.models:build and my_pkg.port:Port do not compute the same" in text
    assert "first at norm" in text and "epsilon of norm is 0.001 in Keras and 1e-05 in torch" in text
    assert "confirmed: by experiment" in text
    assert "could not be compared: my_pkg.port:broken raised ValueError: no weights today" in text
    for ours in ("parity_pytest.py:", "assertions.py", "Traceback", "ExternalModelError"):
        assert ours not in text, "our lines say nothing to a user"
    (report,) = set(re.findall(r"report: (\S+)", text))
    folder = repository.path / ".parity"
    assert Path(report) == folder / "test_port.py_test_other_epsilon" / "report.html"
    assert {path.name for path in folder.iterdir()} == {".gitignore", "test_port.py_test_other_epsilon"}
    page = Path(report).read_text(encoding="utf-8")
    assert "epsilon of norm" in page and "<script" not in page and '<th scope="row">forward/conv</th>' in page
    told = json.loads(Path(report).with_suffix(".json").read_text())
    layers = {one["name"]: one["deviation"] for one in told["tensors"]}
    assert layers["forward/conv"] < 1e-10 < layers["forward/norm"]
    assert "conv/kernel" in (Path(report).parent / "mapping.yaml").read_text()


TRAINING = """
import numpy as np

DRAW = np.random.default_rng(0)
GIVEN = {"data": {"x": DRAW.normal(size=(20, 6, 5, 3)), "y": DRAW.integers(0, 2, 20)}, "loss": "softmax_cross_entropy",
         "steps": 3, "global_batch": 4}

def test_same(parity):
    parity.assert_same_training(keras="my_pkg.models:build", torch="my_pkg.port:Net", **GIVEN)

def test_statistics(parity):
    pair = {"keras": "my_pkg.models:build_with_batch_norm", "torch": "my_pkg.port:BatchNormed"}
    parity.assert_same_training(**pair, **GIVEN)

def test_other_epsilon(parity):
    parity.assert_same_training(keras="my_pkg.models:build", torch="my_pkg.port:Port", **GIVEN)
"""


@pytest.mark.exhaustive
def test_training_is_asserted(repository: pytest.Pytester) -> None:
    repository.makepyfile(test_port=TRAINING)
    done = run(repository)
    done.assert_outcomes(passed=1, failed=2)
    text = done.stdout.str()
    assert text.count("do not train the same") >= 2
    # These two show in training alone: the outputs agree.
    assert "final state at buffers/model/norm/moving_mean" in text
    assert "decay of norm is 0.99 in Keras and 0.9 in torch" in text
    assert "running_variance of norm" not in text, "stock norms are compared as Keras has them"
    assert "epsilon of norm is 0.001 in Keras and 1e-05 in torch" in text
    folder = repository.path / ".parity"
    assert {path.name for path in folder.iterdir()} == {
        ".gitignore",
        "test_port.py_test_other_epsilon",
        "test_port.py_test_statistics",
    }
    for report in re.findall(r"report: (\S+)", text):
        assert "norm" in Path(report).read_text(encoding="utf-8")


LOSSES = "parity_tests.external_models.losses_"


@pytest.mark.exhaustive
def test_losses_and_weights_of_ones_own_are_asserted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    random = np.random.default_rng(3)
    data = {"x": random.normal(size=(24, 6)), "yes": random.integers(0, 2, 24), "many": random.random(24)}
    data |= {"label": random.integers(0, 3, 24), "box": random.normal(size=(24, 4))}
    with Assertions() as held:

        def asserted(keras: str, torch: str, only: str, **given: Any) -> None:
            chosen = {name: data[name] for name in ("x", *only.split())}
            models = f"{LOSSES}keras:{keras}", f"{LOSSES}torch:{torch}"
            held.same_training(*models, chosen, steps=3, global_batch=8, folder=tmp_path / "left", **given)

        heads = {"loss": {"label": "CrossEntropyLoss", "box": "mse"}}
        asserted("heads", "Heads", "label box", **heads)
        weighted = {"targets": ["yes"], "sample_weights": "many", "keras_loss": f"{LOSSES}keras:bce"}
        asserted("binary", "Binary", "yes many", **weighted, torch_loss=f"{LOSSES}torch:bce")
        assert not (tmp_path / "left").exists()
        with pytest.raises(AssertionError, match="divides by the sum of the sample weights"):
            asserted("binary", "Binary", "yes many", **weighted, torch_loss=f"{LOSSES}torch:bce_by_weights")


@pytest.mark.exhaustive
def test_the_page_runs_as_it_is_written(repository: pytest.Pytester) -> None:
    page = PAGE.read_text(encoding="utf-8")
    found = re.findall(r"```python\n# (\S+)\n(.*?)```", page, re.DOTALL)
    assert len(found) == page.count("```python") == 2
    for name, text in found:
        path = repository.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    run(repository).assert_outcomes(passed=5)


def test_the_page_tells_each_argument_and_tolerance() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name, tolerance in TOLERANCES.items():
        assert f"| `{name}` | {tolerance.limit:g} | {tolerance.precision} |" in page
    for method in (Assertions.same_forward, Assertions.same_training):
        for argument in list(inspect.signature(method).parameters)[1:]:
            assert argument == "folder" or re.search(rf"\b{argument}\b", page), argument


def test_long_names_of_tests_do_not_collide() -> None:
    end = "x" * 200
    names = {
        parity_pytest._file_name(f"tests/{start}.py::test_port[{end}{end_too}]")
        for start in "ab"
        for end_too in "cd"
    }
    assert len(names) == 4 and all(len(name) <= 150 for name in names)
    assert parity_pytest._file_name("tests/test_port.py::test_it") == "tests_test_port.py_test_it"


ASSERTED = [
    lambda folder: Assertions().same_forward("a:b", "c:d", np.ones((1, 2)), folder=folder),
    lambda folder: Assertions().same_training("a:b", "c:d", {}, "mean_squared_error", folder=folder),
]


@pytest.mark.parametrize("asserted", ASSERTED)
def test_a_folder_that_holds_something_else_is_left_alone(
    tmp_path: Path, asserted: Callable[[Path], None]
) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    (tmp_path / "report.html").write_text("")
    with pytest.raises(RecordError, match=r"holds thesis\.tex, which no assertion has written"):
        asserted(tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(RecordError, match="is no folder of an assertion's"):
        asserted(tmp_path / "link")


@pytest.mark.parametrize("asserted", ASSERTED)
def test_what_an_assertion_left_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asserted: Callable[[Path], None]
) -> None:
    """And nothing stays of one that could not compare, whatever its message says."""

    def refuse(*_: object, **__: object) -> None:
        raise SpecError(f"{tmp_path / 'left'} is not to blame")

    monkeypatch.setattr(assertions.arguments, "forward_asked", refuse)
    monkeypatch.setattr(assertions.arguments, "training_asked", refuse)
    (tmp_path / "left" / "pair").mkdir(parents=True)
    (tmp_path / "left" / "report.html").write_text("")
    with pytest.raises(SpecError, match="is not to blame"):
        asserted(tmp_path / "left")
    assert not (tmp_path / "left").exists()


@pytest.mark.parametrize("place", ["mapping.yaml", "pair/mapping.yaml"])
@pytest.mark.parametrize("relative", [False, True])
def test_a_mapping_that_an_earlier_failure_left_can_be_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, relative: bool
) -> None:
    """It is in the folder when it is read, and stays there; what else was left goes."""
    monkeypatch.chdir(tmp_path)
    folder = Path("left") if relative else tmp_path / "left"
    (folder / "pair" / "runs").mkdir(parents=True)
    (folder / "pair" / "runs" / "header.json").write_text("{}")
    (folder / "report.html").write_text("")
    mapping = tmp_path / "left" / place
    mapping.write_text("edited")
    seen = []

    def refuse(*_: object, **__: object) -> None:
        seen.append(sorted(path.name for path in folder.rglob("*") if path.is_file()))
        raise SpecError("no such models")

    monkeypatch.setattr(assertions.arguments, "forward_asked", refuse)
    monkeypatch.setattr(assertions.arguments, "training_asked", refuse)
    with pytest.raises(SpecError):
        Assertions().same_forward("a:b", "c:d", np.ones((1, 2)), folder=folder, mapping=mapping)
    with pytest.raises(SpecError):
        Assertions().same_training(
            "a:b", "c:d", "rows.npz", "mean_squared_error", folder=folder, mapping=str(mapping)
        )
    assert seen == [["mapping.yaml"]] * 2
    assert [path for path in folder.rglob("*") if path.is_file()] == [folder / place]
    assert mapping.read_text() == "edited"


QUICK = """
import sys
import numpy as np
import pytest

def test_wrong_name(parity):
    parity.assert_same_forward(keras="my_pkg.models", torch="my_pkg.port:Net", inputs=np.ones((1, 2)))

def test_not_a_name(parity):
    parity.assert_same_forward(keras=3, torch="my_pkg.port:Net", inputs=np.ones((1, 2)))

def test_lacking(parity):
    parity.assert_same_forward(keras="my_pkg.models:build")

def test_unknown(parity):
    parity.assert_same_forward(keras="a:b", torch="c:d", inputs=1, atol=3)

def test_tolerance(parity):
    parity.assert_same_forward(keras="a:b", torch="c:d", inputs=np.ones((1, 2)), tolerance="loose")

def test_text(parity):
    parity.assert_same_forward(keras="a:b", torch="c:d", inputs=np.array(["a"]))

def test_file(parity):
    parity.assert_same_forward(keras="a:b", torch="c:d", inputs="nowhere.npz")
"""


def test_what_cannot_be_asserted_is_one_line(repository: pytest.Pytester) -> None:
    repository.makepyfile(QUICK)
    done = run(repository, "-rf", "--tb=line", "--parity-artefacts", "left")
    done.assert_outcomes(failed=7)
    # One line a test, as --tb=line has it; what pytest says besides depends on its width and on CI.
    said = [line for line in done.outlines if ".py:" in line and ": Failed: " in line]
    assert len(said) == 7
    for words in (
        "a model is named package.module:attribute, such as my_pkg.models:build; received 'my_pkg.models'",
        "a function, a class or a model; received a builtins.int",
        "assert_same_forward needs 'torch'; it takes keras, torch, inputs, mapping, tolerance, weights, training",
        "assert_same_forward does not take 'atol'; it takes keras",
        "tolerance is one of 'exact' (1e-10), 'keras_constants' (1e-07), 'float32' (0.0001); received 'loose'",
        "inputs: x is of type <U1",
        "nowhere.npz: there is no such file",
    ):
        assert sum(words in line for line in said) == 1, words
    assert "Traceback" not in done.stdout.str()
    assert not (repository.path / "left").exists() and not (repository.path / ".parity").exists()


@pytest.mark.slow
def test_tests_that_take_the_fixture_can_be_left_out(repository: pytest.Pytester) -> None:
    repository.makepyfile("def test_port(parity): raise ValueError\ndef test_other(): pass")
    run(repository, "-m", "not parity").assert_outcomes(passed=1, deselected=1)
    listed = repository.runpytest_inprocess("--markers").stdout.str()
    assert "@pytest.mark.parity(**arguments)" in listed
    assert "--parity-artefacts=FOLDER" in repository.runpytest_inprocess("--help").stdout.str()


def test_a_user_may_have_a_package_of_our_name(repository: pytest.Pytester) -> None:
    (repository.mkpydir("common") / "things.py").write_text("answer = 42")
    repository.makepyfile(
        """
        def test_theirs():
            from common.things import answer
            assert answer == 42

        def test_ours(parity):
            import common
            parity.assert_same_forward(keras="common.things:answer", torch="common.things:answer", inputs=[[1.0]])
        """
    )
    done = repository.run(sys.executable, "-m", "pytest", "-p", "no:randomly", timeout=120)
    done.assert_outcomes(passed=1, failed=1)
    # Theirs is what is resolved, and what is wrong with it is reported; ours is not in the way.
    assert "common.things:answer is of type int" in done.stdout.str()


def test_loading_it_costs_nothing() -> None:
    code = (
        "import sys, pytest; before = set(sys.modules); import parity_pytest;"
        "print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert done.stdout.strip() == "['parity_pytest']", done.stderr


def test_a_run_without_parity_loads_nothing_of_ours(repository: pytest.Pytester) -> None:
    repository.makepyfile(
        """
        import sys

        def test_modules():
            assert not {"parity", "numpy", "tensorflow", "torch", "rich", "pydantic"} & set(sys.modules)
        """
    )
    run(repository).assert_outcomes(passed=1)


def test_outside_of_pytest_it_says_so() -> None:
    code = "import parity_pytest; parity_pytest.assert_same_forward(keras='a:b', torch='c:d', inputs=1)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 1 and "elsewhere use `parity pair`" in done.stderr


def test_each_tolerance_says_why() -> None:
    assert all(tolerance.reason and 0 < tolerance.limit < 1e-3 for tolerance in TOLERANCES.values())


@pytest.mark.slow
def test_code_for_float32_is_compared_in_float64(tmp_path: Path) -> None:
    """Constants of code for float32 fail no assertion, and another constant does."""
    models, rows = "parity_tests.external_models.float32", np.random.default_rng(0).normal(size=(5, 6))
    with Assertions() as assertions:
        assertions.same_forward(
            f"{models}_keras:build", f"{models}_torch:Net", rows, folder=tmp_path / "right"
        )
        with pytest.raises(AssertionError, match="do not compute the same"):
            assertions.same_forward(
                f"{models}_keras:build", f"{models}_torch:wrong", rows, folder=tmp_path / "wrong"
            )
