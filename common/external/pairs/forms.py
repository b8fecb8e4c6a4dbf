"""Of expressions that both frameworks' code has in other forms one: means, variances, signs, masks, leaky ReLUs, scaled products, logarithms of sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from parity.common.diagnosis import limits
from parity.common.external.pairs.expressions import Expression, is_far_below

_REDUCING = ("sum", "mean", "max", "min", "prod")


def simplified(made: Expression) -> Expression:
    """What both frameworks' code has in other forms in one: means, reductions to one number, masks, scaled products, logarithms of sums."""
    if made.name == "div" and made.operands[0].name == "sum" and made.operands[0].operands:
        of = made.operands[0].operands[0]
        if made.operands[1].number == math.prod(of.shape) / math.prod(made.shape):
            return simplified(replace(made.operands[0], name="mean", shape=made.shape))
    if made.name in _REDUCING and math.prod(made.shape) == 1 and made.operands:
        inner = made.operands[0]
        if inner.name == made.name != "sum" and inner.operands:
            made = replace(made, operands=inner.operands)
        made = replace(made, settings=())
    made = _without_signs(made)
    simpler = _SIMPLER.get(made.name)
    return made if simpler is None else simpler(made)


def _without_signs(made: Expression) -> Expression:
    """What is linear in an operand that has the other sign, with that of the result."""
    for place, operand in enumerate(made.operands[: 1 if made.name == "div" else None]):
        if operand.name == "neg" and made.name in ("div", "mul", "mean", "sum"):
            rest = (*made.operands[:place], operand.operands[0], *made.operands[place + 1 :])
            of = simplified(replace(made, operands=rest, tensor=None))
            return replace(made, name="neg", operands=(of,), settings=())
    return made


def _deviation(made: Expression) -> Expression:
    """The root of a variance."""
    of = made.operands[0]
    return replace(made, name="std", operands=of.operands, settings=of.settings) if of.name == "var" else made


def _product(made: Expression) -> Expression:
    """A matrix product of which an operand is scaled, as the product that is scaled."""
    for place, operand in enumerate(made.operands):
        if operand.name == "mul" and len(operand.operands) == 2:
            number = next((each for each in operand.operands if each.number is not None), None)
            if number is not None:
                (scaled,) = (each for each in operand.operands if each is not number)
                chain = (*scaled.chain, *operand.chain)
                of = replace(scaled, chain=chain, shape=operand.shape)
                operands = (*made.operands[:place], of, *made.operands[place + 1 :])
                return replace(
                    made, name="mul", operands=(replace(made, operands=operands, tensor=None), number)
                )
    return made


def _masked(made: Expression) -> Expression:
    """A choice between a tensor and a number far below it: the number where something is hidden."""
    if len(made.operands) != 3:
        return made
    where, one, other = made.operands
    if where.name == "lt" and one.name == "add" and _is_same(where.operands[0], other):
        # Keras counts indices below zero from the end.
        return other
    if (slope := _slope(where, one, other)) is not None:
        return replace(made, name="leaky_relu", operands=(one,), settings=(("negative_slope", slope),))
    hides = is_far_below(other) and not is_far_below(one)
    return replace(made, operands=(opposite(where), other, one)) if hides else made


def _is_same(one: Expression, other: Expression) -> bool:
    return one.tensor is not None and one.tensor == other.tensor


def _slope(where: Expression, one: Expression, other: Expression) -> float | None:
    """By what a tensor is multiplied where it is not above zero; None where that is not what is chosen."""
    if where.name != "gt" or other.name != "mul" or where.operands[1].number != 0:
        return None
    numbers = [each.number for each in other.operands if each.number is not None]
    of = [each.tensor for each in (where.operands[0], one, *other.operands) if each.number is None]
    return numbers[0] if len(numbers) == 1 and len(of) == 3 and None not in of and len({*of}) == 1 else None


def opposite(of: Expression) -> Expression:
    """What holds where a condition does not."""
    return of.operands[0] if of.name == "not" else Expression("not", (of,), shape=of.shape, line=of.line)


