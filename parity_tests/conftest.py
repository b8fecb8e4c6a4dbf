"""Session-wide training: starting a framework costs seconds, so one process of each serves all tests."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_randomly

from parity.common.execution.worker import Worker
from parity.common.record import RunRecord, read_record
from parity.common.spec import Placement, TrainSpec
from parity_tests.clean_table import CleanTable
from parity_tests.diagnosis_table import DiagnosisTable
from parity_tests.figures import Figures
from parity_tests.kill_table import KillTable
from parity_tests.peers import Peer
from parity_tests.strategies import StrategyTable
from parity_tests.vocabulary import Vocabulary
from parity_tests.zoo_table import ZooTable

# Replicas of the largest placement in the tests.
CAPACITY = 4


class Farm:
    """Trains on request, each (spec, placement, fault) once; the two frameworks work side by side."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._runs: dict[tuple, Future[Path]] = {}
        self._asking = threading.Lock()
        self._workers: dict[str, Worker] = {}
        self._threads = {f: ThreadPoolExecutor(1, f) for f in ("tensorflow", "torch")}
        for thread in self._threads.values():
            stack.callback(thread.shutdown, cancel_futures=True)

    def begin(self, spec: TrainSpec, placement: Placement, fault: str | None = None) -> Future[Path]:
        """Have a run made, without waiting for it. fault: its name in `faults`, or else "module:function"."""
        spec = spec.resolved()
        key = (spec.fingerprint(), placement, fault)
        with self._asking:  # diagnoses ask from threads of their own
            if key not in self._runs:
                folder = self._folder / f"{len(self._runs)}_{placement.label.replace(' ', '_')}"
                thread = self._threads[placement.framework]
                self._runs[key] = thread.submit(self._train, spec, placement, folder, fault)
            return self._runs[key]

    def record(self, spec: TrainSpec, placement: Placement, fault: str | None = None) -> RunRecord:
        """The record of a run."""
        return read_record(self.begin(spec, placement, fault).result())

    def _train(self, spec: TrainSpec, placement: Placement, folder: Path, fault: str | None) -> Path:
        framework = placement.framework
        if framework not in self._workers:
            worker = Worker(framework, CAPACITY, self._folder / f"{framework}.log")
            self._workers[framework] = self._stack.enter_context(worker)
        inside = fault if fault is None or ":" in fault else f"parity_tests.faults.{framework}:{fault}"
        return self._workers[framework].train(spec, placement, folder, inside=inside)


def pytest_configure() -> None:
    # DeepSpeed would have itself imported to be seeded, and torch with it; this process must have neither.
    pytest_randomly.entrypoint_reseeds = []


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist, which a user need not have
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Processes of `scripts/test`; 0: in this one. Each has framework processes of its own, hence no more than two."""
    files = [Path(argument.partition("::")[0]) for argument in config.args]
    tables = [*COLLECTED, "corruption"]
    if any(config.getoption(f"--{name}") for name in tables) or (len(files) == 1 and files[0].is_file()):
        return 0  # a table is of all its tests; a file is one process's
    return min(2, os.cpu_count() or 1)


# What the tests measure, collected over the session and written where an option asks for it.
COLLECTED = {
    "figures": (Figures, "what the matrix and the faults showed"),
    "strategies": (StrategyTable, "what the tests of strategies showed"),
    "vocabulary": (Vocabulary, "what the tests of single entries showed"),
    "diagnoses": (DiagnosisTable, "what the diagnosis said of the planted faults"),
    "kills": (KillTable, "what came of the killed runs"),
    "clean": (CleanTable, "what the diagnosis said of pairs in which nothing is wrong"),
    "zoo": (ZooTable, "what came of the models of other people's packages"),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    for name, (_, shown) in COLLECTED.items():
        parser.addoption(f"--{name}", type=Path, help=f"write {shown}, as Markdown")
    parser.addoption("--corruption", type=Path, help="write what was said of corrupted files, as Markdown")


def _collected(name: str) -> Any:
    kind, shown = COLLECTED[name]

    def collected(request: pytest.FixtureRequest) -> Iterator[Any]:
        table = kind()
        yield table
        path = request.config.getoption(f"--{name}")
        if path is not None:
            table.write(path)

    collected.__doc__ = f"Collects {shown}; written at the end where --{name} asks for it."
    return pytest.fixture(scope="session", name=name)(collected)


figures, strategies, vocabulary, diagnoses, kills, clean, zoo = map(_collected, COLLECTED)


@pytest.fixture(scope="session")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Peer]]:
    """One process of each framework for single layers, losses and optimizer steps."""
    folder = tmp_path_factory.mktemp("peers")
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(Peer(name, folder / f"{name}.log")) for name in ("tensorflow", "torch")
        }


@pytest.fixture(scope="session")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    with ExitStack() as stack:
        yield Farm(tmp_path_factory.mktemp("farm"), stack)
