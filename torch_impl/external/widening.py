"""Float64 where a user's code asks for float32: so a comparison in float64 is one.

A mask that is made float32 would meet float64 activations, which a product refuses; in a float32 model that does nothing.
Calls are changed, not torch's names: what torch itself imports meanwhile, and tables that it makes once, keep theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_WIDER = {torch.float32: torch.float64, torch.complex64: torch.complex128}
_WIDER_CALLS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.Tensor.float: torch.Tensor.double,
    torch.Tensor.cfloat: torch.Tensor.cdouble,
}


class _Wide(TorchFunctionMode):
    """Every call that names a type of single precision, or is called after one, has the double one instead."""

    def __init__(self) -> None:
        super().__init__()
        self.on = True

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if not self.on:
            return func(*args, **kwargs)
        wider = {name: _wider(value) for name, value in kwargs.items()}
        return _WIDER_CALLS.get(func, func)(*map(_wider, args), **wider)


def _wider(value: Any) -> Any:
    return _WIDER.get(value, value) if isinstance(value, torch.dtype) else value


class _Widening:
    """A mode for the whole process or within a block, and not in place within another."""

    def __init__(self) -> None:
        self._mode = _Wide()
        self._for_process = False

    def switch(self, on: bool) -> None:
        """From now on, in this process; no block may be open."""
        if on and not self._for_process:
            self._mode.__enter__()
        elif not on and self._for_process:
            self._mode.__exit__(None, None, None)
        self._for_process = on

    @contextmanager
    def within(self) -> Iterator[None]:
        """In place within."""
        with self._mode:
            yield

    @contextmanager
    def without(self) -> Iterator[None]:
        """Not in place within."""
        on, self._mode.on = self._mode.on, False
        try:
            yield
        finally:
            self._mode.on = on


WIDE = _Widening()
