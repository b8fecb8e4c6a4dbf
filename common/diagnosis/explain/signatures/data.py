"""Signatures of what goes wrong before the model: which samples, in what order, changed how."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from parity.common.base.errors import ParityError
from parity.common.data import sources
from parity.common.data.augment import augmented
from parity.common.data.plan import BatchPlan
from parity.common.data.samples import Samples
from parity.common.diagnosis import limits
from parity.common.diagnosis.explain.signatures.base import LOW_TYPES, Case, Match, lies_on, once, ratio_of
from parity.common.parity.deviation import tensor_deviation
from parity.common.record.trace import Array


def plan_of(case: Case) -> BatchPlan:
    """The suspect's plan, as it should be."""
    return case.evidence.plan(case.suspect)


def due_ids(case: Case) -> list[Array]:
    """The ids that each of the suspect's replicas should have got."""
    plan = plan_of(case)
    if case.step is None:
        data = case.spec.data
        first = next(iter(plan.chunks(data.eval_samples, data.train_samples)), np.empty(0, np.int64))
        return [plan.share(first, replica) for replica in range(plan.replicas)]
    return [plan.local_ids(case.step, replica) for replica in range(plan.replicas)]


def _as_due(case: Case) -> bool:
    return _equal(due_ids(case), case.made.each("ids"))


def _equal(due: list[Array], made: list[Array]) -> bool:
    return len(due) == len(made) and all(np.array_equal(a, b) for a, b in zip(due, made, strict=True))


def _ids_match(case: Case, tried: str, **facts: str) -> Match:
    due, made = due_ids(case), case.made.each("ids")
    right = sum(int(np.isin(b, a).sum()) for a, b in zip(due, made, strict=False))
    whole = max(1, sum(map(len, due)))
    return Match(facts, max(0.0, 1 - right / whole) or 1.0, 0.0, tried)


def not_reshuffled(case: Case) -> Match | None:
    """The batches of an epoch are those of the first."""
    plan, made = plan_of(case), case.made.each("ids")
    if case.step is None or _as_due(case) or not plan.epoch(case.step):
        return None
    for epoch in range(plan.epoch(case.step)):
        step = case.step % plan.steps_per_epoch + epoch * plan.steps_per_epoch
        if _equal([plan.local_ids(step, r) for r in range(plan.replicas)], made):
            return _ids_match(
                case,
                f"the ids of every replica are those of step {step}, in epoch {epoch}",
                step=str(step),
                epoch=str(plan.epoch(case.step)),
            )
    return None


def wrong_order(case: Case) -> Match | None:
    """The samples of another plan: other shuffle, other split, another step's batch."""
    if _as_due(case) or case.step is None:
        return None
    made = case.made.each("ids")
    for words, plan, step in _other_plans(case):
        if step >= 0 and _equal([plan.local_ids(step, r) for r in range(plan.replicas)], made):
            return _ids_match(case, f"the ids of every replica are those of {words}", order=words)
    due, have = np.concatenate(due_ids(case)), np.concatenate(made)
    if np.array_equal(np.sort(due), np.sort(have)):
        words = "the due batch, dealt to the replicas in another order"
        return _ids_match(case, f"the ids are those of {words}", order=words)
    return None


def _other_plans(case: Case) -> Iterator[tuple[str, BatchPlan, int]]:
    plan, step = plan_of(case), case.step
    assert step is not None
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
    made = case.made.each("ids")
    if case.replicas == 1 or _as_due(case) or not len(made[0]):
        return None
    if not all(np.array_equal(ids, made[0]) for ids in made):
        return None
    due = due_ids(case)
    whole = np.array_equal(np.sort(np.concatenate(due)), np.sort(made[0]))
    share = next((str(r) for r, ids in enumerate(due) if np.array_equal(ids, made[0])), None)
    words = (
        "the whole global batch" if whole else f"replica {share}'s share" if share else "one set of samples"
    )
    return _ids_match(
        case, f"all {case.replicas} replicas have {words}", what=words, replicas=str(case.replicas)
    )


