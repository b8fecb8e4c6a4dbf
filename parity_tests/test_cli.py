"""The parity command: exit codes, one line for every bad input, nothing written by accident."""

from __future__ import annotations

import html
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import pytest
import tomllib
import yaml

from parity.common import recipes
from parity.common.base import errors
from parity.common.base.ending import exit_code_of
from parity.common.base.errors import how_to_install
from parity.common.base.terminal import Terminal
from parity.common.commands import doctor
from parity.common.data.plan import BatchPlan
from parity.common.execution import session, worker
from parity.common.parity.result import read_session
from parity.common.spec import Placement, RunConfig, TrainSpec, walk
from parity.common.spec.capabilities import STRATEGIES
from parity_tests.helpers import ROOT
from parity_tests.helpers.commands import Cli
from parity_tests.helpers.records import DDP, MIRRORED, TORCH, Run, one_line, recipe_spec, tiny_spec


@pytest.fixture
def parity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    monkeypatch.chdir(tmp_path)
    # What is tested here ends before a framework is needed.
    monkeypatch.setattr(session, "require", lambda framework: None)
    return Cli(tmp_path, capsys)


def process(
    *arguments: object, code: str | None = None, cwd: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    start = ["-m", "parity"] if code is None else ["-c", code]
    command = [sys.executable, *start, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=100)


@pytest.mark.parametrize("command", ["show", "plan", "run"])
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--recipe", "resnet"], ("'resnet'", "did you mean 'resnet")),
        (["--recipe", "digits_mlp", "--set", "epochs=3"], ("epochs", "unknown key")),
        (["--recipe", "digits_mlp", "--set", "global_batch_size=0"], ("global_batch_size", "0")),
        (["--recipe", "digits_mlp", "--set", "steps"], ("path.to.field=value",)),
        (["--spec", "absent.yaml"], ("absent.yaml", "cannot be read")),
        (["--spec", "."], ("cannot be read",)),
        (["--recipe", "digits_mlp", "--spec", "x.yaml"], ("'digits_mlp'", "'x.yaml'", "leave one out")),
        ([], ("nothing to train", "begin with the recipe digits_mlp", "--spec")),
    ],
)
def test_a_bad_spec_is_one_line(
    parity: Cli, command: str, arguments: list[str], words: tuple[str, ...]
) -> None:
    if command == "show":  # by position
        arguments = [a for a in arguments if a != "--recipe"]
    error = parity.refused(command, *arguments)
    assert all(word in error for word in words), error


@pytest.mark.parametrize(
    ("placements", "words"),
    [
        (["torch"], ("'torch'", "framework:strategy:replicas")),
        (["torch:ddp"], ("framework:strategy:replicas",)),
        (["torch:ddp:two"], ("framework:strategy:replicas",)),
        (["torch:ddp:-1"], ("framework:strategy:replicas",)),
        (["torch:ddp:0"], ("replicas", "0")),
        (["torch:mirrored:2"], ("strategy", "ddp")),
        (["torch:single:2"], ("single", "ddp")),
        (["jax:pmap:2"], ("'jax'",)),
        (["torch:single:1"], ("two placements",)),
        (["torch:single:1", "pytorch:single:1"], ("torch single x1", "twice")),
        (["torch:single:1", "tf:mirrored:1", "tensorflow:mirrored:1"], ("tensorflow mirrored x1", "twice")),
    ],
)
def test_bad_placements_are_one_line(parity: Cli, placements: list[str], words: tuple[str, ...]) -> None:
    flags = [part for text in placements for part in ("--placement", text)]
    error = parity.refused("run", "--recipe", "digits_mlp", *flags)
    assert all(word in error for word in words), error


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--recipe", "digits_mlp", "--replicas", "0"],
        ["run", "--recipe", "digits_mlp", "--replicas", "1", "--timing-rounds", "-1"],
        ["plan", "--recipe", "digits_mlp", "--replicas", "0"],
        ["plan", "--recipe", "digits_mlp", "--first-step", "-1"],
        ["plan", "--recipe", "digits_mlp", "--steps", "-1"],
    ],
    ids=" ".join,
)
def test_impossible_numbers_are_one_line(parity: Cli, arguments: list[str]) -> None:
    parity.refused(*arguments)


