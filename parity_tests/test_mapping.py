"""Rules, mapping.yaml and proposals, without a framework; `test_mapping_verification` has the frameworks' word on the rules."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from parity.common.base.errors import ExternalModelError
from parity.common.external.mapping.candidate_rules import arrangements, fits
from parity.common.external.mapping.class_layouts import in_layouts_of_classes
from parity.common.external.mapping.correspondence import layer_pairs
from parity.common.external.mapping.left_over import by_use
from parity.common.external.mapping.models import _order_of_axes
from parity.common.external.mapping.parameter_groups import parameter_groups_of
from parity.common.external.mapping.propose import crossed_names, other_ways, propose
from parity.common.external.mapping.variants import Variants
from parity.common.spec.external.mapping import (
    LayerPair,
    Mapping,
    Names,
    Pair,
    Reasons,
    read_mapping,
    write_mapping,
)
from parity.common.spec.external.outline import LayerInfo, Outline, TensorInfo
from parity.common.spec.external.rules import NAMED, parse_rule
from parity_tests.helpers import ROOT

SIZE = st.integers(1, 4)


@st.composite
def bijections(draw):
    """(rule, shapes of Keras's tensors, number of torch's) of every rule that is a bijection."""
    a, b, c, d, e = (draw(SIZE) for _ in range(5))
    n = draw(st.integers(2, 3))
    return draw(
        st.sampled_from(
            [
                ("same", [(a, b, c)], 1),
                ("transpose", [(a, b)], 1),
                ("conv", [(a, b, c)], 1),
                ("conv", [(a, b, c, d)], 1),
                ("conv", [(a, b, c, d, e)], 1),
                ("depthwise", [(a, b, c, 1)], 1),
                (f"depthwise({d})", [(a, b, c, d)], 1),
                (f"flatten({a},{b},{c})", [(a * b * c, d)], 1),
                (f"heads({b})", [(a, b, c)], 1),
                (f"heads_bias({a})", [(a, b)], 1),
                (f"heads_out({a})", [(a, b, c)], 1),
                ("gru", [(a, 3 * b)], 1),
                ("gru_bias", [(2, 3 * b)], 2),
                (f"n i h k -> (n h k) i; h={b}", [(a, b, c)] * n, 1),
                (f"n i h k -> (h n k) i; h={b}", [(a, b, c)] * n, 1),
                (f"n i h k -> i (h k n); h={b}", [(a, b, c)] * n, 1),
                (f"n h k -> (n h k); h={b}", [(b, c)] * n, 1),
                ("i (n o) -> n o i", [(a, b * n)], n),
                ("(o n) -> n o", [(b * n,)], n),
                (f"i h k -> (h k) i; h={a}+{b}+{c}", [(d, a, e), (d, b, e), (d, c, e)], 1),
                ("1 1 1 c -> c", [(1, 1, 1, c)], 1),
                (f"(p q i) o -> o i p q; p={a} q={b}", [(a * b * c, d)], 1),
                ("t d -> 1 t d", [(a, b)], 1),
            ]
        )
    )


@given(case=bijections())
def test_a_rule_and_back_is_the_identity(case):
    text, shapes, count = case
    rule = parse_rule(text)
    # Every number once, so that an exchange of any two shows.
    starts = np.cumsum([0, *(math.prod(shape) for shape in shapes)])
    arrays = [
        np.arange(start, start + math.prod(shape), dtype=np.float64).reshape(shape)
        for start, shape in zip(starts, shapes, strict=False)
    ]
    there = rule.to_torch(arrays, count)
    assert [array.shape for array in there] == rule.torch_shapes(shapes, count)
    assert rule.keras_shapes([array.shape for array in there], len(shapes)) == shapes
    back = rule.to_keras(there, len(shapes))
    assert all(np.array_equal(a, b) for a, b in zip(arrays, back, strict=True))
    assert sorted(np.concatenate([array.ravel() for array in there])) == list(range(starts[-1]))


def test_the_layouts_are_those_of_the_frameworks():
    kernel = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    assert parse_rule("conv").to_torch([kernel], 1)[0][4, 3, 1, 2] == kernel[1, 2, 3, 4]
    deep = parse_rule("depthwise(5)").to_torch([kernel], 1)[0]
    assert deep.shape == (20, 1, 2, 3) and deep[3 * 5 + 4, 0, 1, 2] == kernel[1, 2, 3, 4]
    flat = np.arange(24 * 2).reshape(24, 2)
    assert (
        parse_rule("flatten(2,3,4)").to_torch([flat], 1)[0][1, 3 * 6 + 1 * 3 + 2]
        == flat[1 * 12 + 2 * 4 + 3, 1]
    )
    gates = parse_rule("gru").to_torch([np.array([[1, 2, 3]])], 1)[0]
    assert gates.ravel().tolist() == [2, 1, 3]  # z, r, h -> r, z, n


def test_rules_that_are_no_bijection_say_what_they_do():
    bias = np.array([1.0, 2.0])
    two = parse_rule("two_biases")
    there = two.to_torch([bias], 2)
    assert there[0].tolist() == [1, 2] and there[1].tolist() == [0, 0]
    assert two.to_keras([bias, bias], 1)[0].tolist() == [2, 4]
    assert two.gradients([bias, bias], 1)[0].tolist() == [1, 2]
    copies = parse_rule("copies")
    assert copies.gradients([bias, bias, bias], 1)[0].tolist() == [3, 6]
    with pytest.raises(ExternalModelError, match="different values"):
        copies.to_keras([bias, 2 * bias], 1)
    constant = parse_rule("constant(0; 2)")
    assert constant.to_torch([], 1)[0].tolist() == [0, 0]
    with pytest.raises(ExternalModelError, match="it should be 0"):
        constant.to_torch([bias], 0)
    folded = parse_rule("mean_less_bias")
    assert folded.to_torch([bias, 3 * bias], 1)[0].tolist() == [2, 4]
    tied = parse_rule("tied_kernel")
    embedding = np.arange(6.0).reshape(3, 2)
    assert [array.tolist() for array in tied.to_keras([embedding], 2)] == [
        embedding.tolist(),
        embedding.T.tolist(),
    ]
    with pytest.raises(ExternalModelError, match="embedding"):
        tied.torch_shapes([(3, 2), (3, 2)], 1)
    rules = ("two_biases", "copies", "tied_kernel", "constant(1; 3)", "mean_less_bias")
    assert all(parse_rule(rule).note for rule in rules)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("transpos", "closest are transpose"),
        ("flatten", "takes 2 to 4 numbers"),
        ("heads(0)", "numbers above 0"),
        ("a b -> a", "'b' on one side alone"),
        ("a a -> a a", "an axis twice"),
        ("(a b -> a b", "bracket is not closed"),
        ("((a) b) -> a b", "where none can be"),
        ("h w -> w h; w=0", "a size is written as"),
        ("h w -> w h; x=3", "a size is written as"),
        ("h w -> w h; w=2+3 h=1+1", "along two axes"),
        ("a? -> a?", "cannot read"),
        ("x" * 300, "at most 200 characters"),
        ("a\n-> a", "at most 200 characters"),
        ("constant(0; 2 2", "unknown rule"),
        (" ".join("abcdefghijklmnopqrst") + " -> a", "more than 16 axes"),
    ],
)
def test_what_is_no_rule_is_one_line(text, said):
    with pytest.raises(ExternalModelError, match=said.replace("(", r"\(")) as error:
        parse_rule(text)
    assert "\n" not in str(error.value)


@given(text=st.text(alphabet="abn h123()->;=+., ", max_size=40))
@example(text="->;1")
def test_any_text_is_a_rule_or_one_line(text):
    said = ""
    try:
        parse_rule(text).torch_shapes([(2, 3)], 1)
    except ExternalModelError as error:
        said = str(error)
    assert "\n" not in said


def test_every_named_rule_is_described():
    assert all(purpose for *_, purpose in NAMED.values())
    page = (ROOT / "docs" / "reference" / "mapping.md").read_text()
    assert all(f"| `{name}` | {purpose} |" in page for name, (*_, purpose) in NAMED.items())
    assert set(arrangements((2, 3), (3, 2))) == {"a b -> b a"}
    assert fits("1 1 a -> a", [(1, 1, 5)], [(5,)]) and not fits("1 1 a -> a", [(1, 2, 5)], [(5,)])


MAPPING = Mapping(
    keras="m:keras",
    torch="m:torch",
    tensors=(
        Pair(keras="conv/kernel", torch="c.weight", rule="conv", source="name"),
        Pair(
            keras=("q/k", "k/k"),
            torch="in",
            rule="n d h k -> (n h k) d; h=2",
            source="shape",
            doubt="why: 'x'",
        ),
        Pair(keras="conv/bias", rule="constant(0; 4)", source="order"),
        Pair(keras="rnn/bias", torch=("b_ih", "b_hh"), rule="two_biases", source="probed", note="twice"),
    ),
    layers=(LayerPair(keras="conv", torch="c"),),
    ignored=Reasons(torch={"n": "counts"}),
    tied=Reasons(torch={"off": "c.weight"}),
    unmapped=Names(keras=("odd: {name}", "yes")),
)
STATE = {
    "conv/kernel": np.arange(72.0).reshape(3, 3, 2, 4),
    "q/k": np.arange(12.0).reshape(3, 2, 2),
    "k/k": -np.arange(12.0).reshape(3, 2, 2),
    "conv/bias": np.zeros(4),
    "rnn/bias": np.ones(3),
}


def test_state_there_and_back():
    there = MAPPING.to_torch(STATE)
    assert there["in"].shape == (8, 3) and there["off"] is there["c.weight"]
    back = MAPPING.to_keras({**there, "n": np.zeros(())})
    assert back.keys() == STATE.keys()
    assert all(np.array_equal(back[name], STATE[name]) for name in STATE)
    halves = {name: value.astype(np.float32) for name, value in STATE.items()}
    assert {value.dtype for value in MAPPING.to_torch(halves).values()} == {np.dtype("float32")}
    gradients = MAPPING.gradients_to_keras(
        {"b_ih": np.ones(3), "b_hh": np.ones(3), "c.weight": there["c.weight"]}
    )
    assert gradients.keys() == {"rnn/bias", "conv/kernel"} and gradients["rnn/bias"].tolist() == [1, 1, 1]


def test_state_that_does_not_fit_is_one_line():
    with pytest.raises(ExternalModelError, match="'conv/kernle'; closest are 'conv/kernel'"):
        MAPPING.to_torch({**STATE, "conv/kernle": np.zeros(1)})
    with pytest.raises(ExternalModelError, match="'q/k', which the mapping names, is missing"):
        MAPPING.to_torch({name: value for name, value in STATE.items() if name != "q/k"})
    partial = MAPPING.to_torch({"conv/kernel": STATE["conv/kernel"], "q/k": STATE["q/k"]}, partial=True)
    assert partial.keys() == {"c.weight", "off"}
    with pytest.raises(ExternalModelError, match=r"conv/bias <-> .none.: it should be 0"):
        MAPPING.to_torch({**STATE, "conv/bias": np.ones(4)})
    with pytest.raises(ExternalModelError, match=r"conv/kernel <-> c\.weight: rule 'conv'"):
        MAPPING.to_torch({**STATE, "conv/kernel": np.zeros(3)})


def test_the_file_holds_the_mapping(tmp_path):
    path = tmp_path / "mapping.yaml"
    write_mapping(path, MAPPING)
    read = read_mapping(path)
    assert sorted(map(str, read.tensors)) == sorted(map(str, MAPPING.tensors))
    assert read.model_copy(update={"tensors": MAPPING.tensors}) == MAPPING
    lines = path.read_text().splitlines()
    assert lines.index("doubtful: # 1 of 4") < lines.index("tensors:")
    # One line a tensor, and each is found by its name.
    assert sum("rule:" in line for line in lines if not line.startswith("#")) == len(MAPPING.tensors)
    assert lines[0].startswith("# ")


HEAD = "keras: a\ntorch: b\n"
LINE = "- {keras: a, torch: b, rule: same}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1]", "a mapping has fields"),
        ("", "a mapping has fields"),
        (HEAD + "tensors: [1]", "a line of tensors has fields"),
        (HEAD + "tensors: {a: 1}", "tensors is a list"),
        (HEAD + "tensors:\n- {keras: a, torhc: b, rule: same}", "closest is 'torch'"),
        (HEAD + "tensors:\n- {keras: a, torch: b, rule: samee}", "closest are same"),
        (HEAD + "tensors:\n- {keras: a, torch: b}", "tensors.0.rule: this field is required"),
        (HEAD + "tensors:\n- {rule: same}", "names at least one"),
        (HEAD + "tensors:\n- {keras: [1], torch: {a: 1}, rule: same}", "valid string"),
        (HEAD + f"tensors:\n{LINE}\n{LINE}", "the keras tensor 'a' is named twice"),
        (HEAD + f"ignored: {{torch: {{b: why}}}}\ntensors:\n{LINE}", "the torch tensor 'b' is named twice"),
        (HEAD + "tensors:\n- {keras: a, torch: b, rule: same, source: guess}", "source"),
        (HEAD + "ignored: {kears: {}}", "'kears'; closest is 'keras'"),
        (HEAD + "ignored: [a]", "ignored"),
        (HEAD + "layers: 3", "layers"),
        (HEAD + "layers:\n- {keras: a, troch: b}", "closest is 'torch'"),
        ("keras: &a x\ntorch: *a", "references"),
        ("keras: !!python/object/apply:os.system [ls]\ntorch: b", "not YAML"),
        ("keras: a\nkeras: b\ntorch: c", "given twice"),
        ("[" * 5000, "nested too deeply"),
        ("keras: a\ntorch: b\nx: " + "y" * 5_000_000, "larger than"),
    ],
)
def test_a_hostile_file_is_one_line(tmp_path, text, said):
    path = tmp_path / "mapping.yaml"
    path.write_text(text)
    with pytest.raises(ExternalModelError) as error:
        read_mapping(path)
    assert said in str(error.value) and str(path) in str(error.value)
    assert "\n" not in str(error.value) and len(str(error.value)) < 500


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(ExternalModelError, match="cannot be read"):
        read_mapping(tmp_path / "none.yaml")
    with pytest.raises(ExternalModelError, match="a device or a pipe"):
        read_mapping(Path("/dev/zero"))


def outline(framework, *layers):
    """layers: (path, kind, {tensor: (role, shape)}), in the order of their calls."""
    separator = "/" if framework == "tensorflow" else "."
    infos, tensors = [], []
    for path, kind, owned in layers:
        infos.append(LayerInfo(path=path, kind=kind, type="t", calls=1, outputs=((2, 4),)))
        for name, (role, shape) in owned.items():
            tensors.append(
                TensorInfo(
                    name=f"{path}{separator}{name}",
                    layer=path,
                    role=role,
                    shape=shape,
                    dtype="int64" if role == "num_batches_tracked" else "float32",
                    trainable=role not in ("num_batches_tracked", "moving_mean", "moving_variance"),
                    buffer=role in ("num_batches_tracked", "moving_mean", "moving_variance"),
                )
            )
    return Outline(
        framework=framework,
        target=f"m:{framework}",
        type="t",
        versions={},
        layers=tuple(infos),
        tensors=tuple(tensors),
    )


def dense(framework, path, rows, columns):
    names = ("kernel", "bias") if framework == "tensorflow" else ("weight", "bias")
    shape = (rows, columns) if framework == "tensorflow" else (columns, rows)
    return path, "dense", {names[0]: ("kernel", shape), names[1]: ("bias", (columns,))}


def sides(ours, theirs):
    return (
        outline("tensorflow", *(dense("tensorflow", *layer) for layer in ours)),
        outline("torch", *(dense("torch", *layer) for layer in theirs)),
    )


def partners(mapping):
    return {pair.keras[0]: pair.torch[0] for pair in mapping.tensors if pair.keras and pair.torch}


def test_a_layer_whose_tensors_several_modules_own_is_paired_with_the_one_around_them():
    """A graph convolution is a module with a linear layer and a parameter of its own; what it gives is not what the linear layer does."""
    names = {"loop": ("kernel", (4, 4)), "near": ("near", (4, 4)), "bias": ("bias", (4,))}
    keras = outline("tensorflow", ("conv", "", names), dense("tensorflow", "last", 4, 2))
    own, inner = ("conv", "", {"near": ("near", (4, 4))}), dense("torch", "conv.loop", 4, 4)
    rules = {"loop": "conv.loop.weight", "near": "conv.near", "bias": "conv.loop.bias"}
    tensors = [Pair(keras=(f"conv/{n}",), torch=(t,), rule="same", source="probed") for n, t in rules.items()]
    mapping = Mapping(keras="k", torch="t", tensors=tuple(tensors))
    torch = outline("torch", own, inner, dense("torch", "last", 4, 2))
    assert layer_pairs(mapping, keras, torch)[0] == LayerPair(keras="conv", torch="conv")
    # Not where that computes with the tensors of another layer, too.
    more = ("conv.more", "", {"weight": ("kernel", (4, 2))})
    last = Pair(keras=("last/kernel",), torch=("conv.more.weight",), rule="same", source="probed")
    wider = mapping.model_copy(update={"tensors": (*tensors, last)})
    found = layer_pairs(wider, keras, outline("torch", own, inner, more))
    assert LayerPair(keras="conv", torch="conv") not in found


def test_names_settle_what_order_does_not():
    keras, torch = sides(
        [("attention/query", 8, 8), ("attention/key", 8, 8), ("attention/value", 8, 8)],
        [("attn.v_proj", 8, 8), ("attn.q_proj", 8, 8), ("attn.k_proj", 8, 8)],
    )
    mapping = propose(keras, torch)
    mapping.check(keras, torch)
    assert partners(mapping)["attention/value/kernel"] == "attn.v_proj.weight"
    assert partners(mapping)["attention/query/kernel"] == "attn.q_proj.weight"
    assert not mapping.doubtful and {pair.source for pair in mapping.tensors} == {"name"}


def test_names_that_a_port_has_kept_win_over_the_order():
    """Of blocks that put their norms behind a layer and not before it, and need one less."""
    parts = [
        f"layers.{n}/{part}" for n in (0, 1) for part in ("attn_norm", "q", "o", "last_norm", "fc1", "fc2")
    ]
    sizes = {"q": (4, 4), "o": (4, 4), "fc1": (4, 8), "fc2": (8, 4)}
    behind = [parts[6 * n + i] for n in (0, 1) for i in (1, 2, 0, 4, 5, 3)]
    keras, torch = sides(
        [(f"m/{name}", *sizes.get(name.rpartition("/")[2], (3, 3))) for name in [*parts, "last_norm"]],
        [(f"net.{name.replace('/', '.')}", *sizes.get(name.rpartition("/")[2], (3, 3))) for name in behind],
    )
    mapping = propose(keras, torch)
    found = {k.removeprefix("m/"): t.removeprefix("net.") for k, t in partners(mapping).items()}
    assert len(found) == 24 and not [pair for pair in mapping.doubtful if pair.torch]
    for ours, other in found.items():
        assert ours.rpartition("/")[0].replace("/", ".") == other.rpartition(".")[0]
    # Two that go by each other's name, as a search may find them.
    assert crossed_names(mapping) == []
    one, *middle, other = [pair for pair in mapping.tensors if pair.torch]
    exchanged = (
        one.model_copy(update={"torch": other.torch}),
        *middle,
        other.model_copy(update={"torch": one.torch}),
    )
    crossed = crossed_names(mapping.model_copy(update={"tensors": exchanged}))
    assert len(crossed) == 2 and other.torch[0] in crossed[0]


def test_what_only_order_tells_is_doubted():
    keras, torch = sides([("a", 8, 8), ("b", 8, 8), ("c", 8, 3)], [("x", 8, 8), ("y", 8, 8), ("z", 8, 3)])
    mapping = propose(keras, torch)
    assert partners(mapping) == {
        f"{a}/{k}": f"{x}.{w}"
        for a, x in zip("abc", "xyz", strict=True)
        for k, w in (("kernel", "weight"), ("bias", "bias"))
    }
    assert {pair.keras[0][0] for pair in mapping.doubtful} == {"a", "b"}
    assert all("order alone" in pair.doubt for pair in mapping.doubtful)
    # The one layer of its shape is not.
    assert {pair.source for pair in mapping.tensors if pair.keras[0][0] == "c"} == {"shape"}


def test_blocks_are_counted_from_where_each_side_counts_them():
    numbers = range(4)
    keras, torch = sides(
        [(f"block{n + 1}_{part}", 8, 8) for n in numbers for part in ("wide", "narrow")],
        [(f"layers.{n}.{part}", 8, 8) for n in numbers for part in ("wide", "narrow")],
    )
    found = partners(propose(keras, torch))
    assert all(found[f"block{n + 1}_wide/kernel"] == f"layers.{n}.wide.weight" for n in numbers)


def test_numbers_of_block_and_part_may_stand_in_either_order():
    places = list(itertools.product(range(2), (1, 2)))
    keras = outline(
        "tensorflow",
        *((f"scale{part}_{block}", "", {"gamma": ("gamma", (8,))}) for block, part in places),
        *(dense("tensorflow", f"inner{part}_{block}", 8, 8) for block, part in places),
    )
    # What a block owns itself has no place in the order of calls.
    gains = {f"gamma{part}": (f"gamma{part}", (8,)) for part in (1, 2)}
    torch = outline(
        "torch",
        *((f"blocks.{block}", "", gains) for block in range(2)),
        *(dense("torch", f"blocks.{block}.inner{part}", 8, 8) for block, part in places),
    )
    found = partners(propose(keras, torch))
    wanted = {f"scale{part}_{block}/gamma": f"blocks.{block}.gamma{part}" for block, part in places}
    assert wanted.items() <= found.items()


@pytest.mark.parametrize("inner", ["inner", "scale/inner"])
def test_a_layer_that_contains_others_is_compared_with_one_that_contains_them_too(inner):
    gain = {"gamma": ("gamma", (8,))}
    keras = outline("tensorflow", dense("tensorflow", inner, 8, 3), ("scale", "", gain))
    torch = outline("torch", dense("torch", "block.inner", 8, 3), ("block", "", gain))
    mapping = propose(keras, torch)
    assert partners(mapping)["scale/gamma"] == "block.gamma"
    pairs = {(pair.keras, pair.torch) for pair in mapping.layers}
    assert (inner, "block.inner") in pairs
    assert (("scale", "block") in pairs) == (inner == "scale/inner")


def test_what_is_trained_is_not_mapped_with_what_is_not():
    keras, torch = sides([("first", 8, 8), ("second", 8, 3)], [("first", 8, 8), ("second", 8, 3)])
    constant = TensorInfo(
        name="first.power",
        layer="first",
        role="power",
        shape=(8, 8),
        dtype="float32",
        trainable=False,
        buffer=True,
    )
    torch = torch.model_copy(update={"tensors": (constant, *torch.tensors)})
    found = partners(propose(keras, torch))
    assert found["first/kernel"] == "first.weight"


def test_what_has_no_counterpart_is_listed():
    keras, torch = sides([("a", 8, 4), ("extra", 5, 6)], [("x", 8, 4), ("other", 7, 9)])
    mapping = propose(keras, torch)
    assert mapping.unmapped.keras == ("extra/kernel", "extra/bias")
    assert mapping.unmapped.torch == ("other.weight", "other.bias")
    with pytest.raises(
        ExternalModelError, match=r"no counterpart is known of 'extra/kernel' \(5, 6\)"
    ) as error:
        mapping.check(keras, torch)
    assert "\n" not in str(error.value)
    mapping.check(keras, torch, unmapped=True)


def test_a_fused_layer_that_fits_one_alone_takes_no_partner_away():
    # 'last' could be 'a' by its shape; then nothing is 'b'.
    torch = [("a", 8, 10), ("b", 8, 13)]
    keras = [*((f"a{number}", 8, 2) for number in range(5)), ("b1", 8, 3), ("last", 8, 10)]
    mapping = propose(*sides(keras, torch))
    assert not mapping.unmapped.torch and not mapping.unmapped.keras
    assert {pair.torch[0] for pair in mapping.tensors if len(pair.keras) == 5} == {"a.weight", "a.bias"}
    # Without what could be fused it is its partner.
    assert partners(propose(*sides(keras[-1:], torch[:1])))["last/kernel"] == "a.weight"


def test_a_fused_layer_is_of_the_layers_of_its_number():
    # Keras lists them by their depth, and what is of one input does not stand together.
    keras = [
        (f"{name}{n}", 8, size) for name, size in (("value", 12), ("out", 8), ("gate", 12)) for n in (0, 1)
    ]
    torch = [
        (f"blocks.{n}.{name}", 8, size) for n in (0, 1) for name, size in (("in_proj", 24), ("out_proj", 8))
    ]
    found = {pair.torch[0]: pair.keras for pair in propose(*sides(keras, torch)).tensors}
    for number in (0, 1):
        parts = found[f"blocks.{number}.in_proj.weight"]
        assert sorted(parts) == [f"gate{number}/kernel", f"value{number}/kernel"]
        assert found[f"blocks.{number}.out_proj.weight"] == (f"out{number}/kernel",)


def test_names_tell_which_tensors_make_one():
    """By their order alone they would be others."""
    keras = [(name, 8, 4) for name in ("visit", "loans", "of/key", "of/query", "of/value")]
    found = {p.torch[0]: p.keras for p in propose(*sides(keras, [("kqv", 8, 12), ("rest", 8, 8)])).tensors}
    assert found["kqv.weight"] == ("of/key/kernel", "of/query/kernel", "of/value/kernel")
    assert found["rest.bias"] == ("visit/bias", "loans/bias")
    own = [(f"{name}{n}", "", {"w": ("w", (3, 2))}) for name in ("tell", "ask") for n in range(2)]
    stacks = [(f"rim.w_{name}", "", {"all": ("all", (2, 3, 2))}) for name in ("ask", "tell")]
    found = {
        p.torch[0]: p.keras for p in propose(outline("tensorflow", *own), outline("torch", *stacks)).tensors
    }
    assert found["rim.w_ask.all"] == ("ask0/w", "ask1/w") and found["rim.w_tell.all"] == (
        "tell0/w",
        "tell1/w",
    )


def test_what_one_layer_takes_from_a_fused_one_is_proposed_otherwise():
    keras = [(name, 8, 8) for name in ("of/key", "of/query", "of/value", "passed")]
    outlines = sides(keras, [("to", 8, 8), ("both", 8, 24)])
    first = propose(*outlines)
    right = ("of/key/kernel", "of/query/kernel", "of/value/kernel")
    every = [
        {p.torch[0]: p.keras for p in mapping.tensors}
        for mapping in (first, *other_ways(*outlines, None, first))
    ]
    assert every[0]["to.weight"] == ("of/key/kernel",)
    assert {"both.weight": right, "to.weight": ("passed/kernel",)}.items() <= every[1].items()
    assert len({tuple(sorted(each.items())) for each in every}) == len(every)


@pytest.mark.parametrize("untied", ["torch", "keras"])
def test_output_weights_that_one_side_alone_ties_to_its_embedding(untied):
    embedding = {"keras": {"embeddings": ("embeddings", (9, 4))}, "torch": {"weight": ("weight", (9, 4))}}
    bias = {"bias": ("bias", (9,))}

    def both(rows):
        kernels = {"keras": {"kernel": ("kernel", (4, rows))}, "torch": {"weight": ("kernel", (rows, 4))}}
        return tuple(
            outline(
                framework,
                ("embed", "embedding", embedding[side]),
                ("out", "dense", {**kernels[side], **bias} if side == untied else bias),
            )
            for side, framework in (("keras", "tensorflow"), ("torch", "torch"))
        )

    mapping = propose(*both(9))
    mapping.check(*both(9))
    tied, shift = mapping.tensors
    assert tied.rule == {"torch": "copies", "keras": "tied_kernel"}[untied] and tied.note
    assert shift.keras == ("out/bias",) and shift.torch == ("out.bias",)
    # Of another size it is not the embedding's.
    left = propose(*both(8)).unmapped
    assert ("out/kernel" if untied == "keras" else "out.weight") in getattr(left, untied)


def test_one_layer_may_be_several():
    mapping = propose(*sides([("both", 8, 6)], [("mean", 8, 4), ("spread", 8, 2)]))
    assert {(pair.keras, pair.torch, pair.rule) for pair in mapping.tensors} == {
        (("both/kernel",), ("mean.weight", "spread.weight"), "... i o -> o i ...; o=4+2"),
        (("both/bias",), ("mean.bias", "spread.bias"), "o -> o; o=4+2"),
    }
    assert propose(*sides([("both", 8, 7)], [("mean", 8, 4), ("spread", 8, 2)])).unmapped.keras


@pytest.mark.parametrize("units", [4, 5])
def test_a_recurrent_layer_may_be_two_dense_ones(units):
    lstm = {
        "kernel": ("kernel", (3, 16)),
        "recurrent_kernel": ("recurrent_kernel", (4, 16)),
        "bias": ("bias", (16,)),
    }
    keras = outline("tensorflow", ("cell", "lstm", lstm))
    state = ("cell.state", "dense", {"weight": ("kernel", (16, units))})
    mapping = propose(keras, outline("torch", dense("torch", "cell.inputs", 3, 16), state))
    if units == 4:
        assert partners(mapping) == {
            "cell/kernel": "cell.inputs.weight",
            "cell/recurrent_kernel": "cell.state.weight",
            "cell/bias": "cell.inputs.bias",
        }
        assert [pair.rule for pair in mapping.tensors] == ["transpose", "transpose", "same"]
    else:
        assert "cell.state.weight" in mapping.unmapped.torch


@pytest.mark.parametrize(
    ("ours", "whole", "rule"),
    [
        ([(7, 4), (5, 4)], (12, 4), "a b -> a b; a=7+5"),
        ([(7, 1), (5, 1)], (12,), "a 1 -> a; a=7+5"),
        ([(3, 2), (3, 2)], (2, 2, 3), "n b c -> n c b"),
        ([(10, 4, 8), (10, 2, 8)], (48, 10), "a b c -> (b c) a; b=4+2"),
        ([(7, 4), (5, 4)], (13, 4), None),
    ],
)
def test_several_tensors_may_be_one(ours, whole, rule):
    keras = outline(
        "tensorflow",
        *((name, "", {"table": ("table", shape)}) for name, shape in zip("pq", ours, strict=True)),
    )
    mapping = propose(keras, outline("torch", ("", "", {"all": ("all", whole)})))
    if rule is None:
        assert len(mapping.unmapped.keras) == 2
    else:
        (pair,) = mapping.tensors
        assert (pair.keras, pair.rule, pair.doubt is not None) == (("p/table", "q/table"), rule, True)


def test_kernels_that_are_one_may_be_transposed():
    """(in, out) of two layers as (layers, out, in): by their shapes, or where they are square by what agrees."""
    stack = ("", "", {"all": ("all", (2, 4, 6))})
    layers = [dense("tensorflow", name, 6, 4) for name in "pq"]
    (pair,) = (
        p
        for p in propose(outline("tensorflow", *layers), outline("torch", stack)).tensors
        if len(p.keras) > 1
    )
    assert pair.rule == "n a b -> n b a"
    square = [outline("tensorflow", *(dense("tensorflow", name, 6, 6) for name in "pq"))]
    square.append(outline("torch", ("", "", {"all": ("all", (2, 6, 6))})))
    (pair,) = (p for p in propose(*square).tensors if len(p.keras) > 1)
    assert {other.rule for other in Variants(*square).of_pair(pair)} >= {"n a b -> n b a"}


def test_a_kernel_of_a_stock_convolution_keeps_its_channels():
    """Of layers whose inputs are each other's outputs the kernel of one would fit the other turned round, and comes first by order."""
    ours, theirs = (("lh", 6, 8), ("hl", 8, 6)), (("high_low", 8, 6), ("low_high", 6, 8))
    keras = [(name, "conv2d", {"kernel": ("kernel", (3, 3, *size))}) for name, *size in ours]
    torch = [(name, "conv2d", {"weight": ("kernel", (*size[::-1], 3, 3))}) for name, *size in theirs]
    mapping = propose(outline("tensorflow", *keras), outline("torch", *torch))
    assert partners(mapping) == {"lh/kernel": "low_high.weight", "hl/kernel": "high_low.weight"}
    assert {pair.rule for pair in mapping.tensors} == {"conv"}