def padded(case: Case) -> Match | None:
    """All due samples are there, some of them more than once."""
    made = np.concatenate(case.made.each("ids"))
    due = np.concatenate(due_ids(case))
    extra = len(made) - len(due)
    sizes = {len(ids) for ids in case.made.each("ids")}
    if extra <= 0 or len(np.unique(made)) == len(made) or not np.isin(due, made).all():
        return None
    if len(sizes) > 1 or not len(due) % case.replicas:
        return None  # padding is there to make shares equal that are not
    strangers = int((~np.isin(made, due)).sum())
    tried = f"the replicas have {len(made)} samples, {len(due)} are due; all of these are among them"
    return _ids_match(case, tried, extra=str(extra), strangers=str(strangers))


def dropped(case: Case) -> Match | None:
    """Some due samples are missing, and there are no others."""
    made, due = np.concatenate(case.made.each("ids")), np.concatenate(due_ids(case))
    if len(made) >= len(due) or not np.isin(made, due).all() or len(np.unique(made)) != len(made):
        return None
    missing = len(due) - len(made)
    tried = f"the replicas have {len(made)} of the {len(due)} samples that are due, and no others"
    return _ids_match(case, tried, missing=str(missing), whole=str(len(due)))


def overlap(case: Case) -> Match | None:
    """Some samples are on more than one replica."""
    made = case.made.each("ids")
    if case.replicas == 1 or _as_due(case):
        return None
    whole = np.concatenate([np.unique(ids) for ids in made])
    double = len(whole) - len(np.unique(whole))
    if not double:
        return None
    return _ids_match(
        case, f"{double} samples are on more than one replica", double=str(double), whole=str(len(whole))
    )


# Inputs and targets of the right ids.


@once
def _samples(case: Case) -> Samples | None:
    """The samples that ids of this step belong to; None where they cannot be read any more."""
    try:
        return sources.load_for(case.spec)[case.step is None]
    except (ParityError, OSError):
        return None


def _epoch(case: Case) -> int:
    return 0 if case.step is None else plan_of(case).epoch(case.step)


def _due_rows(case: Case, which: int) -> list[Array] | None:
    """Inputs (0) or targets (1) that belong to the ids that each replica has."""
    samples = _samples(case)
    if samples is None:
        return None
    return [samples.rows(ids, _epoch(case))[which] for ids in case.made.each("ids")]


def _far(due: list[Array], made: list[Array]) -> float:
    return max(
        (tensor_deviation(a, b) for a, b in zip(due, made, strict=True) if len(a) or len(b)), default=0.0
    )


def labels_shifted(case: Case) -> Match | None:
    """The targets are those of another step's batch."""
    due, made, samples = _due_rows(case, 1), case.made.each("targets"), _samples(case)
    if due is None or samples is None or case.step is None or _far(due, made) <= case.allowed:
        return None
    plan = plan_of(case)
    steps = {case.step + away for away in range(-limits.NEAR_STEPS, limits.NEAR_STEPS + 1) if away}
    steps |= {step for step, _, _ in case.traced()}
    for step in sorted((s for s in steps if s >= 0), key=lambda s: (abs(s - (case.step or 0)), s)):
        ids = [plan.local_ids(step, r) for r in range(plan.replicas)]
        theirs = [samples.rows(i, plan.epoch(step))[1] for i in ids]
        if _begins_like(theirs, made):
            away = step - case.step
            words = f"{abs(away)} step{'s' if abs(away) > 1 else ''} {'before' if away < 0 else 'later'}"
            return Match(
                {"words": words, "step": str(step)},
                _far(due, made),
                0.0,
                f"the targets of every replica are, one by one, those of step {step}",
                _with_targets(case, due),
            )
    places = _elsewhere(case, backwards=False)
    if not places:
        return None
    words = f"{abs(places)} samples {'before' if places < 0 else 'later'}"
    tried = f"the targets are, one by one, those {words} in the epoch's order"
    return Match({"words": words}, _far(due, made), 0.0, tried, _with_targets(case, due))