def _sum(made: Expression) -> Expression:
    """A sum with what is far below zero where something is hidden, and else zero; and a logarithm of a sum of exponentials."""
    for one, other in (made.operands, made.operands[::-1]) if len(made.operands) == 2 else ():
        if one.name == "where" and is_far_below(one.operands[1]):
            kept = one.operands[2]
            # What is hidden is so whatever is added to it.
            shown = other if _filled(kept) == 0 else replace(made, operands=(other, kept), tensor=None)
            return replace(made, name="where", operands=(*one.operands[:2], shown))
        of = _reached(one, ("log", "sum", "exp", "sub"))
        # TensorFlow takes the largest off before, where it is finite, and adds it again.
        if of is not None and "is_finite" in {each.name for each in other.parts()}:
            return replace(made, name="logsumexp", operands=(of,), settings=one.operands[0].settings)
    return made


def _gelu(made: Expression) -> Expression:
    """x / 2 (1 + tanh(...)) or x / 2 (1 + erf(...)): a GELU."""
    leaves = [part for part in made.parts() if not part.name and part.number is None]
    inner = [part for part in made.parts() if part.name in ("tanh", "erf", "erfc")]
    numbers = [part.number for part in made.parts() if part.number is not None]
    of = {part.tensor for part in leaves}
    factor = _GELU.get(inner[0].name) if len(inner) == 1 else None
    if factor is None or len(of) != 1 or None in of or 0.5 not in numbers:
        return made
    if not any(
        math.isclose(number, each, rel_tol=limits.ROUNDED_CONSTANT) for number in numbers for each in factor
    ):
        return made
    settings = (("approximate", "tanh"),) if inner[0].name == "tanh" else ()
    return replace(made, name="gelu", operands=(leaves[0],), settings=settings)


def _factors(made: Expression) -> Expression:
    """A GELU; a product with a quotient as the quotient of the product: a (b / c) is b (a / c)."""
    if (found := _gelu(made)) is not made:
        return found
    for place, operand in enumerate(made.operands):
        if operand.name == "div" and operand.operands[1].number is None and not operand.chain:
            operands = (*made.operands[:place], operand.operands[0], *made.operands[place + 1 :])
            product = replace(made, operands=operands, tensor=None)
            return replace(
                operand, operands=(product, operand.operands[1]), tensor=made.tensor, shape=made.shape
            )
    return made


def _reached(made: Expression, names: tuple[str, ...]) -> Expression | None:
    """What operations of these names are made of, each of the first operand of the one before; None where they are others."""
    for name in names:
        if made.name != name or not made.operands:
            return None
        made = made.operands[0]
    return made


def _all_of(made: Expression) -> Expression:
    """What is true together with what always is, or with itself."""
    rest = [each for each in made.operands if _filled(each) != 1]
    return rest[0] if len(rest) == 1 else _once(made)


def _once(made: Expression) -> Expression:
    """A condition that is told twice, element by element, as a mask that two layers hand on."""
    one, *others = made.operands
    is_same = all((each, each.shape, each.chain) == (one, one.shape, one.chain) for each in others)
    return one if is_same and one.shape == made.shape else made


def _filled(made: Expression) -> float | None:
    """The one number of a tensor that is filled with it."""
    if made.name in _FILLED:
        return _FILLED[made.name]
    numbers = [each.number for each in made.operands if each.number is not None]
    return numbers[-1] if made.name in ("fill", "full_like") and numbers else made.number


_FILLED = {"zeros_like": 0.0, "ones_like": 1.0}
# By the function within, numbers that a GELU has there.
_GELU = {
    "tanh": (math.sqrt(2 / math.pi),),
    "erf": (math.sqrt(2), math.sqrt(0.5)),
    "erfc": (math.sqrt(2), -math.sqrt(2), math.sqrt(0.5), -math.sqrt(0.5)),
}
_SIMPLER: dict[str, Callable[[Expression], Expression]] = {
    "matmul": _product,
    "where": _masked,
    "add": _sum,
    "mul": _factors,
    "and": _all_of,
    "or": _once,
    "sqrt": _deviation,
}
