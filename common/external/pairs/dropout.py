"""Dropout in two live models: which call of one stands for which of the other, so that both are given the same masks."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as AnyMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.common.base.errors import ExternalModelError
from parity.common.base.words import listed
from parity.common.diagnosis import limits
from parity.common.external.pairs.bench import LoadedPair, taken
from parity.common.external.pairs.objectives import paired_outputs
from parity.common.external.pairs.request import PairRequest
from parity.common.external.process.layouts import CLEAR, aligned
from parity.common.external.process.objective import step_of
from parity.common.external.process.pass_result import Array, Arrays, same
from parity.common.external.process.worker import ExternalWorker
from parity.common.parity.deviation import tensor_deviation
from parity.common.spec.external.mapping import Mapping
from parity.common.spec.external.outline import Outline
from parity.common.spec.layers import Imported, KeyedDropout, Shape

# Two calls are given the same where they are no farther apart than this: constants of Keras may be rounded.
_SAME = 0.01
_LISTED = 4
# In so many orders are calls tried that are given the same.
_ORDERS = 24


@dataclass(frozen=True)
class Masks:
    """How the calls that drop are given masks, by framework; lines: what a person should know of it."""

    keras: tuple[KeyedDropout, ...] = ()
    torch: tuple[KeyedDropout, ...] = ()
    lines: tuple[str, ...] = ()


class KeptStateError(ExternalModelError):
    """A model gives something else when it is called again.

    framework: of which. deviation: of its outputs, largest over largest, from those of the call before.
    """

    def __init__(self, outline: Outline, where: str, deviation: float) -> None:
        super().__init__(
            f"{outline.target}: {where} gives something else when it is called again"
            " with the same samples and random numbers: it keeps something of the call before (a recurrent layer's"
            " state, a count?), so that no training can be compared; begin each call anew, or keep it in a buffer (an"
            " untrained weight in Keras)"
        )
        self.framework, self.deviation = outline.framework, deviation


def settle_randomness(asked: PairRequest, opened: LoadedPair) -> list[str]:
    """Have nothing drawn at random until `give_masks`; the paths of the layers whose rates are set to 0 for good.

    Raises:
        KeptStateError: a model gives something else when it is called again.
        ExternalModelError: something draws random numbers that neither masks of ours nor rates of 0 can replace.
    """
    found: list[str] = []
    for side, outline, inputs in opened.sides:
        if asked.without_dropout:
            found += side.dropout(False)
        else:
            side.key_dropout(None)
        # Of a tap the layer: not which call of it, nor which of the tensors that it gives.
        drawn = [re.split("[#:]", tap)[0] for tap in side.stochastic(inputs)]
        if apart := side.repeated(inputs):
            raise KeptStateError(outline, _named(drawn) if drawn else "the model", apart)
        passes = [side.forward(inputs, training=True, taps=False, seed=seed).outputs for seed in (0, 1)]
        if not drawn and all(same(passes[0][name], passes[1][name]) for name in passes[0]):
            continue
        if drawn and not asked.without_dropout and _is_dropout_alone(side, inputs):
            raise ExternalModelError(
                f"{outline.target}: random numbers in training that no masks of ours can replace, drawn in"
                f" {_named(drawn)}, and the frameworks draw different ones; give"
                " --without-dropout, which sets all rates to 0 on both sides"
            )
        where = _named(drawn) if drawn else "the model, outside of its layers,"
        raise ExternalModelError(
            f"{outline.target}: {where} gives something else each time it is called in training: random numbers"
            " that no rate turns off; take them from an input, or build the model without"
        )
    return found


def _is_dropout_alone(side: ExternalWorker, inputs: Arrays) -> bool:
    """Whether nothing draws random numbers any more once all rates are 0; they stay so."""
    side.dropout(False)
    return not side.stochastic(inputs)


def check_steps(opened: LoadedPair) -> None:
    """Raise ExternalModelError where a training step draws random numbers, of which the models themselves draw none."""
    for (side, outline, inputs), loss in zip(opened.sides, opened.losses, strict=True):
        if step_of(loss.terms):
            first, second = (
                np.array(taken(side, inputs, loss, training=True, taps=False, seed=seed).loss_sum)
                for seed in (0, 1)
            )
            # Sums of several threads are rounded in another order each time.
            if tensor_deviation(first, second) > limits.LIVE_FLOAT64:
                raise ExternalModelError(
                    f"{outline.target}: its training step draws random numbers, and the frameworks draw different ones;"
                    " take them from an array of the samples, or leave them out"
                )


def give_masks(asked: PairRequest, opened: LoadedPair, mapping: Mapping) -> Masks:
    """Pair the calls that drop, and have each pair use the same masks from now on; weights must be equal.

    Args:
        asked, opened: of the pair.
        mapping: says which kernels stand behind a flatten of torch's own layout.

    Raises:
        ExternalModelError: a call has no samples along any axis, so that no mask can belong to one.
    """
    if asked.without_dropout:
        return Masks()
    ours, theirs, batch = _dropped(opened)
    flat = [
        tuple(size for size in info.inputs[0][1:] if size is not None)
        for info in opened.outlines[0].layers
        if info.kind == "flatten" and info.inputs
    ]
    first = any(re.search("conv[23]d", info.kind) for info in opened.outlines[1].layers)
    rules = (re.fullmatch(r"flatten\(([\d,]+)\)", str(pair.rule)) for pair in mapping.tensors)
    moved = [tuple(map(int, rule[1].split(","))) for rule in rules if rule]
    masks, *others = paired(ours, theirs, batch, flat, first, moved)
    use_masks(opened, masks, asked.seed)
    # Calls that are given the same are told apart by what is made of them.
    if others and _apart(opened) > _SAME:
        for other in others:
            use_masks(opened, other, asked.seed)
            if _apart(opened) <= _SAME:
                return other
        use_masks(opened, masks, asked.seed)
    return masks


@contextmanager
def without_masks(opened: LoadedPair, masks: Masks, seed: int) -> Iterator[None]:
    """Have nothing dropped within, where masks are used."""
    drops = bool(masks.keras or masks.torch)
    for side, _, _ in opened.sides if drops else ():
        side.key_dropout(None)
    try:
        yield
    finally:
        if drops:
            use_masks(opened, masks, seed)


def _apart(opened: LoadedPair) -> float:
    """How far the outputs of both models are apart in training; 0.0 where these say nothing."""
    passes = [side.forward(inputs, training=True, taps=False).outputs for side, _, inputs in opened.sides]
    both = [
        (passes[0][name], passes[1][other])
        for name, other in paired_outputs(list(passes[0]), list(passes[1]))
    ]
    alike = [(due, found.array) for due, own in both if (found := aligned(due, own)) is not None]
    return max((tensor_deviation(*each) for each in alike), default=0.0)


def _dropped(opened: LoadedPair) -> tuple[list[dict[str, Any]], list[dict[str, Any]], int]:
    """The calls that drop, of both sides, and how many samples they were given: if it can be, as many as no other axis has."""
    batch = opened.rows
    ours, theirs = (side.dropped(inputs, training=True) for side, _, inputs in opened.sides)
    shapes = [site["value"].shape for site in (*ours, *theirs)]
    if any(shape.count(batch) > 1 for shape in shapes):
        fewer = next(n for n in range(batch - 1, 0, -1) if not any(n in shape for shape in shapes) or n == 1)
        given = [{name: value[:fewer] for name, value in inputs.items()} for inputs in opened.inputs]
        # A model may take so many samples and no others.
        with suppress(ExternalModelError):
            ours, theirs = (
                side.dropped(inputs, training=True)
                for (side, *_), inputs in zip(opened.sides, given, strict=True)
            )
            batch = fewer
    return list(ours), list(theirs), batch


def use_masks(opened: LoadedPair, masks: Masks | Imported, seed: int) -> None:
    """Give both models masks: those of `paired`, or of a spec."""
    keyed = (
        (masks.keras_dropout, masks.torch_dropout)
        if isinstance(masks, Imported)
        else (masks.keras, masks.torch)
    )
    for (side, _, _), plan in zip(opened.sides, keyed, strict=True):
        side.key_dropout(plan, seed)


def paired(
    ours: Sequence[dict[str, Any]],
    theirs: Sequence[dict[str, Any]],
    batch: int,
    flat: Sequence[Shape],
    first: bool = False,
    moved: Sequence[Shape] = (),
) -> Iterator[Masks]:
    """Pair the calls of two models that drop: by what they are given, then in their order by shape and rate.

    Yields the pairing that is likeliest, and then those in which calls that are given the same stand for others of these.

    Args:
        ours, theirs: of Keras's model and of torch's, as `ExternalWorker.dropped` has them.
        batch: how many samples they were given.
        flat: shapes of one sample that Keras flattens; torch may flatten the same in its own layout.
        first: whether torch's model is one of pictures with their channels first.
        moved: of `flat`, those that torch is known to flatten with the channels first.

    Raises:
        ExternalModelError: a call has no samples along any axis.
    """
    keras = [
        KeyedDropout(key=str(number), shape=_sample(site, batch, "Keras")) for number, site in enumerate(ours)
    ]
    layouts = {
        (i, j): layout
        for i, left in enumerate(ours)
        for j, right in enumerate(theirs)
        if (layout := _layout(left["value"], right["value"], batch, (*moved, *flat), first, moved))
        is not None
    }

    def worth(i: int, j: int) -> float:
        left, right = ours[i], theirs[j]
        equal: int = (left["rate"] == right["rate"]) + (bool(left["shared"]) == bool(right["shared"]))
        return 1.0 + 4 * layouts[i, j][0] + equal / 2 + bool(left["active"] == right["active"]) / 4

    agreeing: dict[tuple[int, ...], list[int]] = {}
    for i, left in enumerate(ours):
        same_input = tuple(
            j
            for j, right in enumerate(theirs)
            if layouts.get((i, j), (False,))[0]
            and left["rate"] == right["rate"]
            and all(bool(left[fact]) == bool(right[fact]) for fact in ("shared", "active"))
        )
        agreeing.setdefault(same_input, []).append(i)
    # Branches may be computed in another order: what is given the same numbers is the same call.
    orders = max((len(alike) for alike in agreeing if len(agreeing[alike]) > 1), default=1)
    for order in itertools.islice(itertools.permutations(range(orders)), _ORDERS):
        partner = dict[int, int]()
        for alike, members in agreeing.items():
            places = [place for place in order if place < len(alike)]
            partner |= {
                alike[place]: i
                for place, i in zip(places, members, strict=False)
                if alike[place] not in partner
            }
        partner |= _in_order(
            [i for i in range(len(ours)) if i not in partner.values()],
            [j for j in range(len(theirs)) if j not in partner],
            {both: worth(*both) for both in layouts},
        )
        torch = []
        for j, site in enumerate(theirs):
            if j in partner:
                _, shape, axes = layouts[partner[j], j]
                torch.append(KeyedDropout(key=str(partner[j]), shape=shape, order=axes))
            else:
                torch.append(KeyedDropout(key=f"torch {j}", shape=_sample(site, batch, "torch"), order=()))
        lines = [
            f"dropout of rate {site['rate']:g} in {name}'s {site['owner'] or 'model'} has no counterpart"
            for name, sites, known in (
                ("Keras", ours, set(partner.values())),
                ("torch", theirs, set(partner)),
            )
            for number, site in enumerate(sites)
            if number not in known and site["rate"] and site["active"]
        ]
        yield Masks(tuple(keras), tuple(torch), tuple(lines))


def _in_order(
    ours: Sequence[int], theirs: Sequence[int], worth: AnyMapping[tuple[int, int], float]
) -> dict[int, int]:
    """The pairing, torch's call -> Keras's, that keeps the order of both and is worth most."""
    # best[i][j] of what comes from i and from j on.
    best: list[list[tuple[float, tuple[tuple[int, int], ...]]]] = [
        [(0.0, ())] * (len(theirs) + 1) for _ in range(len(ours) + 1)
    ]
    for i, j in itertools.product(reversed(range(len(ours))), reversed(range(len(theirs)))):
        best[i][j] = max(best[i + 1][j], best[i][j + 1], key=lambda one: one[0])
        both = ours[i], theirs[j]
        more, pairs = best[i + 1][j + 1]
        if both in worth and more + worth[both] > best[i][j][0]:
            best[i][j] = more + worth[both], (both, *pairs)
    return {j: i for i, j in best[0][0][1]}


def _sample(site: dict[str, Any], batch: int, framework: str) -> Shape:
    """The shape of one sample of what a call is given: its first axis may hold several rows of each sample."""
    shape: Shape = site["value"].shape
    if not site["rate"]:
        return shape[1:]  # nothing is drawn
    if not shape or shape[0] % batch:
        raise ExternalModelError(
            f"{framework}'s {site['owner'] or 'model'} drops in a tensor of the shape {shape}, whose first axis is not that"
            f" of the {batch} samples, so that no mask belongs to one; give --without-dropout"
        )
    return (*([shape[0] // batch] if shape[0] != batch else []), *shape[1:])


def _layout(
    keras: Array, torch: Array, batch: int, flat: Sequence[Shape], first: bool, moved: Sequence[Shape]
) -> tuple[bool, Shape, tuple[int, ...]] | None:
    """How torch holds the samples that Keras does: whether the numbers agree, a sample's shape, the order of the axes.

    Where no numbers agree, since what comes before differs, one is taken that is clearly nearer than the plainest that fits, or of
    pictures channels first; else this one: which of many is nearest would be chance.
    None where no order of axes fits the shapes.
    """
    if keras.size != torch.size:
        return None
    found: list[tuple[float, Shape, tuple[int, ...]]] = []
    for shape in _factored(keras, torch, batch, flat):
        whole = keras.reshape(batch, *shape)
        for order in itertools.permutations(range(whole.ndim)):
            turned = whole.transpose(order)
            if not _joins(turned.shape, torch.shape):
                continue
            apart = float(np.square(np.asarray(torch, np.float64) - turned.reshape(torch.shape)).sum())
            found.append((apart if math.isfinite(apart) else math.inf, shape, order))
    if not found:
        return None
    nearest, plainest = min(found, key=lambda one: one[0]), found[0]
    known = (plainest[1],) if first and len(plainest[1]) > 2 else moved
    pictures = [(shape, (0, len(shape), *range(1, len(shape)))) for shape in known]
    plainest = next((each for each in found if each[1:] in pictures), plainest)
    _, shape, order = nearest
    agrees = (
        tensor_deviation(torch, keras.reshape(batch, *shape).transpose(order).reshape(torch.shape)) <= _SAME
    )
    if not agrees and CLEAR * nearest[0] >= plainest[0]:
        _, shape, order = plainest
    return agrees, shape, order


def _factored(keras: Array, torch: Array, batch: int, flat: Sequence[Shape]) -> Iterator[Shape]:
    """Shapes of one sample: as Keras has it, with an axis as it was before it was flattened, or split as torch's are."""
    rest = keras.size // batch
    own = keras.shape[1:] if keras.shape[0] == batch else (keras.shape[0] // batch, *keras.shape[1:])
    if math.prod(own) != rest:
        return
    yield own
    yield from (shape for shape in dict.fromkeys(flat) if math.prod(shape) == rest and shape != own)
    for axis, size in enumerate(own):
        for part in dict.fromkeys(torch.shape):
            if 1 < part < size and size % part == 0:
                yield (*own[:axis], part, size // part, *own[axis + 1 :])


def _joins(shape: Shape, wanted: Shape) -> bool:
    """Whether neighbouring axes of one shape can be joined so that it is the other one."""
    left = list(shape)
    for size in wanted:
        product = 1
        while left and product * int(left[0] or 1) <= size and (product < size or left[0] == 1):
            product *= int(left.pop(0) or 1)
        if product != size:
            return False
    return not left


def _named(names: Sequence[str]) -> str:
    unique = list(dict.fromkeys(names))
    return f"layer{'s' if len(unique) > 1 else ''} {listed(unique, _LISTED)}"
