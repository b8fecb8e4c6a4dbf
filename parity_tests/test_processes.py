"""Children: every wait has a limit, failures come over the pipe, and nothing of a user's stands in for what we import."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.common.base.errors import ExternalModelError, ParityError, RunError
from parity.common.execution.processes.child import Child
from parity.common.execution.processes.liveness import growth
from parity_tests.helpers.processes import runs, wait_until

SECONDS = 60.0
Start = Callable[..., Child]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    children = []

    def started(service: str = "Plain", **settings: Any) -> Child:
        child = Child(f"parity_tests.bodies.services:{service}", name="the child", **settings)
        children.append(child)
        return child

    yield started
    for child in children:
        child.close()


def said(child: Child, question: str, seconds: float = SECONDS, **arguments: Any) -> str:
    with pytest.raises(ParityError) as caught:
        child.ask(question, arguments, seconds)
    return str(caught.value)


def test_values_and_arrays_go_both_ways(start: Start) -> None:
    child = start()
    value = {"x": np.arange(6.0).reshape(2, 3), "rest": [1, None, "text", {"deep": np.array([True])}]}
    back = child.ask("echo", {"value": value}, SECONDS)
    assert np.array_equal(back["x"], value["x"]) and back["rest"][:3] == [1, None, "text"]
    assert back["rest"][3]["deep"].tolist() == [True]
    # More than a pipe holds, to a child that does not read yet.
    long = "x" * (1 << 20)
    assert start().ask("echo", {"value": long}, SECONDS) == long


def test_failures_come_over_the_pipe_and_the_child_serves_on(start: Start, tmp_path: Path) -> None:
    child = start()
    assert said(child, "refuses") == "42 is not allowed"
    line = said(child, "raises")
    assert re.fullmatch(r"ValueError: first line second line \(\S*services.py:\d+\)", line)
    assert child.ask("echo", {"value": 3}, SECONDS) == 3
    assert not child.log_matters
    # A log that outlives the process holds the traceback, and is named.
    log = tmp_path / "log"
    child = start(log=log, error=ExternalModelError)
    assert said(child, "refuses") == "42 is not allowed" and not child.log_matters
    with pytest.raises(ExternalModelError, match=rf"services.py:\d+\) \(log: {re.escape(str(log))}\)$"):
        child.ask("raises", {}, SECONDS)
    assert child.log_matters and "Traceback" in log.read_text()


def test_a_full_disk_does_not_lose_the_reason(start: Start) -> None:
    child = start(log=Path("/dev/full"))
    assert "ValueError: first line second line" in said(child, "raises")


def test_a_child_that_does_not_answer_is_ended_and_says_where_it_was(start: Start, tmp_path: Path) -> None:
    child = start(log=tmp_path / "log")
    child.ask("echo", {"value": 1}, SECONDS)
    line = said(child, "sleeps", 0.5)
    assert re.match(
        r"the child: no answer to 'sleeps' within 0.5 s, it is at \(\S*services.py:\d+\); it has been ended \(log: ",
        line,
    )
    assert not child.running and child.log_matters
    assert said(child, "echo", value=1) == line


@pytest.mark.parametrize("text", ["\u00e4" * 500, "\U0001f600" * 500])
def test_where_a_child_is_stands_after_bytes_and_not_characters(start: Start, text: str) -> None:
    child = start()
    child.ask("echo", {"value": 1}, SECONDS)
    assert re.search(r"it is at \(\S*services.py:\d+\)", said(child, "says", 0.5, text=text))


def test_what_gets_on_is_not_ended(start: Start, tmp_path: Path) -> None:
    child, path = start(), tmp_path / "runs" / "steps"
    path.parent.mkdir()
    child.ask("echo", {"value": 1}, SECONDS)
    slow = {"path": str(path), "pause": 0.2, "times": 8}
    assert child.ask("grows", slow, 0.5, partial(growth, tmp_path)) == "x" * 8
    # The control: the same without a look at the file.
    path.unlink()
    assert "no answer to 'grows' within 0.5 s" in said(child, "grows", 0.5, **slow)


def test_what_stops_getting_on_is_ended(start: Start, tmp_path: Path) -> None:
    child = start()
    child.ask("echo", {"value": 1}, SECONDS)
    with pytest.raises(RunError, match=r"no progress with 'sleeps' within 0.3 s, it is at"):
        child.ask("sleeps", {}, 0.3, partial(growth, tmp_path))


def test_after_an_interrupt_no_answer_is_taken_for_another(start: Start) -> None:
    child = start()

    def interrupts() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        child.ask("echo", {"value": 1}, SECONDS, interrupts)
    with pytest.raises(KeyboardInterrupt):
        child.ask("echo", {"value": 2}, SECONDS)


def test_a_child_that_dies_is_one_line(start: Start) -> None:
    child = start("Dies")
    assert said(child, "describe") == "the child was killed by signal 9: last words [y]"
    assert "No module named" in said(start(service="Plain", cwd=Path("/")), "imported", name="nowhere")


def test_what_a_child_has_started_ends_with_it(start: Start, tmp_path: Path) -> None:
    child = start()
    child.ask("echo", {"value": 1}, SECONDS)
    assert "no answer" in said(child, "starts", 1.0, path=str(tmp_path / "pid"))
    pid = int((tmp_path / "pid").read_text())
    wait_until("a process of the child outlived it", lambda: not runs(pid))


def test_a_child_at_work_is_closed_soon(start: Start) -> None:
    child = start()
    child.send("says", {"text": "at work"})
    wait_until("it did not begin", lambda: "at work" in child.log.read_text())
    begun = time.monotonic()
    child.close()
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize("name", ["numpy", "pydantic", "random"])
def test_nothing_in_the_working_folder_stands_in_for_what_we_import(
    start: Start, tmp_path: Path, name: str
) -> None:
    (tmp_path / f"{name}.py").write_text("raise RuntimeError('not this one')")
    for package in ("common", "tf_impl", "torch_impl"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise RuntimeError('not this one')")
    child = start(cwd=tmp_path)
    assert not child.ask("imported", {"name": name}, SECONDS).startswith(str(tmp_path))
    assert "parity" in child.ask("imported", {"name": "parity.common.base.errors"}, SECONDS)


def test_a_users_folders_come_before_ours(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "__init__.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    child = start()
    assert child.ask("imported", {"name": "common"}, SECONDS).startswith(str(tmp_path))
    assert child.ask("variable", {"name": "OMP_NUM_THREADS"}, SECONDS) == "1"
