"""Lightning's Trainer: it joins or starts the processes, wraps the model, and owns the loop.

Automatic optimization: the Trainer calls `training_step`, the backward pass and `optimizer.step`, and
accumulates micro-batches. That stays exact since our update is inside `optimizer.step`, where the sums of
all ranks are divided by the global count; of what the Trainer does before, only the division of each loss
by the number of micro-batches has to be undone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import GradientAccumulationScheduler
from lightning.pytorch.strategies import (
    DDPStrategy,
    FSDPStrategy,
    ModelParallelStrategy,
    SingleDeviceStrategy,
)
from torch import Tensor
from torch.multiprocessing import ProcessExitedException, ProcessRaisedException

from parity.common.base.errors import RunError
from parity.common.execution.process_context import process_context
from parity.common.execution.step import LocalGradients
from parity.common.spec import Placement, RunOptions, TrainSpec
from parity.torch_impl import runtime
from parity.torch_impl.engines.fabric import RankEnvironment
from parity.torch_impl.engines.joining import local_store, quiet
from parity.torch_impl.sharding.tensors import local
from parity.torch_impl.strategy import STRATEGIES
from parity.torch_impl.strategy.all_reduce import added, timeout_of
from parity.torch_impl.strategy.base import Strategy
from parity.torch_impl.strategy.blocks import checkpoint_blocks
from parity.torch_impl.strategy.replicated import ddp_options

Begin = Callable[[Strategy], Any]


def run(spec: TrainSpec, placement: Placement, run_options: RunOptions, begin: Begin) -> None:
    """Be one rank of a training; `begin(strategy)` builds the run, as in `train.py`."""
    module = _Training(placement, begin)
    alone = placement.strategy == "single"
    environment = [] if alone else [RankEnvironment(process_context(placement), placement)]
    _trainer(spec, placement, run_options, plugins=environment, strategy=_strategy(placement)).fit(module)
    module.close()


def spawn(spec: TrainSpec, placement: Placement, run_options: RunOptions, begin: Begin) -> None:
    """Have Lightning start the ranks itself (ddp_spawn), and wait for them."""
    with local_store(placement):
        trainer = _trainer(spec, placement, run_options, strategy=_strategy(placement, start_method="spawn"))
        try:
            trainer.fit(_Training(placement, begin))
        except (ProcessExitedException, ProcessRaisedException) as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            said = re.sub(r"^parity\.common\.base\.errors\.\w+: ", "", lines[-1])
            raise RunError(
                f"rank {error.error_index} of those that Lightning started ended: {said}"
            ) from None


def _trainer(spec: TrainSpec, placement: Placement, run_options: RunOptions, **joining: Any) -> pl.Trainer:
    """A Trainer that writes nothing, shows nothing, and leaves the data as the plan divides it."""
    quiet()
    constant = len(placement.accumulation) == 1
    schedule = [] if constant else [GradientAccumulationScheduler(dict(placement.accumulation))]
    with redirect_stdout(None):
        return pl.Trainer(
            accelerator="cuda" if runtime.uses_gpu(placement) else "cpu",
            devices=placement.processes // placement.nodes,
            num_nodes=placement.nodes,
            **joining,
            # The module has the spec's own type; "64-true" would also change torch's default type.
            precision="32-true",
            accumulate_grad_batches=placement.accumulation[0][1] if constant else 1,
            max_epochs=-1,
            max_steps=run_options.steps_of(spec.steps),
            limit_val_batches=0,
            num_sanity_val_steps=0,
            use_distributed_sampler=False,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_autolog_hparams=False,
            callbacks=schedule,
        )


def _strategy(placement: Placement, **launch: Any) -> Any:
    backend = "nccl" if runtime.uses_gpu(placement) else "gloo"
    joining = {"process_group_backend": backend, "timeout": timeout_of(placement)}
    if placement.strategy == "ddp":
        return DDPStrategy(**joining, **launch, **ddp_options(placement))
    if placement.strategy == "fsdp2":
        return ModelParallelStrategy(placement.processes, 1, **joining)
    if placement.strategy == "fsdp1":
        return FSDPStrategy(**joining)  # finds the module wrapped already, and leaves it so
    return SingleDeviceStrategy("cuda:0" if runtime.uses_gpu(placement) else "cpu")


class _Training(pl.LightningModule):
    """Our run as a LightningModule: the model, the loss, the batches and the update are its own."""

    def __init__(self, placement: Placement, begin: Begin) -> None:
        super().__init__()
        self._placement, self._begin = placement, begin
        self._run: Any = None
        self._sums: list[Tensor] = []
        self._pieces = 0

    def configure_model(self) -> None:
        """Build everything: the process group is there, the wrapping by DDP comes after."""
        if self._run is not None:
            return
        if "RANK" not in os.environ:  # started by Lightning
            os.environ.update(RANK=str(self.global_rank), WORLD_SIZE=str(self.trainer.world_size))
            runtime.configure(self._placement)
        self._run = self._begin(_within(self._placement))
        self.network = self._run.model.module

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return _Update(self.network.parameters(), self._update)

    def train_dataloader(self) -> Any:
        return _Epochs(self._run)

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        return batch  # where it is already

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The loss sum of one micro-batch of this rank."""
        number, piece, ids = batch
        if not self._sums:
            self._at = number, ids, self._run.scalars(number)
        loss_sum, count = self._run.step.pass_forward(piece, number)
        self._sums, self._pieces = added(self._sums, loss_sum, count), self._pieces + 1
        scale = self._at[2].get("loss_scale", 1.0)
        return loss_sum if scale == 1 else loss_sum * scale

    def _update(self) -> None:
        """All of a step that comes after its backward passes."""
        run, (number, ids, scalars) = self._run, self._at
        run.strategy.averages_over = self._placement.replicas * self._pieces
        sums = run.strategy.begin_sum([*self._sums, *run.step.fingerprint()])
        with torch.no_grad():
            gradients = [local(tensor.live.grad) for tensor in run.model.parameters.values()]
        result = run.step.finish(LocalGradients(gradients, *self._sums, sums), scalars, ids)
        self._sums, self._pieces = [], 0
        run.record(number, scalars, result)

    def on_train_end(self) -> None:
        self._run.finish()

    def state_dict(self, *args: Any, **more: Any) -> dict[str, Any]:
        """Nothing: the record holds the state, and Lightning would pickle it for the parent process."""
        return {}

    def close(self) -> None:
        """Leave the process group."""
        strategy, model = self._run.strategy, self._run.model
        del self.network
        strategy.close(model)


