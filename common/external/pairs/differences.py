"""In what two expressions differ that should compute the same: a number, an operand, an order, an operation, something left out.

Both are made of tensors that the two models have in common. So parts of them that are no such tensor are not equal, by measurement, and
what is to be found is only where the difference begins.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from parity.common.base.words import listed
from parity.common.diagnosis import limits
from parity.common.external.pairs.expressions import (
    CAUSAL,
    COMMUTATIVE,
    FAR_BELOW,
    HIDDEN,
    PARTS,
    UNNAMED,
    Expression,
    is_far_below,
)
from parity.common.external.pairs.forms import opposite

# What a call of a layer gives: 'dense', and 'dense#1' of its second call.
_CALL = re.compile(r"([A-Za-z_][\w./]*)(#[0-9]+)?")
# Numbers of one side alone that are told.
_FEW = 2
# More differences than these in one expression are told as one.
_MOST = 3
# Settings that mean other things in other layouts.
OF_LAYOUTS = frozenset(("axis", "padding", "strides"))
# What leaves all elements in their order: axes of one element, copies, other types.
_IN_ORDER = (
    "squeeze",
    "unsqueeze",
    "expand_dims",
    "cast",
    "to_copy",
    "identity",
    "read_variable_op",
    "detach",
    "stop_gradient",
)
_ONE_BY_ONE = ("add", "sub", "mul", "div", "maximum", "minimum", "pow")
_OVER = ("softmax", "log_softmax", "sum", "mean", "max", "min", "prod", "var", "std", "logsumexp")
RECURRENT = ("lstm", "gru", "simple_rnn")
KINDS = {
    "number": "another number",
    "divisor": "another divisor",
    "mask": "a mask, or weights, in one of two means",
    "hidden": "a mask that hides on one side and multiplies on the other",
    "kept": "another condition of what is kept",
    "operand": "another tensor",
    "order": "operands exchanged",
    "shift": "operands moved by one place",
    "operation": "another operation",
    "argument": "other arguments",
    "arrangement": "elements arranged otherwise",
    "part": "another part",
    "broadcast": "shapes that are broadcast",
    "sequence": "operations in another order",
    "left_out": "something left out",
    "too_much": "something too much",
    "term_left_out": "a term left out",
    "term_too_much": "a term too much",
    "other": "another computation",
}


_OPPOSITE = {"eq": "ne", "ne": "eq", "gt": "le", "le": "gt", "lt": "ge", "ge": "lt"}
BY_ITSELF = "; each of these tried by itself"
_TERMS = ("term_left_out", "term_too_much")


@dataclass(frozen=True)
class Difference:
    """One difference: kind, of KINDS; the parts of torch's and Keras's expressions that differ, the smallest that show it.

    inner: where one does more with what both compute, and that differs too: what torch and Keras compute of it.
    shown: what says of this one by itself that it differs, '' where nothing was tried. apart: how torch's result is made of Keras's, '' where it
    is so in no plain way.
    """

    kind: str
    torch: Expression
    keras: Expression
    inner: tuple[Expression, Expression] | None = None
    shown: str = ""
    apart: str = ""

    # What else differs inside of what both compute is left out.
    @property
    def _torch_told(self) -> str:
        deeper = self.kind in ("too_much", "sequence")
        if self.kind == "left_out" and (called := _called_in(self.keras, self.torch)):
            return called
        return str(self.torch) if self.inner is None else self.torch.told(1 + deeper)

    @property
    def _keras_told(self) -> str:
        deeper = self.kind in ("left_out", "sequence")
        if self.kind == "too_much" and (called := _called_in(self.torch, self.keras)):
            return called
        return str(self.keras) if self.inner is None else self.keras.told(1 + deeper)

    def _over(self, part: Expression) -> str:
        """Over how many numbers a softmax or a sum is taken, where both are one: a kernel's axes stand in another order, and TensorFlow's softmax is
        over the last axis, to which its code moves another.
        """
        shape = part.operands[0].shape if part.operands else ()
        usual = -1 if "softmax" in part.name else [*range(len(shape))]
        axis = dict(part.settings).get("axis", usual)
        axes = axis if isinstance(axis, list | tuple) else [axis]
        both = self.torch.name == self.keras.name and part.name in _OVER
        if (
            not both
            or not axes
            or not all(isinstance(each, int) and -len(shape) <= each < len(shape) for each in axes)
        ):
            return ""
        count = math.prod(shape[each] for each in axes)
        return f" over {count} number{'s' * (count != 1)}"

    @property
    def due(self) -> str:
        """What Keras computes, as torch has it."""
        if self.kind == "arrangement" and not self.keras.name:
            return ", then ".join([str(self.keras), *self.keras.chain])
        if self.kind == "arrangement":
            return _as_arranged(self.keras)
        if self.kind == "mask" and self.torch.name == "mean":
            return f"the mean by that mask or weights, {self._keras_told},"
        if self.kind == "divisor":
            return f"a sum divided by {self._keras_told}"
        if _is_read_of(self.torch, self.keras):
            return f"the last states of {_states_of(self.keras)} (h_n[-1]; of both directions torch.cat([h_n[-2], h_n[-1]], -1))"
        if self.torch.name == self.keras.name == "tile" and (times := _in_turn(self.keras)):
            return f"{self.keras.operands[0]}.repeat_interleave({times}), each part again and again; torch's repeat gives the whole again,"
        return f"{self._keras_told}{self._over(self.keras)}"

    def __str__(self) -> str:
        both = {"number": "has", "operand": "takes", "divisor": "divides by"}.get(self.kind, "computes")
        goes_on, due = ("goes on with" if self.kind == kind else both for kind in ("left_out", "too_much"))
        shown = [
            _as_arranged(part) if self.kind == "arrangement" else f"{told}{self._over(part)}"
            for part, told in ((self.torch, self._torch_told), (self.keras, self._keras_told))
        ]
        if self.kind in _TERMS:
            side, other, part = (
                ("torch", "Keras", shown[0]) if self.kind == "term_too_much" else ("Keras", "torch", shown[1])
            )
            return f"{KINDS[self.kind]}: {side} adds {part}, and {other} does not"
        if self.kind == "part" and _is_read_elsewhere(self.torch, self.keras):
            shown[1] = self.due.partition(" (")[0]
        if self.kind == "broadcast":
            shown = [
                f"{_size(part)} of {' and '.join(map(_size, part.operands))}"
                for part in (self.torch, self.keras)
            ]
            return f"{KINDS[self.kind]}: {self.torch.name} of torch makes {shown[0]}, and that of Keras {shown[1]}"
        if shown[0] == shown[1]:
            return f"{KINDS[self.kind]}: {shown[0]} gives other numbers in torch than in Keras"
        if self.kind == "operand" and self.torch.name and self.torch.line:
            shown[0] += f" (of {self.torch.line})"
        return f"{KINDS[self.kind]}: torch {goes_on} {shown[0]} where Keras {due} {shown[1]}{self.spread}{self._numbers}{self._apart}"

    @property
    def _apart(self) -> str:
        return f"; torch's result is {self.apart}" if self.apart else ""

    @property
    def _numbers(self) -> str:
        """The few numbers that one side alone has, which nobody finds in a long formula."""
        ours, theirs = (
            {
                float(f"{n:.6g}")
                for part in side.parts()
                if (n := part.number) not in (None, 0, 1) and not is_far_below(part)
            }
            for side in (self.keras, self.torch)
        )
        alone = sorted(theirs - ours), sorted(ours - theirs)
        if self.kind != "other" or not all(0 < len(each) <= _FEW for each in alone):
            return ""
        told = [" and ".join(f"{number:g}" for number in each) for each in alone]
        return f"; of numbers torch alone has {told[0]}, and Keras alone {told[1]}"

    @property
    def spread(self) -> str:
        """That one side alone makes every pair of two rows of numbers, which nobody sees in a formula: of (n, 1) and (n,)."""
        if self.kind != "other":
            return ""
        first = [
            next((each for each in part.parts() if _is_broadcast(each) and _of_other_ranks(each)), None)
            for part in (self.torch, self.keras)
        ]
        told = [(side, one) for side, one in zip(("torch", "Keras"), first, strict=True) if one is not None]
        if len(told) != 1:
            return ""
        ((side, one),) = told
        return f"; {one.name} of {side} makes {_size(one)} of {' and '.join(map(_size, one.operands))}"


def _states_of(made: Expression) -> str:
    """The recurrent layer whose last states these are, of both directions, too; '' where they are none."""
    parts = made.operands if made.name == "concat" else (made,)
    names = {part.name for part in parts}
    return next(iter(names)) if len(names) == 1 and names <= {*RECURRENT} else ""


def _is_read_of(torch: Expression, keras: Expression) -> bool:
    """Whether a part of what a recurrent layer gives over time stands for its last states, which may be elsewhere."""
    of = _states_of(keras)
    if torch.name not in (*PARTS, "gather") or not of:
        return False
    # What both models have over time is told by the layer's name.
    known = keras.name == "concat" and torch.operands[0].same is not None and not torch.operands[0].name
    return known or any(part.name == of for part in torch.parts())


def _is_read_elsewhere(torch: Expression, keras: Expression) -> bool:
    """Whether that is all that differs."""
    if not _is_read_of(torch, keras):
        return False
    return keras.name == "concat" or any(
        part.name == keras.name and _rest(part.operands, keras.operands) == ([], []) for part in torch.parts()
    )


def _are_last_states(torch: Expression, keras: Expression) -> bool:
    """Whether torch takes the last states of a recurrent layer, joined or one, where Keras takes a part of what such a layer gives over time."""
    parts = torch.operands if torch.name == "concat" else (torch,)
    states = all(part.text.startswith(tuple(f"{name}(" for name in RECURRENT)) for part in parts)
    return bool(parts) and states and keras.name in PARTS and keras.operands[0].same is not None


def differences(torch: Expression, keras: Expression) -> list[Difference]:
    """Return where two expressions that do not compute the same differ; one difference of kind 'other' where that is not clear.

    What differs in the `inner` of one is not among them.
    """
    found = _differences(torch, keras, set()) or [Difference("other", torch, keras)]
    return [_of_another_call(each) if each.kind == "other" else each for each in found]


def _of_another_call(other: Difference) -> Difference:
    """The same; where the two are of other calls of layers, each of one call, that."""
    calls = [
        {*_CALL.findall(" ".join(part.text for part in side.parts()))} for side in (other.torch, other.keras)
    ]
    repeated = sorted({layer for side in calls for layer, number in side if number})
    told = [
        [layer + number for layer in repeated for each, number in side if each == layer] for side in calls
    ]
    if not repeated or not len(told[0]) == len(told[1]) == len(repeated) or {*told[0]} & {*told[1]}:
        return other
    theirs, ours = (
        Expression(text=listed(names), line=side.line)
        for names, side in zip(told, (other.torch, other.keras), strict=True)
    )
    return replace(other, kind="operand", torch=theirs, keras=ours)


def _differences(torch: Expression, keras: Expression, seen: set[tuple[int, int]]) -> list[Difference]:
    """The same; none of two tensors that were seen before: what a loop computes is a part of all that comes after it."""
    if torch.tensor is not None and keras.tensor is not None:
        if (torch.tensor, keras.tensor) in seen:
            return []
        seen.add((torch.tensor, keras.tensor))
    quotients = _as_quotient(torch, keras), _as_quotient(keras, torch)
    if quotients[0] is not torch or quotients[1] is not keras:
        found = _of_one_operation(*quotients, set(seen))
        divisors = [each.operands[1] for each in quotients]
        if len(found) == 1 and found[0].keras is divisors[1]:
            return [replace(found[0], kind="divisor")]
        hides = len(found) == 2 and found[0].kind in ("left_out", "too_much")
        if hides and (found[1].torch, found[1].keras) == tuple(divisors):
            return [Difference("mask", torch, keras)]
    torch, keras = _as_product(torch, keras), _as_product(keras, torch)
    if torch.name == keras.name and _is_broadcast(torch) and not _is_broadcast(keras):
        return [Difference("broadcast", torch, keras)]
    if torch.number is not None and keras.number is not None:
        return [Difference("operand" if torch.text or keras.text else "number", torch, keras)]
    if not torch.name and not keras.name:
        # Constants that are called alike for want of a name.
        unnamed = "number" if torch.text.startswith(UNNAMED) else "arrangement"
        one = torch.text == keras.text or alike(torch, keras)
        return [Difference(unnamed if one else "operand", torch, keras)]
    if _holds(keras, torch):
        return [Difference("left_out", torch, keras)]
    if _holds(torch, keras):
        return [Difference("too_much", torch, keras)]
    if torch.name == keras.name:
        return _of_one_operation(torch, keras, seen)
    if _is_hidden_otherwise(torch, keras) or _is_hidden_otherwise(keras, torch):
        return [Difference("hidden", torch, keras)]
    if (conditions := _conditions(torch, keras)) is not None:
        return [Difference("kept", replace(conditions[0], line=torch.line), conditions[1])]
    if torch.name and keras.name and _rest(torch.operands, keras.operands) == ([], []):
        return [Difference("operation", torch, keras)]
    if _exchanged(torch, keras):
        return [Difference("sequence", torch, keras, _within_both(torch, keras))]
    if _is_read_elsewhere(torch, keras) or _are_last_states(torch, keras):
        return [Difference("part", torch, keras)]
    # A part is taken of what should be the same.
    if _is_part_of(torch, keras):
        return _differences(torch.operands[0], keras, seen)
    if _is_part_of(keras, torch):
        return _differences(torch, keras.operands[0], seen)
    # A function of what should be the same, and more inside of it.
    if (inner := _inside(keras, torch)) is not None:
        more = _that_show(keras, inner, _differences(torch, inner, seen))
        more = [each for each in more if not is_weak(each)]
        of = (torch, inner) if more else None
        return [Difference("left_out", replace(inner, line=torch.line), keras, of)]
    if (inner := _inside(torch, keras)) is not None:
        of = (inner, keras) if _differences(inner, keras, seen) else None
        return [Difference("too_much", torch, replace(inner, line=keras.line), of)]
    return [Difference("other", torch, keras)]


def _as_quotient(mean: Expression, other: Expression) -> Expression:
    """A mean as a sum that is divided, where the other is one."""
    if mean.name != "mean" or other.name != "div" or other.operands[0].name != "sum":
        return mean
    terms = math.prod(mean.operands[0].shape) / math.prod(mean.shape)
    of = replace(mean, name="sum", tensor=None)
    return replace(mean, name="div", operands=(of, Expression(number=terms)), settings=())


def _as_product(quotient: Expression, other: Expression) -> Expression:
    """What is divided by a number, as a product, where the other is one."""
    if quotient.name != "div" or other.name != "mul" or not quotient.operands[1].number:
        return quotient
    if not any(each.number is not None for each in other.operands):
        return quotient
    factor = Expression(number=1 / quotient.operands[1].number)
    return replace(quotient, name="mul", operands=(quotient.operands[0], factor))


def _in_turn(tile: Expression) -> str:
    """How torch's `repeat_interleave` is called for repeats along an axis of one, each part of the axis before; '' for others."""
    times, shape = dict(tile.settings).get("times"), tile.operands[0].shape
    places = [n for n, each in enumerate(times) if each != 1] if isinstance(times, list) else []
    if len(places) != 1 or not isinstance(times, list) or len(times) != len(shape) or shape[places[0]] != 1:
        return ""
    before = sum(size > 1 for size in shape[: places[0]])
    return f"{times[places[0]]}, dim={before - 1}" if before else ""