def test_what_is_left_of_layers_whose_kernels_are_side_by_side_is_a_stack():
    """Heads with a kernel and a vector each: torch has one matrix of all kernels, either way round, and one of all vectors."""
    heads = [
        (f"head{n}", "", {"kernel": ("kernel", (18, 6)), "vector": ("vector", (12, 1))}) for n in range(3)
    ]
    keras = outline("tensorflow", *heads)
    torch = outline(
        "torch", ("proj", "dense", {"weight": ("kernel", (18, 18))}), ("", "", {"att": ("att", (3, 12))})
    )
    mapping = propose(keras, torch)
    assert not mapping.unmapped.keras and not mapping.unmapped.torch
    kernels, vectors = sorted(mapping.tensors, key=lambda pair: "vector" in pair.keras[0])
    assert kernels.keras == tuple(f"head{n}/kernel" for n in range(3))
    assert {"a b -> a b; b=6+6+6", "a b -> b a; b=6+6+6"} <= {*Variants(keras, torch).rules(kernels)}
    assert vectors.torch == (".att",)


@pytest.mark.parametrize(("size", "may_be"), [((2, 20, 20, 3), True), ((2, 20, 20, 4), False)])
def test_a_dense_layer_may_be_given_patches_with_the_channels_first(size, may_be):
    keras, torch = sides([("patches", 48, 8)], [("patches", 48, 8)])
    keras = keras.model_copy(update={"inputs": {"image": size}})
    (pair, _) = propose(keras, torch).tensors
    assert ("flatten(4,4,3)" in Variants(keras, torch).rules(pair)) == may_be


