"""PyTorch loops of one model in the same ranks, in turns: ours, one written by hand, Lightning's, Accelerate's.

Run: python -m benchmarks.torch_loops --placement ddp --replicas 2 --spec compute_bound_cnn --variants ours,bare

All variants stay alive and take turns in blocks of a few steps, in an order drawn anew each round, so that
whatever the machine does besides meets them alike; each block is timed on rank 0 between two barriers. Prints
one line of JSON: `seconds` holds the seconds of each block by variant, `cpu_seconds` the processor's time that
rank 0 spent, which a loaded machine changes less, `agreement` by how much each variant's
losses differ from those of the first over its first steps.

ours             `parity.common.execution.run.Run.loop` with its record.
ours_unrecorded  the same without one; ours_tapped: with digests of all activations and gradients.
ours_compiled    the same with compile; ours_looked_into: with every tensor of every step kept.
ours_saving      the same with a checkpoint every 50 steps, on the disk before the block ends.
bare             what a good engineer writes: stock modules, channels last, DistributedDataParallel with bucket
                 views and a static graph (or fully_shard), a fused optimizer (foreach of shards), a DataLoader that hands out whole
                 batches of tensors, the loss of every step read and logged.
lightning        stock Trainer of those modules, without logger, bar and checkpoints.
accelerate       stock Accelerator of those modules.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import os
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from benchmarks import models, shared
from benchmarks.torch_families import FAMILIES, family
from parity.common.data import sources
from parity.common.data.plan import BatchPlan
from parity.common.execution.operating_system import pin_to_cores
from parity.common.execution.ranks import arrive, run_ranks
from parity.common.execution.run import Run
from parity.common.record import read_record
from parity.common.spec import SGD, Adam, AdamW, Instrumentation, Placement, RunConfig, TrainSpec
from parity.common.spec import layers as layer_specs
from parity.common.state.canonical import initial_state
from parity.torch_impl import runtime, train
from parity.torch_impl.private_names import DTensor, fully_shard
from parity.torch_impl.probe import Probe
from parity.torch_impl.strategy import STRATEGIES, open_strategy

_PRELOAD = ["torch", "torch.distributed.fsdp", "torch.distributed.tensor"]


class Ours:
    """The trainer as it is, handed its batches a block at a time."""

    def __init__(self, spec: TrainSpec, config: RunConfig, folder: Path) -> None:
        placement, options, _ = config.parts
        kind = STRATEGIES[placement.strategy]
        # The group has been joined already.
        joined = type(kind.__name__, (kind,), {"_join": lambda self, backend: None})
        if dist.get_rank() == 0:
            folder.mkdir()
        dist.barrier()
        self._run = train.Training(spec, placement, folder, options, Instrumentation(), joined(placement))
        if folder.name == "ours_looked_into":
            run = self._run
            run.step = shared.LookedInto(run, Probe(run.step))
        self._batches = iter(self._run.batches())
        self._folder = folder

    def block(self, steps: int) -> None:
        """Train this many steps more."""
        part = itertools.islice(self._batches, steps)
        self._run.batches = lambda: part
        Run.loop(self._run)
        shared.wait_until_written(self._run)

    def losses(self) -> list[float]:
        """Of every step, once all blocks are done."""
        self._run.checkpoints.close()
        self._run.finish()
        dist.barrier()
        return list(read_record(self._folder).loss)


class Bare:
    """A loop over a wrapped module."""

    def __init__(self, spec: TrainSpec, placement: Placement, folder: Path) -> None:
        self._model = wrapped(stock_model(spec), placement)
        self._optimizer = stock_optimizer(spec, self._model)
        self._clip = spec.optimizer.clip_global_norm
        self._batches = iter(loader(spec, placement))
        self._log = open(f"{folder}_{dist.get_rank()}.csv", "w")
        self._losses: list[float] = []

    def block(self, steps: int) -> None:
        model, optimizer = self._model, self._optimizer
        for inputs, targets in itertools.islice(self._batches, steps):
            loss = F.cross_entropy(model(inputs), targets)
            loss.backward()
            if self._clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), self._clip)
            optimizer.step()
            optimizer.zero_grad()
            self._losses.append(loss.item())
            self._log.write(f"{len(self._losses)},{self._losses[-1]}\n")

    def losses(self) -> list[float]:
        self._log.close()
        return over_ranks(self._losses)


class Accelerate(Bare):
    """The loop of Accelerate's documentation."""

    def __init__(self, spec: TrainSpec, placement: Placement, folder: Path) -> None:
        from accelerate import Accelerator

        warnings.filterwarnings("ignore", category=FutureWarning)
        del folder
        self._accelerator = Accelerator(cpu=True)
        model = stock_model(spec).to(memory_format=torch.channels_last)
        self._model, self._optimizer = self._accelerator.prepare(model, stock_optimizer(spec, model))
        self._batches = iter(loader(spec, placement))
        self._losses = []

    def block(self, steps: int) -> None:
        model, optimizer = self._model, self._optimizer
        for inputs, targets in itertools.islice(self._batches, steps):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs), targets)
            self._accelerator.backward(loss)
            optimizer.step()
            self._losses.append(loss.item())

    def losses(self) -> list[float]:
        return over_ranks(self._losses)


