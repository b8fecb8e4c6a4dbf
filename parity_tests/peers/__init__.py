"""Framework processes that compute single layers, losses and optimizer steps for the tests.

The test process loads neither framework. A peer is a child that has loaded one; it is sent the name of
a function, plain facts and arrays, and answers with arrays. Functions live beside this file, in
`tensorflow*.py` and `torch*.py`, and take (facts, arrays).
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import struct
import subprocess
import sys
import traceback
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
from safetensors.numpy import load, save

from parity_tests.helpers import ROOT

Arrays = dict[str, np.ndarray]
_LENGTHS = struct.Struct("<QQ")


class PeerError(Exception):
    """A function failed in the child; the message is its traceback."""


class Peer:
    """One framework process. Use as a context manager."""

    def __init__(self, framework: str, log: Path) -> None:
        self.framework, self._log = framework, log
        self._process = self._start()
        self._thread = ThreadPoolExecutor(1, framework)

    def _start(self) -> subprocess.Popen[bytes]:
        with open(self._log, "ab") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "parity_tests.peers", self.framework],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"},
            )

    def begin(self, function: str, facts: dict[str, Any], arrays: Arrays) -> Future[Arrays]:
        """Have `module:function` of this framework's files computed, without waiting for it.

        `function` leaves out the framework: "layers:forward_backward" is the function of that name in
        peers/tensorflow_layers.py or peers/torch_layers.py.
        """
        return self._thread.submit(self._call, function, facts, arrays)

    def __call__(self, function: str, facts: dict[str, Any], arrays: Arrays) -> Arrays:
        return self.begin(function, facts, arrays).result()

    def _call(self, function: str, facts: dict[str, Any], arrays: Arrays) -> Arrays:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            _send(self._process.stdin, {"function": function, "facts": facts}, arrays)
            answer, results = _receive(self._process.stdout)
        except (EOFError, BrokenPipeError):
            # One test's failure: those after it have a new process.
            gone, self._process = self._process, self._start()
            gone.stdout.close()
            with suppress(BrokenPipeError):
                gone.stdin.close()
            raise PeerError(f"{self.framework} {function}: the process ended with {gone.wait()}") from None
        if "error" in answer:
            raise PeerError(f"{self.framework} {function}: {answer['error']}")
        return results

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown(cancel_futures=True)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def _send(stream: IO[bytes], facts: dict[str, Any], arrays: Arrays) -> None:
    head = json.dumps(facts).encode()
    body = save({name: np.array(value, order="C") for name, value in arrays.items()})
    stream.write(_LENGTHS.pack(len(head), len(body)) + head + body)
    stream.flush()


def _receive(stream: IO[bytes]) -> tuple[dict[str, Any], Arrays]:
    lengths = stream.read(_LENGTHS.size)
    if len(lengths) < _LENGTHS.size:
        raise EOFError("the other side has gone")
    head, body = (stream.read(length) for length in _LENGTHS.unpack(lengths))
    return json.loads(head), load(body)


def serve(framework: str) -> None:
    """The child's side: answer until standard input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    # Whatever the framework prints must not be taken for an answer.
    os.dup2(2, 1)
    importlib.import_module(f"parity_tests.peers.{framework}_start")
    gc.freeze()  # the framework is never garbage: no collection walks through it
    while True:
        try:
            job, arrays = _receive(sys.stdin.buffer)
        except EOFError:
            os._exit(0)  # everything has been answered, and a framework takes seconds to clear up
        module, _, name = job["function"].partition(":")
        try:
            file = importlib.import_module(f"parity_tests.peers.{framework}_{module}")
            _send(answers, {}, getattr(file, name)(job["facts"], arrays))
        except Exception:
            _send(answers, {"error": traceback.format_exc()}, {})
