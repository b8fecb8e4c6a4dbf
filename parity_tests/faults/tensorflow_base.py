"""How a fault of the TensorFlow side comes into a run: into this process, and into the ranks it starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from parity_tests.helpers.hooks import in_ranks

_FAULTS: dict[str, Callable[[], AbstractContextManager[None]]] = {}


def fault(body: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
    """Register a fault by its name. It takes what it replaces when it is entered, so that faults nest."""
    assert body.__name__ not in _FAULTS, body.__name__
    _FAULTS[body.__name__] = contextmanager(body)
    return body


def is_known(names: str) -> bool:
    """Whether each of 'ONE+OTHER' is a fault."""
    return all(name in _FAULTS for name in names.split("+"))


@contextmanager
def planted(names: str) -> Iterator[None]:
    """A run inside it has the faults 'ONE+OTHER', and so have the ranks that it starts."""
    with in_ranks("parity_tests.faults.tensorflow:in_this_process", names), in_this_process(names):
        yield


@contextmanager
def in_this_process(names: str) -> Iterator[None]:
    """What trains in this process has the faults 'ONE+OTHER'."""
    with ExitStack() as stack:
        for name in names.split("+"):
            stack.enter_context(_FAULTS[name]())
        yield
