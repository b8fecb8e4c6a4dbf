"""Two records in, a verdict with its evidence out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from parity.common.base.errors import NotComparableError
from parity.common.execution.checks import known_departure
from parity.common.parity.budget import CURVES, LARGEST_LOW_SHARE, PROOF_LIMITS, STATES, Budget, low_share
from parity.common.parity.comparable import check_comparable
from parity.common.parity.deviation import (
    Curve,
    column_deviation,
    compared_states,
    recorded_rows,
    state_deviations,
    tensor_deviation,
)
from parity.common.parity.followed import (
    FollowedStage,
    Status,
    by_constants,
    check_followed,
    first_gradients_stage,
    followed_final,
    followed_stages,
    followed_steps,
    is_followed,
    rounding_of_passes,
)
from parity.common.parity.rounding import (
    FLOAT64,
    GROWN,
    SCHEDULE_ULPS,
    Rounding,
    float32_constants,
    grown_since,
    rounded_from_the_start,
)
from parity.common.parity.sample_ids import SplitAudit, audit, first_unequal_step, has_ids
from parity.common.record import RunRecord
from parity.common.record.followed import FINAL
from parity.common.spec import ScriptInfo
from parity.common.spec.imported_loss import ImportedLoss
from parity.common.state.canonical import State, tensor_of
from parity.common.state.zero_gradient import CLAIMED_ULPS, zero_gradient_directions

Verdict = Literal["parity", "divergent", "inconclusive"]
EXIT_CODES: dict[Verdict, int] = {"parity": 0, "divergent": 1, "inconclusive": 3}

# What constants that Keras rounds to float32 may make of one evaluation.
_KERAS_CONSTANTS = 2.0**-18
# Of an evaluation and the step before it together, in units of what one step's loss may round.
_SEVERAL_STEPS = 4.0
_TITLES = {"loss_sum": "loss curve", "first_gradients": "first-step gradients", "final": "final state"}

# What a training makes of rounding, by the names of checks.
AMPLIFIED = frozenset(
    ("loss curve", "gradient norm", "parameter norm", "update norm", "final state", "evaluation")
)
_MAY_HAVE_GROWN = "that is as little, and as late, as what a training may make of rounding"

# What a comparison of two recorded scripts cannot judge, and why.

IDS, EVALUATION, INVARIANTS, RATE = "sample ids", "evaluation", "invariants", "learning rate"
RECORDED_STATES = ("initial", "first_gradients", "final")
NOT_RECORDED = "not recorded"
UNNAMED = (
    "the tensors have other names in each; of Keras and torch, say which is which with --mapping mapping.yaml, or"
    " give the recorders mapping="
)
_COLUMNS = {RATE: "learning_rate", **{name: name for name in CURVES}}


# Of an evaluation whose loss agrees, and the number of correct samples does not.
COUNTED_OTHERWISE = ", of one loss: counted otherwise, as by another threshold; they"
# Of so many samples one may be next to the threshold by which it is counted.
_NEXT_TO_THRESHOLD = 1e-4


def evaluated(*records: RunRecord) -> bool:
    """Whether all have recorded an evaluation."""
    return all(record.summary is not None and record.summary.eval_count for record in records)


def left_out(reference: RunRecord, candidate: RunRecord) -> dict[str, str]:
    """What is not judged -> why. Nothing of runs of a spec, which must record it all.

    Keys: of CURVES, of RECORDED_STATES, and the four names above.
    """
    pair = (reference, candidate)
    if all(record.train_spec is not None for record in pair):
        return {}
    found = {INVARIANTS: "parity check reports those of a script"}
    if not all(map(has_ids, pair)):
        found[IDS] = NOT_RECORDED
    for what, column in _COLUMNS.items():
        if not _rows(column, reference, candidate):
            found[what] = NOT_RECORDED
    for which in RECORDED_STATES:
        if not all(record.has(which) for record in pair):
            found[which] = NOT_RECORDED
        elif not named_alike(which, reference, candidate):
            found[which] = UNNAMED
    if not evaluated(*pair):
        found[EVALUATION] = NOT_RECORDED
    return found


def named_alike(which: str, reference: RunRecord, candidate: RunRecord) -> bool:
    """Whether two states can be compared by name: one naming, and a tensor that both have."""
    namings = {r.run_info.naming for r in (reference, candidate) if isinstance(r.run_info, ScriptInfo)}
    ours, theirs = (set(record.state(which)) - {"step"} for record in (reference, candidate))
    return len(namings) == 1 and bool(ours & theirs)


def in_words(details: dict[str, str], reference: RunRecord, candidate: RunRecord) -> str:
    """'not recorded: sample ids, update norm', and at how many steps what is there was recorded."""
    absent = [_titled(what) for what, why in details.items() if why == NOT_RECORDED]
    words = [f"{NOT_RECORDED}: {', '.join(absent)}"] if absent else []
    steps = len(reference.steps)
    few: dict[int, list[str]] = {}
    for what, column in _COLUMNS.items():
        if what not in details:
            few.setdefault(_rows(column, reference, candidate), []).append(_titled(what))
    few.pop(steps, None)
    words += [f"{', '.join(names)} at {count} of {steps} steps" for count, names in few.items()]
    return "; ".join(words)


def _rows(column: str, reference: RunRecord, candidate: RunRecord) -> int:
    """At how many steps both recorded a column."""
    return int(np.count_nonzero(recorded_rows(column, reference) & recorded_rows(column, candidate)))


def _titled(what: str) -> str:
    return {"initial": "initial state", "final": "final state"}.get(what, what.replace("_", " "))


@dataclass(frozen=True)
class Check:
    """One question answered: the deviation found where it is worst against its budget."""

    name: str
    passed: bool
    deviation: float
    budget: float
    where: str

    @property
    def is_unequal(self) -> bool:
        """Whether what must be equal is not: its place says enough."""
        return math.isinf(self.deviation) and not self.budget


_ROUNDING_ALONE = "of elements whose first gradient is rounding in both, as of an attention's key bias"


@dataclass(frozen=True)
class LedgerEntry:
    """A named zero-gradient direction: a tensor left out of the verdict, with the reason."""

    tensor: str
    reason: str
    deviation: float


@dataclass(frozen=True)
class Comparison:
    """All checks of one candidate against the reference.

    unjudged: of recorded scripts, what was not recorded and so not compared, in words. grown_since: the row from which curves are
    outside as rounding of float64 grows, the number of rows where they are nowhere, -1 where one is in another way.
    """

    reference: str
    candidate: str
    verdict: Verdict
    reason: str
    checks: tuple[Check, ...]
    excepted: tuple[LedgerEntry, ...]
    steps: NDArray[np.int64]
    loss_deviation: Curve
    loss_budget: Curve
    budget_source: str
    unjudged: str = ""
    grown_since: int = -1

    def amplifies(self, precision: str) -> bool:
        """Whether only what a training may make of rounding differs, and in float64 by no more than rounding grows."""
        failed = [check for check in self.checks if not check.passed]
        if self.verdict != "divergent" or any(check.name not in AMPLIFIED for check in failed):
            return False
        if precision != "float64":
            return True
        # A state is of the end alone; where curves are outside, it may be, too.
        states = [] if self.grown_since < len(self.steps) else failed
        return self.grown_since >= 0 and all(check.deviation <= GROWN * check.budget for check in states)

    @property
    def first_failure(self) -> Check | None:
        """The first failed check in the order of the data's way: ids, state, gradients, curves."""
        return next((check for check in self.checks if not check.passed), None)


