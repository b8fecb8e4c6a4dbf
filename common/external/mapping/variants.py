"""What a mapping could also be: other rules for the same shapes, other partners in the same layer."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from math import isqrt, prod

from parity.common.external.mapping.candidate_rules import arrangements, distinct, fits
from parity.common.external.process.layouts import PICTURE
from parity.common.spec.external.mapping import ALSO_FITS, Pair
from parity.common.spec.external.outline import LayerInfo, Outline
from parity.common.spec.external.patterns import Shape

# Tried at most, for one group of layers; simple changes come first.
_LIMIT = 240
_ORDERS = 120
_MOST_JOINED = 5
_HEADS = (2, 3, 4, 6, 8, 12, 16, 20, 24, 32)
_KNOWN = ("conv", "lstm", "gru", "simple_rnn")
_SLOTS = ("kernel", "bias", "gamma", "beta", "moving_mean", "moving_variance")
_SIZES = re.compile(r"\d+!?(\+\d+!?)+")
# Several of one shape in one, along an axis of their own.
_SIDE_BY_SIDE = re.compile(r"n( [a-z])+ ->( [a-z])+|[a-z]( [a-z])* -> n( [a-z])+")
# Several in one along an axis that both have.
_JOINED = re.compile(r"[a-z]( [a-z])* ->( [a-z])+")
_BRACKET = re.compile(r"\(([a-z ]+)\)")


class Variants:
    """Of the mapping of two models."""

    def __init__(self, keras: Outline, torch: Outline) -> None:
        self._shapes = [{info.name: info.shape for info in side.tensors} for side in (keras, torch)]
        self._owner: list[dict[str, LayerInfo | None]] = []
        for side in (keras, torch):
            layers = {layer.path: layer for layer in side.layers}
            self._owner.append({info.name: layers.get(info.layer) for info in side.tensors})
        self._rules: dict[object, tuple[str, ...]] = {}
        self._flattened = _flattened(keras)
        self._pictures = _pictures(keras)
        heads = {layer.settings.get("heads") for layer in (*keras.layers, *torch.layers)}
        self._heads = sorted(number for number in heads if isinstance(number, int)) or list(_HEADS)

    @property
    def pictures(self) -> list[Shape]:
        """(height, width, channels) of what a flat row of units may be made in the model."""
        return self._flattened

    def unflattened(self, pair: Pair, picture: Shape) -> Pair:
        """The pair with its units in the order of torch's picture, where Keras has as many in its last axis; else as it is."""
        ours, theirs = self._of(0, pair.keras), self._of(1, pair.torch)
        if not len(ours) == len(theirs) == 1 or ours[0][-1:] != (prod(picture),):
            return pair
        names = "dhwc"[-len(picture) :]
        units = f"({' '.join(names)})", f"({' '.join((names[-1], *names[:-1]))})"
        rule = f"{units[0]} -> {units[1]}" if len(ours[0]) == 1 else f"i {units[0]} -> {units[1]} i"
        sizes = " ".join(f"{name}={size}" for name, size in zip(names, picture, strict=True) if name != "c")
        other = pair.model_copy(update={"rule": f"{rule}; {sizes}"})
        return other if fits(other.rule, ours, theirs) else pair

    def rules(self, pair: Pair) -> tuple[str, ...]:
        """Every rule that fits the pair's shapes, its own first."""
        key = pair.keras, pair.torch, pair.rule
        if key not in self._rules:
            self._rules[key] = self._fitting(pair)
        return self._rules[key]

    def _fitting(self, pair: Pair) -> tuple[str, ...]:
        ours, theirs = self._of(0, pair.keras), self._of(1, pair.torch)
        axes, semicolon, sizes = pair.rule.partition(";")
        joined = max(len(ours), len(theirs)) > 1 and _SIZES.search(sizes)
        if _SIDE_BY_SIDE.fullmatch(axes) or (joined and _JOINED.fullmatch(axes)):
            left, right = (side.split() for side in axes.split("->"))
            orders = itertools.permutations(right)
            every = [
                pair.rule,
                *(f"{' '.join(left)} -> {' '.join(order)}{semicolon}{sizes}" for order in orders),
            ]
            return tuple(dict.fromkeys(rule for rule in every if fits(rule, ours, theirs)))
        if joined and not self._is_known(pair):
            # A layer of the code's own may keep its kernel the other way round.
            turned = [f"{rest}{semicolon}{sizes}" for rest in ("i o -> i o", "o i -> o i")]
            return tuple(dict.fromkeys(rule for rule in (pair.rule, *turned) if fits(rule, ours, theirs)))
        if (
            not len(ours) == len(theirs) == 1
            or max(len(ours[0]), len(theirs[0])) < 2
            or (self._is_known(pair) and ALSO_FITS not in (pair.doubt or ""))
        ):
            return (pair.rule,)
        flats = [
            f"flatten({','.join(map(str, flat))})"
            for flat in (*self._flattened, *_parts_of(self._pictures, ours[0][0]))
            if len(ours[0]) == len(theirs[0]) == 2 and prod(flat) == ours[0][0]
        ]
        every = [pair.rule, *flats, "transpose", "same", *arrangements(ours[0], theirs[0])]
        return distinct([rule for rule in every if fits(rule, ours, theirs)], ours[0])

    def of_pair(self, pair: Pair) -> list[Pair]:
        """What one pair could also be: by the other rules that fit it, and the tensors that it joins in another order."""
        found = [pair.model_copy(update={"rule": rule}) for rule in self.rules(pair) if rule != pair.rule]
        count = max(len(pair.keras), len(pair.torch))
        orders = list(itertools.permutations(range(count)))[1:_ORDERS] if 1 < count <= _MOST_JOINED else []
        return found + [self._reordered(pair, order, "") for order in orders]

    def of(self, pairs: Sequence[Pair]) -> Iterator[list[Pair]]:
        """Other mappings of the tensors of one group of layers; at most `_LIMIT`."""
        return itertools.islice(self._each(pairs), _LIMIT)

    def _each(self, pairs: Sequence[Pair]) -> Iterator[list[Pair]]:
        seen = {tuple((pair.keras, pair.torch, pair.rule) for pair in pairs)}
        for partners in itertools.chain.from_iterable(map(self._partners, self._joined(pairs))):
            choices = [self.rules(pair) for pair in partners]
            # First those that change fewest rules.
            products = list(itertools.islice(itertools.product(*choices), _LIMIT))
            products.sort(
                key=lambda rules: sum(rule != own[0] for rule, own in zip(rules, choices, strict=True))
            )
            for rules in products:
                found = [
                    pair.model_copy(update={"rule": rule}) for pair, rule in zip(partners, rules, strict=True)
                ]
                key = tuple((pair.keras, pair.torch, pair.rule) for pair in found)
                if key not in seen:
                    seen.add(key)
                    yield found

    def _of(self, side: int, names: Sequence[str]) -> list[Shape]:
        return [self._shapes[side][name] for name in names]

    def _is_known(self, pair: Pair) -> bool:
        """Whether both layers are of kinds whose tensors have one layout only."""
        layers = [self._owner[0][pair.keras[0]], self._owner[1][pair.torch[0]]]
        kinds = ["" if layer is None or layer.overridden else layer.kind for layer in layers]
        return all(any(name in kind for name in (*_KNOWN, "embedding", "norm")) for kind in kinds)

    def _partners(self, pairs: Sequence[Pair]) -> Iterator[list[Pair]]:
        """Exchanges between what is alike in the group: query and key with their biases, then single tensors."""
        yield list(pairs)
        together: dict[str, list[int]] = {}
        alone: dict[str, list[int]] = {}
        for place, pair in enumerate(pairs):
            if len(pair.keras) == 1 and pair.torch:
                parent, _, last = pair.keras[0].rpartition("/")
                together.setdefault(parent if last in _SLOTS else pair.keras[0], []).append(place)
                alone[pair.keras[0]] = [place]
        for groups in (together, alone):
            yield from self._exchanged(pairs, list(groups.values()))

    def _exchanged(self, pairs: Sequence[Pair], members_of: Sequence[list[int]]) -> Iterator[list[Pair]]:
        alike: dict[object, list[list[int]]] = {}
        for places in members_of:
            shapes = [
                tuple(tuple(size for size in shape if size != 1) for shape in self._of(0, pairs[place].keras))
                for place in places
            ]
            counts = tuple(len(pairs[place].torch) for place in places)
            alike.setdefault((tuple(shapes), counts), []).append(places)
        groups = [members for members in alike.values() if len(members) > 1]
        orders = [
            list(itertools.islice(itertools.permutations(range(len(members))), _ORDERS)) for members in groups
        ]
        for chosen in itertools.islice(itertools.product(*orders), 1, _LIMIT):
            found = list(pairs)
            for members, order in zip(groups, chosen, strict=True):
                for own, other in zip(members, (members[place] for place in order), strict=True):
                    for here, there in zip(own, other, strict=True):
                        found[here] = self._given(pairs[here], pairs[there])
            yield found

    def _given(self, pair: Pair, other: Pair) -> Pair:
        """A pair with another's torch tensors, and a rule that fits them."""
        ours, theirs = self._of(0, pair.keras), self._of(1, other.torch)
        rules = [pair.rule, other.rule]
        if len(ours) == len(theirs) == 1:
            rules += arrangements(ours[0], theirs[0])
        rule = next((rule for rule in rules if fits(rule, ours, theirs)), pair.rule)
        return pair.model_copy(update={"torch": other.torch, "rule": rule})

    def _joined(self, pairs: Sequence[Pair]) -> Iterator[list[Pair]]:
        """Other orders of what one tensor holds several of, and of its axes: the same for kernel and bias."""
        joined = [max(len(pair.keras), len(pair.torch)) > 1 and "->" in pair.rule for pair in pairs]
        yield list(pairs)
        if not any(joined):
            return
        sizes = [max(len(pair.keras), len(pair.torch)) for pair in itertools.compress(pairs, joined)]
        layouts = ["", "first", "last", "middle", *(f"heads {heads}" for heads in self._heads)]
        orders = itertools.islice(itertools.permutations(range(max(sizes))), _ORDERS)
        for order, layout in itertools.product(orders, layouts):
            yield [
                self._reordered(pair, order, layout) if its else pair
                for pair, its in zip(pairs, joined, strict=True)
            ]

    def _reordered(self, pair: Pair, order: Sequence[int], layout: str) -> Pair:
        side = "keras" if len(pair.keras) > 1 else "torch"
        names = getattr(pair, side)
        if len(names) != len(order):
            return pair
        # Parts of other sizes have one layout.
        sizes = _SIZES.search(pair.rule)
        rule = _with_layout(pair.rule, "" if sizes else layout, side)
        if sizes:
            parts = sizes[0].split("+")
            rule = rule.replace(sizes[0], "+".join(parts[place] for place in order))
        other = pair.model_copy(update={side: tuple(names[place] for place in order), "rule": rule})
        if fits(rule, self._of(0, other.keras), self._of(1, other.torch)):
            return other
        return pair if sizes else other.model_copy(update={"rule": pair.rule})


