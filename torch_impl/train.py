"""train(spec, placement, out_dir) -> run record."""

from __future__ import annotations

import atexit
import functools
import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.multiprocessing

from parity.common.base.errors import ParityError
from parity.common.execution.checks import check_run
from parity.common.execution.hooks import around, rank_function
from parity.common.execution.operating_system import pin_to_cores
from parity.common.execution.process_context import process_context, starts_ranks
from parity.common.execution.rank_failures import of_launched_rank
from parity.common.execution.ranks import arrive, run_ranks
from parity.common.execution.run import Run, Side, StepNumbers, claimed_before
from parity.common.execution.step import StepResult
from parity.common.record import claim_folder
from parity.common.spec import Instrumentation, Placement, RunOptions, TrainSpec
from parity.common.spec.capabilities import packages_of
from parity.torch_impl import data, engines, phases, probe, runtime, state, taps
from parity.torch_impl.model import Model, build_model
from parity.torch_impl.optimizers import Optimizer, build_optimizer
from parity.torch_impl.sharding.checkpoint import ShardWriter
from parity.torch_impl.step import Step
from parity.torch_impl.strategy import Strategy, open_strategy

# Whether this rank is bound to cores of its own.
_PINNED = [False]
_PRELOAD = [
    "torch",
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "parity.torch_impl.train",
    "sklearn.datasets",
]


def train(
    spec: TrainSpec,
    placement: Placement,
    out_dir: Path,
    run_options: RunOptions = RunOptions(),
    instrumentation: Instrumentation = Instrumentation(),
) -> Path:
    """Train a spec on a placement and write its run record; returns the record's folder.

    Starts the ranks itself, or is one of them under a launcher that has started them.

    Raises:
        ParityError: anything that can be foreseen, as one line.
    """
    spec = spec.resolved()
    check_run(spec, placement, run_options, instrumentation)
    engines.check(spec, placement)
    place = process_context(placement)
    runtime.configure(placement, deterministic="nondeterministic" not in spec.stock)
    arguments = (spec, placement, out_dir, run_options, instrumentation)
    if claimed_before(placement):
        claim_folder(out_dir)
    if not starts_ranks(placement):
        os.environ.update(place.variables())
        _run_as_launched_rank(arguments)
        return out_dir
    spawned = placement.engine == "lightning" and placement.launcher == "mp_spawn"
    run_ranks(
        *rank_function(f"parity.torch_impl.train:{'_start_ranks' if spawned else 'train_rank'}", *arguments),
        1 if spawned else placement.processes,
        out_dir / "logs",
        _PRELOAD,
        placement.timeout_seconds,
        _spawn if placement.launcher == "mp_spawn" and not spawned else None,
        run_options.save is not None,
    )
    return out_dir


def _spawn(target: Callable[..., None], arguments: tuple[Any, ...], ranks: int) -> list[Any]:
    return torch.multiprocessing.spawn(target, arguments, nprocs=ranks, join=False).processes


def _run_as_launched_rank(arguments: tuple[Any, ...]) -> None:
    """Train as the process that a launcher has started; what fails elsewhere ends in one line here."""
    try:
        train_rank(*arguments)
    except ParityError:
        _leave_at_once()
        raise
    except Exception as error:
        _leave_at_once()
        lost = of_launched_rank(error, arguments[1], arguments[2], dist.DistError)
        if lost is None:
            raise
        raise lost from None


def _leave_at_once() -> None:
    """Once all is said: gloo may abort or hang in an orderly exit while the group stands."""

    def leave() -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ParityError.exit_code)

    if dist.is_initialized():
        atexit.register(leave)


def train_rank(*arguments: Any) -> None:
    """Train as one of the processes; with the arguments of `train`, the spec resolved."""
    spec, placement, _, run_options, _ = arguments
    local_rank = process_context(placement).local_rank
    _PINNED[:] = [pin_to_cores(placement, range(local_rank, local_rank + 1))]
    runtime.configure(placement, deterministic="nondeterministic" not in spec.stock)
    arrive()
    begin = functools.partial(Training, *arguments)
    if placement.engine_owns_loop:
        engines.engine_of(placement).run(spec, placement, run_options, begin)
    else:
        begin().train()


def _start_ranks(*arguments: Any) -> None:
    """Be the process from which an engine starts the ranks; with the arguments of `train_rank`."""
    arrive()
    spec, placement, _, run_options, _ = arguments
    engines.engine_of(placement).spawn(spec, placement, run_options, functools.partial(Training, *arguments))


class Training(Run):
    """One rank's training."""

    side = Side(data, state, taps, phases, probe, runtime)

    def open_strategy(self) -> Strategy:
        return open_strategy(self.placement)

    def build(self) -> tuple[Model, Optimizer, Step]:
        spec, strategy, options = self.spec, self.strategy, self.run_options
        model = build_model(spec, strategy)
        optimizer = around("optimizer", build_optimizer)(spec.optimizer, model, strategy)
        sharded = options.save is not None and options.save.sharded
        self._shards = ShardWriter(model, optimizer, strategy) if sharded else None
        step = Step(spec, model, optimizer, strategy, options.recording == "full", options.taps)
        return model, optimizer, step

    def facts(self) -> dict[str, Any]:
        facts = super().facts()
        packages = {name: version(name) for name in packages_of(self.placement).values()}
        versions = {**facts["versions"], **packages}
        return {**facts, "versions": versions, "threads": {**facts["threads"], "pinned": int(_PINNED[0])}}

    def may_wait(self) -> bool:
        # The next step may take the memory of the first update's gradients, which are recorded.
        return bool(self.rates.updates)

    def launched(self) -> None:
        # On a CPU it is done; of a GPU only reading it says so.
        if self.strategy.device == "cpu":
            self._writer.divide_time(1)

    def read(self, result: StepResult) -> StepNumbers:
        numbers, tables = result.numbers.tolist(), result.taps
        tapped = [table.cpu().numpy() for table in tables] if self.run_options.taps else []
        return StepNumbers(numbers[:5], (), numbers[5:], [ids.numpy() for ids in result.ids], tapped)

    def exported(self, step: int) -> Any:
        return super().exported(step) if self._shards is None else self._shards.export(step)