def _is_broadcast(made: Expression) -> bool:
    """Whether the result of numbers one by one is larger than any of them: (n, 1) and (n,) make (n, n)."""
    # Of what was read out of one operation the shape is not known.
    sizes = [math.prod(each.shape) for each in made.operands if each.shape]
    known = len(sizes) == len(made.operands) > 1
    return made.name in _ONE_BY_ONE and known and math.prod(made.shape) > max(sizes)


def _of_other_ranks(made: Expression) -> bool:
    """Whether what is broadcast has as many numbers each, but not as many axes."""
    return (
        len({math.prod(each.shape) for each in made.operands}) == 1
        and len({len(each.shape) for each in made.operands}) > 1
    )


def _inside(outer: Expression, inner: Expression) -> Expression | None:
    """What a function of one tensor is given, where that is computed as another expression is; None where it is not so."""
    given = [each for each in outer.operands if each.number is None]
    of_name = [each for each in given if each.name == inner.name]
    if outer.name in ("add", "mul", "where") and len(given) == 2 and len(of_name) == 1:
        # A sum with a tensor that both have, and that the other is not made of; or what is hidden.
        (other,) = (each for each in given if each is not of_name[0])
        hides = outer.name == "where" and other is given[0]
        added = outer.name != "where" and not other.name and other.same is not None
        both = of_name[0].shared & inner.shared
        return of_name[0] if both and (hides or added) and not _holds(inner, other) else None
    if len(given) != 1 or outer.name in PARTS or not inner.name or given[0].name != inner.name:
        return None
    ours, others = _flat(given[0]), _flat(inner)
    more, less = _rest(ours, others)
    shared = [each for each in others if each.same is not None and any(alike(each, one) for one in ours)]
    return given[0] if shared and len(more) == len(less) else None


