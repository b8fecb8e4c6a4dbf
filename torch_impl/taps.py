"""What a run shows of itself: tensors by canonical name, digests of them, and the memory they take."""

from __future__ import annotations

import gc
import resource
from typing import Any

import torch
from torch import Tensor

from common.state import State, digest_of
from torch_impl.model import Model, local
from torch_impl.optimizers import Optimizer
from torch_impl.strategy import Strategy


def reduced_gradients(model: Model, gradients: list[Any]) -> State:
    """Copies of a step's global gradients, given in the order of `model.parameters`."""
    return {
        name: tensor.to_canonical(tensor.gather(gradient))
        for (name, tensor), gradient in zip(model.parameters.items(), gradients, strict=True)
    }


def parameter_digests(model: Model, strategy: Strategy) -> list[str]:
    """A digest of all parameters, bit for bit, of each replica that this process speaks for.

    Every rank must call it: shards are gathered.
    """
    tensors = list(model.parameters.values())
    wholes = strategy.wholes(tensors)
    arrays = [tensor.to_canonical(whole) for tensor, whole in zip(tensors, wholes, strict=True)]
    return [digest_of(arrays)] * len(strategy.recorded_replicas)


def memory(model: Model, optimizer: Optimizer) -> dict[str, int]:
    """Bytes that this rank holds between two steps, measured on the tensors that are really there.

    parameters, slots: storage behind the tensors of each kind. master_weights: of those that are updated
    apart from the parameters that the passes use. live: of all tensors of the process.
    peak_resident: the most memory that the process has had since it began.
    """
    parameters = [part for tensor in model.parameters.values() for part in tensor.held]
    apart = [tensor.live for tensor in model.parameters.values() if tensor.held[0] is not tensor.live]
    slots = [part for parts in optimizer.slots.values() for part in parts.values()]
    gc.collect()
    # Not isinstance: that would wake lazy objects of foreign packages.
    tensors = [thing for thing in gc.get_objects() if issubclass(type(thing), Tensor)]
    return {
        "parameters": _stored(parameters),
        "slots": _stored(slots),
        "master_weights": _stored(apart),
        "live": _stored(tensors),
        "peak_resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


@torch.no_grad()
def _stored(tensors: list[Tensor]) -> int:
    """Bytes of the distinct storages behind some tensors, each counted once."""
    parts = [local(tensor) for tensor in tensors]
    storages = {part.untyped_storage()._cdata: part.untyped_storage().nbytes() for part in parts}
    return sum(storages.values())
