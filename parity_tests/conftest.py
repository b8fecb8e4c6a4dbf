"""What all tests of a session share: trained runs, framework processes, tables of what was measured."""

from __future__ import annotations

import gc
import os
import shutil
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_randomly
from hypothesis import settings

from parity_tests.helpers.run_cache import KEPT, RunCache
from parity_tests.peers import Peer
from parity_tests.tables.clean import CleanTable
from parity_tests.tables.diagnosis import DiagnosisTable
from parity_tests.tables.figures import Figures
from parity_tests.tables.kills import KillTable
from parity_tests.tables.soak import SoakTable
from parity_tests.tables.strategies import StrategyTable
from parity_tests.tables.vocabulary import Vocabulary
from parity_tests.tables.zoo import ZooTable


def pytest_configure() -> None:
    # How long one example takes is the machine's business.
    settings.register_profile("parity", deadline=None)
    settings.load_profile("parity")
    # DeepSpeed would have itself imported to be seeded, and torch with it; this process must have neither.
    pytest_randomly.entrypoint_reseeds = []


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist, which a user need not have
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Processes of `scripts/test`; 0: in this one.

    One more than cores, since each waits at times; no more than three, since each has framework processes of its own.
    """
    files = [Path(argument.partition("::")[0]) for argument in config.args]
    tables = [*COLLECTED, "corruption"]
    if any(config.getoption(f"--{name}") for name in tables) or (len(files) == 1 and files[0].is_file()):
        return 0  # a table is of all its tests; a file is one process's
    return min(3, (os.cpu_count() or 1) + 1)


@pytest.hookimpl(trylast=True)  # after pytest-randomly
def pytest_itemcollected(item: pytest.Item) -> None:
    """Of the cases of a sweep every third runs by default."""
    if item.get_closest_marker("sweep") and sum(item.callspec.indices.values()) % 3:  # type: ignore[attr-defined]
        item.add_marker("slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose what has its turn. Put files whose tests train first: no process is left with a long one while the other has nothing to do."""
    turn, turns = map(int, config.getoption("--turn").split("/"))
    chosen = [zlib.crc32(item.nodeid.encode()) % turns == turn for item in items]
    config.hook.pytest_deselected(items=[item for item, its in zip(items, chosen, strict=True) if not its])
    items[:] = [item for item, its in zip(items, chosen, strict=True) if its]
    training = {item.path for item in items if "run_cache" in getattr(item, "fixturenames", ())}
    items.sort(key=lambda item: item.path not in training)
    gc.freeze()  # modules and tests are never garbage: no collection walks through them


# What the tests measure, collected over the session and written where an option asks for it.
COLLECTED = {
    "figures": (Figures, "what the matrix and the faults showed"),
    "strategies": (StrategyTable, "what the tests of strategies showed"),
    "vocabulary": (Vocabulary, "what the tests of single entries showed"),
    "diagnoses": (DiagnosisTable, "what the diagnosis said of the planted faults"),
    "kills": (KillTable, "what came of the killed runs"),
    "soak": (SoakTable, "what long trainings took"),
    "clean": (CleanTable, "what the diagnosis said of pairs in which nothing is wrong"),
    "zoo": (ZooTable, "what came of the models of other people's packages"),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    for name, (_, shown) in COLLECTED.items():
        parser.addoption(f"--{name}", type=Path, help=f"write {shown}, as Markdown")
    turn = "K/N: of all tests that are chosen otherwise, those of the K-th turn of N, counted from 0 [0/1]"
    parser.addoption("--turn", default="0/1", help=turn)
    parser.addoption("--corruption", type=Path, help="write what was said of spoiled inputs, as Markdown")
    parser.addoption("--inputs", type=int, default=2000, help="how many spoiled inputs to try [2000]")
    parser.addoption("--inputs-seed", type=int, default=1, help="the seed that they are drawn from [1]")


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


figures, strategies, vocabulary, diagnoses, kills, soak, clean, zoo = map(_collected, COLLECTED)


@pytest.fixture(scope="session")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Peer]]:
    """One process of each framework for single layers, losses and optimizer steps."""
    folder = tmp_path_factory.mktemp("peers")
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(Peer(name, folder / f"{name}.log")) for name in ("tensorflow", "torch")
        }


@pytest.fixture(scope="session")
def run_cache(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunCache]:
    """Runs of this session's specs and placements, each trained once for all test processes."""
    with ExitStack() as stack:
        shared = Path(os.environ.get(KEPT) or _shared_runs(request.config))
        yield RunCache(shared, tmp_path_factory.mktemp("runs"), stack)


def _shared_runs(config: pytest.Config) -> Path:
    """Return the folder of the runs that all processes of this session share."""
    given = getattr(config, "workerinput", {}).get("shared_runs")  # set by pytest_configure_node
    return Path(given or config._tmp_path_factory.getbasetemp() / "shared_runs")


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_configure_node(node: Any) -> None:
    """Give a test process the folder of the process that started it."""
    node.workerinput["shared_runs"] = str(_shared_runs(node.config))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Remove the shared runs, once all test processes have ended."""
    if not hasattr(session.config, "workerinput"):
        shutil.rmtree(_shared_runs(session.config), ignore_errors=True)
