"""How much two runs may differ, and why that much.

float64 is proof: the limits below are fixed. All else is judged against a noise floor, measured by
running the same spec with each global batch summed in another order (an ensemble): what rounding
alone does to this model at this step. One such run is not enough: the floor of a single pair can be
hundreds of times too low where a net has kinks. A floor belongs to one precision, that of its runs.

In the first gradients of float32 a kink may lie between two frameworks that no permuted run of either meets: each sums a
sample's terms in its own order, whatever the order of the samples. One unit in a million is that near to zero, and a net
of convolutions has as many (seen in digits_cnn on a processor without AVX-512). So each placement's first step is made in
float64, too. As far as a run is from its own, rounding has taken it: two runs that are the same in float64 differ by no
more than the sum of both. What is wrong in float64, too, is in both and allows nothing.

In the mixed precisions an ensemble needs one thing more. Two honest runs agree to float32 rounding until
a number that lies between two low ones is rounded up in one and down in the other; from then on they
part as far as a unit in the last place of the low type takes them. Frameworks sum in different orders
within a sample, too, so that they meet this at some step (seen in digits_mlp at step 21); permuted runs of
one framework sum each sample alike, and may never meet it. So the parameters of each member begin a
little off, keyed by the member's number: by 2^-13 of the spacing of low numbers, far too little to be
seen in the low type but for the few numbers in thousands that it tips over. The floor is then what
such a flip does to this model, from the first step on.

In float64, which has a floor where a training amplifies rounding, the parameters of each member are off by a unit in the last place:
each framework sums a sample's terms by its own code, and where these cancel, as in a gradient through a normalization of two
numbers, permuted runs of one of them all round alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from parity.common.base.errors import NotComparableError, RecordError
from parity.common.execution.session import MINIMUM_MEMBERS
from parity.common.parity.deviation import (
    Curve,
    column_deviation,
    curve_deviation,
    recorded_rows,
    skipped,
    state_deviations,
)
from parity.common.parity.rounding import FLOAT64, Rounding, float64_curves, float64_loss
from parity.common.record import RunRecord

PROOF_LIMITS = "float64 proof limits"
CURVES = ("loss_sum", "gradient_norm", "parameter_norm", "update_norm")
STATES = ("first_gradients", "final")

# All else: budget = this multiple of the ensemble's floor. In 36 of 36 studied runs an honest pair
# stayed within 1.7 times the floor of four members; a changed default is orders of magnitude above.
FLOOR_MULTIPLE = 8.0
# A run that is so many times farther from itself in float64 than another is not so by rounding.
FARTHER = 8.0
# Of a first gradient's largest element: more than this, in which float64 differs, is counted as a defect of float32. One unit of
# N is a share of about 1 / sqrt(N), and that one of fewer than 10,000 is so near to zero happens in one run of thousands.
LARGEST_FLIP = 0.01
# A budget above this cannot tell a defect from noise any more. Where rounding has grown that
# far, a run is judged on the steps before; fewer than MINIMUM_INFORMATIVE_STEPS of them are too few.
UNINFORMATIVE_ABOVE = 0.1
MINIMUM_INFORMATIVE_STEPS = 20


@dataclass(frozen=True)
class Budget:
    """Allowed deviation of each curve by step, and of each tensor."""

    source: str
    curves: dict[str, Curve]
    states: dict[str, dict[str, float]]
    evaluation: float

    @property
    def informative_steps(self) -> int:
        """Steps before the loss may differ so much that agreement says nothing."""
        uninformative = np.flatnonzero(self.curves["loss_sum"] > UNINFORMATIVE_ABOVE)
        return int(uninformative[0]) if len(uninformative) else len(self.curves["loss_sum"])

    @property
    def uninformative(self) -> bool:
        """Whether too few steps are informative for a verdict."""
        steps = len(self.curves["loss_sum"])
        return self.informative_steps < min(MINIMUM_INFORMATIVE_STEPS, steps)


def proof_budget(record: RunRecord) -> Budget:
    """The fixed float64 limits, spread over the record's steps and tensors."""
    summary = record.summary
    evaluated = _evaluation(record) / max(1.0, summary.eval_count if summary else 0.0)
    return Budget(
        source=PROOF_LIMITS,
        curves=float64_curves(record),
        states={
            which: dict.fromkeys(record.state(which), FLOAT64[which]) for which in STATES if record.has(which)
        },
        evaluation=float(float64_loss(record, "evaluation", evaluated).item()),
    )


