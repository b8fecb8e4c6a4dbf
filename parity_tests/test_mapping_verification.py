"""Mappings tried on models: hidden permutations are found, and what is wrong is said, never passed."""

from __future__ import annotations

import numpy as np
import pytest

from parity.common.external.mapping.propose import propose
from parity.common.external.mapping.trial import levelled
from parity.common.external.mapping.verification import refine
from parity.common.spec.external.mapping import Mapping, Pair
from parity.common.spec.external.rules import parse_rule
from parity.common.spec.external.target import Target
from parity_tests.external_sides import Side
from parity_tests.helpers import ROOT
from parity_tests.helpers.mappings import verify

X = np.random.default_rng(7).normal(size=(3, 5, 8))


def softmax(scores):
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def keras_attention(state, tap, x):
    """Attention over square kernels, and a scale."""
    q, k, v = (tap(name, x @ state[f"{name}/kernel"] + state[f"{name}/bias"]) for name in ("d1", "d2", "d3"))
    mixed = softmax(q @ k.swapaxes(1, 2)) @ v
    out = tap("d4", mixed @ state["d4/kernel"] + state["d4/bias"])
    return tap("gain", out * state["gain/scale"])


def torch_attention(order):
    """The same; `order`: which linear layer is query, key, value and output."""

    def model(state, tap, x):
        q, k, v = (tap(name, x @ state[f"{name}.weight"].T + state[f"{name}.bias"]) for name in order[:3])
        out = tap(
            order[3],
            softmax(q @ k.swapaxes(1, 2)) @ v @ state[f"{order[3]}.weight"].T + state[f"{order[3]}.bias"],
        )
        return tap("s", out * state["s.scale"])

    return model


def attention(order="abcd"):
    kinds = dict.fromkeys(("d1", "d2", "d3", "d4"), "dense")
    keras = Side(
        "tensorflow",
        {f"d{n}/{k}": shape for n in range(1, 5) for k, shape in (("kernel", (8, 8)), ("bias", (8,)))}
        | {"gain/scale": (8,)},
        kinds,
        keras_attention,
    )
    torch = Side(
        "torch",
        {f"{n}.{k}": shape for n in "abcd" for k, shape in (("weight", (8, 8)), ("bias", (8,)))}
        | {"s.scale": (8,)},
        dict.fromkeys("abcd", "dense"),
        torch_attention(order),
    )
    return keras, torch


def partners(mapping):
    return {pair.keras[0]: pair.torch[0] for pair in mapping.tensors if pair.keras and pair.torch}


def in_order(keras, torch):
    """A mapping by the order of the names, which is what a careless tool would give."""
    pairs = tuple(
        Pair(
            keras=a,
            torch=b,
            rule="transpose" if keras.state[a].ndim == 2 else "same",
            source="order",
            doubt="by order alone",
        )
        for a, b in zip(keras.state, torch.state, strict=True)
    )
    return Mapping(keras="test:tensorflow", torch="test:torch", tensors=pairs)


@pytest.mark.parametrize("order", ["abcd", "bcad", "cbad", "dcba", "badc"])
def test_exchanged_projections_are_found(order):
    keras, torch = attention(order)
    before = torch.read()
    refined = refine(in_order(keras, torch), keras, torch, X)
    assert partners(refined) == {
        f"d{n}/{ours}": f"{order[n - 1]}.{theirs}"
        for n in range(1, 5)
        for ours, theirs in (("kernel", "weight"), ("bias", "bias"))
    } | {"gain/scale": "s.scale"}
    assert not refined.doubtful and {pair.source for pair in refined.tensors} == {"probed"}
    assert verify(refined, keras, torch, X) == []
    # The models are as they were.
    assert all(torch.state[name] is before[name] for name in before)


def test_few_passes_are_enough_where_all_is_right():
    keras, torch = attention()
    refine(propose(keras.outline(X), torch.outline(X)), keras, torch, X)
    # One for the outline, one with random weights, one with equal ones for what order alone may tell apart.
    assert keras.forwards <= 4