def _that_show(function: Expression, given: Expression, found: list[Difference]) -> list[Difference]:
    """Of the differences in what a function of Keras's is given, those that its result shows: a square drops the sign that exchanged operands give."""
    numbers = [each.number for each in function.operands if each.number is not None]
    even = function.name in ("abs", "square") or (function.name == "pow" and numbers == [2])
    signs = even and given.name == "sub"
    return [each for each in found if not (signs and each.kind == "order" and each.keras is given)]


def _within_both(torch: Expression, keras: Expression) -> tuple[Expression, Expression] | None:
    """Of f(g(x)) and g(f(y)) x and y, where these differ too."""
    (theirs,), (ours,) = ([each for each in whole.operands if each.name] for whole in (torch, keras))
    due = [inner for each in keras.operands for inner in (each.operands if each is ours else (each,))]
    more, less = _rest([*theirs.operands, *(each for each in torch.operands if each is not theirs)], due)
    return (more[0], less[0]) if len(more) == len(less) == 1 else None


def _is_part_of(part: Expression, whole: Expression) -> bool:
    if part.name not in PARTS or not part.operands or part.operands[0].name != whole.name:
        return False
    return _rest(part.operands[0].operands, whole.operands) != ([], [])


def _of_one_operation(torch: Expression, keras: Expression, seen: set[tuple[int, int]]) -> list[Difference]:
    theirs, ours = _flat(torch), _flat(keras)
    more, less = _rest(theirs, ours)
    if torch.name in RECURRENT and len(more) == 1 and len(less) == 2 and more[0].text == less[0].text != "":
        # What torch reverses itself, and a mask.
        return [Difference("left_out", torch, keras)]
    if not more and not less:
        in_order = all(alike(one, other) for one, other in zip(theirs, ours, strict=True))
        if not in_order and torch.name not in COMMUTATIVE:
            return [Difference("order", torch, keras)]
        told = torch.settings != keras.settings
        # A factor in torch's `add` is part of it and was not measured.
        measured = None not in (torch.tensor, keras.tensor)
        if not (told or measured) and torch.name in (*COMMUTATIVE, "sum"):
            return []
        # One operand alone is broadcast to nothing.
        arranged = any(map(_is_moved if len(theirs) == 1 else _are_arranged_otherwise, theirs, ours))
        return [Difference("argument" if told else "arrangement" if arranged else "other", torch, keras)]
    if not more:
        return [Difference("left_out", torch, keras)]
    if not less:
        return [Difference("too_much", torch, keras)]
    if torch.name not in COMMUTATIVE and (_is_shifted(theirs, ours) or _is_shifted(ours, theirs)):
        return [Difference("shift", torch, keras)]
    pairs = _paired(more, less) or _in_places(torch, keras, more, less)
    if pairs is None:
        return [Difference("other", torch, keras)]
    found = [
        each for one, other in pairs for each in _that_show(keras, other, _differences(one, other, seen))
    ]
    found = [each for each in found if not is_weak(each)] or found
    if len(found) == 2 and {each.kind for each in found} == {"operand"}:
        one, other = found
        if alike(one.torch, other.keras) and alike(one.keras, other.torch):
            return [Difference("order", torch, keras)]
    said = [{name: _plain(value) for name, value in e.settings} for e in (torch, keras)]
    if any(said[0][name] != said[1][name] for name in said[0].keys() & said[1].keys() - OF_LAYOUTS):
        found.append(Difference("argument", torch, keras))
    if torch.name not in COMMUTATIVE and _moved(theirs, ours, pairs):
        found.insert(0, Difference("order", torch, keras))
    distinct = {_repeated(each): each for each in reversed(found)}
    return list(distinct.values())[::-1] if len(distinct) <= _MOST else [Difference("other", torch, keras)]


