"""Signatures of what goes wrong before the model: which samples, in what order, changed how."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from parity.common.base.errors import ParityError
from parity.common.data import sources
from parity.common.data.augment import Draws, augmented
from parity.common.data.plan import BatchPlan
from parity.common.data.samples import Samples
from parity.common.diagnosis import limits
from parity.common.diagnosis.explain.case import Case, once
from parity.common.diagnosis.explain.signatures.base import LOW_TYPES, Match, first, lies_on, ratio_of
from parity.common.parity.deviation import tensor_deviation
from parity.common.record.trace import Array

Rows = Sequence[Array]  # of each replica


def _ids_of(plan: BatchPlan, step: int) -> list[Array]:
    return [plan.local_ids(step, replica) for replica in range(plan.replicas)]


@once
def _due_ids(case: Case) -> list[Array]:
    """The ids that each of the suspect's replicas should have got."""
    plan, data = case.plan, case.spec.data
    if case.step is not None:
        return _ids_of(plan, case.step)
    batch = next(iter(plan.chunks(data.eval_samples, data.train_samples)), np.empty(0, np.int64))
    return [plan.share(batch, replica) for replica in range(plan.replicas)]


def _ids(case: Case) -> list[Array]:
    return case.made.each("ids")


def _equal(due: Rows, made: Rows) -> bool:
    return len(due) == len(made) and all(np.array_equal(a, b) for a, b in zip(due, made, strict=True))


def _as_due(case: Case) -> bool:
    return _equal(_due_ids(case), _ids(case))


def _ids_match(case: Case, tried: str, **facts: str) -> Match:
    due = _due_ids(case)
    right = sum(int(np.isin(b, a).sum()) for a, b in zip(due, _ids(case), strict=False))
    whole = max(1, sum(map(len, due)))
    return Match(facts, max(0.0, 1 - right / whole) or 1.0, 0.0, tried)


def not_reshuffled(case: Case) -> Match | None:
    """The batches of an epoch are those of the first."""
    plan = case.plan
    if case.step is None or _as_due(case):
        return None
    now = plan.epoch(case.step)
    for epoch in range(now):
        step = case.step % plan.steps_per_epoch + epoch * plan.steps_per_epoch
        if _equal(_ids_of(plan, step), _ids(case)):
            tried = f"the ids of every replica are those of step {step}, in epoch {epoch}"
            return _ids_match(case, tried, step=str(step), epoch=str(now))
    return None


def wrong_order(case: Case) -> Match | None:
    """The samples of another plan: other shuffle, other split, another step's batch."""
    if _as_due(case) or case.step is None:
        return None
    for words, plan, step in _other_plans(case.plan, case.step):
        if step >= 0 and _equal(_ids_of(plan, step), _ids(case)):
            return _ids_match(case, f"the ids of every replica are those of {words}", order=words)
    due, made = (np.sort(np.concatenate(each)) for each in (_due_ids(case), _ids(case)))
    if not np.array_equal(due, made):
        return None
    words = "the due batch, dealt to the replicas in another order"
    return _ids_match(case, f"the ids are those of {words}", order=words)


def _other_plans(plan: BatchPlan, step: int) -> Iterator[tuple[str, BatchPlan, int]]:
    other = "strided" if plan.split == "contiguous" else "contiguous"
    yield f"a {other} split", replace(plan, split=other), step  # type: ignore[arg-type]
    yield "an order that is not shuffled", replace(plan, shuffle=False), step
    yield "a shuffled order", replace(plan, shuffle=True), step
    for away in range(1, limits.NEAR_STEPS + 1):
        yield f"the batch {away} later", plan, step + away
        yield f"the batch {away} before", plan, step - away
    yield "another tail", replace(plan, tail="drop" if plan.tail == "keep" else "keep"), step
    for seed in (0, 1, plan.seed + 1, 42):
        yield f"an order shuffled by seed {seed}", replace(plan, seed=seed), step


