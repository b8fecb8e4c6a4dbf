"""Tensors told by what they do: fused, stacked and shared out otherwise, in another order, with names that say nothing."""

from __future__ import annotations

import numpy as np
import pytest

from parity.common.external.mapping.by_effect import ByEffect
from parity.common.external.mapping.models import without_constants
from parity.common.external.mapping.pieces import Piece, pairs_of, ways_to_cut
from parity.common.external.mapping.trial import Bench
from parity.common.external.mapping.verification import outputs_apart, refine
from parity.common.spec.external.mapping import Mapping, Names, Pair
from parity.common.spec.external.outline import TensorInfo
from parity_tests.external_sides import Side

X = np.random.default_rng(3).normal(size=(4, 5, 6))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def keras_cell(state, tap, x):
    """Gates z, i, f, o with kernels of their own, of the inputs and of the state."""
    h = np.zeros((len(x), 6))
    c = np.zeros_like(h)
    for t in range(x.shape[1]):
        z, i, f, o = (x[:, t] @ state[f"{g}/kernel"] + h @ state[f"{g}_rec/kernel"] for g in "zifo")
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(z)
        h = sigmoid(o) * np.tanh(c)
    return tap("out", h * state["norm/gamma"] + state["norm/beta"])


def torch_cell(gain="shift", extra=0.0):
    """The same: i and f in one kernel, z and o in another, the state's in a stack in another order; names tell nothing."""

    def model(state, tap, x):
        h = np.zeros((len(x), 6))
        c = np.zeros_like(h)
        for t in range(x.shape[1]):
            of_i, of_f = np.split(x[:, t] @ state["a.weight"].T, 2, -1)
            of_z, of_o = np.split(x[:, t] @ state["b.weight"].T, 2, -1)
            i, f, z, o = (of + h @ state["rec"][place] for place, of in enumerate((of_i, of_f, of_z, of_o)))
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(z)
            h = sigmoid(o) * np.tanh(c)
        return tap("last", h * state["p"] + state["q"] + extra * h**2)

    return model


def cell(extra=0.0):
    keras = Side(
        "tensorflow",
        {f"{g}{rest}/kernel": (6, 6) for g in "zifo" for rest in ("", "_rec")}
        | {"norm/gamma": (6,), "norm/beta": (6,)},
        dict.fromkeys(("z", "i", "f", "o", "z_rec", "i_rec", "f_rec", "o_rec"), "dense"),
        keras_cell,
    )
    shapes = {"q": (6,), "p": (6,), "rec": (4, 6, 6), "b.weight": (12, 6), "a.weight": (12, 6)}
    return keras, Side("torch", shapes, {}, torch_cell(extra=extra))


def heads(state, tap, x):
    """Two heads of 4 and 2 columns each in one kernel, of which the last are turned."""
    both = (x @ state["d/kernel"]).reshape(*x.shape[:-1], 2, 6)
    return tap("out", np.concatenate([np.tanh(both[..., :4]), both[..., 4:] ** 2], -1) @ state["r/kernel"])


def parted(state, tap, x):
    """The same, with the columns of both kinds in kernels of their own."""
    left, right = (np.einsum("bti,hki->bthk", x, state[name]) for name in ("v", "w"))
    return tap("end", np.concatenate([np.tanh(left), right**2], -1) @ state["u.weight"].T)


def unequal():
    keras = Side("tensorflow", {"d/kernel": (6, 12), "r/kernel": (6, 3)}, {"d": "dense", "r": "dense"}, heads)
    shapes = {"u.weight": (3, 6), "w": (2, 2, 6), "v": (2, 4, 6)}
    return keras, Side("torch", shapes, {"u": "dense"}, parted)


def told(keras, torch):
    """What is told where nothing is known."""
    names = [tuple(side.state) for side in (keras, torch)]
    nothing = Mapping(keras="k", torch="t", unmapped=Names(keras=names[0], torch=names[1]))
    with Bench(nothing, keras, torch, X) as bench:
        return ByEffect(bench, ()).mapping()


@pytest.mark.parametrize(
    ("models", "pairs"),
    [
        (
            cell,
            {
                ("i/kernel", "f/kernel"): ("a.weight",),
                ("z/kernel", "o/kernel"): ("b.weight",),
                ("i_rec/kernel", "f_rec/kernel", "z_rec/kernel", "o_rec/kernel"): ("rec",),
                ("norm/gamma",): ("p",),
                ("norm/beta",): ("q",),
            },
        ),
        (unequal, {("d/kernel",): ("v", "w"), ("r/kernel",): ("u.weight",)}),
    ],
)
def test_tensors_are_told_by_what_they_do(models, pairs):
    keras, torch = models()
    before = [dict(side.state) for side in (keras, torch)]
    found = told(keras, torch)
    assert found is not None and {pair.keras: pair.torch for pair in found.tensors} == pairs
    assert not found.unmapped.keras and not found.unmapped.torch
    refined = refine(found, keras, torch, X)
    assert outputs_apart(refined, keras, torch, X, X) < 1e-12
    # Both models have their own weights again.
    for side, state in zip((keras, torch), before, strict=True):
        assert all(np.array_equal(side.state[name], value) for name, value in state.items())


def test_nothing_is_told_of_models_that_differ():
    assert told(*cell(extra=0.01)) is None


