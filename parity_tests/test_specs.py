"""Specs: strict about what they take, exact about what they mean, readable when they refuse."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.common import recipes
from parity.common.base.errors import SpecError
from parity.common.recipes import RECIPES
from parity.common.spec import (
    LayerSpec,
    TrainSpec,
    dump_json,
    dump_yaml,
    json_schema,
    load_spec,
    override,
    walk,
)
from parity.common.spec import model as models
from parity_tests.helpers import ROOT
from parity_tests.helpers.records import TINY, one_line, tiny_spec


def refused(data: object, *words: str) -> str:
    """Parsing raises SpecError with one line that holds all words; returns the line."""
    with pytest.raises(SpecError) as error:
        TrainSpec.parse(data)
    text = one_line(error.value)
    assert all(word in text for word in words), text
    assert len(text) < 700
    return text


def with_field(path: str, value: object) -> dict[str, Any]:
    """TINY with one field replaced; value ... removes it."""
    data: dict[str, Any] = json.loads(json.dumps(TINY))
    here: Any = data
    *parents, last = [int(part) if part.isdecimal() else part for part in path.split(".")]
    for part in parents:
        here = here[part]
    if value is ...:
        del here[last]
    else:
        here[last] = value
    return data


def test_the_spec_that_the_tests_spoil_is_good() -> None:
    assert TrainSpec.parse(TINY).name == "tiny"
    assert TrainSpec.parse(with_field("seed", 5)).seed == 5


# field, value, words that the message must hold: the value received and what is allowed.
WRONG: list[tuple[str, object, tuple[str, ...]]] = [
    ("steps", 0, ("0", "greater than 0")),
    ("steps", -3, ("-3", "greater than 0")),
    ("steps", 1.5, ("1.5", "integer")),
    ("steps", "many", ("'many'", "integer")),
    ("steps", True, ("True",)),
    ("optimizer.learning_rate", True, ("True",)),
    ("steps", None, ("None", "integer")),
    ("global_batch_size", 0, ("0", "greater than 0")),
    ("seed", -1, ("-1", "greater than or equal to 0")),
    ("precision", "float16", ("'float16'", "float64, float32", "did you mean 'float16_mixed'")),
    ("convention", "jax", ("'jax'", "keras, torch")),
    ("name", "a b", ("'a b'", "pattern")),
    ("name", "../up", ("'../up'", "pattern")),
    ("name", "x" * 65, ("pattern",)),
    ("name", 5, ("5", "string")),
    ("model", None, ("None",)),
    ("model.layers", [], ("at least 1",)),
    ("model.layers.0.kind", "atention", ("'atention'", "'self_attention'", "page Vocabulary")),
    ("model.layers.0.units", "x", ("'x'", "integer")),
    ("model.layers.0.units", 0, ("0", "greater than 0")),
    ("model.layers.0.name", "A/b", ("'A/b'", "pattern")),
    ("model.layers.0.kernel_initializer", "he", ("'he'", "glorot_uniform", "uniform_fan_in", "normal_X")),
    ("model.layers.1.function", "swish", ("'swish'", "relu, ", "gelu, ", "tanh")),
    ("model.input_shape", [], ("at least 1",)),
    ("model.input_shape.0", 0, ("0", "greater than 0")),
    ("optimizer.kind", "ftrl", ("'ftrl'", "sgd, adam, adamw, ")),
    ("optimizer.learning_rate", 0, ("0", "greater than 0")),
    ("optimizer.learning_rate", float("nan"), ("nan", "finite")),
    ("optimizer.learning_rate", float("inf"), ("inf", "finite")),
    ("optimizer.momentum", 1, ("1", "less than 1")),
    ("optimizer.weight_decay", -0.1, ("-0.1", "greater than or equal to 0")),
    ("optimizer.clip_global_norm", 0, ("0", "greater than 0")),
    ("schedule.kind", "steps", ("'steps'", "constant, warmup_cosine, ", "did you mean 'step'")),
    ("schedule.final_fraction", 2, ("2", "less than or equal to 1")),
    ("data.split", "random", ("'random'", "contiguous, strided")),
    ("data.tail", "pad", ("'pad'", "keep, drop")),
    ("data.source", "imagenet", ("'imagenet'", "'image_folder'")),
    ("data.train_samples", 0, ("0", "greater than 0")),
]


@pytest.mark.parametrize(("field", "value", "words"), WRONG, ids=[f"{f}={str(v)[:20]}" for f, v, _ in WRONG])
def test_a_wrong_value_is_named_with_what_is_allowed(
    field: str, value: object, words: tuple[str, ...]
) -> None:
    shown = field.removesuffix(".kind") if field.endswith(".kind") else field
    assert refused(with_field(field, value), *words).startswith(shown)


@pytest.mark.parametrize(
    "field",
    [
        "name",
        "model",
        "optimizer",
        "steps",
        "global_batch_size",
        "model.layers.0.units",
        "optimizer.learning_rate",
    ],
)
def test_a_missing_field_is_named(field: str) -> None:
    assert refused(with_field(field, ...), "required").startswith(f"{field}:")


@pytest.mark.parametrize(
    "field",
    [
        "epochs",
        "model.depth",
        "model.layers.0.unit",
        "optimizer.lr",
        "data.path",
        "schedule.gamma",
        "loss.weight",
    ],
)
def test_an_unknown_key_is_named(field: str) -> None:
    data = (
        with_field(field, 1)
        if not field.startswith("loss")
        else with_field("loss", {"kind": "huber", "weight": 1})
    )
    text = refused(data, "unknown key")
    assert text.startswith(f"{field}:")
    near = {"epochs": "steps", "model.layers.0.unit": "units", "optimizer.lr": "learning_rate"}
    assert text.endswith(
        f"did you mean {near[field]!r}?" if field in near else "--schema' lists the known ones"
    )


def test_a_key_inside_nested_layers_is_named_by_its_path() -> None:
    layers = [
        {"kind": "sequential", "layers": [{"kind": "residual", "layers": [{"kind": "dense", "unit": 4}]}]}
    ]
    text = refused(with_field("model.layers", layers), "more")
    assert text.startswith("model.layers.0.layers.0.layers.0.unit")


@pytest.mark.parametrize("key", ["a\nb", "a\x1b[31m", "\u2028"])
def test_an_unprintable_key_does_not_break_the_line(key: str) -> None:
    assert refused({**TINY, key: 1}, "unknown key").isprintable()


@pytest.mark.parametrize("data", [[], "text", 5, None])
def test_what_is_not_a_mapping_is_refused(data: object) -> None:
    refused(data, "TrainSpec")


def image(*layers: dict[str, Any]) -> dict[str, Any]:
    return with_field("model", {"input_shape": [8, 8, 1], "layers": list(layers)})


SEQUENCE = [{"kind": "patchify", "size": 2}, {"kind": "dense", "units": 6}]
END = [{"kind": "global_average_pool"}, {"kind": "dense", "units": 10}]
SHAPES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "kernel too large": (
        image({"kind": "conv2d", "filters": 2, "kernel_size": 9, "padding": "valid"}, *END),
        ("conv2d", "kernel_size 9", "8"),
    ),
    "pool too large": (image({"kind": "max_pool2d", "size": 9}, *END), ("max_pool2d", "9", "(8, 8, 1)")),
    "heads do not divide": (
        image(*SEQUENCE, {"kind": "self_attention", "heads": 4}, *END),
        ("self_attention", "heads 4", "6"),
    ),
    "patches do not divide": (image({"kind": "patchify", "size": 3}, *END), ("patchify", "3", "(8, 8, 1)")),
    "residual changes shape": (
        image(
            *SEQUENCE, {"kind": "residual", "name": "skip", "layers": [{"kind": "dense", "units": 7}]}, *END
        ),
        ("skip", "(16, 6)", "(16, 7)"),
    ),
    "convolution of a vector": (
        image({"kind": "flatten"}, {"kind": "conv2d", "filters": 2}),
        ("conv2d", "HWC", "(64,)"),
    ),
    "attention over an image": (image({"kind": "self_attention", "heads": 1}, *END), ("(tokens, features)",)),
    "names twice": (
        image({"kind": "flatten"}, *[{"kind": "dense", "units": 5, "name": "head"}] * 2),
        ("'head'", "twice"),
    ),
    "a given name equal to a kind": (
        image(
            {"kind": "flatten"},
            {"kind": "dense", "units": 5},
            {"kind": "activation", "function": "relu", "name": "dense"},
        ),
        ("'dense'", "twice"),
    ),
    "names twice below": (
        image(*SEQUENCE, {"kind": "sequential", "layers": [{"kind": "layer_norm", "name": "n"}] * 2}, *END),
        ("'n'", "twice"),
    ),
    "no batch remains": (
        {**TINY, "data": {"train_samples": 10, "tail": "drop"}},
        ("global_batch_size 16", "10", "drop"),
    ),
    "nesterov without momentum": (
        with_field("optimizer", {"kind": "sgd", "learning_rate": 1, "nesterov": True}),
        ("nesterov", "momentum"),
    ),
    "coupled AdamW": (
        with_field("optimizer", {"kind": "adamw", "learning_rate": 1, "weight_decay_mode": "coupled"}),
        ("weight_decay_mode", "coupled"),
    ),
}


@pytest.mark.parametrize("case", SHAPES)
def test_what_does_not_fit_is_refused(case: str) -> None:
    data, words = SHAPES[case]
    refused(data, *words)


def test_what_just_fits_is_taken() -> None:
    TrainSpec.parse(image({"kind": "conv2d", "filters": 2, "kernel_size": 8, "padding": "valid"}, *END))
    TrainSpec.parse(image(*SEQUENCE, {"kind": "self_attention", "heads": 3}, *END))
    TrainSpec.parse({**TINY, "data": {"train_samples": 16, "tail": "drop"}})


# TensorFlow's documented output: ceil(n / s) for same, ceil((n - k + 1) / s) for valid (DIFFERENCES row 33).
@pytest.mark.parametrize(
    ("padding", "kernel", "stride", "side", "pads"),
    [
        ("same", 3, 1, 8, (1, 1)),
        ("same", 3, 2, 4, (0, 1)),
        ("same", 2, 1, 8, (0, 1)),
        ("same", 5, 3, 3, (1, 2)),
        ("valid", 3, 2, 3, (0, 0)),
    ],
)
def test_convolution_shapes_are_tensorflows(
    padding: str, kernel: int, stride: int, side: int, pads: tuple[int, int]
) -> None:
    layer = {"kind": "conv2d", "filters": 5, "kernel_size": kernel, "strides": stride, "padding": padding}
    node = TrainSpec.parse(image(layer, *END)).model.tree().children[0]
    assert node.output_shape == (side, side, 5)
    assert node.spec.same_padding(8) == pads  # type: ignore[attr-defined]


# Rows of DIFFERENCES.md: path in the resolved spec -> (Keras's value, PyTorch's value).
NET = image(
    {"kind": "conv2d", "filters": 4},
    {"kind": "batch_norm"},
    {"kind": "flatten"},
    {"kind": "layer_norm"},
    {"kind": "dense", "units": 10},
)
SGD, ADAM, ADAMW = ({"kind": kind, "learning_rate": 0.1} for kind in ("sgd", "adam", "adamw"))
CONVENTIONS: list[tuple[int, dict[str, Any], str, object, object]] = [
    (1, SGD, "model.layers.1.decay", 0.99, 0.9),  # PyTorch's momentum .1 is a decay of .9
    (2, SGD, "model.layers.1.epsilon", 1e-3, 1e-5),
    (3, SGD, "model.layers.1.running_variance", "biased", "unbiased"),
    (7, SGD, "optimizer.momentum_form", "velocity", "buffer"),
    (9, SGD, "optimizer.weight_decay_mode", "decoupled", "coupled"),
    (11, ADAM, "optimizer.epsilon", 1e-7, 1e-8),
    (11, ADAM, "optimizer.epsilon_place", "outside", "inside"),
    (11, ADAMW, "optimizer.epsilon", 1e-7, 1e-8),
    (11, ADAMW, "optimizer.epsilon_place", "outside", "inside"),
    (12, ADAM, "optimizer.weight_decay_mode", "decoupled", "coupled"),
    (12, ADAM, "optimizer.weight_decay", 0.0, 0.0),
    (13, ADAMW, "optimizer.weight_decay", 0.004, 0.01),
    (13, ADAMW, "optimizer.weight_decay_mode", "decoupled", "decoupled"),
    *[(17, optimizer, "optimizer.clip_epsilon", 0.0, 1e-6) for optimizer in (SGD, ADAM, ADAMW)],
    (37, SGD, "model.layers.2.order", "hwc", "chw"),
    (40, SGD, "model.layers.3.epsilon", 1e-3, 1e-5),
    (43, SGD, "model.layers.4.kernel_initializer", "glorot_uniform", "uniform_fan_in"),
    (43, SGD, "model.layers.4.bias_initializer", "zeros", "uniform_fan_in"),
    (43, SGD, "model.layers.0.kernel_initializer", "glorot_uniform", "uniform_fan_in"),
]


def at(data: Any, path: str) -> Any:
    for part in path.split("."):
        data = data[int(part)] if part.isdecimal() else data[part]
    return data


@pytest.mark.parametrize(
    ("row", "optimizer", "path", "keras", "torch"),
    CONVENTIONS,
    ids=[f"{r}-{o['kind']}-{p}" for r, o, p, *_ in CONVENTIONS],
)
def test_a_convention_decides_what_was_not_given(
    row: int, optimizer: dict[str, Any], path: str, keras: object, torch: object
) -> None:
    data = {**NET, "optimizer": optimizer}
    for convention, value in (("keras", keras), ("torch", torch)):
        spec = TrainSpec.parse({**data, "convention": convention})
        assert at(spec.to_dict(), path) is None
        assert at(spec.resolved().to_dict(), path) == value
    if keras != torch:
        explicit = override(
            TrainSpec.parse(data), [f"{path}={json.dumps(keras)}", "convention=torch"]
        ).resolved()
        assert at(explicit.to_dict(), path) == keras


def test_an_optimizer_may_follow_its_own_convention() -> None:
    data = {**NET, "convention": "torch", "optimizer": {**ADAMW, "convention": "keras"}}
    spec = TrainSpec.parse(data).resolved().to_dict()
    assert spec["optimizer"]["weight_decay"] == 0.004
    assert spec["model"]["layers"][1]["epsilon"] == 1e-5


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("convention", ["keras", "torch"])
def test_nothing_is_left_open_after_resolving(recipe: str, convention: str) -> None:
    """Each field that some convention decides is written out, at every depth."""
    spec = override(recipes.get(recipe), [f"convention={convention}"]).resolved()
    parts = [spec.optimizer, *(node.spec for node in walk(spec.model.tree()))]
    decided = [(part, name) for part in parts for name in part.conventions]
    assert decided
    assert all(getattr(part, name) is not None for part, name in decided)
    assert spec.resolved() == spec and spec.resolved().content_hash() == spec.content_hash()


DENSE = st.fixed_dictionaries(
    {"kind": st.just("dense"), "units": st.integers(1, 9)},
    optional={"use_bias": st.booleans(), "bias_initializer": st.sampled_from(["zeros", "ones"])},
)
SAME_SHAPE = st.one_of(
    st.fixed_dictionaries(
        {"kind": st.just("activation"), "function": st.sampled_from(["relu", "gelu", "tanh"])}
    ),
    st.fixed_dictionaries({"kind": st.just("layer_norm")}, optional={"epsilon": st.floats(1e-12, 1)}),
    st.fixed_dictionaries(
        {"kind": st.just("batch_norm")},
        optional={"decay": st.floats(0, 0.999), "statistics": st.sampled_from(["global", "per_replica"])},
    ),
)
LAYERS = st.lists(
    st.one_of(
        DENSE,
        SAME_SHAPE,
        st.builds(
            lambda inner: {"kind": "residual", "layers": inner}, st.lists(SAME_SHAPE, min_size=1, max_size=2)
        ),
        st.builds(
            lambda inner: {"kind": "sequential", "layers": inner}, st.lists(DENSE, min_size=1, max_size=2)
        ),
    ),
    min_size=1,
    max_size=4,
)
RATE = st.floats(1e-300, 1e300)
OPTIMIZERS = st.one_of(
    st.fixed_dictionaries(
        {"kind": st.just("sgd"), "learning_rate": RATE},
        optional={
            "momentum": st.floats(0, 0.99),
            "clip_global_norm": RATE,
            "momentum_form": st.just("buffer"),
        },
    ),
    st.fixed_dictionaries(
        {"kind": st.sampled_from(["adam", "adamw"]), "learning_rate": RATE},
        optional={
            "epsilon": RATE,
            "weight_decay": st.floats(0, 1),
            "convention": st.sampled_from(["keras", "torch"]),
        },
    ),
)
SPECS = st.fixed_dictionaries(
    {
        "name": st.from_regex(r"[A-Za-z0-9_.-]{1,64}", fullmatch=True),
        "convention": st.sampled_from(["keras", "torch"]),
        "model": st.builds(lambda layers: {"input_shape": [4], "layers": layers}, LAYERS),
        "optimizer": OPTIMIZERS,
        "schedule": st.one_of(
            st.just({"kind": "constant"}),
            st.builds(lambda n: {"kind": "warmup_cosine", "warmup_steps": n}, st.integers(0, 99)),
        ),
        "global_batch_size": st.integers(1, 10**6),
        "steps": st.integers(1, 10**9),
        "seed": st.integers(0, 2**70),
        "precision": st.sampled_from(["float64", "float32"]),
    }
).map(TrainSpec.parse)


def check_round_trip(spec: TrainSpec, folder: Path) -> None:
    for text in (dump_yaml(spec), dump_json(spec), yaml.safe_dump(spec.given()), json.dumps(spec.given())):
        (folder / "spec").write_text(text, encoding="utf-8")
        again = load_spec(folder / "spec")
        assert again.to_dict() == spec.to_dict()
        assert again.content_hash() == spec.content_hash()
        assert again.resolved() == spec.resolved()
    assert "&" not in dump_yaml(spec) and "!!" not in dump_yaml(spec)


@pytest.mark.sweep
@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes_survive_yaml_and_json(tmp_path: Path, recipe: str) -> None:
    spec = recipes.get(recipe)
    assert spec.name == recipe
    check_round_trip(spec, tmp_path)


@given(spec=SPECS)
@settings(max_examples=40, deadline=None)
def test_any_spec_survives_yaml_and_json(tmp_path_factory: pytest.TempPathFactory, spec: TrainSpec) -> None:
    folder = tmp_path_factory.mktemp("specs")
    check_round_trip(spec, folder)
    check_round_trip(spec.resolved(), folder)
    assert spec.resolved().resolved() == spec.resolved()
    assert override(spec, []) == spec


def changed_fields() -> list[str]:
    """Assignments that change one field each, for every plain field of a resolved spec."""
    other = {
        "precision": "float32",
        "convention": "torch",
        "data.split": "strided",
        "data.tail": "drop",
        "name": "other",
        "model.layers.1.function": "relu",
        "optimizer.momentum_form": "buffer",
        "optimizer.weight_decay_mode": "coupled",
        "optimizer.clip_global_norm": "1.0",
        "optimizer.clip_epsilon": "0.5",
        "optimizer.convention": "torch",
        "schedule.decay_steps": "3",
        "schedule.final_fraction": "0.5",
    }
    numbers = ["global_batch_size=17", "steps=7", "seed=1", "data.train_samples=38", "data.eval_samples=4"]
    numbers += [
        "data.shuffle=false",
        "model.layers.0.use_bias=false",
        "model.layers.2.units=4",
        "model.input_shape=[5]",
    ]
    numbers += [
        "optimizer.learning_rate=0.2",
        "optimizer.momentum=0.8",
        "optimizer.nesterov=true",
        "optimizer.weight_decay=0.1",
    ]
    numbers += [
        "schedule.warmup_steps=3",
        "model.layers.0.name=first",
        "model.layers.0.kernel_initializer=ones",
    ]
    return [*numbers, *(f"{path}={value}" for path, value in other.items())]


def test_the_digest_changes_with_any_field() -> None:
    digests = [tiny_spec().content_hash(), *(tiny_spec(a).content_hash() for a in changed_fields())]
    assert len(set(digests)) == len(digests)
    assert tiny_spec().content_hash() == digests[0]
    assert all(len(digest) == 16 and int(digest, 16) >= 0 for digest in digests)


def test_the_digest_is_the_same_in_every_process() -> None:
    code = "from parity.common import recipes; print(*(recipes.get(n).resolved().content_hash() for n in recipes.RECIPES))"
    root = str(ROOT)
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": root}
        child = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        assert child.stdout.split() == [recipes.get(n).resolved().content_hash() for n in RECIPES]


def test_the_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert (
        TrainSpec.parse(dict(reversed(TINY.items()))).content_hash() == TrainSpec.parse(TINY).content_hash()
    )


def test_overrides_reach_every_place() -> None:
    spec = override(
        TrainSpec.parse(TINY),
        [
            "optimizer.learning_rate=1e-5",
            "model.layers.2.units=7",
            "schedule={kind: constant}",
            "data.shuffle=false",
            "name=a-b",
            "steps=1_0",
        ],
    )
    assert spec.optimizer.learning_rate == 1e-5
    assert spec.model.layers[2].units == 7  # type: ignore[attr-defined]
    assert spec.schedule.kind == "constant" and spec.data.shuffle is False
    assert spec.name == "a-b" and spec.steps == 10
    # Untouched fields stay, and so does the spec that was given.
    assert spec.data.train_samples == 37 and TrainSpec.parse(TINY).steps == 6
    assert override(spec, ["optimizer={kind: adam, learning_rate: 0.5}"]).optimizer.kind == "adam"
    assert override(spec, ["steps=8", "steps=9"]).steps == 9


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("steps", ("expected path.to.field=value",)),
        ("=5", ("expected path.to.field=value",)),
        ("step=5", ("step", "unknown key")),
        ("model.layers.9.units=5", ("model.layers", "0 to 2", "'9'")),
        ("model.layers.-1.units=5", ("model.layers", "0 to 2", "'-1'")),
        ("model.layers.x.units=5", ("model.layers", "'x'")),
        ("model.layers.0.units.x=5", ("model.layers.0.units", "no fields")),
        ("steps.x=5", ("steps", "no fields")),
        ("steps=", ("steps", "None")),
        ("steps=[", ("not YAML",)),
        ("steps={a: 1}", ("steps", "received {a: 1}")),
        ("optimizer.kind=adam", ("optimizer.momentum", "unknown key")),
        ("steps=2020-13-45", ("steps",)),
        ("steps=!!bool maybe", ("steps",)),
        ("steps=!!python/name:os.system", ("not YAML",)),
        (".=5", ("unknown key",)),
        ("a\nb=5", ("unknown key",)),
    ],
)
def test_a_bad_override_is_refused_in_one_line(assignment: str, words: tuple[str, ...]) -> None:
    with pytest.raises(SpecError) as error:
        override(TrainSpec.parse(TINY), [assignment])
    text = one_line(error.value)
    assert all(word in text for word in words), text


def layered_bomb(levels: int) -> str:
    """Ten times as many layers a level, by reference: a small file, an exponential tree."""
    lines = ["l0: &l0 [{kind: dense, units: 3}]"]
    for level in range(1, levels):
        inner = ", ".join([f"{{kind: sequential, layers: *l{level - 1}}}"] * 10)
        lines.append(f"l{level}: &l{level} [{inner}]")
    return "\n".join([*lines, f"model: {{input_shape: [3], layers: *l{levels - 1}}}", "name: bomb"])


LIST_BOMB = "\n".join(
    ["a0: &a0 [x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)), "name: *a9"]
)
MERGE_BOMB = "\n".join(
    [
        "m0: &m0 {k: 1}",
        *(f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 10)}]}}" for n in range(1, 9)),
        "name: x",
    ]
)
FILES: dict[str, str | bytes] = {
    "empty": "",
    "text": "hello",
    "list": "- a\n- b",
    "number": "5",
    "binary": bytes(range(256)),
    "latin-1": "name: caf\xe9".encode("latin-1"),
    "null bytes": b"\0" * 100,
    "tab": "a:\n\t- b",
    "open bracket": "{name: [",
    "two documents": "name: a\n---\nname: b",
    "deep": "[" * 20_000,
    "python object": "!!python/object/apply:os.system ['touch hacked']",
    "python name": "name: !!python/name:os.system",
    "unknown alias": "name: *nobody",
    "impossible date": "name: 2020-13-45",
    "huge number": "steps: " + "9" * 5000,
    "bad int tag": "steps: !!int ''",
    "bad bool tag": "steps: !!bool maybe",
    "bad timestamp tag": "steps: !!timestamp x",
    "list as a key": "[a, b]: 1",
    "layers within themselves": "model: {input_shape: [3], layers: &l [{kind: sequential, layers: *l}]}",
    "list bomb": LIST_BOMB,
    "merge bomb": MERGE_BOMB,
    "layer bomb": layered_bomb(9),
    "too large": "#" * (5 * 2**20),
}

READ = """
import resource, sys
from pathlib import Path
from parity.common.base.errors import SpecError
from parity.common.spec import load_spec
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (6, 6))
for path in sys.argv[1:]:
    try:
        load_spec(Path(path))
    except SpecError as error:
        print(repr(str(error)))
    else:
        print("taken")