class Lightning:
    """One call of `Trainer.fit`, in a thread that goes on by some batches at a time."""

    def __init__(self, spec: TrainSpec, placement: Placement, folder: Path) -> None:
        del folder
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._left, self._ended, self._error = 0, False, None
        self._losses: list[float] = []
        self._spec, self._placement = spec, placement
        self._thread = threading.Thread(target=self._fit, daemon=True)
        self._thread.start()

    def _fit(self) -> None:
        import lightning.pytorch as pl
        from lightning.fabric.plugins.environments import TorchElasticEnvironment
        from lightning.pytorch.strategies import DDPStrategy

        spec, placement, turns = self._spec, self._placement, self
        warnings.filterwarnings("ignore", module=r"lightning\b")
        for name in ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero"):
            logging.getLogger(name).setLevel(logging.ERROR)

        class Module(pl.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.network = stock_model(spec).to(memory_format=torch.channels_last)

            def training_step(self, batch: Any, batch_idx: int) -> Tensor:
                inputs, targets = batch
                loss = F.cross_entropy(self.network(inputs), targets)
                self.log("loss", loss)
                return loss

            def configure_optimizers(self) -> Any:
                return stock_optimizer(spec, self.network)

        class Turns(pl.Callback):
            def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, *rest: Any) -> None:
                turns._losses.append(outputs["loss"].item())
                turns._left -= 1
                if not turns._left:
                    turns._done.release()
                    turns._go.acquire()
                    trainer.should_stop = turns._ended

        self._go.acquire()
        try:
            pl.Trainer(
                accelerator="cpu",
                devices=placement.replicas,
                strategy=DDPStrategy(gradient_as_bucket_view=True, static_graph=True),
                plugins=[TorchElasticEnvironment()],
                max_epochs=1,
                logger=False,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                use_distributed_sampler=False,
                callbacks=[Turns()],
            ).fit(Module(), loader(spec, placement))
        except BaseException as error:
            self._error = error
        self._done.release()

    def block(self, steps: int) -> None:
        self._left = steps
        self._go.release()
        self._done.acquire()
        if self._error is not None:
            raise self._error

    def losses(self) -> list[float]:
        self._ended = True
        self._go.release()
        self._thread.join()
        return over_ranks(self._losses)


def over_ranks(losses: list[float]) -> list[float]:
    """The means over the ranks, whose batches are equally large."""
    total = torch.tensor(losses, dtype=torch.float64)
    dist.all_reduce(total)
    return (total / dist.get_world_size()).tolist()