def _with_layout(rule: str, layout: str, several: str) -> str:
    """A pattern with the axis `n` at another place of its bracket, or with that bracket's last axis divided by heads."""
    axes, _, sizes = rule.partition(";")
    left, _, right = axes.partition("->")
    one, many = (right, left) if several == "keras" else (left, right)
    match = next((found for found in _BRACKET.finditer(one) if "n" in found[1].split()), None)
    if match is None or not layout:
        return rule
    names = [name for name in match[1].split() if name != "n"]
    if layout.startswith("heads"):
        if len(names) != 1:
            return rule
        names_inside = ["x", "n", "y"]
        many = " ".join("(x y)" if token == names[0] else token for token in many.split())
        sizes = f"{sizes} x={layout.split()[1]}"
    elif layout == "middle":
        names_inside = [*names[:-1], "n", names[-1]] if len(names) > 1 else names
    else:
        names_inside = ["n", *names] if layout == "first" else [*names, "n"]
    one = f"{one[: match.start()]}({' '.join(names_inside)}){one[match.end() :]}"
    left, right = (many, one) if several == "keras" else (one, many)
    text = f"{left.strip()} -> {right.strip()}"
    return f"{text}; {sizes.strip()}" if sizes.strip() else text


def _pictures(keras: Outline) -> list[Shape]:
    """(height, width, channels) of what the model is given, and of what its convolutions and poolings give."""
    shapes = [*keras.inputs.values()]
    shapes += [each for layer in keras.layers if re.search("conv|pool", layer.kind) for each in layer.outputs]
    known = [tuple(int(size or 0) for size in shape[1:]) for shape in shapes if len(shape) >= PICTURE]
    return [*dict.fromkeys(shape for shape in known if all(shape))]


def _parts_of(pictures: Sequence[Shape], rows: int) -> list[Shape]:
    """(height, channels) of a picture's columns or rows, and (height, width, channels) of square patches, that have so many numbers."""
    found: list[Shape] = [(side, each[-1]) for each in pictures for side in each[:-1]]
    for count in {each[-1] for each in pictures}:
        side = isqrt(rows // count)
        found.append((side, side, count))
    return [each for each in dict.fromkeys(found) if prod(each) == rows and each[0] > 1]


def _flattened(keras: Outline) -> list[Shape]:
    """(height, width, channels) of everything in the model that a dense layer may have been given flat."""
    shapes = [shape[1:] for layer in (*keras.layers, *keras.operations) for shape in layer.outputs]
    return list(
        dict.fromkeys(
            tuple(int(size) for size in shape if size is not None)
            for shape in shapes
            if 2 <= len(shape) <= 4 and None not in shape and prod(size or 1 for size in shape[:-1]) > 1
        )
    )
