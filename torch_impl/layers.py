"""LayerSpec -> nn.Module: one registered function per spec class.

Activations keep canonical shapes between layers (images NHWC). A convolution sees them permuted to
NCHW, which for a contiguous NHWC tensor is exactly PyTorch's channels_last memory format.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from common.spec import Node
from common.spec import layers as spec

# Canonical tensor name -> (attribute of the module, axes that turn canonical into native layout).
Layout = dict[str, tuple[str, tuple[int, ...]]]

_BUILDERS: dict[type, Callable[[Node], nn.Module]] = {}
_LAYOUTS: dict[type, Layout] = {}


def register(spec_class: type, **layout: tuple[str, tuple[int, ...]]) -> Callable:
    """Decorator: the function that turns a node of `spec_class` into a module.

    `layout` is needed only for tensors whose native name or layout is not the canonical one.
    """

    def remember(builder: Callable[[Node], nn.Module]) -> Callable:
        _BUILDERS[spec_class] = builder
        _LAYOUTS[spec_class] = layout
        return builder

    return remember


def build_layer(node: Node) -> nn.Module:
    """The module of a node, its children included."""
    return _BUILDERS[type(node.spec)](node)


def native_layout(node: Node, tensor: str) -> tuple[str, tuple[int, ...] | None]:
    """(attribute, axes from canonical to native) of one of a node's tensors; None leaves it as it is."""
    return _LAYOUTS[type(node.spec)].get(tensor, (tensor, None))


class Function(nn.Module):
    """A module without parameters."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


@register(spec.Dense, kernel=("weight", (1, 0)), bias=("bias", (0,)))
def dense(node: Node) -> nn.Module:
    return nn.Linear(node.input_shape[-1], node.spec.units, bias=node.spec.use_bias)


class Conv2D(nn.Conv2d):
    """nn.Conv2d on NHWC, with TensorFlow's padding where it is not symmetric."""

    def __init__(self, node: Node) -> None:
        layer = node.spec
        before_after = [layer.same_padding(side) for side in node.input_shape[:2]]
        (top, bottom), (left, right) = before_after
        symmetric = top == bottom and left == right
        super().__init__(
            node.input_shape[-1],
            layer.filters,
            layer.kernel_size,
            layer.strides,
            padding=(top, left) if symmetric else 0,
            bias=layer.use_bias,
        )
        self.extra = None if symmetric else (left, right, top, bottom)

    def forward(self, x: Tensor) -> Tensor:
        x = x.permute(0, 3, 1, 2)
        if self.extra is not None:
            x = F.pad(x, self.extra)
        return super().forward(x).permute(0, 2, 3, 1)


@register(spec.Conv2D, kernel=("weight", (3, 2, 0, 1)), bias=("bias", (0,)))
def conv2d(node: Node) -> nn.Module:
    return Conv2D(node)


class _SynchronisedNorm(torch.autograd.Function):
    """(x - mean) / sqrt(variance + epsilon) with the statistics of all ranks' rows.

    One message forward and one backward. Each rank sends its count, mean and sum of squared
    deviations; they are combined pairwise-exactly (Chan, Golub, LeVeque: "Updating formulae and a
    pairwise algorithm for computing sample variances", 1979), which does not cancel as
    E[x^2] - E[x]^2 does. Backward: dx = (dy - mean(dy) - xhat * mean(dy * xhat)) / sqrt(...).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, epsilon: float, ranks: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """x (rows, channels) -> normalised x, and the mean, sum of squared deviations, and row count."""
        rows = x.shape[0]
        # A rank without rows contributes zeros, not the 0/0 of an empty mean.
        mean = x.sum(0) / max(rows, 1)
        squares = (x - mean).square_().sum(0)
        count = x.new_tensor(rows)
        if ranks > 1:
            mine = torch.cat([mean, squares, count[None]])
            everyone = x.new_empty(ranks * len(mine))
            dist.all_gather_single(everyone, mine)
            means, all_squares, counts = everyone.view(ranks, -1).split([len(mean), len(mean), 1], dim=1)
            count = counts.sum()
            mean = (means * counts).sum(0) / count
            squares = all_squares.sum(0) + ((means - mean).square() * counts).sum(0)
        scale = torch.rsqrt(squares / count.clamp(min=1) + epsilon)
        normalised = (x - mean).mul_(scale)
        ctx.save_for_backward(normalised, scale, count)
        ctx.ranks = ranks
        ctx.mark_non_differentiable(mean, squares, count)
        return normalised, mean, squares, count

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor, None, None]:
        normalised, scale, count = ctx.saved_tensors
        sums = torch.stack([gradient.sum(0), (gradient * normalised).sum(0)])
        if ctx.ranks > 1:
            dist.all_reduce(sums)
        sums = sums / count.clamp(min=1)
        return (gradient - sums[0]).addcmul_(normalised, sums[1], value=-1).mul_(scale), None, None


class BatchNorm(nn.Module):
    """Batch norm over the rows of all replicas, or of this one. nn.SyncBatchNorm refuses CPU tensors."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.spec = node.spec
        shape = node.input_shape[-1:]
        self.gamma = nn.Parameter(torch.ones(shape))
        self.beta = nn.Parameter(torch.zeros(shape))
        self.register_buffer("moving_mean", torch.zeros(shape))
        self.register_buffer("moving_variance", torch.ones(shape))

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            scale = self.gamma * torch.rsqrt(self.moving_variance + self.spec.epsilon)
            return (x - self.moving_mean) * scale + self.beta
        alone = self.spec.statistics == "per_replica" or not dist.is_initialized()
        ranks = 1 if alone else dist.get_world_size()
        rows = x.reshape(-1, x.shape[-1])
        normalised, mean, squares, count = _SynchronisedNorm.apply(rows, self.spec.epsilon, ranks)
        self._remember(mean, squares, count)
        return torch.addcmul(self.beta, normalised, self.gamma).view(x.shape)

    @torch.no_grad()
    def _remember(self, mean: Tensor, squares: Tensor, count: Tensor) -> None:
        divisor = count - 1 if self.spec.running_variance == "unbiased" else count
        # An empty batch leaves the moving statistics as they are.
        # A bool times a Python float would be float32, whatever the run's precision.
        weight = (1 - self.spec.decay) * (count > 0).to(count.dtype)
        for moving, batch in (
            (self.moving_mean, mean),
            (self.moving_variance, squares / divisor.clamp(min=1)),
        ):
            moving.copy_(moving * (1 - weight) + batch * weight)