def compare(
    reference: RunRecord,
    candidate: RunRecord,
    budget: Budget | None,
    audits: tuple[SplitAudit, SplitAudit] | None = None,
) -> Comparison:
    """Judge a candidate against a reference.

    Args:
        reference: a complete record.
        candidate: another complete record of the same spec and the same steps.
        budget: from `budget.py`; None where there is no noise floor, which leaves all but float64 undecided. Of
            scripts, equal bits are parity without one, a first step beyond rounding is divergent, and a followed run needs none.
        audits: those of both records, where they have been made.

    Raises:
        NotComparableError: the records must not be compared.
        RecordError: a file of either is missing or damaged.
    """
    check_comparable(reference, candidate)
    _check_data(reference, candidate)
    check_followed(reference, candidate)
    if len(reference.steps) != len(candidate.steps):
        return _of_other_lengths(reference, candidate)
    skip = left_out(reference, candidate)
    checks = []
    if IDS not in skip:
        checks.append(_ids(reference, candidate, audits or (audit(reference), audit(candidate))))
    checks.append(_exact("counts", "count", reference, candidate, count_rounding(reference)))
    if RATE not in skip:
        pair = (reference, candidate)
        equal = rate_rounding(pair, [record.columns["learning_rate"] for record in pair])
        checks.append(_exact(RATE, "learning_rate", *pair, equal))
    if reference.train_spec is not None and reference.train_spec.loss_scale is not None:
        checks.append(_exact("loss scale", "loss_scale", reference, candidate))
    if is_followed(candidate):
        return _compare_followed(reference, candidate, checks, skip)
    if "initial" not in skip:
        start = reference.state("initial"), candidate.state("initial")
        checks.append(_worst_tensor("initial state", *start, None))
    deviations = {name: column_deviation(name, reference, candidate) for name in CURVES}
    deviation = deviations["loss_sum"]
    allowed = np.full(len(deviation), np.nan) if budget is None else budget.curves["loss_sum"]
    excepted: list[LedgerEntry] = []
    before = list(checks)
    if budget is not None:
        ledger = {} if reference.train_spec is None else zero_gradient_directions(reference.train_spec)
        tensors = {}
        for which in (which for which in STATES if which not in skip):
            ours, theirs, rounding_alone = compared_states(which, reference, candidate)
            excepted += [LedgerEntry(name, _ROUNDING_ALONE, far) for name, far in rounding_alone.items()]
            excepted += _take_out(ledger, ours, theirs)
            tensors[which] = _worst_tensor(_TITLES[which], ours, theirs, budget.states[which])
        checks += _stale_entries(ledger, reference, candidate)
        if reference.train_spec is not None and reference.train_spec.low_dtype is not None:
            checks += [_unrounded(record) for record in (reference, candidate)]
        curves = [
            _worst_step(name, reference, deviations[name], allowed)
            for name, allowed in budget.curves.items()
            if name not in skip
        ]
        first, last = ([tensors[which]] if which in tensors else [] for which in STATES)
        checks += [*first, *curves, *last]
        if EVALUATION not in skip:
            checks.append(evaluation_check(reference, candidate, budget.evaluation))
    checks += [_replicas(record) for record in (reference, candidate) if _with_fingerprints(record)]
    if INVARIANTS not in skip:
        checks.append(_invariants(reference, candidate))
    constants = float32_constants(reference, candidate)
    if reference.train_spec is None and (budget is None or (constants and not all(c.passed for c in checks))):
        rounding = Rounding.of(*([reference, candidate] if budget is None else [reference]))
        checks = before + _first_steps(reference, candidate, deviations, skip, rounding)
        verdict, reason = _conclude_unproved(checks, reference, candidate, constants)
    else:
        verdict, reason = _conclude(checks, budget, reference.run_info.precision)
    if verdict == "parity" and UNNAMED in skip.values():
        verdict, reason = "inconclusive", UNNAMED
    if verdict == "divergent":
        parts = [part for part in (*reference.parts, *candidate.parts) if part.train_spec is not None]
        known = [known_departure(part.spec, part.placement, part.run_options) for part in parts]
        reason = "; as is known of it, ".join([reason, *dict.fromkeys(filter(None, known))])
    unjudged = in_words(skip, reference, candidate) if skip else ""
    found = Comparison(
        reference.label,
        candidate.label,
        verdict,
        reason,
        tuple(checks),
        tuple(excepted),
        reference.steps,
        deviation,
        allowed,
        "none" if budget is None else budget.source,
        unjudged,
        -1
        if budget is None
        else grown_since([(deviations[n], c) for n, c in budget.curves.items() if n not in skip]),
    )
    proof = reference.train_spec is None and budget is not None and budget.source == PROOF_LIMITS
    if proof and found.amplifies("float64"):
        return replace(found, verdict="inconclusive", reason=f"{reason}; {_MAY_HAVE_GROWN}")
    return found


