"""Faults of the PyTorch side. Each function patches one rank and yields while it trains."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.optim import ZeroRedundancyOptimizer

from common import reference
from common.data import plan
from torch_impl import context, data, layers, losses, optimizers, state, step, strategy, train
from torch_impl.layers import products
from torch_impl.model import Model
from torch_impl.strategy import sharded, tensor_parallel
from torch_impl.strategy.groups import begin_sum

_IN_RANK: dict[str, Callable[[], AbstractContextManager[None]]] = {}


def fault(body: Callable[[], Iterator[None]]) -> Callable[[], AbstractContextManager[None]]:
    """Turn a patch of a rank into what the worker enters: it sends its ranks through the patch."""
    _IN_RANK[body.__name__] = contextmanager(body)

    @contextmanager
    def in_worker() -> Iterator[None]:
        real = train.run_ranks

        def rerouted(function: str, arguments: tuple[Any, ...], *rest: Any) -> None:
            del function
            real("parity_tests.faults.torch:faulty_rank", (body.__name__, *arguments), *rest)

        with patch.object(train, "run_ranks", rerouted):
            yield

    return in_worker


def faulty_rank(name: str, *arguments: Any) -> None:
    """A rank's whole life under a fault."""
    with _IN_RANK[name]():
        train._train_rank(*arguments)


def _scaled_gradient(factor_of: Callable[[torch.Tensor], Any]) -> Callable[..., Any]:
    """A loss whose value is right and whose gradient is multiplied by a factor of the labels."""
    real = losses.loss_sum_and_count

    def faulty(loss: Any, logits: torch.Tensor, labels: torch.Tensor, context: Any) -> Any:
        total, count = real(loss, logits, labels, context)
        return total.detach() + (total - total.detach()) * factor_of(labels), count

    return faulty


def _spec_changed(layer: type, **change: Any) -> Any:
    real = layer.__init__

    def init(self: Any, node: Any) -> None:
        real(self, node)
        self.spec = self.spec.model_copy(update=change)

    return patch.object(layer, "__init__", init)


@fault
def replicas_never_synchronised() -> Iterator[None]:  # 1, 7
    with patch.object(strategy.STRATEGIES["ddp"], "wrap", lambda self, model: None):
        yield


@fault
def mean_of_replica_means() -> Iterator[None]:  # 2: right whenever the replicas have equally many
    def factor(labels: torch.Tensor) -> float:
        total = torch.tensor(float(len(labels)))
        dist.all_reduce(total)
        return float(total) / (dist.get_world_size() * max(len(labels), 1))

    with patch.object(losses, "loss_sum_and_count", _scaled_gradient(factor)):
        yield


@fault
def world_size_not_cancelled() -> Iterator[None]:  # 4: Adam's curve barely shows it
    scaled = _scaled_gradient(lambda labels: dist.get_world_size())
    with patch.object(losses, "loss_sum_and_count", scaled):
        yield


@fault
def gradients_not_zeroed() -> Iterator[None]:  # 15
    real = optimizers.Optimizer.update
    kept: list[Any] = []

    def update(self: Any, gradients: Any, scalars: Any) -> Any:
        kept[:] = torch._foreach_add(gradients, kept) if kept else gradients
        return real(self, list(kept), scalars)

    with patch.object(optimizers.Optimizer, "update", update):
        yield


@fault
def clipped_by_local_norm() -> Iterator[None]:  # 13
    def norms(self: Any, *groups: Any) -> list[torch.Tensor]:
        del self
        return [torch.linalg.vector_norm(torch.stack(torch._foreach_norm(group))) for group in groups]

    with patch.object(strategy.Strategy, "norms", norms):
        yield


@fault
def clipping_silently_off() -> Iterator[None]:  # 14
    with patch.object(optimizers.Optimizer, "clip", lambda self, gradients, norm: gradients):
        yield


@fault
def batch_norm_epsilon() -> Iterator[None]:  # 19
    with _spec_changed(layers.normalization.BatchNorm, epsilon=1e-5):
        yield


@fault
def batch_norm_momentum_of_the_other_framework() -> Iterator[None]:  # 19: no training loss sees it
    with _spec_changed(layers.normalization.BatchNorm, decay=0.01):
        yield


@fault
def batch_norm_statistics_per_replica() -> Iterator[None]:  # 20
    with _spec_changed(layers.normalization.BatchNorm, statistics="per_replica"):
        yield


@fault
def evaluated_in_training_mode() -> Iterator[None]:  # 21
    real = Model.context
    with patch.object(Model, "context", lambda self, training, *rest: real(self, True, *rest)):
        yield


