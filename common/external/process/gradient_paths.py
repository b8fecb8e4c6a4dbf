"""Experiments on the calls of a pass through which gradients go: one made otherwise than the model's code says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from parity.common.external.process.code_lines import code_line

# What may be instead of a call, by a short name: what is then done, and how the result comes about.
Ways = dict[str, tuple[str, Callable[[], Any]]]


class Calls:
    """Counts the calls of one pass that can be made otherwise, and makes some of them so.

    found: of each its function, its line of code, and its ways in words. over: whether the forward pass is over.
    """

    def __init__(self, wanted: Mapping[int, str]) -> None:
        """
        Args:
            wanted: by the number of a call, the short name of a way.
        """
        self._wanted = wanted
        self.found: list[dict[str, Any]] = []
        self.over = False

    def call(self, name: str, ways: Ways, stock: Callable[[], Any]) -> Any:
        """The result of a call, made as it is wanted.

        Args:
            name: of the function.
            ways: what may be instead.
            stock: makes it as the model's code says.
        """
        wanted = self._wanted.get(len(self.found), "")
        texts = {short: text for short, (text, _) in ways.items()}
        self.found.append({"name": name, "line": code_line(), "ways": texts})
        return ways[wanted][1]() if wanted in ways else stock()