def rate_rounding(records: Sequence[RunRecord], columns: Sequence[Curve]) -> Curve:
    """Return (steps,): how far equal learning rates may be apart, relative to the larger one.

    In scripts as a framework's variable of them rounds. Of Keras that is float32, also where it trains float64, and its
    schedules compute in it: what cancels near the end of a cosine is rounded as the highest rate is.

    Args:
        columns: the rates of both records, (steps,) each.
    """
    info = records[0].run_info
    if not isinstance(info, ScriptInfo):
        return np.zeros(len(columns[0]))
    # Where one has none, the other's; where neither has, as at a step of another optimizer's, nothing is apart.
    larger = np.maximum(np.nan_to_num(np.fmax(*np.abs(columns))), np.finfo(np.float64).tiny)
    keras = any(getattr(record.run_info, "framework", "") == "tensorflow" for record in records)
    ulp = float(np.finfo(np.float32 if keras else info.master_dtype).eps)
    highest = min(float(np.nanmax(np.abs(rates), initial=0.0)) for rates in columns) if keras else 0.0
    allowed: Curve = np.maximum(2 * ulp, SCHEDULE_ULPS * ulp * highest / larger)
    return allowed


def first_steps_limit(name: str, reference: RunRecord, rounding: Rounding, exact: bool) -> Curve:
    """Return (steps,): beyond which a script's curve diverges, where there is no noise floor.

    Args:
        rounding: of the pair. Where both are float64, and only constants that are rounded to float32 keep them apart,
            the first step is judged as ever, but for what the optimizer makes.
        exact: whether these constants come after the first loss, see `rounded_from_the_start`.
    """
    if not rounding.proof:
        return rounding.first_steps(name, reference)
    limit = rounding.in_float32.first_steps(name, reference)
    if exact and name in ("loss_sum", "gradient_norm") and len(limit) and reference.steps[0] == 0:
        limit[0] = FLOAT64[name]
    return limit


