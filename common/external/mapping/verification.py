"""A proposed mapping put to the test: random weights on both sides, and layer by layer whether they agree.

What a layer could also be is tried in all layers at once; see `trial`.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Mapping as Names

import numpy as np

from parity.common.external.mapping.at_once import AtOnce, orders_of
from parity.common.external.mapping.components import deviation, moments, taps_of
from parity.common.external.mapping.correspondence import by_numbers, layer_pairs
from parity.common.external.mapping.graphs import assign
from parity.common.external.mapping.trial import AGREES, WRONG, Bench, Inputs, Trial, constant_of
from parity.common.external.process.pass_result import Array
from parity.common.external.process.worker import ExternalWorker
from parity.common.spec.external.mapping import ALSO_FITS, Mapping, Pair

# How many times closer the right one of several has to be.
_CLEARLY = 30.0
_ROUNDS = 8
# Two components that are exchanged alone are siblings, which are tried before.
_PAIR = 2
_TRIALS = 300
# So many twos of components that deviate are exchanged.
_WRONG_TWOS = 40


def refine(
    mapping: Mapping,
    keras_side: ExternalWorker,
    torch_side: ExternalWorker,
    inputs: Inputs,
    torch_inputs: Inputs | None = None,
    *,
    keep: bool = False,
) -> Mapping:
    """Resolve what is doubtful by experiment; both models keep their weights.

    Args:
        mapping: as proposed; pairs whose source is 'hand' are tried and never changed.
        keras_side, torch_side: in float64.
        inputs: of the Keras model, with the batch; a few samples are enough.
        torch_inputs: of the torch model, the same samples; default: `inputs`.
        keep: whether all pairs and layers are a person's, as those of a file that was edited.

    Returns:
        The mapping. Pairs that were doubtful and are confirmed have the source 'probed' and no doubt; a pair whose
        layer does not agree has a doubt with the deviation; `layers` are those whose outputs are the same numbers.
    """
    with Bench(mapping, keras_side, torch_side, inputs, torch_inputs) as bench:
        search = _Search(bench, keep)
        search.refine()
        return search.result()


def outputs_apart(
    mapping: Mapping,
    keras_side: ExternalWorker,
    torch_side: ExternalWorker,
    inputs: Inputs,
    torch_inputs: Inputs,
) -> float:
    """How far the outputs of both models are apart by a mapping as it is; arguments as of `refine`."""
    with Bench(mapping, keras_side, torch_side, inputs, torch_inputs) as bench:
        return bench.try_out(mapping.tensors, inject=False).outputs


class _Search:
    """The best pairs that are known, and what each of them was seen to do.

    last: the deviations with them. hidden: that of components without a tap: of what comes after them. shown: pairs that were seen to matter.
    in_other_order: components whose units torch has in another order, so that their own tap says nothing.
    """

    def __init__(self, bench: Bench, keep: bool) -> None:
        self.bench, self.keep = bench, keep
        self.given = bench.mapping.tensors
        self.pairs = list(self.given)
        self.parts = bench.parts
        self.last = Trial({}, float("inf"))
        self.hidden = float("inf")
        self.shown: set[int] = set()
        self.in_other_order: set[int] = set()
        # Whether any order of siblings has put a component right; trials of orders, and the pairs that they are of.
        self._nearer = False
        self._tried: tuple[list[Pair], dict[object, Trial]] = [], {}

    @property
    def is_over(self) -> bool:
        """Whether enough was tried."""
        return self.bench.trials > _TRIALS

    def is_fixed(self, place: int) -> bool:
        """Whether a person has said what a component is."""
        return self.keep or any(self.pairs[index].source == "hand" for index in self.parts[place].pairs)

    def refine(self) -> None:
        """Find the pairs with which everything agrees."""
        self.bench.find_functions(self.pairs)
        whole = self.bench.try_out(self.pairs, inject=False)
        self.last, self.hidden = whole, whole.outputs
        if not self._is_good(whole):
            alone, before = self.bench.try_out(self.pairs), list(self.pairs)
            if _worst(alone) > WRONG:
                self._search(_total(alone))
                AtOnce(self).run()
            self._unflatten()
            if self.pairs != before:
                whole = self.bench.try_out(self.pairs, inject=False)
                alone = self.bench.try_out(self.pairs)
            deviations = whole.deviations if self._is_good(whole) else alone.deviations
            deviations = deviations | dict.fromkeys(self.in_other_order, 0.0)
            self.last = Trial(deviations, whole.outputs)
            self.hidden = min(whole.outputs, _worst(alone))
        self._show()

    def _search(self, total: float) -> None:
        best = list(self.pairs), total
        self._exchange()
        for _ in range(_ROUNDS):
            before = list(self.pairs)
            self._vary()
            self._order_siblings()
            total = _total(self.bench.try_out(self.pairs))
            if _is_better(total, best[1]):
                best = list(self.pairs), total
            if self.pairs == before or best[1] <= AGREES or self.is_over:
                break
        self.pairs = best[0]
        self._exchange_branches()
        self._exchange_wrong()
        self._take_back()
        self._follow_siblings()

    def _exchange_branches(self) -> None:
        """Exchange whole branches where more agrees so: of the best pairs, and, where single layers of branches were exchanged, of those that were given."""
        found, branches = self.bench.try_out(self.pairs, inject=False), self._branches()
        given = [] if self.pairs == list(self.given) else [list(self.given)]
        for pairs in (self.pairs, *given) if branches else ():
            trial, before = self.bench.try_out(pairs, inject=False), None
            while pairs != before and trial.outputs > AGREES and not self.is_over:
                before = pairs
                for partner in branches:
                    others = self.repaired(pairs, partner)
                    now = self.bench.try_out(others, inject=False)
                    # What is only a little nearer says nothing.
                    if now.outputs <= WRONG or _agreeing(trial) < _agreeing(now):
                        pairs, trial = others, now
            if found.outputs > WRONG and (trial.outputs <= WRONG or _agreeing(found) < _agreeing(trial)):
                self.pairs, found = pairs, trial

    def _exchange_wrong(self) -> None:
        """Exchange two of one signature that both deviate where more agrees so, those first of which nothing of one shape was seen.

        Each is fed what Keras's is, and two that are exchanged are each called elsewhere: this shows behind what truly differs, too.
        """
        trial = self.bench.try_out(self.pairs)
        twos: list[tuple[int, int]] = []
        for members in self.exchangeable():
            wrong = [place for place in members if trial.deviations.get(place, math.inf) > WRONG]
            wrong.sort(key=lambda place: place in trial.deviations)
            twos += itertools.combinations(wrong, 2)
        for one, other in twos[:_WRONG_TWOS]:
            if self.is_over:
                return
            pairs = self.repaired(self.pairs, {one: other, other: one})
            now = self.bench.try_out(pairs)
            if _agreeing(trial) < _agreeing(now):
                self.pairs, trial = pairs, now

    def _branches(self) -> list[dict[int, int]]:
        """Exchanges of whole branches: of all components whose names differ by one word for another ('l0_click_gate', 'l0_like_gate'),
        on either side; everywhere, and behind each beginning of a name.

        Branches that are alike agree layer by layer with one another's tensors, and their outputs do not.
        """
        found: dict[object, dict[int, int]] = {}
        names = [(part.keras, part.torch) for part in self.parts]
        words = [[re.split(r"[^A-Za-z0-9]+", name) for name in both] for both in names]
        for members in self.exchangeable():
            for (one, other), side in itertools.product(itertools.combinations(members, 2), (0, 1)):
                ours, theirs = words[one][side], words[other][side]
                places = [
                    place for place, two in enumerate(zip(ours, theirs, strict=False)) if two[0] != two[1]
                ]
                if len(ours) == len(theirs) and len(places) == 1:
                    key = frozenset((ours[places[0]], theirs[places[0]]))
                    for where in (key, (key, *ours[: places[0]])):
                        found.setdefault(where, {}).update({one: other, other: one})
        distinct = {frozenset(partner.items()): partner for partner in found.values()}
        return [partner for partner in distinct.values() if len(partner) > _PAIR]

    def _unflatten(self) -> None:
        """Try the units of what is made a picture in the order in which torch's has them: kernels, biases, norms at once."""
        before = Trial({}, math.inf) if self.keep else self.bench.try_out(self.pairs, inject=False)
        for picture in self.bench.variants.pictures if math.isfinite(before.outputs) else ():
            pairs = [self.bench.variants.unflattened(pair, picture) for pair in self.pairs]
            if before.outputs <= WRONG or pairs == self.pairs:
                continue
            now = self.bench.try_out(pairs, inject=False)
            nearer = now.outputs < before.outputs / _CLEARLY or now.outputs <= WRONG
            # Behind what agrees so the models may differ in something else.
            was, agree = ({n for n, far in one.deviations.items() if far <= AGREES} for one in (before, now))
            changed = self._changed(pairs, self.pairs)
            if nearer or (agree - was and was - agree <= changed):
                self.pairs, before = pairs, now
                self.in_other_order |= changed - agree
                self.shown |= {index for place in changed - agree for index in self.parts[place].pairs}

    def _changed(self, pairs: Sequence[Pair], before: Sequence[Pair]) -> set[int]:
        """The components of which a pair is another one."""
        return {
            place
            for place, part in enumerate(self.parts)
            if any(pairs[index] != before[index] for index in part.pairs)
        }

    def _take_back(self) -> None:
        """Give components back what they were proposed with where another partner has made nothing agree.

        Where models truly differ, nothing agrees, and what is a little nearer says nothing.
        """
        trial = self.bench.try_out(self.pairs)
        proposed = {
            name: place
            for place, part in enumerate(self.parts)
            for index in part.pairs
            for name in self.given[index].torch
        }
        left = self._changed(self.pairs, self.given)
        while left:
            together, open_ = set(), [left.pop()]
            while open_:
                place = open_.pop()
                together.add(place)
                names = (name for index in self.parts[place].pairs for name in self.pairs[index].torch)
                more = {proposed[name] for name in names} & left
                left -= more
                open_ += more
            pairs = list(self.pairs)
            for index in (index for place in together for index in self.parts[place].pairs):
                pairs[index] = self.given[index]
            # It may have made something agree that comes after it. And layers that are given the same agree by themselves with the
            # tensors of each of them.
            if not self._spoils(pairs, trial):
                self.pairs = pairs

    def _follow_siblings(self) -> None:
        """Give a component that deviates the rules of its signature's components that agree, where these all have the same.

        Behind what truly differs, no rule makes one of them agree.
        """
        trial = self.bench.try_out(self.pairs)
        rules: dict[object, set[tuple[str, ...]]] = {}
        for place, part in enumerate(self.parts):
            if trial.deviations.get(place, math.inf) <= AGREES:
                rules.setdefault(part.signature, set()).add(self._rules_of(place))
        for place, part in enumerate(self.parts):
            agreed = rules.get(part.signature, set())
            if trial.deviations.get(place, 0.0) > WRONG and len(agreed) == 1 and not self.is_fixed(place):
                for index, rule in zip(part.pairs, *agreed, strict=True):
                    pair = self.pairs[index]
                    if pair.rule != rule:
                        left = [said for said in (pair.doubt or "").split("; ") if ALSO_FITS not in said]
                        given = {"rule": rule, "doubt": "; ".join(left) or None}
                        self.pairs[index] = pair.model_copy(update=given)

    def _rules_of(self, place: int) -> tuple[str, ...]:
        return tuple(self.pairs[index].rule for index in self.parts[place].pairs)

    def _spoils(
        self, pairs: Sequence[Pair], trial: Trial, but: Collection[int] = (), inject: bool = True
    ) -> bool:
        """Whether with pairs something deviates that agrees in a trial, but for some components."""
        other = self.bench.try_out(pairs, inject=inject)
        found = [
            (value, other.deviations.get(place, 0.0))
            for place, value in trial.deviations.items()
            if place not in but
        ]
        return any(value <= WRONG < now for value, now in [*found, (trial.outputs, other.outputs)])

    def _is_good(self, trial: Trial) -> bool:
        """Whether all agrees: the outputs, which every tensor takes part in, or all that can be watched."""
        watched = len(trial.deviations) == len(self.parts)
        return trial.outputs <= AGREES or (watched and max(trial.deviations.values(), default=0.0) <= AGREES)

    def _exchange(self) -> None:
        """Give components that could be exchanged the same values, and pair those that then compute the same."""
        for number in range(_ROUNDS):
            # What is fed to a wrong partner leads astray; what a true difference leaves behind does too.
            expected, found = self.bench.run(self.pairs, inject=number > 0, shared=True)
            sums = {
                place: (moments(expected.activations[one[0]]), moments(found.activations[other[0]]))
                for place, one, other in self.bench.taps(self.pairs, expected, found)
                if one and other
            }
            changed = False
            for members in self.exchangeable():
                partner = _nearest([place for place in members if place in sums], sums)
                if any(own != other for own, other in partner.items()):
                    self.pairs = self.repaired(self.pairs, partner)
                    changed = True
            if number and not changed:
                return

    def exchangeable(self) -> list[list[int]]:
        groups: dict[object, list[int]] = {}
        for place, component in enumerate(self.parts):
            if component.observed and not self.is_fixed(place):
                groups.setdefault(component.signature, []).append(place)
        return [members for members in groups.values() if len(members) > 1]

    def repaired(self, pairs: Sequence[Pair], partner: Names[int, int]) -> list[Pair]:
        """Components with the torch tensors of others of their signature."""
        found = list(pairs)
        for own, other in partner.items():
            for here, there in zip(self.parts[own].pairs, self.parts[other].pairs, strict=True):
                given = {"torch": pairs[there].torch, "rule": pairs[there].rule}
                found[here] = pairs[here].model_copy(update=given)
        return found

    def _with(self, place: int, pairs: Sequence[Pair], changed: Sequence[Pair]) -> list[Pair]:
        """Pairs with those of one component replaced."""
        found = list(pairs)
        for index, pair in zip(self.parts[place].pairs, changed, strict=True):
            found[index] = pair
        return found

    def _variants(self, place: int) -> Iterator[list[Pair]]:
        return self.bench.variants.of([self.pairs[index] for index in self.parts[place].pairs])

    def _vary(self) -> None:
        """Try what each component that is wrong could also be, one thing in all of them at a time."""
        trial = self.bench.try_out(self.pairs)
        best = dict(trial.deviations)
        wrong = [place for place, value in best.items() if value > WRONG and not self.is_fixed(place)]
        hidden = [place for place in range(len(self.parts)) if place not in best and not self.is_fixed(place)]
        choices = {place: self._variants(place) for place in wrong}
        while choices and not self.is_over:
            tried: dict[int, list[Pair]] = {}
            for place in list(choices):
                other = next(choices[place], None)
                if other is None or best[place] <= AGREES:
                    del choices[place]
                else:
                    tried[place] = other
            if not tried:
                continue
            pairs = self.pairs
            for place, other in tried.items():
                pairs = self._with(place, pairs, other)
            varied = self.bench.try_out(pairs)
            for place, other in tried.items():
                value = varied.deviations.get(place, float("inf"))
                if value < best[place] / _CLEARLY:
                    best[place] = value
                    self.pairs = self._with(place, self.pairs, other)
        if trial.outputs > WRONG or any(value > WRONG for value in best.values()):
            # A component without a tap is judged by all that come after it.
            for place in hidden:
                self._keep_better(self._with(place, self.pairs, other) for other in self._variants(place))
            self._keep_better(
                self.repaired(self.pairs, {one: other, other: one})
                for one, other in itertools.combinations(hidden, 2)
                if self.parts[one].signature == self.parts[other].signature
            )

    def _keep_better(self, choices: Iterable[list[Pair]]) -> None:
        """Try whole mappings one after another, and keep each with which the models are closer."""
        worst = _total(self.bench.try_out(self.pairs))
        for pairs in choices:
            if worst <= AGREES or self.is_over:
                return
            value = _total(self.bench.try_out(pairs))
            if _is_better(value, worst):
                worst, self.pairs = value, pairs

    def _order_siblings(self) -> None:
        """Layers that are given the same and are alike: which is which shows in what comes after them."""
        siblings = self.siblings()
        self._nearer = False
        for strict in (True, False):
            if not strict and not self._nearer:
                return
            trial = self.bench.try_out(self.pairs)
            wrong = [place for place, value in trial.deviations.items() if value > WRONG]
            for place in [*wrong, None]:
                if self.is_over or not siblings:
                    return
                trial = self._order_before(place, siblings, trial, strict)

    def _order_before(
        self, place: int | None, siblings: Sequence[list[int]], trial: Trial, strict: bool
    ) -> Trial:
        """Order siblings so that a component agrees, or with None the outputs.

        strict: whether the models as a whole must come closer; where two sets are wrong together, one must
        be put right before it shows.
        """

        def far(one: Trial) -> float:
            return one.outputs if place is None else one.deviations.get(place, float("inf"))

        end = float("inf") if place is None else self.parts[place].order
        near = sorted(
            (members for members in siblings if self.parts[members[0]].order < end),
            key=lambda members: -max(self.parts[member].order for member in members),
        )
        for members in near:
            if far(trial) <= WRONG or self.is_over:
                break
            tried: list[tuple[float, int, list[Pair], Trial]] = []
            for partner in orders_of(members):
                pairs, now = self._reordered(partner)
                if far(now) < far(trial) / _CLEARLY:
                    tried.append((_total(now), len(tried), pairs, now))
            self._nearer |= bool(tried)
            if tried and (not strict or _is_better(min(one[0] for one in tried), _total(trial))):
                _, _, self.pairs, trial = min(tried, key=lambda one: one[:2])
        return trial

    def _reordered(self, partner: Names[int, int]) -> tuple[list[Pair], Trial]:
        """The pairs with siblings in another order, and a trial of them: one for all components that they may put right."""
        pairs = self.repaired(self.pairs, partner)
        base, known = self._tried
        if base != self.pairs:
            known = {}
            self._tried = list(self.pairs), known
        key = tuple(partner.items())
        if key not in known:
            known[key] = self.bench.try_out(pairs)
        return pairs, known[key]

    def siblings(self) -> list[list[int]]:
        """Components of one signature whose outputs are the same where their values are."""
        expected = self.bench.expect(self.pairs, shared=True)[1].activations
        found = []
        for members in self.exchangeable():
            sets: list[tuple[Array, list[int]]] = []
            for place in members:
                for tap in taps_of(expected, self.parts[place].keras)[:1]:
                    near = [same for first, same in sets if deviation(first, expected[tap]) <= AGREES]
                    if near:
                        near[0].append(place)
                    else:
                        sets.append((expected[tap], [place]))
            found += [same for _, same in sets if len(same) > 1]
        return found

    def _show(self) -> None:
        """The control: whether a change of each doubtful tensor shows. In all components at once, tensor by tensor."""
        good = self.last.outputs <= AGREES
        far = self.last.deviations
        places = [
            place
            for place, component in enumerate(self.parts)
            if any(self.is_open(index) for index in component.pairs) or far.get(place, 0.0) > WRONG
        ]
        watched = [place for place in places if far.get(place, 1.0) <= WRONG]
        for indices in itertools.zip_longest(*(self.parts[place].pairs for place in watched)):
            changed = {
                place: index for place, index in zip(watched, indices, strict=True) if index is not None
            }
            trial = self.bench.spoiled(self.pairs, list(changed.values()))
            for place, index in changed.items():
                if trial.deviations.get(place, 0.0) > _CLEARLY * max(far[place], AGREES):
                    self.shown.add(index)
        base = _total(self.last)
        # A layer that gives several tensors is watched by the first: a state shows in the later ones.
        rest = [
            index
            for place in places
            if place not in watched or good
            for index in self.parts[place].pairs
            if index not in self.shown
        ]
        for index in rest:
            trial = self.bench.spoiled(self.pairs, [index], inject=not good)
            if trial.outputs > _CLEARLY * AGREES if good else _is_better(base, _total(trial)):
                self.shown.add(index)

    def is_open(self, index: int) -> bool:
        return self.pairs[index].doubt is not None or self.pairs[index] != self.given[index]

    def result(self) -> Mapping:
        """The mapping with the pairs that were found."""
        refined, alike = list(self.pairs), self._told_by_order_alone()
        for place, component in enumerate(self.parts):
            far = self.last.deviations.get(place, self.hidden)
            for index in component.pairs:
                # Where the outputs agree and it takes part in them, its layers are only not comparable.
                right = self.last.outputs <= AGREES and index in self.shown
                refined[index] = self._judged(index, self.last.outputs if right else far, alike.get(place))
        mapping = self.bench.mapping.model_copy(update={"tensors": tuple(refined)})
        # Layers by their tensors and order; and where other layers compute the same numbers, those.
        by_hand = self.keep or any(pair.source == "hand" for pair in refined)
        given = mapping.layers if by_hand else ()
        static = layer_pairs(mapping, *self.bench.outlines, given)
        layers = by_numbers(static, given, self.bench.outlines, *self.bench.every_layer(self.pairs))
        return mapping.model_copy(update={"layers": layers})

    def _told_by_order_alone(self) -> dict[int, int]:
        """By components that order alone tells from another one which is given the same, that other one: nothing that agrees would
        deviate if the two were exchanged, as the outputs do not where a loss alone takes them.
        """
        found: dict[int, int] = {}
        if self.keep or not any(map(self.is_open, range(len(self.pairs)))):
            return found
        # Where the outputs agree, they tell what is before them; else each layer by itself.
        inject = self.last.outputs > AGREES
        alone = self.bench.try_out(self.pairs) if inject else self.last
        for members in self.siblings():
            for one, other in itertools.combinations(members, 2):
                indices = [index for place in (one, other) for index in self.parts[place].pairs]
                if {one, other} <= found.keys() or not any(map(self.is_open, indices)) or self.is_over:
                    continue
                exchanged = self.repaired(self.pairs, {one: other, other: one})
                if not self._spoils(exchanged, alone, (one, other), inject):
                    found |= {one: other, other: one}
        return found

    def _judged(self, index: int, far: float, alike: int | None) -> Pair:
        pair = self.pairs[index]
        doubt, note, source = pair.doubt, pair.note, pair.source
        if far > WRONG:
            doubt = _and(
                doubt,
                f"with these tensors the layers differ by {far:.1g} of the largest value: no counterparts, or another setting",
            )
        else:
            if far > AGREES:
                note = _and(note, f"the layers agree to {far:.1g} only: they differ in something else")
            if self.is_open(index) and alike is not None:
                other = self.pairs[self.parts[alike].pairs[0]].label
                doubt, source = f"nothing that agrees tells it from {other}, which is given the same", "order"
            elif self.is_open(index):
                if index in self.shown or constant_of(pair.rule) is not None:
                    doubt, source = None, pair.source if pair.source == "hand" else "probed"
                else:
                    said = (
                        "the models agree, but they also do with other values in it: it does not matter here"
                    )
                    doubt, note = _and(doubt, said), pair.note
        return pair.model_copy(update={"doubt": doubt, "note": note, "source": source})


