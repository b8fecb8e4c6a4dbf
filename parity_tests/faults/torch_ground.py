"""What the faults of the PyTorch side have in common: how they come into a rank, and patches that many use."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch

from parity.torch_impl import losses, optimizers, train
from parity.torch_impl.model import local
from parity.torch_impl.strategy.piggyback import PiggybackedAllReduce
from parity_tests.helpers.rerouted import rerouted

Manager = Callable[[], AbstractContextManager[None]]
_IN_RANK: dict[str, Manager] = {}


def fault(body: Callable[[], Iterator[None]]) -> Manager:
    """Turn a patch of a rank into what the worker enters: it sends its ranks through the patch."""
    _IN_RANK[body.__name__] = contextmanager(body)
    return in_worker(body.__name__)


def in_worker(names: str) -> Manager:
    """What the worker enters for one fault, or for several: ONE+OTHER."""
    return functools.partial(rerouted, train, "parity_tests.faults.torch:faulty_rank", names)


def known(names: str) -> bool:
    """Whether all of ONE+OTHER are faults."""
    return all(name in _IN_RANK for name in names.split("+"))


def faulty_rank(names: str, *arguments: Any) -> None:
    """A rank's whole life under one fault or several."""
    with ExitStack() as stack:
        for name in names.split("+"):
            stack.enter_context(_IN_RANK[name]())
        train._train_rank(*arguments)


def scaled_gradient(factor_of: Callable[[torch.Tensor, torch.Tensor], Any]) -> Any:
    """A loss whose value is right and whose gradient is multiplied by a factor of (labels, count)."""
    real = losses.loss_sum_and_count

    def faulty(loss: Any, logits: torch.Tensor, labels: torch.Tensor, context: Any) -> Any:
        total, count = real(loss, logits, labels, context)
        if not total.requires_grad:  # an evaluation
            return total, count
        return total.detach() + (total - total.detach()) * factor_of(labels, count), count

    return patch.object(losses, "loss_sum_and_count", faulty)


def spec_changed(layer: type, **change: Any) -> Any:
    """A layer that is built from another spec than the run's."""
    real = layer.__init__

    def init(self: Any, node: Any, *rest: Any) -> None:
        real(self, node, *rest)
        self.spec = self.spec.model_copy(update=change)

    return patch.object(layer, "__init__", init)


def other_optimizer(**change: Any) -> Any:
    """An optimizer that is built from another spec than the run's."""
    real = optimizers.build_optimizer

    def build(spec: Any, *rest: Any) -> Any:
        return real(spec.model_copy(update=change), *rest)

    return patch.object(train, "build_optimizer", build)


def other_rule(kind: type, rule: Callable[[Any], list[torch.Tensor]]) -> Any:
    """Another formula for the update of an optimizer."""
    return patch.dict(optimizers.base._RULES, {kind: rule})


def sums_by_themselves() -> Any:
    """Loss sum and count in a message of their own, as in everyone's code but ours: not with the gradients."""
    return patch.object(PiggybackedAllReduce, "possible", staticmethod(lambda replicas: False))


@contextmanager
def hook_on_buckets(hook_of: Callable[[Any], Any]) -> Iterator[None]:
    """DDP's own reduction replaced; `hook_of(DistributedDataParallel)` is its communication hook.

    DDP inspects a hook's annotations and does not accept postponed ones: it must have none at all.
    """
    real = train.build_step

    def build(spec: Any, model: Any, *rest: Any, **named: Any) -> Any:
        model.module.register_comm_hook(None, hook_of(model.module))
        return real(spec, model, *rest, **named)

    with sums_by_themselves(), patch.object(train, "build_step", build):
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
