"""Products of matrices with low operands, as `common/spec/precision.py` defines them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from parity.common.base.errors import RunError
from parity.common.spec import TrainSpec
from parity.torch_impl.private_names import scaled_product


@dataclass(frozen=True)
class Low:
    """What products round to.

    dtype: of operands and results. native: whether kernels of that type may be used, else float32
    kernels are given the rounded operands. float8: whether dense kernels meet their inputs in float8.
    """

    dtype: torch.dtype
    native: bool
    float8: bool = False

    def operand(self, x: Tensor) -> Tensor:
        """x rounded."""
        return x.to(self.dtype)

    def met(self, *operands: Tensor) -> tuple[Tensor, ...]:
        """Operands in the type of the kernels."""
        return operands if self.native else tuple(x.float() for x in operands)

    def rounded(self, y: Tensor) -> Tensor:
        """A kernel's result rounded, in float32."""
        return y.to(self.dtype).float()


class Products(nn.Module):
    """A mixin for modules that multiply matrices. `low` is None where nothing is rounded."""

    low: Low | None = None

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        """Product of two activations (..., m, k) and (..., k, n)."""
        return a @ b if self.low is None else _Matmul.apply(a, b, self.low, False)

    def project(self, x: Tensor, kernel: Tensor, bias: Tensor | None = None) -> Tensor:
        """Product of an activation (..., k) and a weight (k, n), plus a bias (n,)."""
        if self.low is None:
            return F.linear(x, kernel.t(), bias)
        low = self.low
        y = _Project8.apply(x, kernel) if low.float8 else _Matmul.apply(x, kernel, low, True)
        return y if bias is None else y + bias

    def convolve(self, x: Tensor, kernel: Tensor, bias: Tensor | None, *geometry: Any) -> Tensor:
        """Convolution of channels-first activations; geometry as in torch.convolution."""
        if self.low is None:
            return torch.convolution(x, kernel, bias, *geometry)
        y = _Convolution.apply(x, kernel, self.low, geometry)
        return y if bias is None else y + bias.view(-1, *[1] * (y.ndim - 2))


def set_low(root: nn.Module, low: Low | None) -> None:
    """Have all products of a module and of what is in it round to `low`."""
    for part in root.modules():
        if isinstance(part, Products):
            part.low = low


def low_of(spec: TrainSpec, gpu: bool) -> Low | None:
    """What the products of a spec's layers round to."""
    if spec.low_dtype is None:
        return None
    float8 = spec.precision == "float8_mixed"
    if float8:
        _check_float8(gpu)
    return Low(getattr(torch, spec.low_dtype), sums_in_float32(spec.low_dtype, gpu), float8)


def _check_float8(gpu: bool) -> None:
    """Raise RunError where there are no kernels for float8."""
    found = torch.cuda.get_device_capability() if gpu else None
    if found is None or found < (8, 9):
        here = "the CPU" if found is None else f"a GPU of compute capability {found[0]}.{found[1]}"
        raise RunError(
            f"float8_mixed needs a GPU of compute capability 8.9 or newer (Ada, Hopper), this is {here};"
            " take bfloat16_mixed"
        )


@functools.lru_cache
def sums_in_float32(dtype: str, gpu: bool) -> bool:
    """Whether kernels of this type sum products in float32; if not, float32 kernels are used instead.

    On CPU float16 is not even tried: gradients of convolutions are 17 units in the last place off, and
    matmul takes 20 times as long (PyTorch 2.13). GPUs sum in float32, as `runtime` asks.
    """
    if gpu:
        return True
    if dtype == "float16":
        return False
    # Exact in float32, whatever the order; what is rounded on the way, as some processors do it, is another number.
    low = getattr(torch, dtype)
    rows = 1 + torch.arange(2 * 4096).view(2, 4096) % 7 / 8
    images, kernel = rows.view(2, 64, 8, 8), rows.view(2, 64, 8, 8)
    geometry = (1, 1), (0, 0), (1, 1), False, (0, 0), 1
    dy = rows[:, :200].reshape(2, 2, 10, 10)
    large, small = images.new_ones(2, 64, 12, 12), kernel[..., :3, :3]

    def products(kind: torch.dtype) -> list[Tensor]:
        a, x, w, g, wide, s = (each.to(kind) for each in (rows, images, kernel, dy, large, small))
        return [a @ a.t(), torch.conv2d(x, w), _gradients(g, wide, s, geometry, 0)]

    return all(
        torch.equal(y, exact.to(low)) for y, exact in zip(products(low), products(torch.float32), strict=True)
    )