def _first_steps(
    reference: RunRecord,
    candidate: RunRecord,
    deviations: dict[str, Curve],
    skip: dict[str, str],
    rounding: Rounding,
) -> list[Check]:
    """Whether rounding can have made what the first steps differ by."""
    found: list[Check] = []
    if "first_gradients" not in skip:
        stage = first_gradients_stage(reference, candidate)
        passed = stage.status != "differs"
        found.append(
            Check(_TITLES["first_gradients"], passed, stage.deviation, stage.allowed, f"step 0: {stage.text}")
        )
    exact = rounding.proof and not rounded_from_the_start(reference, candidate)
    for name in (name for name in CURVES if name not in skip):
        limit = first_steps_limit(name, reference, rounding, exact)
        check = _worst_step(name, reference, deviations[name], limit)
        # The first loss comes before its gradients.
        at_once = name == "loss_sum" and not check.passed and not deviations[name][0] <= limit[0]
        found.insert(0 if at_once else len(found), check)
    if EVALUATION not in skip:
        found.append(evaluation_check(reference, candidate, math.inf))
    return found


def _conclude_unproved(
    checks: Sequence[Check], reference: RunRecord, candidate: RunRecord, constants: Sequence[str]
) -> tuple[Verdict, str]:
    first = next((check for check in checks if not check.passed), None)
    if first is not None:
        amount = f"deviation {first.deviation:.2g}, rounding makes at most {first.budget:.2g}"
        return "divergent", f"{first.name} at {first.where}: {amount}"
    if equal_bits(reference, candidate):
        return "parity", "everything recorded is equal, bit for bit"
    if constants:
        return "inconclusive", (
            f"Keras rounds {', '.join(constants)} to float32, which moves every later step: follow one of them with the other"
            " (follow=), or give both numbers that float32 holds"
        )
    return "inconclusive", (
        f"the first steps differ by no more than {reference.run_info.precision} rounds; what comes later needs a followed"
        " run (follow=), or a noise floor: permuted runs with --floor"
    )


def equal_bits(reference: RunRecord, candidate: RunRecord) -> bool:
    """Whether two records of scripts hold the same numbers, bit for bit, but for times.

    Norms are recorded at steps that depend on times; those that both recorded count.
    """
    for name in ("count", "learning_rate", *CURVES):
        both = recorded_rows(name, reference) & recorded_rows(name, candidate)
        column, other = (record.columns[name][both] for record in (reference, candidate))
        if not np.array_equal(column, other, equal_nan=True):
            return False
    for which in RECORDED_STATES:
        if not (reference.has(which) and candidate.has(which)):
            continue
        ours, theirs = reference.state(which), candidate.state(which)
        if ours.keys() != theirs.keys() or not all(
            a.dtype == theirs[n].dtype and np.array_equal(a, theirs[n], equal_nan=True)
            for n, a in ours.items()
        ):
            return False
    ends = [
        (s.eval_loss_sum, s.eval_count, s.eval_correct) for s in (reference.summary, candidate.summary) if s
    ]
    return EVALUATION in left_out(reference, candidate) or len(set(ends)) == 1