def exchanged(mapping, one, other):
    """Two torch tensors of equal shapes exchanged, as in a file that was edited wrongly."""
    swap = {one: other, other: one}
    pairs = tuple(
        pair.model_copy(
            update={
                "torch": tuple(swap.get(name, name) for name in pair.torch),
                "source": "hand",
                "doubt": None,
            }
        )
        for pair in mapping.tensors
    )
    return mapping.model_copy(update={"tensors": pairs})


@pytest.mark.parametrize(
    ("one", "other"),
    [("a.weight", "b.weight"), ("a.bias", "b.bias"), ("c.weight", "d.weight"), ("a.bias", "s.scale")],
)
def test_a_wrong_line_by_hand_is_reported_and_never_passed(one, other):
    keras, torch = attention()
    good = refine(in_order(keras, torch), keras, torch, X)
    wrong = exchanged(good, one, other)
    said = verify(wrong, keras, torch, X)
    assert said and all("\n" not in line for line in said)
    assert any(one in line or other in line or one[0] in line.split() for line in said), said
    refined = refine(wrong, keras, torch, X)
    # A person's lines stay as they are; they are doubted.
    assert partners(refined) == partners(wrong)
    assert any(name in (one, other) for pair in refined.doubtful for name in pair.torch)
    assert all("differ by" in pair.doubt for pair in refined.doubtful)


def test_a_file_that_was_edited_is_judged_and_never_changed():
    keras, torch = attention("bcad")
    good = refine(in_order(keras, torch), keras, torch, X)
    assert refine(good, keras, torch, X, keep=True) == good
    wrong = exchanged(good, "a.weight", "b.weight")
    # The lines still say that they were probed.
    wrong = wrong.model_copy(
        update={"tensors": tuple(pair.model_copy(update={"source": "probed"}) for pair in wrong.tensors)}
    )
    kept = refine(wrong, keras, torch, X, keep=True)
    assert partners(kept) == partners(wrong) and kept.layers == wrong.layers
    assert {name for pair in kept.doubtful for name in pair.torch} >= {"a.weight", "b.weight"}
    # The control: without it they are put right.
    assert partners(refine(wrong, keras, torch, X)) == partners(good)


def square(rule):
    """One square kernel that torch has in one of two layouts, in a layer of nobody's kind."""
    keras = Side("tensorflow", {"mix/matrix": (8, 8)}, {}, lambda s, tap, x: tap("mix", x @ s["mix/matrix"]))
    turned = rule == "transpose"
    torch = Side(
        "torch",
        {"m.matrix": (8, 8)},
        {},
        lambda s, tap, x: tap("m", x @ (s["m.matrix"].T if turned else s["m.matrix"])),
    )
    return keras, torch


@pytest.mark.parametrize("rule", ["transpose", "same"])
def test_a_square_kernel_is_turned_only_where_it_has_to_be(rule):
    keras, torch = square(rule)
    proposed = propose(keras.outline(X), torch.outline(X))
    assert "its shape also fits" in proposed.tensors[0].doubt
    (pair,) = refine(proposed, keras, torch, X).tensors
    assert (pair.rule, pair.source, pair.doubt) == (rule, "probed", None)


def fused(heads_first):
    """Three kernels of Keras's in one tensor of torch's, by part or by head."""

    def ours(state, tap, x):
        q, k, v = (
            np.einsum("btd,dhk->bhtk", x, state[f"att/{name}/kernel"]) for name in ("query", "key", "value")
        )
        mixed = np.einsum("bhqs,bhsk->bqhk", softmax(q @ k.swapaxes(2, 3)), v)
        return tap("att", mixed.reshape(*x.shape[:2], -1))

    def theirs(state, tap, x):
        every = tap("qkv", x @ state["qkv.weight"].T)
        shape = (*x.shape[:2], 2, 3, 4) if heads_first else (*x.shape[:2], 3, 2, 4)
        q, k, v = np.moveaxis(every.reshape(shape), 3 if heads_first else 2, 0).swapaxes(2, 3)
        return (softmax(q @ k.swapaxes(2, 3)) @ v).swapaxes(1, 2).reshape(*x.shape[:2], -1)

    names = {f"att/{name}/kernel": (8, 2, 4) for name in ("query", "key", "value")}
    return Side("tensorflow", names, {}, ours), Side(
        "torch", {"qkv.weight": (24, 8)}, {"qkv": "dense"}, theirs
    )