def _repeated(found: Difference) -> tuple[str, ...]:
    """What is alike where the same lines of code, as in a loop, make a difference again."""
    lines = (found.torch.line, found.keras.line)
    if not all(lines):
        return found.kind, str(found)
    return found.kind, found.torch.name, found.keras.name, *lines


def _is_hidden_otherwise(product: Expression, hiding: Expression) -> bool:
    """Whether one multiplies what the other hides by a number far below all others, which a softmax takes otherwise: of zero it gives a share."""
    if product.name != "mul" or hiding.name not in ("add", "sub", "where"):
        return False
    far = any(part.number is not None and abs(part.number) >= -FAR_BELOW for part in hiding.parts())
    return far and any(alike(one, other) for one in product.operands for other in hiding.operands)


def _conditions(torch: Expression, keras: Expression) -> tuple[Expression, Expression] | None:
    """The conditions by which both keep the same tensor, one by a choice and one by a product, and are zero elsewhere; None where they do not."""
    for one, other in itertools.product(_kept(torch), _kept(keras)):
        known = [each for each in (one, other) if each[1].name in (*_OPPOSITE, "not")]
        of_one = any(alike(one[1], each) for each in (other[1], _not(other[1])))
        if alike(one[0], other[0]) and (of_one or len(known) == 2):
            return one[1], other[1]
    return None


