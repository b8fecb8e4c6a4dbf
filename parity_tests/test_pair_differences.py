"""In what two formulas differ: each kind, and what is no difference."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from parity.common.external.mapping.name_similarity import ranked, words_of
from parity.common.external.pairs.backward import BackwardSearch
from parity.common.external.pairs.constant_arrays import apart_in_words, known_numbers
from parity.common.external.pairs.differences import Difference, differences
from parity.common.external.pairs.expressions import Expression
from parity.common.external.pairs.forms import simplified

NUMBERS = itertools.count()


def shared(number: int) -> Expression:
    """A tensor that both models have."""
    return Expression(same=number, text=f"t{number}")


def of(name: str, *operands: Expression | float, **settings: object) -> Expression:
    each = tuple(o if isinstance(o, Expression) else Expression(number=o) for o in operands)
    return Expression(name, each, tuple(settings.items()), tensor=next(NUMBERS), line="model.py:3")


def of_shape(
    name: str, shape: tuple[int, ...], *operands: Expression | float, **settings: object
) -> Expression:
    return replace(of(name, *operands, **settings), shape=shape)


X, Y, Z = shared(0), shared(1), shared(2)
ROWS = replace(X, shape=(8, 5))


@pytest.mark.parametrize(
    ("torch", "keras", "kinds"),
    [
        (of("mul", X, 0.5), of("mul", X, 0.25), ["number"]),
        (of("mul", of("mul", X, 0.5), 0.25), of("mul", X, 0.5), ["number"]),
        (of("add", X, Y), of("add", X, Z), ["operand"]),
        (of("sub", X, Y), of("sub", Y, X), ["order"]),
        (of("concat", X, Y, Z), of("concat", X, Z, Y), ["order"]),
        (of("where", X, Y, 0.0), of("where", X, 0.0, Y), ["order"]),
        (of("add", X, Y), of("mul", X, Y), ["operation"]),
        (of("mean", X, axis=1), of("mean", X, axis=2), ["argument"]),
        (of("matmul", replace(X, chain=("view to 2x3",)), Y), of("matmul", X, Y), ["arrangement"]),
        (of("bucketize", X), of("bucketize", X), ["other"]),
        (of("tanh", of("relu", X)), of("relu", of("tanh", X)), ["sequence"]),
        (of("add", X, 1.0), X, ["too_much"]),
        (X, of("add", X, 1.0), ["left_out"]),
        (of("add", of("add", X, Y), Z), of("add", X, Y), ["too_much"]),
        (of("tanh", of("mul", X, 2.0)), of("tanh", of("mul", X, 3.0)), ["number"]),
        (of("std", X, Y), of("sqrt", of("mean", Z)), ["other"]),
        (of_shape("mean", (8,), ROWS, axis=1), of("div", of("sum", of("where", Z, ROWS, 0.0), axis=1), of("sum", Z, axis=1)), ["mask"]),
        # What is multiplied by zero takes part in a softmax, and what is far below does not.
        (of("mul", X, Y), of("add", X, of("mul", of("sub", 1.0, Y), -1e9)), ["hidden"]),
        (of("where", Y, -1e9, X), of("mul", X, Y), ["hidden"]),
        (of("mul", X, Y), of("add", X, of("mul", of("sub", 1.0, Y), -1.0)), ["other"]),
        # Reversed by hand, and without a mask.
        (of("gru", Expression(text="t0", chain=("flip",))), of("gru", X, Y), ["left_out"]),
        (of("gru", Expression(text="t9")), of("gru", X, Y), ["other"]),
        # A sum is the same in any order, and two differences are two.
        (of("add", of("mul", Y, 2.0), X), of("add", X, of("mul", Y, 3.0)), ["number"]),
        (of("div", of("mul", X, 2.0), of("exp", Y)), of("div", of("mul", X, 3.0), of("exp", Z)), ["number", "operand"]),
    ],
)  # fmt: skip
def test_two_formulas_differ_in(torch: Expression, keras: Expression, kinds: list[str]) -> None:
    assert sorted(each.kind for each in differences(torch, keras)) == sorted(kinds)


def test_of_a_long_formula_the_numbers_of_one_side_are_told() -> None:
    (found,) = differences(of("std", of("mul", X, 0.818), Y), of("sqrt", of("mean", of("mul", Z, 0.9))))
    assert str(found).endswith("; of numbers torch alone has 0.818, and Keras alone 0.9")
    (found,) = differences(of("std", of("mul", X, 0.9), Y), of("sqrt", of("mean", of("mul", Z, 0.9))))
    assert "of numbers" not in str(found)


@pytest.mark.parametrize(
    ("ours", "kind"),
    [("values#1", "operand"), ("values", "other"), ("other#1", "other"), ("values#1 and values#2", "other")],
)
def test_two_formulas_of_other_calls_take_other_tensors(ours: str, kind: str) -> None:
    """Of the same layers, each of one call; of several calls, as of a loop, nothing is said."""
    torch = of("gather", replace(X, text="max(values)"), replace(Y, text="the input a"))
    keras = of("sum", of("mul", replace(Z, text=f"max({ours})"), of("exp", replace(Y, text="the input a"))))
    (found,) = differences(torch, keras)
    assert found.kind == kind
    if kind == "operand":
        assert str(found) == "another tensor: torch takes values where Keras takes values#1"


def test_constants_are_told_by_what_they_are_and_how_they_differ() -> None:
    ramp = np.linspace(0.5, 2.0, 7)
    assert known_numbers(np.hanning(9)[:-1]) == "a periodic Hann window"
    assert known_numbers(np.hamming(8)[:, None]) == "a symmetric Hamming window"
    assert known_numbers(ramp) == "0.5 to 2 in equal steps"
    assert known_numbers(ramp**2) == known_numbers(ramp[:3]) == known_numbers(np.ones(5)) == ""
    assert apart_in_words(3 * ramp, ramp) == "3 times Keras's"
    assert apart_in_words(ramp + 0.25, ramp) == "Keras's plus 0.25"
    assert apart_in_words(ramp[::-1], ramp) == "Keras's in reverse order"
    assert apart_in_words(np.roll(ramp, 2), ramp) == "Keras's in another order"
    assert apart_in_words(ramp**2, ramp) == "up to 2 from Keras's"
    assert apart_in_words(ramp[:, None], ramp) == ""


def test_a_difference_is_the_smallest_part_that_shows_it() -> None:
    (found,) = differences(
        of("tanh", of("mul", X, of("sub", Y, Z))), of("tanh", of("mul", X, of("sub", Z, Y)))
    )
    assert str(found) == "operands exchanged: torch computes t1 - t2 where Keras computes t2 - t1"


def test_what_one_side_has_too_much_is_told_in_its_own_words() -> None:
    """How Keras makes a tensor that both have would hide that all but the factor is the same."""
    (found,) = differences(of("mul", replace(X, text="smooth(t0)"), 2.0), replace(X, text="2 * huber(t0)"))
    assert (
        str(found) == "something too much: torch computes smooth(t0) * 2 where Keras goes on with smooth(t0)"
    )


def test_a_condition_that_is_told_twice_is_one_but_for_pairs_of_rows() -> None:
    kept = replace(of("ne", X, 0.0), shape=(8, 5))
    assert simplified(of_shape("or", (8, 5), kept, kept)) == kept
    pairs = of_shape("and", (8, 5, 5), replace(kept, shape=(8, 5, 1)), replace(kept, shape=(8, 1, 5)))
    assert simplified(pairs) == pairs


def test_what_a_loop_computes_is_read_once() -> None:
    def steps(number: float) -> Expression:
        state = X
        for step in range(60):
            state = Expression("tanh", (Expression("add", (state, Expression("mul", (state, Expression(number=number)), tensor=2 * step))),), tensor=2 * step + 1)  # fmt: skip
        return state

    assert len(steps(0.5).parts()) == 241
    (found,) = differences(steps(0.5), steps(0.25))
    assert (found.kind, str(found)) == ("number", "another number: torch has 0.5 where Keras has 0.25")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["block_3/gain", "block_7/gain"], [(0,), (1,)]),
        (["stage2.gain", "stage1.1.gain", "stage1.0.gain"], [(2,), (1,), (0,)]),
        (["a.1.gain", "b.1.2.gain"], [(0,), (0, 0)]),
        # A name without numbers has no rank among those with some.
        (["norm1_0", "norm1_1", "norm"], [(0, 0), (0, 1), ()]),
    ],
)
def test_numbers_of_names_are_ranked(names: list[str], expected: list[tuple[int, ...]]) -> None:
    assert ranked([words_of(name) for name in names]) == expected


@pytest.mark.parametrize(
    ("of_torch", "told"), [((8,), "; mul of Keras makes 8x8 of 8x1 and 8"), ((8, 1), "")]
)
def test_a_broadcast_that_one_side_alone_makes_is_told(of_torch: tuple[int, ...], told: str) -> None:
    def weighted(name: str, shape: tuple[int, ...]) -> Expression:
        weights, losses = Expression(same=1, text="w", shape=shape), Expression(same=2, text="l", shape=(8,))
        product = Expression("mul", (weights, losses), shape=(8, 8) if len(shape) > 1 else (8,))
        return Expression(name, (product,), shape=())

    difference = Difference("other", weighted("mean", of_torch), weighted("neg", (8, 1)))
    assert difference.spread == told and str(difference).endswith(told)


@pytest.mark.parametrize(
    ("name", "told"),
    [("(a + b)", "a + b"), ("(a + b)[:, 1]", "(a + b)[:, 1]"), ("(a) + (b)", "(a) + (b)"), ("(a", "(a")],
)
def test_a_name_of_a_sum_is_told_without_its_brackets_alone(name: str, told: str) -> None:
    assert str(of("sin", Expression(text=name))) == f"sin({told})"


def test_a_gradient_that_is_a_multiple_is_told_as_that() -> None:
    due = np.random.default_rng(0).standard_normal((4, 3))
    search = BackwardSearch(None)  # type: ignore[arg-type]
    search._due = {
        "backward/a": (due, 0.5 * due),
        "backward/b": (due, 0.5 * due + 1e-6),
        "backward/c": (due, 0 * due),
    }
    halved, other, none = map(search._multiple, search._due)
    assert halved is not None and "a is 0.5 times Keras's" in halved.text and halved.confidence == "likely"
    assert other is None and none is not None and none.text.startswith("no gradient comes back to c")
    assert search._multiple("gradient/kernel") is None
