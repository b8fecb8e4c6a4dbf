"""What users' models have to do with no framework: layouts, calling, messages, settings."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.common.base.errors import ExternalModelError, SpecError
from parity.common.diagnosis.result import Explanation, Finding, TensorComparison
from parity.common.execution.processes.channel import Channel
from parity.common.execution.processes.user_errors import blame
from parity.common.external.pairs.grouping import grouped
from parity.common.external.process import layouts
from parity.common.external.process.calling import arrange, check_target, chosen_outputs
from parity.common.external.process.changes import change_all, sides, switch_rates
from parity.common.external.process.pass_result import tensors_in, with_tensors
from parity.common.spec.losses import parse_loss


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(size=shape)


# Layouts.


@pytest.mark.parametrize("shape", [(2, 5, 3), (2, 5, 6, 3), (2, 4, 5, 6, 3)])
def test_channels_first_is_found_and_undone(shape: tuple[int, ...]) -> None:
    keras = normal(*shape)
    torch = layouts.to_torch_input(keras)
    assert torch.shape == (2, 3, *shape[1:-1])
    found = layouts.aligned(keras, torch)
    assert found is not None and found.how == "channels_first" and np.array_equal(found.array, keras)
    assert np.array_equal(layouts.back(keras, found.how), torch)
    assert np.array_equal(layouts.to_keras_layout(torch), keras)


@pytest.mark.parametrize(
    ("keras", "torch", "how"), [((4, 1, 1, 5), (4, 5), "with 1,2"), ((4, 5), (4, 5, 1, 1), "without 2,3")]
)
def test_axes_of_one_element_make_no_difference(
    keras: tuple[int, ...], torch: tuple[int, ...], how: str
) -> None:
    """A convolution over one pixel on one side, a dense layer on the other."""
    ours, theirs = (np.arange(20.0).reshape(shape) for shape in (keras, torch))
    found = layouts.aligned(ours, theirs)
    assert found is not None and found.how == how
    assert np.array_equal(found.array, ours)
    assert np.array_equal(layouts.back(ours, how), theirs)
    assert layouts.aligned(np.zeros((4, 6)), theirs) is None


def test_axes_may_be_joined_on_one_side() -> None:
    whole = normal(4, 7, 5)
    joined = whole.reshape(28, 5)
    patches, picture = normal(2, 16, 5), normal(2, 4, 4, 5)
    for keras, torch, how in (
        (joined, whole, "joined 4,7"),
        (whole, joined, "divided"),
        (patches, layouts.to_torch_input(patches.reshape(2, 4, 4, 5)), "sequence 4,4"),
        (picture, picture.reshape(2, 16, 5), "picture"),
    ):
        found = layouts.aligned(keras, torch)
        assert found is not None and found.how == how
        assert np.array_equal(found.array, keras) and np.array_equal(layouts.back(keras, how), torch)
    assert layouts.aligned(joined, normal(4, 5, 7)) is None


def test_equal_sides_are_told_apart_by_their_numbers() -> None:
    keras = normal(3, 3, 3, 3)
    for how in ("same", "channels_first", "time_first"):
        found = layouts.aligned(keras, layouts.back(keras, how))
        assert found is not None and found.how == how
    noisy = layouts.back(keras, "channels_first") + 1e-3
    found = layouts.aligned(keras, noisy)
    assert found is not None and found.how == "channels_first"


def test_other_orders_of_axes_are_found_and_undone() -> None:
    """Of planes in four orientations, say: (batch, channels, 4, height, width) is (batch, height, width, 4, channels)."""
    for shape in ((2, 7, 7, 4, 6), (2, 4, 4, 4, 6)):
        keras = normal(*shape)
        torch = keras.transpose(0, 4, 3, 1, 2)
        found = layouts.aligned(keras, torch)
        assert found is not None and found.how == "axes 0,3,4,2,1"
        assert np.array_equal(found.array, keras) and np.array_equal(layouts.back(keras, found.how), torch)


def test_where_numbers_do_not_tell_an_order_of_axes_it_is_that_of_other_tensors() -> None:
    keras, torch = normal(2, 5, 5, 4, 6), normal(2, 6, 4, 5, 5)
    assert layouts.aligned(keras, torch, ["same"]) is None
    found = layouts.aligned(keras, torch, ["same", "axes 0,4,3,2,1"])
    assert found is not None and found.how == "axes 0,4,3,2,1"
    # Beside heads in another order, pictures of as many channels as rows are channels first as others are.
    heads, pictures = "axes 0,2,1,3", normal(2, 4, 4, 4)
    for known, how in (([heads], heads), ([heads, "channels_first"], "channels_first")):
        found = layouts.aligned(pictures, normal(3, 4, 4, 4)[1:], known)
        assert found is not None and found.how == how
    only = layouts.aligned(normal(2, 3, 4, 5), normal(2, 4, 5, 3), ["same"])
    assert only is not None and only.how == "axes 0,3,1,2"


@pytest.mark.parametrize(
    ("keras", "torch", "how"), [((2, 1, 1, 8), (2, 8), "with 1,2"), ((2, 8), (2, 8, 1, 1), "without 2,3")]
)
def test_axes_of_one_element_are_added_and_removed(
    keras: tuple[int, ...], torch: tuple[int, ...], how: str
) -> None:
    ours, theirs = np.arange(16.0).reshape(keras), np.arange(16.0).reshape(torch)
    found = layouts.aligned(ours, theirs)
    assert found is not None and found.how == how and np.array_equal(found.array, ours)
    assert np.array_equal(layouts.back(ours, how), theirs)


def test_shapes_that_fit_nothing_are_none() -> None:
    assert layouts.aligned(normal(2, 3), normal(2, 4)) is None
    assert layouts.aligned(normal(2, 5, 3), normal(2, 5, 4, 1)) is None
    assert layouts.aligned(normal(2, 1, 5), normal(2, 5, 2)) is None
    with pytest.raises(ExternalModelError, match="no channels to move"):
        layouts.to_torch_input(normal(2, 3))


def test_nan_does_not_decide_a_layout() -> None:
    keras = normal(3, 3, 3, 3)
    keras[0, 1, 2, 0] = np.nan
    found = layouts.aligned(keras, layouts.back(keras, "channels_first"))
    assert found is not None and found.how == "channels_first"


# Calling.


def signature(text: str) -> inspect.Signature:
    return inspect.signature(eval(f"lambda {text}: None"))


ARRANGED = [
    ("x", {"anything": 1}, ([1], {})),
    ("x, training=None", {"anything": 1}, ([1], {})),
    ("x, mask=None", {"x": 1}, ([], {"x": 1})),
    ("x, mask", {"x": 1, "mask": 2}, ([], {"x": 1, "mask": 2})),
    ("a, b", {"b": 1, "a": 2}, ([], {"b": 1, "a": 2})),
    ("a, b", {"q": 1, "r": 2}, ([1, 2], {})),
    ("a, b=None, c=None", {"c": 1, "a": 2}, ([], {"c": 1, "a": 2})),
    ("batch", {"q": 1, "r": 2}, ([{"q": 1, "r": 2}], {})),
    ("*args", {"q": 1, "r": 2}, ([1, 2], {})),
    ("*args", {"q": 1}, ([1], {})),
    ("**kwargs", {"q": 1, "r": 2}, ([], {"q": 1, "r": 2})),
    ("a, **kwargs", {"a": 1, "r": 2}, ([], {"a": 1, "r": 2})),
    ("a, b", {"a": 1, "c": 2}, ([], {"a": 1, "b": 2})),
    ("a, b", {"c": 2, "a": 1}, None),
    ("a, b, c", {"a": 1, "d": 2, "e": 3}, None),
    ("a, b=None", {"a": 1, "c": 2}, None),
    ("a, b", {"q": 1}, None),
    ("a, b", {"q": 1, "r": 2, "s": 3}, None),
    ("", {"q": 1}, None),
]


@pytest.mark.parametrize(("text", "inputs", "expected"), ARRANGED)
def test_inputs_are_arranged_or_refused(text: str, inputs: dict[str, Any], expected: Any) -> None:
    if expected is None:
        with pytest.raises(ExternalModelError, match="received the inputs"):
            arrange(inputs, signature(text), "forward")
    else:
        assert arrange(inputs, signature(text), "forward") == expected


def test_outputs_are_chosen_only_where_it_is_clear() -> None:
    target = normal(2)
    assert chosen_outputs({"output": 0}, target)[0][0] == "output"
    assert chosen_outputs({"logits": 0, "hidden": 1}, target)[0][0] == "logits"
    assert chosen_outputs({"output": 0}, {"y": target})[0][0] == "output"
    for outputs, targets in (
        ({"0": 0, "1": 1}, target),
        ({"0": 0, "1": 1}, {"2": target}),
        ({}, target),
        ({"0": 0}, {}),
    ):
        with pytest.raises(ExternalModelError):
            chosen_outputs(outputs, targets)


def test_targets_are_never_broadcast() -> None:
    numbers, classes = parse_loss({"kind": "mean_squared_error"}), parse_loss({})
    check_target(numbers, "y", (4, 3), normal(4, 3))
    check_target(classes, "y", (4, 3), np.zeros(4, int))
    for loss, shape in ((numbers, (4, 1)), (numbers, (4,)), (classes, (4, 1)), (classes, (3,))):
        with pytest.raises(ExternalModelError, match="so the loss wants targets of the shape"):
            check_target(loss, "y", (4, 3), np.zeros(shape))
    with pytest.raises(ExternalModelError, match="does not suit the loss"):
        check_target(parse_loss({"class_weights": (1.0, 2.0)}), "y", (4, 3), np.zeros(4))


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class Result:
    logits: Any
    more: Any = None


def test_tensors_in_nested_results_keep_their_names_and_places() -> None:
    is_tensor = lambda value: isinstance(value, np.ndarray)  # noqa: E731
    a, b, c, d = (np.full(1, k) for k in range(4))
    value = OrderedDict(first=Pair(a, [b, None, "text"]), second=Result(c, {"deep": d}), third=3)
    names = ["first/0", "first/1/0", "second/logits", "second/more/deep"]
    assert list(tensors_in(value, is_tensor)) == names
    changed = with_tensors(value, is_tensor, lambda tensor: tensor + 10)
    assert [int(tensor[0]) for tensor in tensors_in(changed, is_tensor).values()] == [10, 11, 12, 13]
    assert type(changed["first"]) is Pair and type(changed["second"]) is Result and changed["third"] == 3
    assert [int(tensor[0]) for tensor in tensors_in(value, is_tensor).values()] == [0, 1, 2, 3], (
        "the old is as it was"
    )
    assert list(tensors_in(a, is_tensor)) == ["output"]


# The channel.


def test_a_channel_carries_what_it_is_given(tmp_path: Path) -> None:
    out, back = Channel(tmp_path, "a_"), Channel(tmp_path, "b_")
    value = {
        "z": normal(2, 3)[:, ::2],
        "a": [np.float32(1.5), {"deep": np.array(7, np.int64)}, None, True, "text", float("nan")],
        "empty": np.zeros((0, 3), np.float32),
        "big end": np.arange(3, dtype=">f8"),
        "flags": np.array([True, False]),
    }
    found = back.unpack(out.pack(value))
    assert list(found) == list(value), "in their order"
    for name in ("z", "empty", "big end", "flags"):
        assert np.array_equal(found[name], value[name]) and found[name].shape == value[name].shape
    assert found["a"][:5][1]["deep"].shape == () and found["a"][2:5] == [None, True, "text"]
    assert not list(tmp_path.iterdir()), "the file is gone"


@pytest.mark.parametrize("wrong", [np.array(["a"]), np.array([None]), np.array([1j]), object(), {1, 2}])
def test_what_a_channel_cannot_carry_is_refused(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(ExternalModelError, match=r"x has the type|x: a "):
        Channel(tmp_path, "a_").pack({"x": wrong})
    assert not list(tmp_path.iterdir())


# Messages.


def test_blame_is_one_line_and_passes_ours_on() -> None:
    ours = ExternalModelError("as it is")
    assert blame(ours, "x") is ours
    assert str(blame(SpecError("said"), "x")) == "x: said"
    assert str(blame(MemoryError(), "x")).startswith("x ran out of memory")
    line = str(blame(ValueError("a\nb\t" + 999 * "c" + "\x1b[31m"), "x"))
    assert "\n" not in line and "\x1b" not in line and len(line) < 600


# Settings.


class Layer:
    def __init__(self, **settings: Any) -> None:
        self.settings = settings


def read(layer: Layer) -> dict[str, Any]:
    return layer.settings


def write(layer: Layer, setting: str, value: Any) -> None:
    if setting == "fixed":
        raise KeyError(setting)
    if setting != "stubborn":
        layer.settings[setting] = value


def test_changes_are_read_again_and_undone_where_one_fails() -> None:
    layers = {"a": Layer(rate=0.5), "b": Layer(rate=0.25, fixed=1, stubborn=2), "c": Layer()}
    assert change_all(layers, "a", "rate", 0.1, read, write) == 0.5
    assert change_all(layers, "*", "rate", 0.0, read, write) == {"a": 0.1, "b": 0.25}
    for path, setting, said in (
        ("d", "rate", "no layer 'd'"),
        ("c", "rate", "has no setting 'rate'"),
        ("b", "fixed", "fixed cannot be changed to 9"),
        ("b", "stubborn", "stubborn stays 2"),
        ("x*", "rate", "no layer that 'x"),
    ):
        with pytest.raises(ExternalModelError, match=said):
            change_all(layers, path, setting, 9, read, write)
    layers["a"].settings["fixed"] = 0
    layers["a"].settings["stubborn"] = 9
    with pytest.raises(ExternalModelError):
        change_all(layers, "*", "stubborn", 9, read, write)


def test_rates_are_switched_off_and_on() -> None:
    class Dropping:
        def __init__(self) -> None:
            self.p, self.drop_prob, self.rate, self.units = 0.5, 0.1, 1, 0.3

    layers = {"a": Dropping(), "b": Layer()}
    assert switch_rates(layers, False) == ["a"] and switch_rates(layers, False) == []
    assert (layers["a"].p, layers["a"].drop_prob, layers["a"].rate, layers["a"].units) == (0.0, 0.0, 1, 0.3)
    assert switch_rates(layers, True) == ["a"] and (layers["a"].p, layers["a"].drop_prob) == (0.5, 0.1)
    assert switch_rates(layers, True) == []


@given(st.integers(1, 40), st.integers(1, 7), st.integers(1, 5), st.integers(1, 3))
def test_same_padding_gives_the_rounded_up_size(size: int, kernel: int, stride: int, dilation: int) -> None:
    ((before, behind),) = sides("same", (size,), (kernel,), (stride,), (dilation,))
    extent = (kernel - 1) * dilation + 1
    assert 0 <= behind - before <= 1
    assert max(0, (size + before + behind - extent) // stride + 1) >= -(-size // stride)
    if before + behind:
        assert (size + before + behind - extent) // stride + 1 == -(-size // stride)


def test_padding_in_numbers_and_words() -> None:
    assert sides("valid", (5, 5), (3, 3), (1, 1), (1, 1)) == [(0, 0), (0, 0)]
    assert sides((0, 1, 2, 3), (5, 5), (3, 3), (1, 1), (1, 1)) == [(0, 1), (2, 3)]
    for wrong in ("around", (1, 1), 1, None):
        with pytest.raises(KeyError):
            sides(wrong, (5, 5), (3, 3), (1, 1), (1, 1))


def finding(name: str, layer: str, defect: str = "epsilon 1 2", confidence: str = "confirmed") -> Finding:
    why = Explanation(
        "setting:epsilon", f"epsilon of {layer}", confidence, "", "", defect=defect, layers=(layer,)
    )
    return Finding(0, "forward", name, (), (TensorComparison(name, None, 1.0, 0.1),), (), why)


def test_a_defect_of_several_layers_is_one_finding() -> None:
    layers = [finding(f"forward/norm{number}", f"norm{number}") for number in range(6)]
    other = finding("forward/other", "other", "epsilon 1 3")
    unknown = replace(layers[0], name="forward/unknown", explanation=None)
    one, *rest = grouped([layers[0], other, *layers[1:], unknown, unknown])
    assert rest == [other, unknown, unknown]
    assert [tensor.name for tensor in one.tensors] == [each.name for each in layers]
    assert one.explanation.layers == tuple(f"norm{number}" for number in range(6))
    assert one.explanation.text == "epsilon of norm0, and so for 5 more: norm1, norm2, norm3, and 2 others"


@pytest.mark.parametrize("change", [{"defect": ""}, {"confidence": "likely"}, {"cause": "setting:decay"}])
def test_what_is_not_the_same_defect_stays_apart(change: dict[str, str]) -> None:
    first, second = finding("forward/a", "a"), finding("forward/b", "b")
    second = replace(second, explanation=replace(second.explanation, **change))
    assert grouped([first, second]) == [first, second]
