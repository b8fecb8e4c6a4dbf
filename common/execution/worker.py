"""A framework process that serves many runs: starting a framework costs seconds, a run need not."""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from parity.common.base.errors import MissingPackageError, RunError
from parity.common.base.package import MODULES
from parity.common.execution.hooks import entered
from parity.common.execution.interpreters import python_of, require
from parity.common.execution.processes.child import Child
from parity.common.execution.processes.liveness import OUTER, growth, silence_limit
from parity.common.execution.processes.service import Service
from parity.common.record.trials import run_trials
from parity.common.spec import Instrumentation, Placement, RunConfig, RunOptions, TrainSpec
from parity.common.spec.strategies import Framework

_SERVICE = "parity.common.execution.worker:Trainings"
_DESCRIBE_SECONDS = 120.0


def describe(framework: Framework) -> dict[str, Any]:
    """Return a framework's versions, devices and strategies; raises MissingPackageError where it does not start."""
    name = f"the {framework} process"
    python = python_of(framework)
    with Child(_SERVICE, framework, "1", python=python, name=name, error=MissingPackageError) as child:
        try:
            facts: dict[str, Any] = child.ask("describe", {}, _DESCRIBE_SECONDS)
        except MissingPackageError as error:
            raise MissingPackageError(f"is installed but does not start: {error}") from None
    return facts


class Worker(AbstractContextManager["Worker"]):
    """A child process of one framework. Use as a context manager."""

    def __init__(
        self, framework: Framework, capacity: int, log: Path, variables: Mapping[str, str] | None = None
    ) -> None:
        """Start the process.

        Args:
            framework: which one.
            capacity: replicas of the largest placement it will run; TensorFlow also takes its
                number of threads from it, so speed is measured in a worker of exactly that size.
            log: where the child's own output goes.
            variables: of its environment, besides the usual ones.

        Raises:
            MissingPackageError: the framework is not installed.
        """
        require(framework)
        self.framework = framework
        self._lock = threading.Lock()
        self._child = Child(
            _SERVICE,
            framework,
            str(capacity),
            python=python_of(framework),
            name=f"the {framework} process",
            log=log,
            variables=variables,
        )

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def log_matters(self) -> bool:
        """Whether an error has pointed to the log."""
        return self._child.log_matters

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        return self._child.running

    def train(
        self,
        spec: TrainSpec,
        placement: Placement,
        out_dir: Path,
        run_options: RunOptions = RunOptions(),
        instrumentation: Instrumentation = Instrumentation(),
    ) -> Path:
        """Run one job to its end and return the record's folder. Safe to call from any thread.

        Args:
            spec: what.
            placement: how; of this worker's framework.
            out_dir: the new record. Where nothing in it has changed for `silence_limit`, the process is ended.
            run_options: what to record, save and time.
            instrumentation: how to observe the run; its context, a profiler or a seeded fault, is entered
                in the child.

        Raises:
            RunError: the run failed, or the process died; with the child's own last line.
        """
        run = RunConfig(placement=placement, run_options=run_options, instrumentation=instrumentation)
        job = {"spec": spec.to_dict(), "out": str(out_dir), **run.to_dict()}
        self._ask("train", job, placement, out_dir)
        return out_dir

    def trial(self, placement: Placement, folder: Path) -> None:
        """Have the layers described in a folder tried for a diagnosis (`record/trials.py`); raises as `train`.

        placement: of this worker's framework; says on what device, with how many threads.
        """
        self._ask("trial", {"placement": placement.to_dict(), "folder": str(folder)}, placement, folder)

    def _ask(self, question: str, arguments: dict[str, Any], placement: Placement, folder: Path) -> None:
        with self._lock:
            try:
                limit = silence_limit(placement.timeout_seconds) * OUTER
                self._child.ask(question, arguments, limit, functools.partial(growth, folder))
            except RunError as error:
                if self._child.running:
                    raise RunError(f"{placement.label}: {error}") from None
                raise

    def close(self) -> None:
        """End the process: politely, then by force."""
        self._child.close()


class Workers(AbstractContextManager["Workers"]):
    """Worker processes, each started when first asked for, by any thread. Use as a context manager; it may be entered again."""

    def __init__(self, logs: Path, variables: Mapping[str, str] | None = None) -> None:
        """`logs`: the folder that the processes' own output goes into. variables: as of `Worker`."""
        self._stack, self._lock = ExitStack(), threading.Lock()
        self._logs, self._variables = logs, variables
        self._started: dict[str, Worker] = {}
        self._log_matters = False

    def __exit__(self, *_: object) -> None:
        self._log_matters = self.log_matters
        self._started.clear()
        self._stack.close()

    @property
    def log_matters(self) -> bool:
        """Whether an error has pointed to one of the logs."""
        return self._log_matters or any(worker.log_matters for worker in self._started.values())

    def of(self, placement: Placement) -> Worker:
        """The process that runs a placement."""
        # TensorFlow's devices and threads belong to its process; torch starts its ranks anew for every run.
        size = placement.replicas if placement.framework == "tensorflow" else 1
        name = f"{placement.framework}_{size}"
        with self._lock:
            if name not in self._started:
                self._logs.mkdir(parents=True, exist_ok=True)
                log = self._logs / f"{name}.log"
                worker = Worker(placement.framework, size, log, self._variables)
                self._started[name] = self._stack.enter_context(worker)
            return self._started[name]

    def train(
        self,
        spec: TrainSpec,
        placement: Placement,
        out_dir: Path,
        run_options: RunOptions = RunOptions(),
        instrumentation: Instrumentation = Instrumentation(),
    ) -> Path:
        """Run one job to its end in the process of its placement; as `Worker.train`."""
        return self.of(placement).train(spec, placement, out_dir, run_options, instrumentation)

    def trial(self, framework: Framework, folder: Path) -> None:
        """Have the layers described in a folder tried in a framework; as `Worker.trial`."""
        strategy = "mirrored" if framework == "tensorflow" else "single"
        placement = Placement.parse({"framework": framework, "strategy": strategy})
        started = [worker for worker in self._started.values() if worker.framework == framework]
        (started[0] if started else self.of(placement)).trial(placement, folder)


class Trainings(Service):
    """The child's side: trains, one run after the other."""

    def __init__(self, framework: Framework, capacity: str) -> None:
        self._module, self._capacity = MODULES[framework], int(capacity)
        self._configured = False

    def train(self, spec: Any, out: str, **run: Any) -> None:
        placement, options, instrumentation = RunConfig.parse(run).parts
        parsed = TrainSpec.parse(spec)
        self._configure(placement, "nondeterministic" not in parsed.stock)
        with entered(instrumentation.context):
            self._part("train").train(parsed, placement, Path(out), options, instrumentation)

    def trial(self, placement: Any, folder: str) -> None:
        self._configure(Placement.parse(placement))
        run_trials(Path(folder), self._part("layer_trial").tried)

    def describe(self) -> Any:
        return self._part("runtime").describe()

    def _configure(self, placement: Placement, deterministic: bool = True) -> None:
        if not self._configured:
            self._part("runtime").configure(placement, self._capacity, deterministic)
            self._configured = True

    def _part(self, name: str) -> Any:
        return importlib.import_module(f"{self._module}.{name}")