class _Matmul(torch.autograd.Function):
    """low(a) low(b), rounded. The gradient of a weight is not."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, low: Low, weight: bool) -> Tensor:
        a, b = low.operand(a), low.operand(b)
        ctx.save_for_backward(a, b)
        ctx.low, ctx.weight = low, weight
        a, b = low.met(a, b)
        return low.rounded(a @ b)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        low: Low = ctx.low
        a, b, dy = low.met(*ctx.saved_tensors, low.operand(dy))
        da = db = None
        if ctx.needs_input_grad[0]:
            da = low.rounded(dy @ b.mT)
        if ctx.needs_input_grad[1]:
            if ctx.weight:
                db = a.flatten(0, -2).mT.float() @ dy.flatten(0, -2).float()
            else:
                db = low.rounded(a.mT @ dy)
        return da, db, None, None


class _Convolution(torch.autograd.Function):
    """Convolution of low(x) with low(kernel), rounded. The gradient of the kernel is not."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: Tensor, low: Low, geometry: Sequence[Any]) -> Tensor:
        x, kernel = low.operand(x), low.operand(kernel)
        ctx.save_for_backward(x, kernel)
        ctx.low, ctx.geometry = low, geometry
        x, kernel = low.met(x, kernel)
        return low.rounded(torch.convolution(x, kernel, None, *geometry))

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        low: Low = ctx.low
        x, kernel, dy = low.met(*ctx.saved_tensors, low.operand(dy))
        dx = dkernel = None
        if ctx.needs_input_grad[0]:
            dx = low.rounded(_gradients(dy, x, kernel, ctx.geometry, 0))
        if ctx.needs_input_grad[1]:
            dkernel = _gradients(dy.float(), x.float(), kernel.float(), ctx.geometry, 1)
        return dx, dkernel, None, None


def _gradients(dy: Tensor, x: Tensor, kernel: Tensor, geometry: Sequence[Any], which: int) -> Tensor:
    """The gradient of a convolution with respect to its input (0) or its kernel (1)."""
    mask = [place == which for place in range(3)]
    return torch.ops.aten.convolution_backward(dy, x, kernel, None, *geometry, mask)[which]


class _Project8(torch.autograd.Function):
    """An activation and a weight in e4m3, gradients of the result in e5m2."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: Tensor) -> Tensor:
        rows = x.flatten(0, -2)
        a, b = _scaled(rows, torch.float8_e4m3fn), _scaled(kernel, torch.float8_e4m3fn)
        ctx.save_for_backward(*a, *b)
        ctx.shapes = x.shape, kernel.shape
        y = _multiply8(a, b, torch.bfloat16)[: len(rows), : kernel.shape[1]]
        return y.float().unflatten(0, x.shape[:-1])

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor]:
        a, scale_a, b, scale_b = ctx.saved_tensors
        shape, (inputs, outputs) = ctx.shapes
        rows = dy.flatten(0, -2)
        g = _scaled(rows, torch.float8_e5m2)
        dx = _multiply8(g, (b.t(), scale_b), torch.bfloat16)[: len(rows), :inputs]
        dkernel = _multiply8((a.t(), scale_a), g, torch.float32)[:inputs, :outputs]
        return dx.float().reshape(shape), dkernel


def _scaled(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """(x / scale in float8, its sides filled up to the multiples of 16 that kernels ask for; the scale).

    The scale brings the largest element of all ranks to the type's largest number: of this rank's
    alone, it would depend on how the batch is divided.
    """
    largest = x.abs().amax() if x.numel() else x.new_zeros(())
    if dist.is_initialized():
        dist.all_reduce(largest, dist.ReduceOp.MAX)
    limit = torch.finfo(dtype).max
    scale = torch.where(largest > 0, largest / limit, torch.ones_like(largest))
    rows, columns = (-(-size // 16) * 16 for size in x.shape)
    filled = F.pad((x / scale).clamp(-limit, limit), (0, columns - x.shape[1], 0, rows - x.shape[0]))
    return filled.to(dtype), scale


def _multiply8(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor], result: torch.dtype) -> Tensor:
    """Product of two scaled matrices: kernels want the first by rows and the second by columns."""
    left, right = a[0].contiguous(), b[0].t().contiguous().t()
    return scaled_product(left, right, (a[1], b[1]), result)
