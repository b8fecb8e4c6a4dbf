"""The child's side of a `Child`: it answers questions until its standard input ends.

Standard input and output are taken away from all other code before any of it runs: what that prints goes to the log,
and what it reads is at its end.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from parity.common.base.errors import ParityError
from parity.common.execution.operating_system import die_with_pipe
from parity.common.execution.processes.channel import Channel
from parity.common.execution.processes.liveness import report_stacks
from parity.common.execution.processes.user_errors import described


class Service:
    """What a child answers: each public method is a question, its result an answer that `Channel` can send.

    about: what an unforeseen error is said to be about.
    """

    about = ""

    def answer(self, question: str, arguments: dict[str, Any]) -> Any:
        """Call the method of a question."""
        return getattr(self, question)(**arguments)

    def explain(self, error: BaseException) -> str:
        """Return an unforeseen error in one line."""
        return f"{self.about}: {described(error)}" if self.about else described(error)


def answer_line(service: Service, channel: Channel, line: str) -> str:
    """Return the answer to a question, both as lines of JSON: a value, or an error and whether it was foreseen."""
    try:
        return json.dumps(channel.pack(service.answer(*channel.asked(line))))
    except ParityError as error:
        return json.dumps({"error": str(error), "foreseen": True})
    except (Exception, SystemExit) as error:
        with suppress(OSError):  # the disk may be full
            traceback.print_exc()
        return json.dumps({"error": service.explain(error), "foreseen": False})


def serve(folder: str, alive: str, service: str, *arguments: str) -> None:
    """Answer until standard input ends.

    Args:
        folder: for files of arrays.
        alive: a pipe that ends with the parent, and this process with it.
        service: "module:Class" of a Service, made with `arguments`.
    """
    questions, answers = _take_channel()
    die_with_pipe(int(alive))
    # By it the parent ends a child at work; jobs that a shell starts in the background inherit that it is ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    report_stacks()
    module, _, name = service.partition(":")
    made: Service = getattr(importlib.import_module(module), name)(*arguments)
    channel = Channel(Path(folder), "from_child_")
    with suppress(KeyboardInterrupt):
        for line in questions:
            answers.write(answer_line(made, channel, line) + "\n")
            answers.flush()
    with suppress(OSError):
        sys.stderr.flush()
    # Threads of a framework may abort a normal exit after everything has been answered.
    os._exit(0)


def _take_channel() -> tuple[IO[str], IO[str]]:
    questions, answers = os.fdopen(os.dup(0), "r"), os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return questions, answers