@pytest.mark.parametrize(("inputs", "rules"), [(8, {"n b c -> n b c", "n b -> n 1 b"}), (9, set())])
def test_dense_layers_may_be_a_stack(inputs, rules):
    towers = [dense("tensorflow", name, 8, 6) for name in ("left", "right")]
    stack = {"weight": ("weight", (2, inputs, 6)), "bias": ("bias", (2, 1, 6))}
    mapping = propose(outline("tensorflow", *towers), outline("torch", ("twin", "", stack)))
    assert {pair.rule for pair in mapping.tensors if len(pair.keras) == 2} == rules
    assert bool(mapping.unmapped.torch) != bool(rules)


def test_the_layers_of_experts_may_be_two_stacks():
    """As they are called, up and down by turns."""
    layers = [
        dense("tensorflow", f"{name}{n}", *size)
        for n in range(3)
        for name, size in (("up", (8, 6)), ("down", (6, 4)))
    ]
    stacks = {
        f"{name}{k}": (f"{name}{k}", shape)
        for k, of in ((1, (8, 6)), (2, (6, 4)))
        for name, shape in (("w", (3, *of)), ("b", (3, of[1])))
    }
    mapping = propose(outline("tensorflow", *layers), outline("torch", ("moe", "", stacks)))
    assert not mapping.unmapped.keras and not mapping.unmapped.torch
    found = {pair.torch[0]: pair.keras for pair in mapping.tensors}
    assert found["moe.w1"] == tuple(f"up{n}/kernel" for n in range(3))
    assert found["moe.b2"] == tuple(f"down{n}/bias" for n in range(3))


