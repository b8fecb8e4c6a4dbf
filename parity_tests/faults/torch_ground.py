"""What the faults of the PyTorch side have in common: how they come into a rank, and patches that many use."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch

from parity.common.execution.hooks import Hook
from parity.torch_impl.sharding.tensors import local
from parity.torch_impl.strategy.all_reduce import PiggybackedAllReduce
from parity_tests.helpers.hooks import hooked, in_ranks

Manager = Callable[[], AbstractContextManager[None]]
_IN_RANK: dict[str, Manager] = {}


def fault(body: Callable[[], Iterator[None]]) -> Manager:
    """Turn a patch of a rank into what the worker enters: it sends its ranks through the patch."""
    _IN_RANK[body.__name__] = contextmanager(body)
    return in_worker(body.__name__)


def in_worker(names: str) -> Manager:
    """What the worker enters for one fault, or for several: ONE+OTHER."""
    return functools.partial(in_ranks, "parity_tests.faults.torch:in_this_process", names)


def known(names: str) -> bool:
    """Whether all of ONE+OTHER are faults."""
    return all(name in _IN_RANK for name in names.split("+"))


@contextmanager
def in_this_process(names: str) -> Iterator[None]:
    """A rank inside it has one fault or several."""
    with ExitStack() as stack:
        for name in names.split("+"):
            stack.enter_context(_IN_RANK[name]())
        yield


def scaled_gradient(factor_of: Callable[[torch.Tensor, torch.Tensor], Any]) -> Any:
    """A loss whose value is right and whose gradient is multiplied by a factor of (labels, count)."""

    def loss(step: Any, part: Hook, outputs: Any, labels: torch.Tensor, context: Any) -> Any:
        total, count = part(outputs, labels, context)
        if not context.training:
            return total, count
        return total.detach() + (total - total.detach()) * factor_of(labels, count), count

    return hooked(loss=loss)


def spec_changed(kind: type, **change: Any) -> Any:
    """Layers of a kind that compute by another spec than the run's."""

    def layer(owner: Any, part: Hook, node: Any) -> Any:
        built = part(node)
        if isinstance(built, kind):
            built.spec = built.spec.model_copy(update=change)
        return built

    return hooked(layer=layer)


def other_optimizer(**change: Any) -> Any:
    """An optimizer that is built from another spec than the run's."""
    return hooked(
        optimizer=lambda owner, part, spec, *rest: part(spec.model_copy(update=change), *rest),
    )


def other_rule(kind: type, rule: Callable[[Any], list[torch.Tensor]]) -> Any:
    """Another formula for the update of an optimizer."""
    return hooked(rule=lambda owner, part, given: rule(given) if type(given.spec) is kind else part(given))


def sums_by_themselves() -> Any:
    """Loss sum and count in a message of their own, as in everyone's code but ours: not with the gradients."""
    return patch.object(PiggybackedAllReduce, "possible", staticmethod(lambda replicas: False))


@contextmanager
def hook_on_buckets(hook_of: Callable[[Any], Any]) -> Iterator[None]:
    """DDP's own reduction replaced; `hook_of(DistributedDataParallel)` is its communication hook.

    DDP inspects a hook's annotations and does not accept postponed ones: it must have none at all.
    """

    def optimizer(owner: Any, part: Hook, spec: Any, model: Any, strategy: Any) -> Any:
        model.module.register_comm_hook(None, hook_of(model.module))
        return part(spec, model, strategy)

    with sums_by_themselves(), hooked(optimizer=optimizer):
        yield


def averaged(buffer: torch.Tensor) -> Any:
    """The future of a buffer averaged over the ranks in place, in its own type."""
    import torch.distributed as dist

    buffer.div_(dist.get_world_size())
    work = dist.all_reduce(buffer, async_op=True).get_future()
    return work.then(lambda done: done.value()[0])


def parts_of(model: Any) -> dict[str, torch.Tensor]:
    """This rank's parts of the parameters by canonical name."""
    return {name: local(tensor.live.detach()) for name, tensor in model.parameters.items()}