def _kept(made: Expression) -> list[tuple[Expression, Expression]]:
    """What is zero where a condition does not hold, and that condition; of a product, which of the two it is it does not say."""
    if made.name == "where" and len(made.operands) == 3:
        condition, one, other = made.operands
        if one.number == 0:
            return [(other, _not(condition))]
        return [(one, condition)] if other.number == 0 else []
    return [made.operands, made.operands[::-1]] if made.name == "mul" and len(made.operands) == 2 else []


def _not(condition: Expression) -> Expression:
    """Its opposite, a comparison as the other comparison."""
    if condition.name in _OPPOSITE:
        return replace(condition, name=_OPPOSITE[condition.name], tensor=None)
    return opposite(condition)


def _called_in(whole: Expression, part: Expression) -> str:
    """How an operand is called that is what the other side goes on with; '' where there is none."""
    return next((each.text for each in whole.operands if each.text and alike(each, part)), "")


def alike(one: Expression, other: Expression) -> bool:
    """Whether two expressions are one tensor that both models have, or the same number, or masks that are called alike."""
    if not one.name and one.text == other.text and one.text in (CAUSAL, HIDDEN):
        return True
    if one.name == other.name == "not":
        return alike(one.operands[0], other.operands[0])
    if one.number is not None and other.number is not None:
        if one.number == other.number:
            return True
        largest = max(abs(one.number), abs(other.number))
        return abs(one.number - other.number) <= limits.SAME_NUMBER * largest
    if one.same is not None or other.same is not None:
        return one.same == other.same
    # What was read out of one operation was not measured: numbers one by one of the same are the same.
    return (
        None in (one.tensor, other.tensor)
        and one.name == other.name
        and one.name in _ONE_BY_ONE
        and len(one.operands) == len(other.operands)
        and all(alike(*each) for each in zip(one.operands, other.operands, strict=True))
    )