@pytest.mark.parametrize(("inputs", "rule"), [((5, 3), "... i o -> o i ...; i=5+3"), ((5, 2), None)])
def test_kernels_may_be_one_side_by_side(inputs, rule):
    """A layer of joined inputs, and two whose outputs are added up: on either side."""
    first, second = inputs
    one, several = [("whole", 8, 6)], [("first", first, 6), ("second", second, 6)]
    for ours, theirs in ((one, several), (several, one)):
        mapping = propose(*sides(ours, theirs))
        found = [pair.rule for pair in mapping.tensors if len(pair.keras) + len(pair.torch) == 3]
        assert found == ([rule] if rule else [])


def test_a_kernel_may_be_that_of_a_1x1_convolution_and_a_dense_one():
    """Of points and of their whole, whose outputs are added up; on either side."""
    whole, point, dense_one = ((8, 6), (5, 6), (3, 6))
    for ours, theirs in (
        ([("whole", whole)], [("point", (*point[::-1], 1)), ("all", dense_one[::-1])]),
        ([("all", dense_one), ("point", (1, *point))], [("whole", whole[::-1])]),
    ):
        mapping = propose(
            *(
                outline(framework, *((name, "", {"kernel": ("kernel", shape)}) for name, shape in side))
                for framework, side in (("tensorflow", ours), ("torch", theirs))
            )
        )
        assert [pair.rule for pair in mapping.tensors] == (
            ["i o -> o i 1; i=5+3!"] if len(theirs) == 2 else ["1 i o -> o i; i=3!+5"]
        )


