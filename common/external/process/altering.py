"""What experiments on the calls of a pass share in both frameworks: one call made otherwise than the model's code says."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# What may be instead of a call, by a short name: what is then done, and how the result comes about.
Ways = dict[str, tuple[str, Callable[[], Any]]]
_KEPT = 16
# A way that reshapes have together, whichever function makes them: one that splits goes with one that joins.
HEADS = "heads"
# How a way begins that changes nothing but gradients.
GRADIENT = "gradient"
# How a way begins of which each call has many, so that these are tried when no other explains: another tensor or weight in
# place of an operand, a function behind the call.
MANY = "any"
# How a way begins that puts another number in the place of one of a call's: 'constant NAME=NUMBER'.
CONSTANT = "constant "
# Packages whose code is none of the user's.
_BESIDES = ("parity", "__main__", "torch", "keras", "tensorflow", "contextlib", "functools")


def code_line() -> str:
    """Where in the user's code the call is that is made now, 'model.py:12'; '' where it comes from none."""
    frame = sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] not in _BESIDES:
            return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""


class Altering:
    """Counts the calls of one pass that can be made otherwise, and makes some of them so.

    found: of each, its function, its line of code, the number of taps that were visited before it, whether it is one of the
    loss, its ways in words, and its numbers by name. results: the functions and the results of the latest calls of any kind.
    seeks: what says of a result whether it is one that is looked for; sought: how many taps were visited before each that is.
    """

    def __init__(self, wanted: Mapping[int, str], visited: Callable[[], int]) -> None:
        """
        Args:
            wanted: by the number of a call, the short name of a way.
            visited: how many taps were visited until now.
        """
        self._wanted, self._visited = wanted, visited
        self.found: list[dict[str, Any]] = []
        self.results: deque[tuple[str, Any]] = deque(maxlen=_KEPT)
        self.seeks: Callable[[Any], bool] | None = None
        self.sought: list[int] = []
        # The model has been called, and its loss is computed now; and that too is over: a backward pass comes after it.
        self.in_loss, self.over = False, False

    def gave(self, name: str, result: Any) -> None:
        """Remember the result of a call of any kind."""
        self.results.append((name, result))
        if self.seeks is not None and self.seeks(result):
            self.sought.append(self._visited())

    def replace(self, own: Any, other: Any) -> None:
        """Keep of a result what a tap has put in its place: with that the pass goes on."""
        for place, (name, result) in enumerate(self.results):
            if result is own:
                self.results[place] = name, other

    def call(
        self,
        name: str,
        ways: Ways,
        stock: Callable[[], Any],
        constants: Mapping[str, float] = {},
        with_constant: Callable[[str, float], Any] | None = None,
    ) -> Any:
        """The result of a call, made as it is wanted.

        Args:
            name: of the function.
            ways: what may be instead.
            stock: makes it as the model's code says.
            constants: its numbers by name. with_constant: makes it with another one.
        """
        number = len(self.found)
        texts = {short: text for short, (text, _) in ways.items()}
        found = {"name": name, "line": code_line(), "place": self._visited(), "in_loss": self.in_loss}
        self.found.append({**found, "ways": texts, "constants": dict(constants)})
        wanted = self._wanted.get(number, "")
        if wanted.startswith(CONSTANT) and with_constant is not None:
            which, _, value = wanted.removeprefix(CONSTANT).rpartition("=")
            return with_constant(which, float(value))
        return ways[wanted][1]() if wanted in ways else stock()
