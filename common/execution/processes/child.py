"""A child process that answers questions, seen from its parent.

    with Child("package.module:Service", name="the torch process") as child:
        value = child.ask("question", {"argument": 1}, seconds=60)

A question is a line of JSON on the child's standard input and an answer one on its output; arrays lie in safetensors
files between them. The child's own output goes to a log. It ends with its parent, however that ends.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from parity.common.base.errors import ParityError, RunError
from parity.common.base.package import ROOT
from parity.common.base.scratch import make_scratch, remove_scratch
from parity.common.execution.processes.channel import Channel
from parity.common.execution.processes.liveness import whereabouts

_RUN = (
    "import sys; sys.path[:] = filter(None, sys.path); import runpy;"
    " runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)
_MODULE = "parity.common.execution.processes"
_CLOSE_SECONDS = 10.0
NOTHING_SAID = "it said nothing"


class Child(AbstractContextManager["Child"]):
    """A process of ours. Use as a context manager. One thread at a time.

    folder: for files that go between the two. log: where its output goes. log_matters: whether an error has pointed to
        the log.
    """

    def __init__(
        self,
        service: str,
        *arguments: str,
        name: str,
        python: str = sys.executable,
        error: type[ParityError] = RunError,
        log: Path | None = None,
        cwd: Path | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Start the process, without waiting for it.

        Args:
            service: "module:Class" of a `service.Service`, made in the child with `arguments`.
            name: what messages call the process, as in 'the torch process'.
            python: what runs it: this process's Python, or another environment's.
            error: what failures are raised as.
            log: where the child's output goes; None: into a temporary folder, which ends with the process.
            cwd: its working folder; None: this process's.
            variables: of its environment, besides the usual ones.
        """
        self.name, self.log_matters = name, False
        self._error, self._kept = error, log is not None
        self.folder = make_scratch("child-")
        self.log = self.folder / "log" if log is None else log
        self._channel = Channel(self.folder, "from_parent_")
        self._pending, self._unanswered = b"", 0
        self._ended: str | None = None
        root = ROOT if python == sys.executable else _alone(self.folder)
        alive, held = os.pipe()
        self._alive: int | None = held
        with open(self.log, "ab") as output:
            self._process = subprocess.Popen(
                command(_MODULE, str(self.folder), str(alive), service, *arguments, python=python),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=environment(variables=variables, root=root),
                cwd=cwd,
                pass_fds=(alive,),
                # Ctrl-C is for the parent; and what the child starts can be ended with it.
                start_new_session=True,
            )
        os.close(alive)

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def ask(
        self,
        question: str,
        arguments: dict[str, Any],
        seconds: float,
        progress: Callable[[], object] | None = None,
    ) -> Any:
        """Send a question and return its answer; see `send` and `receive`."""
        if self._unanswered and self._ended is None:
            # The wait for an earlier answer was interrupted: it would be read as the answer to this question.
            raise KeyboardInterrupt
        self.send(question, arguments)
        return self.receive(question, seconds, progress)

    def send(self, question: str, arguments: dict[str, Any]) -> None:
        """Ask, without waiting."""
        assert self._process.stdin is not None
        line = self._channel.question(question, arguments)
        self._unanswered += 1
        # Where the process has gone, waiting for the answer says why.
        with suppress(BrokenPipeError, ValueError):
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def receive(self, question: str, seconds: float, progress: Callable[[], object] | None = None) -> Any:
        """Return the answer to the question that was sent first among those without one.

        Args:
            question: its name, for messages.
            seconds: after so long without an answer the process is ended.
            progress: gives another value whenever the work has got on; the time then begins anew.

        Raises:
            ParityError: the question failed, or the process has ended or was ended; of the type `error`.
        """
        answer = json.loads(self._line(question, seconds, progress))
        self._unanswered -= 1
        if "error" not in answer:
            return self._channel.unpack(answer)
        self.log_matters |= self._kept and not answer["foreseen"]
        raise self._error(answer["error"] + ("" if answer["foreseen"] else self._log_hint()))

    def close(self) -> None:
        """End the process, politely and then by force, and all that it has started."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        if self._unanswered and self.running:
            self._process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_CLOSE_SECONDS)
        self._kill()
        self._process.stdout.close()
        if self._alive is not None:
            os.close(self._alive)
            self._alive = None
        remove_scratch(self.folder)

    def _line(self, question: str, seconds: float, progress: Callable[[], object] | None) -> bytes:
        """The next line that the child writes."""
        assert self._process.stdout is not None
        if self._ended is not None:
            raise self._error(self._ended)
        seen = progress() if progress else None
        deadline = time.monotonic() + seconds
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            if left <= 0:
                if progress is None or seen == (now := progress()):
                    raise self._late(question, seconds, progress is not None)
                seen, deadline = now, time.monotonic() + seconds
            elif select.select([self._process.stdout], [], [], left)[0]:
                read = os.read(self._process.stdout.fileno(), 1 << 16)
                if not read:
                    raise self._gone()
                self._pending += read
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _gone(self) -> ParityError:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_CLOSE_SECONDS)
        self._kill()
        return self._over(f"{self.name} {how_it_ended(self._process.returncode)}: {last_line(self.log)}")

    def _late(self, question: str, seconds: float, progress: bool) -> ParityError:
        place = whereabouts(self._process.pid, self.log)
        self._kill()
        what = "no progress with" if progress else "no answer to"
        return self._over(f"{self.name}: {what} {question!r} within {seconds:g} s{place}; it has been ended")

    def _over(self, text: str) -> ParityError:
        self._unanswered, self.log_matters = 0, self._kept
        self._ended = text + self._log_hint()
        return self._error(self._ended)

    def _log_hint(self) -> str:
        return f" (log: {self.log})" if self._kept else ""

    def _kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def command(module: str, *arguments: str, python: str = sys.executable) -> list[str]:
    """Return the command with which a Python runs a module of ours.

    As `python -P -m`, which Python 3.10 lacks: nothing in the working folder, such as a user's `numpy.py`, can stand in
    for what we import. Where a user names code, `prepare_import_path` adds its folder.
    """
    return [python, "-c", _RUN, module, *arguments]


def _alone(folder: Path) -> Path:
    """A new folder with a link to the toolkit and nothing else: packages beside it are for this Python."""
    path = folder / "path"
    path.mkdir()
    (path / "parity").symlink_to(ROOT / "parity")
    return path


def environment(
    threads: int | None = 1, variables: Mapping[str, str] | None = None, root: Path = ROOT
) -> dict[str, str]:
    """Return the environment of a child.

    Args:
        threads: of OpenMP; None: as in this process.
        variables: to set besides.
        root: the folder that holds the toolkit.
    """
    own = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
    # The user's folders come first: ours holds packages of the repository besides `parity`.
    path = [*os.environ.get("PYTHONPATH", "").split(os.pathsep), str(root)]
    own["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, path)))
    # Where both frameworks are on one GPU, TensorFlow is to take what it needs and not all.
    shared = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    return {**shared, **os.environ, **own, **(variables or {})}


def how_it_ended(code: int) -> str:
    """What the exit code of a process means."""
    return f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"


def last_line(log: Path) -> str:
    """The last line of a log that says something, in 300 characters."""
    try:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        lines = []
    return lines[-1][:300] if lines else NOTHING_SAID