def test_batch_norms_may_be_one_of_all_their_channels():
    """On either side; what one side alone trains of it is what it is while it changes nothing."""
    few, all_of_them = (8, 4), 12

    def of(framework, sizes, scale):
        roles = ("gamma", "beta", "moving_mean", "moving_variance")
        if framework == "torch":
            roles = ("weight", "bias", "running_mean", "running_var")
        norms = [
            (f"n{n}", "batch_norm", {role: (role, (size,)) for role in roles[0 if scale else 1 :]})
            for n, size in enumerate(sizes)
        ]
        return outline(framework, *norms)

    for ours, theirs in ((few, (all_of_them,)), ((all_of_them,), few)):
        keras, torch = of("tensorflow", ours, False), of("torch", theirs, True)
        mapping = propose(keras, torch)
        mapping.check(keras, torch)
        rules = [pair.rule for pair in mapping.tensors if pair.keras]
        assert rules == ["o -> o; o=8+4"] * 3
        assert {pair.torch for pair in mapping.tensors if not pair.keras} == {
            (f"n{n}.weight",) for n in range(len(theirs))
        }


def test_a_vector_may_stand_among_kernels_and_tables_side_by_side():
    """Similarity by three products in place of one of all pairs; a column beside a table; two tables in a third axis."""
    tables = [
        (name, "", {"t": ("t", shape)})
        for name, shape in (("p", (9, 4)), ("r", (3, 6)), ("q", (9, 1)), ("s", (3, 6)))
    ]
    keras = outline("tensorflow", ("all", "dense", {"kernel": ("kernel", (30, 1))}), *tables)
    parts = {"u": ("u", (1, 10)), "v": ("v", (1, 10)), "w": ("w", (10,))}
    torch = outline(
        "torch", ("similarity", "", parts), ("whole", "", {"a": ("a", (9, 5)), "b": ("b", (3, 2, 6))})
    )
    found = {pair.rule for pair in propose(keras, torch).tensors if len(pair.keras) + len(pair.torch) > 2}
    assert found == {"... i o -> o i ...; i=10+10+10!", "a b -> a b; b=4+1", "n a b -> a n b"}


