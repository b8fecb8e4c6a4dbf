"""What a killed process leaves in the temporary folder is swept by the next; what lives, or is not ours, is not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from parity.common.base import scratch
from parity_tests.helpers import ROOT

MAKES = """
import sys
from parity.common.base.scratch import keep_scratch, make_scratch
made, kept = make_scratch("ranks-"), make_scratch("logs-")
(made / "deeper").mkdir()
(made / "deeper" / "file").write_text("x")
keep_scratch(kept)
print(made, kept, flush=True)
sys.stdin.read()
"""


@contextmanager
def owner(temporary: Path) -> Iterator[tuple[subprocess.Popen[str], Path, Path]]:
    """A process that has made a folder, and one that is to be kept."""
    process = subprocess.Popen(
        [sys.executable, "-c", MAKES],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(temporary)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    made, kept = map(Path, process.stdout.readline().split())
    assert made.is_dir() and kept.is_dir() and made.parent == temporary
    try:
        yield process, made, kept
    finally:
        process.kill()
        process.communicate()


def test_what_a_killed_process_leaves_is_swept_once_it_has_gone(tmp_path: Path) -> None:
    with owner(tmp_path) as (process, made, kept):
        scratch.sweep(tmp_path)
        assert made.is_dir(), "its process lives"
        process.kill()
        process.wait()
        assert made.is_dir()
        scratch.sweep(tmp_path)
        assert not made.exists() and kept.is_dir()


def test_the_next_process_sweeps_and_one_that_ends_leaves_nothing(tmp_path: Path) -> None:
    with owner(tmp_path) as (first, left, _):
        first.kill()
        first.wait()
        with owner(tmp_path) as (second, made, kept):
            assert not left.exists()
            second.communicate("")
            assert not made.exists() and kept.is_dir()


@pytest.mark.parametrize("kind", ["no mark", "a link", "a pipe", "a folder", "another name", "a link to one"])
def test_what_is_not_ours_stays(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / ("other" if kind == "another name" else "parity-mine")
    folder.mkdir()
    mark = folder / ".owner"
    if kind == "a link":
        (tmp_path / "file").touch()
        mark.symlink_to(tmp_path / "file")
    elif kind == "a pipe":
        os.mkfifo(mark)
    elif kind == "a folder":
        mark.mkdir()
    elif kind != "no mark":
        mark.touch()
    if kind == "a link to one":
        folder = folder.rename(tmp_path / "elsewhere")
        (tmp_path / "parity-mine").symlink_to(folder)
    scratch.sweep(tmp_path)
    assert folder.is_dir()


def test_a_folder_of_another_user_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "parity-theirs"
    folder.mkdir()
    (folder / ".owner").touch()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    scratch.sweep(tmp_path)
    assert folder.is_dir()
    monkeypatch.undo()
    scratch.sweep(tmp_path)
    assert not folder.exists()