"""


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_spec_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    content = FILES[name]
    path = tmp_path / "spec.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    if name.endswith("bomb"):
        # In a process of its own, whose time and memory are bounded.
        child = subprocess.run(
            [sys.executable, "-c", READ, path], capture_output=True, text=True, cwd=ROOT, timeout=60
        )
        assert child.returncode == 0, f"killed or crashed: {child.stderr[-300:]}"
        assert len(child.stdout) < 1000 and "taken" not in child.stdout and "\\n" not in child.stdout
        return
    with pytest.raises(SpecError) as error:
        load_spec(path)
    assert len(one_line(error.value)) < 1000
    assert [p.name for p in tmp_path.iterdir()] == ["spec.yaml"]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.yaml", tmp_path):
        with pytest.raises(SpecError, match="cannot be read") as error:
            load_spec(path)
        assert str(path) in one_line(error.value)


def references(schema: Any) -> list[str]:
    if isinstance(schema, dict):
        own = [schema["$ref"]] if isinstance(schema.get("$ref"), str) else []
        return own + [name for value in schema.values() for name in references(value)]
    return [name for item in schema for name in references(item)] if isinstance(schema, list) else []


def test_the_schema_knows_every_layer_and_every_field() -> None:
    schema = json.loads(json_schema())
    definitions = schema["$defs"]
    assert {name.removeprefix("#/$defs/") for name in references(schema)} <= set(definitions)
    # A layer and a loss may have one name.
    kinds: dict[str, list[dict[str, Any]]] = {}
    for definition in definitions.values():
        kind = definition.get("properties", {}).get("kind", {})
        if "const" in kind:
            kinds.setdefault(kind["const"], []).append(definition)
    layers = {
        cls.model_fields["kind"].default: cls
        for cls in LayerSpec.known
        if not cls.model_fields["kind"].is_required()
    }
    assert {"dense", "conv2d", "self_attention", "residual"} <= set(layers) <= set(kinds)
    for kind, cls in layers.items():
        (own,) = (each for each in kinds[kind] if set(each["properties"]) == set(cls.model_fields))
        assert own["additionalProperties"] is False
    assert set(schema["properties"]) == set(TrainSpec.model_fields)


def test_the_schema_is_a_schema() -> None:
    schema = json.loads(json_schema())
    jsonschema = pytest.importorskip("jsonschema", reason="validates more where it is installed")
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(TINY, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**TINY, "steps": 0}, schema)


def test_an_unknown_recipe_is_refused_in_one_line() -> None:
    with pytest.raises(
        SpecError, match=r"unknown recipe 'resnet'; 'parity recipes' lists all; did you mean 'resnet"
    ) as error:
        recipes.get("resnet")
    one_line(error.value)


def test_trees_are_looked_up_while_others_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that start side by side look up the trees of their models in threads."""
    spec = tiny_spec().model

    class Meanwhile:
        def __eq__(self, other: object) -> bool:
            models._TREES.append(((), (), None))
            return False

    monkeypatch.setattr(models, "_TREES", deque([(spec.layers, Meanwhile(), None)] * 2, maxlen=8))
    assert spec.tree().output_shape == (3,)
