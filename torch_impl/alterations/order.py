"""A function of one operand in another order: of a sum instead of one of its operands, or of one instead of the sum."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any

from torch import Tensor

from parity.common.external.process.altering import Ways
from parity.torch_impl.alterations.arithmetic import ACTIVATIONS, PLAIN, SCALES, SUMS, with_operand
from parity.torch_impl.alterations.base import Function, same

_SCALES = (*SCALES, "rmul")

# So many functions and sums are known at a time: a shortcut may be computed between a function and its sum.
_KEPT = 6


class Order:
    """The latest sums and functions of one operand of a pass, and what they would be in the other order."""

    def __init__(self) -> None:
        # Of each its name, itself, what it was given, and its result.
        self._functions: deque[tuple[str, Function, Tensor, Tensor]] = deque(maxlen=_KEPT)
        self._sums: deque[tuple[Function, tuple[Any, ...], Tensor]] = deque(maxlen=_KEPT)

    def ways(self, name: str, func: Function, args: Any, kwargs: Any) -> Ways:
        if name in SUMS and len(args) == 2 and not kwargs:
            return self._of_the_sum(func, args)
        function = _of_one(name, func, args, kwargs)
        return {} if function is None else self._of_one_operand(name, function, args)

    def keep(self, name: str, func: Function, args: Any, kwargs: Any, result: Any) -> None:
        """Keep a call: args as they were before it."""
        if not isinstance(result, Tensor):
            return
        if name in SUMS and len(args) == 2 and not kwargs:
            self._sums.append((func, tuple(args), result))
        function = _of_one(name, func, args, kwargs)
        if function is not None:
            self._functions.append((name, function, args[0], result))

    def _of_the_sum(self, func: Function, args: Any) -> Ways:
        """The function of the sum, where an operand is what a function gave."""
        ways: Ways = {}
        for place, operand in enumerate(args):
            known = next((each for each in reversed(self._functions) if same(operand, each[-1])), None)
            if known is None:
                continue
            name, function, before, _ = known
            given = tuple(before if at == place else each for at, each in enumerate(args))
            text = f"takes {name} of operand {place + 1} alone, and {name} of the result is right"
            ways[f"{name} behind, of {place + 1}"] = text, partial(_then, function, func, given)
        return ways

    def _of_one_operand(self, name: str, function: Function, args: Any) -> Ways:
        """The sum of what the function gives of one operand, where it is given a sum."""
        known = next((each for each in reversed(self._sums) if same(args[0], each[-1])), None)
        if known is None:
            return {}
        func, operands, _ = known
        return {
            f"of operand {place + 1}": (
                f"is applied to a sum, and to its operand {place + 1} alone, before the other is added, is right",
                partial(with_operand, place, function, func, operands),
            )
            for place, operand in enumerate(operands)
            if isinstance(operand, Tensor) and operand.is_floating_point()
        }


def _of_one(name: str, func: Function, args: Any, kwargs: Any) -> Function | None:
    """A function as one of its first operand; None where it has several, or is no such function."""
    plain = name in (*ACTIVATIONS, *PLAIN)
    scales = name in _SCALES and len(args) == 2 and isinstance(args[1], int | float)
    if not args or not isinstance(args[0], Tensor) or not (plain or scales):
        return None
    return lambda given: func(given.clone(), *args[1:], **kwargs)


def _then(function: Function, func: Function, args: Any) -> Any:
    return function(func(*[each.clone() if isinstance(each, Tensor) else each for each in args]))