def test_square_kernels_are_as_those_of_their_class() -> None:
    """Of a Keras layer of the code's own, which keeps its kernel as torch does, and fits either way round where it is square."""
    shapes = {"one": (6, 4), "two": (4, 4), "three": (12, 4)}

    def own(framework: str, sides: dict[str, tuple[int, int]]) -> Outline:
        layers = [
            (name, "" if framework == "tensorflow" else "dense", {"weight": ("weight", shape)})
            for name, shape in sides.items()
        ]
        return outline(framework, *layers)

    keras, torch = (
        own("tensorflow", shapes),
        own("torch", {"one": (6, 4), "two": (4, 4)} | dict.fromkeys("qkv", (4, 4))),
    )
    # Of those in one, as of those that fit either way.
    pairs = [
        Pair(keras=("one/weight",), torch=("one.weight",), rule="same"),
        Pair(keras=("two/weight",), torch=("two.weight",), rule="transpose"),
        Pair(
            keras=("three/weight",),
            torch=("q.weight", "k.weight", "v.weight"),
            rule="... i o -> o i ...; i=4+4+4",
        ),
    ]
    mapping = Mapping(tensors=tuple(pairs))
    found = [pair.rule for pair in in_layouts_of_classes(mapping, keras, torch).tensors]
    assert found == ["same", "same", "i o -> i o; i=4+4+4"]
    assert in_layouts_of_classes(Mapping(tensors=tuple(pairs[1:])), keras, torch).tensors == tuple(pairs[1:])