class _Update(torch.optim.Optimizer):
    """An optimizer whose step is a function."""

    def __init__(self, parameters: Any, update: Callable[[], None]) -> None:
        super().__init__(parameters, {})
        self._update = update

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Run the passes that the closure holds, then update."""
        assert closure is not None
        with torch.enable_grad():
            loss = closure()
        self._update()
        return loss


class _Epochs:
    """The micro-batches of one epoch after the other, each time it is asked: (step, micro-batch, ids)."""

    def __init__(self, run: Any) -> None:
        self._run, self._next = run, 0
        self._batches: Iterator[tuple[int, Any]] = run.batches()

    def __iter__(self) -> Iterator[Any]:
        run = self._run
        epoch = run.plan.epoch(self._next)
        while self._next < len(run.steps) and run.plan.epoch(self._next) == epoch:
            number, batch = next(self._batches)
            self._next += 1
            for piece in run.step.micro_batches(batch, number):
                yield number, piece, batch[-1]


class _WithinDDP(Strategy):
    """Before Lightning has wrapped the module by DDP, which it does itself."""

    def wrap(self, model: Any) -> None:
        checkpoint_blocks(self.placement, model.module)


def _within(placement: Placement) -> Strategy:
    """The placement's strategy in a process group that Lightning has joined."""
    kind = _WithinDDP if placement.strategy == "ddp" else STRATEGIES[placement.strategy]
    return type(f"Lightning{kind.__name__}", (kind,), {"_join": lambda self, backend: None})(placement)
