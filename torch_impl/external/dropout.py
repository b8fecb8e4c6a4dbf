"""The calls of a live module that drop, given keyed masks: nn.Dropout, functional dropout, attention's weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from parity.common.execution.pass_context import Context
from parity.common.external.process.dropping import Dropping, noise_shape
from parity.common.spec.layers import KeyedDropout
from parity.torch_impl.external import names
from parity.torch_impl.external.calling import array_of
from parity.torch_impl.external.dropped import DROPPING, arguments, attended
from parity.torch_impl.layers.random import keep_mask


@contextmanager
def keyed(
    model: nn.Module,
    plan: Sequence[KeyedDropout] | None,
    context: Context,
    seen: list[dict[str, Any]] | None = None,
) -> Iterator[Dropping]:
    """Have each call of a pass that drops given its planned mask; the arguments are those of `Dropping`."""
    dropping = Dropping(plan, context, seen)
    owners: list[str] = []
    with ExitStack() as stack:
        for path, module in names.layers(model).items() if seen is not None else ():
            enter = module.register_forward_pre_hook(lambda module, args, path=path: owners.append(path))
            leave = module.register_forward_hook(lambda module, args, result: owners.pop() and None)
            stack.callback(enter.remove)
            stack.callback(leave.remove)
        stack.enter_context(_Functions(dropping, owners))
        yield dropping


class _Functions(TorchFunctionMode):
    def __init__(self, dropping: Dropping, owners: list[str]) -> None:
        super().__init__()
        self._dropping, self._owners = dropping, owners

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in DROPPING:
            return self._dropped(func, args, kwargs)
        if func is _ATTENTION:
            return self._attended(*args, **kwargs)
        if func is F.multi_head_attention_forward:
            # What it calls itself: within a mode, no function is reported.
            ours = {
                "dropout": lambda *a, **k: self._dropped(_DROPOUT, a, k),
                "scaled_dot_product_attention": self._attended,
            }
            with mock.patch.multiple(F, **ours):
                return func(*args, **kwargs)
        return func(*args, **kwargs)

    def _attended(self, *args: Any, **kwargs: Any) -> Tensor:
        """Attention whose weights are dropped in by a function of its own: written out, then."""

        def weights(scores: Tensor, rate: float) -> Tensor:
            return self._dropped(_DROPOUT, (scores.softmax(-1), rate), {})

        return attended(weights, True, *args, **kwargs)

    def _dropped(self, func: Any, args: Any, kwargs: Any) -> Tensor:
        x, rate, active, inplace = arguments(func, args, kwargs)
        shared = tuple(range(2, x.dim())) if DROPPING[func] else ()
        owner = self._owners[-1] if self._owners else ""
        planned = self._dropping.next(owner, x, rate, shared, active)
        if planned is None:
            return x
        scaled = self._dropping.drawn(lambda: self._mask(x, planned, shared, rate), array_of, rate, shared)
        return x.mul_(scaled) if inplace else x * scaled

    def _mask(self, x: Tensor, planned: KeyedDropout, shared: Sequence[int], rate: float) -> Tensor:
        """What x is multiplied with, of its own shape but for axes of one element."""
        if rate >= 1:
            return torch.zeros_like(x)
        noise = noise_shape(planned, x.dim(), shared)
        drawn = keep_mask(x, self._dropping.context, planned.key, noise, rate)
        if not planned.order:
            return drawn if shared else drawn.reshape(x.shape)
        return drawn.expand(-1, *planned.shape).permute(planned.order).reshape(x.shape)


_DROPOUT, _ATTENTION = F.dropout, F.scaled_dot_product_attention
