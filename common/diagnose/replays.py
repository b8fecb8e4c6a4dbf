"""The replays of a diagnosis, and what is seen in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from common.data.plan import BatchPlan
from common.diagnose import when as whens
from common.diagnose.feed import fed_of, state_before, write_fed
from common.diagnose.findings import Grouped, Grouping
from common.diagnose.where import FORCED_LIMITS, FREE_LIMITS, Compared, Limits, StepComparison, rough_limits
from common.launch.replay import Replayer
from common.parity.budget import FLOOR_MULTIPLE, MINIMUM_MEMBERS
from common.record import RunRecord, read_record
from common.spec import Placement, TrainSpec
from common.spec.replay import Replay
from common.spec.run import feeds_back
from common.state import State, load_state
from common.trace import FORCED, TRACE, Trace, read_layers, state_file, step_folder

# Below float64, as trained: where rounding has taken a net with kinks by then.
FREE_ROUGH = 1e-3

Inside = tuple[str | None, str | None]


@dataclass(frozen=True)
class Looked:
    """What was seen of one step: the traces, and what they say.

    state: of the evaluation, what it was made with. replay: the candidate's, which forced the step.
    """

    step: int | None
    ref: Trace
    fed: tuple[State, ...]
    forced: Trace
    free: Trace
    layers: Mapping[str, str]
    free_seen: list[Compared]
    forced_seen: list[Compared]
    found: list[Grouped]
    state: State | None
    replay: Replay


class Replays:
    """Replays of a reference and a candidate, of one spec, in sub-folders of `folder`."""

    def __init__(
        self,
        replayer: Replayer,
        folder: Path,
        spec: TrainSpec,
        placements: tuple[Placement, Placement],
        inside: Inside,
        say: Callable[[str], None],
    ) -> None:
        self.spec, self.placements = spec, placements
        self._replayer, self._folder, self._inside, self._say = replayer, folder, inside, say
        self._count = 0
        # Before which steps the states of both runs are known, and the files of these.
        self._known: dict[int, tuple[Path, Path]] = {}

    def trained(self, steps: int) -> tuple[RunRecord, RunRecord]:
        """Both runs, made again."""
        self._say(f"training both runs in {self.spec.precision}, {steps} steps")
        runs = self._both([p.model_copy(update={"stop_at_step": steps}) for p in self.placements])
        return read_record(runs[0]), read_record(runs[1])

    def looked_at(self, steps: int, outside: int | None) -> list[Looked]:
        """The steps to look into, of so many, where this one is the first outside; and the evaluation.

        Far from the beginning, both runs go on from states of their own.
        """
        plan, evaluates = BatchPlan.of(self.spec, self.placements[1]), bool(self.spec.data.eval_samples)
        if outside is None or outside <= whens.FARTHEST_BORDER or feeds_back(self.spec):
            return self._looked(whens.chosen_steps(self.spec, plan, steps, outside), evaluates)
        early = self._looked(whens.chosen_steps(self.spec, plan, steps, None), evaluates)
        around = tuple(step for step in range(outside - 1, outside + 2) if step < steps)
        self._say(f"going to step {around[0]}")
        self._find_states((around[0],))
        late = self._looked(around, False, around[0])
        before = [look for look in early if look.step is not None and look.step < around[0]]
        return [*before, *late, *(look for look in early if look.step is None)]

    def states_differ(self, begin: int, points: Sequence[int]) -> dict[int, bool]:
        """Whether the states before some steps differ; from those before `begin` on, which are known."""
        self._say(f"searching steps {begin} to {points[-1]}")
        self._find_states(points, begin)
        return {
            point: whens.states_differ(self.spec, *map(load_state, self._known[point])) for point in points
        }

    def alone(self, step: int) -> Trace:
        """A step of the candidate on one replica, as trained."""
        placement = Placement.parse({**self.placements[1].to_dict(), "replicas": 1})
        replay = Replay.parse({"stop": step + 1, "trace": (step,)})
        run = self._run(placement.model_copy(update={"replay": replay}), 1)
        return Trace.read(step_folder(run / TRACE, step), 1)

    def _out(self) -> Path:
        self._count += 1
        return self._folder / f"run_{self._count:02d}"

    def _run(self, placement: Placement, which: int) -> Path:
        return self._replayer.run(self.spec, placement, self._out(), self._inside[which])

    def _both(self, placements: Sequence[Placement]) -> tuple[Path, Path]:
        """Both at once, where they have workers of their own."""
        with ThreadPoolExecutor(2) as threads:
            runs = [
                threads.submit(self._replayer.run, self.spec, placement, self._out(), inside)
                for placement, inside in zip(placements, self._inside, strict=True)
            ]
            first, second = [run.result() for run in runs]
        return first, second

    def _replaying(self, which: int, **fields: Any) -> Placement:
        return self.placements[which].model_copy(update={"replay": Replay.parse(fields)})

    def _beginning(self, which: int, step: int) -> dict[str, Any]:
        """The fields of a replay that begins before a step, whose state is known."""
        return {"first_step": step, "begin": str(self._known[step][which])} if step else {}

    def _find_states(self, points: Sequence[int], begin: int = 0) -> None:
        """Have the states before some steps known."""
        if all(point in self._known for point in points):
            return
        if feeds_back(self.spec):
            begin = 0  # the schedule must have seen all steps
        fields = {"stop": points[-1], "states": tuple(points)}
        runs = self._both(
            [self._replaying(which, **fields, **self._beginning(which, begin)) for which in (0, 1)]
        )
        for point in points:
            self._known[point] = (state_file(runs[0], point), state_file(runs[1], point))

    def _looked(self, chosen: Sequence[int], evaluates: bool, begin: int = 0) -> list[Looked]:
        """Replay both runs, trace the chosen steps, and compare."""
        plan, stop = BatchPlan.of(self.spec, self.placements[1]), chosen[-1] + 1
        common = {"stop": stop, "trace": tuple(chosen), "states": (stop,), "evaluation": evaluates}
        self._say(f"replaying {self.placements[0].label}, {stop - begin} steps")
        first = self._run(self._replaying(0, **common, **self._beginning(0, begin)), 0)
        feed = self._folder / f"feed_{self._count:02d}"
        steps: list[int | None] = [*chosen, *([None] if evaluates else [])]
        refs: dict[int | None, Trace] = {}
        evaluated = load_state(state_file(first, stop))
        for step in steps:
            ref = refs[step] = Trace.read(step_folder(first / TRACE, step), self.placements[0].replicas)
            state = evaluated if step is None else state_before(ref, step)
            write_fed(feed, step, fed_of(ref, plan, step), state)
        self._say(f"replaying {self.placements[1].label}, and each of {len(chosen)} steps by itself")
        history = str(first) if feeds_back(self.spec) else None
        forcing = {**common, **self._beginning(1, begin), "forced": str(feed), "history": history}
        placement = self._replaying(1, **forcing)
        second = self._run(placement, 1)
        assert placement.replay is not None
        folders, replay = (first, second), placement.replay

        def compared(limits: Limits) -> list[Looked]:
            return [self._compared(step, refs[step], folders, limits, evaluated, replay) for step in steps]

        limits = rough_limits(self.spec, {})
        looked = compared(limits)
        if limits is FORCED_LIMITS or not any(step.found for step in looked):
            return looked
        return compared(rough_limits(self.spec, self._floors(refs)))

    def _floors(self, refs: Mapping[int | None, Trace]) -> dict[str, float]:
        """What rounding does to each tensor: the reference's own steps, their samples in other orders."""
        self._say(f"measuring what {self.spec.precision} rounds")
        traced = {step: ref for step, ref in refs.items() if step is not None}
        largest: dict[str, float] = {}
        for seed in range(MINIMUM_MEMBERS):
            placement = self.placements[0].model_copy(update={"sample_order_seed": seed})
            plan, feed = BatchPlan.of(self.spec, placement), self._folder / f"floor_{seed}_{self._count}"
            for step, ref in traced.items():
                write_fed(feed, step, fed_of(ref, plan, step), state_before(ref, step))
            replay = Replay.parse({"stop": 0, "forced": str(feed)})
            run = self._run(placement.model_copy(update={"replay": replay}), 0)
            for step, ref in traced.items():
                trace = Trace.read(step_folder(run / FORCED, step), placement.replicas)
                for seen in StepComparison(self.spec, ref, {}).forced(fed_of(ref, plan, step), trace):
                    # The schedule was told of no steps before.
                    if np.isfinite(seen.deviation) and seen.stage != "scalar":
                        largest[seen.name] = max(seen.deviation, largest.get(seen.name, 0.0))
        return {name: FLOOR_MULTIPLE * deviation for name, deviation in largest.items()}

    def _compared(
        self,
        step: int | None,
        ref: Trace,
        folders: tuple[Path, Path],
        limits: Limits,
        evaluated: State,
        replay: Replay,
    ) -> Looked:
        first, second = folders
        replicas = self.placements[1].replicas
        fed = fed_of(ref, BatchPlan.of(self.spec, self.placements[1]), step)
        layers = read_layers(step_folder(first / TRACE, step))
        free = Trace.read(step_folder(second / TRACE, step), replicas)
        forced = replace(
            Trace.read(step_folder(second / FORCED, step), replicas),
            fed_ids=tuple(np.asarray(tensors["ids"], np.int64) for tensors in fed),
        )
        if step == 0:
            forced = _begun_as(free, forced)
        comparison = StepComparison(self.spec, ref, layers)
        seen = comparison.forced(fed, forced, limits)
        return Looked(
            step,
            ref,
            tuple(fed),
            forced,
            free,
            layers,
            comparison.free(free, as_trained(limits)),
            seen,
            Grouping(self.spec, layers).of_step(step, seen),
            evaluated if step is None else None,
            replay,
        )


def _begun_as(free: Trace, forced: Trace) -> Trace:
    """The first step fed, but for what it begins with: the initial state is what each replica made itself."""
    replicas = tuple(
        {**fed, **{name: value for name, value in own.items() if name.startswith("before/")}}
        for own, fed in zip(free.replicas, forced.replicas, strict=True)
    )
    return replace(forced, replicas=replicas)


def as_trained(limits: Limits) -> Limits:
    """Of a step as trained: it begins with what all steps before have rounded."""
    return FREE_LIMITS if limits is FORCED_LIMITS else replace(limits, every=FREE_ROUGH)
