"""The functions of torch that drop, and experiments on their calls: left out, of whole channels, at another place."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from parity.common.external.process.altering import Altering, Ways
from parity.torch_impl.alterations.base import same

# Function -> whether it drops whole channels. Each takes (input, p, training), functional ones in place, too.
DROPPING: dict[Callable[..., Any], bool] = {
    F.dropout: False,
    torch.dropout: False,
    torch.dropout_: False,
    F.dropout1d: True,
    F.dropout2d: True,
    F.dropout3d: True,
    torch.feature_dropout: True,
    torch.feature_dropout_: True,
}
_NAMES = ("input", "p", "training", "inplace")
# What computes nothing.
_ASIDE = ("get", "set", "size", "dim", "numel", "stride", "clone", "detach", "to", "contiguous", "type")
# What people write; and one minus what is there, which older code calls the share that is kept.
_RATES = (0.1, 0.2, 0.25, 0.3, 0.4, 0.5)


def arguments(func: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Tensor, float, bool, bool]:
    """Of a call in `DROPPING`: input, share, whether it drops, whether in place."""
    given = dict(zip(_NAMES, args, strict=False)) | kwargs
    inplace = bool(given.get("inplace", func in (torch.dropout_, torch.feature_dropout_)))
    active = bool(given.get("training", given.get("train", True)))
    return given["input"], float(given.get("p", 0.5)), active, inplace


class Drops:
    """What the calls of a pass that drop are made like.

    latest: name, function, arguments and result of the latest call of any other kind.
    """

    def __init__(self) -> None:
        self.latest: tuple[str, Any, Any, Any, Any] | None = None
        # Of the latest that drops: what it was given, what that was multiplied with, what it gave.
        self._given: Tensor | None = None
        self._factor: Tensor | None = None
        self._result: Tensor | None = None

    def call(
        self, altering: Altering, name: str, func: Callable[..., Any], args: Any, kwargs: Any, training: bool
    ) -> Any:
        """The result of a call that drops, made as it is wanted; training: the mode of the model."""
        x, rate, active, inplace = arguments(func, args, kwargs)
        given = x.clone() if inplace else x

        def result(function: Callable[..., Any] = func, share: float = rate, on: bool = active) -> Tensor:
            """Made of a factor, whatever the function: each way counts as one call where masks are planned."""
            factor = function(torch.ones_like(x), share, on)
            self._given, self._factor = given, factor
            self._result = x.mul_(factor) if inplace else x * factor
            return self._result

        def absent() -> Tensor:
            result(on=False)
            return x

        whole = DROPPING[func]
        ways: Ways = {
            "by mode": (
                "does not go by the mode of the model, and Keras's does: it is to drop in training only",
                partial(result, on=training),
            ),
            "always": ("drops in training only, and Keras's in inference too", partial(result, on=True)),
            "absent": (f"drops a share of {rate:g}, and Keras drops nothing there", absent),
        }
        kinds = ("whole channels", "single elements")
        ways[kinds[whole]] = (
            f"drops {kinds[not whole]}, and Keras {kinds[whole]}",
            partial(result, F.dropout if whole else torch.feature_dropout),
        )
        if x.dim() < 2:
            ways.pop(kinds[0], None)
        for share in dict.fromkeys((round(1 - rate, 6), *_RATES)):
            if share != rate:
                text = f"drops a share of {rate:g}, and Keras {share:g}"
                ways[f"rate {share:g}"] = (text, partial(result, share=share))
        ways |= self._moved_before(x, result)
        return altering.call(name, ways, result)

    def _moved_before(self, x: Tensor, result: Callable[[], Tensor]) -> Ways:
        """Before the call that made what is given, on one of its operands."""
        if self.latest is None or not same(self.latest[-1], x):
            return {}
        name, func, args, kwargs, _ = self.latest
        ways: Ways = {}
        for place, operand in enumerate(args):
            if not isinstance(operand, Tensor) or operand.shape != x.shape:
                continue

            def before(place: int = place, operand: Tensor = operand) -> Any:
                result()
                changed = [operand * self._factor if n == place else each for n, each in enumerate(args)]
                return func(*changed, **kwargs)

            what = f"before it, on operand {place + 1}," if len(args) > 1 else "before it"
            ways[f"before {name} {place + 1}"] = (f"drops behind {name}, and {what} is right", before)
        return ways

    def moved_behind(self, name: str, func: Callable[..., Any], args: Any, kwargs: Any) -> Ways:
        """The next call, with the dropout behind it instead; whatever it is given, so that calls count alike in each pass."""
        given, factor, dropped = self._given, self._factor, self._result
        if given is None or factor is None or name in _ASIDE or not any(isinstance(a, Tensor) for a in args):
            return {}
        self._given = None

        def behind() -> Any:
            made = func(*(given if same(dropped, each) else each for each in args), **kwargs)
            return made * factor if isinstance(made, Tensor) and made.shape == factor.shape else made

        return {"dropout behind": ("comes behind a dropout, and before it is right", behind)}
