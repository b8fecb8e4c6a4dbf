"""How a fault of the TensorFlow side comes into a run: into this process, and into the ranks it starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from parity.tf_impl import train
from parity_tests.helpers.rerouted import rerouted

_FAULTS: dict[str, Callable[[], AbstractContextManager[None]]] = {}


def fault(body: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
    """Register a patch by its name. It takes what it replaces when it is entered, so that faults nest."""
    assert body.__name__ not in _FAULTS, body.__name__
    _FAULTS[body.__name__] = contextmanager(body)
    return body


def is_known(names: str) -> bool:
    """Whether each of 'ONE+OTHER' is a fault."""
    return all(name in _FAULTS for name in names.split("+"))


@contextmanager
def planted(names: str) -> Iterator[None]:
    """A run inside it has the faults 'ONE+OTHER'; no traced step passes between it and another run."""
    train._build.cache_clear()
    try:
        with _all(names), rerouted(train, "parity_tests.faults.tensorflow:faulty_rank", names):
            yield
    finally:
        train._build.cache_clear()


def faulty_rank(names: str, *arguments: Any) -> None:
    """The whole life of a rank with the faults 'ONE+OTHER'."""
    with _all(names):
        train._train_rank(*arguments)


@contextmanager
def _all(names: str) -> Iterator[None]:
    with ExitStack() as stack:
        for name in names.split("+"):
            stack.enter_context(_FAULTS[name]())
        yield