def _and(text: str | None, more: str) -> str:
    return f"{text}; {more}" if text else more


def _worst(trial: Trial) -> float:
    """The largest deviation of all; outputs that nothing compares with do not count."""
    finite = [trial.outputs] if math.isfinite(trial.outputs) else []
    return max([*trial.deviations.values(), *finite], default=float("inf"))


def _agreeing(trial: Trial) -> set[int]:
    return {place for place, far in trial.deviations.items() if far <= AGREES}


def _total(trial: Trial) -> float:
    """One figure for a whole trial: how many are wrong, and by how much."""
    return sum(min(value, 1.0) for value in trial.deviations.values()) + min(trial.outputs, 1.0)


def _is_better(value: float, than: float) -> bool:
    """Whether one wrong component fewer makes the difference."""
    return value < than - WRONG or value < than / _CLEARLY


def _nearest(members: Sequence[int], sums: Names[int, tuple[Array, Array]]) -> dict[int, int]:
    """Keras's component -> torch's, nearest first; as it was where it is about as near."""
    if len(members) < 2:
        return {}
    ours = np.array([sums[place][0] for place in members], np.float64)
    theirs = np.array([sums[place][1] for place in members], np.float64)
    # Of what grows from step to step sums may be beyond all numbers.
    with np.errstate(invalid="ignore", over="ignore"):
        scale = np.abs(ours).max(0) + np.finfo(float).tiny
        far = np.abs((ours[:, None] - theirs[None, :]) / scale).max(-1)
        far = np.where(np.isfinite(far), far, np.inf)
        # What is as near as anything stays as it was.
        same = [place for place, row in enumerate(far) if row[place] <= _CLEARLY * row.min() + AGREES]
    found = dict(zip(same, same, strict=True))
    rest = [place for place in range(len(members)) if place not in found]
    found |= {rest[i]: rest[j] for i, j in assign(-far[np.ix_(rest, rest)]).items()}
    return {members[i]: members[j] for i, j in found.items()}
