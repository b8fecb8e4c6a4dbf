"""Ranks sent through a function of the tests: a patch made in the worker does not reach the processes that it starts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch


@contextmanager
def rerouted(train: Any, function: str, *first: Any) -> Iterator[None]:
    """Within it, ranks that `train` starts run `function`, "module:name", given `first` and then what a rank is given.

    train: the module parity.tf_impl.train or parity.torch_impl.train.
    """
    real = train.run_ranks

    def run_ranks(_: str, arguments: tuple[Any, ...], *rest: Any) -> None:
        real(function, (*first, *arguments), *rest)

    with patch.object(train, "run_ranks", run_ranks):
        yield
