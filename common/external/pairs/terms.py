"""Two numbers, as losses are, term by term: however each side puts its sum together, terms of one value are one.

A sum is linear: a mean of sums is a sum of means, and a factor may stand before or behind it. So a number is read as a sum of factors
times the sums of all elements of tensors, and what is left of both sides once equal terms are taken away is what is computed otherwise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from parity.common.diagnosis import limits
from parity.common.external.pairs.computations import Computation
from parity.common.external.pairs.differences import Difference, differences
from parity.common.external.pairs.expressions import Expression

# Of more terms on both sides it is not told which is which.
_MOST = 3
_EQUAL = "; all other terms of both are equal"
_SAME_SUM = "; these terms are one sum divided by these two numbers"


@dataclass(frozen=True)
class Term:
    """A factor times the sum of all elements of a tensor, of its own shape; of a number, that number."""

    factor: float
    of: Expression
    total: float

    @property
    def value(self) -> float:
        return self.factor * self.total

    def told(self) -> Expression:
        """As someone would write it: a factor times a sum or a mean."""
        size = math.prod(self.of.shape)
        sums = [
            (Expression(name, (self.of,), line=self.of.line), by) for name, by in (("sum", 1), ("mean", size))
        ]
        whole = [(self.of, 1)] if size == 1 else sums
        one, factor = min(
            ((each, self.factor * by) for each, by in whole), key=lambda told: len(f"{abs(told[1]):.12g}")
        )
        if math.isclose(factor, 1.0, rel_tol=limits.SAME_NUMBER):
            return one
        return Expression("mul", (Expression(number=factor), one), line=self.of.line)


def by_terms(
    sides: tuple[Computation, Computation], keras: Expression, torch: Expression
) -> list[Difference]:
    """Return in which terms two numbers differ; nothing where they are no sums, or have no terms that stand for each other.

    Args:
        sides: of Keras and of torch.
        keras, torch: what both compute, each one number.
    """
    ours, theirs = (_terms(side, 1.0, each) or [] for side, each in zip(sides, (keras, torch), strict=True))
    close = limits.SAME_ELEMENTS * max((abs(term.value) for term in (*ours, *theirs)), default=0.0)
    more, less = _rest(theirs, ours, close)
    if max(len(ours), len(theirs)) < 2:
        return []
    found = []
    for one in list(more):
        other = next((each for each in less if _is_same(one, each)), None)
        if other is not None:
            more.remove(one)
            less.remove(other)
            found.append(Difference("number", one.told(), other.told(), shown=_EQUAL))
    pairs = _paired(more, less)
    if len(found) + max(len(more), len(less)) > _MOST or (len(more) == len(theirs) and pairs is None):
        return []
    if more and less:
        if pairs is None:
            return [*found, Difference("other", _sum(more), _sum(less))]
        return [*found, *itertools.chain.from_iterable(itertools.starmap(_apart, pairs))]
    if more:
        found.append(Difference("term_too_much", _sum(more), _nothing(keras), shown=_EQUAL))
    if less:
        found.append(Difference("term_left_out", _nothing(torch), _sum(less), shown=_EQUAL))
    return found


def _nothing(instead: Expression) -> Expression:
    return replace(instead, name="", operands=(), text="nothing")


def _terms(side: Computation, factor: float, made: Expression) -> list[Term] | None:
    """What a factor times the sum of all elements of an expression is a sum of; None where nothing of it was measured."""
    total = _total(side, made)
    found: list[Term] | None = []
    for each in [] if made.same is not None else _opened(factor, made):
        part = _terms(side, *each)
        found = None if found is None or part is None else found + part
    if found and (
        total is None or math.isclose(sum(t.value for t in found), factor * total, rel_tol=limits.FITS)
    ):
        return found
    if total is None:
        return None
    return [Term(factor, made, total)] if factor * total else []


def _total(side: Computation, made: Expression) -> float | None:
    """The sum of all elements of an expression, as it is used; None where it was not measured."""
    if made.tensor is None:
        return made.number
    (value,) = side.values(made.tensor)
    # Where it is broadcast, each element counts several times.
    return float(value.sum()) * math.prod(made.shape) / value.size


def _opened(factor: float, made: Expression) -> list[tuple[float, Expression]]:
    """What a factor times the sum of an expression's elements is a sum of, one step inwards; nothing where it is no sum."""
    size, operands = math.prod(made.shape), made.operands
    numbers = [each.number for each in operands if each.number is not None and not each.text]
    rest = [each for each in operands if each.number is None or each.text]
    if made.name in ("sum", "mean") and len(operands) == 1:
        of = math.prod(operands[0].shape) / size if made.name == "mean" else 1
        return [(factor / of, operands[0])]
    if made.name == "neg" and len(operands) == 1:
        return [(-factor, operands[0])]
    if made.name in ("stack", "concat"):
        return [(factor, each) for each in operands]
    if made.name == "mul" and len(rest) == 1:
        return [(factor * math.prod(numbers) * size / math.prod(rest[0].shape), rest[0])]
    if made.name == "div" and len(operands) == 2 and operands[1].number and not operands[1].text:
        return [(factor / operands[1].number, operands[0])]
    if made.name in ("add", "sub"):
        signs = [1, *([1 if made.name == "add" else -1] * (len(operands) - 1))]
        return [
            (factor * sign * size / math.prod(each.shape), each)
            for sign, each in zip(signs, operands, strict=True)
        ]
    return []


