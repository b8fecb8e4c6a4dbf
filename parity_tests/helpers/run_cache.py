"""Runs that the tests compare, trained once for all test processes of a session.

Starting a framework costs seconds and tracing a step does, too: one worker of each framework serves a test
process, and a run that one process has trained is read by the others from a folder that they share.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import platform
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from importlib import metadata
from pathlib import Path

from parity.common.base.package import ROOT
from parity.common.execution.worker import Worker, Workers
from parity.common.record import RunRecord, read_record
from parity.common.spec import Instrumentation, Placement, RunConfig, RunOptions, TrainSpec
from parity.common.spec.strategies import Framework

# Replicas of the largest placement in the tests.
CAPACITY = 4
SOURCES = ("common", "tf_impl", "torch_impl")
PACKAGES = ("numpy", "tensorflow", "keras", "torch", "lightning", "accelerate", "deepspeed", "scikit-learn")
# A folder to keep runs in from one session to the next.
KEPT = "PARITY_TEST_CACHE"
# File beside a kept run with the sizes and times of its files: no test may change them.
LISTING = "listing.json"


def source_digest(root: Path = ROOT) -> str:
    """Return a digest of every Python file of ours that a run executes."""
    digest = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((root / folder).rglob("*.py")):
            for part in (path.relative_to(root).as_posix().encode(), path.read_bytes()):
                digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


@functools.cache
def environment() -> dict[str, object]:
    """Return what a run depends on besides its spec and its placement: source, versions, machine."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            pass
    machine = [platform.node(), platform.machine(), os.cpu_count(), CAPACITY]
    return {"source": source_digest(), "versions": versions, "machine": machine}


def key_of(spec: TrainSpec, config: RunConfig, environment: dict[str, object]) -> str:
    """Return the name of a run in the cache, the same in every process."""
    facts = {"spec": spec.resolved().to_dict(), **config.to_dict(), **environment}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def refers_outside(value: object) -> bool:
    """Whether a spec or placement, as a dict, names a file or "module:function", whose content no key covers."""
    if isinstance(value, dict):
        return any(map(refers_outside, value.values()))
    if isinstance(value, list | tuple):
        return any(map(refers_outside, value))
    return isinstance(value, str) and (os.sep in value or ":" in value)


def listing(folder: Path) -> dict[str, list[int]]:
    """Return the size and the time of the last change of each file in a folder."""
    files = ((path, path.stat()) for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): [stat.st_size, stat.st_mtime_ns] for path, stat in files}


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a file lock, which the system releases should this process die."""
    with open(path, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class GivenWorkers(Workers):
    """Workers that others have started, and end."""

    def __init__(self, worker_of: Callable[[Placement], Worker]) -> None:
        super().__init__(Path())  # where logs go of processes that it starts: of none
        self.of = worker_of  # type: ignore[method-assign]


class RunCache:
    """Trains on request, each (spec, run, fault) once; the two frameworks work side by side.

    A run is a placement, with default run options, or a `RunConfig`.

    Args:
        shared: folder of the runs that all test processes share. A run appears there whole or not at all.
        own: folder of this process's other runs: those under a fault, and those that read files.
        stack: ends the threads and the workers.
    """

    def __init__(self, shared: Path, own: Path, stack: ExitStack) -> None:
        self._shared, self._own = shared, own
        shared.mkdir(parents=True, exist_ok=True)
        self._stack = stack
        self._runs: dict[tuple, Future[Path]] = {}
        self._asking = threading.Lock()
        self._workers: dict[Framework, Worker] = {}
        self._threads = {f: ThreadPoolExecutor(1, f) for f in ("tensorflow", "torch")}
        for thread in self._threads.values():
            stack.callback(thread.shutdown, cancel_futures=True)

    def begin(self, spec: TrainSpec, run: Placement | RunConfig, fault: str | None = None) -> Future[Path]:
        """Have a run made, without waiting for it. fault: its name in `faults`, or else "module:function"."""
        spec = spec.resolved()
        config = run if isinstance(run, RunConfig) else RunConfig(placement=run)
        key = (spec.content_hash(), config, fault)
        with self._asking:  # diagnoses ask from threads of their own
            if key not in self._runs:
                folder = self._own / f"{len(self._runs)}_{config.label.replace(' ', '_')}"
                thread = self._threads[config.placement.framework]
                self._runs[key] = thread.submit(self._made, spec, config, folder, fault)
            return self._runs[key]

    def record(self, spec: TrainSpec, run: Placement | RunConfig, fault: str | None = None) -> RunRecord:
        """Return the record of a run."""
        return read_record(self.begin(spec, run, fault).result())

    def worker(self, framework: Framework) -> Worker:
        """Return this process's worker of a framework; it is started when it is first asked for."""
        with self._asking:
            if framework not in self._workers:
                log = self._own / f"{framework}.log"
                self._workers[framework] = self._stack.enter_context(Worker(framework, CAPACITY, log))
            return self._workers[framework]

    def replayer(self) -> Workers:
        """Return what has replays run by the workers of the cache."""
        return GivenWorkers(lambda placement: self.worker(placement.framework))

    def _made(self, spec: TrainSpec, config: RunConfig, folder: Path, fault: str | None) -> Path:
        placement, options, instrumentation = config.parts
        worker = self.worker(placement.framework)
        if fault is not None:
            inside = fault if ":" in fault else f"parity_tests.faults.{placement.framework}:{fault}"
            instrumentation = Instrumentation(replay=instrumentation.replay, context=inside)
            return worker.train(spec, placement, folder, options, instrumentation)
        if refers_outside([spec.to_dict(), config.to_dict()]):
            return worker.train(spec, placement, folder, options, instrumentation)
        key = key_of(spec, config, environment())
        kept = self._shared / key
        run = kept / placement.label.replace(" ", "_")
        with locked(self._shared / f"{key}.lock"):
            if not kept.exists():
                unfinished = self._shared / f"{key}.unfinished"
                shutil.rmtree(unfinished, ignore_errors=True)  # of a process that was killed
                worker.train(spec, placement, unfinished / run.name, options, instrumentation)
                (unfinished / LISTING).write_text(json.dumps(listing(unfinished / run.name)))
                unfinished.rename(kept)
            elif json.loads((kept / LISTING).read_text()) != listing(run):
                raise RuntimeError(f"a test has changed the files of a shared run: {run}")
        return run


class CachedReplayer(GivenWorkers):
    """Replays in the run cache's workers; what is no candidate's is made once and kept."""

    def __init__(self, run_cache: RunCache) -> None:
        super().__init__(lambda placement: run_cache.worker(placement.framework))
        self._run_cache = run_cache

    def train(
        self,
        spec: TrainSpec,
        placement: Placement,
        out_dir: Path,
        run_options: RunOptions = RunOptions(),
        instrumentation: Instrumentation = Instrumentation(),
    ) -> Path:
        replay, options = instrumentation.replay, (run_options, instrumentation)
        if instrumentation.context or (replay and (replay.forced or replay.begin or replay.history)):
            return super().train(spec, placement, out_dir, *options)
        config = RunConfig(placement=placement, run_options=run_options, instrumentation=instrumentation)
        return self._run_cache.begin(spec, config).result()