def _of_other_lengths(reference: RunRecord, candidate: RunRecord) -> Comparison:
    """Two scripts of which one ended earlier are divergent, whatever the steps that both have show."""
    rows = min(len(reference.steps), len(candidate.steps))
    cut = [
        replace(record, columns={name: column[:rows] for name, column in record.columns.items()})
        for record in (reference, candidate)
    ]
    check = _equal("steps", "", f"{len(reference.steps)} and {len(candidate.steps)} steps")
    return Comparison(
        reference.label,
        candidate.label,
        *_conclude([check], None, ""),
        (check,),
        (),
        reference.steps[:rows],
        column_deviation("loss_sum", *cut),
        np.full(rows, np.nan),
        "none",
        "all but their number: parity diagnose compares the steps that both have",
    )


def _compare_followed(
    reference: RunRecord, candidate: RunRecord, checks: list[Check], skip: dict[str, str]
) -> Comparison:
    """Judge a run that followed the reference, by what it made of each followed step."""
    stages, steps = followed_stages(reference, candidate), followed_steps(candidate)
    stages.append(followed_final(reference, candidate, stages))
    stages.append(followed_evaluation(reference, candidate, stages, steps))
    for stage in stages:
        if stage.status != "not recorded":
            throughout = "the end" if stage.name in (EVALUATION, FINAL) else "every followed step"
            where = f"{throughout if stage.step is None else f'step {stage.step}'}: {stage.text}"
            passed = stage.status in ("agrees", "undecided")
            checks.append(Check(stage.name, passed, stage.deviation, stage.allowed, where))
    failed = [check for check in checks if not check.passed]
    unknown = [stage for stage in stages if stage.status == "undecided"]
    absent = [
        s.name for s in stages if s.status == "not recorded" and s.name not in ("buffers", FINAL, EVALUATION)
    ]
    verdict: Verdict = "divergent" if failed else "inconclusive" if unknown or absent else "parity"
    if failed:
        # What is made from something that differs comes after what differs by itself.
        later = {stage.name for stage in stages if stage.status == "inherits"}
        own = [check for check in failed if check.name not in later] or failed
        reason = "; ".join(
            f"{c.name} at {c.where}" + ("" if ":" in c.where else f", deviation {c.deviation:.2g}")
            for c in own
        )
    elif unknown or absent:
        parts = [
            f"{s.name} at step {s.step}: {s.text}: more than rounding explains, unless it flips a unit near zero (a ReLU, a maximum)"
            for s in unknown
        ]
        parts += [f"{', '.join(absent)} not recorded at any followed step"] if absent else []
        reason = "; ".join(parts)
    else:
        reason = "each followed step by itself is what rounding makes of it"
        passes = rounding_of_passes(reference, candidate)
        reason += f"; {by_constants(passes)}" if passes.constants else ""
    final, evaluation = stages[-2:]
    rest = ", the steps between and the final state"
    if final.status != "not recorded":
        rest = " and the steps between"
    elif evaluation.status != "not recorded":
        rest = ", the steps between, and of the final state all but its evaluation"
    words = [
        f"followed: judged at {len(steps)} of {len(reference.steps)} steps, each from the reference's state; the weights it began"
        f" with{rest} are not judged"
    ]
    words += [f"{NOT_RECORDED}: {IDS}"] if IDS in skip else []
    nothing = np.full(len(reference.steps), np.nan)
    deviation = column_deviation("loss_sum", reference, candidate)
    return Comparison(
        reference.label,
        candidate.label,
        verdict,
        reason,
        tuple(checks),
        (),
        reference.steps,
        deviation,
        nothing,
        f"rounding of one {reference.run_info.precision} step",
        "; ".join(words),
    )


