"""The way through a diagnosis: replay the reference, feed the candidate with it, compare, explain."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console

from parity.common.base.errors import ParityError
from parity.common.diagnosis.isolate import first_step as whens
from parity.common.diagnosis.explain.causes import explain
from parity.common.diagnosis.explain.counterfactuals import Counterfactuals
from parity.common.diagnosis.explain.evidence import Evidence
from parity.common.diagnosis.isolate.findings import merged, over_steps, seen_by_replica
from parity.common.diagnosis.observe.placements import differences, looked_into
from parity.common.diagnosis.observe.replays import Inside, Replays, StepTrace, as_trained
from parity.common.diagnosis.result import Diagnosis, Explanation, Finding, Seen, StepSeen, When
from parity.common.diagnosis.isolate.comparison import StepComparison, TensorComparison, rough_limits
from parity.common.execution.replay import Replayer
from parity.common.parity.align import check_alignment
from parity.common.parity.budget import FLOOR_MULTIPLE, Budget, ensemble_budget, proof_budget, widest
from parity.common.parity.deviation import column_deviation
from parity.common.record import RunRecord
from parity.common.spec import Placement, TrainSpec
from parity.common.state.imported import PAIR, refuse_imported


def diagnose(
    reference: RunRecord,
    candidate: RunRecord,
    replayer: Replayer,
    folder: Path,
    inside: Inside = (None, None),
    floors: Sequence[RunRecord] = (),
    console: Console | None = None,
    keep: bool = False,
) -> Diagnosis:
    """Say when, where and why two runs part.

    Args:
        reference: a complete record.
        candidate: another complete record of the same spec and the same steps.
        replayer: makes the replays.
        folder: a new one, for them; removed at the end unless `keep`.
        inside: "module:function" of what the two runs were made inside, or None.
        floors: runs of the reference in a permuted order, which say what rounding does to the curves of
            a precision below float64. Without any, only what must be equal is judged there.
        console: where progress is told.

    Raises:
        AlignmentError: the records must not be compared.
        ParityError: a replay failed.
    """
    check_alignment(reference, candidate)
    refuse_imported(reference.spec, "a diagnosis", PAIR)
    folder.mkdir(parents=True, exist_ok=True)
    console = console or Console(quiet=True)
    session = _Session((reference, candidate), replayer, folder, inside, floors, console)
    try:
        return session.diagnosed()
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


class _Session:
    """One diagnosis at work."""

    def __init__(
        self,
        records: tuple[RunRecord, RunRecord],
        replayer: Replayer,
        folder: Path,
        inside: Inside,
        floors: Sequence[RunRecord],
        console: Console,
    ) -> None:
        self.records, self.replayer, self.folder = records, replayer, folder
        self.inside, self.floors, self.console = inside, floors, console
        self.began = time.monotonic()
        self.notes = differences(*records)
        simplified = [looked_into(record.placement) for record in records]
        self.placements: tuple[Placement, Placement] = (simplified[0][0], simplified[1][0])
        self.left_out = list(dict.fromkeys(what for _, left_out in simplified for what in left_out))
        for record, (_, left_out) in zip(records, simplified, strict=True):
            if left_out:
                self.notes.append(f"{record.label} is replayed without {', '.join(left_out)}")
        self.notes += [note for record in records for note in _violations(record)]
        self.notes += [
            f"{r.label} is replayed as {r.placement.label} throughout" for r in records if r.joined
        ]
        self.steps = len(records[0].steps)
        self.replays = self._replays_of(records[0].spec.resolved())

    def diagnosed(self) -> Diagnosis:
        """All of it."""
        when, looked = self._parted()
        findings = self._explained(looked)
        reproduced = any(not seen.agrees for step in looked for seen in step.free_seen)
        if when is None and findings:
            when = _as_replayed(looked, findings)
        if when is not None and not findings and not reproduced:
            if self.left_out:
                findings = [self._only_with(when)]
            else:
                self.notes.append("the replays agree: what made the runs part was not replayed")
        if any(finding.explanation is None for finding in findings):
            self._try_one_replica(looked)
        amplified = when is not None and not findings and self._rounds_as_far(when)
        return Diagnosis(
            self.records[0].label,
            self.records[1].label,
            self.records[0].spec.name,
            "parity" if when is None else "inconclusive" if amplified else "divergent",
            when,
            tuple(StepSeen(step.step, _shown(step.free_seen), _shown(step.forced_seen)) for step in looked),
            tuple(findings),
            tuple(self.notes),
            reproduced,
            time.monotonic() - self.began,
        )

    def _say(self, text: str) -> None:
        self.console.print(f"[dim]{text}[/dim]", highlight=False, soft_wrap=True)

    def _replays_of(self, spec: TrainSpec) -> Replays:
        folder = self.folder / spec.precision
        return Replays(self.replayer, folder, spec, self.placements, self.inside, self._say)

    def _parted(self) -> tuple[When | None, list[StepTrace]]:
        """When the runs part, and what is seen of the steps around; in float64 first."""
        own = self.replays
        if own.spec.precision == "float64":
            return self._parted_in(self.records)
        recorded = whens.first_outside(*self.records, self._budget(own.spec))
        fields = {**own.spec.to_dict(), "precision": "float64", "loss_scale": None, "tf32": False}
        self.replays = self._replays_of(TrainSpec.parse(fields).resolved())
        # A few steps may do.
        when, looked = recorded, self._look(recorded)
        if not _found(looked):
            when, looked = self._parted_in(self.replays.trained(self.steps), looked)
        if _found(looked) or when is not None:
            self.notes.append(
                f"the runs are {own.spec.precision}; replayed in float64, where rounding hides nothing"
            )
            return when, looked
        self.replays = own
        self.notes.append(
            f"in float64 the runs agree; replayed in {own.spec.precision}, held against what permuted"
            " replays round"
        )
        return self._parted_in(self.records)

    def _parted_in(
        self, records: tuple[RunRecord, RunRecord], looked: list[StepTrace] | None = None
    ) -> tuple[When | None, list[StepTrace]]:
        """looked: what is seen where no step is known to be outside, if that has been looked at."""
        when = whens.first_outside(*records, self._budget(records[0].spec))
        if when is not None and when.only_state:
            # No curve shows it: searching costs less than looking into steps that may all agree.
            searched = self._searched(when)
            return searched or when, self._look(searched or when)
        if looked is None or (when is not None and when.step is not None):
            looked = self._look(when)
        if when is None or when.step is None or _found(looked):
            return when, looked
        # Nothing deviates at these steps by itself.
        searched = self._searched(when)
        return (when, looked) if searched is None else (searched, self._look(searched))

    def _searched(self, when: When) -> When | None:
        """The step that makes the states differ; None where none does."""
        narrowed = whens.narrowed(0, self.steps, self.replays.states_differ)
        if narrowed is None:
            return None
        step, rounds = narrowed
        return When(
            step, when.evidence, f"states compared in sections, {rounds} rounds of {self.steps} steps"
        )

    def _look(self, when: When | None) -> list[StepTrace]:
        return self.replays.looked_at(self.steps, None if when is None else when.step)

    def _budget(self, spec: TrainSpec) -> Budget | None:
        """None where nobody has measured what rounding does to the curves."""
        if spec.precision == "float64":
            return proof_budget(self.records[0])
        budgets = []
        for record in self.records:
            members = [floor for floor in self.floors if floor.placement.label == record.placement.label]
            if members:
                budgets.append(ensemble_budget(record, members))
        return widest(budgets) if budgets else None

    def _explained(self, looked: Sequence[StepTrace]) -> list[Finding]:
        # A step that went right as trained shows, when taken again, what others have left behind.
        telling = sorted(looked, key=lambda step: all(seen.agrees for seen in step.free_seen))
        findings = over_steps(grouped for step in telling for grouped in step.found)
        order = [step.step for step in looked]
        findings.sort(key=lambda finding: order.index(finding.step))
        explained = []
        for number, finding in enumerate(findings):
            self._say(f"explaining {finding.name}")
            evidence = self._evidence(finding, looked, self.folder / f"lab_{number}")
            explained.append(replace(finding, explanation=explain(evidence)))
        return merged(explained)

    def _evidence(self, finding: Finding, looked: Sequence[StepTrace], folder: Path) -> Evidence:
        here = next(step for step in looked if step.step == finding.step)
        others = [(s.step, s.ref, s.forced) for s in looked if s.step is not None and s is not here]
        last = self.steps if here.step is None else here.step
        spec = self.replays.spec
        return Evidence(
            spec=spec,
            reference=self.placements[0],
            candidate=self.placements[1],
            step=here.step,
            ref=here.ref,
            forced=here.forced,
            injected=here.injected,
            free=here.free,
            earlier=[other for other in others if other[0] < last],
            finding=finding,
            allowed=max(seen.allowed for seen in finding.seen),
            layers=here.layers,
            lab=Counterfactuals(self.replayer, folder, spec, self.placements, self.inside, here.replay),
            later=[other for other in others if other[0] > last],
            state=here.state,
            records=self.records,
        )

    def _only_with(self, when: When) -> Finding:
        """Where the replays agree: it comes with what they leave out."""
        what = " and ".join(self.left_out)
        why = Explanation(
            f"only_with_{'_and_'.join(name.replace(' ', '_') for name in self.left_out)}",
            f"the runs part only with {what}: replayed without, they agree",
            "confirmed",
            f"look at how {what} is set up, or run without",
            f"replayed without {what}, every tensor of the steps looked into agrees",
        )
        row = 0 if when.step is None else int(np.flatnonzero(self.records[0].steps == when.step)[0])
        deviation = float(column_deviation("loss_sum", *self.records)[row])
        seen = Seen("loss", "loss_sum", None, deviation, 0.0)
        return Finding(when.step, "loss", "loss_sum", (), (seen,), (), why)

    def _rounds_as_far(self, when: When) -> bool:
        """Whether in float64 rounding takes either run as far as they part: a training may amplify it."""
        reference, candidate = self.records
        if reference.spec.precision != "float64" or self.left_out:
            return False
        # Held against each other: what was recorded may have been made by more than rounding.
        runs = [self.replays.rounded(self.steps, which) for which in (0, 1)]
        floors = [ensemble_budget(base, members) for base, *members in runs]
        allowed = widest([proof_budget(reference), *floors])
        if whens.first_outside(reference, candidate, allowed) is not None:
            return False
        self.notes.append(
            f"this training amplifies rounding: {when.evidence}, but runs of {reference.label} or of"
            f" {candidate.label} that only round differently part about as far (budget {FLOOR_MULTIPLE:g} x"
            " the farthest)"
        )
        return True

    def _try_one_replica(self, looked: Sequence[StepTrace]) -> None:
        """Say whether what could not be explained stays where the candidate has one replica."""
        placement, spec = self.placements[1], self.replays.spec
        step = next((s.step for s in looked if s.step is not None and s.found), None)
        if placement.replicas == 1 or spec.per_replica_statistics or step is None:
            return
        self._say("replaying the candidate on one replica")
        try:
            alone = self.replays.alone(step)
        except ParityError:
            return  # a strategy that has no single replica
        ref = next(s.ref for s in looked if s.step == step)
        limits = as_trained(rough_limits(spec, {}))
        stays = [c for c in StepComparison(spec, ref, {}).free(alone, limits) if not c.agrees]
        more = f"stays: {stays[0].name} is the first to deviate" if stays else "goes away"
        self.notes.append(f"on one replica of {placement.strategy}, step {step}, the divergence {more}")


def _found(looked: Sequence[StepTrace]) -> bool:
    return any(step.found for step in looked)


def _as_replayed(looked: Sequence[StepTrace], findings: Sequence[Finding]) -> When:
    """When the replays part, where nothing recorded says that the runs do."""
    for step in looked:
        first = next((seen for seen in step.free_seen if not seen.agrees), None)
        if first is not None:
            return When(step.step, f"as replayed, {first.name} is off by {first.deviation:.2g}")
    return When(findings[0].step, f"fed with the reference's tensors, {findings[0].name} deviates")


def _shown(seen: Sequence[TensorComparison]) -> tuple[Seen, ...]:
    return tuple(entry for compared in seen for entry in seen_by_replica(compared))


def _violations(record: RunRecord) -> list[str]:
    """Of what must hold in every run, the first time that each did not."""
    first: dict[str, str] = {}
    for violation in record.violations:
        first.setdefault(
            violation.invariant,
            f"{record.label} broke at step {violation.step}: {violation.invariant}: {violation.text}",
        )
    return list(first.values())
