"""What a place in both passes shows: in what torch's computation differs from Keras's there, and how that is told."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from parity.common.base.words import listed
from parity.common.diagnosis import limits
from parity.common.external.pairs.computations import (
    arrangements,
)
from parity.common.external.pairs.constant_arrays import apart_in_words, known_numbers
from parity.common.external.pairs.difference_told import explanation_of
from parity.common.external.pairs.differences import (
    BY_ITSELF,
    OF_LAYOUTS,
    RECURRENT,
    Difference,
    alike,
    differences,
    is_weak,
)
from parity.common.external.pairs.explain import Attribution, made
from parity.common.external.pairs.expressions import UNNAMED, Expression
from parity.common.external.pairs.places import Replacement, Substitution, recorded
from parity.common.external.pairs.substitutions import DROPS, Substitutions
from parity.common.external.pairs.terms import by_terms
from parity.common.external.process.layouts import block_of
from parity.common.external.process.pass_result import Array
from parity.common.parity.deviation import tensor_deviation

_FLOAT32 = float(np.finfo(np.float32).eps)
# Operations of torch's that are tried without, and so many of them.
_MOST_LEFT_AWAY = 12
_LEFT_AWAY = (
    "add",
    "sub",
    "mul",
    "div",
    "pow",
    "sqrt",
    "exp",
    "log",
    "abs",
    "clip",
    "relu",
    "tanh",
    "sigmoid",
    "maximum",
    "minimum",
)
# What is said of weights that may be others.
ONLY_ORDER = "; only order or shape says which weights {} are: see mapping.yaml"
# What another order of the weights before it would do as well.
OF_ORDER = ("order", "arrangement")
# Fewer elements are another tensor's times a number by chance.
_FEWEST = 4


class View(Substitutions):
    """A place, with what may be tried there, and how what is found is told."""

    def attributed(
        self,
        substitutions: Sequence[Substitution],
        changes: Sequence[Replacement],
        evidence: str,
        layers: tuple[str, ...],
        confirmed: bool,
        agrees: Callable[[Replacement], bool],
        is_number: bool = False,
    ) -> list[Attribution]:
        """The differences of what both compute at substitutions, one attribution each; changes of torch's pass make good all of them.

        Args:
            substitutions: one, or the calls of a line, of which alike ones are told once.
            changes, evidence, layers, confirmed: what was tried, and what came of it.
            agrees: whether the place does so with something else put there.
            is_number: whether the place is one number, which any sum may make good.
        """
        substitution = substitutions[0]
        torch, keras = self._read(substitution)
        found = []
        opened = self._opened(torch, keras)
        opened += self._of_other_calls(substitutions[1:], (torch, keras), opened)
        if [each.kind for each in opened] == ["other"]:
            opened = self._without_one(opened[0], agrees)
        if len(opened) > 1:
            # An order alone, as of samples that are sorted, may be that of the other operands, too.
            opened = [each for each in opened if not self._is_order(each)] or opened
            opened = self._one_number(opened, torch, agrees)
        # Of several the experiment says that together they are it, and not of each; of one operation in one line they are one.
        kinds = {(each.kind, each.torch.name, each.torch.line) for each in opened}
        alone = (len(kinds) == 1 and not any(map(is_weak, opened))) or all(each.shown for each in opened)
        if is_number:
            confirmed = confirmed and all(self._is_shown(each, substitution, agrees) for each in opened)
        for number, each in enumerate(map(self._with_numbers, opened)):
            # A weight that is another one's counterpart makes a formula differ where none does.
            doubtful = (
                self.doubtful_before
                if each.kind in OF_ORDER
                else self._doubtful_in((each.torch, each.keras, torch, keras))
            )
            why = evidence + each.shown
            why += (
                "; together with the others that are told of it" if len(opened) > 1 and not each.shown else ""
            )
            if doubtful:
                why += ONLY_ORDER.format(listed(doubtful))
            explanation = explanation_of(each, torch, why, layers, confirmed and alone and not doubtful)
            if apart := self._rounded(each):
                line = each.torch.line or torch.line
                text = f"{line}: a constant that code rounds to float32, and not alike on both sides: {apart:.1g} apart"
                fix = "compute it in float64 on both sides, or take the same numbers; it is no other formula"
                explanation = replace(explanation, cause="rounding:constant", text=text, fix=fix)
            if each.torch.text == each.keras.text and DROPS in each.torch.text:
                # Masks are given by us, to calls that were taken for the same.
                fix = "compare with --without-dropout; in both models, call what drops in one order"
                explanation = replace(explanation, confidence="likely", fix=fix)
            one = substitution if len(substitutions) == 1 and not number else None
            found.append(Attribution(explanation, () if number else tuple(changes), one))
        return found

    def _is_given_the_same(self, found: Difference) -> bool:
        """Whether a recurrent layer that is said to read elements in another order is given Keras's in the same."""
        if found.kind != "arrangement" or found.torch.name not in RECURRENT:
            return False
        theirs, ours = self._given(found) or (np.zeros(0), np.zeros(1))
        return ours.shape == theirs.shape and tensor_deviation(ours, theirs) <= limits.LIVE_FLOAT64

    def _is_of_layout(self, found: Difference) -> bool:
        """Whether settings that only say how axes lie are all that differs, and what is given has its elements in no like order."""
        if found.kind != "argument" or found.torch.name != found.keras.name:
            return False
        theirs, ours = dict(found.torch.settings), dict(found.keras.settings)
        if any(theirs.get(name) != ours.get(name) for name in {*theirs, *ours} - OF_LAYOUTS):
            return False
        given, due = self._given(found) or (np.zeros(0), np.zeros(0))
        return given.size == due.size > 0 and not any(
            tensor_deviation(each, given) <= limits.SAME_ELEMENTS for each in arrangements(due, given.shape)
        )

    def _given(self, found: Difference) -> tuple[Array, Array] | None:
        """What torch's and Keras's operation of a difference are given first; None where one is none."""
        given = [each.operands[0].used for each in (found.torch, found.keras) if each.operands]
        if len(given) < len(self._ends) or None in given:
            return None
        (theirs,), (ours,) = self.torch.values(given[0] or 0), self.keras.values(given[1] or 0)
        return theirs, ours

    def _with_numbers(self, found: Difference) -> Difference:
        """Of two constants what they are, and how they differ; of other results how, where one is the other times a number, say."""
        both = (found.torch, found.keras)
        if not all(self._is_constant(each) and each.tensor is not None for each in both):
            other = found.kind == "other"
            return replace(found, apart=self._apart(*both) or self._unpackable(*both)) if other else found
        (theirs,), (ours,) = (
            side.values(each.tensor or 0) for side, each in zip((self.torch, self.keras), both, strict=True)
        )
        if theirs.size != ours.size or not (apart := apart_in_words(theirs, ours)):
            return found
        kinds = [known_numbers(values) for values in (theirs, ours)]
        if not all(each.text.startswith(UNNAMED) for each in both) and not all(kinds):
            return found
        told = [
            replace(each, name="", operands=(), text=f"{each} ({kind})" if kind else str(each))
            for each, kind in zip(both, kinds, strict=True)
        ]
        first = replace(told[0], text=f"{told[0].text}, {apart},")
        return replace(found, kind="number", torch=first, keras=told[1])

    def _apart(self, torch: Expression, keras: Expression) -> str:
        """How torch's result is made of Keras's; '' where that is no number, and no other order."""
        if torch.tensor is None or keras.tensor is None or self.torch.is_uniform(torch.tensor):
            return ""
        (theirs,), (ours,) = self.torch.values(torch.tensor), self.keras.values(keras.tensor)
        if theirs.size < _FEWEST or not np.isfinite(theirs).all():
            return ""
        # As it lies first: another order of axes may be it by chance.
        said = (apart_in_words(theirs, each) for each in arrangements(ours, theirs.shape))
        return next((each for each in said if each and not each.startswith("up to")), "")

    def _unpackable(self, torch: Expression, keras: Expression) -> str:
        """That torch packs by lengths what Keras's mask hides between others; '' where it is not so."""
        if keras.name not in RECURRENT or not any(
            each.name == "pack_padded_sequence" for each in torch.parts()
        ):
            return ""
        masks = (
            each.tensor for part in keras.parts() if part.name in RECURRENT for each in part.operands[1:]
        )
        for value in self.keras.values(*(tensor for tensor in masks if tensor is not None)):
            seen = value.astype(bool)
            if value.ndim == 2 and (seen[:, 1:] & ~seen[:, :-1]).any():
                return "of lengths, and Keras's mask hides steps between others, too, which no length says"
        return ""

    def _is_order(self, found: Difference) -> bool:
        """Whether torch takes in another order by a gather what Keras takes as it is."""
        own, due = found.torch, found.keras
        if found.kind != "too_much" or own.name != "gather" or own.tensor is None or due.tensor is None:
            return False
        (theirs,), (ours,) = self.torch.values(own.tensor), self.keras.values(due.tensor)
        return theirs.size == ours.size and (
            tensor_deviation(np.sort(theirs, axis=None), np.sort(ours, axis=None)) <= limits.SAME_ELEMENTS
        )

    def _one_number(
        self, opened: list[Difference], torch: Expression, agrees: Callable[[Replacement], bool]
    ) -> list[Difference]:
        """Of several differences a factor alone, where Keras's is all that it takes: what is arranged otherwise is then the same in effect."""
        for each in opened:
            own, due = each.torch.number, each.keras.number
            if each.kind != "number" or not own or not due:
                continue
            for part in torch.parts():
                places = [n for n, of in enumerate(part.operands) if not of.name and of.number == own]
                if part.name not in ("mul", "div") or not places or part.tensor not in self.torch.maker:
                    continue
                maker, (value,) = self.torch.maker[part.tensor], self.torch.values(part.tensor)
                factor = own / due if part.name == "div" and places == [1] else due / own
                if agrees(Replacement.of(maker, part.tensor, value * factor, self._place.training)):
                    return [replace(each, shown=BY_ITSELF)]
        return opened

    def _without_one(self, found: Difference, agrees: Callable[[Replacement], bool]) -> list[Difference]:
        """The same as an operation of torch's too much, where all agrees once its result is what it was given, as of a sum that is divided again."""
        parts = [
            part
            for part in found.torch.parts()
            if part.tensor in self.torch.maker and part.name in _LEFT_AWAY
        ]
        for part in parts[:_MOST_LEFT_AWAY]:
            assert part.tensor is not None
            maker = self.torch.maker[part.tensor]
            for given in maker.tensors:
                if self.torch.shapes[given] != self.torch.shapes[part.tensor] or self.torch.is_number(given):
                    continue
                (value,) = self.torch.values(given)
                if agrees(Replacement.of(maker, part.tensor, value, self._place.training)):
                    return [
                        Difference(
                            "too_much",
                            part,
                            replace(self._readers[1].read(given), line=found.keras.line),
                            shown=BY_ITSELF,
                        )
                    ]
        return [found]

    def _of_other_calls(
        self,
        others: Sequence[Substitution],
        first: tuple[Expression, Expression],
        known: Sequence[Difference],
    ) -> list[Difference]:
        """What other calls of a line do otherwise that compute something else than its first: several of one sum, say."""
        found, seen, told = [], {_outline(*first)}, {str(each) for each in known}
        for pair in map(self._read, others):
            if (kind := _outline(*pair)) not in seen:
                seen.add(kind)
                found += [each for each in self._opened(*pair) if str(each) not in told]
                told |= {str(each) for each in found}
        return found

    def _inside(self, torch: Expression, keras: Expression) -> list[Difference]:
        """The differences of what makes a tensor of torch's agree with one of Keras's, found by experiment; none where nothing does."""
        if torch.tensor is None or keras.tensor is None:
            return []
        key = self.torch.maker[torch.tensor].key_of(torch.tensor)
        (due,) = self.keras.values(keras.tensor)

        def agrees(change: Replacement) -> bool:
            with made(self.bench, [change]):
                passed = recorded(self.bench, 1, self._place)
            results = [
                r
                for each in passed.operations
                for r, k in zip(each.results, each.keys, strict=True)
                if k == key
            ]
            values = passed.values(*results)
            self.record_again(1)
            return any(
                tensor_deviation(array, value) <= limits.LIVE_FLOAT64
                for value in values
                for array in arrangements(due, value.shape)
            )

        for substitution in self.trials(self._between(keras.tensor, torch.tensor)):
            if substitution.torch_result != torch.tensor:
                change = self.replacement(substitution)
                if change is not None and agrees(change):
                    return self._opened(*self._read(substitution))
        return []

    def _read(self, substitution: Substitution) -> tuple[Expression, Expression]:
        """What torch and Keras compute at a substitution."""
        torch = self._readers[1].read(substitution.torch_result, is_root=True)
        keras = self._readers[0].read(substitution.keras_result)
        made = self._readers[0].read(substitution.keras_result, is_root=True)
        # How a number is computed says more than the number; and what is due at the place itself more than a tensor that is the same by chance.
        chance = substitution.keras_result == self._ends[0] and not keras.name and made.name == torch.name
        # But that torch goes on with what is due is no chance.
        chance &= all(each.same != keras.same for each in torch.operands)
        # So does how what goes by the name of its operand is made: what is reversed has the same elements.
        reordered = not keras.name and any(each.text == keras.text != "" for each in made.operands)
        if keras.number is not None or chance or reordered:
            keras = made
        # What Keras goes on to reverse, torch may leave as it is: both have that.
        same = self._shared.of_torch(substitution.torch_result)
        if same is not None and any(each.same == same for each in keras.operands):
            torch = replace(torch, same=same)
        return torch, keras

    def _is_shown(
        self, found: Difference, outer: Substitution, agrees: Callable[[Replacement], bool]
    ) -> bool:
        """Whether nothing speaks against a part of what was tried: a place that does not agree with Keras's result of it in torch's."""
        theirs, ours = found.torch.tensor, found.keras.tensor
        if (
            theirs is None
            or ours is None
            or theirs == outer.torch_result
            or not found.torch.name
            or found.kind == "broadcast"
        ):
            return True
        makers = self.torch.maker.get(theirs), self.keras.maker.get(ours)
        if makers[0] is None or makers[1] is None or makers[0].rearranges:
            return True
        (value,) = self.keras.values(ours)
        tried = [
            Substitution(makers[0], theirs, self.torch.shapes[theirs], makers[1], ours, order).replacement(
                value, self._place.training
            )
            for order in self._orders(makers[0], theirs, makers[1], ours)
        ]
        possible = [each for each in tried if each is not None]
        return not possible or any(map(agrees, possible))

    def _opened(self, torch: Expression, keras: Expression) -> list[Difference]:
        """The differences of what both compute, those inside of others and behind what only happens to be the same, too."""
        part = self._other_part(torch, keras)
        found, several = [], differences(torch, keras) if part is None else [part]
        several = [replace(each, kind="other") if self._is_given_the_same(each) else each for each in several]
        several = [
            replace(each, kind="arrangement") if self._is_of_layout(each) else each for each in several
        ]
        if any(each.kind == "other" for each in several):
            several = self._other_terms(torch, keras) or several
        if [each.kind for each in several] == ["other"]:
            several = [
                self._other_order(torch, keras)
                or self._other_divisor(several[0])
                or self._other_layer(several[0])
            ]
        for each in several:
            if each.inner is None or self._is_hidden(each):
                found += self._behind(replace(each, inner=None))
                continue
            tried = self._inside(*each.inner)
            inner = tried or self._opened(*each.inner)
            # Once the inner one is made good what is left is the outer one, where that is all.
            alone = len(inner) == len(several) == 1 and (tried or inner[0].shown)
            found += [replace(one, shown=BY_ITSELF if alone else "") for one in (each, *inner)]
        return found

    def _is_hidden(self, found: Difference) -> bool:
        """Whether all that differs inside of what Keras's mask hides something of is what it hides, as at padding."""
        if found.inner is None or found.keras.name != "where" or found.kind != "left_out":
            return False
        outer, (torch, keras) = found.keras.tensor, (each.tensor for each in found.inner)
        if outer is None or torch is None or keras is None:
            return False
        whole, ours = self.keras.values(outer, keras)
        (theirs,) = self.torch.values(torch)
        seen = np.equal(whole, ours) if whole.shape == ours.shape else np.zeros(ours.shape, bool)
        return bool(seen.any()) and any(
            tensor_deviation(ours[seen], each[seen]) <= limits.SAME_ELEMENTS
            for each in arrangements(theirs, ours.shape)
        )

    def _other_part(self, torch: Expression, keras: Expression) -> Difference | None:
        """That torch takes another part of a tensor than the one that Keras computes, as a crop at another side; None where it is not so."""
        whole, chain = torch, torch.chain
        while whole.name == "slice":
            whole = whole.operands[0]
            chain += whole.chain
        if whole is torch or None in (whole.tensor, keras.tensor) or chain or keras.chain:
            return None
        assert whole.tensor is not None and keras.tensor is not None
        (outer,), (inner,) = self.torch.values(whole.tensor), self.keras.values(keras.tensor)
        block = block_of(inner, outer)
        if block is None:
            return None
        due = whole
        for axis, (kept, size) in enumerate(zip(block, outer.shape, strict=True)):
            ends = [("start", kept.start)] * (kept.start > 0) + [("stop", kept.stop - size)] * (
                kept.stop < size
            )
            due = Expression("slice", (due,), (("axis", axis), *ends)) if ends else due
        # That it is so was measured, element by element.
        return Difference("part", torch, replace(due, line=keras.line), shown=BY_ITSELF)

    def _other_terms(self, torch: Expression, keras: Expression) -> list[Difference]:
        """In which terms two numbers differ that are sums; nothing where that is not clear."""
        if math.prod(torch.shape) * math.prod(keras.shape) != 1:
            return []
        return by_terms((self.keras, self.torch), keras, torch)

    def _other_divisor(self, found: Difference) -> Difference | None:
        """That a mean of torch's is Keras's sum by another divisor, as a mean over padding is; None where it is not so."""
        torch, keras = found.torch, found.keras
        if torch.name != "mean" or keras.name != "div" or None in (torch.tensor, keras.operands[0].tensor):
            return None
        assert torch.tensor is not None and keras.operands[0].tensor is not None
        (theirs,), (ours,) = self.torch.values(torch.tensor), self.keras.values(keras.operands[0].tensor)
        terms = math.prod(torch.operands[0].shape) / max(theirs.size, 1)
        sums = theirs * terms
        if not any(
            tensor_deviation(each, sums) <= limits.SAME_ELEMENTS for each in arrangements(ours, sums.shape)
        ):
            return None
        by = Expression(number=terms, line=torch.line)
        return Difference("divisor", by, replace(keras.operands[1], line=keras.line), shown=BY_ITSELF)

    def _other_layer(self, found: Difference) -> Difference:
        """The same as another tensor, where torch goes on with what both have, and Keras with what a layer of its own gives."""
        called = None if found.keras.tensor is None else self._names.get(found.keras.tensor)
        if called is None or found.torch.name or found.torch.same is None:
            return found
        return replace(
            found, kind="operand", keras=replace(found.keras, name="", operands=(), settings=(), text=called)
        )

    def _other_order(self, torch: Expression, keras: Expression) -> Difference | None:
        """That torch arranges otherwise, as by a reshape, what has the elements of Keras's; None where it is not so."""
        if torch.tensor is None or keras.tensor is None:
            return None
        (theirs,), (ours,) = self.torch.values(torch.tensor), self.keras.values(keras.tensor)
        after = (
            each for each in self.torch.operations if each.rearranges and each.tensors[:1] == [torch.tensor]
        )
        then = next(after, None)
        if then is None or theirs.size != ours.size or self.torch.is_uniform(torch.tensor):
            return None
        if not tensor_deviation(np.sort(theirs, axis=None), np.sort(ours, axis=None)) <= limits.SAME_ELEMENTS:
            return None
        chain = self._readers[1].read(then.results[0]).chain
        own, due = (
            Expression(text=str(each), tensor=each.tensor, shape=each.shape) for each in (torch, keras)
        )
        return Difference(
            "arrangement", replace(own, chain=chain, line=then.line), replace(due, line=keras.line)
        )

    def _behind(self, found: Difference) -> list[Difference]:
        """The differences of what made torch's part, where that only happens to be a tensor that both have, or a number, and is
        made by the operation that is due, of an operand that is due: a product with ones is what is multiplied.
        """
        leaf = found.torch
        made = self._made_as(leaf, [leaf] if found.kind == "left_out" else found.keras.operands, found.keras)
        return [found] if made is None else self._opened(made, found.keras)

    def _made_as(self, leaf: Expression, due: Sequence[Expression], keras: Expression) -> Expression | None:
        """What makes a tensor of torch's that both have, where that is the operation due, of an operand due, or of one made so; else None."""
        if leaf.name or leaf.tensor is None:
            return None
        made = self._readers[1].read(leaf.tensor, is_root=True)
        if not made.name or made.name != keras.name:
            return None
        pairs = itertools.product(made.operands, due)
        deeper = zip(made.operands, keras.operands, strict=False)
        is_so = any(alike(*pair) for pair in pairs) or any(
            self._made_as(one, other.operands, other) is not None for one, other in deeper
        )
        return made if is_so else None

    def _rounded(self, found: Difference) -> float:
        """How far two constants are apart, that no input or trained weight is part of, by rounding to float32 alone; 0.0 where that is not so."""
        constant = self._is_constant(found.torch) and self._is_constant(found.keras)
        if not constant or found.torch.tensor is None or found.keras.tensor is None:
            return 0.0
        (theirs,), (ours,) = self.torch.values(found.torch.tensor), self.keras.values(found.keras.tensor)
        each = (tensor_deviation(array, theirs) for array in arrangements(ours, theirs.shape))
        apart = min(each, default=math.inf)
        # A table is made of angles of some periods, each rounded.
        most = limits.ROUNDED_CONSTANT if theirs.size == 1 else limits.ULPS_OF_FLOAT32 * _FLOAT32
        return apart if apart <= most else 0.0

    @cached_property
    def _buffers(self) -> set[str]:
        return {info.name for outline in self.bench.outlines for info in outline.tensors if info.buffer}

    def _is_constant(self, made: Expression) -> bool:
        """Whether no input or trained weight is part of it."""
        leaves = (part for part in made.parts() if not part.name)
        return all(
            part.number is not None or part.text.startswith(UNNAMED) or part.text in self._buffers
            for part in leaves
        )

    @property
    def has_ends(self) -> bool:
        """Whether both passes have what is compared at the place, as code may make it outside of all operations."""
        return None not in self._ends

    @property
    def computes_nothing(self) -> bool:
        """Whether torch has at the place what both have before it."""
        return self._ends[1] is not None and self._shared.of_torch(self._ends[1]) is not None

    def as_read(self, layers: tuple[str, ...]) -> list[Attribution]:
        """The differences of what both compute at the place, where no number of one fits the other, or torch computes nothing."""
        roots = True, not self.computes_nothing
        ours, theirs = (
            reader.read(end, is_root=root)
            for reader, end, root in zip(self._readers, self._ends, roots, strict=True)
            if end is not None
        )
        own, due = self._place.own.shape, self._place.due.shape
        of = f", and of the shapes {own} and {due}" if sorted(own) != sorted(due) else ""
        evidence = f"read from both passes: of equal tensors{of}"
        return [
            Attribution(explanation_of(each, theirs, evidence, layers, confirmed=False))
            for each in self._opened(theirs, ours)
        ]


def _outline(torch: Expression, keras: Expression) -> tuple[tuple[str, ...], ...]:
    """What two expressions are made by, by name: alike in each round of a loop."""
    return tuple((each.name, *(operand.name for operand in each.operands)) for each in (torch, keras))