def _check_data(reference: RunRecord, candidate: RunRecord) -> None:
    """Runs on other data are other runs, whatever their specs say."""
    first, *others = (*reference.parts, *candidate.parts)
    for other in others:
        ours, theirs = first.header.data_hash, other.header.data_hash
        if ours != theirs:
            raise NotComparableError(
                f"{first.folder} and {other.folder} were trained on different data:"
                f" their data_hash is {ours} and {theirs}"
            )


def _conclude(checks: Sequence[Check], budget: Budget | None, precision: str) -> tuple[Verdict, str]:
    first = next((check for check in checks if not check.passed), None)
    if first is not None:
        if first.is_unequal:
            return "divergent", f"{first.name} not equal at {first.where}"
        amount = f"deviation {first.deviation:.2g}, allowed {first.budget:.2g}"
        return "divergent", f"{first.name} at {first.where}: {amount}"
    if budget is None:
        return "inconclusive", f"{precision} runs need a noise floor; give the permuted runs with --floor"
    if budget.uninformative:
        return "inconclusive", (
            f"after {budget.informative_steps} steps rounding alone moves the loss too far to tell a defect from noise;"
            " use float64"
        )
    steps, sharp = len(budget.curves["loss_sum"]), budget.informative_steps
    informative = "" if sharp == steps else f" (sharp for the first {sharp} of {steps} steps)"
    return "parity", f"every check within {budget.source}{informative}"


def _equal(name: str, where: str, unequal: str | None = None) -> Check:
    """What must be equal, where; `unequal` says where it is not."""
    deviation = 0.0 if unequal is None else math.inf
    return Check(name, unequal is None, deviation, 0.0, where if unequal is None else unequal)


def _ids(reference: RunRecord, candidate: RunRecord, audits: tuple[SplitAudit, SplitAudit]) -> Check:
    """Against the plan and against each other; scripts, which have no plan, against each other."""
    problems = (f"{found.label}, {found.problems[0]}" for found in audits if found.problems)
    unequal = next(problems, None) or first_unequal_step(reference, candidate)
    partly = [found.extent for found in audits if found.audited_steps < found.steps]
    where = "every step"
    if partly and reference.train_spec is not None:
        where = f"every step of both alike, as hashes say; against the plan, {' and '.join(dict.fromkeys(partly))}"
    return _equal(IDS, where, unequal)


def count_rounding(record: RunRecord) -> float:
    """How far equal counts may be apart.

    Samples and tokens are whole numbers and add up exactly; weights and shares round, a few times a sum.
    """
    spec = record.train_spec
    weighted = spec is not None and (
        getattr(spec.loss, "class_weights", None) is not None or isinstance(spec.loss, ImportedLoss)
    )
    return 1e3 * float(np.finfo(record.run_info.master_dtype).eps) if weighted else 0.0


def _exact(
    name: str, column: str, reference: RunRecord, candidate: RunRecord, allowed: Curve | float = 0.0
) -> Check:
    deviation = column_deviation(column, reference, candidate)
    limit = np.broadcast_to(allowed, len(deviation))
    off = ~(deviation <= limit)
    # Where it fails, the first step outside tells more than the worst one.
    row = int(np.argmax(off if off.any() else deviation))
    where = f"step {reference.steps[row]}"
    return Check(name, not off.any(), float(deviation[row]), float(limit[row]), where)


def _worst_step(name: str, reference: RunRecord, deviation: Curve, allowed: Curve) -> Check:
    over = np.flatnonzero(~(deviation <= allowed))
    row = int(over[0]) if len(over) else int(np.argmax(_shares(deviation, allowed)))
    where = f"step {reference.steps[row]}"
    return Check(
        _TITLES.get(name, name.replace("_", " ")),
        not len(over),
        float(deviation[row]),
        float(allowed[row]),
        where,
    )


