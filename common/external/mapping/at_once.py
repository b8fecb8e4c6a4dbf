"""What several components could also be, tried in all at once: a port does such a thing alike everywhere, and only then its outputs agree."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from parity.common.base.errors import ExternalModelError
from parity.common.external.mapping.components import Component
from parity.common.external.mapping.name_similarity import words_of
from parity.common.external.mapping.trial import AGREES, WRONG, Bench, Trial
from parity.common.spec.external.mapping import Pair

# Combinations tried, and for how long.
_ALIKE, _SECONDS_ALIKE = 300, 15.0
_SET_LIMIT = 4
_ORDERS = 24
_OF_LAYERS = ("weight", "bias")
# More layers than these are not shared out among tensors otherwise.
_SHARED_OUT = 6
# Of modules that may have each other's tensors, so many twos are tried.
_EXCHANGED = 30


class Search(Protocol):
    """What is known of two models' pairs; `pairs` is set to what is found."""

    bench: Bench
    keep: bool
    pairs: list[Pair]
    parts: list[Component]

    def is_fixed(self, place: int) -> bool: ...
    def is_open(self, index: int) -> bool: ...
    def siblings(self) -> list[list[int]]: ...
    def exchangeable(self) -> list[list[int]]: ...
    def repaired(self, pairs: Sequence[Pair], partner: Mapping[int, int]) -> list[Pair]: ...