class _Stored(Dataset):
    """Tensors in memory, whole batches at a time."""

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        # Images as (batch, channels, height, width), in memory channels last; of texts all tokens' targets in a row.
        self._inputs, self._targets = inputs, targets

    def __getitem__(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        inputs, targets = self._inputs[ids], self._targets[ids]
        return inputs.permute(0, 3, 1, 2) if inputs.ndim == 4 else inputs, targets.flatten()


def loader(spec: TrainSpec, placement: Placement) -> DataLoader:
    """This rank's shares of the spec's batches, in its order."""
    samples, _ = sources.load_for(spec)
    inputs, targets = map(torch.from_numpy, samples.rows(np.arange(spec.data.train_samples)))
    plan = BatchPlan.of(spec, placement)
    rank = dist.get_rank()
    order = [torch.from_numpy(plan.local_ids(step, rank).copy()) for step in range(spec.steps)]
    return DataLoader(_Stored(inputs, targets), sampler=order, batch_size=None)


def wrapped(model: nn.Module, placement: Placement) -> nn.Module:
    """As the strategy's documentation has it, with what pays."""
    if placement.strategy == "fsdp2":
        return fully_shard(model)  # which takes no parameters in channels-last layout
    if any(parameter.ndim == 4 for parameter in model.parameters()):
        model = model.to(memory_format=torch.channels_last)
    if placement.replicas == 1:
        return model
    return DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)


def stock_model(spec: TrainSpec) -> nn.Module:
    """The spec's model of the modules that PyTorch ships, at the spec's initial values."""
    if spec.name in FAMILIES:
        return family(spec)
    tree, state = spec.model.tree(), initial_state(spec)
    modules = []
    for node in tree.children:
        module = _STOCK[type(node.spec)](node)
        for name, tensor in _named(module, type(node.spec)).items():
            kind = "buffers" if name.startswith("moving") else "parameters"
            value = torch.from_numpy(np.array(state[f"{kind}/{node.path}/{name}"]))
            tensor.data.copy_(_native(node, value) if name == "kernel" else value)
        modules.append(module)
    return nn.Sequential(*modules)


def _named(module: nn.Module, kind: type) -> dict[str, Tensor]:
    if kind is layer_specs.BatchNorm:
        moving = {"moving_mean": module.running_mean, "moving_variance": module.running_var}
        return {"gamma": module.weight, "beta": module.bias, **moving}
    found = {"kernel": getattr(module, "weight", None), "bias": getattr(module, "bias", None)}
    return {name: tensor for name, tensor in found.items() if tensor is not None}


def _native(node: Any, kernel: Tensor) -> Tensor:
    """A kernel in PyTorch's layout."""
    return kernel.permute(3, 2, 0, 1) if kernel.ndim == 4 else kernel.t()


def _flatten(node: Any) -> nn.Module:
    assert node.spec.order == "chw"
    return nn.Flatten()


class _Mean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))


def _convolution(node: Any) -> nn.Module:
    layer = node.spec
    pads = layer.pads(node.input_shape)
    assert all(before == after for before, after in pads)
    return nn.Conv2d(
        node.input_shape[-1],
        layer.filters,
        layer.kernel(),
        layer.steps(),
        tuple(before for before, _ in pads),
        bias=layer.use_bias,
    )


_STOCK: dict[type, Callable[[Any], nn.Module]] = {
    layer_specs.Conv2D: _convolution,
    layer_specs.BatchNorm: lambda n: nn.BatchNorm2d(
        n.input_shape[-1], eps=n.spec.epsilon, momentum=1 - n.spec.decay
    ),
    layer_specs.Activation: lambda n: {"relu": nn.ReLU}[n.spec.function](),
    layer_specs.MaxPool2D: lambda n: nn.MaxPool2d(n.spec.window()),
    layer_specs.Flatten: _flatten,
    layer_specs.GlobalAveragePool: lambda n: _Mean(),
    layer_specs.Dense: lambda n: nn.Linear(n.input_shape[-1], n.spec.units, bias=n.spec.use_bias),
}


