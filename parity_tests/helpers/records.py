"""Complete run records without a framework: what a run would have left, with contents of our choice.

run = Run.of(tiny_spec(), TORCH)        # contents that obey the plan
run.column("loss_sum")[3] *= 1 + 1e-11  # spoil what you like
record = run.write(folder)
"""

from __future__ import annotations

import copy
import importlib
import itertools
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.common import recipes
from parity.common.base.errors import RecordError
from parity.common.base.files import partial_of
from parity.common.checkpoint.files import STATE, complete
from parity.common.checkpoint.shards import write_tensors
from parity.common.data.plan import BatchPlan, Ids
from parity.common.parity.result import Result, judge
from parity.common.record import RecordWriter, RunRecord, read_record
from parity.common.record.header import STEP_FIELDS
from parity.common.record.invariants import StepFacts
from parity.common.reference import learning_rate
from parity.common.spec import Instrumentation, Placement, RunConfig, RunOptions, TrainSpec, override
from parity.common.state.canonical import State, initial_state, load_state, save_state
from parity.common.state.zero_gradient import zero_gradient_directions

FACTS: dict[str, Any] = {
    "versions": {"numpy": "2"},
    "devices": ["cpu"],
    "threads": {"intra_op": 1, "inter_op": 1, "cores": 2},
}
TORCH = Placement(framework="torch", strategy="single")
DDP = Placement(framework="torch", strategy="ddp", replicas=2)
TENSORFLOW = Placement(framework="tensorflow", strategy="mirrored")
MIRRORED = Placement(framework="tensorflow", strategy="mirrored", replicas=2)
STATES = ("initial", "first_gradients", "final")
NUMBERS = STEP_FIELDS[:-2]  # all but loss scale and seconds, which the writer adds

TINY: dict[str, Any] = {
    "name": "tiny",
    "model": {
        "input_shape": [4],
        # The first kernel is square: transposing it leaves mean and norm as they are.
        "layers": [
            {"kind": "dense", "units": 4},
            {"kind": "activation", "function": "tanh"},
            {"kind": "dense", "units": 3},
        ],
    },
    "data": {"train_samples": 37, "eval_samples": 5},
    "optimizer": {"kind": "sgd", "learning_rate": 0.1, "momentum": 0.9},
    "schedule": {"kind": "warmup_cosine", "warmup_steps": 2},
    "global_batch_size": 16,
    "steps": 6,
}


def tiny_spec(*assignments: str) -> TrainSpec:
    """A resolved spec of two dense layers and six steps over two epochs, each with a tail of five."""
    return override(TrainSpec.parse(TINY), list(assignments)).resolved()


def recipe_spec(name: str, *assignments: str) -> TrainSpec:
    """A resolved recipe with overrides."""
    return override(recipes.get(name), list(assignments)).resolved()


