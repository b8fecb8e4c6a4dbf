"""A user's modules in the working folder hide none of ours; test_wheel.py tries every command so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from parity_tests.helpers import ROOT

HIDING = ("numpy", "pydantic", "yaml", "absl", "random")


def python(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=100,
        env={**os.environ, **environment},
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in HIDING:
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('the {name} of the user')\n")
    for name in ("common", "tf_impl"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        ["parity", "--version"],
        ["parity.torch_impl", "--help"],
        ["parity.tf_impl", "--help"],
        ["parity.batch", "end", "--help"],
    ],
)
def test_entries_leave_the_working_folder(project: Path, command: list[str]) -> None:
    done = python("-m", *command, cwd=project, PYTHONPATH=str(ROOT))
    assert "the " not in done.stderr.rpartition("Error")[2] and "Traceback" not in done.stderr, done.stderr
    assert done.stdout != "" and done.returncode in (0, 1)  # absl's --help exits with 1


def test_what_would_be_imported_otherwise(project: Path) -> None:
    """A control: the same import without our entry."""
    done = python("-c", "import parity.common.record", cwd=project, PYTHONPATH=str(ROOT))
    assert done.returncode == 1 and f"{project}/numpy.py hides the package 'numpy'" in done.stderr


def test_a_package_that_pip_installed_first_on_the_path_hides_nothing(tmp_path: Path) -> None:
    for name in ("numpy", "pydantic"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
        (tmp_path / f"{name}-2.0.dist-info").mkdir()
    done = python("-c", "import parity.common.record", cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert "hides" not in done.stderr


@pytest.mark.parametrize("module", ["torch_impl", "tf_impl", "parity.torch_impl"])
def test_the_repository_itself_stays_on_the_path(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    # -S: without the installation, so that the working folder alone has the toolkit.
    code = f"import sys; sys.path[0] = {str(ROOT)!r}; from parity.import_path import leave_working_folder as f; f()"
    done = python("-S", "-c", f"{code}; assert sys.path[0] == {str(ROOT)!r}", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    done = python("-m", module, "--help", cwd=ROOT)
    assert "--recipe" in done.stdout, done.stderr


RANKS = """
import sys
from pathlib import Path
from parity.common.execution.ranks import run_ranks

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    run_ranks("parity_tests.bodies.ranks:returns", (folder,), 1, folder / "logs", [])
"""


def test_ranks_leave_the_working_folder(tmp_path: Path) -> None:
    """The fork server is started with -c; a record that was downloaded may bring a struct.py."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "struct.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')")
    safe = {"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": ""}
    # A command's script, as pip installs it: its own folder comes first on the path.
    (tmp_path / "command.py").write_text(RANKS)
    done = python(str(tmp_path / "command.py"), str(tmp_path), cwd=project, **safe)
    assert done.returncode == 0 and not (tmp_path / "executed").exists(), done.stderr
    # A control: it would be.
    python("-c", "import struct", cwd=project, **safe)
    assert (tmp_path / "executed").exists()


HIDDEN = """
import importlib.util, sys
from pathlib import Path
from parity.common.external.process.resolve import prepare_import_path
prepare_import_path(Path("."), sys.argv[1] or None)
found = [name for name in ("keras", "tensorflow", "torch") if importlib.util.find_spec(name) is not None]
print(*found, "loaded:", *sorted({"keras", "tensorflow", "torch"} & sys.modules.keys()))
"""


@pytest.mark.parametrize(
    ("framework", "found"),
    [("", "keras tensorflow torch"), ("torch", "torch"), ("tensorflow", "keras tensorflow")],
)
def test_the_other_framework_is_not_found_and_nothing_says_that_it_is_loaded(
    framework: str, found: str
) -> None:
    """Libraries such as einops ask `sys.modules` which frameworks are loaded, and then import them."""
    done = python("-c", HIDDEN, framework, cwd=ROOT)
    assert done.stdout.strip() == f"{found} loaded:", done.stderr
