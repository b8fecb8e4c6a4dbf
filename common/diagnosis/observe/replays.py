"""The replays of a diagnosis, the steps traced in them, and what is injected into the candidate's.

That is the reference's tensors of a step, shared out anew. The shares are those of the batch plan, computed here
whatever the candidate's own loader does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from parity.common.base.errors import RunError
from parity.common.data.plan import BatchPlan, Ids
from parity.common.diagnosis import limits
from parity.common.diagnosis.isolate import first_step
from parity.common.diagnosis.isolate.comparison import (
    INJECTED_TOLERANCES,
    StepComparer,
    Tolerances,
    rough_tolerances,
)
from parity.common.diagnosis.isolate.findings import Grouping, KeyedFinding
from parity.common.diagnosis.result import StepComparison
from parity.common.execution.checks import feeds_back
from parity.common.execution.session import MINIMUM_MEMBERS
from parity.common.execution.worker import Workers
from parity.common.parity.budget import FLOOR_MULTIPLE
from parity.common.parity.deviation import tensor_deviation
from parity.common.record import RunRecord, read_record
from parity.common.record.trace import (
    FORCED,
    INJECTABLE,
    TRACE,
    Trace,
    is_of_samples,
    read_injected,
    read_layers,
    stage_of,
    state_file,
    step_folder,
    write_replica,
)
from parity.common.spec import Instrumentation, Placement, Replay, RunOptions, TrainSpec
from parity.common.spec.capabilities import DIVIDING
from parity.common.state.canonical import State, load_state, save_state

Contexts = tuple[str | None, str | None]
# What a replay keeps of a placement, beside its strategy and options.
_KEPT: tuple[str, ...] = ("framework", "replicas", "device", "threads_per_replica", "loader_workers")
_KEPT += ("prefetch_batches", "timeout_seconds", "accumulation", "sample_order_seed")


def traceable(placement: Placement) -> tuple[Placement, list[str]]:
    """The placement nearest to this one whose steps can be traced, and what it leaves out but for pinning."""
    fields, own_way = _as_ddp(placement), placement.strategy in DIVIDING
    if not own_way:
        fields |= {"strategy": placement.strategy, "options": placement.options.to_dict()}
    left_out = {
        f"strategy {placement.strategy}": own_way,
        f"engine {placement.engine}": placement.engine != "own",
        f"launcher {placement.launcher}": placement.launcher != "local",
        "compile": placement.compile,
        f"steps_per_call {placement.steps_per_call}": placement.steps_per_call > 1,
    }
    return Placement.parse(fields), [what for what, is_left_out in left_out.items() if is_left_out]


def _as_ddp(placement: Placement) -> dict[str, Any]:
    """The fields of the placement in DDP, or of one replica in one process."""
    strategy = "ddp" if placement.replicas > 1 else "single"
    return {name: getattr(placement, name) for name in _KEPT} | {"strategy": strategy}


_NOT_COMPARED = StepComparison(None, (), ())


@dataclass(frozen=True)
class StepTrace:
    """One step traced: what both runs made of it, and the comparisons.

    injections: of each of the candidate's replicas. state: of the evaluation, what it was made with. replay: the
    candidate's, in which the step was repeated with the injections.
    """

    step: int | None
    ref: Trace
    injections: tuple[State, ...]
    injected: Trace
    as_trained: Trace
    layers: Mapping[str, str]
    state: State | None
    replay: Replay
    compared: StepComparison = _NOT_COMPARED
    findings: Sequence[KeyedFinding] = ()


@dataclass(eq=False)
class Replays:
    """Replays of a reference and a candidate, of one spec, in sub-folders of `folder`.

    known: before which steps the states of both runs are known, and the files of these.
    """

    replayer: Workers
    folder: Path
    spec: TrainSpec
    placements: tuple[Placement, Placement]
    contexts: Contexts
    say: Callable[[str], None]
    known: dict[int, tuple[Path, Path]] = field(default_factory=dict, init=False)
    numbers: Iterator[int] = field(default_factory=itertools.count, init=False)

    def trained(self, steps: int) -> tuple[RunRecord, RunRecord]:
        """Both runs, made again."""
        self.say(f"training both runs in {self.spec.precision}, {steps} steps")
        runs = self._both((None, None), RunOptions(stop_at_step=steps))
        return read_record(runs[0]), read_record(runs[1])

    def rounded(self, steps: int, which: int) -> list[RunRecord]:
        """Runs of the reference or the candidate that round differently: in other orders, from a last bit off."""
        placement, count = self.placements[which], MINIMUM_MEMBERS + 1
        self.say(f"training {count} runs of {placement.label} that round differently, {steps} steps")
        ordered = (placement.model_copy(update={"sample_order_seed": seed}) for seed in range(count))
        return [read_record(self._run(each, Replay(stop=steps), which)) for each in ordered]

    def traced(self, steps: int, outside: int | None) -> list[StepTrace]:
        """Trace the steps that matter, of so many, where `outside` is the first outside; and the evaluation.

        Far from the beginning, both runs go on from states of their own.
        """
        plan, evaluates = BatchPlan.of(self.spec, self.placements[1]), bool(self.spec.data.eval_samples)
        if outside is None or outside <= limits.FARTHEST_BORDER or feeds_back(self.spec):
            return self._traced(first_step.chosen_steps(self.spec, plan, steps, outside), evaluates)
        early = self._traced(first_step.chosen_steps(self.spec, plan, steps, None), evaluates)
        around = tuple(step for step in range(outside - 1, outside + 2) if step < steps)
        self.say(f"going to step {around[0]}")
        self._find_states((around[0],))
        late = self._traced(around, False, around[0])
        before = [step for step in early if step.step is not None and step.step < around[0]]
        return [*before, *late, *(step for step in early if step.step is None)]

    def know(self, records: tuple[RunRecord, RunRecord]) -> tuple[int, int]:
        """Learn what both runs have kept of their states up to the first that differ.

        Returns the steps before which the last are that agree, else 0, and the first that differ, else the number of steps.
        """
        agree, steps = 0, len(records[0].steps)
        if self.spec.precision != "float64" or self.spec.per_replica_statistics:
            return agree, steps  # rounding parts them; or a canonical state holds less than the replicas do
        ours, theirs = (record.kept_states() for record in records)
        for step in sorted(ours.keys() & theirs.keys()):
            if first_step.states_differ(self.spec, load_state(ours[step]), load_state(theirs[step])):
                return agree, step
            self.known[step] = ours[step], theirs[step]
            agree = step
        return agree, steps

    def states_differ(self, begin: int, points: Sequence[int]) -> dict[int, bool]:
        """Whether the states before some steps differ; from those before `begin` on, which are known."""
        self.say(f"searching steps {begin} to {points[-1]}")
        self._find_states(points)
        return {
            point: first_step.states_differ(self.spec, *map(load_state, self.known[point]))
            for point in points
        }

    def step_of(self, placement: Placement, step: int) -> Trace:
        """A step of the candidate on one replica, as trained.

        Raises:
            RunError: it failed.
        """
        replay = Replay.parse({"stop": step + 1, "trace": (step,)})
        run = self._run(placement, replay, 1)
        return Trace.read(step_folder(run / TRACE, step), 1)

    def _new(self, what: str) -> Path:
        """A folder that nothing else is in."""
        return self.folder / f"{what}_{next(self.numbers):02d}"

    def _run(
        self, placement: Placement, replay: Replay | None, which: int, run_options: RunOptions = RunOptions()
    ) -> Path:
        instrumentation = Instrumentation(replay=replay, context=self.contexts[which])
        return self.replayer.train(self.spec, placement, self._new("run"), run_options, instrumentation)

    def _both(
        self, replays: tuple[Replay | None, Replay | None], run_options: RunOptions = RunOptions()
    ) -> tuple[Path, Path]:
        """Both at once, where they have workers of their own."""
        with ThreadPoolExecutor(2) as threads:
            runs = [
                threads.submit(self._run, placement, replay, which, run_options)
                for which, (placement, replay) in enumerate(zip(self.placements, replays, strict=True))
            ]
            first, second = [run.result() for run in runs]
        return first, second

    def _beginning(self, which: int, step: int) -> dict[str, Any]:
        """The fields of a replay that begins before a step, whose state is known."""
        return {"first_step": step, "begin": str(self.known[step][which])} if step else {}

    def _find_states(self, points: Sequence[int]) -> None:
        """Have the states before some steps known, trained from the nearest before them that are."""
        if all(point in self.known for point in points):
            return
        begin = max((step for step in self.known if step < points[0]), default=0)
        if feeds_back(self.spec):
            begin = 0  # the schedule must have seen all steps
        fields = {"stop": points[-1], "states": tuple(points)}
        first, second = (Replay.parse(fields | self._beginning(which, begin)) for which in (0, 1))
        runs = self._both((first, second))
        for point in points:
            self.known[point] = (state_file(runs[0], point), state_file(runs[1], point))

    def _traced(self, chosen: Sequence[int], evaluates: bool, begin: int = 0) -> list[StepTrace]:
        """Replay both runs, trace the chosen steps, and compare."""
        plan, stop = BatchPlan.of(self.spec, self.placements[1]), chosen[-1] + 1
        common = {"stop": stop, "trace": tuple(chosen), "states": (stop,), "evaluation": evaluates}
        self.say(f"replaying {self.placements[0].label}, {stop - begin} steps")
        first = self._run(self.placements[0], Replay.parse(common | self._beginning(0, begin)), 0)
        parent = self._new("injections")
        steps: list[int | None] = [*chosen, *([None] if evaluates else [])]
        refs: dict[int | None, Trace] = {}
        injections: dict[int | None, list[State]] = {}
        evaluated = load_state(state_file(first, stop))
        for step in steps:
            ref = refs[step] = Trace.read(step_folder(first / TRACE, step), self.placements[0].replicas)
            before = evaluated if step is None else state_before(ref, step)
            injections[step] = write_injections(parent, step, injections_of(ref, plan, step), before)
        self.say(f"replaying {self.placements[1].label}, and each of {len(chosen)} steps by itself")
        history = str(first) if feeds_back(self.spec) else None
        fields = {**common, **self._beginning(1, begin), "forced": str(parent), "history": history}
        replay = Replay.parse(fields)
        second = self._run(self.placements[1], replay, 1)
        traced = [
            StepTrace(
                step,
                refs[step],
                tuple(injections[step]),
                replace(
                    Trace.read(step_folder(second / FORCED, step), self.placements[1].replicas),
                    injected_ids=tuple(np.asarray(given["ids"], np.int64) for given in injections[step]),
                ),
                Trace.read(step_folder(second / TRACE, step), self.placements[1].replicas),
                read_layers(step_folder(first / TRACE, step)),
                state=evaluated if step is None else None,
                replay=replay,
            )
            for step in steps
        ]
        tolerances = rough_tolerances(self.spec, {})
        compared = [self._compared(step, tolerances) for step in traced]
        unseen = [step.step for step in compared if any(map(_hides_a_gradient, step.findings))]
        if unseen:
            traced = self._with_local_gradients(traced, unseen, parent)
            compared = [self._compared(step, tolerances) for step in traced]
        if tolerances is INJECTED_TOLERANCES or not any(step.findings for step in compared):
            return compared
        tolerances = rough_tolerances(self.spec, self._floors(refs))
        return [self._compared(step, tolerances) for step in traced]

    def _with_local_gradients(
        self, traced: list[StepTrace], unseen: Sequence[int | None], parent: Path
    ) -> list[StepTrace]:
        """Of some steps of a candidate whose replicas have no gradients of their own to show those that DDP's make.

        Only where DDP's layers make the same of the injected tensors.
        """
        placement = Placement.parse(_as_ddp(self.placements[1]))
        self.say("replaying the same steps in DDP, whose replicas have gradients of their own to show")
        try:
            run = self._run(placement, Replay.parse({"stop": 0, "forced": str(parent)}), 1)
        except RunError:
            return traced
        found = []
        for step in traced:
            injected = step.injected
            if step.step in unseen:
                alike = Trace.read(step_folder(run / FORCED, step.step), len(injected.replicas))
                injected = _with_those_of(injected, alike)
            found.append(replace(step, injected=injected))
        return found

    def _floors(self, refs: Mapping[int | None, Trace]) -> dict[str, float]:
        """What rounding does to each tensor: the reference's own steps, their samples in other orders."""
        self.say(f"measuring what {self.spec.precision} rounds")
        traced = {step: ref for step, ref in refs.items() if step is not None}
        largest: dict[str, float] = {}
        for seed in range(MINIMUM_MEMBERS):
            placement = self.placements[0].model_copy(update={"sample_order_seed": seed})
            plan, parent = BatchPlan.of(self.spec, placement), self._new("floor")
            injections = {
                step: write_injections(parent, step, injections_of(ref, plan, step), state_before(ref, step))
                for step, ref in traced.items()
            }
            replay = Replay.parse({"stop": 0, "forced": str(parent)})
            run = self._run(placement, replay, 0)
            for step, ref in traced.items():
                trace = Trace.read(step_folder(run / FORCED, step), placement.replicas)
                for tensor in StepComparer(self.spec, ref, {}).injected(injections[step], trace):
                    # The schedule has seen no steps before.
                    if np.isfinite(tensor.deviation) and tensor.stage != "scalar":
                        largest[tensor.name] = max(tensor.deviation, largest.get(tensor.name, 0.0))
        return {name: FLOOR_MULTIPLE * deviation for name, deviation in largest.items()}

    def _compared(self, step: StepTrace, tolerances: Tolerances) -> StepTrace:
        """A traced step, with its comparisons and its findings."""
        injected = _begun_as(step.as_trained, step.injected) if step.step == 0 else step.injected
        comparer = StepComparer(self.spec, step.ref, step.layers)
        own = comparer.as_trained(step.as_trained, tolerances)
        given = comparer.injected(step.injections, injected, tolerances)
        compared = StepComparison(step.step, tuple(own), tuple(given))
        findings = Grouping(self.spec, step.layers).of_step(step.step, given)
        return replace(step, injected=injected, compared=compared, findings=findings)


