"""Which versions of the frameworks are taken, and how an older one is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib

from parity.common.base.errors import MissingPackageError
from parity.common.base.package import OLDEST, check_versions, numbers
from parity_tests.helpers import ROOT
from parity_tests.helpers.records import one_line
from parity_tests.tables.versions import FEATURES, SETS, feature_of, page


@pytest.fixture
def older(tmp_path: Path) -> dict[str, str]:
    """An environment in which torch says that it is 2.3.1."""
    folder = tmp_path / "torch-2.3.1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.3.1\n")
    return {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}


def test_a_version_before_the_oldest_is_one_line(older: dict[str, str], tmp_path: Path) -> None:
    said = "torch 2.3.1 is too old, 2.4 is the oldest that works; run: pip install 'torch>=2.4'"
    out = tmp_path / "run"
    command = [
        sys.executable,
        "-m",
        "parity.torch_impl",
        "--recipe=digits_mlp",
        "--set=steps=1",
        f"--out={out}",
    ]
    done = subprocess.run(command, env=older, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and said in one_line(done.stderr)
    assert not out.exists()
    done = subprocess.run(
        [sys.executable, "-m", "parity", "doctor", "--json"],
        env=older,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    frameworks = json.loads(done.stdout)["frameworks"]
    assert done.returncode == 2 and said in frameworks["torch"]["error"]
    assert "keras" in frameworks["tensorflow"]["versions"], "the other one runs"


def test_versions_are_numbers_and_no_texts() -> None:
    assert numbers("2.13.0+cpu") == (2, 13) > numbers("2.4.1") and numbers("3.9rc1") == (3, 9)
    check_versions(*OLDEST)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(OLDEST, "torch", "99.0")
        with pytest.raises(MissingPackageError, match=r"is too old, 99\.0 is the oldest"):
            check_versions("torch")


def test_the_packages_and_the_sets_begin_with_the_oldest() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    lowest = dict(each.split(",")[0].split(">=") for each in (*extras["tf"], *extras["torch"]))
    assert lowest == OLDEST
    tried = dict(each.split("==") for each in SETS["oldest"])
    assert {name: numbers(version) for name, version in tried.items()} == {
        name: numbers(version) for name, version in OLDEST.items()
    }


def test_the_page_counts_what_passed_and_says_what_did_not(tmp_path: Path) -> None:
    suite = (
        '<testsuites><testsuite><testcase classname="parity_tests.{}" name="a"/>{}</testsuite></testsuites>'
    )
    failed = (
        '<testcase classname="parity_tests.test_export" name="b"><failure message="E&#10;RunError: no 2.4"/></testcase>'
        '<testcase classname="parity_tests.test_export" name="c"><skipped/></testcase>'
    )
    (tmp_path / "oldest.law.xml").write_text(suite.format("test_parity_matrix", ""))
    (tmp_path / "oldest.rest.xml").write_text(suite.format("test_export", failed))
    (tmp_path / "oldest.json").write_text(json.dumps(["3.11.7", "2.4.1", "2.16.2", "3.3.3", "1.26.4"]))
    text = page(tmp_path)
    assert "| `export` | 1 of 2 |" in text and "| 1 | `test_export.b` | `RunError: no 2.4` |" in text
    assert "1e-12 | all 1 |" in text and "| PyTorch | 2.4.1 |" in text


def test_every_feature_has_files_of_tests() -> None:
    found = {feature_of(f"parity_tests.{path.stem}.x") for path in (ROOT / "parity_tests").glob("test_*.py")}
    assert found > set(FEATURES)