class AtOnce:
    """Trials of whole mappings, for a few seconds."""

    def __init__(self, search: Search) -> None:
        self.search, self.bench = search, search.bench
        self._deadline = time.monotonic() + _SECONDS_ALIKE

    def run(self) -> None:
        """Try what pairs of one rule could also be, which lie together in one tensor, and then other orders."""
        self._alike()
        self._shared_out()
        self._orders()

    def _alike(self) -> None:
        """Try what pairs of one rule could also be, in all of them at once."""
        groups: dict[object, list[int]] = {}
        for index, pair in enumerate(self.search.pairs):
            if pair.keras and pair.torch and pair.source != "hand":
                shapes = tuple(self.bench.infos[name].shape for name in pair.keras)
                groups.setdefault((pair.rule, shapes, len(pair.torch)), []).append(index)
        # Of each group what all its pairs could also be.
        choices: list[list[dict[int, Pair]]] = []
        for members in groups.values():
            others = [self.bench.variants.of_pair(self.search.pairs[index]) for index in members]
            choices.append(
                [dict(zip(members, changed, strict=True)) for changed in zip(*others, strict=False)]
            )
        self._try(choices)

    def _shared_out(self) -> None:
        """Try which of Keras's layers lie together in which of torch's tensors, where several of one shape lie in several: those first
        whose names have words in common. The most that agrees is taken.
        """
        if self.search.keep or self.bench.try_out(self.search.pairs, inject=False).outputs <= WRONG:
            return
        pools: dict[object, list[Component]] = {}
        for place, part in enumerate(self.search.parts):
            pairs = [self.search.pairs[index] for index in part.pairs]
            several = all(len(pair.keras) > 1 == len(pair.torch) for pair in pairs)
            if several and len({len(pair.keras) for pair in pairs}) == 1 and not self.search.is_fixed(place):
                shapes = tuple(
                    frozenset(self.bench.infos[name].shape for name in pair.keras) for pair in pairs
                )
                pools.setdefault(shapes, []).append(part)
        for parts in pools.values():
            best = _agreeing(self.bench.try_out(self.search.pairs))
            for pairs in self._assignments(parts) if len(parts) > 1 else ():
                if time.monotonic() > self._deadline:
                    return
                agreeing = _agreeing(self.bench.try_out(pairs))
                if agreeing > best:
                    self.search.pairs, best = pairs, agreeing

    def _assignments(self, parts: Sequence[Component]) -> list[list[Pair]]:
        """All pairs with the layers of Keras's that some components have in any of these, and in any order."""
        given = [[self.search.pairs[index] for index in part.pairs] for part in parts]
        layers = [layer for pairs in given for layer in zip(*(pair.keras for pair in pairs), strict=True)]
        homes = [pairs[0].torch[0] for pairs in given for _ in pairs[0].keras]
        if len(layers) > _SHARED_OUT:
            return []

        def in_common(order: Sequence[tuple[str, ...]]) -> int:
            words = (
                (words_of(layer[0])[0], words_of(home)[0]) for layer, home in zip(order, homes, strict=True)
            )
            return sum(len({*own} & {*others}) for own, others in words)

        found = []
        for order in sorted(itertools.permutations(layers), key=in_common, reverse=True)[:_ALIKE]:
            left, changed = list(order), dict[int, Pair]()
            for part, pairs in zip(parts, given, strict=True):
                count = len(pairs[0].keras)
                names, left = left[:count], left[count:]
                for slot, (index, pair) in enumerate(zip(part.pairs, pairs, strict=True)):
                    changed[index] = pair.model_copy(update={"keras": tuple(layer[slot] for layer in names)})
            found.append([changed.get(index, pair) for index, pair in enumerate(self.search.pairs)])
        return found

    def _orders(self) -> None:
        """Try what lies in one tensor in other orders, then doubtful components of one signature, those of siblings first: where no
        layer between them is seen alike, only the outputs tell, and only once all are right.
        """
        self._try(
            [
                self._joined(place)
                for place in range(len(self.search.parts))
                if not self.search.is_fixed(place)
            ]
        )
        for sets in (self.search.siblings(), self.search.exchangeable()):
            choices: list[list[dict[int, Pair]]] = []
            for members in sets:
                indices = [index for place in members for index in self.search.parts[place].pairs]
                if not any(map(self.search.is_open, indices)):
                    continue
                orders = (self.search.repaired(self.search.pairs, partner) for partner in orders_of(members))
                choices.append([{index: pairs[index] for index in indices} for pairs in orders])
            self._try(choices)
        if not self.search.keep and self.bench.try_out(self.search.pairs, inject=False).outputs > WRONG:
            self._try([self._with_parts(*two) for two in self._alike_in_parts()[:_EXCHANGED]])

    def _alike_in_parts(self) -> list[tuple[str, str]]:
        """Modules of torch with tensors of the same shapes, doubtful ones, of which one has a tensor that is a part of one of Keras's."""
        shapes = {info.name: info.shape for info in self.bench.outlines[1].tensors}
        modules: dict[str, list[object]] = {}
        parts: set[str] = set()
        for place, component in enumerate(self.search.parts):
            open_ = not self.search.is_fixed(place) and any(map(self.search.is_open, component.pairs))
            for index in component.pairs if open_ else ():
                for name in self.search.pairs[index].torch:
                    modules.setdefault(_module(name), []).append((_slot(name), shapes[name]))
                    parts |= {_module(name)} if len(self.search.pairs[index].torch) > 1 else set()
        alike: dict[object, list[str]] = {}
        for module, tensors in modules.items():
            alike.setdefault(frozenset(tensors), []).append(module)
        return [
            two
            for members in alike.values()
            for two in itertools.combinations(members, 2)
            if parts.intersection(two)
        ]

    def _with_parts(self, one: str, other: str) -> list[dict[int, Pair]]:
        """The pairs of two modules of torch with each other's tensors, and then with those that lie in one in other orders."""
        partner = {one: other, other: one}

        def given(name: str) -> str:
            module = partner.get(_module(name))
            return name if module is None else module + name.removeprefix(_module(name))

        pairs = [
            pair.model_copy(update={"torch": tuple(map(given, pair.torch))}) for pair in self.search.pairs
        ]
        changed = {index: pair for index, pair in enumerate(pairs) if pair != self.search.pairs[index]}
        places = [
            place
            for place, component in enumerate(self.search.parts)
            if changed.keys() & set(component.pairs)
        ]
        return [changed, *(changed | order for place in places for order in self._joined(place, pairs))]

    def _joined(self, place: int, given: Sequence[Pair] | None = None) -> list[dict[int, Pair]]:
        """What a component could also be of which one side has several tensors in one: kernel and bias in another order.

        given: all pairs; default: those that are known.
        """
        indices = self.search.parts[place].pairs
        pairs = [(given or self.search.pairs)[index] for index in indices]
        if not any("->" in pair.rule and len(pair.keras) != len(pair.torch) for pair in pairs):
            return []
        return [dict(zip(indices, changed, strict=True)) for changed in self.bench.variants.of(pairs)]

    def _try(self, choices: Sequence[Sequence[dict[int, Pair]]]) -> None:
        """Take the first of the combinations of choices with which the outputs agree; the fewest changes come first."""
        if self.search.keep or self.bench.try_out(self.search.pairs, inject=False).outputs <= WRONG:
            return
        # A product with an empty one is empty, and there would be 2^n of them to go through.
        choices = [choice for choice in choices if choice]
        counts = range(1, len(choices) + 1)
        some = (chosen for count in counts for chosen in itertools.combinations(choices, count))
        products = itertools.chain.from_iterable(itertools.product(*chosen) for chosen in some)
        for product in itertools.islice(products, _ALIKE):
            changed = {index: pair for part in product for index, pair in part.items()}
            pairs = [changed.get(index, pair) for index, pair in enumerate(self.search.pairs)]
            if time.monotonic() > self._deadline:
                return
            try:
                outputs = self.bench.try_out(pairs, inject=False).outputs
            except ExternalModelError:  # alike by Keras's shapes alone: not all of them fit
                continue
            if outputs <= WRONG:
                self.search.pairs = pairs
                return


def _agreeing(trial: Trial) -> int:
    return sum(far <= AGREES for far in trial.deviations.values())


def _module(name: str) -> str:
    """Whose a tensor of torch is; a parameter that is no layer's is its own."""
    parent, _, last = name.rpartition(".")
    return parent if parent and last in _OF_LAYERS else name


def _slot(name: str) -> str:
    """What a tensor of torch is to its module."""
    return name.removeprefix(_module(name))


def orders_of(members: Sequence[int]) -> Iterator[dict[int, int]]:
    """Other orders of siblings: all of a few, exchanges of two of many."""
    if len(members) <= _SET_LIMIT:
        for order in itertools.islice(itertools.permutations(members), 1, 1 + _ORDERS):
            yield dict(zip(members, order, strict=True))
        return
    for one, other in itertools.combinations(members, 2):
        yield {one: other, other: one}
