"""What we use of torch that it does not promise, and what its older versions (2.4 on) have elsewhere."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

from parity.common.base.package import check_versions, numbers

# Before anything that an older version lacks is imported.
check_versions("torch")

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch._C import _functorch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack as transforms_off
from torch._subclasses import FakeTensor
from torch.distributed import distributed_c10d
from torch.distributed.distributed_c10d import _set_pg_timeout as set_group_timeout
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._python_dispatch import _disable_current_modes as modes_off
from torch.utils._pytree import tree_leaves

try:  # 2.5
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset as own_box
except ImportError:
    from torch.distributed._tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
    from torch.distributed._tensor._utils import compute_local_shape_and_global_offset as own_box
try:  # 2.6
    from torch.distributed.fsdp import (
        CPUOffloadPolicy,
        FSDPModule,
        MixedPrecisionPolicy,
        OffloadPolicy,
        fully_shard,
    )
except ImportError:
    from torch.distributed._composable.fsdp import (
        CPUOffloadPolicy,
        FSDPModule,
        MixedPrecisionPolicy,
        OffloadPolicy,
        fully_shard,
    )
try:  # 2.13
    all_gather, reduce_scatter = dist.all_gather_single, dist.reduce_scatter_single
except AttributeError:
    all_gather, reduce_scatter = dist.all_gather_into_tensor, dist.reduce_scatter_tensor

__all__ = [
    "FSDP2_ON_CPU",
    "PAD_PACKED",
    "RESHARDS_BY_DEFAULT",
    "SYNC_BUFFERS",
    "CPUOffloadPolicy",
    "DTensor",
    "FSDPModule",
    "FakeTensor",
    "MixedPrecisionPolicy",
    "OffloadPolicy",
    "Partial",
    "Replicate",
    "Shard",
    "TorchDispatchMode",
    "all_gather",
    "attention",
    "distribute",
    "fully_shard",
    "has_compiler",
    "has_no_numbers",
    "is_transformed",
    "modes_off",
    "own_box",
    "process_groups",
    "reduce_scatter",
    "reshard_unit",
    "scaled_product",
    "set_group_timeout",
    "settle_shards",
    "transformed_as",
    "transforms_off",
    "tree_leaves",
    "untransformed",
]

_DDP = inspect.signature(DistributedDataParallel.__init__).parameters
# DistributedDataParallel's argument: whether rank 0's buffers go to the others before each pass.
SYNC_BUFFERS = "forward_sync_buffers" if "forward_sync_buffers" in _DDP else "broadcast_buffers"
# Divide a tensor that every rank holds whole. Before 2.6 rank 0 sends the parts, to which all come in the same order.
_SENT = inspect.signature(distribute_tensor).parameters
distribute = partial(distribute_tensor, src_data_rank=None) if "src_data_rank" in _SENT else distribute_tensor
_VERSION = numbers(torch.__version__)
FSDP2_ON_CPU = _VERSION >= (2, 7)
# fully_shard's reshard_after_forward where the root alone keeps its parameters: None from 2.8 on.
RESHARDS_BY_DEFAULT = inspect.signature(fully_shard).parameters["reshard_after_forward"].default


def has_compiler() -> bool:
    """Whether torch.compile finds a C++ compiler for the CPU's kernels."""
    from torch._inductor.exc import InvalidCxxCompiler  # half a second

    try:
        from torch._inductor.cpp_builder import get_cpp_compiler
    except ImportError:
        from torch._inductor.codecache import cpp_compiler as get_cpp_compiler
    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        return False
    return True


def attention(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
    """torch's `scaled_dot_product_attention`, of more heads of queries than of keys and values as well."""
    if query.shape[-3] != key.shape[-3]:
        if _VERSION >= (2, 5):
            options["enable_gqa"] = True
        else:
            repeats = query.shape[-3] // key.shape[-3]
            key, value = key.repeat_interleave(repeats, -3), value.repeat_interleave(repeats, -3)
    return F.scaled_dot_product_attention(query, key, value, **options)


# What nn.utils.rnn.pad_packed_sequence calls.
PAD_PACKED = torch._C._VariableFunctions._pad_packed_sequence


def scaled_product(a: Tensor, b: Tensor, scales: tuple[Tensor, Tensor], dtype: torch.dtype) -> Tensor:
    """The product of two matrices of float8, each times its scale, as another dtype."""
    product = torch._scaled_mm(a, b, scale_a=scales[0], scale_b=scales[1], out_dtype=dtype)
    # 2.4 gives its largest element beside it.
    return product[0] if isinstance(product, tuple) else product


def process_groups() -> list[dist.ProcessGroup]:
    """All groups that this process is in."""
    return list(distributed_c10d._world.pg_map)


def settle_shards(root: torch.nn.Module) -> None:
    """Have FSDP2 pad uneven shards now, and not in the first pass, from which on the parameters would hold other tensors (torch 2.8)."""
    for unit in root.modules():
        group = unit._get_fsdp_state()._fsdp_param_group if isinstance(unit, FSDPModule) else None
        if getattr(group, "_reset_sharded_params", None) is False:
            for parameter in group.fsdp_params:
                parameter.reset_sharded_param()
                parameter._init_extensions()
            group._reset_sharded_params = True


def has_no_numbers(tensor: Tensor) -> bool:
    """Whether a tensor is zeros that were never stored, as derivatives have them."""
    return bool(tensor._is_zerotensor())  # type: ignore[attr-defined]


def is_transformed(tensor: Tensor) -> bool:
    """Whether a function of `torch.func` is at work on a tensor."""
    return bool(_functorch.is_functorch_wrapped_tensor(tensor))


def untransformed(tensor: Tensor) -> Tensor:
    """The numbers, detached, of what functions of `torch.func` are at work on: rows that `vmap` takes one by one as its first axis."""
    with transforms_off():
        while is_transformed(tensor):
            axis = _functorch.maybe_get_bdim(tensor) if _functorch.is_batchedtensor(tensor) else 0
            tensor = _functorch.get_unwrapped(tensor)
            tensor = tensor.movedim(axis, 0) if axis else tensor
        return tensor.detach()


def transformed_as(numbers: Tensor, tensor: Tensor) -> Tensor:
    """Numbers, as `untransformed` has those of a tensor, given to the functions of `torch.func` that are at work on it."""
    levels, numbers = [], untransformed(numbers)
    while is_transformed(tensor):
        if _functorch.is_batchedtensor(tensor):
            levels.append(_functorch.maybe_get_level(tensor))
        tensor = _functorch.get_unwrapped(tensor)
    for level in reversed(levels):
        numbers = _functorch._add_batch_dim(numbers, 0, level)
    return numbers


def reshard_unit(unit: FullyShardedDataParallel) -> None:
    """Free a unit's whole parameters; stale ones would be used by the next pass."""
    from torch.distributed.fsdp._runtime_utils import _reshard

    if unit._handle is not None:
        _reshard(unit, unit._handle, True)
