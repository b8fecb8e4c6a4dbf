"""Where the time of a step goes, by leaving parts of it out: what is common to both frameworks.

Measured after training, on the strategy that trained and on a batch of the run. What was timed together is
taken apart by subtraction, repeat by repeat: backward = both passes without reduction - forward;
exposed communication = both passes with reduction - without. Nothing is clamped: a difference of two
noisy times may be below 0.

A message is [operation, bytes]; the bytes are what `parity.common.planning.collectives.operations` calls the size: of an
all-reduce and a reduce-scatter what a rank gives, of an all-gather what it gets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from parity.common.base import rng
from parity.common.data.samples import Samples
from parity.common.spec import TrainSpec, walk
from parity.common.spec.layers import BatchNorm

if TYPE_CHECKING:
    from parity.common.execution.run import Side

Message = tuple[str, int]
# Timed as they are, and recorded under the same name.
_AS_THEY_ARE = ("data", "forward", "communication", "optimizer", "step")
# Timed to be subtracted: both passes, without and with the reduction of gradients.
PASSES, REDUCED = "passes", "reduced"


@dataclass(frozen=True)
class Probe:
    """What is timed: `run`. `around` prepares it and tidies up, untimed."""

    run: Callable[[], Any]
    around: Callable[[], AbstractContextManager[Any]] = nullcontext


def measure(
    side: Side, step: Any, samples: Samples, scalars: dict[str, float], repeats: int
) -> dict[str, Any]:
    """Time each phase of a step `repeats` times; changes the model and the optimizer. Every process must call it.

    The messages of batch norm are part of the passes in any case.

    Returns:
        As `RecordWriter.phases` takes it; messages are counted in the side's `phases.messages`.
    """
    strategy, phases = step.strategy, side.phases
    with closing(side.data.batches(step.plan, samples, strategy, range(repeats + 2))) as batches:
        probes = {"data": Probe(lambda: next(batches)), **phases.probes(step, next(batches), scalars)}
        measured = conduct(probes, repeats, strategy.barrier, lambda: phases.wait(strategy))
    return facts_of(measured, phases.messages(step) if "communication" in probes else [])


def conduct(
    probes: dict[str, Probe], repeats: int, barrier: Callable[[], None], wait: Callable[[], None]
) -> dict[str, list[float]]:
    """Seconds of each probe, `repeats` times each, in an order drawn anew each time, alike on all ranks.

    Args:
        probes: by name; each is run once before, since the first call builds things.
        barrier: waits for the other ranks.
        wait: waits for this rank's device.
    """
    names = list(probes)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for repeat in range(-1, repeats):
        order = rng.permute(rng.derive_key(0, "phases", repeat), np.arange(len(names)), len(names))
        for name in (names[place] for place in order):
            with probes[name].around():
                wait()
                barrier()
                begun = time.perf_counter()
                probes[name].run()
                wait()
                seconds[name].append(time.perf_counter() - begun)
    return {name: times[1:] for name, times in seconds.items()}


def facts_of(measured: dict[str, list[float]], messages: Sequence[Message]) -> dict[str, Any]:
    """What a rank records. A phase that could not be measured has no key.

    Of a replica alone, whose passes send nothing, `measured` lacks what would: that takes no time.
    """
    seconds = {name: measured[name] for name in _AS_THEY_ARE if name in measured}
    if PASSES in measured:
        passes = np.array(measured[PASSES])
        seconds["backward"] = (passes - measured["forward"]).tolist()
        seconds["exposed_communication"] = (measured.get(REDUCED, passes) - passes).tolist()
        seconds.setdefault("communication", [0.0] * len(passes))
    return {"seconds": seconds, "messages": [list(message) for message in messages]}


def synchronised_channels(spec: TrainSpec) -> list[int]:
    """Channels of each batch norm whose statistics are those of the global batch, in execution order."""
    return [
        node.input_shape[-1]
        for node in walk(spec.model.tree())
        if isinstance(node.spec, BatchNorm) and node.spec.uses_batch and node.spec.statistics == "global"
    ]