def _are_arranged_otherwise(torch: Expression, keras: Expression) -> bool:
    """Whether the elements of what is one tensor may be in another order, or along another axis."""
    return _is_moved(torch, keras) or torch.shape != keras.shape


def _is_moved(torch: Expression, keras: Expression) -> bool:
    return any(not step.startswith(_IN_ORDER) for each in (torch, keras) for step in each.chain)


def _as_arranged(expression: Expression) -> str:
    """An expression, with how it or its operands are arranged, for a sentence."""
    told = [
        ", then ".join([str(each), *each.chain]) if each.chain else f"{each} of shape {_size(each)}"
        for each in expression.operands or (expression,)
    ]
    return f"{expression} (of {'; '.join(told)})" if expression.operands else told[0]


def _size(expression: Expression) -> str:
    return "x".join(map(str, expression.shape)) or "one number"


def _plain(value: object) -> object:
    return value[0] if isinstance(value, list | tuple) and len(value) == 1 else value


def _holds(whole: Expression, part: Expression) -> bool:
    """Whether a tensor that both have stands in an expression."""
    return bool(whole.name) and part.same is not None and any(alike(each, part) for each in whole.parts())


def _flat(expression: Expression) -> list[Expression]:
    """The operands; of sums of sums, and products of products, of all of them, with their numbers as one."""
    if expression.name not in COMMUTATIVE:
        return list(expression.operands)
    found = []
    for each in expression.operands:
        found += _flat(each) if each.name == expression.name else [each]
    numbers = [each.number for each in found if each.number is not None and not each.text]
    if expression.name not in ("add", "mul") or len(numbers) < 2:
        return found
    number = math.prod(numbers) if expression.name == "mul" else math.fsum(numbers)
    return [each for each in found if each.number is None or each.text] + [Expression(number=number)]


