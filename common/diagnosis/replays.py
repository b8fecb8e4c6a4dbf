"""The source that replays two runs of one spec: the reference, and the candidate given the reference's tensors."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from parity.common.base.errors import RunError, SpecError
from parity.common.base.terminal import Terminal
from parity.common.diagnosis import core, limits
from parity.common.diagnosis.explain import recorded
from parity.common.diagnosis.explain.case import Case, TracedStep
from parity.common.diagnosis.explain.causes import explain
from parity.common.diagnosis.explain.counterfactuals import Counterfactuals
from parity.common.diagnosis.isolate import first_step
from parity.common.diagnosis.isolate.comparison import StepComparer, rough_tolerances
from parity.common.diagnosis.isolate.findings import merged, over_steps
from parity.common.diagnosis.observe.replays import Contexts, Replays, StepTrace, traceable
from parity.common.diagnosis.result import (
    Diagnosis,
    Explanation,
    Finding,
    Verdict,
    When,
)
from parity.common.execution.worker import Workers
from parity.common.parity.budget import (
    FLOOR_MULTIPLE,
    Budget,
    budget_of,
    ensemble_budget,
    proof_budget,
    widest,
)
from parity.common.parity.comparable import check_comparable
from parity.common.record import RunRecord
from parity.common.spec import Placement, TrainSpec
from parity.common.state.imported import PAIR, refuse_imported


def diagnose(
    reference: RunRecord,
    candidate: RunRecord,
    replayer: Workers,
    folder: Path,
    contexts: Contexts = (None, None),
    floors: Sequence[RunRecord] = (),
    console: Terminal | None = None,
    keep: bool = False,
) -> Diagnosis:
    """Return when, where and why two runs diverge.

    Args:
        reference: a complete record.
        candidate: another complete record of the same spec and the same steps.
        replayer: makes the replays.
        folder: a new one, for them; removed at the end unless `keep`.
        contexts: "module:function" of the contexts that the two runs were made in, or None.
        floors: runs of the reference in a permuted order, which say what rounding does to the curves of
            a precision below float64. Without any, only what must be equal is judged there.
        console: where progress is reported.

    Raises:
        NotComparableError: the records must not be compared.
        ParityError: a replay failed.
    """
    check_comparable(reference, candidate)
    refuse_imported(reference.spec, "a diagnosis", PAIR)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return core.run(ReplaySource((reference, candidate), replayer, folder, contexts, floors, console))
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


class ReplaySource(core.ObservationSource):
    """Two runs of one spec, whose steps can be made again; the arguments are those of `diagnose`."""

    def __init__(
        self,
        records: tuple[RunRecord, RunRecord],
        replayer: Workers,
        folder: Path,
        contexts: Contexts,
        floors: Sequence[RunRecord],
        console: Terminal | None,
    ) -> None:
        super().__init__(console)
        self.records, self.replayer, self.folder = records, replayer, folder
        self.contexts, self.floors = contexts, floors
        self.notes += _differences(*records)
        (ours, without), (theirs, also_without) = (traceable(record.placement) for record in records)
        self.placements = (ours, theirs)
        self.left_out = list(dict.fromkeys([*without, *also_without]))
        for record, left_out in zip(records, (without, also_without), strict=True):
            if left_out:
                self.notes.append(f"{record.label} is replayed without {', '.join(left_out)}")
        self.notes += [note for record in records for note in record.violation_notes()]
        self.notes += [
            f"{r.label} is replayed as {r.placement.label} throughout" for r in records if r.joined
        ]
        self.steps = len(records[0].steps)
        self.replays = self._replays_of(records[0].spec.resolved())
        self.when: When | None = None
        self.traced: list[StepTrace] = []

    def observe(self) -> None:
        self.when, self.traced = self._diverge()

    def isolate(self) -> Iterator[Finding]:
        # A step that went right as trained shows, when it is repeated, what others have left behind.
        telling = sorted(self.traced, key=lambda step: step.compared.first is None)
        findings = over_steps(keyed for step in telling for keyed in step.findings)
        order = [step.step for step in self.traced]
        yield from sorted(findings, key=lambda finding: order.index(finding.step))

    def explain(self, finding: Finding) -> Sequence[Finding]:
        self.say(f"explaining {finding.name}")
        case = self._case(finding)
        explained = replace(finding, explanation=explain(case))
        self.notes += [failure for failure in dict.fromkeys(case.failures) if failure not in self.notes]
        return [explained]

    def conclude(self) -> Diagnosis:
        when, findings = self.when, merged(self.findings)
        reproduced = any(step.compared.first is not None for step in self.traced)
        if when is None and findings:
            when = _as_replayed(self.traced, findings)
        if when is not None and not findings and not reproduced:
            if self.left_out:
                findings = [self._only_with(when)]
            elif (only := self._only_recorded(when)) is not None:
                findings = [only]
            else:
                self.notes.append("the replays agree: the replay did not reproduce the divergence")
        if any(finding.explanation is None for finding in findings):
            self._try_one_replica()
        verdict: Verdict = "parity" if when is None else "divergent"
        if when is not None and not findings and self._rounds_as_far(when):
            verdict = "inconclusive"
        names = (self.records[0].label, self.records[1].label, self.records[0].spec.name)
        return Diagnosis(
            "replays",
            *names,
            verdict,
            when,
            steps=tuple(step.compared for step in self.traced),
            findings=tuple(findings),
            notes=tuple(self.notes),
            reproduced=reproduced,
        )

    def _replays_of(self, spec: TrainSpec) -> Replays:
        folder = self.folder / spec.precision
        return Replays(self.replayer, folder, spec, self.placements, self.contexts, self.say)

    def _diverge(self) -> tuple[When | None, list[StepTrace]]:
        """When the runs diverge, and the steps traced around it; in float64 first."""
        own = self.replays
        if own.spec.precision == "float64":
            return self._diverge_in(self.records)
        recorded = first_step.first_outside(*self.records, self._budget(own.spec))
        fields = {**own.spec.to_dict(), "precision": "float64", "loss_scale": None, "tf32": False}
        self.replays = self._replays_of(TrainSpec.parse(fields).resolved())
        # A few steps may do.
        when, traced = recorded, self._trace(recorded)
        if not _deviate(traced):
            when, traced = self._diverge_in(self.replays.trained(self.steps), traced)
        if _deviate(traced) or when is not None:
            self.notes.append(
                f"the runs are {own.spec.precision}; replayed in float64, where rounding hides nothing"
            )
            return when, traced
        self.replays = own
        self.notes.append(
            f"in float64 the runs agree; replayed in {own.spec.precision}, compared with what permuted"
            " replays round"
        )
        return self._diverge_in(self.records)

    def _diverge_in(
        self, records: tuple[RunRecord, RunRecord], traced: list[StepTrace] | None = None
    ) -> tuple[When | None, list[StepTrace]]:
        """traced: the steps traced while none is known to be outside, if that was done."""
        when = first_step.first_outside(*records, self._budget(records[0].spec))
        section = (0, self.steps) if when is None else self.replays.know(records)
        if when is not None and when.only_state:
            # No curve shows it: searching costs less than tracing steps that may all agree.
            searched = self._searched(when, *section)
            return searched or when, self._trace(searched or when)
        if traced is None or (when is not None and when.step is not None):
            traced = self._trace(when)
        if when is None or when.step is None or _deviate(traced):
            return when, traced
        # No isolated tensor of these steps deviates.
        searched = self._searched(when, *section)
        return (when, traced) if searched is None else (searched, self._trace(searched))

    def _searched(self, when: When, begin: int, stop: int) -> When | None:
        """The step from `begin`, before which they agree, to `stop` that makes the states differ; None where none does."""
        size = sum(tensor.nbytes for tensor in self.records[0].state("initial").values())
        sections = min(max(limits.SECTIONS, limits.SECTION_BYTES // size), limits.MOST_SECTIONS)
        narrowed = first_step.narrowed(begin, stop, self.replays.states_differ, sections)
        if narrowed is None:
            return None
        step, rounds = narrowed
        counted = "1 round" if rounds == 1 else f"{rounds} rounds"
        return When(
            step,
            when.evidence,
            searched=f"states compared in sections, {counted} of steps {begin} to {stop - 1}",
        )

    def _trace(self, when: When | None) -> list[StepTrace]:
        return self.replays.traced(self.steps, None if when is None else when.step)

    def _budget(self, spec: TrainSpec) -> Budget | None:
        """None where it was not measured what rounding does to the curves."""
        if spec.precision == "float64":
            return proof_budget(self.records[0])
        labels = {record.setup for record in self.records}
        return budget_of(self.records, [floor for floor in self.floors if floor.setup in labels])

    def _case(self, finding: Finding) -> Case:
        here = next(step for step in self.traced if step.step == finding.step)
        key = next((keyed.key for keyed in here.findings if keyed.finding is finding), None)
        others = [
            TracedStep(s.step, s.ref, s.injected, next((k.finding for k in s.findings if k.key == key), None))
            for s in self.traced
            if s.step is not None and s is not here
        ]
        spec, folder = self.replays.spec, self.folder / f"experiments_{len(self.findings)}"
        return Case(
            spec=spec,
            reference=self.placements[0],
            candidate=self.placements[1],
            step=here.step,
            ref=here.ref,
            injected=here.injected,
            injections=here.injections,
            as_trained=here.as_trained,
            others=others,
            beside=[keyed.finding for keyed in here.findings if keyed.finding is not finding],
            finding=finding,
            allowed=max(tensor.allowed for tensor in finding.tensors),
            layers=here.layers,
            experiments=Counterfactuals(
                self.replayer, folder, spec, self.placements, self.contexts, here.replay
            ),
            state=here.state,
            records=self.records,
        )

    def _only_with(self, when: When) -> Finding:
        """Where the replays agree: it comes with what they leave out."""
        what = " and ".join(self.left_out)
        why = Explanation(
            f"only_with_{'_and_'.join(name.replace(' ', '_') for name in self.left_out)}",
            f"the runs diverge only with {what}: replayed without, they agree",
            "confirmed",
            f"look at how {what} is set up, or run without",
            f"replayed without {what}, every tensor of the traced steps agrees",
        )
        far = recorded.deviation(*self.records, "loss_sum", when.step or 0)
        return recorded.finding(when, "loss", "loss_sum", far, why)

    def _only_recorded(self, when: When) -> Finding | None:
        """Where the replays agree: of runs that end alike what was recorded is all that differs."""
        spec = self.records[0].spec
        budget = self._budget(spec) if spec.precision == "float64" else None
        return None if budget is None else recorded.only_recorded(*self.records, when, budget)

    def _rounds_as_far(self, when: When) -> bool:
        """Whether in float64 rounding takes either run as far as they diverge: a training may amplify it."""
        reference, candidate = self.records
        if reference.spec.precision != "float64" or self.left_out:
            return False
        # Compared with each other: what was recorded may have been made by more than rounding.
        runs = [self.replays.rounded(self.steps, which) for which in (0, 1)]
        floors = [ensemble_budget(base, members) for base, *members in runs]
        allowed = widest([proof_budget(reference), *floors])
        if first_step.first_outside(reference, candidate, allowed) is not None:
            return False
        self.notes.append(
            f"this training amplifies rounding: {when.evidence}, but runs of {reference.label} or of"
            f" {candidate.label} that only round differently diverge about as far (budget {FLOOR_MULTIPLE:g} x"
            " the farthest)"
        )
        return True

    def _try_one_replica(self) -> None:
        """Note whether what could not be explained stays where the candidate has one replica."""
        placement, spec = self.placements[1], self.replays.spec
        step = next((s.step for s in self.traced if s.step is not None and s.findings), None)
        if placement.replicas == 1 or spec.per_replica_statistics or step is None:
            return
        try:
            single = Placement.parse({**placement.to_dict(), "replicas": 1})
        except SpecError:
            return  # a strategy that has no single replica
        self.say("replaying the candidate on one replica")
        try:
            alone = self.replays.step_of(single, step)
        except RunError as error:
            self.notes.append(f"the candidate could not be replayed on one replica: {error}")
            return
        ref = next(s.ref for s in self.traced if s.step == step)
        compared = StepComparer(spec, ref, {}).as_trained(alone, rough_tolerances(spec, {}))
        stays = [c for c in compared if not c.agrees]
        more = f"stays: {stays[0].name} is the first to deviate" if stays else "goes away"
        self.notes.append(f"on one replica of {placement.strategy}, step {step}, the divergence {more}")


def _deviate(traced: Sequence[StepTrace]) -> bool:
    return any(step.findings for step in traced)


def _as_replayed(traced: Sequence[StepTrace], findings: Sequence[Finding]) -> When:
    """When the replays diverge, where nothing recorded says that the runs do."""
    for step in traced:
        if (first := step.compared.first) is not None:
            return When(step.step, f"as replayed, {first.name} is off by {first.deviation:.2g}")
    return When(findings[0].step, f"given the reference's tensors, {findings[0].name} deviates")


def _differences(reference: RunRecord, candidate: RunRecord) -> list[str]:
    """What may matter of the runs' headers where they diverge, beside the placement."""
    found = []
    for fact in ("versions", "host", "git_revision", "data_hash"):
        a, b = getattr(reference.header, fact), getattr(candidate.header, fact)
        if isinstance(a, dict):
            found += [
                f"{fact} {name}: {a[name]} and {b[name]}" for name in a if a[name] != b.get(name, a[name])
            ]
        elif a != b:
            found.append(f"{fact}: {a} and {b}")
    return found
