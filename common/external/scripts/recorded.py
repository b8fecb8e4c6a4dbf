"""The source of two recorded scripts: compared stage by stage, in the order of a step.

A script cannot be replayed, so this is worked out from the two records alone, and nothing is tried. What was not
recorded is reported.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.common.base.errors import RecordError
from parity.common.diagnosis import core, limits
from parity.common.diagnosis.result import (
    BEFORE_FIRST,
    Diagnosis,
    Explanation,
    Finding,
    StageSummary,
    Status,
    TensorComparison,
    When,
)
from parity.common.external.scripts.followed_causes import (
    clips_alone,
    in_the_gradients,
    moved_alike,
    of_averages,
    of_gradients,
    of_modes,
    of_some_tensors,
    of_update,
    scaled,
    told_factor,
    weighed,
)
from parity.common.external.scripts.layers import layers_stage
from parity.common.external.scripts.outlines import has_one_optimizer, setting_differences
from parity.common.parity.budget import CURVES, Budget
from parity.common.parity.compare import (
    COUNTED_OTHERWISE,
    EVALUATION,
    RECORDED_STATES,
    UNNAMED,
    evaluated,
    evaluation_check,
    first_steps_limit,
    followed_evaluation,
    named_alike,
    rate_rounding,
)
from parity.common.parity.deviation import (
    compared_states,
    curve_deviation,
    recorded_rows,
    state_deviations,
)
from parity.common.parity.followed import (
    FollowedStage,
    check_followed,
    elementwise_units,
    first_gradients_stage,
    followed_final,
    followed_stages,
    followed_steps,
    is_followed,
    mean_agrees,
    rounding_of_passes,
)
from parity.common.parity.pace import pace_in_words
from parity.common.parity.rounding import (
    FLOAT64,
    GROWN,
    GROWTH,
    Rounding,
    float32_constants,
    float64_curves,
    grown_since,
    rounded_from_the_start,
)
from parity.common.parity.sample_ids import has_ids, steps_of_other_samples
from parity.common.record import RunRecord
from parity.common.record.followed import CHANGED, DECAYED, FINAL, Measure, read_measures
from parity.common.record.invariants import Violation
from parity.common.spec import ScriptInfo
from parity.common.spec.external.mapping import Mapping
from parity.common.state.canonical import State

Row = NDArray[np.float64]

_SHOWN = 5
# Trainings that are farther apart show nothing of what parted them.
_FAR_APART = 0.01
# What is off by more of what it is off by at a later step may be off already.
_MUCH_NEARER = 0.1
# What fits a stage that diverges first.
_WHY = {
    "steps": "one script ends earlier: other epochs, samples or batch size, a last batch that is dropped, or what is left of an accumulation at an"
    " epoch's end",
    "sample ids": "the scripts see other samples: another shuffle, seed or batch size, or a batch dropped at an"
    " epoch's end",
    "count": "the losses are means over different numbers of samples: see what the recorders are given as count=",
    "initial state": "they begin with other weights: copy them, or load one checkpoint in both, before anything else",
    "layers": "this layer's output is the first that differs, of the same weights and samples: its settings (padding,"
    " epsilon, activation), or what is done between it and the layers before",
    "loss": "the same weights and samples give another loss: the model (a layer's setting, dropout), how inputs or targets are"
    " prepared (their order, how they are normalised), a term that one side lacks or weighs otherwise, weights that are updated before a part of it is computed, or how the loss is reduced",
    "first gradients": "the loss agrees and its gradient does not: a factor (sum or mean, replicas, accumulation,"
    " loss scale), a penalty that only one adds to the loss that it differentiates, or frozen weights",
    "learning rate": "the optimizers are given other learning rates",
    "update norm": "loss and gradients agree and the first update does not: the optimizer's rule or settings (epsilon,"
    " bias correction, weight decay, clipping)",
    FINAL: "every step agrees and the end does not: buffers (moving averages), or what is done after the last step (statistics of batch norms that are"
    " estimated anew, as by update_bn; averages that are made there, or put in the model's place; an evaluation in training mode, which moves"
    " running averages), or finish() is called at another place of the script",
    "update": "of equal weights, slots and gradients the optimizer makes another update: its rule or settings (momentum,"
    " betas, epsilon, weight decay, clipping), a second update in the same step, or weights that are changed beside it (an interpolation between two steps, a perturbation that is not taken back); of an embedding alone: stock Keras's Adam (FAQ)",
    "buffers": "of equal weights and samples the buffers come out otherwise: the momentum of moving averages, what they are of, how the"
    " variance is estimated, or that they are moved twice or at another place of the step",
    EVALUATION: "of equal weights the evaluation is another: its samples, a model that was left in training mode, or a layer that is evaluated otherwise",
}
_WHY_COUNTED = (
    "equal weights and samples give the evaluation the same loss, and another number of them is counted as correct: by another threshold (a logit above 0 is a"
    " probability above 0.5), an argmax of something else or over another axis, or against other targets"
)
_WHY["gradients"] = (
    "of equal weights and samples the gradient is another: not zeroed before backward, a factor (sum or mean,"
    " accumulation, loss scale), a penalty in the loss that is differentiated, clipping, frozen weights, or a gradient that one side stops"
)
_WHY["gradient norm"], _WHY["parameter norm"] = _WHY["first gradients"], _WHY["update norm"]
# Stages that may agree for some steps, and what then fits.
_CARRIED = ("layers", "loss", "gradient norm", "update norm", "parameter norm")
_FROM_THERE = ("layers", "loss", "gradients", "buffers")
_WHY_FROM_THERE = (
    "of equal samples, and of the weights that the step before has left, it agrees at the followed steps before, up to step {before}, so what differs begins after it:"
    " weights that the script changes itself between two steps (an interpolation, a copy that is put back), the mode (train, eval), a gradient that was not zeroed, what the script carries from batch to batch (a recurrent state, what"
    " remains of an accumulation), a term of the loss whose weight begins at 0, how a batch is prepared, or a random draw"
)
_WHY_CHANGED = (
    "the candidate changes its weights itself between the previous step and this one, and all steps without such a change agree: the reference changes its weights in"
    " another way, or not at all (an interpolation, a copy that is put back, or that was no copy)"
)
_WHY_NOT_REDUCED = (
    "the gradients were not reduced over the ranks: each rank has those of its own samples, and their mean is the reference's. The"
    " module inside of DDP was called, or no_sync() was not left before the last backward pass, or DDP was not used"
)
_WHY_LATER = (
    "everything agrees up to step {before}, so what makes them diverge is carried from step to step: the optimizer's memory"
    " (momentum, moments, decay), a schedule, moving averages, a recurrent state, or another random draw (dropout)"
)


def mapped(record: RunRecord, mapping: Mapping) -> RunRecord:
    """The record with its states by Keras's names and layouts; tensors that the mapping ignores are left out.

    Raises:
        RecordError: it is not a script's. ExternalModelError, when a state is read at the latest: the mapping does not fit it.
    """
    described = record.run_info
    if not isinstance(described, ScriptInfo):
        raise RecordError(
            f"{record.folder}: --mapping is for recorded scripts, and this was trained from a spec"
        )

    def renamed(which: str, state: State) -> State:
        arrays = {name.partition("/")[2]: array for name, array in state.items() if name != "step"}
        if described.naming == "torch":
            if which == "taps":
                return {
                    f"tensors/{pair.keras}": arrays[pair.torch]
                    for pair in mapping.layers
                    if pair.torch in arrays
                }
            of_gradients = which == "first_gradients"
            arrays = mapping.gradients_to_keras(arrays) if of_gradients else mapping.to_keras(arrays)
        elif which == "initial" and arrays:
            mapping.check_names("keras", arrays, str(record.folder))
        kept = {f"tensors/{name}": a for name, a in arrays.items() if name not in mapping.ignored.keras}
        return kept | {name: state[name] for name in state.keys() & {"step"}}

    naming = described.naming if described.naming == "other" else "keras"
    header = record.header.model_copy(update={"spec": described.model_copy(update={"naming": naming})})
    return replace(record, header=header, renamed=renamed, mapping=mapping)


def unwrapped(records: Sequence[RunRecord]) -> list[RunRecord]:
    """The records; scripts that share no tensor's name, without what stands before all names of each.

    A model inside another module, as Lightning has it, has longer names and the same tensors: 'network.0.weight'.
    """
    found = list(records)
    scripts = [record.run_info for record in found]
    namings = {terms.naming for terms in scripts if isinstance(terms, ScriptInfo)}
    if len(namings) != 1 or not all(record.train_spec is None and record.has("initial") for record in found):
        return found
    names = [record.state("initial").keys() - {"step"} for record in found]
    if not all(names) or set.intersection(*map(set, names)):
        return found
    separator = "." if namings == {"torch"} else "/"
    return [_without(record, _common(own, separator)) for record, own in zip(found, names, strict=True)]


def _common(names: Iterable[str], separator: str) -> str:
    """What all names begin with, up to a separator."""
    paths = [name.removeprefix("tensors/").split(separator)[:-1] for name in names]
    shared = takewhile(lambda level: len(set(level)) == 1, zip(*paths, strict=False))
    return "".join(level[0] + separator for level in shared)


def _without(record: RunRecord, start: str) -> RunRecord:
    before = record.renamed

    def renamed(which: str, state: State) -> State:
        state = state if before is None else before(which, state)
        return {name.replace(f"tensors/{start}", "tensors/", 1): array for name, array in state.items()}

    return replace(record, renamed=renamed) if start else record


def diagnose_recorded(reference: RunRecord, candidate: RunRecord, budget: Budget | None = None) -> Diagnosis:
    """Return where two recorded scripts diverge, stage by stage over the steps that both have; finished or not.

    Args:
        reference, candidate: with a name and a precision in common.
        budget: of `parity.common.parity.result`; None below float64 where there are no permuted runs.

    Raises:
        RecordError: they have no step in common, or a file is missing or damaged.
    """
    return core.run(RecordSource(reference, candidate, budget))


class RecordSource(core.ObservationSource):
    """Two records of scripts, over the steps that both have; nothing can be tried."""

    def __init__(self, reference: RunRecord, candidate: RunRecord, budget: Budget | None) -> None:
        super().__init__()
        self._records = reference, candidate
        check_followed(reference, candidate)
        self._followed = is_followed(candidate)
        self._steps = np.intersect1d(reference.steps, candidate.steps)
        if not len(self._steps):
            raise RecordError(f"{reference.folder} and {candidate.folder} have no step in common")
        # Each with the rows of the steps that both have.
        self._sides = [(record, np.searchsorted(record.steps, self._steps)) for record in self._records]
        self._budget = budget
        self._epsilon = float(np.finfo(reference.run_info.master_dtype).eps)
        self._proof = reference.run_info.precision == "float64"
        # One optimizer's first gradients are made before any constant of its.
        self._exact_first = self._proof and not rounded_from_the_start(*self._records)
        self._rounding = Rounding.of(*([reference] if self._proof else self._records))
        self._constants = [] if budget is not None else float32_constants(reference, candidate)
        self._law = {name: limit[self._sides[0][1]] for name, limit in float64_curves(reference).items()}
        self._since = -1
        if self._proof and budget is None and not self._followed and not self._constants:
            self._since = grown_since([(self._deviation(name), self._law[name]) for name in CURVES])
        self._infos = [record.run_info for record in self._records if isinstance(record.run_info, ScriptInfo)]
        self._unnamed = any(
            all(record.has(which) and {*record.state(which)} != {"step"} for record in self._records)
            and not named_alike(which, *self._records)
            for which in RECORDED_STATES
        )
        self._stages: list[StageSummary] = []
        self._first: StageSummary | None = None

    def observe(self) -> None:
        before = [*self.lengths(), self.samples(), self.counts()]
        if self._followed:
            judged, steps = followed_stages(*self._records), followed_steps(self._records[1])
            judged.append(followed_final(*self._records, judged))
            judged.append(followed_evaluation(*self._records, judged, steps))
            stages = [_summary(stage) for stage in judged]
            foreign = steps_of_other_samples(*self._records)
            steps = [step for step in steps if step not in foreign]
            layers = layers_stage(*self._records, self.layers_allowed, steps)
            self._stages = [*before, layers, *stages[:2], self.curve("learning_rate"), *stages[2:]]
        else:
            self._stages = [
                *before,
                self._tensors("initial", "initial state", 0.0, BEFORE_FIRST),
                layers_stage(*self._records, self.layers_allowed),
                self.curve("loss_sum"),
                self.gradients(),
                *map(self.curve, ("gradient_norm", "learning_rate", "update_norm", "parameter_norm")),
                self._tensors("final", "final state", self._state_allowed("final"), None),
                self.evaluation(),
            ]
        # A layer's output locates what differs; alone it decides nothing, as what comes of it agrees.
        if not any(stage.status == "differs" for stage in self._stages if stage.name != "layers"):
            self._stages = [
                replace(stage, status="undecided", text=f"{stage.text}; what comes of it does not diverge")
                if (stage.name, stage.status) == ("layers", "differs")
                else stage
                for stage in self._stages
            ]
        off = [stage for stage in self._stages if stage.status == "differs"]
        self._differing = sorted(off, key=lambda stage: math.inf if stage.step is None else stage.step)
        self._first = self._differing[0] if off else None

    def isolate(self) -> Iterator[Finding]:
        # Scripts that did not follow are not given each other's tensors, so only the first stage that differs is a defect.
        for stage in self._differing if self._followed else self._differing[:1]:
            tensor = TensorComparison(stage.name, None, stage.deviation, stage.allowed)
            yield Finding(stage.step, stage.name, stage.name, (), (tensor,), ())

    def explain(self, finding: Finding) -> Sequence[Finding]:
        stage = next(stage for stage in self._differing if stage.name == finding.stage)
        cause, evidence = f"stage:{stage.name.replace(' ', '_')}", f"{stage.name}: {stage.text}"
        return [
            replace(finding, explanation=Explanation(cause, text, "likely", "", evidence))
            for text in self.why(stage)
        ]

    def conclude(self) -> Diagnosis:
        reference, candidate = self._records
        first = self._first
        settings, unread = self._settings
        return Diagnosis(
            "records",
            reference.label,
            candidate.label,
            reference.run_info.name,
            "divergent" if first is not None else "inconclusive" if self._undecided() else "parity",
            None if first is None else When(first.step, f"{first.name}: {first.text}"),
            stages=tuple(self._stages),
            findings=tuple(self.findings),
            settings=(*self.reported_settings(), *settings),
            notes=(*self.notes_of_records(), *unread),
        )

    def _undecided(self) -> bool:
        """Whether something that decides is not decided, as `compare` has it."""
        judged = [stage for stage in self._stages if stage.name != "layers"]
        absent = [
            s for s in judged if s.status == "not recorded" and s.name in ("loss", "gradients", "update")
        ]
        if self._followed:
            return bool(absent) or any(stage.status == "undecided" for stage in judged)
        uninformative = self._budget is not None and self._budget.uninformative
        return uninformative or self._unnamed or any(stage.status == "undecided" for stage in judged)

    def _columns(self, name: str) -> list[Row]:
        """Both records' numbers; of the loss the mean, since a batch of another size has another sum."""
        return [
            (record.loss if name == "loss_sum" else record.columns[name])[rows]
            for record, rows in self._sides
        ]

    def _there(self, name: str) -> NDArray[np.bool_]:
        """(steps,): where both have recorded a column."""
        found: NDArray[np.bool_] = np.logical_and(*(recorded_rows(name, r)[rows] for r, rows in self._sides))
        return found

    def _deviation(self, name: str) -> Row:
        """(steps,): of both records' numbers, 0 where they are not both there."""
        return np.where(self._there(name), curve_deviation(*self._columns(name)), 0.0)

    def _limits(self, name: str) -> tuple[Row, Row]:
        """(steps,) each: within which a column agrees, and beyond which it differs."""
        rows = self._sides[0][1]
        if name == "learning_rate":
            within = np.full(len(self._steps), 2 * self._epsilon)
            return within, rate_rounding(self._records, self._columns(name))
        if self._budget is not None:
            return (self._budget.curves[name][rows],) * 2
        within = self._law[name] if self._proof else np.zeros(len(self._steps))
        if self._proof and not self._constants:
            return within, within if self._since < 0 else np.full(len(within), np.inf)
        return within, np.maximum(
            within, first_steps_limit(name, self._records[0], self._rounding, self._exact_first)[rows]
        )

    def _state_allowed(self, which: str) -> tuple[float, float]:
        """As `_limits`, of a state's tensors."""
        if self._budget is not None:
            return (max(self._budget.states.get(which, {"": 0.0}).values()),) * 2
        within = FLOAT64[which] if self._proof else 0.0
        return within, self._beyond(within)

    def _beyond(self, within: float) -> float:
        """Beyond which what is made of all steps differs."""
        if not self._proof or self._constants:
            return math.inf
        if self._since < 0:
            return within
        return GROWN * within if self._since == len(self._steps) else math.inf

    def layers_allowed(self, step: int) -> float:
        """By how much the fingerprints of a layer's output may differ, relative to its norm."""
        if self._proof:
            return limits.LIVE_FLOAT64
        growth = 1.0 if self._followed else GROWTH ** min(step, 60)
        return self._rounding.gross * growth

    def evaluation(self) -> StageSummary:
        """What was evaluated after the last step, as `compare` judges it."""
        if not evaluated(*self._records):
            return StageSummary(EVALUATION, "not recorded", "not recorded by one of them or both")
        if self._budget is not None:
            within = allowed = self._budget.evaluation
        else:
            within = FLOAT64[EVALUATION] if self._proof else 0.0
            allowed = self._beyond(within)
        check = evaluation_check(*self._records, allowed)
        status: Status = (
            "differs" if not check.passed else "agrees" if check.deviation <= within else "undecided"
        )
        amount = f", deviation {check.deviation:.2g}" if math.isfinite(check.deviation) else " differ"
        return StageSummary(EVALUATION, status, check.where + amount, None, check.deviation, allowed)

    def lengths(self) -> Iterator[StageSummary]:
        """How many steps the scripts took, where both ended and not after as many."""
        taken = [len(record.steps) for record in self._records]
        if len({*taken}) > 1 and all(record.summary is not None for record in self._records):
            text = f"{taken[0]} and {taken[1]} steps were taken"
            yield StageSummary("steps", "differs", text, int(self._steps[-1]) + 1, math.inf)

    def samples(self) -> StageSummary:
        """The ids of each step, as multisets."""
        name = "sample ids"
        if not all(map(has_ids, self._records)):
            return StageSummary(name, "not recorded", "give the recorders ids= to have them compared")
        sides = [(record.received, rows) for record, rows in self._sides]
        known = max(0, min(len(self._steps), *(received.whole - int(rows[0]) for received, rows in sides)))
        words = [received.step_id_hashes[rows[:known]] for received, rows in sides]
        off = np.flatnonzero(words[0] != words[1])
        if not len(off):
            after = len(self._steps) - known
            rest = f"; of the {after} after, hashes are kept" if after else ""
            return StageSummary(name, "agrees", f"the same samples at each of {known} steps{rest}")
        row = int(off[0])
        ours, theirs = (np.concatenate(received.ids(int(rows[row]))) for received, rows in sides)
        return StageSummary(name, "differs", _samples_text(ours, theirs), int(self._steps[row]), math.inf)

    def _begins_again(self, step: int) -> bool:
        """Whether the candidate has from a step on, for as long as is known, the samples of its first steps in their order."""
        received = self._records[1].received
        rows = range(min(step, received.whole - step)) if step else range(0)
        sets = [np.concatenate(received.ids(row)) for row in (*rows, *(step + row for row in rows))]
        halves = sets[: len(rows)], sets[len(rows) :]
        return len(rows) > 1 and all(
            np.array_equal(np.sort(a), np.sort(b)) for a, b in zip(*halves, strict=True)
        )

    def counts(self) -> StageSummary:
        """What the loss was divided by."""
        ours, theirs = self._columns("count")
        off = np.flatnonzero(ours != theirs)
        if not len(off):
            return StageSummary("count", "agrees", f"{ours[0]:g} at the first step")
        row = int(off[0])
        text = f"{ours[row]:g} and {theirs[row]:g} samples"
        inherits = steps_of_other_samples(*self._records).issuperset(self._steps[off].tolist())
        status: Status = "inherits" if inherits else "differs"
        text = f"as the sample ids do; {text}" if inherits else text
        return StageSummary("count", status, text, int(self._steps[row]), math.inf)

    def gradients(self) -> StageSummary:
        """The first step's, tensor by tensor."""
        allowed = self._state_allowed("first_gradients")
        found = self._tensors(
            "first_gradients", "first gradients", (allowed[0],) * 2 if self._exact_first else allowed, 0
        )
        if self._budget is None and not self._proof and found.status != "not recorded":
            judged = _summary(first_gradients_stage(*self._records))
            found = found if judged.status == "agrees" == found.status else judged
            if judged.status == "agrees" and found.deviation:
                found = replace(found, status="undecided")
        factor = self._gradient_factor() if found.status == "differs" else None
        if factor is None:
            return found
        return replace(found, text=f"every tensor is {in_words(factor, self._known_factors(0))}")

    def curve(self, column: str) -> StageSummary:
        """A recorded number, step by step."""
        title = "loss" if column == "loss_sum" else column.replace("_", " ")
        there = self._there(column)
        if not there.any():
            return StageSummary(title, "not recorded", "not recorded by one of them or both")
        ours, theirs = self._columns(column)
        deviation = self._deviation(column)
        within, allowed = self._limits(column)
        off = np.flatnonzero(~(deviation <= allowed))
        seen = f"{int(there.sum())} of {len(there)} steps"
        near = np.flatnonzero(~(deviation <= within))
        if not len(off) and column == "learning_rate" and len(near):
            text = f"one number but for its rounding to float32, {deviation.max():.1e}, at {seen}"
            return StageSummary(title, "agrees", text)
        if not len(off) and len(near):
            first = int(near[0])
            largest = deviation.max()
            text = f"within {largest:.1e} at {seen}, which rounding may have made"
            if largest > _FAR_APART:
                text = f"up to {largest:.1e} apart at {seen}; what rounding makes grows, and whether it is that a followed run says"
            elif self._constants:
                text += f": Keras rounds {', '.join(self._constants)} to float32"
            return StageSummary(title, "undecided", text, int(self._steps[first]), float(deviation[first]))
        if not len(off):
            return StageSummary(title, "agrees", f"within {deviation.max():.1e} at {seen}")
        row = int(off[0])
        text = f"{ours[row]:.9g} and {theirs[row]:.9g}, deviation {deviation[row]:.2g}"
        whole = there & (ours != 0)
        slack = max(limits.FITS_READ_OFF, limits.SCRIPT_CURVE_ULPS * self._epsilon)
        factor = factor_between(ours[whole], theirs[whole], slack)
        if column == "learning_rate" and factor is not None:
            text += f": {in_words(factor)} at every step"
        elif row + 1 < len(ours) and column == "learning_rate":
            slack = 4 * self._epsilon * float(np.nanmax(np.abs(ours)))
            text += pace_in_words(ours, theirs, slack, ("the reference's", "the candidate's"))
        elif row == 0 and ours[0]:
            said = in_words(float(theirs[0] / ours[0]), self._known_factors(0))
            text += f": {said}" if said.endswith(")") else ""
        step = int(self._steps[row])
        return StageSummary(title, "differs", text, step, float(deviation[row]), float(allowed[row]))

    def _tensors(
        self, which: str, name: str, allowed: float | tuple[float, float], step: int | None
    ) -> StageSummary:
        within, allowed = allowed if isinstance(allowed, tuple) else (allowed, allowed)
        if not all(record.has(which) for record in self._records):
            return StageSummary(name, "not recorded", "not recorded by one of them or both")
        if not named_alike(which, *self._records):
            return StageSummary(name, "not recorded", "by other names in each, see the note")
        ours, theirs, rounding_alone = compared_states(which, *self._records)
        if which == "final" and len({len(record.steps) for record in self._records}) > 1:
            return StageSummary(name, "not recorded", "they ended after different steps")
        off = {n: d for n, d in state_deviations(ours, theirs).items() if n != "step"}
        bad = {n: d for n, d in off.items() if not d <= within}
        alone = [n for n in bad if not (n in ours and n in theirs)]
        if not bad:
            text = f"{len(off)} tensors, within {max(off.values()):.1e}"
            if rounding_alone:
                text += (
                    f"; without elements of {len(rounding_alone)} of them, whose first gradients are rounding"
                )
            return StageSummary(name, "agrees", text)
        parts = [f"{n} {bad[n]:.2g}" for n in sorted(bad, key=lambda n: -bad[n]) if n not in alone][:_SHOWN]
        parts += [f"{n} only in one" for n in alone[:_SHOWN]]
        listed = ", ".join(part.removeprefix("tensors/") for part in parts)
        text = f"{len(bad)} of {len(off)} tensors: {listed}"
        worst = max(bad.values())
        status: Status = "undecided" if worst <= allowed and not alone else "differs"
        return StageSummary(name, status, text, step, worst, allowed)

    def _gradient_factor(self) -> float | None:
        ours, theirs = compared_states("first_gradients", *self._records)[:2]
        if ours.keys() != theirs.keys() or any(ours[n].shape != theirs[n].shape for n in ours):
            return None
        both = [np.concatenate([np.ravel(s[n]) for n in ours]).astype(np.float64) for s in (ours, theirs)]
        kept = np.abs(both[0]) > limits.SCRIPT_SMALL * np.abs(both[0]).max(initial=0)
        slack = max(limits.FITS_READ_OFF, limits.SCRIPT_GRADIENT_ULPS * self._epsilon)
        return factor_between(both[0][kept], both[1][kept], slack)

    def _followed_factor(self, stage: StageSummary) -> float | None:
        """By what the loss or all gradients of a followed step are larger; None where there is no such number."""
        if stage.name == "loss":
            factor = self._factors().get(stage.step or 0, math.nan)
            return factor if math.isfinite(factor) else None
        rows = [m for m in self._measures if (m.stage, m.step) == (stage.name, stage.step)]
        return told_factor(rows)

    @cached_property
    def _settings(self) -> tuple[list[str], list[str]]:
        """Those that differ, as `setting_differences` has them."""
        first, second = self._records
        return setting_differences(first.folder, second.folder, first.mapping)

    @cached_property
    def _measures(self) -> list[Measure]:
        """Of a followed run."""
        return read_measures(self._records[1].folder)

    def _factors(self) -> dict[int, float]:
        """By step how many times the reference's the candidate's loss is."""
        ours, theirs = self._columns("loss_sum")
        with np.errstate(divide="ignore", invalid="ignore"):
            return dict(zip(self._steps.tolist(), (theirs / ours).tolist(), strict=True))

    def _by_measures(self, first: StageSummary) -> str:
        """What a stage of a followed run differs by, where the measures say so."""
        measures = self._measures
        here = [each for each in measures if each.step == first.step]
        if first.name == "buffers":
            return self._of_averages(first.step)
        if first.name == "gradients":
            return clips_alone(measures, self._smooth) or of_gradients(here, self._smooth)
        said = in_the_gradients(first, measures, self._records, self._units)
        if first.name == "loss":
            said = said or scaled(self._of_turn(first.step), self._factors())
            return said or (self._of_averages(first.step) if moved_alike(here) else "")
        if said or first.name != "update":
            return said
        if any(each.stage == DECAYED for each in here) and (untold := self._untold_decay(first)):
            return untold
        row, rates = int(np.searchsorted(self._steps, first.step or 0)), self._columns("learning_rate")[0]
        if not all(has_one_optimizer(record.folder) for record in self._records):
            rates = np.full_like(rates, np.nan)  # those of the first one
        return of_update(
            here,
            [float(rates[row - 1]) if row else math.nan, float(rates[row])],
            self._infos[1].framework,
            measures,
            self._units,
        )

    def _untold_decay(self, first: StageSummary) -> str:
        """That the optimizers' decays differ where the gradients do so otherwise, too, which may have the decay in them; '' where it is not so."""
        decays = [line for line in self._settings[0] if " weight_decay is " in line]
        before = [each for each in self._stages if each.name in ("loss", "gradients")]
        off = [each for each in before if each.status in ("differs", "inherits") and each.step is not None]
        if not decays or all((each.step or 0) > (first.step or 0) for each in off):
            return ""
        return (
            f"weight decay: the optimizers' differ ({decays[0]}), and the gradients differ otherwise, too, so that it cannot be told whether the candidate's have"
            " it in them: compare again once they agree"
        )

    @cached_property
    def _smooth(self) -> float:
        """Relative, what rounding explains of gradients and buffers of a followed step."""
        return rounding_of_passes(*self._records).smooth

    @property
    def _units(self) -> float:
        """Of rounding, within which updates agree."""
        return elementwise_units(self._rounding, any(i.framework == "tensorflow" for i in self._infos))[0]

    def _of_averages(self, step: int | None) -> str:
        """How running averages come out otherwise at a step; '' where that is not known."""
        return of_averages(self._measures, step, self._smooth, self._settings[0])

    def _with_equal_outputs(self, first: StageSummary) -> str:
        """That the layers agree where the loss does not; '' where they do not, or were not recorded at that step."""
        layers = next((stage for stage in self._stages if stage.name == "layers"), None)
        tapped = [record.script_taps for record in self._records]
        if (
            layers is None
            or layers.status != "agrees"
            or not all(t and first.step in t.steps for t in tapped)
        ):
            return ""
        return (
            "every layer that was recorded has the same output, so what is made of the outputs is another loss: weights of samples or classes, smoothed"
            " labels, a mask, a term beside (a penalty, a second output), or how it is reduced"
        )

    def _known_factors(self, row: int) -> Iterator[tuple[float, str]]:
        """By what the candidate's is larger where a mean and a sum are taken for each other, and how that is."""
        counts = [float(column[row]) for column in self._columns("count")]
        own = [count / info.world_size for count, info in zip(counts, self._infos, strict=True)]
        samples = dict.fromkeys(own, "a rank's samples") | dict.fromkeys(counts, "samples")
        for count, what in samples.items():
            if count > 1:
                yield count, f"the number of {what}, as of a sum instead of a mean"
                yield 1 / count, f"one over the number of {what}, as of a mean instead of a sum"
        # How often each side counts what it averages.
        sides = [
            ("candidate", self._infos[1], "", (1, -1)),
            ("reference", self._infos[0], "in the reference, ", (-1, 1)),
        ]
        for side, info, where, powers in sides:
            times = {"world size": (info.world_size, "ranks")}
            for name in ("accumulation", "gradient_accumulation_steps"):
                value = info.settings.get(name)
                if isinstance(value, int) and not isinstance(value, bool):
                    times[name] = value, "micro-batches"
            for name, (number, parts) in times.items():
                if number > 1:
                    what = f"the {side}'s {name}, as of {where}gradients"
                    yield number ** powers[0], f"{what} that are added up over {parts} and not averaged"
                    yield number ** powers[1], f"{what} that are averaged over {parts} twice"

    def why(self, first: StageSummary) -> Iterator[str]:
        """What fits the stage that diverges first."""
        if first.name in ("first gradients", "gradient norm"):
            yield from self._clipped()
        if self._followed and (named := self._by_measures(first)):
            yield named
            return
        if self._followed and first.name in ("loss", "gradients") and self._of_changed_weights(first):
            yield _WHY_CHANGED
            return
        if self._followed and first.name == "loss" and (mode := self._of_mode(first)):
            yield mode
            return
        if self._followed and first.name in _FROM_THERE and first.step:
            turn = {each.step for each in self._of_turn(first.step)}
            before = [step for step in followed_steps(self._records[1]) if step < first.step and step in turn]
            # Where another stage differs earlier, nothing new has begun.
            off = [stage.step for stage in self._stages if stage.status in ("differs", "undecided")]
            if (
                before
                and not any(step is not None and step < first.step for step in off)
                and self._begins_there(first, before)
            ):
                yield self._from_there(first, before)
                return
        elif first.name in _CARRIED and first.step not in (-1, 0):
            yield _WHY_LATER.format(before=(first.step or 0) - 1)
            return
        text = _WHY_COUNTED if COUNTED_OTHERWISE in first.text else _WHY[first.name]
        if first.name == "sample ids" and self._begins_again(first.step or 0):
            text = (
                f"from step {first.step} on the candidate has the samples of its steps 0, 1, 2, ... again, and the reference has not: each epoch in the order of the"
                " first (no set_epoch, or a generator that is seeded anew)"
            )
        if self._followed:
            if first.name == "gradients" and any(info.world_size > 1 for info in self._infos):
                text += "; of several ranks also a mean of means over unequal counts"
            if first.name in ("loss", "gradients") and first.step is not None:
                factor, row = self._followed_factor(first), int(np.searchsorted(self._steps, first.step))
                said = "" if factor is None else in_words(factor, self._known_factors(row))
                if said.endswith(")"):
                    text = f"{'the loss' if first.name == 'loss' else 'every gradient'} is {said}"
                elif first.name == "gradients" and mean_agrees(*self._records, first.step):
                    text = _WHY_NOT_REDUCED
                elif first.name == "loss":
                    times = weighed(self._of_turn(first.step), self._factors())
                    here = [each for each in self._measures if each.step == first.step]
                    # Constants that are rounded keep those apart a little that agree.
                    some = of_some_tensors(here, max(self._smooth, self._rounding.in_float32.smooth))
                    text = times or some or self._with_equal_outputs(first) or text
            yield text
            return
        compared = {stage.name for stage in self._stages if stage.status != "not recorded"}
        unlike = [name for name in ("sample ids", "initial state") if name not in compared]
        if unlike and first.name not in ("sample ids", "count", "initial state", "learning rate"):
            text = f"if {' and '.join(unlike)} are equal, which was not compared: {text}"
        yield text

    def _of_turn(self, step: int | None) -> list[Measure]:
        """The measures of the steps at which the same optimizers have their turn as at one: those of the same tensors' gradients."""
        if all(has_one_optimizer(record.folder) for record in self._records):
            return self._measures
        trained: dict[int, set[str]] = {}
        for each in self._measures:
            if each.stage == "gradients" and (each.reference or each.difference):
                trained.setdefault(each.step, set()).add(each.tensor)
        here = trained.get(-1 if step is None else step)
        return [each for each in self._measures if here is None or trained.get(each.step) == here]

    def _begins_there(self, first: StageSummary, before: Sequence[int]) -> bool:
        """Whether a stage is much farther off than at the followed steps before: just below its limit something may be off already."""
        if first.name == "layers":
            return True
        far = self._far(first, (*before, first.step))
        return max(far[step] for step in before) <= _MUCH_NEARER * far[first.step]

    def _far(self, first: StageSummary, steps: Iterable[int | None]) -> dict[int | None, float]:
        """How far loss or gradients are off at some steps, relative."""
        far = dict.fromkeys(steps, 0.0)
        if first.name == "loss":
            deviation = zip(self._steps.tolist(), self._deviation("loss_sum").tolist(), strict=True)
            far |= {step: off for step, off in deviation if step in far}
        for each in self._measures:
            if each.stage == first.name and each.step in far and each.reference:
                far[each.step] = max(far[each.step], each.difference / each.reference)
        return far

    def _of_changed_weights(self, first: StageSummary) -> bool:
        """Whether a stage is off only at steps before which the candidate has changed its weights itself, and it does not do so before each."""
        steps = {*followed_steps(self._records[1])}
        changed = steps & {each.step for each in self._measures if each.stage == CHANGED}
        far = self._far(first, steps)
        off = {step for step, how in far.items() if how > _MUCH_NEARER * far[first.step]}
        return first.step in off <= changed < steps

    def _broken(self, step: int | None) -> list[Violation]:
        """The invariants that were broken at a step, in either record."""
        return [each for record in self._records for each in record.violations if each.step == step]

    def _of_mode(self, first: StageSummary) -> str:
        """That a layer is in another mode at a step; '' where running averages do not say so, or an invariant does."""
        if self._broken(first.step):
            return ""
        return of_modes([each for each in self._measures if each.step == first.step])

    def _from_there(self, first: StageSummary, before: Sequence[int]) -> str:
        """What fits a stage that agrees at the followed steps before its first."""
        assert first.step is not None
        if broken := self._broken(first.step):
            return f"{broken[0].invariant} was broken at this step, the first that differs: {broken[0].text}"
        row = int(np.searchsorted(self._steps, first.step))
        factor = self._followed_factor(first) if first.name == "gradients" else None
        if factor is not None:
            said = in_words(factor, self._known_factors(row))
            return (
                f"every gradient is {said}, and up to step {before[-1]} they agree: a limit that is reached there (clipping, by another norm),"
                " a scale, or what they are divided by"
            )
        counts = self._columns("count")[1]
        ranks = self._infos[1].world_size
        known = [int(np.searchsorted(self._steps, step)) for step in before]
        if ranks > 1 and counts[row] % ranks and not any(counts[each] % ranks for each in known):
            return (
                f"a mean of the ranks' means over unequal counts: the {counts[row]:g} samples of step {first.step} are the first that do not"
                f" divide by {ranks} ranks; add up the sums over the ranks and divide once, or weigh each rank's mean by its count"
            )
        return _WHY_FROM_THERE.format(before=before[-1])

    def _clipped(self) -> Iterator[str]:
        for record, norms in zip(self._records, self._columns("gradient_norm"), strict=True):
            seen = norms[np.isfinite(norms)]
            if len(seen) > 2 and np.allclose(seen, seen[0], rtol=limits.FITS_FACTOR, atol=0):
                yield (
                    f"{record.label}: the norm is {seen[0]:g} at every step, so the gradients were clipped before"
                    " they were recorded: call recorder.gradients() between backward and clipping"
                )

    def reported_settings(self) -> Iterator[str]:
        """What the recorders were told of the scripts, where it differs."""
        facts: list[dict[str, Any]] = [
            {"global_batch_size": info.global_batch_size, "world_size": info.world_size, **info.settings}
            for info in self._infos
        ]
        for name in dict.fromkeys([*facts[0], *facts[1]]):
            ours, theirs = (told.get(name) for told in facts)
            if ours != theirs and None not in (ours, theirs):
                yield f"{name}: {ours} and {theirs}"

    def notes_of_records(self) -> Iterator[str]:
        """What could not be looked at."""
        yield "a recorded script cannot be replayed: this is what the records show, and nothing was tried"
        for record in self._records:
            if record.summary is None:
                yield f"{record.folder}: the script did not finish, {len(record.steps)} steps were recorded"
            yield from record.violation_notes()
        lengths = [len(record.steps) for record in self._records]
        if len(set(lengths)) > 1:
            yield f"{lengths[0]} and {lengths[1]} steps were recorded; the {len(self._steps)} that both have were compared"
        if self._unnamed:
            yield UNNAMED
        if self._followed:
            yield (
                f"{self._records[1].label} followed {self._records[0].label}: it was given weights, slots and gradients at"
                f" {len(followed_steps(self._records[1]))} steps, which changed its training, so each stage stands by itself"
            )
        elif self._budget is None and not self._proof:
            yield (
                "without a followed run (follow=) or a noise floor (--floor), only what rounding cannot have made is a difference"
            )


