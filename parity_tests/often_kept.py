"""A context in which runs keep their state at every fourth step, however little time has passed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from parity.common.execution import kept_states
from parity_tests.helpers.hooks import in_ranks

EVERY = 4


@contextmanager
def keeping_often() -> Iterator[None]:
    with often(), in_ranks("parity_tests.often_kept:often"):
        yield


@contextmanager
def often() -> Iterator[None]:
    """This process does so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_states, "_FEWEST_STEPS", EVERY)
        patch.setattr(kept_states, "_SHARE", 0)
        yield
