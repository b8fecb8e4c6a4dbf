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

_WIDER: dict[Any, Any] = {
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
    torch.FloatTensor: torch.DoubleTensor,
    "torch.FloatTensor": "torch.DoubleTensor",
}
_WIDER_CALLS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.Tensor.float: torch.Tensor.double,
    torch.Tensor.cfloat: torch.Tensor.cdouble,
}
# They make tensors of the type of a user's arrays.
_OF_ARRAYS = (torch.tensor, torch.as_tensor, torch.asarray)
_from_numpy = torch.from_numpy


class _Wide(TorchFunctionMode):
    """Every call that names a type of single precision, is called after one, or takes an array of it, has the double one instead."""

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
        made = _WIDER_CALLS.get(func, func)(*map(_wider, args), **wider)
        return made.double() if func in _OF_ARRAYS and made.dtype == torch.float32 else made


def _wider(value: Any) -> Any:
    return _WIDER.get(value, value) if isinstance(value, torch.dtype | type | str) else value


class _Widening:
    """A mode for the whole process or within a block, and not in place within another."""

    def __init__(self) -> None:
        self._mode = _Wide()
        self._for_process, self._within = False, 0

    def switch(self, on: bool) -> None:
        """From now on, in this process; no block may be open."""
        if on and not self._for_process:
            self._mode.__enter__()
        elif not on and self._for_process:
            self._mode.__exit__(None, None, None)
        self._for_process = on
        # Which no mode sees.
        torch.from_numpy = self._of_array if on else _from_numpy

    @contextmanager
    def within(self) -> Iterator[None]:
        """In place within; replicas of one process may be within at once."""
        self._within += 1
        torch.from_numpy = self._of_array
        try:
            with self._mode:
                yield
        finally:
            self._within -= 1
            if not self._within and not self._for_process:
                torch.from_numpy = _from_numpy

    @contextmanager
    def without(self) -> Iterator[None]:
        """Not in place within."""
        on, self._mode.on = self._mode.on, False
        try:
            yield
        finally:
            self._mode.on = on

    def _of_array(self, array: Any) -> torch.Tensor:
        made = _from_numpy(array)
        return made.double() if self._mode.on and made.dtype == torch.float32 else made


WIDE = _Widening()