def replicas_see_the_same(case: Case) -> Match | None:
    """All replicas got the same samples."""
    made, due = _ids(case), _due_ids(case)
    if case.replicas == 1 or _as_due(case) or not len(made[0]):
        return None
    if not all(np.array_equal(ids, made[0]) for ids in made):
        return None
    words = next((f"replica {r}'s share" for r, ids in enumerate(due) if np.array_equal(ids, made[0])), "")
    if np.array_equal(np.sort(np.concatenate(due)), np.sort(made[0])):
        words = "the whole global batch"
    words = words or "one set of samples"
    replicas = str(case.replicas)
    return _ids_match(case, f"all {replicas} replicas have {words}", what=words, replicas=replicas)


def padded(case: Case) -> Match | None:
    """All due samples are there, some of them more than once, so that shares are equal that are not."""
    made, due = np.concatenate(_ids(case)), np.concatenate(_due_ids(case))
    extra = len(made) - len(due)
    if extra <= 0 or len(np.unique(made)) == len(made) or not np.isin(due, made).all():
        return None
    if len(set(map(len, _ids(case)))) > 1 or not len(due) % case.replicas:
        return None
    tried = f"the replicas have {len(made)} samples, {len(due)} are due; all of these are among them"
    return _ids_match(case, tried, extra=str(extra))


def dropped(case: Case) -> Match | None:
    """Some due samples are missing, and there are no others."""
    made, due = np.concatenate(_ids(case)), np.concatenate(_due_ids(case))
    if len(made) >= len(due) or not np.isin(made, due).all() or len(np.unique(made)) != len(made):
        return None
    tried = f"the replicas have {len(made)} of the {len(due)} samples that are due, and no others"
    return _ids_match(case, tried, missing=str(len(due) - len(made)), whole=str(len(due)))


def overlap(case: Case) -> Match | None:
    """Some samples are on more than one replica."""
    each = np.concatenate([np.unique(ids) for ids in _ids(case)])
    double = len(each) - len(np.unique(each))
    if not double or _as_due(case):
        return None
    return _ids_match(case, f"{double} samples are on more than one replica", double=str(double))


# Inputs and targets of the right ids.


@once
def _samples(case: Case) -> Samples | None:
    """The samples that ids of this step belong to; None where they cannot be read any more."""
    try:
        return sources.load_for(case.spec)[case.step is None]
    except (ParityError, OSError):
        return None


def _epoch(case: Case) -> int:
    return 0 if case.step is None else case.plan.epoch(case.step)


@once
def _rows(case: Case, what: str) -> tuple[list[Array], list[Array], float] | None:
    """(due, made, deviation) of the inputs or targets of the ids that each replica has; None: not known."""
    samples = _samples(case)
    if samples is None:
        return None
    which = ("inputs", "targets").index(what)
    due = [samples.rows(ids, _epoch(case))[which] for ids in _ids(case)]
    return due, case.made.each(what), _far(due, case.made.each(what))


def _far(due: Rows, made: Rows) -> float:
    pairs = [(a, b) for a, b in zip(due, made, strict=True) if len(a) or len(b)]
    return max((tensor_deviation(a, b) for a, b in pairs), default=0.0)


def _rows_match(case: Case, what: str, tried: str, **facts: str) -> Match:
    """A match of inputs or targets, with those that were due."""
    rows = _rows(case, what)
    assert rows is not None
    corrects = what == "inputs" or _equal(_ids(case), case.ids)
    corrected = [{what: due} for due in rows[0]] if corrects else []
    return Match(facts, rows[2], 0.0, tried, corrected)