def ensemble_budget(base: RunRecord, members: Sequence[RunRecord]) -> Budget:
    """A multiple of what permuted runs of the same placement deviate from `base`.

    Curves: the running maximum over steps and members, at least one unit in the last place.
    States: per tensor, the maximum over members, at least the median tensor's: a tensor that all
    members happened to agree on is not thereby exact.

    Args:
        base: not permuted.
        members: permuted, and maybe its first step in float64.

    Raises:
        NotComparableError: too few members, or members of another spec or placement.
    """
    exact, members = _apart(base, members)
    if len(members) < MINIMUM_MEMBERS:
        raise NotComparableError(f"a noise floor needs {MINIMUM_MEMBERS} runs, received {len(members)}")
    for member in members:
        if member.header.spec_hash != base.header.spec_hash or member.setup != base.setup:
            raise NotComparableError(f"{member.folder}: not an ensemble run of {base.folder}")
        if not np.array_equal(member.steps, base.steps):
            raise NotComparableError(f"{member.folder}: its steps are not those of {base.folder}")
        if member.placement.sample_order_seed is None:
            raise NotComparableError(f"{member.folder}: not permuted, so it shows no rounding")
        if member.run_options.recording != "full":
            made = member.run_options.recording
            raise NotComparableError(f"{member.folder}: made with recording {made}, so it has no norms")
        if member.summary is None:
            raise NotComparableError(f"{member.folder}: the run did not finish")
        if not np.array_equal(skipped(member), skipped(base)):
            raise NotComparableError(
                f"{member.folder}: skipped other steps than {base.folder}, so that rounding decides what overflows;"
                " take a smaller loss_scale.initial or a longer growth_interval"
            )
        if not _finite(member):
            raise NotComparableError(f"{member.folder}: not finite everywhere, so it measures no rounding")
        _check_beginning(base, member)
    curves, ulp = {}, float(np.finfo(base.run_info.master_dtype).eps)
    for name in CURVES:
        deviations = [column_deviation(name, base, member) for member in members]
        floor = np.maximum.accumulate(np.max(deviations, axis=0))
        curves[name] = FLOOR_MULTIPLE * np.maximum(floor, ulp)
    states = {}
    for which in (which for which in STATES if all(run.has(which) for run in (base, *members))):
        reference = base.state(which)
        per_member = [state_deviations(reference, member.state(which)) for member in members]
        worst = {name: max(d[name] for d in per_member) for name in reference if name != "step"}
        least = max(ulp, float(np.median(list(worst.values()))))
        states[which] = {name: FLOOR_MULTIPLE * max(value, least) for name, value in worst.items()}
        states[which]["step"] = 0.0
    evaluations = [curve_deviation(_evaluation(base), _evaluation(member)).item() for member in members]
    # Four numbers may agree by chance; the loss curve's floor at the last step cannot be lower.
    evaluation = max(FLOOR_MULTIPLE * max(evaluations), float(curves["loss_sum"][-1]))
    source = f"{FLOOR_MULTIPLE:g} x {base.run_info.precision} noise floor of {len(members)} {base.label}"
    budget = Budget(source, curves, states, evaluation)
    return _with_rounding(budget, [_rounded(base, exact)]) if exact else budget


def _check_beginning(base: RunRecord, member: RunRecord) -> None:
    """Raise NotComparableError where a script's permuted run is off at its first step by more than rounding makes: it is of another version of it."""
    rounding = Rounding.of(base, member)
    if base.train_spec is not None or rounding.proof:
        return
    for name in CURVES:
        far, most = column_deviation(name, base, member)[0], rounding.first_steps(name, base)[0]
        if far > most:
            raise NotComparableError(
                f"{member.folder}: its {name.replace('_', ' ')} at the first step is off by {far:.2g} from that of {base.folder}, and another order of"
                f" its samples makes {most:.1g} at most; give permuted runs of that script as it is, without what draws random numbers (dropout)"
            )


def _apart(base: RunRecord, members: Sequence[RunRecord]) -> tuple[list[RunRecord], list[RunRecord]]:
    """Of the runs that say what rounding does, those in float64 of a run that is not; and the permuted ones."""
    coarse = base.run_info.precision != "float64"
    exact = [member for member in members if coarse and member.run_info.precision == "float64"]
    return exact, [member for member in members if member not in exact]


@dataclass(frozen=True)
class _Rounded:
    """How far rounding has taken one run: its deviation from itself in float64. curves and evaluation: where it was trained so as a whole.

    smooth: how far it may take a step, by the sizes of the model.
    """

    states: dict[str, dict[str, float]]
    curves: dict[str, Curve]
    evaluation: float
    smooth: float