def test_a_run_never_writes_into_a_folder_that_holds_something(parity: Cli) -> None:
    Run.of(tiny_spec(), TORCH).write(parity.folder / "record")
    (parity.folder / "thesis").mkdir()
    (parity.folder / "thesis" / "thesis.tex").write_text("x")
    for name in ("record", "thesis"):
        assert "already holds" in parity.refused("run", "--recipe", "digits_mlp", "--out", name)
    assert "alone" in parity.refused("run", "--recipe", "digits_mlp", "--out", "thesis", "--overwrite")
    # A project has a runs/ of its own, by default.
    (parity.folder / "thesis" / "runs").mkdir()
    refused = parity.refused("run", "--recipe", "digits_mlp", "--out", "thesis", "--overwrite")
    assert "holds 'thesis.tex', which is of no session, so --overwrite leaves it alone" in refused
    (parity.folder / "record" / "notes").mkdir()
    refused = parity.refused("run", "--recipe", "digits_mlp", "--out", "record", "--overwrite")
    assert "holds 'notes', which is of no record, so --overwrite leaves it alone" in refused
    (parity.folder / "record" / "notes").rmdir()
    parity.refused(
        "run", "--recipe", "digits_mlp", "--out", "record", "--overwrite", "--placement=torch:single:1"
    )
    assert (parity.folder / "record" / "header.json").is_file(), "one placement is no comparison"
    (parity.folder / "theirs").mkdir()
    (parity.folder / "theirs" / "header.json").write_text('{"format": "mail", "schema_version": 1}')
    parity.refused("run", "--recipe", "digits_mlp", "--out", "theirs", "--overwrite")
    (parity.folder / "file").write_text("x")
    parity.refused("run", "--recipe", "digits_mlp", "--out", "file")
    parity.refused("run", "--recipe", "digits_mlp", "--out", "file", "--overwrite")


def test_a_session_says_how_much_there_is_to_run(capsys: pytest.CaptureFixture[str]) -> None:
    spec = recipe_spec("digits_mlp")
    configs = [RunConfig.from_text(text) for text in session.default_placements(2)]
    jobs = [job for _, stage in session.stages_of(spec, configs, Path("x"), 3) for job in stage]
    outlook = session._Outlook(jobs, Terminal())
    assert outlook.text == f"20 runs, 5 of {spec.steps} steps and 15 of 40"
    outlook.after_run()
    assert capsys.readouterr().out == "", "all of it takes no minute"
    outlook = session._Outlook(jobs[:2], Terminal())
    assert outlook.text == f"2 runs of {spec.steps} steps"
    outlook._began -= 120
    outlook.after_run()
    outlook.after_run()
    said = one_line(capsys.readouterr().out)
    assert said.startswith("the first run took 120 s: about 2 min for the others")


def test_a_run_without_its_framework_ends_before_it_begins(
    parity: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(monkeypatch, "torch")
    monkeypatch.setattr(session, "require", worker.require)
    error = parity.refused("run", "--recipe", "digits_mlp")
    assert "pip install 'tf-torch-parity[torch]'" in error


def test_hints_name_the_distribution_and_its_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extra in project["optional-dependencies"]:
        assert how_to_install(extra) == f"run: pip install '{project['name']}[{extra}]'"
    # Where it is not installed, a registry may have something else under its name.
    monkeypatch.setattr(errors, "DISTRIBUTION", "not-installed-anywhere")
    assert how_to_install("tf") == "in the toolkit's folder run: pip install '.[tf]'"


def records(parity: Cli, *assignments: str, change: Callable[[Run], object] = lambda run: None) -> None:
    run = Run.of(tiny_spec(*assignments), TORCH)
    other = run.copy(MIRRORED)
    change(other)
    run.write(parity.folder / "a")
    other.write(parity.folder / "b")


def lower_loss(run: Run) -> None:
    run.column("loss_sum")[2] *= 0.5


@pytest.mark.parametrize(
    ("assignments", "change", "code", "word"),
    [
        ((), lambda run: None, 0, "✓ parity"),
        ((), lower_loss, 1, "✗ divergent"),
        (("precision=float32",), lambda run: None, 3, "? inconclusive"),
    ],
    ids=["parity", "divergent", "inconclusive"],
)
def test_compare_says_its_verdict_in_words_and_exit_code(
    parity: Cli, assignments: tuple[str, ...], change: Callable[[Run], object], code: int, word: str
) -> None:
    records(parity, *assignments, change=change)
    found, out, err = parity("compare", "a", "b")
    assert (found, err) == (code, "") and out.startswith(word)


def cut(name: str, size: int) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-size])


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (cut("steps.f64", 100), ("b", "truncated")),
        (cut("header.json", 300), ("header.json", "cut short")),
        (cut("final.safetensors", 3), ("final.safetensors",)),
        (cut("sample_ids/replica_0.ids", 99), ("sample_ids", "replica 1")),
        (lambda folder: (folder / "summary.json").unlink(), ("did not finish",)),
        (lambda folder: (folder / "initial.safetensors").unlink(), ("initial", "missing")),
        (lambda folder: (folder / "header.json").unlink(), ("not a run record",)),
        (lambda folder: (folder / "header.json").write_text("{}"), ("header.json", "required")),
        (shutil.rmtree, ("not a run record",)),
    ],
)
def test_compare_refuses_damaged_records_in_one_line(
    parity: Cli, spoil: Callable[[Path], object], words: tuple[str, ...]
) -> None:
    records(parity)
    spoil(parity.folder / "b")
    error = parity.refused("compare", "a", "b", "--out", "report")
    assert all(word in error for word in words), error