STATE = "state.safetensors"


def injections_of(ref: Trace, plan: BatchPlan, step: int | None) -> list[State]:
    """For each replica of a plan what is injected into it in a step; None is the first batch of the evaluation."""
    own = np.concatenate(ref.each("ids"))
    planned = ref.ids if step is None else plan.global_ids(step)
    places = _places(own, planned)
    common = {
        name: value
        for name, value in ref.replicas[0].items()
        if name.partition("/")[0] in INJECTABLE and not is_of_samples(name)
    }
    rows = {
        name: np.concatenate(ref.each(name))
        for name in ref.names
        if is_of_samples(name) and all(name in tensors for tensors in ref.replicas)
    }
    shares = [plan.share(places, replica) for replica in range(plan.replicas)]
    return [{name: values[share] for name, values in rows.items()} | common for share in shares]


def _places(own: Ids, planned: Ids) -> Ids:
    """Where in the reference's batch the planned samples are, in the plan's order.

    Where the reference did not have those samples: its own, in its own order.
    """
    order = np.argsort(own, kind="stable")
    ranks = np.argsort(planned, kind="stable")
    if not np.array_equal(own[order], planned[ranks]):
        return np.arange(len(own))
    places = np.empty(len(own), np.int64)
    places[ranks] = order
    return places