def _rounded(base: RunRecord, exact: Sequence[RunRecord]) -> _Rounded:
    """What rounding did to a run, by itself in float64: its first step, or as a whole.

    Raises:
        NotComparableError: one of `exact` is not this run in float64.
    """
    states: dict[str, dict[str, float]] = {}
    curves: dict[str, Curve] = {}
    evaluation = 0.0
    for run in exact:
        same = base.train_spec is not None and base.spec.in_float64()
        if run.train_spec != same or run.setup != base.setup:
            raise NotComparableError(f"{run.folder}: not {base.folder} in float64")
        whole = np.array_equal(run.steps, base.steps)
        for which in STATES if whole else ("first_gradients",):
            if run.has(which) and base.has(which):
                states[which] = state_deviations(run.state(which), base.state(which))
        if whole:
            curves = {name: np.maximum.accumulate(column_deviation(name, run, base)) for name in CURVES}
            evaluation = curve_deviation(_evaluation(run), _evaluation(base)).item()
    capped = {name: min(value, LARGEST_FLIP / 2) for name, value in states.get("first_gradients", {}).items()}
    return _Rounded(states | {"first_gradients": capped}, curves, evaluation, Rounding.of(base).smooth)


def _with_rounding(budget: Budget, runs: Sequence[_Rounded]) -> Budget:
    """With what rounding has done to two runs allowed between them; of more, to the two that it took farthest."""
    widened = replace(budget, states=budget.states | _states("first_gradients", budget, runs))
    whole = [run for run in runs if run.curves]
    # Not by its updates: Adam's first one makes a step of what is only rounding.
    if len(whole) < 2 or any(
        _begins_otherwise(name, budget, whole) for name in ("loss_sum", "gradient_norm")
    ):
        return widened
    curves = {
        name: np.maximum(allowed, _both([run.curves[name] for run in whole]))
        for name, allowed in budget.curves.items()
    }
    evaluation = max(budget.evaluation, float(_both([run.evaluation for run in whole])))
    states = widened.states | _states("final", budget, whole)
    source = f"{budget.source}, and what rounding did to each run, by the same run in float64"
    return Budget(source, curves, states, evaluation)


def _begins_otherwise(name: str, budget: Budget, runs: Sequence[_Rounded]) -> bool:
    """Whether float32 is farther from float64 at a run's first step than at another's, and than rounding.

    Permuted runs all sum a sample's terms alike: a norm of one framework may round farther than they show.
    """
    first = [float(run.curves[name][0]) for run in runs]
    rounding = max(float(budget.curves[name][0]), *(run.smooth for run in runs))
    return max(first) > max(FARTHER * min(first), rounding)


def _states(which: str, budget: Budget, runs: Sequence[_Rounded]) -> dict[str, dict[str, float]]:
    """What is allowed of a state's tensors, by the state's name."""
    seen = [run.states[which] for run in runs if which in run.states]
    if not seen or which not in budget.states:
        return {}
    return {
        which: {
            name: value
            if name == "step"
            else max(value, float(_both([each.get(name, 0.0) for each in seen])))
            for name, value in budget.states[which].items()
        }
    }


def _both(values: Sequence[float | Curve]) -> Curve:
    """The sum of the two largest; of one alone twice that.

    A deviation d is relative to the larger of a run and itself in float64, which is 1 / (1 - d) of the run at most.
    """
    largest = np.sort(np.array(values), axis=0)[-2:]
    of_the_run = largest / np.maximum(1 - largest, np.finfo(np.float64).eps)
    found: Curve = of_the_run.sum(axis=0) * (2 / len(largest))
    return found


def _finite(record: RunRecord) -> bool:
    """Whether every number that a floor is made of is finite; an infinite floor would allow anything.

    Of a step that was skipped, nothing is.
    """
    assert record.summary is not None
    evaluated = record.summary.eval_loss_sum is not None or not record.summary.eval_count
    arrays: list[NDArray[np.generic]] = [
        record.columns[name][~skipped(record) & recorded_rows(name, record)] for name in CURVES
    ]
    there = [which for which in STATES if record.has(which)]
    arrays += [value for which in there for value in record.state(which).values()]
    return evaluated and all(bool(np.isfinite(np.asarray(array, np.float64)).all()) for array in arrays)


