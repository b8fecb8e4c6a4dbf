"""Several ranks share one replica: each has some of the attention's heads and of the feed-forward's columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from parity.common.spec import Placement
from parity.common.spec.tensor_parallel import division
from parity.torch_impl.layers.attention import AllHeads, Project
from parity.torch_impl.private_names import DTensor, Partial, Replicate, Shard, distribute
from parity.torch_impl.sharding.tensors import CanonicalTensor
from parity.torch_impl.strategy.all_reduce import PendingSums, begin_sum
from parity.torch_impl.strategy.base import Strategy

if TYPE_CHECKING:
    from parity.torch_impl.model import Model


class TensorParallel(Strategy):
    """DTensor's parallel styles within a replica; gradients summed over the replicas by one all-reduce.

    Ranks of a replica follow each other, so that they are on one node where they can be.
    """

    sharded = True
    # Some are whole on every rank, and count once.
    joins = False

    def __init__(self, placement: Placement) -> None:
        super().__init__(placement)
        self.mesh = self.mesh_of(replica=placement.replicas, tensor=placement.ranks_per_replica)

    def wrap(self, model: Model) -> None:
        tree, mesh = model.spec.model.tree(), self.mesh["tensor"]
        styles = {"columns": ColwiseParallel, "rows": RowwiseParallel}
        layers = {getattr(layer, "canonical_path", None): layer for layer in model.module.modules()}
        for path, cut in division(tree, mesh.size()).items():
            if cut == "heads":
                _divide_heads(layers[path], mesh)
            else:
                parallelize_module(layers[path], mesh, styles[cut]())
        self._tensors = list(model.parameters.values())

    def backward(self, loss_sum: Tensor) -> None:
        super().backward(loss_sum)
        for tensor in self._tensors:
            live = tensor.live
            if isinstance(live, DTensor) and live.grad.placements != live.placements:
                live.grad = live.grad.redistribute(placements=live.placements)

    def reduced(self, gradients: list[Tensor]) -> list[Tensor]:
        if self.placement.replicas == 1:
            return gradients
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        dist.all_reduce(flat, group=self.mesh.get_group("replica"))
        pieces = flat.split([gradient.numel() for gradient in gradients])
        return [piece.view(gradient.shape) for piece, gradient in zip(pieces, gradients, strict=True)]

    def begin_sum(self, values: list[Tensor]) -> PendingSums:
        return begin_sum(values, self.mesh.get_group("replica"))

    def begin_sum_shards(self, values: list[Tensor]) -> PendingSums:
        return begin_sum(values, self.mesh.get_group("tensor"))

    def counts(self, tensor: CanonicalTensor) -> bool:
        live = tensor.live
        divided = isinstance(live, DTensor) and live.placements[0].is_shard()
        return divided or self.mesh.get_local_rank("tensor") == 0

    def begin_norms(self, *groups: list[Tensor]) -> PendingSums:
        counted = [[p for p, t in zip(g, self._tensors, strict=True) if self.counts(t)] for g in groups]
        # A rank of which nothing counts still has to take part in the sum.
        return super().begin_norms(*(group or [groups[0][0].new_zeros(1)] for group in counted))

    def tensor_norms(self, parts: list[Tensor], tensors: list[CanonicalTensor]) -> list[Tensor]:
        norms = torch._foreach_norm(parts)
        return self._whole([n * self.counts(t) for n, t in zip(norms, tensors, strict=True)])


class DividedHeads(AllHeads):
    """As many on each rank of a mesh of one dimension, in order.

    Products are made of plain tensors: DTensor's fail for an empty batch (PyTorch 2.13).
    """

    def __init__(self, mesh: DeviceMesh) -> None:
        self.mesh = mesh

    def enter(self, x: Tensor) -> Tensor:
        whole = DTensor.from_local(x, self.mesh, [Replicate()], run_check=False)
        return whole.to_local(grad_placements=[Partial()])

    def part(self, parameter: Tensor) -> Tensor:
        return parameter.to_local() if isinstance(parameter, DTensor) else parameter

    def total(self, project: Project, x: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
        summed = DTensor.from_local(project(x, kernel, None), self.mesh, [Partial()], run_check=False)
        y = summed.redistribute(placements=[Replicate()]).to_local()
        return y if bias is None else y + bias

    def own(self, values: Tensor) -> Tensor:
        return values.chunk(self.mesh.size(), 1)[self.mesh.get_local_rank()]


def _divide_heads(attention: nn.Module, mesh: DeviceMesh) -> None:
    """Give each rank its heads: columns of what makes queries, keys and values, rows of what joins them."""
    attention.division = DividedHeads(mesh)
    for name, parameter in list(attention.named_parameters(recurse=False)):
        # Kernels are (in, out). The bias of what is summed is added once it has been.
        if name != "output_bias":
            columns = name.endswith("kernel") and name != "output_kernel"
            placed = [Shard(1 if columns else 0)]
            divided = distribute(parameter.detach(), mesh, placed)
            attention.register_parameter(name, nn.Parameter(divided))