def _summary(stage: FollowedStage) -> StageSummary:
    return StageSummary(stage.name, stage.status, stage.text, stage.step, stage.deviation, stage.allowed)


def _samples_text(ours: Any, theirs: Any) -> str:
    if len(ours) != len(theirs):
        return f"{len(ours)} and {len(theirs)} samples"
    foreign = np.setdiff1d(theirs, ours)
    if not len(foreign):
        return "the same samples, but not equally often"
    return f"{len(foreign)} of {len(theirs)} samples are not the reference's, such as {foreign[0]}"


def factor_between(ours: NDArray[np.float64], theirs: NDArray[np.float64], allowed: float) -> float | None:
    """k where theirs [n] = k ours [n] up to a relative `allowed`, in each element; None where there is none, or it is 1."""
    if not len(ours) or not (np.isfinite(ours).all() and np.isfinite(theirs).all()) or (ours == 0).any():
        return None
    ratios = theirs / ours
    factor = float(np.median(ratios))
    same = np.abs(ratios - factor) <= allowed * abs(factor)
    return factor if factor and same.all() and abs(factor - 1) > allowed else None


def in_words(factor: float, known: Iterable[tuple[float, str]] = ()) -> str:
    """'1/4 of the reference's'; and why, where it is a factor that is known: '16 times the reference's (the number of samples, ...)'."""
    slack = limits.SCRIPT_FACTOR
    number, why = next(
        ((n, why) for n, why in known if n not in (0, 1) and abs(factor - n) <= slack * abs(n)), (factor, "")
    )
    inverse = 1 / number if number else 0.0
    whole = abs(inverse - round(inverse)) <= slack * abs(inverse) and abs(inverse) > 1.5
    text = f"{f'1/{round(inverse)} of' if whole else f'{number:.9g} times'} the reference's"
    return f"{text} ({why})" if why else text