def state_before(ref: Trace, step: int) -> State:
    """The canonical state that the reference's step began with."""
    state = {
        name.removeprefix("before/"): value
        for name, value in ref.replicas[0].items()
        if name.startswith("before/")
    }
    return {**state, "step": np.array(step, np.int64)}


def write_injections(parent: Path, step: int | None, injections: list[State], state: State) -> list[State]:
    """Write what is injected into a step, and the state that it begins with; returns it, left in its files."""
    folder = step_folder(parent, step)
    for replica, tensors in enumerate(injections):
        write_replica(folder, replica, tensors)
    save_state(folder / STATE, state)
    return read_injected(parent, step, range(len(injections)))


def _hides_a_gradient(found: KeyedFinding) -> bool:
    """Whether a layer is to account for a reduced gradient: maybe what reduced it is wrong, too."""
    return found.key[0] == "layer" and any(seen.stage == "gradient" for seen in found.finding.tensors)


def _with_those_of(injected: Trace, alike: Trace) -> Trace:
    """A step with the local gradients of another that was given the same; without, where layers did something else there."""
    filled = []
    for own, other in zip(injected.replicas, alike.replicas, strict=True):
        layers = [name for name in own if stage_of(name) in ("forward", "backward")]
        if any(tensor_deviation(own[name], other[name]) > limits.FITS for name in layers):
            return injected
        more = {name: value for name, value in other.items() if stage_of(name) == "local_gradient"}
        filled.append({**own, **more})
    return replace(injected, replicas=tuple(filled))


def _begun_as(as_trained: Trace, injected: Trace) -> Trace:
    """The injected first step, but for what it begins with: the initial state is what each replica made itself."""
    replicas = tuple(
        {**given, **{name: value for name, value in own.items() if name.startswith("before/")}}
        for own, given in zip(as_trained.replicas, injected.replicas, strict=True)
    )
    return replace(injected, replicas=replicas)
