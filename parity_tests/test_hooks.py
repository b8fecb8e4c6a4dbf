"""Hooks around the parts of a training, scopes of what is built, and the loop that records one step behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from parity.common.execution import hooks
from parity.common.execution.hooks import Hooks, entered, scope
from parity.common.execution.run import Run
from parity_tests.helpers.hooks import hooked


class Owner:
    def clip(self, x: int) -> int:
        return x + 1


@contextmanager
def doubling() -> Iterator[Hooks]:
    yield Hooks(clip=lambda owner, part, x: 2 * part(x))


def test_hooks_go_around_parts_of_what_is_built_under_them() -> None:
    owner, before = Owner(), Owner()
    with entered("parity_tests.test_hooks:doubling"), hooked(clip=lambda owner, part, x: part(x) - 1):
        hooks.attach(owner)
    hooks.attach(before)
    assert owner.clip(3) == 7 and before.clip(3) == 4
    with hooks.attached(owner, Hooks(clip=lambda owner, part, x: -part(x))):
        assert owner.clip(3) == -7
    assert owner.clip(3) == 7


def test_what_is_built_in_a_context_is_used_there_only() -> None:
    made: list[str] = []

    def build() -> int:
        made.append("built")
        return len(made)

    first = scope().cached("spec", build)
    with entered("parity_tests.test_hooks:doubling"):
        inside = scope().cached("spec", build)
        assert scope().cached("spec", build) == inside != first
    with entered("parity_tests.test_hooks:doubling"):
        assert scope().cached("spec", build) not in (first, inside)
    assert scope().cached("spec", build) == first


def run_of(failing: set[int], recorded: list[int]) -> Any:
    def step(batch: Any, scalars: Any, number: int) -> Any:
        if number == 2:
            raise ValueError("step 2")
        return SimpleNamespace(_replace=lambda **_: number)

    def record(number: int, scalars: Any, result: Any) -> None:
        if number in failing:
            raise OSError(f"no space for step {number}")
        recorded.append(number)

    quiet = SimpleNamespace(due=lambda step: False, stopping=False)
    return SimpleNamespace(
        batches=lambda: ((number, None) for number in range(4)), scalars=lambda number: {}, step=step,
        record=record, behind=1, may_wait=lambda: True, launched=lambda: None,
        rates=SimpleNamespace(updates=1), checkpoints=quiet, _kept_states=quiet,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("failing", "error", "left"), [(set(), ValueError, [0, 1]), ({1}, OSError, [0]), ({0}, OSError, [])]
)
def test_an_error_of_recording_ends_the_run(failing: set[int], error: type, left: list[int]) -> None:
    recorded: list[int] = []
    with pytest.raises(error):
        Run.loop(run_of(failing, recorded))
    assert recorded == left