@pytest.mark.parametrize("heads_first", [False, True])
def test_fused_projections_lie_by_part_or_by_head(heads_first):
    keras, torch = fused(heads_first)
    names = tuple(keras.state)
    rule = "n i h k -> (n h k) i; h=2"
    mapping = Mapping(
        keras="a:b",
        torch="c:d",
        tensors=(Pair(keras=names, torch="qkv.weight", rule=rule, doubt="?", source="name"),),
    )
    (pair,) = refine(mapping, keras, torch, X).tensors
    assert pair.keras == names and pair.source == "probed"
    assert parse_rule(pair.rule).to_torch(
        [np.full((8, 2, 4), 10.0 * n) + np.arange(2)[:, None] for n in range(3)], 1
    )[0][:, 0].tolist() == [
        10 * n + h
        for h, n in ([(h, n) for h in range(2) for n in range(3)] if heads_first else [])
        for _ in range(4)
    ] + [10 * n + h for n in (range(3) if not heads_first else ()) for h in range(2) for _ in range(4)]


def chain(epsilon=1e-3, uses_second=True):
    """Two norms after a dense layer; torch's eps is 1e-3, Keras's is given."""

    def norm(x, gain, eps):
        return gain * (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)

    def ours(state, tap, x):
        x = tap("n1", norm(tap("d", x @ state["d/kernel"]), state["n1/gamma"], epsilon))
        return tap("n2", norm(x, state["n2/gamma"] if uses_second else 1.0, epsilon))

    def theirs(state, tap, x):
        x = tap("m1", norm(tap("l", x @ state["l.weight"].T), state["m1.weight"], 1e-3))
        return tap("m2", norm(x, state["m2.weight"] if uses_second else 1.0, 1e-3))

    keras = Side(
        "tensorflow",
        {"d/kernel": (8, 8), "n1/gamma": (8,), "n2/gamma": (8,)},
        {"d": "dense", "n1": "layer_norm", "n2": "layer_norm"},
        ours,
    )
    torch = Side(
        "torch",
        {"l.weight": (8, 8), "m1.weight": (8,), "m2.weight": (8,)},
        {"l": "dense", "m1": "layer_norm", "m2": "layer_norm"},
        theirs,
    )
    return keras, torch


def test_another_setting_is_no_wrong_tensor():
    keras, torch = chain(epsilon=1e-5)
    refined = refine(propose(keras.outline(X), torch.outline(X)), keras, torch, X)
    assert partners(refined)["n1/gamma"] == "m1.weight" and not refined.doubtful
    notes = {pair.keras[0]: pair.note for pair in refined.tensors}
    assert "differ in something else" in notes["n1/gamma"] and notes["d/kernel"] is None


def test_a_tensor_that_does_not_matter_stays_in_doubt():
    keras, torch = chain(uses_second=False)
    refined = refine(in_order(keras, torch), keras, torch, X)
    assert [pair.keras[0] for pair in refined.doubtful] == ["n2/gamma"]
    assert "does not matter here" in refined.doubtful[0].doubt


def test_what_no_mapping_can_mend_is_said():
    keras, torch = chain()
    # A port that forgot its first norm.
    torch.model = lambda s, tap, x: tap(
        "m2", tap("m1", tap("l", x @ s["l.weight"].T) * s["m1.weight"]) * s["m2.weight"]
    )
    refined = refine(propose(keras.outline(X), torch.outline(X)), keras, torch, X)
    assert {pair.keras[0] for pair in refined.doubtful} == {"n1/gamma", "n2/gamma"}
    assert all("differ by" in pair.doubt for pair in refined.doubtful)
    assert verify(refined, keras, torch, X)