def _evaluation(record: RunRecord) -> Curve:
    """The evaluation loss as a curve of one point; 0 where nothing was evaluated."""
    summary = record.summary
    return np.array([(summary.eval_loss_sum if summary else None) or 0.0])


def widest(budgets: Sequence[Budget]) -> Budget:
    """The larger of several budgets, point by point: rounding of either framework is no defect."""
    first = budgets[0]
    return Budget(
        source=" or ".join(budget.source for budget in budgets),
        curves={name: np.max([b.curves[name] for b in budgets], axis=0) for name in CURVES},
        states={
            which: {
                name: max(b.states.get(which, {}).get(name, 0.0) for b in budgets)
                for name in first.states[which]
            }
            for which in first.states
        },
        evaluation=max(b.evaluation for b in budgets),
    )


# Significant bits of float16, which has all the numbers of bfloat16's eight.
LOW_BITS = 11
# Of a tensor with fewer elements, all may be low by chance.
FEWEST_ELEMENTS = 16
# Of unrounded sums about one in a hundred looks low; sums of few products somewhat more often.
LARGEST_LOW_SHARE = 0.5


def low_share(record: RunRecord) -> tuple[float, str]:
    """(share, tensor) of low elements in the first update's gradient that has the fewest; 0 without any.

    Says whether gradients that should be float32 have passed through a low type as a whole. Such a reduction
    hides in the noise of a mixed precision, whose products round as coarsely. But it leaves its grain: every
    element of every gradient, times the count that it was divided by, is a number of the low type. Of sums kept
    in float32 hardly any is.

    Embeddings are left to the other tensors: a row that one token uses takes over that token's gradient,
    which a product has rounded.
    """
    rows = np.flatnonzero(~skipped(record))
    penalized = record.spec.loss.l1 or record.spec.loss.l2
    shares = {}
    if len(rows) and not penalized:
        count = record.columns["count"][rows[0]]
        for name, gradient in record.state("first_gradients").items():
            sums = np.asarray(gradient, np.float64).ravel() * count
            fractions, _ = np.frexp(sums[sums != 0])
            if len(fractions) >= FEWEST_ELEMENTS:
                scaled = np.ldexp(fractions, LOW_BITS)
                # The gradient has been divided and rounded since, to 24 bits.
                shares[name] = float((np.abs(scaled - np.round(scaled)) < 2.0**-8).mean())
    if not shares:
        return 0.0, "no gradient large enough"
    least = min(shares, key=lambda name: shares[name])
    return shares[least], least


def budget_of(records: Sequence[RunRecord], floors: Sequence[RunRecord]) -> Budget | None:
    """Return the deviation that records like the first may have; None below float64 without permuted runs.

    In float64 these are the proof limits, or, where permuted runs are given, what rounding does to this training if
    that is more: a training may amplify it.

    Raises:
        RecordError: none of the records is the unpermuted run of a permuted one's placement.
    """
    return Allowance.of(records, floors).between(records)


@dataclass(frozen=True)
class Allowance:
    """What any two of some records may differ by, and in float32 what rounding was seen to do to each, by its label."""

    budget: Budget | None
    rounded: dict[str, _Rounded]

    @classmethod
    def of(cls, records: Sequence[RunRecord], floors: Sequence[RunRecord]) -> Allowance:
        """Arguments as of `budget_of`.

        Raises:
            RecordError: likewise.
        """
        budgets = [proof_budget(records[0])] if records[0].run_info.precision == "float64" else []
        rounded: dict[str, _Rounded] = {}
        for label in dict.fromkeys(member.setup for member in floors):
            members = [member for member in floors if member.setup == label]
            base = next((record for record in records if _is_base(record, label)), None)
            if base is None:
                raise RecordError(f"{members[0].folder}: no compared record is a run of {label}, unpermuted")
            exact, permuted = _apart(base, members)
            if exact:
                rounded[base.label] = _rounded(base, exact)
            if permuted:
                budgets.append(ensemble_budget(base, permuted))
        return cls(widest(budgets) if budgets else None, rounded)

    def between(self, records: Sequence[RunRecord]) -> Budget | None:
        """What some of the records may differ by; None where that is not known."""
        seen = [self.rounded[label] for label in {record.label for record in records} & self.rounded.keys()]
        return _with_rounding(self.budget, seen) if self.budget is not None and seen else self.budget


def _is_base(record: RunRecord, label: str) -> bool:
    """Whether a floor of these runs is this record's; one that went on elsewhere has none."""
    if record.train_spec is not None:
        return record.label == label
    return record.setup == label and record.placement.sample_order_seed is None