def stock_optimizer(spec: TrainSpec, model: nn.Module) -> torch.optim.Optimizer:
    """PyTorch's own of a spec that trains at a constant rate."""
    given = spec.optimizer
    parameters = list(model.parameters())
    # Of shards there is no fused update (torch 2.13).
    best = {"foreach": True} if isinstance(parameters[0], DTensor) else {"fused": True}
    if isinstance(given, SGD):
        return torch.optim.SGD(parameters, given.learning_rate, given.momentum, **best)
    assert isinstance(given, Adam | AdamW)
    kind = torch.optim.AdamW if isinstance(given, AdamW) else torch.optim.Adam
    betas = (given.beta_1, given.beta_2)
    return kind(
        parameters, given.learning_rate, betas, given.epsilon, weight_decay=given.weight_decay or 0.0, **best
    )


_OTHERS = {"bare": Bare, "lightning": Lightning, "accelerate": Accelerate}


def rank(spec: TrainSpec, options: dict[str, Any], folder: Path) -> None:
    """One rank's part; rank 0 leaves what it measured in the folder."""
    text = f"torch:{options['placement']}:{options['replicas']}"
    place = shared.config_of("ours", text).placement
    variants_of = {name: shared.config_of(name, text) for name in options["variants"]}
    number = int(os.environ["RANK"])
    pin_to_cores(place, range(number, number + 1))
    runtime.configure(place)
    arrive()
    _describe(number, place.replicas)
    # Strategy "single" joins nothing, but barriers and sums want a group here.
    open_strategy(place.model_copy(update={"strategy": "ddp"}) if place.replicas == 1 else place)
    variants = {
        name: Ours(spec, config, folder / name)
        if name.startswith("ours")
        else _OTHERS[name](spec, config.placement, folder / name)
        for name, config in variants_of.items()
    }
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    busy: dict[str, list[float]] = {name: [] for name in variants}
    for round_number, order in enumerate(
        shared.orders(list(variants), options["rounds"] + shared.WARM_UP_ROUNDS)
    ):
        for name in order:
            dist.barrier()
            begun, worked = time.perf_counter(), time.process_time()
            variants[name].block(options["block_steps"])
            dist.barrier()
            if round_number >= shared.WARM_UP_ROUNDS:
                seconds[name].append(time.perf_counter() - begun)
                busy[name].append(time.process_time() - worked)
    losses = {name: variant.losses()[: shared.COMPARED_STEPS] for name, variant in variants.items()}
    if number == 0:
        measured = {
            "seconds": seconds,
            "cpu_seconds": busy,
            "losses": losses,
            "threads": runtime.thread_counts(),
        }
        (folder / "measured.json").write_text(json.dumps(measured))
    sys.stdout.flush()
    # gloo may hang in an orderly exit while wrappers of the group stand.
    os._exit(0)


def _describe(number: int, replicas: int) -> None:
    """What torchrun tells its processes, for the trainers of others."""
    os.environ.update(
        LOCAL_WORLD_SIZE=str(replicas),
        GROUP_RANK="0",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT="0",
        TORCHELASTIC_RUN_ID="benchmark",
        LOCAL_RANK=str(number),
    )


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds of each block by variant, and how the variants' losses compare with the first one's."""
    names = options.variants.split(",")
    spec = shared.prepared(models.get(options.spec, "torch"), options.rounds, options.block_steps)
    with tempfile.TemporaryDirectory(prefix="parity-benchmark-") as name:
        folder = Path(name)
        arguments = (spec, {**vars(options), "variants": names}, folder)
        run_ranks("benchmarks.torch_loops:rank", arguments, options.replicas, folder / "logs", _PRELOAD)
        found = json.loads((folder / "measured.json").read_text())
    losses = found.pop("losses")
    return {
        "framework": "torch",
        "placement": options.placement,
        "spec": spec.name,
        "replicas": options.replicas,
        "block_steps": options.block_steps,
        "global_batch_size": spec.global_batch_size,
        "agreement": shared.agreement("torch_loops", {name: losses[name] for name in names}),
        "versions": runtime.versions(),
        **found,
    }


def main() -> None:
    parser = shared.arguments(__doc__, "ours,bare,lightning,accelerate")
    parser.add_argument("--placement", default="ddp", help="a strategy of torch: ddp, fsdp2 or single")
    print(json.dumps(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