def relu(x):
    return np.maximum(x, 0.0)


def norms(own=relu):
    """Keras's activations are layers; torch's norm applies its own."""

    def ours(state, tap, x):
        for n in (1, 2):
            x = tap(f"n{n}", tap(f"d{n}", x @ state[f"d{n}/kernel"]) * state[f"n{n}/gamma"])
            x = tap(f"relu{n}", relu(x))
        return x

    def theirs(state, tap, x):
        for n in (1, 2):
            x = tap(f"m{n}", own(tap(f"l{n}", x @ state[f"l{n}.weight"].T) * state[f"m{n}.weight"]))
        return x

    kinds = {"d": "dense", "n": "layer_norm", "l": "dense", "m": "layer_norm", "relu": "activation"}
    numbered = {f"{path}{n}": kind for path, kind in kinds.items() for n in (1, 2)}
    pairs = [(f"{p}{n}", shape) for n in (1, 2) for p, shape in (("d", (8, 8)), ("n", (8,)))]
    keras = Side(
        "tensorflow",
        {f"{path}/{'kernel' if len(shape) == 2 else 'gamma'}": shape for path, shape in pairs},
        numbered,
        ours,
    )
    renamed = [(path.replace("d", "l").replace("n", "m"), shape) for path, shape in pairs]
    return keras, Side("torch", {f"{path}.weight": shape for path, shape in renamed}, numbered, theirs)


def test_a_torch_layer_that_applies_the_activation_itself():
    keras, torch = norms()
    refined = refine(in_order(keras, torch), keras, torch, X)
    assert not refined.doubtful and {pair.source for pair in refined.tensors} == {"probed"}
    assert verify(refined, keras, torch, X) == []
    layers = {pair.keras: pair.torch for pair in refined.layers}
    # Where the same numbers are, and not where the same tensors are.
    assert layers["relu1"] == "m1" and "n1" not in layers and layers["d1"] == "l1"


def test_another_activation_is_not_taken_for_it():
    keras, torch = norms(own=lambda x: np.tanh(x))
    refined = refine(in_order(keras, torch), keras, torch, X)
    assert {pair.keras[0] for pair in refined.doubtful} >= {"n1/gamma", "n2/gamma"}
    assert verify(refined, keras, torch, X)


def test_what_one_side_has_besides_does_not_hide_the_rest():
    keras, torch = chain(epsilon=1e-3)
    torch.state["more.vector"] = np.full(8, 3.0)
    model = torch.model
    torch.model = lambda s, tap, x: model(s, tap, x + tap("more", x * 0.0 + s["more.vector"]))
    proposed = propose(keras.outline(X), torch.outline(X))
    assert proposed.unmapped.torch == ("more.vector",)
    refined = refine(proposed, keras, torch, X)
    assert not refined.doubtful and refined.unmapped.torch == ("more.vector",)
    assert (torch.state["more.vector"] == 3.0).all()


def parallel(order, inside=False):
    """Two branches of two equal layers, joined: their names and shapes tell nothing.

    order: torch's layers. inside: whether Keras's layers hold their activation, and torch's do not, so that none is seen alike.
    """

    def model(separator, names, held):
        def forward(state, tap, x):
            kernels = {name: state[f"{name}{separator}w"] for name in (*names, "top")}

            def layer(name, x):
                x = x @ kernels[name]
                return tap(name, np.tanh(x)) if held else np.tanh(tap(name, x))

            ends = [layer(second, layer(first, x)) for first, second in (names[:2], names[2:])]
            return tap("top", np.concatenate(ends, -1) @ kernels["top"])

        return forward

    shapes = dict.fromkeys("abcd", (8, 8)) | {"top": (16, 3)}
    keras = Side(
        "tensorflow", {f"{n}/w": shape for n, shape in shapes.items()}, {}, model("/", "abcd", inside)
    )
    torch = Side("torch", {f"{n}.w": shape for n, shape in shapes.items()}, {}, model(".", order, False))
    return keras, torch


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("order", ["abcd", "cdab", "dcba", "bdac"])
def test_equal_branches_are_told_apart_by_what_joins_them(order, inside):
    keras, torch = parallel(order, inside)
    pairs = tuple(
        Pair(keras=f"{n}/w", torch=f"{n}.w", rule="same", source="order", doubt="?") for n in (*"abcd", "top")
    )
    refined = refine(Mapping(keras="a:b", torch="c:d", tensors=pairs), keras, torch, X)
    assert partners(refined) == {f"{a}/w": f"{b}.w" for a, b in zip("abcd", order, strict=True)} | {
        "top/w": "top.w"
    }
    assert not refined.doubtful


