"""What both modules of loops share: how variants take turns, what ours are called, that all train the same."""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import models
from parity.common.execution.trace_replay import states_of_replicas
from parity.common.spec import RunConfig, TrainSpec

# Losses that must agree before any figure is given: in float32 nets of this depth part slowly.
COMPARED_STEPS = 3
WARM_UP_ROUNDS = 2
_TOLERANCE = 1e-4
# How often `ours_saving` keeps a checkpoint; its blocks hold a whole number of these.
SAVED_EVERY = 50


def config_of(name: str, text: str) -> RunConfig:
    """How one of our variants runs, on a placement; the others have its replicas, threads and cores."""
    text += ",pin=true,device=cpu"
    if name.endswith("_a_call"):
        text += f",steps_per_call={name.split('_')[1]}"
    if name == "ours_compiled":
        text += ",compile=true"
    if name == "ours_unrecorded":
        text += ",recording='off'"
    if name == "ours_tapped":
        text += ",taps=true"
    if name == "ours_saving":
        text += f",save={{every_steps: {SAVED_EVERY}}}"
    return RunConfig.from_text(text)


def wait_until_written(run: Any) -> None:
    """Wait for the checkpoint that a run is still writing, so that a block pays for all that it has saved."""
    if run.run_options.save is not None:
        run.checkpoints.wait_until_written()


class LookedInto:
    """A run's step, each tensor of which is kept, whole, as in a diagnosis, but not written."""

    def __init__(self, run: Any, probe: Any) -> None:
        self._run, self._probe, self._step = run, probe, run.step

    def __call__(self, batch: Any, scalars: dict[str, float], number: int) -> Any:
        run = self._run
        states_of_replicas(run, number)
        nothing: list[dict[str, Any]] = [{} for _ in run.strategy.recorded_replicas]
        result, _ = self._probe.traced(batch, scalars, number, nothing)
        states_of_replicas(run, number + 1)
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._step, name)


def orders(names: Sequence[str], rounds: int) -> Iterator[list[str]]:
    """The variants of each round, in an order drawn anew."""
    for number in range(rounds):
        order = list(names)
        random.Random(number).shuffle(order)
        yield order


def prepared(spec: TrainSpec, rounds: int, block_steps: int) -> TrainSpec:
    """A spec of as many steps as all rounds take, warm-up included, all of whole batches."""
    spec = spec.model_copy(update={"steps": (rounds + WARM_UP_ROUNDS) * block_steps}).resolved()
    return spec.model_copy(update={"data": spec.data.model_copy(update={"tail": "drop"})})


def agreement(module: str, losses: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """By how much each variant's losses differ from the first one's; ends the program where that is too much."""
    first_name = next(iter(losses))
    first = np.array(losses[first_name])
    found = {name: float(np.abs(np.array(of) / first - 1).max()) for name, of in losses.items()}
    wrong = [name for name, difference in found.items() if not difference <= _TOLERANCE]
    if wrong:
        raise SystemExit(f"{module}: these do not train what {first_name} trains: {wrong}; losses {losses}")
    return found


def arguments(about: str, variants: str) -> argparse.ArgumentParser:
    """The flags of both modules; `variants`: those that are measured by default."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--spec", default="overhead_bound_net", help=f"one of {', '.join(models.SPECS)}")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--block-steps", type=int, default=8)
    parser.add_argument("--variants", default=variants)
    return parser