def labels_shifted(case: Case) -> Match | None:
    """The targets are those of another step's batch."""
    rows, samples, here, plan = _rows(case, "targets"), _samples(case), case.step, case.plan
    if rows is None or samples is None or here is None or rows[2] <= case.allowed:
        return None
    steps = {here + away for away in range(-limits.NEAR_STEPS, limits.NEAR_STEPS + 1)}
    steps |= {traced.step for traced in case.steps}
    for step in sorted((s for s in steps if s >= 0 and s != here), key=lambda s: (abs(s - here), s)):
        theirs = [samples.rows(ids, plan.epoch(step))[1] for ids in _ids_of(plan, step)]
        # Other batches may have been longer.
        begun = [own[: len(made)] for own, made in zip(theirs, rows[1], strict=True)]
        if any(map(len, rows[1])) and _equal(begun, rows[1]):
            words = f"{abs(step - here)} step{'s' if abs(step - here) > 1 else ''} "
            words += "before" if step < here else "later"
            tried = f"the targets of every replica are, one by one, those of step {step}"
            return _rows_match(case, "targets", tried, words=words)
    places = _elsewhere(case, samples, here, np.concatenate(rows[1]))
    if not places:
        return None
    words = f"{abs(places)} samples {'before' if places < 0 else 'later'}"
    tried = f"the targets are, one by one, those {words} in the epoch's order"
    return _rows_match(case, "targets", tried, words=words)


def _elsewhere(case: Case, samples: Samples, step: int, wanted: Array) -> int | None:
    """How many samples on in the epoch's order some targets are found; None: nowhere, or in several places."""
    plan, length = case.plan, len(wanted)
    if plan.split != "contiguous" or length < 2:
        return None
    first_step = step - step % plan.steps_per_epoch
    order = np.concatenate([plan.global_ids(first_step + at) for at in range(plan.steps_per_epoch)])
    targets, here = samples.rows(order, plan.epoch(step))[1], (step - first_step) * plan.global_batch_size
    places = [
        at for at in range(len(order) - length + 1) if np.array_equal(targets[at : at + length], wanted)
    ]
    return places[0] - here if len(places) == 1 else None


def labels_permuted(case: Case) -> Match | None:
    """The targets are the due ones, given to other samples of the batch."""
    rows, samples = _rows(case, "targets"), _samples(case)
    if rows is None or samples is None or rows[2] <= case.allowed:
        return None
    due, made, _ = rows
    if any(a.shape != b.shape for a, b in zip(due, made, strict=True)):
        return None
    backwards = np.concatenate(made)[::-1]
    away = None if case.step is None else _elsewhere(case, samples, case.step, backwards)
    if away is not None:
        tried = f"the targets are, backwards, those that begin {away} samples on in the epoch's order"
        words = ", backwards over more than the batch" if away else ", backwards"
        return _rows_match(case, "targets", tried, words=words)
    if all(_same_rows(a, b) for a, b in zip(due, made, strict=True)):
        where = "of its replica"
    elif _same_rows(np.concatenate(due), np.concatenate(made)):
        where = "of the global batch"
    else:
        return None
    words = _permutation(due, made)
    tried = f"the targets are the due ones {where} in another order{words}"
    return _rows_match(case, "targets", tried, words=words)


def _same_rows(a: Array, b: Array) -> bool:
    def ordered(rows: Array) -> Array:
        flat = rows.reshape(len(rows), -1)
        return flat[np.lexsort(flat.T)] if flat.size else flat

    return np.array_equal(ordered(a), ordered(b))


def _permutation(due: Rows, made: Rows) -> str:
    changes: list[tuple[str, Callable[[Array], Array]]] = [
        (", backwards", lambda rows: rows[::-1]),
        (", one sample late", lambda rows: np.roll(rows, 1, axis=0)),
        (", one sample early", lambda rows: np.roll(rows, -1, axis=0)),
    ]
    return next((words for words, change in changes if _equal([change(rows) for rows in due], made)), "")


def augmented_otherwise(case: Case) -> Match | None:
    """The inputs are those of the same samples, augmented with other random numbers, or not at all."""
    rows = _rows(case, "inputs")
    if rows is None or not case.spec.data.augment or rows[2] <= case.allowed:
        return None
    return first(
        _rows_match(case, "inputs", f"the inputs of every replica are those augmented {words}", words=words)
        for words, theirs in _other_augmentations(case)
        if _far(theirs, rows[1]) <= case.allowed
    )