def scaled(order):
    """Blocks with a scale that torch's containers own, whose output is nobody's tap; `order`: which scale is whose."""

    def ours(state, tap, x):
        for n in range(4):
            x = tap(f"s{n}", np.tanh(tap(f"d{n}", x @ state[f"d{n}/kernel"])) * state[f"s{n}/value"])
        return tap("top", x @ state["top/kernel"])

    def theirs(state, tap, x):
        for n in range(4):
            inner = np.tanh(tap(f"b{n}.d", x @ state[f"b{n}.d.weight"].T))
            x = tap(f"b{n}", inner * state[f"b{order[n]}.value"])
        return tap("top", x @ state["top.weight"].T)

    keras = {
        f"{n}/{k}": shape
        for i in range(4)
        for n, k, shape in ((f"d{i}", "kernel", (8, 8)), (f"s{i}", "value", (8,)))
    }
    torch = {f"b{i}.{k}": shape for i in range(4) for k, shape in (("d.weight", (8, 8)), ("value", (8,)))}
    kinds = {f"d{i}": "dense" for i in range(4)} | {f"b{i}.d": "dense" for i in range(4)} | {"top": "dense"}
    return (
        Side("tensorflow", {**keras, "top/kernel": (8, 3)}, kinds, ours),
        Side("torch", {**torch, "top.weight": (3, 8)}, kinds, theirs),
    )


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (1, 2, 3, 0), (3, 2, 1, 0)])
def test_tensors_of_containers_are_told_apart_by_what_comes_after(order):
    keras, torch = scaled(order)
    refined = refine(in_order(keras, torch), keras, torch, X)
    found = partners(refined)
    assert [found[f"s{n}/value"] for n in range(4)] == [f"b{order[n]}.value" for n in range(4)]
    assert not refined.doubtful


def test_levelled_values_are_the_same_by_any_of_the_rules():
    rules = ["flatten(2,3,4)", "transpose", "(p q c) o -> o (q p c); p=2 q=3"]
    kernel = np.random.default_rng(0).normal(size=(24, 5))
    (level,) = levelled([kernel], rules, 1)
    ways = [parse_rule(rule).to_torch([level], 1)[0] for rule in rules]
    assert all(np.allclose(way, ways[0]) for way in ways)
    # And different where the rules leave it free.
    assert len(np.unique(np.round(level, 12))) >= 5


IMAGES = np.random.default_rng(1).normal(size=(2, 8, 8, 4))
SQUARES = np.random.default_rng(2).normal(size=(2, 6, 6, 8))
TOKENS = np.random.default_rng(3).normal(size=(2, 6, 16))
STEPS = np.random.default_rng(4).normal(size=(2, 5, 6))
WORDS = np.random.default_rng(5).integers(0, 11, (2, 6)).astype(np.int32)


def first_channels(array):
    return np.ascontiguousarray(np.moveaxis(array, -1, 1)) if array.ndim == 4 else array


