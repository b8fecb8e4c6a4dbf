"""However a command ends: one line, and never with the code of a verdict that it has not reached."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from parity.common.base import stop
from parity.common.commands import main
from parity_tests.helpers import ROOT

INTERRUPTS = """
import signal
try:
    signal.raise_signal(signal.SIGINT)
    sum(range(9))
except BaseException:  # as pydantic and Rust do with what is raised in a callback
    raise ValueError("turned into something else") from None
"""
CASES = {
    "interrupts": (INTERRUPTS, -signal.SIGINT, "parity: interrupted"),
    "fails": (
        "raise ValueError('one\\ntwo')",
        2,
        "parity: error: not foreseen, please report it: ValueError: one;",
    ),
    "panics": (
        "class Panic(BaseException): pass\nraise Panic('rust')",
        2,
        "parity: error: not foreseen, please report it: Panic: rust;",
    ),
    "lacks": ("import nowhere", 2, "parity: error: No module named 'nowhere'"),
    "lacks ours": (
        "raise ModuleNotFoundError('No module named x', name='yaml')",
        2,
        "parity: error: No module named x; run: /",
    ),
    "full": ("open('/dev/full', 'w').write('x' * 99999)", 2, "parity: error: No space left on device;"),
}


def importing(
    folder: Path, body: str, entry: str = "with importing('parity'):\n    import body"
) -> tuple[int, str]:
    (folder / "body.py").write_text(body)
    done = subprocess.run(
        [sys.executable, "-c", f"from parity.import_path import importing\n{entry}"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "TMPDIR": str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        # A shell has what it starts in the background ignore interrupts, and that is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("case", CASES)
def test_what_happens_while_a_command_imports_is_one_line(tmp_path: Path, case: str) -> None:
    body, code, said = CASES[case]
    found, err = importing(tmp_path, body)
    assert found == code and err.startswith(said) and len(err.splitlines()) == 1, err


def test_what_would_happen_otherwise(tmp_path: Path) -> None:
    """The control of the test above."""
    code, err = importing(tmp_path, INTERRUPTS, "import body")
    assert code == 1 and "ValueError: turned into something else" in err and "Traceback" in err


def test_after_the_imports_an_interrupt_is_an_exception_again(tmp_path: Path) -> None:
    entry = "with importing('parity'): pass\ntry:\n    import body\nexcept ValueError as error:\n    raise SystemExit(7)"
    assert importing(tmp_path, INTERRUPTS, entry) == (7, "")


NOWHERE = """
import sys

def fails():
    raise LookupError("some")

def writes():
    print("x" * 100_000, flush=True)
    raise LookupError("where there is no standard output")

closed = open("/dev/full", "w")
closed.close()
for stream in (open("/dev/full", "w"), closed, None):
    sys.stdout = sys.stderr = stream
    assert [exit_code_of("parity", body) for body in (fails, writes)] == [2, 2], stream
"""


def test_where_nothing_can_be_said_the_code_is_still_2(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", NOWHERE], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode in (0, 120), done.stderr  # 120: Python cannot flush what it is left with


@pytest.mark.parametrize("path", ["/nowhere", "/dev/zero"])
def test_a_flag_of_absl_that_is_wrong_is_a_usage_error(capsys: pytest.CaptureFixture[str], path: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main.parse(["parity", f"--flagfile={path}", "recipes"])
    assert caught.value.code == 2 and path in capsys.readouterr().err


# Being asked to stop.


def test_a_closed_session_asks_to_stop_unless_it_is_to_be_ignored() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop.handling(lambda number, _: seen.append(number)):
            signal.raise_signal(signal.SIGHUP)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with stop.handling(lambda number, _: seen.append(number)):
            signal.raise_signal(signal.SIGHUP)
        assert seen == [signal.SIGHUP] and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_has_nothing_to_save_is_interrupted_by_a_signal(number: signal.Signals) -> None:
    """As by Ctrl-C, which every command has a line for; a process forked from it is ended by the signal itself."""

    @stop.interrupting()
    def works() -> None:
        forked = os.fork()
        if not forked:
            signal.raise_signal(number)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == -number
        signal.raise_signal(number)

    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt):
        works()
    assert signal.getsignal(number) is before
