"""Faults of precision: float32 in a float64 path, loss scales, and reductions that round (33 to 35)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision

from parity.common import reference
from parity.common.execution.hooks import Hook
from parity.torch_impl import layers, optimizers, strategy
from parity.torch_impl.layers import products
from parity.torch_impl.private_names import MixedPrecisionPolicy, fully_shard
from parity.torch_impl.strategy import sharded
from parity_tests.faults.torch_ground import fault, hook_on_buckets, sums_by_themselves
from parity_tests.helpers.hooks import hooked


@fault
def float32_constant() -> Iterator[None]:  # 33
    def optimizer(owner: Any, part: Hook, spec: Any, *rest: Any) -> Any:
        return part(spec.model_copy(update={"momentum": float(np.float32(spec.momentum))}), *rest)

    with hooked(optimizer=optimizer):
        yield


@fault
def loss_in_float32() -> Iterator[None]:  # 33
    def loss(step: Any, part: Hook, logits: torch.Tensor, *rest: Any) -> Any:
        total, count = part(logits.float(), *rest)
        return total.double(), count.double()

    with hooked(loss=loss):
        yield


@fault
def learning_rate_in_float32() -> Iterator[None]:  # 33
    real = reference.StepScalars.scalars

    def scalars(self: Any, number: int) -> Any:
        return {name: float(np.float32(value)) for name, value in real(self, number).items()}

    with patch.object(reference.StepScalars, "scalars", scalars):
        yield


@fault
def layer_norm_in_float32() -> Iterator[None]:  # 33
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        spec = self.spec
        y = torch.nn.functional.layer_norm(
            x.float(), x.shape[x.ndim - spec.axes :], self.gamma.float(), self.beta.float(), spec.epsilon
        )
        return y.double()

    with patch.object(layers.normalization.LayerNorm, "forward", forward):
        yield


@fault
def batch_norm_epsilon_in_float32() -> Iterator[None]:  # 33
    real = layers.normalization._SynchronisedNorm.apply
    with patch.object(
        layers.normalization._SynchronisedNorm,
        "apply",
        lambda rows, epsilon, ranks: real(rows, float(np.float32(epsilon)), ranks),
    ):
        yield


@fault
def activation_through_float32() -> Iterator[None]:  # 33
    real = torch.nn.functional.gelu
    with patch.object(torch.nn.functional, "gelu", lambda x: real(x.float()).double()):
        yield


@fault
def second_moment_in_float32() -> Iterator[None]:  # 33
    real = optimizers.adam.moments

    def moments(given: Any) -> Any:
        first, second = real(given)
        for moment in second:
            moment.copy_(moment.float())
        return first, second

    in_passes = patch.object(optimizers.adam, "_fused", optimizers.adam._in_passes)
    with patch.object(optimizers.adam, "moments", moments), in_passes:
        yield


@fault
def loss_scale_not_divided_out() -> Iterator[None]:  # 34
    def reduce(step: Any, part: Hook, local: Any, scalars: Any) -> Any:
        return part(local, {**scalars, "loss_scale": 1.0})

    with hooked(reduce=reduce):
        yield


@fault
def overflow_not_skipped() -> Iterator[None]:  # 34
    with hooked(finite=lambda step, part, gradients, scalars: True):
        yield


@fault
def gradient_infinite_on_rank_one() -> Iterator[None]:  # no fault of ours: every replica must skip the step
    losses_seen = []

    def loss(step: Any, part: Hook, outputs: Any, labels: Any, context: Any) -> Any:
        total, count = part(outputs, labels, context)
        if context.training:
            losses_seen.append(count)
            if len(losses_seen) == 4 and dist.get_rank() == 1:
                total.register_hook(lambda gradient: gradient * torch.inf)
        return total, count

    with hooked(loss=loss):
        yield


def _compressing(dtype: torch.dtype) -> Any:
    def hook_of(module: Any) -> Any:
        del module

        def compress(_, bucket):
            low = bucket.buffer().to(dtype).div_(dist.get_world_size())
            work = dist.all_reduce(low, async_op=True).get_future()
            return work.then(lambda done: bucket.buffer().copy_(done.value()[0]))

        return compress

    return hook_on_buckets(hook_of)


@fault
def reduced_in_bfloat16() -> Iterator[None]:  # 35
    with _compressing(torch.bfloat16):
        yield


@fault
def reduced_in_float32() -> Iterator[None]:  # 35
    with _compressing(torch.float32):
        yield


@fault
def all_reduced_in_bfloat16() -> Iterator[None]:  # 35
    real = strategy.STRATEGIES["manual"].reduced

    def reduced(self: Any, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
        low = real(self, [gradient.bfloat16() for gradient in gradients])
        return [total.to(gradient.dtype) for total, gradient in zip(low, gradients, strict=True)]

    with patch.object(strategy.STRATEGIES["manual"], "reduced", reduced):
        yield


@fault
def scattered_in_bfloat16() -> Iterator[None]:  # 35: a MixedPrecisionPolicy says so
    policy = MixedPrecisionPolicy(reduce_dtype=torch.bfloat16)
    with sums_by_themselves(), patch.object(sharded, "fully_shard", partial(fully_shard, mp_policy=policy)):
        yield


@fault
def scattered_flat_in_float32() -> Iterator[None]:  # 35
    low = partial(FullyShardedDataParallel, mixed_precision=MixedPrecision(reduce_dtype=torch.float32))

    def unit(self: Any, module: Any) -> Any:
        with patch.object(sharded, "FullyShardedDataParallel", low):
            return real(self, module)

    real = sharded.FSDP1._unit
    with patch.object(sharded.FSDP1, "_unit", unit):
        yield


@fault
def weight_gradients_rounded() -> Iterator[None]:  # as torch.autocast does
    real = products._Matmul.backward

    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        da, db, *rest = real(ctx, dy)
        return da, None if db is None else ctx.low.rounded(db), *rest

    with patch.object(products._Matmul, "backward", staticmethod(backward)):
        yield
