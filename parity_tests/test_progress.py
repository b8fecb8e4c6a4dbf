"""Progress that is read from growing files."""

from __future__ import annotations

import io
import os
import re
import sys
import time
from pathlib import Path

import pytest

from parity.common.execution import progress
from parity.common.record.header import ROW_BYTES, steps_in
from parity_tests.helpers.records import TORCH, Run, tiny_spec


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_whole_rows_of_a_record_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "run" / "steps.f64"
    assert steps_in(path) == 0
    Run.of(tiny_spec(), TORCH).write(tmp_path / "run")
    assert steps_in(path) == 6
    path.write_bytes(path.read_bytes()[:-1])
    assert steps_in(path) == 5


def test_lines_of_a_growing_file_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    assert progress.lines_in(path) == 0
    with open(path, "w") as file:
        for text, lines in {"a\nb": 1, "c\n": 2, "": 2, "\n\n": 4}.items():
            file.write(text)
            file.flush()
            assert progress.lines_in(path) == lines


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
@pytest.mark.parametrize("shown", [True, False])
def test_bars_on_a_terminal_and_lines_elsewhere(
    monkeypatch: pytest.MonkeyPatch, shown: bool, stream: type[io.StringIO]
) -> None:
    monkeypatch.setattr(progress, "_SECONDS", 0.01)
    monkeypatch.setattr(progress, "_SECONDS_A_LINE", 0.01)
    monkeypatch.setattr(sys, "stderr", stream())
    asked: list[int] = []
    with progress.bars({"some work": lambda: asked.append(1) or min(len(asked), 5)}, 7, shown):
        deadline = time.monotonic() + 20
        while shown and len(asked) < 9 and time.monotonic() < deadline:
            time.sleep(0.01)
    said = sys.stderr.getvalue()
    assert bool(asked) == shown == ("some work" in said)
    if shown and stream is io.StringIO:
        # What was counted first says nothing of how long a step takes.
        first, *_, last = said.splitlines()
        assert re.fullmatch(r"  some work: 1 of 7 after \d+ s", first)
        assert re.fullmatch(r"  some work: 5 of 7 after \d+ s, about \d+ s left", last)


def test_a_row_that_is_written_while_rows_are_counted_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "steps.f64"
    path.write_bytes(b"")
    sized = os.fstat

    def written(number: int) -> os.stat_result:
        before = sized(number)
        path.write_bytes(bytes(ROW_BYTES))
        return before

    monkeypatch.setattr(os, "fstat", written)
    assert steps_in(path) == 0
    assert steps_in(path) == 1