def _rest(
    ones: Sequence[Expression], others: Sequence[Expression]
) -> tuple[list[Expression], list[Expression]]:
    """What each of two lists has that the other has not."""
    left, right = [], list(others)
    for one in ones:
        match = next((n for n, other in enumerate(right) if alike(one, other)), None)
        if match is None:
            left.append(one)
        else:
            del right[match]
    return left, right


def _paired(
    more: Sequence[Expression], less: Sequence[Expression]
) -> list[tuple[Expression, Expression]] | None:
    """What stands for what of two lists; None where that is not clear."""
    if len(more) != len(less):
        return None
    # By how much something is hidden goes with that of the other.
    pairs = list(zip(filter(is_far_below, more), filter(is_far_below, less), strict=False))
    paired = {id(each) for pair in pairs for each in pair}
    rest, open_ = ([each for each in side if id(each) not in paired] for side in (more, less))
    for one in sorted(rest, key=lambda each: not each.name):
        match = next((n for n, other in enumerate(open_) if other.name == one.name), None)
        if match is None and len(open_) > 1:
            return None
        pairs.append((one, open_.pop(match or 0)))
    return pairs


def _in_places(
    torch: Expression, keras: Expression, more: Sequence[Expression], less: Sequence[Expression]
) -> list[tuple[Expression, Expression]] | None:
    """What stands for what where all operands differ alike, as a query and a key do that are rotated in another way; None elsewhere."""
    if torch.name in COMMUTATIVE or not len(more) == len(less) == len(torch.operands) == len(keras.operands):
        return None
    pairs = list(zip(torch.operands, keras.operands, strict=True))
    return pairs if len({(one.name, other.name) for one, other in pairs}) == 1 else None


def is_weak(found: Difference) -> bool:
    """Whether it counts only where that is all: by how much something is hidden, or an order within one operation, which was not measured."""
    if found.kind == "arrangement":
        return bool(found.torch.name) and None in (found.torch.tensor, found.keras.tensor)
    return found.kind == "number" and is_far_below(found.torch) and is_far_below(found.keras)


def _moved(
    theirs: Sequence[Expression], ours: Sequence[Expression], pairs: Sequence[tuple[Expression, Expression]]
) -> bool:
    """Whether operands that both have, or that stand for each other, are at other places."""
    if len(theirs) != len(ours):
        return False
    together = {id(one): other for one, other in pairs}
    return not all(
        alike(one, other) or together.get(id(one)) is other for one, other in zip(theirs, ours, strict=True)
    )


def _is_shifted(ones: Sequence[Expression], others: Sequence[Expression]) -> bool:
    """Whether one list without its first is the other without its last, as steps that are kept before or after an update.

    One step may differ in something else, and then so do those behind it: but for these two at least.
    """
    equal = sum(map(alike, ones[1:], others))
    return len(ones) == len(others) > 2 and equal >= max(2, len(ones) - 2)


def _exchanged(torch: Expression, keras: Expression) -> bool:
    """Whether one is f(g(x)) and the other g(f(x))."""
    inner = [[each for each in e.operands if each.name] for e in (torch, keras)]
    if len(inner[0]) != 1 or len(inner[1]) != 1:
        return False
    (one,), (other,) = inner
    if (torch.name, one.name) != (other.name, keras.name):
        return False
    leaves = [[part for part in e.parts() if not part.name and part.number is None] for e in (torch, keras)]
    return _rest(*leaves) == ([], [])
