"""Faults of layers, normalisations and layouts (19 to 21, 27 to 32), and of what layers draw (26)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
import torch.nn.functional as F

from parity.common.execution.hooks import Hook
from parity.common.execution.pass_context import Context
from parity.common.spec.layers import Flatten
from parity.torch_impl.layers.attention import Attention, SelfAttention
from parity.torch_impl.layers.convolution import Conv2D
from parity.torch_impl.layers.core import Dense
from parity.torch_impl.layers.normalization import BatchNorm, LayerNorm
from parity.torch_impl.layers.recurrent import GRU, LSTM, Recurrent
from parity.torch_impl.layers.registry import Function
from parity.torch_impl.model import Model
from parity_tests.faults.torch_ground import fault, spec_changed
from parity_tests.helpers.hooks import hooked


@fault
def batch_norm_epsilon() -> Iterator[None]:  # 19
    with spec_changed(BatchNorm, epsilon=1e-5):
        yield


@fault
def batch_norm_momentum_of_the_other_framework() -> Iterator[None]:  # 19: no training loss sees it
    with spec_changed(BatchNorm, decay=0.01):
        yield


@fault
def running_variance_unbiased() -> Iterator[None]:  # 19
    with spec_changed(BatchNorm, running_variance="unbiased"):
        yield


@fault
def running_variance_biased() -> Iterator[None]:  # 19, the reverse
    with spec_changed(BatchNorm, running_variance="biased"):
        yield


@fault
def batch_norm_statistics_per_replica() -> Iterator[None]:  # 20
    with spec_changed(BatchNorm, statistics="per_replica"):
        yield


@fault
def batch_norm_statistics_of_all_replicas() -> Iterator[None]:  # 20, the reverse
    with spec_changed(BatchNorm, statistics="global"):
        yield


@fault
def evaluated_in_training_mode() -> Iterator[None]:  # 21
    real = Model.context
    with patch.object(Model, "context", lambda self, training, *rest: real(self, True, *rest)):
        yield


@fault
def trained_in_inference_mode() -> Iterator[None]:  # 21, the reverse
    real = Model.context
    with patch.object(Model, "context", lambda self, training, *rest: real(self, False, *rest)):
        yield


def _other_context(change: Callable[[Context], Context]) -> Any:
    real = Model.context
    return patch.object(Model, "context", lambda self, *rest: change(real(self, *rest)))


@fault
def dropout_keyed_by_place() -> Iterator[None]:  # 26: the same masks on every replica
    real = Model.context

    def context(self: Any, training: bool, inputs: Any, ids: Any, *rest: Any) -> Any:
        return real(self, training, inputs, torch.arange(len(ids)), *rest)

    with patch.object(Model, "context", context):
        yield


@fault
def dropout_of_another_seed() -> Iterator[None]:  # 26: each replica has its own
    def change(given: Context) -> Context:
        rank = dist.get_rank() if dist.is_initialized() else 0
        return replace(given, seed=given.seed + 1 + rank)

    with _other_context(change):
        yield


@fault
def dropout_the_same_in_every_step() -> Iterator[None]:  # 26: along the other axis
    with _other_context(lambda given: replace(given, step=0)):
        yield


@fault
def square_kernel_transposed() -> Iterator[None]:  # 27
    stock = SelfAttention._tensors

    def tensors(self: Any, part: str) -> tuple[torch.Tensor, torch.Tensor | None]:
        kernel, bias = stock(self, part)
        return kernel.T if part == "value" else kernel, bias

    with patch.object(SelfAttention, "_tensors", tensors):
        yield


@fault
def square_dense_kernel_transposed() -> Iterator[None]:  # 27
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        square = self.weight.shape[0] == self.weight.shape[1]
        return F.linear(x, self.weight.t() if square else self.weight, self.bias)

    with patch.object(Dense, "forward", forward):
        yield


def _other_kernel(change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Convolutions of images with a changed kernel, (out, in, height, width)."""
    real = Conv2D._conv_forward
    return patch.object(
        Conv2D, "_conv_forward", lambda self, x, weight, bias: real(self, x, change(weight), bias)
    )


@fault
def convolution_kernel_transposed() -> Iterator[None]:  # 27: height for width
    with _other_kernel(lambda kernel: kernel.transpose(-1, -2)):
        yield


@fault
def convolution_kernel_flipped() -> Iterator[None]:  # 27: a convolution where a correlation was meant
    with _other_kernel(lambda kernel: kernel.flip(-1, -2)):
        yield