FRAMEWORKS = {
    "convolutions": (IMAGES, "Convolutions", {}),
    "attention, nn.MultiheadAttention": (TOKENS, "Attention", {"kind": "own"}),
    "attention, four layers": (TOKENS, "Attention", {"kind": "split"}),
    "attention, Conv1D": (TOKENS, "Attention", {"kind": "fused"}),
    "attention, by head": (TOKENS, "Attention", {"kind": "interleaved"}),
    "recurrent": (STEPS, "Recurrent", {}),
    "branches": (SQUARES, "Branches", {}),
    "unnamed": (SQUARES, "Unnamed", {}),
    "custom": (WORDS, "Custom", {}),
    "sequences": (STEPS, "Sequences", {}),
    "Experts": (TOKENS, "Experts", {}),
    "projections": (TOKENS, "Projections", {}),
}
# What only the right layouts give, for the cases where several fit the shapes.
RULES = {
    "convolutions": {
        "square/kernel": "flatten(3,3,8)",
        "square_again/kernel": "transpose",
        "deep/kernel": "depthwise(2)",
        "up/kernel": "conv",
    },
    "attention, nn.MultiheadAttention": {"attend_0/query/kernel": "n i h k -> (n h k) i; h=4"},
    "attention, Conv1D": {"attend_0/query/kernel": "n i h k -> i (n h k); h=4"},
    "attention, by head": {"attend_0/query/kernel": "n i h k -> (h n k) i; h=4"},
    "recurrent": {"gated/gru_cell/kernel": "gru", "gated/gru_cell/bias": "gru_bias"},
    "custom": {"custom/mix": "transpose", "custom/cls_token": "same"},
    "projections": {"dense/kernel": "i o -> o i 1; o=8+8+8"},
}
PARTNERS = {
    "branches": {"l1/kernel": "m.0.x.2.weight", "l2/kernel": "m.0.x.4.weight", "l3/kernel": "m.0.x.1.weight"}
    | {"l4/kernel": "m.0.x.0.weight", "l5/kernel": "m.0.x.5.weight", "l6/kernel": "m.0.x.3.weight"}
    | {"l8/kernel": "m.1.x.2.weight", "l13/kernel": "m.1.x.3.weight"},
    "attention, four layers": {"attend_1/value/kernel": "h.1.attn.v.weight"},
    "custom": {"custom/layer_scale": "body.gamma_1"},
}


IN_CI = ("branches", "unnamed", "Experts", "projections", "attention, nn.MultiheadAttention")


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.slow if case in IN_CI else pytest.mark.exhaustive)
        for case in FRAMEWORKS
    ],
)
def test_models_of_the_frameworks_are_mapped_and_agree(case):
    """The rules are right: with mapped random weights every layer of both models agrees in float64."""
    from parity.common.external.process.worker import ExternalWorker

    inputs, attribute, arguments = FRAMEWORKS[case]
    name = case.partition(",")[0]
    models = "parity_tests.external_models"
    given = first_channels(inputs)
    with (
        ExternalWorker("tensorflow", f"{models}.mapped_keras:{name}", folder=ROOT) as keras,
        ExternalWorker(
            "torch", Target.of(f"{models}.mapped_torch:{attribute}", arguments), folder=ROOT
        ) as torch,
    ):
        outlines = keras.outline(inputs), torch.outline(given)
        proposed = propose(*outlines)
        # What the code of a model calls its layers tells more than Keras's numbers of them.
        assert not (proposed.doubtful and case == "Experts"), proposed.doubtful
        refined = refine(proposed, keras, torch, inputs, given)
        refined.check(*outlines)
        assert not refined.doubtful, refined.doubtful
        assert verify(refined, keras, torch, inputs, given) == []
        rules = {pair.keras[0]: pair.rule for pair in refined.tensors if pair.keras}
        assert rules.items() >= RULES.get(case, {}).items()
        assert partners(refined).items() >= PARTNERS.get(case, {}).items()
        # The whole forward pass, by hand: Keras's own weights in torch.
        torch.write(refined.to_torch(keras.read()))
        ours = keras.forward(inputs, taps=False).outputs["output"]
        theirs = torch.forward(given, taps=False).outputs["output"]
        assert np.abs(ours - theirs).max() < 1e-12 * np.abs(ours).max()
        # The control: one tensor turned round is seen.
        spoiled = refined.to_torch(keras.read())
        longest = max(spoiled, key=lambda key: spoiled[key].size)
        torch.write({longest: np.flip(spoiled[longest]).copy()})
        theirs = torch.forward(given, taps=False).outputs["output"]
        assert np.abs(ours - theirs).max() > 1e-6 * np.abs(ours).max()