def test_vectors_in_one_are_found_beside_other_tensors() -> None:
    """As the gains of two blocks, with a table of the block's between them."""
    own = [
        (
            f"block{n}",
            "",
            {"g": ("g", ()), "table": ("moving_mean", (3, 5))} if n % 2 == 0 else {"g": ("g", ())},
        )
        for n in range(4)
    ]
    torch = outline("torch", *((f"blocks.{n}", "", {"scales": ("scales", (2,))}) for n in range(2)))
    found = {pair.torch: pair.keras for pair in propose(outline("tensorflow", *own), torch).tensors}
    assert found == {(f"blocks.{n}.scales",): (f"block{2 * n}/g", f"block{2 * n + 1}/g") for n in range(2)}


def test_vectors_go_with_the_kernels_of_their_layers() -> None:
    """Where one side uses a layer's own bias before that of the layer within it."""
    shapes = {"w": (8, 8), "k": (6, 8)}
    keras = outline(
        "tensorflow",
        *((name, "", {n: (n, s) for n, s in ((name, shape), ("b", (8,)))}) for name, shape in shapes.items()),
    )
    torch = outline(
        "torch",
        *(
            (name, "", {n: (n, s) for n, s in ((name, shape[::-1]), ("b", (8,)))})
            for name, shape in shapes.items()
        ),
    )
    used = ["w/b", "k/k", "k/b", "w/w"], ["k.k", "k.b", "w.w", "w.b"]
    groups = [parameter_groups_of(each, (), False, other) for each, other in ((keras, torch), (torch, keras))]
    found = {pair.keras: pair.torch for pair in by_use(*groups, used)}
    assert found[("w/b",)] == ("w.b",) and found[("k/b",)] == ("k.b",)


@pytest.mark.parametrize("used", [True, False])
def test_tensors_in_lists_are_mapped_by_the_order_of_their_use(used):
    """Of a model whose lists are by what tensors are, and not by layer."""
    norms = [(name, "layer_norm", {"gamma": ("gamma", (6,)), "beta": ("beta", (6,))}) for name in ("b", "d")]
    (first, second), (third, fourth) = [dense("tensorflow", name, 6, 6) for name in ("a", "c")], norms
    lists = [(path, "", {"0": ("0", (6,)), "1": ("1", (6,))}) for path in ("moved", "times", "shifts")]
    kernels = ("kernels", "", {"0": ("0", (6, 6)), "1": ("1", (6, 6))})
    order = tuple(f"{name}.{n}" for n in (0, 1) for name in ("kernels", "shifts", "times", "moved"))
    keras = outline("tensorflow", first, third, second, fourth)
    torch = outline("torch", kernels, *lists).model_copy(update={"used": order if used else ()})
    keras = keras.model_copy(update={"used": tuple(info.name for info in keras.tensors)})
    mapping = propose(keras, torch)
    found = tuple(partners(mapping).get(info.name) for info in keras.tensors)
    assert (found == order) == used


def test_layers_of_other_sizes_in_one_are_tried_in_other_orders():
    keras, torch = sides([("a", 8, 3), ("b", 8, 5), ("c", 8, 4)], [("all", 8, 12)])
    (pair, _) = propose(keras, torch).tensors
    others = Variants(keras, torch).of_pair(pair)
    orders = {tuple(name[0] for name in other.keras): other.rule.partition("o=")[2] for other in others}
    assert len(orders) == 5 and orders["c", "a", "b"] == "4+3+5"


def test_a_joined_key_and_value_may_stand_beside_all_three_in_one():
    heads = [(f"read/{part}", 12, (2, 6)) for part in ("query", "key", "value")]
    parts = [
        (path, "dense", {"kernel": ("kernel", (rows, *units)), "bias": ("bias", units)})
        for path, rows, units in heads
    ]
    mix = {"w_in": ("w_in", (3, 2, 12, 6)), "b_in": ("b_in", (3, 2, 6))}
    three = {"in_proj_weight": ("in_proj_weight", (36, 12)), "in_proj_bias": ("in_proj_bias", (36,))}
    # The feed-forward kernels are as large as the joined key and value.
    keras = outline("tensorflow", *parts, ("mix", "", mix), dense("tensorflow", "up", 12, 24))
    joined = [dense("torch", "read.to_q", 12, 12), dense("torch", "read.to_kv", 12, 24)]
    torch = outline("torch", *joined, ("att", "self_attention", three), dense("torch", "up", 12, 24))
    mapping = propose(keras, torch)
    mapping.check(keras, torch)
    found = {pair.torch[0]: pair.keras for pair in mapping.tensors}
    assert found["read.to_kv.weight"] == ("read/key/kernel", "read/value/kernel")
    assert (found["att.in_proj_weight"], found["att.in_proj_bias"]) == (("mix/w_in",), ("mix/b_in",))
    assert not mapping.unmapped.torch and not mapping.unmapped.keras


