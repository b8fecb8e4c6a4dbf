"""Which of some tensors a pass of a live model in torch gives, with an edit of its code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from parity.common.external.process.operations import Sought
from parity.torch_impl.external.calling import array_of
from parity.torch_impl.private_names import TorchDispatchMode, modes_off, tree_leaves


@contextmanager
def watching(sought: Sought) -> Iterator[None]:
    """Look for some tensors among those that the operations of a pass give."""
    with _Watching(sought):
        yield


class _Watching(TorchDispatchMode):
    def __init__(self, sought: Sought) -> None:
        super().__init__()
        self._sought = sought

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **kwargs or {})
        with modes_off():
            for each in tree_leaves(result):
                if isinstance(each, Tensor) and each.numel() in self._sought.sizes and not each.is_complex():
                    self._sought.meet(array_of(each))
        return result