def two_places(factor):
    """Scales of one shape, used before and behind a mean; torch has that of the mean first, and multiplies by a factor, which goes past the first one, too."""

    def ours(state, tap, x):
        x = tap("d1", x @ state["d1/kernel"])
        x = x + tap("d2", tap("first", x * state["first/scale"]) @ state["d2/kernel"])
        x = tap("second", x.mean(1) * state["second/scale"])
        return tap("d3", x @ state["d3/kernel"])

    def theirs(state, tap, x):
        x = factor * tap("e1", x @ state["e1.weight"].T)
        x = x + tap("e2", tap("b", x * state["b.scale"]) @ state["e2.weight"].T)
        x = tap("a", x.mean(1) * state["a.scale"])
        return tap("e3", x @ state["e3.weight"].T)

    kinds = dict.fromkeys(("d1", "d2", "d3", "e1", "e2", "e3"), "dense")
    ends = {"d1/kernel": (8, 8), "first/scale": (8,), "d2/kernel": (8, 8), "second/scale": (8,)}
    theirs_too = {"e1.weight": (8, 8), "a.scale": (8,), "e2.weight": (8, 8), "b.scale": (8,)}
    return (
        Side("tensorflow", {**ends, "d3/kernel": (8, 3)}, kinds, ours),
        Side("torch", {**theirs_too, "e3.weight": (3, 8)}, kinds, theirs),
    )


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_what_is_used_elsewhere_is_exchanged_though_something_truly_differs(factor):
    keras, torch = two_places(factor)
    refined = refine(in_order(keras, torch), keras, torch, X)
    found = partners(refined)
    assert (found["first/scale"], found["second/scale"]) == ("b.scale", "a.scale")
    assert bool(refined.doubtful) == (factor != 1.0)


def couplings(blocks=2, depth=5):
    """Affine couplings (Dinh et al. 2017) of two branches that are alike but for what is made of them; Keras's layers are numbered, shift first."""

    def ours(state, tap, x):
        for block in range(blocks):
            ends = []
            for branch in range(2):
                y = x
                for n in range(depth):
                    name = f"d{(2 * block + branch) * depth + n}"
                    y = np.tanh(tap(name, y @ state[f"{name}/kernel"]))
                ends.append(y)
            x = x * np.exp(ends[1]) + ends[0]
        return x

    def theirs(state, tap, x):
        for block in range(blocks):
            ends = []
            for branch in ("scale", "shift"):
                y = x
                for n in range(depth):
                    name = f"f{block}.{branch}.{n}"
                    y = np.tanh(tap(name, y @ state[f"{name}.weight"].T))
                ends.append(y)
            x = x * np.exp(ends[0]) + ends[1]
        return x

    keras = [f"d{n}" for n in range(2 * blocks * depth)]
    torch = [f"f{b}.{name}.{n}" for b in range(blocks) for name in ("scale", "shift") for n in range(depth)]
    return (
        Side("tensorflow", {f"{n}/kernel": (8, 8) for n in keras}, dict.fromkeys(keras, "dense"), ours),
        Side("torch", {f"{n}.weight": (8, 8) for n in torch}, dict.fromkeys(torch, "dense"), theirs),
    )


def test_whole_branches_that_the_names_of_one_side_tell_are_exchanged():
    keras, torch = couplings()
    refined = refine(in_order(keras, torch), keras, torch, X)
    found = partners(refined)
    assert found["d0/kernel"] == "f0.shift.0.weight" and found["d15/kernel"] == "f1.scale.0.weight"
    assert not refined.doubtful
