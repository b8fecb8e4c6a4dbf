"""What the rows are made with: trainings in worker processes, each made once; functions of torch in a process of their own."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from parity.common import recipes
from parity.common.base.errors import MissingPackageError, RunError
from parity.common.execution.interpreters import missing_in, python_of, require
from parity.common.execution.processes.child import command, environment, last_line
from parity.common.execution.worker import Worker, describe
from parity.common.parity.budget import Budget, ensemble_budget, proof_budget, widest
from parity.common.parity.compare import Comparison, compare
from parity.common.record import RunRecord, read_record
from parity.common.spec import Instrumentation, Placement, RunConfig, TrainSpec, override
from parity.common.spec.strategies import Framework
from parity_tests.gpu.rows import NotPossibleError

Device = Literal["gpu", "cpu"]
# A row's run, or its function, that takes longer is ended: the whole check has ten minutes.
RUN_SECONDS = 120.0
# A collective that takes longer ends its run, with a line that says so.
TIMEOUT_SECONDS = 60
# 1437 digits are 11 batches of 130 and one of 7: the steps of a check have an uneven tail among them.
BATCH = "global_batch_size=130"
# Where scikit-learn is not installed: samples of the same shape, made from their ids.
_MADE = "data.source={kind: synthetic, shape: [8, 8, 1], classes: 10, low: 0.0}"
_MEMBERS = 4
_MODULE = "parity_tests.gpu.torch_side"


class Bench(AbstractContextManager["Bench"]):
    """Trains on request, each (spec, run) once, on one device. Use as a context manager.

    The runs that are judged are those of `candidate`. On a CPU they have two threads, so that sums are made in
    another order there, too.
    """

    def __init__(self, device: Device, folder: Path, inside: str | None = None) -> None:
        """Begin.

        Args:
            device: what is checked.
            folder: where records go.
            inside: "module:function" of a context manager that candidates of torch run inside, such as a planted fault.
        """
        self.device, self.folder, self._inside = device, folder, inside
        self._workers: dict[tuple[str, str], Worker] = {}
        self._runs: dict[str, RunRecord] = {}
        self._answers: dict[str, Any] = {}

    def __exit__(self, *_: object) -> None:
        self.end_workers()

    def end_workers(self) -> None:
        """End all workers. A GPU's error leaves its process useless, so the next run begins with a new one."""
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()

    @property
    def on_gpu(self) -> bool:
        """Whether GPUs are checked."""
        return self.device == "gpu"

    @cached_property
    def torch(self) -> dict[str, Any]:
        """Versions and devices as torch reports them; raises MissingPackageError where torch does not start."""
        require("torch")
        facts: dict[str, Any] = self.ask("facts")
        return facts

    @cached_property
    def lacks(self) -> dict[str, Any]:
        """What this torch cannot do here, as `parity doctor` has it."""
        found: dict[str, Any] = describe("torch")["lacks"]
        return found

    @property
    def gpus(self) -> int:
        """How many GPUs there are."""
        return len(self.torch["gpus"])

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability of the first GPU; raises NotPossibleError on a CPU."""
        if not self.on_gpu:
            raise NotPossibleError("a CPU")
        major, minor = self.torch["gpus"][0]["capability"]
        return major, minor

    def spec(self, recipe: str, *assignments: str) -> TrainSpec:
        """A recipe with overrides; of the digits as shipped, or where scikit-learn is not installed of made ones.

        On a CPU with narrower convolutions.
        """
        digits = recipe.startswith("digits")
        given = [BATCH] if digits else []
        if digits and missing_in(python_of("torch"), ("sklearn",)):
            given.append(_MADE)
        if recipe == "digits_cnn" and not self.on_gpu:
            given += ["model.layers.0.filters=8", "model.layers.3.filters=16"]
        return override(recipes.get(recipe), [*given, *assignments]).resolved()

    def reference(self, spec: TrainSpec, text: str = "torch:single:1", **fields: Any) -> RunRecord:
        """The run on a CPU that a candidate is judged by; fields: of the placement and of the run options."""
        return self._run(spec, RunConfig.from_text(text, device="cpu", **fields))

    def candidate(self, spec: TrainSpec, text: str = "torch:single:1", **fields: Any) -> RunRecord:
        """A run on the device that is checked; raises RunError where it fails or takes too long."""
        threads = {} if self.on_gpu or ":single:" not in text else {"threads_per_replica": 2}
        config = RunConfig.from_text(text, device=self.device, **threads, **fields)
        planted = self._inside if config.placement.framework == "torch" else None
        return self._run(spec, config, planted)

    def _run(self, spec: TrainSpec, config: RunConfig, inside: str | None = None) -> RunRecord:
        config = config.having(timeout_seconds=TIMEOUT_SECONDS)
        key = json.dumps([spec.content_hash(), config.to_dict(), inside], sort_keys=True)
        if key not in self._runs:
            folder = self.folder / f"{len(self._runs):02d}_{config.label.replace(' ', '_')}"
            placement, options, _ = config.parts
            with self._within(self._worker(placement)) as worker:
                worker.train(spec, placement, folder, options, Instrumentation(context=inside))
            self._runs[key] = read_record(folder)
        return self._runs[key]

    def _worker(self, placement: Placement) -> Worker:
        """One for each framework and device: TensorFlow chooses its devices when it starts."""
        framework: Framework = placement.framework
        key = (framework, placement.device)
        if key not in self._workers:
            log = self.folder / f"{framework}_{placement.device}.log"
            capacity = 2 if placement.device == "cpu" else 1
            self._workers[key] = Worker(framework, capacity, log)
        return self._workers[key]

    @contextmanager
    def _within(self, worker: Worker) -> Iterator[Worker]:
        """End a worker that takes longer than RUN_SECONDS, by which its run fails."""
        late = threading.Event()

        def end() -> None:
            late.set()
            worker.close()

        timer = threading.Timer(RUN_SECONDS, end)
        timer.start()
        try:
            yield worker
        except RunError:
            if late.is_set():
                raise RunError(f"took more than {RUN_SECONDS:g} s and was ended") from None
            raise
        finally:
            timer.cancel()

    def ask(self, function: str) -> Any:
        """The answer of a function of `torch_side`, asked once, in a process of its own.

        Raises RunError with the process's last line where it fails.
        """
        if function not in self._answers:
            folder = self.folder / function
            folder.mkdir(parents=True)
            call = command(_MODULE, function, self.device, str(folder), python=python_of("torch"))
            log = folder / "log"
            try:
                with open(log, "w") as said:
                    done = subprocess.run(
                        call,
                        stdout=said,
                        stderr=said,
                        env=environment(),
                        cwd=folder,
                        timeout=RUN_SECONDS,
                    )
            except subprocess.TimeoutExpired:
                raise RunError(f"{function} took more than {RUN_SECONDS:g} s and was ended") from None
            if done.returncode:
                raise RunError(f"{function}: {last_line(log)}")
            self._answers[function] = json.loads((folder / "answer.json").read_text())
        return self._answers[function]

    def proof(self, reference: RunRecord, candidate: RunRecord) -> Comparison:
        """Two runs in float64, compared within the limits of the law."""
        return compare(reference, candidate, proof_budget(reference))

    def within_floor(self, spec: TrainSpec) -> Comparison:
        """The device's run of a spec below float64 against the CPU's, within the wider of both noise floors."""
        reference, candidate = self.reference(spec), self.candidate(spec)
        return compare(reference, candidate, widest([*self._floors(spec)]))

    def _floors(self, spec: TrainSpec) -> Iterator[Budget]:
        for made in [self.reference] + [self.candidate] * self.on_gpu:
            members = [made(spec, sample_order_seed=seed) for seed in range(_MEMBERS)]
            yield ensemble_budget(made(spec), members)

    def tensorflow(self) -> None:
        """Raise NotPossibleError where TensorFlow cannot train on the device."""
        try:
            require("tensorflow")
            gpus = describe("tensorflow")["gpus"] if self.on_gpu else []
        except MissingPackageError as error:
            raise NotPossibleError(str(error).partition(";")[0]) from None
        if self.on_gpu and not gpus:
            raise NotPossibleError("TensorFlow sees no GPU; it needs tensorflow[and-cuda]")
