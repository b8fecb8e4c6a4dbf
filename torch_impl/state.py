"""Canonical state <-> live model and optimizer. Bit-lossless both ways."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from parity.common.state.canonical import State, slot_name, slots_of
from parity.torch_impl.model import Model
from parity.torch_impl.optimizers import Optimizer
from parity.torch_impl.sharding.tensors import CanonicalTensor, local
from parity.torch_impl.strategy import Strategy


@torch.no_grad()
def load(state: State, model: Model, optimizer: Optimizer) -> None:
    """Set every tensor from a canonical state that holds exactly the model's tensors."""
    state = model.native(state)
    for name, tensor, part in _parts(model, optimizer):
        value = torch.from_numpy(np.array(state[name])) if tensor is None else tensor.shard(state[name])
        part.copy_(value.view(part.shape))
    optimizer.loaded()


@torch.no_grad()
def load_own(own: Callable[[int], State], model: Model, strategy: Strategy) -> None:
    """Give this rank's replica the buffers that are its own, where it has any."""
    for name, value in model.native(own(strategy.local_replicas.start)).items():
        if name.startswith("buffers/"):
            part = local(model.tensors[name].live.detach())
            part.copy_(model.tensors[name].shard(value).view(part.shape))


def export(model: Model, optimizer: Optimizer, step: int) -> State:
    """Copies of every tensor by canonical name. Every rank must call it: shards are gathered."""
    state: State = {
        name: np.array(part.cpu().numpy()) if tensor is None else tensor.to_canonical(tensor.gather(part))
        for name, tensor, part in _parts(model, optimizer)
    }
    state["step"] = np.array(step, np.int64)
    return model.canonical(state)


def export_replicas(model: Model, optimizer: Optimizer, strategy: Strategy) -> list[State]:
    """What each replica that this process speaks for really holds: as `export`, without the step.

    Every rank must call it. What should be equal on all of them is here as it is on each.
    """
    state = export(model, optimizer, 0)
    del state["step"]
    return [state] * len(strategy.recorded_replicas)


def export_buffers(model: Model, strategy: Strategy) -> list[State]:
    """Copies of the buffers of each replica that this process speaks for. Every rank must call it."""
    found = {
        name: tensor.to_canonical(tensor.gather(local(tensor.live.detach())))
        for name, tensor in model.tensors.items()
        if name.startswith("buffers/")
    }
    held = {name: value for name, value in model.canonical(found).items() if name.startswith("buffers/")}
    return [held] * len(strategy.recorded_replicas)


def _parts(model: Model, optimizer: Optimizer) -> Iterator[tuple[str, CanonicalTensor | None, Tensor]]:
    """(name as of `model.tensors`, tensor that gives the layout, this rank's part) of everything in a state.

    The layout is None where every rank has the whole tensor, in canonical layout.
    """
    for name, tensor in model.tensors.items():
        yield name, tensor, local(tensor.live.detach())
    specs = model.specs
    initial = slots_of(optimizer.spec, specs)
    for slot, parts in optimizer.slots.items():
        for name, part in parts.items():
            # A slot of another shape than its parameter has fewer axes (Adafactor).
            alike = initial[name][slot].shape == specs[name].shape
            yield slot_name(slot, name), optimizer.layout(name) if alike else None, part