def _rest(ones: Sequence[Term], others: Sequence[Term], close: float) -> tuple[list[Term], list[Term]]:
    """The terms of each side that the other has not."""
    left, right = [], list(others)
    for one in ones:
        match = next((each for each in right if abs(each.value - one.value) <= close), None)
        if match is None:
            left.append(one)
        else:
            right.remove(match)
    return left, right


def _is_same(one: Term, other: Term) -> bool:
    """Whether two terms are sums of the same numbers, with other factors."""
    return math.isclose(one.total, other.total, rel_tol=limits.SAME_ELEMENTS) or math.isclose(
        one.total * math.prod(other.of.shape),
        other.total * math.prod(one.of.shape),
        rel_tol=limits.SAME_ELEMENTS,
    )


def _apart(one: Term, other: Term) -> list[Difference]:
    """In what two terms differ that stand for each other, of torch and of Keras."""
    # A mean over some of the rows, as of those that no index says to ignore, is the same sum by another whole number.
    for size in {math.prod(one.of.shape), math.prod(other.of.shape)} - {1}:
        ratio = one.value / other.value
        for number, counts in ((size / ratio, (size / ratio, size)), (size * ratio, (size, size * ratio))):
            whole = round(number)
            if 0 < whole < size and math.isclose(number, whole, rel_tol=limits.SAME_ELEMENTS):
                torch, keras = (
                    Expression(number=round(count), line=term.of.line)
                    for count, term in zip(counts, (one, other), strict=True)
                )
                return [Difference("divisor", torch, keras, shown=_SAME_SUM)]
    if math.isclose(one.factor, other.factor):
        return differences(one.of, other.of)
    # torch's functions of a mean are one operation, of which the terms were not measured; what is a quotient of sums is none.
    found = differences(one.told(), other.told())
    clear = not {each.kind for each in found} & {"mask", "divisor"}
    return found if clear else [Difference("other", one.told(), other.told())]


def _paired(ones: Sequence[Term], others: Sequence[Term]) -> list[tuple[Term, Term]] | None:
    """Which terms stand for each other, by the tensors that they are made of; None where that is not clear."""
    if len(ones) != len(others):
        return None
    left, found = list(others), list[tuple[Term, Term]]()
    for one in sorted(ones, key=lambda term: -len(term.of.shared)):
        alike = [(each.of.name == one.of.name, (each.of.shared & one.of.shared).total()) for each in left]
        best = max(alike)
        if len(left) > 1 and alike.count(best) > 1:
            return None
        found.append((one, left.pop(alike.index(best))))
    return found


def _sum(terms: Sequence[Term]) -> Expression:
    """Terms as one expression, of the first one's line."""
    told = [each.told() for each in terms]
    return told[0] if len(told) == 1 else Expression("add", tuple(told), line=told[0].line)