def test_a_cell_that_a_model_calls_itself_has_gates():
    ours = {"kernel": ("kernel", (3, 12)), "recurrent_kernel": ("recurrent_kernel", (4, 12))}
    theirs = {"weight_ih": ("kernel", (12, 3)), "weight_hh": ("recurrent_kernel", (12, 4))}
    mapping = propose(
        outline("tensorflow", ("cell", "gru_cell", ours)), outline("torch", ("cell", "gru_cell", theirs))
    )
    assert [pair.rule for pair in mapping.tensors] == ["gru", "gru"]


def test_parameters_of_the_model_itself_have_counterparts():
    ours = {"gamma": ("gamma", (6,)), "beta": ("beta", (6,))}
    keras = outline("tensorflow", ("norm", "layer_norm", ours), dense("tensorflow", "out", 6, 2))
    theirs = {"gain": ("gain", (6,)), "moved": ("moved", (6,))}
    mapping = propose(keras, outline("torch", dense("torch", "out", 6, 2), ("", "", theirs)))
    assert partners(mapping)["norm/gamma"] == ".gain" and partners(mapping)["norm/beta"] == ".moved"
    assert not mapping.unmapped.torch and not mapping.unmapped.keras


def test_what_a_person_says_wins():
    keras, torch = sides([("a", 8, 8), ("b", 8, 8)], [("a", 8, 8), ("b", 8, 8)])
    hints = Mapping(
        keras="m:tensorflow",
        torch="m:torch",
        tensors=(Pair(keras="a/kernel", torch="b.weight", rule="same"),),
        ignored=Reasons(keras={"a/bias": "mine"}, torch={"b.bias": "mine"}),
    )
    mapping = propose(keras, torch, hints)
    assert mapping.tensors[0] == hints.tensors[0] and mapping.ignored == hints.ignored
    assert partners(mapping)["b/kernel"] == "a.weight"


def test_a_bias_that_is_left_of_a_known_layer_is_a_constant():
    named = ("q", "k", "v")
    keras = outline("tensorflow", *((name, "dense", {"kernel": ("kernel", (4, 4))}) for name in named))
    owned = {"weight": ("weight", (12, 4)), "bias": ("bias", (12,))}
    torch = outline("torch", ("qkv", "dense", owned))
    kernels = Pair(
        keras=tuple(f"{name}/kernel" for name in named),
        torch="qkv.weight",
        rule="... i o -> o i ...; o=4+4+4",
    )
    known = Mapping(keras="scripts:keras", torch="scripts:torch", tensors=(kernels,))
    (bias,) = [pair for pair in propose(keras, torch, known).tensors if not pair.keras]
    assert bias.torch == ("qkv.bias",) and bias.rule == "constant(0; 12)"


def norm(framework, path, *, scale=True):
    names = {
        "tensorflow": ("gamma", "beta", "moving_mean", "moving_variance"),
        "torch": ("weight", "bias", "running_mean", "running_var"),
    }[framework]
    roles = ("gamma", "beta", "moving_mean", "moving_variance")
    owned = {name: (role, (8,)) for name, role in zip(names, roles, strict=True) if scale or role != "gamma"}
    if framework == "torch":
        owned["num_batches_tracked"] = ("num_batches_tracked", ())
    return path, "batch_norm", owned


def test_what_one_side_lacks_and_what_counts_batches():
    keras = outline("tensorflow", norm("tensorflow", "bn", scale=False))
    torch = outline("torch", norm("torch", "n"))
    mapping = propose(keras, torch)
    mapping.check(keras, torch)
    (lone,) = [pair for pair in mapping.tensors if not pair.keras]
    assert lone.torch == ("n.weight",) and lone.rule == "constant(1; 8)" and "only while it is 1" in lone.note
    assert list(mapping.ignored.torch) == ["n.num_batches_tracked"]
    # Of a mapping by hand it need not be said.
    by_hand = mapping.model_copy(update={"ignored": Reasons()})
    by_hand.check(keras, torch)
    state = {name: np.ones(8) for name in by_hand.names("torch")}
    counters = {"n.num_batches_tracked": np.ones(()), "averaged.n_averaged": np.ones(())}
    assert len(by_hand.to_keras(state | counters)) == 3
    with pytest.raises(ExternalModelError, match=r"does not name the torch tensor 'n\.other'.* in ignored"):
        by_hand.to_keras(state | {"n.other": np.ones(())})


def test_check_names_the_tensor():
    keras, torch = sides([("a", 8, 4)], [("x", 8, 4)])
    good = propose(keras, torch)
    wrong = {
        "takes (8, 4) to (8, 4)": (("rule", "same"),),
        "has no tensor 'x.wieght'; closest are 'x.weight'": (("torch", ("x.wieght",)),),
    }
    for said, changes in wrong.items():
        pairs = (good.tensors[0].model_copy(update=dict(changes)), *good.tensors[1:])
        with pytest.raises(ExternalModelError) as error:
            good.model_copy(update={"tensors": pairs}).check(keras, torch)
        assert said in str(error.value) and "\n" not in str(error.value)
    with pytest.raises(ExternalModelError, match=r"does not name 'a/kernel' \(8, 4\)"):
        good.model_copy(update={"tensors": good.tensors[1:]}).check(keras, torch)


def test_the_order_of_a_kernels_axes_is_read_off_its_rule() -> None:
    assert _order_of_axes("a b c 1 d -> d 1 c a b") == [2, 0, 1]
    assert _order_of_axes("a b i o -> o i b a") == [1, 0]
    assert all(_order_of_axes(rule) is None for rule in ("conv", "a b i o -> o i a b", "a b c -> c a b"))


def test_pairs_of_blocks_are_exchanged_only_where_their_shapes_allow_it():
    """Blocks on the way up that torch numbers from the other end, and more on the way down: by most names their numbers are the same."""
    sizes = {"1": (32, 64), "0": (16, 32)}
    down, up = "pqrstu", "abc"
    keras = [
        (f"{name}{n}", "conv2d", {"kernel": ("kernel", (1, 1, *sizes[n]))})
        for names, order in ((down, "01"), (up, "10"))
        for n in order
        for name in names
    ]
    torch = [
        (f"{name}.{k}", "conv2d", {"weight": ("kernel", (*sizes[n][::-1], 1, 1))})
        for names, order in (("ghijkl", "01"), ("xyz", "10"))
        for k, n in enumerate(order)
        for name in names
    ]
    sides = outline("tensorflow", *keras), outline("torch", *torch)
    mapping = propose(*sides)
    mapping.check(*sides)
    assert partners(mapping)["a1/kernel"] == "x.0.weight"
