"""Faults that other tests than those of the diagnosis plant: crashes, engines, compilers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist

from parity.torch_impl import data
from parity_tests.faults.torch_ground import fault


@fault
def a_rank_crashes() -> Iterator[None]:
    real = data.batches

    def batches(*arguments: Any) -> Iterator[Any]:
        for number, batch in enumerate(real(*arguments)):
            if number == 5 and dist.get_rank() == 1:
                raise ValueError("the disk of rank 1 is gone")
            yield batch

    with patch.object(data, "batches", batches):
        yield


@fault
def compiled_pass_changed() -> Iterator[None]:  # by a compiler that is a little off
    real = torch.nn.Module.compile

    def off(graph: Any, inputs: Any) -> Any:
        del inputs
        return lambda *given: [value * (1 + 1e-9) for value in graph(*given)]

    with patch.object(torch.nn.Module, "compile", lambda self, **given: real(self, backend=off)):
        yield


def _backward_doubled(owner: type) -> Any:
    """That an engine's own backward pass is what gives the gradients shows if it is made a wrong one."""
    real = owner.backward

    def backward(self: Any, loss: torch.Tensor, *rest: Any, **more: Any) -> Any:
        return real(self, loss * 2, *rest, **more)

    return patch.object(owner, "backward", backward)


@fault
def backward_of_fabric_doubled() -> Iterator[None]:
    import lightning.fabric

    with _backward_doubled(lightning.fabric.Fabric):
        yield


@fault
def backward_of_accelerate_doubled() -> Iterator[None]:
    import accelerate

    with _backward_doubled(accelerate.Accelerator):
        yield


@fault
def backward_of_lightning_doubled() -> Iterator[None]:
    from lightning.pytorch.strategies import Strategy

    with _backward_doubled(Strategy):
        yield


@fault
def backward_of_deepspeed_doubled() -> Iterator[None]:
    from parity.torch_impl.strategy.deepspeed import import_deepspeed

    with _backward_doubled(import_deepspeed(on_gpu=False).DeepSpeedEngine):
        yield