def _elsewhere(case: Case, backwards: bool) -> int | None:
    """How many samples on in the epoch's order the targets, forwards or backwards, are found; None: nowhere."""
    samples, plan, step = _samples(case), plan_of(case), case.step
    made = np.concatenate(case.made.each("targets"))
    if samples is None or step is None or plan.split != "contiguous" or len(made) < 2:
        return None
    first = step - step % plan.steps_per_epoch
    order = np.concatenate([plan.global_ids(first + at) for at in range(plan.steps_per_epoch)])
    targets = samples.rows(order, plan.epoch(step))[1]
    wanted, here = made[::-1] if backwards else made, step % plan.steps_per_epoch * plan.global_batch_size
    places = [
        at
        for at in range(len(order) - len(wanted) + 1)
        if np.array_equal(targets[at : at + len(wanted)], wanted)
    ]
    return places[0] - here if len(places) == 1 else None


def _begins_like(theirs: list[Array], made: list[Array]) -> bool:
    """Whether all targets are those of other batches, which may have been longer."""
    pairs = [(a[: len(b)], b) for a, b in zip(theirs, made, strict=True)]
    return (
        all(a.shape == b.shape for a, b in pairs)
        and any(len(b) for _, b in pairs)
        and all(np.array_equal(a, b) for a, b in pairs)
    )


def _with_targets(case: Case, due: list[Array]) -> list[dict[str, Array]]:
    if case.suspect == "reference" or not _equal(case.made.each("ids"), list(case.ids)):
        return []
    return [{"targets": value} for value in due]


def labels_permuted(case: Case) -> Match | None:
    """The targets are the due ones, given to other samples of the batch."""
    due, made = _due_rows(case, 1), case.made.each("targets")
    if due is None or _far(due, made) <= case.allowed:
        return None
    if any(a.shape != b.shape for a, b in zip(due, made, strict=True)):
        return None
    away = _elsewhere(case, backwards=True)
    if away is not None:
        tried = f"the targets are, backwards, those that begin {away} samples on in the epoch's order"
        words = ", backwards over more than the batch" if away else ", backwards"
        return Match({"words": words}, _far(due, made), 0.0, tried, _with_targets(case, due))
    where = "of its replica"
    same = all(_same_rows(a, b) for a, b in zip(due, made, strict=True))
    if not same:
        where = "of the global batch"
        same = _same_rows(np.concatenate(due), np.concatenate(made))
    if not same:
        return None
    words = _permutation(due, made)
    tried = f"the targets are the due ones {where} in another order{words}"
    return Match({"words": words, "where": where}, _far(due, made), 0.0, tried, _with_targets(case, due))


def _same_rows(a: Array, b: Array) -> bool:
    def ordered(rows: Array) -> Array:
        flat = rows.reshape(len(rows), -1)
        return flat[np.lexsort(flat.T)] if flat.size else flat

    return np.array_equal(ordered(a), ordered(b))


def _permutation(due: list[Array], made: list[Array]) -> str:
    changes: list[tuple[str, Callable[[Array], Array]]] = [
        (", backwards", lambda rows: rows[::-1]),
        (", one sample late", lambda rows: np.roll(rows, 1, axis=0)),
        (", one sample early", lambda rows: np.roll(rows, -1, axis=0)),
    ]
    for words, change in changes:
        if _equal([change(rows) for rows in due], made):
            return words
    return ""


def augmented_otherwise(case: Case) -> Match | None:
    """The inputs are those of the same samples, augmented with other random numbers, or not at all."""
    due, made = _due_rows(case, 0), case.made.each("inputs")
    if due is None or not case.spec.data.augment or _far(due, made) <= case.allowed:
        return None
    for words, theirs in _other_augmentations(case):
        if _far(theirs, made) <= case.allowed:
            corrected = [{"inputs": rows} for rows in due] if case.suspect == "candidate" else []
            tried = f"the inputs of every replica are those augmented {words}"
            return Match({"words": words}, _far(due, made), 0.0, tried, corrected)
    return None


def _other_augmentations(case: Case) -> Iterator[tuple[str, list[Array]]]:
    ids, epoch, spec = case.made.each("ids"), _epoch(case), case.spec
    samples = _samples(case)
    assert samples is not None
    for other in sorted({0, epoch - 1, epoch + 1, case.step or 0} - {epoch, -1}):
        yield f"as in epoch {other}", [samples.rows(own, other)[0] for own in ids]
    yield "as for evaluation", [_unaugmented(case, own) for own in ids]
    for seed in {0, spec.seed + 1, *range(1, case.replicas + 1)} - {spec.seed}:
        reseeded = sources.load_for(spec.model_copy(update={"seed": seed}))[0]
        yield f"with seed {seed}", [reseeded.rows(own, epoch)[0] for own in ids]
    for words, keys in (
        ("by the place in the local batch", [np.arange(len(own)) for own in ids]),
        ("by the place in the global batch", np.split(np.arange(sum(map(len, ids))), case.bounds)),
        ("alike for all samples", [np.zeros(len(own), np.int64) for own in ids]),
    ):
        keyed = [_keyed(case, own, key, epoch) for own, key in zip(ids, keys, strict=True)]
        yield f"keyed {words}", keyed


