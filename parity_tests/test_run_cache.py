"""The cache of runs: each trained once for all processes, never under a fault, never from other source."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from parity.common.base.errors import RunError
from parity.common.spec import Instrumentation, RunConfig, override
from parity_tests.helpers import ROOT
from parity_tests.helpers import run_cache as module
from parity_tests.helpers.matrix import small, tensorflow, torch
from parity_tests.helpers.run_cache import SOURCES, RunCache, key_of, refers_outside, source_digest

SPEC = small("digits_mlp", "steps=4")
PLACE = torch("ddp", 2)
CONFIG = RunConfig(placement=PLACE)


class Trainer:
    """Stands for a worker: writes a file where a run would be, and counts."""

    def __init__(self) -> None:
        self.trained: list[str | None] = []
        self.error: Exception | None = None

    def train(
        self, spec: Any, placement: Any, folder: Path, options: Any, instrumentation: Instrumentation
    ) -> Path:
        del spec, placement, options
        self.trained.append(instrumentation.context)
        folder.mkdir(parents=True)
        (folder / "steps").write_text("half")
        sleep(0.05)
        if self.error is not None:
            raise self.error
        (folder / "steps").write_text("whole")
        return folder


@pytest.fixture
def process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], tuple[RunCache, Trainer]]]:
    """Makes the caches of several processes, which share one folder."""
    trainers: dict[int, Trainer] = {}
    monkeypatch.setattr(RunCache, "worker", lambda self, framework: trainers[id(self)])
    caches: list[RunCache] = []
    with ExitStack() as stack:

        def make() -> tuple[RunCache, Trainer]:
            cache = RunCache(tmp_path / "shared", tmp_path / f"own_{len(caches)}", stack)
            caches.append(cache)
            trainers[id(cache)] = Trainer()
            return cache, trainers[id(cache)]

        yield make


def test_processes_train_a_run_once(process: Callable) -> None:
    caches, trainers = zip(*(process() for _ in range(4)), strict=True)
    with ThreadPoolExecutor(4) as pool:
        folders = list(pool.map(lambda cache: cache.begin(SPEC, PLACE).result(), caches))
    assert len(set(folders)) == 1
    assert (folders[0] / "steps").read_text() == "whole"
    assert sum(len(trainer.trained) for trainer in trainers) == 1
    # Within a process nothing is even looked up again.
    assert caches[0].begin(SPEC, PLACE) is caches[0].begin(SPEC, PLACE)


def test_another_spec_or_placement_is_another_run(process: Callable) -> None:
    cache, trainer = process()
    asked = [
        (SPEC, PLACE),
        (override(SPEC, ["seed=1"]), PLACE),
        (SPEC, torch("ddp", 4)),
        (SPEC, tensorflow(2)),
        (SPEC, CONFIG.having(digests=True)),
    ]
    folders = [cache.begin(spec, placement).result() for spec, placement in asked]
    assert len(set(folders)) == len(trainer.trained) == len(asked)


def test_runs_under_faults_are_not_shared(process: Callable) -> None:
    (first, one), (second, other) = process(), process()
    for cache in (first, second):
        cache.begin(SPEC, PLACE, "gradients_not_zeroed").result()
        cache.begin(SPEC, PLACE, "gradients_not_zeroed").result()
        cache.begin(SPEC, PLACE).result()
    assert one.trained == ["parity_tests.faults.torch:gradients_not_zeroed", None]
    assert other.trained == one.trained[:1]


def test_runs_that_read_files_are_not_shared(process: Callable, tmp_path: Path) -> None:
    (first, _), (second, other) = process(), process()
    resumed = CONFIG.having(resume=str(tmp_path / "checkpoint"))
    assert first.begin(SPEC, resumed).result() != second.begin(SPEC, resumed).result()
    assert other.trained == [None]
    assert refers_outside({"model": [{"keras": "some.module:net"}]})
    assert not refers_outside([SPEC.to_dict(), CONFIG.to_dict()])


def test_a_failed_run_is_not_kept(process: Callable) -> None:
    (first, failing), (second, trainer) = process(), process()
    failing.error = RunError("out of memory")
    with pytest.raises(RunError, match="out of memory"):
        first.begin(SPEC, PLACE).result()
    # What the first has left, as one that was killed would, is not taken for a run.
    assert (second.begin(SPEC, PLACE).result() / "steps").read_text() == "whole"
    assert trainer.trained == [None]


def test_a_shared_run_that_a_test_changed_is_refused(process: Callable) -> None:
    first, second = process()[0], process()[0]
    (first.begin(SPEC, PLACE).result() / "steps").write_text("other")
    with pytest.raises(RuntimeError, match="a test has changed"):
        second.begin(SPEC, PLACE).result()


def test_changed_source_is_another_key(tmp_path: Path) -> None:
    for folder in SOURCES:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    assert source_digest(tmp_path) == source_digest(ROOT)
    before = module.environment()
    assert before["source"] == source_digest(ROOT)
    for file in ("common/spec/placement.py", "tf_impl/train.py", "torch_impl/layers/core.py"):
        path = tmp_path / file
        path.write_text(path.read_text() + "\n")
        after = {**before, "source": source_digest(tmp_path)}
        assert key_of(SPEC, CONFIG, after) != key_of(SPEC, CONFIG, before)
        before = after
    versions = {**before, "versions": {"torch": "0"}}
    assert key_of(SPEC, CONFIG, versions) != key_of(SPEC, CONFIG, before)
    assert key_of(SPEC, CONFIG, dict(reversed(before.items()))) == key_of(SPEC, CONFIG, before)