def test_compare_refuses_what_cannot_be_compared(parity: Cli) -> None:
    records(parity)
    Run.of(tiny_spec("seed=1"), TORCH).write(parity.folder / "c")
    assert "different specs: seed is 0 and 1" in parity.refused("compare", "a", "c")
    assert "itself" in parity.refused("compare", "a", "b", "./a")
    parity.refused("compare", "a", "b", "--floor", "nowhere")


def test_compare_writes_reports_where_asked(parity: Cli) -> None:
    records(parity, change=lower_loss)
    code, out, _ = parity("compare", "a", "b", "--out", "deep/report", "--checks")
    folder = parity.folder / "deep" / "report"
    names = {path.name for path in folder.iterdir()}
    assert code == 1 and names == {"report.json", "report.xml", "report.html"}
    assert json.loads((folder / "report.json").read_text())["exit_code"] == 1
    assert ElementTree.parse(folder / "report.xml").getroot().find("testsuite/testcase/failure") is not None
    assert "loss curve" in out and "report: deep/report/report." in out


def test_compare_does_without_the_html_libraries(parity: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    records(parity)
    for name in ("plotly", "plotly.offline"):
        monkeypatch.setitem(sys.modules, name, None)
    code, out, err = parity("compare", "a", "b", "--out", "report")
    assert (code, err) == (0, "")
    assert "report: report/report.html" in out
    assert "pip install 'tf-torch-parity[report]'" in html.unescape(
        (parity.folder / "report/report.html").read_text()
    )


def test_compare_refuses_an_output_that_is_a_file(parity: Cli) -> None:
    records(parity)
    (parity.folder / "file").write_text("precious")
    assert "file" in parity.refused("compare", "a", "b", "--out", "file")
    assert "file" in parity.refused("compare", "a", "b", "--out", "file/below")


@pytest.mark.parametrize("name", ["[red]", "[bold]x[", ":bomb:", "a b"])
def test_a_path_is_shown_as_it_is(parity: Cli, name: str) -> None:
    records(parity)
    code, out, _ = parity("compare", "a", "b", "--out", name)
    assert code == 0 and f"report: {name}/report." in out


def test_report_judges_a_session_again(parity: Cli) -> None:
    run = Run.of(tiny_spec(), TORCH)
    for number, placement in enumerate((TORCH, MIRRORED, DDP)):
        run.copy(placement).write(parity.folder / "session" / "runs" / f"{number:02d}_x")
    code, out, _ = parity("report", "session")
    assert code == 0 and "reference torch single x1" in out and "torch ddp x2" in out
    assert (parity.folder / "session" / "report.json").is_file()
    assert "there is no such folder; did you mean 'session'?" in parity.refused("report", "sesion")
    assert "holds no runs/" in parity.refused("report", "session/runs")
    assert "the record of one run" in parity.refused("report", "session/runs/00_x")


def test_plan_prints_the_split(parity: Cli) -> None:
    arguments = ["plan", "--recipe", "digits_mlp", "--replicas", "4", "--first-step", "22", "--steps", "2"]
    code, out, _ = parity(*arguments)
    assert code == 0 and "1437 samples, global batch 64, contiguous over 4 replicas" in out
    sizes = [int(line.split()[2]) for line in out.splitlines() if line.startswith("  replica")]
    assert sizes == [8, 8, 8, 5, 16, 16, 16, 16]  # the tail of 29, then a whole batch
    _, out, _ = parity(*arguments, "--json")
    plan = BatchPlan.of(recipe_spec("digits_mlp"), Placement(framework="torch", strategy="ddp", replicas=4))
    for step, line in zip((22, 23), out.splitlines(), strict=True):
        shares = [plan.local_ids(step, replica).tolist() for replica in range(4)]
        assert json.loads(line) == {"step": step, "epoch": step // 23, "replicas": shares}


def test_show_prints_specs_that_load_again(parity: Cli) -> None:
    for recipe in ("digits_cnn", "gpt2", "unet:tiny"):
        spec = recipe_spec(recipe, "seed=7")
        for kind, load in (("yaml", yaml.safe_load), ("json", json.loads)):
            code, out, err = parity("show", recipe, "--set", "seed=7", "--format", kind)
            assert (code, err) == (0, "")
            assert TrainSpec.parse(load(out)) == spec
            (parity.folder / "spec").write_text(out)
            assert parity("show", "--spec", "spec", "--format", kind)[1] == out
        code, out, _ = parity("show", recipe, "--set", "seed=7")
        assert code == 0 and spec.content_hash() in out
        nodes = list(walk(spec.model.tree()))[1:]
        assert len(out.splitlines()) == 1 + len(nodes) + 1  # the title, the layers, the optimizer
    schema = json.loads(parity("show", "--schema")[1])
    assert schema["title"] == "TrainSpec"


def test_recipes_are_listed_with_their_sizes(parity: Cli) -> None:
    code, out, _ = parity("recipes")
    assert code == 0 and set(recipes.RECIPES) <= set(out.split())
    assert "4,810" in out  # 64*64 + 64 + 64*10 + 10


def hide(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """Make packages look as if they were not installed, and all others as if they were."""

    def find_spec(name: str, package: str | None = None) -> object:
        return None if name in packages else object()

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)


FACTS = {
    "versions": {"thing": "1.0"},
    "gpus": ["GPU [one]"],
    "collectives": "ring [1]",
    "lacks": {"no_gpu": True},
}


@pytest.mark.parametrize(
    ("missing", "code"),
    [((), 0), (("torch",), 2), (("tensorflow",), 2), (("torch", "tensorflow"), 2), (("plotly",), 0)],
)
def test_doctor_names_what_is_missing_and_how_to_install_it(
    parity: Cli, monkeypatch: pytest.MonkeyPatch, missing: tuple[str, ...], code: int
) -> None:
    hide(monkeypatch, *missing)
    monkeypatch.setattr(doctor, "describe", lambda framework: FACTS)
    found, out, err = parity("doctor")
    assert (found, err) == (code, "")
    for framework, extra in (("torch", "torch"), ("tensorflow", "tf")):
        told = f"pip install 'tf-torch-parity[{extra}]'"
        # In one line, so that it can be copied.
        assert any(told in line for line in out.splitlines()) == (framework in missing)
    assert ("plotly (HTML report): not installed" in out) == ("plotly" in missing)
    assert out.count("thing 1.0") == len({"torch", "tensorflow"} - set(missing))


def test_doctor_shows_names_as_they_are(parity: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch)
    monkeypatch.setattr(doctor, "describe", lambda framework: FACTS)
    row = STRATEGIES["torch"]["single"]._replace(about="one [process]")
    monkeypatch.setitem(STRATEGIES["torch"], "single", row)
    code, out, _ = parity("doctor")
    assert code == 0 and out.count("GPU [one]") == out.count("ring [1]") == 2 and "one [process]" in out


@pytest.mark.parametrize(
    ("service", "words"),
    [
        ("Broken", "ImportError: no libcuda [x]"),
        ("Dies", "was killed by signal 9: last words [y]"),
        ("Hangs", "no answer to 'describe' within 0.5 s"),
    ],
)
def test_doctor_tells_when_a_framework_does_not_start(
    parity: Cli, monkeypatch: pytest.MonkeyPatch, service: str, words: str
) -> None:
    hide(monkeypatch)
    monkeypatch.setattr(worker, "_SERVICE", f"parity_tests.bodies.services:{service}")
    monkeypatch.setattr(worker, "_DESCRIBE_SECONDS", 0.5 if service == "Hangs" else 60.0)
    code, out, err = parity("doctor")
    assert (code, err) == (2, "")
    assert out.count("is installed but does not start") == out.count(words) == 2, out


# In processes of their own: what only a whole program shows.

BLOCKED = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"tensorflow", "torch", "keras"}:
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Block())
from parity.common.commands import main
main.main()
"""


def test_plan_and_compare_need_no_framework(tmp_path: Path) -> None:
    run = Run.of(tiny_spec(), TORCH)
    run.write(tmp_path / "a")
    run.copy(MIRRORED).write(tmp_path / "b")
    done = process("plan", "--recipe", "digits_cnn", code=BLOCKED)
    assert done.returncode == 0 and "replica 1" in done.stdout, done.stderr
    done = process("compare", tmp_path / "a", tmp_path / "b", code=BLOCKED)
    assert (done.returncode, done.stderr) == (0, "") and "✓ parity" in done.stdout


@pytest.mark.parametrize("package", ["tensorflow", "torch", "keras"])
def test_the_block_blocks(package: str) -> None:
    done = process(
        code=BLOCKED.replace("from parity.common.commands import main\nmain.main()", f"import {package}")
    )
    assert done.returncode == 1 and f"{package} is blocked" in done.stderr


def test_what_was_not_foreseen_is_one_line_and_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def fails() -> int:
        raise KeyError("some\nlines")

    assert exit_code_of("parity", fails) == 2
    said = one_line(capsys.readouterr().err)
    assert said.startswith("parity: error: not foreseen, please report it: KeyError: ")
    details = Path(said.rpartition("details: ")[2].strip())
    assert "Traceback" in details.read_text() and details.parent == tmp_path
    assert exit_code_of("parity", fails, keep_traceback=True) == 2
    assert "Traceback" in capsys.readouterr().err
    with pytest.raises(KeyboardInterrupt):
        exit_code_of("parity", partial(signal.raise_signal, signal.SIGINT))


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "parity", "recipes"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(tmp_path)},
            cwd=ROOT,
        )
    assert done.returncode == 2
    assert one_line(done.stderr).startswith("parity: error: No space left on device; details: ")


@pytest.mark.parametrize(
    ("statement", "code", "line"),
    [
        ("import signal; signal.raise_signal(signal.SIGINT)", -signal.SIGINT, "parity: interrupted"),
        ("import no_such_package", 2, "parity: error: No module named 'no_such_package'"),
    ],
)
def test_an_end_during_the_imports_is_one_line(tmp_path: Path, statement: str, code: int, line: str) -> None:
    (tmp_path / "rich.py").write_text(statement)
    done = subprocess.run(
        [sys.executable, "-m", "parity", "recipes"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (code, f"{line}\n")


@pytest.mark.parametrize(
    ("flag", "code"), [("--help", 0), ("--nothing", 2), ("--replicas=word", 2), ("word", 2)]
)
def test_flags_of_a_training_do_not_end_with_a_verdicts_code(flag: str, code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "parity.torch_impl", flag], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == code
    assert code == 0 or one_line(done.stderr).startswith("parity.torch_impl: error: ")


def test_the_programs_exit_code_and_error_line(tmp_path: Path) -> None:
    run = Run.of(tiny_spec(), TORCH)
    spoiled = run.copy(MIRRORED)
    lower_loss(spoiled)
    run.write(tmp_path / "a")
    spoiled.write(tmp_path / "b")
    done = process("compare", tmp_path / "a", tmp_path / "b")
    assert (done.returncode, done.stderr) == (1, "")
    done = process("compare", tmp_path / "a", tmp_path / "absent")
    assert (done.returncode, done.stdout) == (2, "")
    assert one_line(done.stderr).startswith("parity: error: ")


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = f"set -o pipefail; {sys.executable} -m parity plan --recipe digits_mlp --steps 5000 --json | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=ROOT, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["step"] == 0


@pytest.mark.slow
def test_rounding_that_no_permuted_run_shows_is_no_divergence(parity: Cli) -> None:
    """Adam's first update makes a step of gradients that are nothing but rounding, and sums over shards round otherwise: seen on two processors."""
    flags = ["--recipe", "digits_cnn", "--timing-rounds", 0, "--out", "out"]
    settings = ("precision=float32", "convention=torch", "seed=1", "steps=2", "global_batch_size=34")
    for setting in (*settings, "optimizer={kind: adam, learning_rate: 0.002}"):
        flags += ["--set", setting]
    for placement in ("torch:single:1", "tensorflow:mirrored:2", "torch:fsdp2:2"):
        flags += ["--placement", placement]
    code, out, err = parity("run", *flags)
    assert (code, "✓ parity" in out) == (0, True), out + err
    if "beyond the noise floor" in err:
        sources = [each.budget_source for each in read_session(parity.folder / "out").comparisons]
        assert any("by the same run in float64" in source for source in sources)