@fault
def flattened_in_the_other_order() -> Iterator[None]:  # 28
    def layer(owner: Any, part: Hook, node: Any) -> Any:
        if not isinstance(node.spec, Flatten):
            return part(node)
        return Function(lambda x: x.movedim(-1, 1).reshape(len(x), *node.output_shape))

    with hooked(layer=layer):
        yield


@fault
def padding_on_the_other_side() -> Iterator[None]:  # 29
    real = Conv2D.__init__

    def init(self: Any, node: Any) -> None:
        real(self, node)
        if self.extra is not None:
            left, right, top, bottom = self.extra
            self.extra = (right, left, bottom, top)

    with patch.object(Conv2D, "__init__", init):
        yield


@fault
def lstm_gates_swapped() -> Iterator[None]:  # 30
    def swapped(self: Any, tensor: torch.Tensor) -> torch.Tensor:
        del self
        i, f, c, o = tensor.chunk(4)
        return torch.cat([i, c, f, o])

    with patch.object(LSTM, "_native_order", swapped):
        yield


@fault
def gru_gates_swapped() -> Iterator[None]:  # 30: update for reset, which only the native order turns
    with patch.object(GRU, "_native_order", lambda self, tensor: tensor):
        yield


@fault
def recurrent_bias_twice() -> Iterator[None]:  # 30: one for the input and the same for the state
    real = Recurrent._tensor

    def tensor(self: Any, prefix: str, name: str) -> Any:
        return real(self, prefix, "bias" if name == "recurrent_bias" else name)

    with patch.object(Recurrent, "_tensor", tensor):
        yield


@fault
def dense_bias_twice() -> Iterator[None]:  # 30
    real = Dense.forward
    with patch.object(Dense, "forward", lambda self, x: real(self, x) + self.bias):
        yield


@fault
def dense_bias_missing() -> Iterator[None]:  # 30, the reverse; it has no gradient then
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight, self.bias * 0)

    with patch.object(Dense, "forward", forward):
        yield


def _other_attention(attend: Callable[..., torch.Tensor]) -> Any:
    """attend(real, query, key, value, **options) in place of the operation."""
    real = F.scaled_dot_product_attention
    return patch.object(
        F, "scaled_dot_product_attention", lambda q, k, v, **options: attend(real, q, k, v, **options)
    )


@fault
def attention_not_scaled() -> Iterator[None]:  # 31
    with _other_attention(lambda real, q, k, v, **options: real(q, k, v, scale=1.0, **options)):
        yield


@fault
def attention_scaled_by_all_heads() -> Iterator[None]:  # 31: by the root of the features, not of a head's
    def attend(real: Any, q: Any, k: Any, v: Any, **options: Any) -> torch.Tensor:
        return real(q, k, v, scale=(q.shape[-1] * q.shape[1]) ** -0.5, **options)

    with _other_attention(attend):
        yield


@fault
def softmax_over_the_wrong_axis() -> Iterator[None]:  # 31
    def attend(_: Any, q: Any, k: Any, v: Any, **options: Any) -> torch.Tensor:
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        return scores.softmax(-2) @ v

    with _other_attention(attend):
        yield


@fault
def causal_mask_off_by_one() -> Iterator[None]:  # 31: a token sees the one after it
    real = torch.Tensor.tril
    with patch.object(torch.Tensor, "tril", lambda self: real(self, 1)):
        yield


@fault
def causal_mask_missing() -> Iterator[None]:  # 31
    with patch.object(torch.Tensor, "tril", lambda self: self):
        yield


@fault
def padding_mask_missing() -> Iterator[None]:  # 31: tokens attend to padding
    real = Attention._mix

    def mix(self: Any, query: Any, key: Any, value: Any, given: Context) -> torch.Tensor:
        return real(self, query, key, value, replace(given, token_mask=None))

    with patch.object(Attention, "_mix", mix):
        yield


@fault
def layer_norm_epsilon() -> Iterator[None]:  # 32
    with spec_changed(LayerNorm, epsilon=1e-5):
        yield


@fault
def gelu_approximated() -> Iterator[None]:  # 32
    real = F.gelu
    with patch.object(F, "gelu", lambda x, **_: real(x, approximate="tanh")):
        yield


@fault
def gelu_not_approximated() -> Iterator[None]:  # 32, the reverse
    real = F.gelu
    with patch.object(F, "gelu", lambda x, **_: real(x)):
        yield


@fault
def recomputed_pass_counted_twice() -> Iterator[None]:  # moving statistics under activation checkpointing
    with patch.object(Context, "again", lambda self: self):
        yield