@register(spec.BatchNorm)
def batch_norm(node: Node) -> nn.Module:
    return BatchNorm(node)


@register(spec.LayerNorm, gamma=("weight", (0,)), beta=("bias", (0,)))
def layer_norm(node: Node) -> nn.Module:
    return nn.LayerNorm(node.input_shape[-1], eps=node.spec.epsilon)


@register(spec.Activation)
def activation(node: Node) -> nn.Module:
    return Function({"relu": F.relu, "gelu": F.gelu, "tanh": torch.tanh}[node.spec.function])


@register(spec.MaxPool2D)
def max_pool2d(node: Node) -> nn.Module:
    size = node.spec.size
    return Function(lambda x: F.max_pool2d(x.permute(0, 3, 1, 2), size).permute(0, 2, 3, 1))


@register(spec.GlobalAveragePool)
def global_average_pool(node: Node) -> nn.Module:
    return Function(lambda x: x.mean(tuple(range(1, x.ndim - 1))))


@register(spec.Flatten)
def flatten(node: Node) -> nn.Module:
    channels_first = node.spec.order == "chw"

    def apply(x: Tensor) -> Tensor:
        if channels_first and x.ndim > 2:
            x = x.movedim(-1, 1)
        return x.reshape(-1, *node.output_shape)

    return Function(apply)


@register(spec.Patchify)
def patchify(node: Node) -> nn.Module:
    size = node.spec.size
    height, width, channels = node.input_shape

    def apply(x: Tensor) -> Tensor:
        x = x.reshape(-1, height // size, size, width // size, size, channels)
        return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, *node.output_shape)

    return Function(apply)


class PositionEmbedding(nn.Module):
    """x + embedding."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.zeros(node.input_shape))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.embedding


@register(spec.PositionEmbedding)
def position_embedding(node: Node) -> nn.Module:
    return PositionEmbedding(node)


class SelfAttention(nn.Module):
    """Multi-head attention over kernels in canonical (in, out) layout."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.heads = node.spec.heads
        self.width = node.input_shape[-1]
        for tensor in node.parameters:
            self.register_parameter(tensor.name, nn.Parameter(torch.zeros(tensor.shape)))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (self._split(self._project(x, part)) for part in ("query", "key", "value"))
        scores = (query * (self.width // self.heads) ** -0.5) @ key.transpose(-1, -2)
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).flatten(2)
        return self._project(mixed, "output")

    def _project(self, x: Tensor, part: str) -> Tensor:
        y = x @ getattr(self, f"{part}_kernel")
        bias = getattr(self, f"{part}_bias", None)
        return y if bias is None else y + bias

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, self.width // self.heads)).transpose(1, 2)


@register(spec.SelfAttention)
def self_attention(node: Node) -> nn.Module:
    return SelfAttention(node)


class Chain(nn.Module):
    """Children one after another; with `residual`, plus the input."""

    def __init__(self, node: Node, residual: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(build_layer(child) for child in node.children)
        self.residual = residual

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for child in self.layers:
            y = child(y)
        return x + y if self.residual else y


@register(spec.Sequential)
def sequential(node: Node) -> nn.Module:
    return Chain(node, residual=False)


@register(spec.Residual)
def residual(node: Node) -> nn.Module:
    return Chain(node, residual=True)
