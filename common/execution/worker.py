"""A framework process that serves many runs: starting a framework costs seconds, a run need not.

The parent writes one JSON job a line to the child's standard input and reads one JSON answer a
line. What the frameworks themselves print goes to the worker's log.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from parity.common.base.errors import MissingPackageError, ParityError, RunError, how_to_install
from parity.common.base.package import MODULES, ROOT
from parity.common.execution.ranks import last_line
from parity.common.spec import Placement, TrainSpec
from parity.common.spec.strategies import Framework

EXTRAS: dict[Framework, str] = {"tensorflow": "tf", "torch": "torch"}
_CLOSE_SECONDS = 20


def require(framework: Framework) -> None:
    """Raise MissingPackageError with the command that installs a framework that is not there."""
    if importlib.util.find_spec(framework) is None:
        raise MissingPackageError(f"{framework} is not installed; {how_to_install(EXTRAS[framework])}")


class Worker:
    """A child process of one framework. Use as a context manager."""

    def __init__(self, framework: Framework, capacity: int, log: Path | None = None) -> None:
        """Start the process.

        Args:
            framework: which one.
            capacity: replicas of the largest placement it will run; TensorFlow also takes its
                number of threads from it, so speed is measured in a worker of exactly that size.
            log: where the child's own output goes; default: a temporary file, kept on failure.

        Raises:
            MissingPackageError: the framework is not installed.
        """
        require(framework)
        self.framework = framework
        self._own_log = log is None
        if log is None:
            handle, name = tempfile.mkstemp(prefix=f"parity-{framework}-", suffix=".log")
            os.close(handle)
            log = Path(name)
        self.log = log
        self._lock = threading.Lock()
        path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
        with open(log, "ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", MODULES[framework], "--worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            )
        self._send({"capacity": capacity})

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def train(self, spec: TrainSpec, placement: Placement, out_dir: Path, inside: str | None = None) -> Path:
        """Run one job to its end and return the record's folder. Safe to call from any thread.

        Args:
            spec: what.
            placement: how; of this worker's framework.
            out_dir: the new record.
            inside: "module:function" of a context manager to run the job inside, in the child: a
                profiler, or a seeded fault.

        Raises:
            RunError: the run failed, or the process died; with the child's own last line.
        """
        job = {
            "spec": spec.to_dict(),
            "placement": placement.to_dict(),
            "out": str(out_dir),
            "inside": inside,
        }
        self._ask(job, placement)
        return out_dir

    def trial(self, placement: Placement, folder: Path) -> None:
        """Have the single layers described in a folder tried, for a diagnosis; their results are left there.

        Args:
            placement: of this worker's framework; says on what device, with how many threads.
            folder: holds trials.json and trials.safetensors.

        Raises:
            RunError: as `train`.
        """
        self._ask({"placement": placement.to_dict(), "trial": str(folder)}, placement)

    def _ask(self, job: dict[str, Any], placement: Placement) -> None:
        """Send a job and wait for its end."""
        with self._lock:
            self._send(job)
            assert self._process.stdout is not None
            answer = self._process.stdout.readline()
        if not answer:
            code = self._process.wait()
            self._own_log = False
            raise RunError(f"the {self.framework} process ended with code {code}: {last_line(self.log)}")
        result = json.loads(answer)
        if "error" in result:
            raise RunError(f"{placement.label}: {result['error']}")

    def _send(self, job: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # reading the answer finds the process gone, and says why

    def close(self) -> None:
        """End the process: politely, then by force."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        if self._own_log:
            self.log.unlink(missing_ok=True)


def serve(module: str) -> None:
    """The child's side: answer jobs for tf_impl or torch_impl until standard input ends."""
    train = importlib.import_module(f"{module}.train").train
    configure = importlib.import_module(f"{module}.runtime").configure
    answers = os.fdopen(os.dup(1), "w")
    # Whatever the frameworks print must not be taken for an answer.
    os.dup2(2, 1)
    capacity = int(json.loads(sys.stdin.readline())["capacity"])
    configured = False
    for line in sys.stdin:
        job = json.loads(line)
        answer: dict[str, Any]
        try:
            placement = Placement.parse(job["placement"])
            if not configured:
                configure(placement, capacity)
                configured = True
            if "trial" in job:
                importlib.import_module(f"{module}.layer_trial").run(Path(job["trial"]))
            else:
                _run(train, job, placement)
            answer = {"done": True}
        except ParityError as error:
            answer = {"error": str(error)}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _run(train: Callable[..., Path], job: dict[str, Any], placement: Placement) -> None:
    spec, out = TrainSpec.parse(job["spec"]), Path(job["out"])
    if job["inside"] is None:
        train(spec, placement, out)
        return
    module, _, name = job["inside"].partition(":")
    with getattr(importlib.import_module(module), name)():
        train(spec, placement, out)