@fault
def dropout_keyed_by_place() -> Iterator[None]:  # 26: the same masks on every replica
    real = Model.context

    def context(self: Any, training: bool, inputs: Any, ids: Any, *rest: Any) -> Any:
        return real(self, training, inputs, torch.arange(len(ids)), *rest)

    with patch.object(Model, "context", context):
        yield


@fault
def lstm_gates_swapped() -> Iterator[None]:  # 30
    def swapped(self: Any, tensor: torch.Tensor) -> torch.Tensor:
        del self
        i, f, c, o = tensor.chunk(4, -1)
        return torch.cat([i, c, f, o], -1)

    with patch.object(layers.recurrent.LSTM, "_native_order", swapped):
        yield


@fault
def causal_mask_off_by_one() -> Iterator[None]:  # 31: a token sees the one after it
    real = torch.Tensor.tril
    with patch.object(torch.Tensor, "tril", lambda self: real(self, 1)):
        yield


@fault
def never_reshuffled() -> Iterator[None]:  # 22
    real = plan._shuffled
    with patch.object(plan, "_shuffled", lambda seed, epoch, *rest: real(seed, 0, *rest)):
        yield


@fault
def sampler_pads_with_repeats() -> Iterator[None]:  # 23
    real = plan.BatchPlan.share

    def share(self: Any, ids: Any, replica: int) -> Any:
        short = -len(ids) % self.replicas
        return real(self, np.concatenate([ids, ids[:short]]), replica)

    with patch.object(plan.BatchPlan, "share", share):
        yield


@fault
def replicas_see_the_same_samples() -> Iterator[None]:  # 23
    real = plan.BatchPlan.share
    with patch.object(plan.BatchPlan, "share", lambda self, ids, replica: real(self, ids, 0)):
        yield


@fault
def labels_one_batch_late() -> Iterator[None]:  # 24: the ids are right, the labels are not
    real = data.batches

    def batches(*arguments: Any) -> Iterator[Any]:
        late = None
        for inputs, labels, ids in real(*arguments):
            usable = late is not None and len(late) == len(labels)
            yield inputs, late if usable else labels, ids
            late = labels

    with patch.object(data, "batches", batches):
        yield


@fault
def schedule_stepped_per_replica() -> Iterator[None]:  # 25
    real = reference.RateKeeper.scalars

    def scalars(self: Any, number: int) -> Any:
        return real(self, number * dist.get_world_size())

    with patch.object(reference.RateKeeper, "scalars", scalars):
        yield


@fault
def one_rank_starts_elsewhere() -> Iterator[None]:  # 10
    real = state.load

    def load(values: Any, model: Any, optimizer: Any) -> None:
        if dist.get_rank() == 1:
            values = {n: v * (1 + 1e-6) if n.startswith("parameters/") else v for n, v in values.items()}
        real(values, model, optimizer)

    with patch.object(state, "load", load):
        yield


@fault
def square_kernel_transposed() -> Iterator[None]:  # 27
    def project(self: Any, x: torch.Tensor, part: str) -> torch.Tensor:
        kernel = getattr(self, f"{part}_kernel")
        return x @ (kernel.T if part == "value" else kernel) + getattr(self, f"{part}_bias")

    with patch.object(layers.attention.SelfAttention, "_project", project):
        yield


@fault
def flattened_in_the_other_order() -> Iterator[None]:  # 28
    from common.spec.layers import Flatten

    def flatten(node: Any) -> Any:
        return layers.registry.Function(lambda x: x.movedim(-1, 1).reshape(len(x), *node.output_shape))

    with patch.dict(layers.registry._BUILDERS, {Flatten: flatten}):
        yield


@fault
def padding_on_the_other_side() -> Iterator[None]:  # 29
    real = layers.convolution.Conv2D.__init__

    def init(self: Any, node: Any) -> None:
        real(self, node)
        if self.extra is not None:
            left, right, top, bottom = self.extra
            self.extra = (right, left, bottom, top)

    with patch.object(layers.convolution.Conv2D, "__init__", init):
        yield


@fault
def gelu_approximated() -> Iterator[None]:  # 32
    real = F.gelu
    with patch.object(F, "gelu", lambda x: real(x, approximate="tanh")):
        yield


@fault
def float32_constant() -> Iterator[None]:  # 33
    real = optimizers.build_optimizer

    def build(spec: Any, *rest: Any) -> Any:
        return real(spec.model_copy(update={"momentum": float(np.float32(spec.momentum))}), *rest)

    with patch.object(train, "build_optimizer", build):
        yield


