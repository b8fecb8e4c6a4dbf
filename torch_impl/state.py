"""Canonical state <-> live model and optimizer. Bit-lossless both ways."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from common.state import State
from torch_impl.model import CanonicalTensor, Model, local
from torch_impl.optimizers import Optimizer


@torch.no_grad()
def load(state: State, model: Model, optimizer: Optimizer) -> None:
    """Set every tensor from a canonical state that holds exactly the model's tensors."""
    for name, tensor, part in _parts(model, optimizer):
        part.copy_(tensor.shard(state[name]))


def export(model: Model, optimizer: Optimizer, step: int) -> State:
    """Copies of every tensor by canonical name. Every rank must call it: shards are gathered."""
    state: State = {
        name: tensor.to_canonical(tensor.gather(part)) for name, tensor, part in _parts(model, optimizer)
    }
    state["step"] = np.array(step, np.int64)
    return state


def _parts(model: Model, optimizer: Optimizer) -> Iterator[tuple[str, CanonicalTensor, Tensor]]:
    """(canonical name, tensor that gives the layout, this rank's part) of everything in a state."""
    for name, tensor in model.tensors.items():
        yield name, tensor, local(tensor.live.detach())
    for slot, parts in optimizer.slots.items():
        for name, part in parts.items():
            yield f"slots/{slot}/{name.removeprefix('parameters/')}", model.tensors[name], part