@dataclass
class Run:
    """The contents of a record, free to be changed before it is written."""

    spec: TrainSpec
    placement: Placement
    numbers: NDArray[np.float64]  # a row a step, columns as in NUMBERS
    ids: list[list[Ids]]  # [step][replica]
    states: dict[str, State]
    evaluation: tuple[float, int, int]
    options: RunOptions = field(default_factory=RunOptions)
    instrumentation: Instrumentation = field(default_factory=Instrumentation)

    @classmethod
    def of(cls, spec: TrainSpec, run: Placement | RunConfig) -> Run:
        """What an honest run leaves. The numbers are made up, and depend on the spec alone."""
        placement, *more = (run if isinstance(run, RunConfig) else RunConfig(placement=run)).parts
        plan = BatchPlan.of(spec, placement)
        steps = range(more[0].steps_of(spec.steps))
        ids = [[plan.local_ids(step, r) for r in range(placement.replicas)] for step in steps]
        random = np.random.default_rng(spec.seed)
        counts = np.array([sum(map(len, local)) for local in ids], float)
        norms = random.uniform(0.1, 2.0, (len(steps), 3))
        loss_sums = counts * (0.1 + np.exp(-np.arange(len(steps)) / 20))
        rates = [learning_rate(spec, step) for step in steps]
        numbers = np.column_stack([loss_sums, counts, rates, norms])
        evaluated = spec.data.eval_samples
        evaluation = (0.7 * evaluated, evaluated, evaluated // 2)
        states = _states(spec, len(steps), random) if more[0].keeps_states else {}
        return cls(spec, placement, numbers, ids, states, evaluation, *more)

    def copy(self, run: Placement | RunConfig | None = None) -> Run:
        """An independent copy; under another placement the samples are split anew."""
        other = copy.deepcopy(self)
        if run is None:
            return other
        made = Run.of(self.spec, run)
        parts = {n: getattr(made, n) for n in ("placement", "options", "instrumentation", "ids")}
        return replace(other, **parts)

    def column(self, name: str) -> NDArray[np.float64]:
        """A view of one of the recorded numbers, over the steps."""
        return self.numbers[:, NUMBERS.index(name)]

    def noisy(self, scale: float, seed: int) -> Run:
        """A copy as rounding would leave it: numbers and tensors relatively off by about `scale`."""
        random = np.random.default_rng([99, seed])
        ordered = self.placement.model_copy(update={"sample_order_seed": seed})
        parts = {"run_options": self.options, "instrumentation": self.instrumentation}
        other = self.copy(RunConfig(placement=ordered, **parts))
        for name in ("loss_sum", "gradient_norm", "parameter_norm", "update_norm"):
            other.column(name)[:] *= 1 + scale * random.standard_normal(len(self.numbers))
        for which in ("first_gradients", "final"):
            for name, value in other.states[which].items():
                if name != "step":
                    factor = 1 + scale * random.standard_normal(value.shape)
                    other.states[which][name] = (value * factor).astype(value.dtype)
        return other

    def write_step(self, writer: RecordWriter, step: int, replicas: range | None = None) -> None:
        """Give one step to a writer, with the sample ids of all replicas or of some."""
        loss_sum, count, rate, *norms = self.numbers[step].tolist()
        ids = self.ids[step] if replicas is None else [self.ids[step][r] for r in replicas]
        writer.step(step, StepFacts(rate, [loss_sum, count, *norms], ids))

    def write(self, folder: Path, finished: bool = True) -> RunRecord:
        """Write the record and read it back; an unfinished one has neither summary nor final state."""
        folder.mkdir(parents=True)
        facts = {**FACTS, "threads": {**FACTS["threads"], "pinned": int(self.placement.pin)}}
        writer = RecordWriter(
            folder,
            self.spec,
            self.placement,
            range(self.placement.replicas),
            facts,
            run_options=self.options,
            instrumentation=self.instrumentation,
        )
        for step in range(len(self.numbers)):
            self.write_step(writer, step)
        for which in STATES if finished else STATES[:2]:
            if self.options.keeps_states:
                save_state(folder / f"{which}.safetensors", self.states[which])
        if finished:
            writer.finish(self.evaluation)
        else:
            writer.close()
        return read_record(folder)


def _states(spec: TrainSpec, steps: int, random: np.random.Generator) -> dict[str, State]:
    noise_only = {f"parameters/{name}" for name in zero_gradient_directions(spec)}
    initial = initial_state(spec)
    gradients, final = {}, dict(initial)
    for name, value in initial.items():
        if name == "step":
            continue
        change = random.standard_normal(value.shape).astype(value.dtype)
        final[name] = value + change
        if name.startswith("parameters/"):
            gradients[name] = change * (1e-17 if name in noise_only else 0.1)
    final["step"] = np.array(steps, np.int64)
    return {"initial": initial, "first_gradients": gradients, "final": final}


def write_checkpoint(
    folder: Path,
    spec: TrainSpec,
    placement: Placement,
    state: State,
    rates: Mapping[str, float | None],
    loss: float | None = None,
) -> None:
    """Write a checkpoint of a whole state, as a run leaves it, with replicas' buffers where they lie there already."""
    partial = partial_of(folder)
    partial.mkdir(parents=True, exist_ok=True)
    own = {path: load_state(path) for path in sorted(partial.glob("replica_*.safetensors"))}
    written = {
        path.name: write_tensors(path, given) for path, given in ({partial / STATE: state} | own).items()
    }
    complete(folder, spec, placement, int(state["step"]), rates, loss, written)


def timed(record: RunRecord, seconds: float | list[float]) -> RunRecord:
    """The record with other step times, in memory only."""
    column = np.broadcast_to(np.array(seconds, float), (len(record.steps),)).copy()
    return replace(record, columns={**record.columns, "seconds": column})


def write_pair(folder: Path, spec: TrainSpec, noise: float = 0.0) -> Result:
    """A judged pair: torch on one replica, and TensorFlow on two whose numbers are off by `noise`."""
    run = Run.of(spec, TORCH)
    other = run.noisy(noise, 1).copy(MIRRORED)
    return judge([run.write(folder / "reference"), other.write(folder / "candidate")])


def edit_json(path: Path, **changes: Any) -> None:
    """Replace top-level fields of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def without_progress(said: str) -> str:
    """What a run has said, but for the line each half minute of one that takes longer: a machine may be slow."""
    return re.sub(r"^  .+: \d+ of \d+ after \d+ s.*\n?", "", said, flags=re.MULTILINE)


def one_line(error: object) -> str:
    """The message of an expected error; it must be a single line that says something."""
    text = without_progress(str(error))
    assert text.strip(), "an empty message"
    assert len(text.splitlines()) == 1, f"more than one line: {text!r}"
    return text


def read_events(folder: Path) -> Any:
    """A folder of TensorBoard's, as its own reader gives it."""
    # As in `parity.common.record.scalars`: else TensorFlow would be loaded.
    sys.modules.setdefault("tensorboard.compat.notf", ModuleType("tensorboard.compat.notf"))
    accumulator = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    return accumulator.EventAccumulator(str(folder), {"scalars": 0, "tensors": 0}).Reload()


def received_ids(record: RunRecord) -> list[list[Ids]]:
    """ids[replica][row], int64 (local batch,), as each replica recorded them.

    Raises:
        RecordError: the record has hashes of some steps instead.
    """
    if record.joined:
        parts = record._of_equal_parts(received_ids)
        return [list(itertools.chain(*columns)) for columns in zip(*parts, strict=True)]
    received = record.received
    if received.whole < len(record.steps):
        raise RecordError(
            f"{record.folder}: holds the sample ids of {received.whole} of {len(record.steps)} steps,"
            " and hashes of the rest"
        )
    by_step = [received.ids(row) for row in range(len(record.steps))]
    return [[ids[replica] for ids in by_step] for replica in range(record.placement.replicas)]