def _other_augmentations(case: Case) -> Iterator[tuple[str, list[Array]]]:
    ids, epoch, spec, samples = _ids(case), _epoch(case), case.spec, _samples(case)
    assert samples is not None
    plain = spec.model_copy(update={"data": spec.data.model_copy(update={"augment": ()})})
    unaugmented = sources.load_for(plain)[0]
    for other in sorted({0, epoch - 1, epoch + 1, case.step or 0} - {epoch, -1}):
        yield f"as in epoch {other}", [samples.rows(own, other)[0] for own in ids]
    yield "as for evaluation", [unaugmented.rows(own, 0)[0] for own in ids]
    for seed in {0, spec.seed + 1, *range(1, case.replicas + 1)} - {spec.seed}:
        reseeded = sources.load_for(spec.model_copy(update={"seed": seed}))[0]
        yield f"with seed {seed}", [reseeded.rows(own, epoch)[0] for own in ids]
    if any(op.kind == "mixup" for op in spec.data.augment):
        return
    for words, keys in (
        ("by the place in the local batch", [np.arange(len(own)) for own in ids]),
        ("by the place in the global batch", np.split(np.arange(sum(map(len, ids))), case.bounds)),
        ("alike for all samples", [np.zeros(len(own), np.int64) for own in ids]),
    ):
        pairs = zip(ids, keys, strict=True)
        yield f"keyed {words}", [_keyed(case, unaugmented, own, key, epoch) for own, key in pairs]


def _keyed(case: Case, unaugmented: Samples, ids: Array, keys: Array, epoch: int) -> Array:
    """Inputs of sample ids, augmented as if their ids were others."""
    spec, rows = case.spec, unaugmented.rows(ids, 0)
    inputs, _ = augmented(spec.data, Draws(spec.seed, 0, keys, epoch), lambda t: t, lambda _: rows)
    result: Array = inputs.astype(spec.input_dtype, copy=False)
    return result


def _what(case: Case) -> str:
    return "targets" if case.finding.name == "targets" else "inputs"


def through_float32(case: Case) -> Match | None:
    """The right inputs, rounded to float32 on their way."""
    what = _what(case)
    rows = _rows(case, what)
    if rows is None or rows[1][0].dtype != np.float64:
        return None
    due, made, far = rows
    if not case.allowed < far < limits.FLOAT32_LARGEST:
        return None
    on_grid = all(lies_on(b, LOW_TYPES["float32"]) for b in made if len(b))
    after = 0.0 if on_grid else _far([a.astype(np.float32).astype(np.float64) for a in due], made)
    after = after if after < limits.UNEXPLAINED * far else far
    grid = ", and lie on the grid of float32" if on_grid else ""
    return Match({"what": what}, far, after, f"the {what} are those of the same samples to {far:.0e}{grid}")


def inputs_differ(case: Case) -> Match | None:
    """The right samples with other numbers; says what can be said of them."""
    what = _what(case)
    rows = _rows(case, what)
    if rows is None:
        return None
    due, made, far = rows
    if far <= (limits.FLOAT32_LARGEST if made[0].dtype == np.float64 else case.allowed):
        return None  # as good as right, or through float32
    words = _how(due, made)
    return Match({"what": what, "words": words}, far, 0.0 if words else far, f"the {what} differ{words}")


def _how(due: Rows, made: Rows) -> str:
    pairs = list(zip(due, made, strict=True))
    if any(a.shape != b.shape for a, b in pairs):
        return f": their shape is {made[0].shape[1:]} instead of {due[0].shape[1:]}"
    ratio = ratio_of(due, made)
    if ratio is not None and all(tensor_deviation(ratio * a, b) < limits.INJECTED_FLOAT64 for a, b in pairs):
        return f": they are {ratio:.9g} times what is due"
    for name, bits in LOW_TYPES.items():
        if all(lies_on(b, bits) and not lies_on(a, bits) for a, b in pairs if len(a)):
            return f": they are rounded to {name}"
    axes = range(1, due[0].ndim) if due[0].ndim > 2 else ()
    for axis in axes:
        if _equal([np.flip(a, axis) for a in due], made):
            return f": axis {axis} runs backwards"
    for one, other in itertools.combinations(axes, 2):
        if _equal([np.swapaxes(a, one, other) for a in due], made):
            return f": axes {one} and {other} are swapped"
    return ""
