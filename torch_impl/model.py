"""ModelSpec -> model whose tensors are found by canonical name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from common.spec import Node, TrainSpec
from common.state import canonical_name
from torch_impl.context import Context
from torch_impl.layers import build_layer, native_layout
from torch_impl.strategy import Strategy


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that this rank holds: its shard under FSDP, else all of it."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


@dataclass(frozen=True)
class CanonicalTensor:
    """One tensor of the model, whatever has become of it: plain, replicated or sharded."""

    owner: nn.Module
    attribute: str
    axes: tuple[int, ...] | None

    @property
    def live(self) -> Tensor:
        """The tensor itself. Looked up anew, since sharding replaces it."""
        return getattr(self.owner, self.attribute)

    def shard(self, value: np.ndarray) -> Tensor:
        """This rank's part of a canonical array, in native layout. Copies."""
        native = value if self.axes is None else value.transpose(self.axes)
        live = self.live
        full = torch.from_numpy(np.array(native, order="C")).to(device=live.device, dtype=live.dtype)
        return self._share(full)

    def _share(self, native: Tensor) -> Tensor:
        live = self.live
        if not isinstance(live, DTensor):
            return native
        # Every rank holds the whole value already: nothing needs to be sent.
        return distribute_tensor(native, live.device_mesh, live.placements, src_data_rank=None).to_local()

    def gather(self, part: Tensor) -> Tensor:
        """The whole tensor of which `part` is this rank's shard; collective under FSDP."""
        live = self.live
        if not isinstance(live, DTensor):
            return part
        sharded = DTensor.from_local(
            part, live.device_mesh, live.placements, shape=live.shape, stride=live.stride()
        )
        return sharded.full_tensor()

    def whole(self, part: Tensor) -> Tensor:
        """The whole tensor, in canonical layout, of which `part` is this rank's; collective under FSDP."""
        native = self.gather(part)
        return native if self.axes is None else native.permute(*np.argsort(self.axes).tolist())

    def part(self, whole: Tensor) -> Tensor:
        """This rank's part, in native layout, of a whole tensor in canonical layout."""
        return self._share(whole if self.axes is None else whole.permute(self.axes))

    def to_canonical(self, native: Tensor) -> np.ndarray:
        """A copy in canonical layout."""
        array = np.array(native.detach().cpu().numpy())
        return array if self.axes is None else array.transpose(np.argsort(self.axes)).copy()


class Model:
    """The module tree with its tensors by canonical name; `module` is what a strategy has wrapped."""

    def __init__(self, spec: TrainSpec, device: str) -> None:
        self.spec = spec
        tree = spec.model.tree()
        dtype = getattr(torch, spec.precision)
        self.module = build_layer(tree).to(device=device, dtype=dtype)
        self.tensors = tensors_of(tree, self.module)

    def __call__(self, inputs: Tensor, context: Context) -> Tensor:
        """Outputs (batch, ...) of canonical inputs (batch, ...)."""
        return self.module(inputs, context=context)

    def context(self, training: bool, inputs: Tensor, sample_ids: Tensor, step: Any = 0) -> Context:
        """What the layers may know of a pass over `inputs`."""
        pad = self.spec.model.pad_id
        return Context(training, self.spec.seed, step, sample_ids, None if pad is None else inputs != pad)

    @property
    def parameters(self) -> dict[str, CanonicalTensor]:
        """Trainable tensors by canonical name, in execution order."""
        return {n: t for n, t in self.tensors.items() if n.startswith("parameters/")}


def tensors_of(node: Node, layer: nn.Module) -> dict[str, CanonicalTensor]:
    """The tensors of a node and of everything below it, by canonical name."""
    found = {}
    for tensor in node.parameters:
        attribute, axes = native_layout(node, tensor.name)
        found[canonical_name(node.path, tensor)] = CanonicalTensor(layer, attribute, axes)
    for child, child_layer in zip(node.children, getattr(layer, "layers", ()), strict=True):
        found |= tensors_of(child, child_layer)
    return found


def build_model(spec: TrainSpec, strategy: Strategy) -> Model:
    """The model of a resolved spec on the strategy's replicas, with uninitialised values."""
    model = Model(spec, strategy.device)
    strategy.wrap(model)
    return model