def _shares(deviation: Curve, allowed: Curve) -> Curve:
    """Deviations in parts of what is allowed; 0 where anything is."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isinf(allowed), 0.0, deviation / allowed)


def _worst_tensor(name: str, ours: State, theirs: State, allowed: dict[str, float] | None) -> Check:
    """The tensor that comes closest to its budget; without a budget, equality bit for bit."""
    deviations = state_deviations(ours, theirs)
    if not deviations:
        return _equal(name, "", "no tensors at all")
    limits = {tensor: 0.0 if allowed is None else allowed.get(tensor, 0.0) for tensor in deviations}
    worst = max(deviations, key=lambda tensor: _excess(deviations[tensor], limits[tensor]))
    passed = deviations[worst] <= limits[worst]
    return Check(name, passed, deviations[worst], limits[worst], worst)


def _excess(deviation: float, limit: float) -> float:
    if deviation == 0:
        return 0.0
    return deviation / limit if limit else float("inf")


def _unrounded(record: RunRecord) -> Check:
    """Whether the weights' gradients were summed and reduced in float32."""
    share, tensor = low_share(record)
    where = f"{tensor} of {record.label}, share of elements that are rounded"
    return Check("gradients in float32", share <= LARGEST_LOW_SHARE, share, LARGEST_LOW_SHARE, where)


def _replicas(record: RunRecord) -> Check:
    """Whether all replicas held the same parameters, bit for bit, after every step."""
    unequal = unequal_replicas(record)
    if unequal:
        step, replica = min(unequal)
        where = f"step {step}: replica {replica} of {record.label} is not replica 0"
        return _equal("replicas equal", "", where)
    parts = _with_fingerprints(record)
    seen = [f"{len(part.steps)} steps of {len(part.fingerprints)} replicas" for part in parts]
    return _equal("replicas equal", ", ".join(seen))


def _with_fingerprints(record: RunRecord) -> list[RunRecord]:
    """The parts that several replicas wrote fingerprints of their parameters in."""
    return [part for part in record.parts if len(part.fingerprints) > 1 and len(part.steps)]


def unequal_replicas(record: RunRecord) -> list[tuple[int, int]]:
    """(step, replica) of each whose parameters were not those of replica 0: the first step after which."""
    unequal: dict[int, int] = {}
    for part in _with_fingerprints(record):
        first, *others = part.fingerprints
        for replica, own in enumerate(others, start=1):
            if own != first and replica not in unequal:
                steps = zip(part.steps.tolist(), first, own, strict=True)
                unequal[replica] = next(step for step, a, b in steps if a != b)
    return [(step, replica) for replica, step in unequal.items()]


def _invariants(*records: RunRecord) -> Check:
    """Whether each run by itself did what any run must: two can share a mistake."""
    for record in records:
        if record.violations:
            first, *more = record.violations
            others = f" ({len(more)} more)" if more else ""
            where = f"step {first.step} of {record.label}: {first.invariant}: {first.text}{others}"
            return _equal(INVARIANTS, "", where)
    return _equal(INVARIANTS, "every step of both")


def followed_evaluation(
    reference: RunRecord, candidate: RunRecord, stages: Sequence[FollowedStage], steps: Sequence[int]
) -> FollowedStage:
    """Judge what a followed run evaluated at its end, where its last step began with the reference's state: one step's rounding is all that
    its weights differ by.

    Args:
        stages: of its steps. steps: those that were followed.
    """
    rounding, summary = Rounding.of(reference, candidate), reference.summary
    if summary is None or summary.eval_loss_sum is None or not evaluated(reference, candidate):
        return FollowedStage(EVALUATION, "not recorded", "not recorded by one of them or both")
    last = int(reference.steps[-1])
    if int(candidate.steps[-1]) != last or last not in steps:
        return FollowedStage(EVALUATION, "not recorded", "behind a step that was followed")
    mean = np.array([summary.eval_loss_sum / summary.eval_count])
    norms = (reference.columns[name][-1:] for name in ("gradient_norm", "parameter_norm"))
    # In float64, what Keras takes through float32 is no defect.
    within = float(rounding.loss(mean, *norms)[0][0] / max(abs(mean[0]), np.finfo(float).tiny))
    allowed = max(_SEVERAL_STEPS * within, _KERAS_CONSTANTS * rounding.proof)
    check = evaluation_check(reference, candidate, allowed)
    correct = [record.summary.eval_correct for record in (reference, candidate) if record.summary is not None]
    # One step's rounding turns what is next to its threshold. A script that has none may not have counted them.
    apart = abs(correct[1] - correct[0]) if all(correct) else 0
    if check.passed and apart > 1 + _NEXT_TO_THRESHOLD * summary.eval_count:
        check = _equal(EVALUATION, "", f"{correct[0]} and {correct[1]} correct{COUNTED_OTHERWISE}")
    status: Status = "agrees" if check.passed else "differs"
    amount = f", deviation {check.deviation:.2g}" if math.isfinite(check.deviation) else " differ"
    text = f"{check.where}{amount}"
    # Its last update was by the reference's gradients.
    others = (stage for stage in stages if stage.name != "gradients")
    before = next((stage.name for stage in others if stage.status in ("differs", "inherits")), "")
    if status == "differs" and before:
        verb = "do" if before == "buffers" else "does"
        status, text = "inherits", f"as the {before} {verb}; {text}"
    return FollowedStage(EVALUATION, status, text, None, 0, check.deviation, allowed)


