"""Functions of a framework that take constants through float32, and what takes their place where this must not be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


class ExactFunctions:
    """Replacements (owner, name, function) that can be put in place and taken away again.

    They report what the stock functions would have rounded by `note`.
    """

    def __init__(self) -> None:
        self.replacements: Sequence[tuple[Any, str, Any]] = ()
        self._stock: list[tuple[Any, str, Any]] = []
        self._instead: dict[Any, Any] = {}
        # In the order of their first use.
        self._noted: dict[str, None] = {}
        self._within = 0
        # Whether stock batch norms of torch's keep the variance that Keras's keep, over N values and not over N - 1.
        self.biased_variances = False

    @property
    def on(self) -> bool:
        """Whether they are in place."""
        return bool(self._stock)

    def instead_of(self, function: Any) -> Any:
        """What takes the place of a stock function, itself where nothing does or they are not in place."""
        return self._instead.get(function, function)

    def note(self, what: str) -> None:
        """Report something that stock functions round."""
        self._noted[what] = None

    def switch(self, on: bool) -> list[str]:
        """Put the replacements in place, or take them away; returns what was noted since the last call, each once."""
        noted = list(self._noted)
        self._noted.clear()
        if on and not self._stock:
            for owner, name, exact in self.replacements:
                stock = getattr(owner, name)
                self._stock.append((owner, name, stock))
                while stock is not None:
                    self._instead[stock] = exact
                    stock = getattr(stock, "__wrapped__", None)
                setattr(owner, name, exact)
        elif not on:
            self._instead.clear()
            while self._stock:
                setattr(*self._stock.pop())
        return noted

    @contextmanager
    def within(self) -> Iterator[None]:
        """In place within; replicas of one process may be within at once."""
        self._within += 1
        self.switch(True)
        try:
            yield
        finally:
            self._within -= 1
            if not self._within:
                self.switch(False)