def _unaugmented(case: Case, ids: Array) -> Array:
    plain = case.spec.model_copy(update={"data": case.spec.data.model_copy(update={"augment": ()})})
    return sources.load_for(plain)[0].rows(ids, 0)[0]


def _keyed(case: Case, ids: Array, keys: Array, epoch: int) -> Array:
    """Inputs of sample ids, augmented as if their ids were others."""
    plain = case.spec.model_copy(update={"data": case.spec.data.model_copy(update={"augment": ()})})
    rows = sources.load_for(plain)[0]
    data = case.spec.data
    if any(op.kind == "mixup" for op in data.augment):
        return np.full(1, np.nan)
    inputs, _ = augmented(
        data.augment,
        case.spec.seed,
        data.train_samples,
        True,
        lambda t: t,
        lambda _: rows.rows(ids, 0),
        keys,
        epoch,
    )
    result: Array = inputs.astype(case.spec.input_dtype, copy=False)
    return result


def through_float32(case: Case) -> Match | None:
    """The right inputs, rounded to float32 on their way."""
    what = "targets" if case.name == "targets" else "inputs"
    due, made = _due_rows(case, int(what == "targets")), case.made.each(what)
    if due is None or made[0].dtype != np.float64:
        return None
    far = _far(due, made)
    if not case.allowed < far < limits.FLOAT32_LARGEST:
        return None
    narrow = [a.astype(np.float32).astype(np.float64) for a in due]
    on_grid = all(lies_on(b, LOW_TYPES["float32"]) for b in made if len(b))
    after = 0.0 if on_grid else _far(narrow, made)
    after = after if after < limits.UNEXPLAINED * far else far
    tried = f"the {what} are those of the same samples to {far:.0e}" + (
        ", and lie on the grid of float32" if on_grid else ""
    )
    corrected = [{what: rows} for rows in due] if case.suspect == "candidate" else []
    return Match({"what": what}, far, after, tried, corrected)


def inputs_differ(case: Case) -> Match | None:
    """The right samples with other numbers; says what can be said of them."""
    which = 1 if case.name == "targets" else 0
    what = "targets" if which else "inputs"
    due, made = _due_rows(case, which), case.made.each(what)
    if due is None:
        return None
    far = _far(due, made)
    if far <= (limits.FLOAT32_LARGEST if made[0].dtype == np.float64 else case.allowed):
        return None  # as good as right, or through float32
    words = _how(due, made)
    return Match({"what": what, "words": words}, far, 0.0 if words else far, f"the {what} differ{words}")


def _how(due: list[Array], made: list[Array]) -> str:
    if any(a.shape != b.shape for a, b in zip(due, made, strict=True)):
        return f": their shape is {made[0].shape[1:]} instead of {due[0].shape[1:]}"
    ratio = ratio_of(due, made)
    if ratio is not None and all(
        tensor_deviation(ratio * a, b) < limits.INJECTED_FLOAT64 for a, b in zip(due, made, strict=True)
    ):
        return f": they are {ratio:.9g} times what is due"
    for name, bits in LOW_TYPES.items():
        if all(lies_on(b, bits) and not lies_on(a, bits) for a, b in zip(due, made, strict=True) if len(a)):
            return f": they are rounded to {name}"
    if due[0].ndim > 2:
        for axis in range(1, due[0].ndim):
            if _equal([np.flip(a, axis) for a in due], made):
                return f": axis {axis} runs backwards"
        for first in range(1, due[0].ndim):
            for second in range(first + 1, due[0].ndim):
                swapped = [np.swapaxes(a, first, second) for a in due]
                if _equal(swapped, made):
                    return f": axes {first} and {second} are swapped"
    return ""