def evaluation_check(reference: RunRecord, candidate: RunRecord, allowed: float) -> Check:
    """Whether both evaluated as many samples, to losses within a relative `allowed`."""
    ours, theirs = reference.summary, candidate.summary
    assert ours is not None
    assert theirs is not None
    if tensor_deviation(*(np.array(s.eval_count) for s in (ours, theirs))) > count_rounding(reference):
        return _equal(EVALUATION, "", f"{ours.eval_count:g} and {theirs.eval_count:g} samples evaluated")
    if not ours.eval_count:
        samples = 0 if reference.train_spec is None else reference.train_spec.data.eval_samples
        return Check("evaluation", not samples, 0.0, 0.0, f"none of {samples} samples evaluated")
    counted = reference.train_spec is not None or (ours.eval_correct and theirs.eval_correct)
    sums = [np.array(s.eval_loss_sum if s.eval_loss_sum is not None else np.nan) for s in (ours, theirs)]
    deviation = tensor_deviation(*sums)
    if reference.run_info.precision == "float64" and counted and ours.eval_correct != theirs.eval_correct:
        otherwise = COUNTED_OTHERWISE if deviation <= allowed < math.inf else ""
        return _equal(EVALUATION, "", f"{ours.eval_correct} and {theirs.eval_correct} correct{otherwise}")
    where = f"loss over {ours.eval_count:g} samples"
    return Check(EVALUATION, deviation <= allowed, deviation, allowed, where)


def _stale_entries(ledger: dict[str, str], *records: RunRecord) -> list[Check]:
    """A ledger entry must be what it claims: a gradient of nothing but rounding noise.

    Else the ledger would hide a real difference. Noise stays below `CLAIMED_ULPS` units in the last place of
    the largest gradient: a sum over a batch and its tokens rounds a few thousand times at most.
    """
    if not ledger:
        return []
    checks = []
    buffers = {name for name in records[0].state("final") if name.startswith("buffers/")}
    states = [(record, record.state("first_gradients")) for record in records]
    sizes = [(record, {name: _largest(value) for name, value in state.items()}) for record, state in states]
    for tensor, reason in ledger.items():
        for record, largest_of in sizes if f"buffers/{tensor}" not in buffers else ():
            largest = max(filter(math.isfinite, largest_of.values()), default=0.0)
            here = largest_of.get(f"parameters/{tensor}", math.inf)
            share = here / largest if largest else here
            limit = CLAIMED_ULPS * float(np.finfo(record.run_info.master_dtype).eps)
            where = f"{tensor} of {record.label} ({reason})"
            checks.append(Check("zero-gradient direction", share <= limit, share, limit, where))
    return [max(checks, key=lambda check: check.deviation)] if checks else []


def _largest(tensor: NDArray[np.generic]) -> float:
    """Of the absolute values; infinite where one is not finite."""
    values = np.asarray(tensor, np.float64)
    return float(np.abs(values).max(initial=0.0)) if np.isfinite(values).all() else math.inf


def _take_out(ledger: dict[str, str], ours: State, theirs: State) -> list[LedgerEntry]:
    """Remove the ledger's tensors from both states and say how far apart they were."""
    entries = []
    for tensor in [name for name in ours if tensor_of(name) in ledger]:
        deviation = tensor_deviation(ours[tensor], theirs.get(tensor, np.array(np.nan)))
        if not np.isfinite(deviation):
            continue  # missing, of another shape or not finite: that is no rounding
        del ours[tensor], theirs[tensor]
        entries.append(LedgerEntry(tensor, ledger[tensor_of(tensor)], deviation))
    return entries
