"""Replays: runs and single layers that a diagnosis asks for, in workers that live as long as it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from parity.common.execution.worker import Worker
from parity.common.spec import Instrumentation, Placement, RunOptions, TrainSpec
from parity.common.spec.strategies import Framework

Workers = Callable[[Placement], Worker]


class Replayer:
    """Has replays run, from any thread. Use as a context manager: it ends the workers that it has started.

    workers: the process for a placement; none given: its own, with their logs in `logs`.
    """

    def __init__(self, workers: Workers | None = None, logs: Path | None = None) -> None:
        self._given, self._logs = workers, logs
        self._stack = ExitStack()
        self._lock = threading.Lock()
        self._own: dict[tuple[Framework, int], Worker] = {}

    def __enter__(self) -> Replayer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers that were started here."""
        self._own.clear()
        self._stack.close()

    def run(
        self,
        spec: TrainSpec,
        placement: Placement,
        folder: Path,
        run_options: RunOptions = RunOptions(),
        instrumentation: Instrumentation = Instrumentation(),
    ) -> Path:
        """Have a run made in a new folder; returns it.

        Raises:
            RunError: it failed, with its own last line.
        """
        return self._worker(placement).train(spec, placement, folder, run_options, instrumentation)

    def trial(self, framework: Framework, folder: Path) -> None:
        """Have the layers described in a folder tried in a framework: `{tf,torch}_impl/trial.py`."""
        strategy = "mirrored" if framework == "tensorflow" else "single"
        placement = Placement.parse({"framework": framework, "strategy": strategy})
        usable = [worker for (name, _), worker in self._own.items() if name == framework]
        (usable[0] if usable else self._worker(placement)).trial(placement, folder)

    def _worker(self, placement: Placement) -> Worker:
        if self._given is not None:
            return self._given(placement)
        # TensorFlow's devices belong to its process; torch starts its ranks anew for every run.
        size = placement.replicas if placement.framework == "tensorflow" else 1
        key = (placement.framework, size)
        with self._lock:
            if key not in self._own:
                log = None
                if self._logs is not None:
                    self._logs.mkdir(parents=True, exist_ok=True)
                    log = self._logs / f"{placement.framework}_{size}.log"
                self._own[key] = self._stack.enter_context(Worker(placement.framework, size, log))
            return self._own[key]
