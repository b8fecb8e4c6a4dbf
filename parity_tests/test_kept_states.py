"""States that a run keeps on its way: those that it went through, at the same steps on every placement, at little cost."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from parity.common.execution.kept_states import KeptStates
from parity.common.record import read_record
from parity.common.record.trace import state_file
from parity.common.spec import Instrumentation, Placement, Replay, RunOptions
from parity.common.state.canonical import load_state
from parity_tests.helpers.matrix import small, tensorflow, torch
from parity_tests.helpers.run_cache import RunCache

SPEC = small("digits_mlp", "steps=12").resolved()
OFTEN = Instrumentation(context="parity_tests.often_kept:keeping_often")


@pytest.mark.parametrize(
    ("place", "at"),
    [
        (torch("single", 1), [4, 8]),
        (tensorflow(1), [4, 8]),
        pytest.param(torch("fsdp2", 2), [4, 8], marks=pytest.mark.exhaustive),
        pytest.param(tensorflow(2, steps_per_call=3), [4, 10], marks=pytest.mark.exhaustive),
    ],
    ids=lambda value: value.label if isinstance(value, Placement) else None,
)
def test_they_are_those_that_the_run_went_through(
    run_cache: RunCache, tmp_path: Path, place: Placement, at: list[int]
) -> None:
    replayer = run_cache.replayer()
    run = read_record(replayer.train(SPEC, place, tmp_path / "run", instrumentation=OFTEN))
    kept = run.kept_states()
    assert sorted(kept) == at
    replay = Instrumentation(replay=Replay(stop=12, states=tuple(at)))
    plain = place.model_copy(update={"steps_per_call": 1})
    folder = replayer.train(SPEC, plain, tmp_path / "replay", instrumentation=replay)
    for step, path in kept.items():
        own, due = load_state(path), load_state(state_file(folder, step))
        assert own.keys() == due.keys()
        assert all(np.array_equal(own[name], due[name]) for name in due)


def held(monkeypatch: pytest.MonkeyPatch, steps: int, nbytes: int, seconds: float, each: float) -> list[int]:
    """Before which steps a run keeps its state, of so many bytes, where keeping one and a step take so many seconds."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def export(*_: Any) -> dict[str, Any]:
        now[0] += seconds
        return {}

    run: Any = SimpleNamespace(
        spec=SimpleNamespace(steps=steps),
        run_options=RunOptions(),
        steps=range(steps),
        primary=True,
        strategy=SimpleNamespace(agreed=list),
        side=SimpleNamespace(state=SimpleNamespace(export=export)),
        model=None,
        optimizer=None,
        out_dir=Path("nowhere"),
    )
    monkeypatch.setattr("parity.common.execution.kept_states.save_state", lambda *_: None)
    monkeypatch.setattr(Path, "mkdir", lambda *_, **__: None)
    kept, found = KeptStates(run, {"a": np.zeros(nbytes, np.uint8)}, seconds), []
    for step in range(1, steps + 1):
        now[0] += each
        if kept.due(step):
            kept.keep(step)
            found.append(step)
    return found


def test_they_cost_at_most_half_a_per_cent(monkeypatch: pytest.MonkeyPatch) -> None:
    assert held(monkeypatch, 1000, 100, 0.001, 0.01) == list(range(64, 1000, 64))
    assert held(monkeypatch, 1000, 100, 0.001, 0.001) == [256, 512, 768]
    assert held(monkeypatch, 1000, 100, 0.01, 0.001) == []
    # Evenly over a long run, and fewer the larger they are.
    assert len(held(monkeypatch, 100_000, 100, 0.001, 0.01)) == 16
    assert held(monkeypatch, 1000, 2**25, 0.001, 0.01) == [334, 668]
    assert held(monkeypatch, 1000, 2**27, 0.001, 0.01) == []