def _other_optimizer(**change: Any) -> Any:
    real = optimizers.build_optimizer

    def build(spec: Any, *rest: Any) -> Any:
        return real(spec.model_copy(update=change), *rest)

    return patch.object(train, "build_optimizer", build)


@fault
def decay_coupled() -> Iterator[None]:  # 16
    with _other_optimizer(weight_decay_mode="coupled"):
        yield


@fault
def momentum_without_nesterov() -> Iterator[None]:  # 18
    with _other_optimizer(nesterov=False):
        yield


@fault
def reduced_in_bfloat16() -> Iterator[None]:  # 35
    real = step.build_step

    def build(spec: Any, model: Any, *rest: Any, **named: Any) -> Any:
        # DDP inspects the hook's annotations and does not accept postponed ones: none at all, then.
        def compress(_, bucket):
            low = bucket.buffer().to(torch.bfloat16).div_(dist.get_world_size())
            work = dist.all_reduce(low, async_op=True).get_future()
            return work.then(lambda done: bucket.buffer().copy_(done.value()[0]))

        model.module.register_comm_hook(None, compress)
        return real(spec, model, *rest, **named)

    with patch.object(train, "build_step", build):
        yield


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
def learning_rate_off_by_two_percent() -> Iterator[None]:  # none that is recorded
    real = optimizers.Optimizer.update

    def update(self: Any, gradients: Any, scalars: Any) -> Any:
        rates = {name: scalars[name] * 1.02 for name in ("learning_rate", "step_size") if name in scalars}
        return real(self, gradients, {**scalars, **rates})

    with patch.object(optimizers.Optimizer, "update", update):
        yield


@fault
def loss_scale_not_divided_out() -> Iterator[None]:
    real = step.Step.finish

    def finish(self: Any, sums: Any, ids: Any, scalars: Any) -> Any:
        return real(self, sums, ids, {**scalars, "loss_scale": 1.0})

    with patch.object(step.Step, "finish", finish):
        yield


@fault
def gradient_infinite_on_rank_one() -> Iterator[None]:  # no fault of ours: every replica must skip the step
    real, losses_seen = losses.loss_sum_and_count, []

    def spoilt(*arguments: Any) -> Any:
        total, count = real(*arguments)
        if total.requires_grad:
            losses_seen.append(count)
            if len(losses_seen) == 4 and dist.get_rank() == 1:
                total.register_hook(lambda gradient: gradient * torch.inf)
        return total, count

    with patch.object(losses, "loss_sum_and_count", spoilt):
        yield


@fault
def step_skipped_on_rank_one_only() -> Iterator[None]:
    real, steps_seen = step.Step._finite, []

    def finite(self: Any, gradients: Any) -> bool:
        steps_seen.append(gradients)
        return real(self, gradients) and not (len(steps_seen) == 4 and dist.get_rank() == 1)

    with patch.object(step.Step, "_finite", finite):
        yield


@fault
def weight_gradients_rounded() -> Iterator[None]:  # as torch.autocast does
    real = products._Matmul.backward

    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        da, db, *rest = real(ctx, dy)
        return da, None if db is None else ctx.low.rounded(db), *rest

    with patch.object(products._Matmul, "backward", staticmethod(backward)):
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
    from torch_impl.strategy.deepspeed import import_deepspeed

    with _backward_doubled(import_deepspeed(on_gpu=False).DeepSpeedEngine):
        yield


@fault
def recomputed_pass_counted_twice() -> Iterator[None]:  # moving statistics under activation checkpointing
    with patch.object(context.Context, "again", lambda self: self):
        yield


@fault
def norms_summed_over_all_copies() -> Iterator[None]:  # of hybrid sharding
    def begin_sum_shards(self: Any, values: list[torch.Tensor]) -> Any:
        del self
        return begin_sum(values)

    with patch.object(sharded.Sharded, "begin_sum_shards", begin_sum_shards):
        yield


@fault
def whole_tensors_counted_by_each_rank() -> Iterator[None]:  # of tensor parallelism
    with patch.object(tensor_parallel.TensorParallel, "counts", lambda self, tensor: True):
        yield


@fault
def dropout_of_another_ranks_heads() -> Iterator[None]:
    def own(self: Any, values: torch.Tensor) -> torch.Tensor:
        return values.chunk(self.mesh.size(), 1)[0]

    with patch.object(tensor_parallel.DividedHeads, "own", own):
        yield


@fault
def updated_parameters_not_sent() -> Iterator[None]:  # by ZeroRedundancyOptimizer
    with patch.object(ZeroRedundancyOptimizer, "_sync_params", lambda self: None):
        yield