def test_what_is_nearest_is_told_of_models_that_differ_a_little():
    keras, torch = cell(extra=0.01)
    names = [tuple(side.state) for side in (keras, torch)]
    nothing = Mapping(keras="k", torch="t", unmapped=Names(keras=names[0], torch=names[1]))
    with Bench(nothing, keras, torch, X) as bench:
        effects = ByEffect(bench, ())
        assert effects.mapping() is None
        found = effects.nearest()
    assert found is not None
    partners = {pair.keras: pair.torch for pair in found.tensors}
    assert partners["i/kernel", "f/kernel"] == ("a.weight",) and partners["norm/gamma",] == ("p",)


def test_sides_with_other_numbers_of_weights_have_no_pieces():
    keras, torch = cell()
    del torch.state["q"]
    left = [side.outline(X).tensors if side is keras else () for side in (keras, torch)]
    assert not list(ways_to_cut(left))


def test_pieces_of_tensors_of_other_ranks_give_no_pairs():
    keras = Side("tensorflow", {"d/kernel": (6, 3)}, {"d": "dense"}, heads)
    torch = Side("torch", {"m": (2, 6), "v": (6,)}, {}, parted)
    infos = [
        {
            name: TensorInfo(
                name=name, layer="", role="kernel", shape=value.shape, dtype="float64", trainable=True
            )
        }
        for side in (keras, torch)
        for name, value in side.state.items()
    ]
    ours = [Piece((6,), ("d/kernel",), "", (6, 1), (1, 3), (0, place)) for place in range(3)]
    theirs = [Piece((6,), ("m",), "", (1, 6), (2, 1), (place, 0)) for place in range(2)]
    theirs.append(Piece((6,), ("v",), "", (6,), (1,), (0,)))
    assert pairs_of(list(zip(ours, theirs, strict=True)), infos[0], infos[1] | infos[2]) is None


def test_pieces_that_lie_as_no_rule_has_them_give_no_pairs():
    keras, torch = unequal()
    infos = [{info.name: info for info in side.outline(X).tensors} for side in (keras, torch)]
    # Two halves of two kernels of each side, crossed.
    ours = [
        Piece((6, 6), (name,), "", (6, 6), (1, 2), (0, place)) for name in ("d/kernel",) for place in (0, 1)
    ]
    theirs = [Piece((6, 6), (name,), "", (1, 2, 6), (2, 1, 1), (0, 0, 0)) for name in ("w", "v")]
    assert pairs_of(list(zip(ours, theirs, strict=True)), infos[0], infos[1]) is None


def test_what_both_sides_lack_of_each_other_has_no_counterpart_yet():
    known = Pair(keras=("k",), torch=("w",), rule="transpose", source="shape")
    ours = Pair(keras=("b_z",), rule="constant(0; 4)", source="order")
    theirs = Pair(torch=("bias",), rule="constant(0; 8)", source="order")
    mapping = Mapping(keras="k", torch="t", tensors=(known, ours, theirs), unmapped=Names(keras=("b_r",)))
    found = without_constants(mapping)
    assert found.tensors == (known,)
    assert found.unmapped == Names(keras=("b_r", "b_z"), torch=("bias",))
    # What one side alone lacks is what it begins as.
    alone = mapping.model_copy(update={"tensors": (known, theirs)})
    assert without_constants(alone) == alone


def planar(size=1.0, names=("u", "w")):
    """A step of a planar flow, whose two vectors have one shape."""

    def model(state, tap, x):
        u, w = (state[next(name for name in state if name.endswith(last))] for last in names)
        return tap("flow", x + size * u * np.tanh(x @ w)[..., None])

    return model


def test_vectors_of_a_layer_that_order_has_crossed_are_exchanged_where_models_differ():
    keras = Side("tensorflow", {"flow/u": (6,), "flow/w": (6,)}, {}, planar())
    for size, crossed in ((1.2, True), (1.2, False), (1.0, True)):
        torch = Side("torch", {"flow.w": (6,), "flow.u": (6,)}, {}, planar(size))
        names = ("flow.w", "flow.u") if crossed else ("flow.u", "flow.w")
        pairs = tuple(
            Pair(keras=(one,), torch=(other,), rule="same", source="order", doubt="by order alone")
            for one, other in zip(("flow/u", "flow/w"), names, strict=True)
        )
        with Bench(Mapping(keras="k", torch="t", tensors=pairs), keras, torch, X) as bench:
            way = ByEffect(bench, ())
            same = way.mapping()
            assert (same is None) == (size != 1)
            way.nearest()
            found = way.exchanged()
        if size == 1:
            assert not found and {p.keras: p.torch for p in same.tensors}["flow/u",] == ("flow.u",)
        elif crossed:
            assert {p.keras: p.torch for p in found} == {
                ("flow/u",): ("flow.u",),
                ("flow/w",): ("flow.w",),
            }
        else:
            assert not found


def test_vectors_are_not_exchanged_against_their_names():
    """One whose port takes it for the other's is wrong, whatever each does."""
    keras = Side("tensorflow", {"flow/real": (6,), "flow/imag": (6,)}, {}, planar(names=("real", "imag")))
    for names, exchanged in ((("w_re", "w_im"), False), (("p", "q"), True)):
        shapes = {f"flow.{name}": (6,) for name in names}
        torch = Side("torch", shapes, {}, planar(1.2, names[::-1]))
        pairs = tuple(
            Pair(keras=(one,), torch=(other,), rule="same", source="order", doubt="by order alone")
            for one, other in zip(("flow/real", "flow/imag"), shapes, strict=True)
        )
        with Bench(Mapping(keras="k", torch="t", tensors=pairs), keras, torch, X) as bench:
            way = ByEffect(bench, ())
            assert way.mapping() is None
            way.nearest()
            assert bool(way.exchanged()) == exchanged
