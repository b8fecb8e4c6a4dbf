"""Edits of a user's torch code: what is tried, and how live functions run with it."""

from __future__ import annotations

import ast
import importlib
import itertools
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import numpy as np
import pytest

from parity.common.diagnosis import limits
from parity.common.external.mapping.copies import like_their_copies
from parity.common.external.pairs.code_edits import EVERYWHERE
from parity.common.spec.external.mapping import LayerPair, Mapping, Pair
from parity.common.spec.external.outline import Outline, TensorInfo
from parity.torch_impl.external.experiments.code_edits import CodeEdits
from parity.torch_impl.external.experiments.constructors import Constructed

# Of what is run nothing needs torch, which no process of tests imports.
MODULE = """
import numpy as np


def loss(ce, read):
    return ce[read].mean()


def kept(x):
    np.save("kept.npy", x + 1)


def smooth(x):
    return torch.log(x.mean(1))


def ranks(x):
    rank = x.argsort(dim=1, descending=True)
    return rank


def residual(x, observed):
    wide = F.silu(x)
    deep = wide
    square = torch.sum(x).square().mean((-2, -1))
    left = x - deep.roll(1)
    return left.cos(square)


def floor(db, spread):
    quiet = db.clamp(-1, 1)
    quiet.sub_(spread)
    far = torch.maximum(db, db.max() - quiet)
    return torch.zeros_like(far).scatter_reduce(0, spread, far, "amax")


def windows(x, rearrange):
    return rearrange(x, "(b b2 b1) c h w -> b c (b1 h) (b2 w)", b1=2, b2=2)


def averaged(grad, mean, var, mask):
    away = grad - mean
    away = away.mean(dim=(0, 1), keepdim=True)
    angle = torch.fmod(away, 2).mean(-1)
    mean.add_(away)
    var.addcmul_(away, away)


def scaled(factor):
    def scale(x):
        y = x * factor
        return y - 1.0
    return scale


def store(stock, gain, rain, share):
    full = stock + gain
    out = share * full
    return full - out + rain


class Cost:
    def backward(ctx, incoming):
        return ctx * 2, None

    def other(ctx, incoming):
        return ctx * 3, None


def joined(parts, mask):
    for part in parts:
        str(part)
    return [] if mask else parts


class Net:
    training = False

    def __init__(self):
        self.first, self.second = float, abs

    def forward(self, x, mask):
        y = self.first(x)
        if self.training:
            y = y + 1.0
        return joined([y, self.second(y)], not mask)

    def repeated(self, x, mask):
        y = x.repeat(2, 1)
        return y.masked_fill(mask, 0.0)


class Part:
    def __init__(self, **parts):
        self._parameters, self._buffers, self._modules = {}, {}, parts

    def named_parameters(self):
        return [*self._parameters.items()]

    def register_buffer(self, name, value):
        self._buffers[name] = value

    def __getattr__(self, name):
        return self._buffers[name]


def ramp(size):
    steps = np.arange(size)
    return steps / size


class Ramp(Part):
    def __init__(self, size):
        super().__init__(abs=Part(), sign=Part())
        width = size - 2
        self.scale = width ** -0.5
        self._parameters["weight"] = np.ones(size)
        self.register_buffer("steps", ramp(size))
        self.power = lambda x: x**width

    def forward(self, x):
        y = x * self.scale
        return self.power(y) + self.steps


def build():
    return Ramp(4)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "edited_net.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("edited_net")
    del sys.modules["edited_net"]


def no_model() -> NoReturn:
    raise AssertionError("no code that a model was built by is asked for")


def line_of(text: str) -> str:
    return f"edited_net.py:{MODULE[: MODULE.index(text)].count(chr(10)) + 1}"


def number_of(edits: CodeEdits, line: str, after: str) -> int:
    """The number of the edit with which some code stands there."""
    found = [number for number, edit in enumerate(edits.of([line], ())[line]) if edit[2] == after]
    assert found, [edit[2] for edit in edits.of([line], ())[line]]
    return found[0]


@pytest.mark.parametrize(
    ("text", "kind", "after"),
    [
        ("return ce", "divisor", "((ce * read).flatten(1).sum(-1) / read.flatten(1).sum(-1).clamp(min=1)).mean()"),
        ("rank = x", "operation", "x.argsort(dim=1, descending=True).argsort(dim=1)"),
        ("y = x * factor", "operation", "y = x / factor"),
        ("y = x.repeat", "arrangement", "x.repeat_interleave(2, dim=-2)"),
        ("y = self", "operand", "self.second(x)"),
        ("y = self", "sequence", "if self.training: y = y + 1.0; y = self.first(x)"),
        ("for part in", "order", "for part in list(parts)[::-1]: str(part)"),
        ("return torch.log", "sequence", "torch.log(x).mean(1)"),
        ("wide =", "operand", "wide = F.silu(x).new_zeros(F.silu(x).shape)"),
        ("wide =", "sequence", "wide = x; deep = F.silu(wide)"),
        ("square =", "divisor", "torch.sum(x).square().sum(-1, keepdim=True).mean((-2, -1))"),
        ("left =", "sequence", "(x - deep).roll(1)"),
        ("left =", "left_out", "(x - deep.roll(1)) * observed"),
        ("y = self.first", "too_much", "x"),
        ("return joined", "order", "[self.second(y), y]"),
        ("return joined", "kept", "return joined([y, self.second(y)], mask)"),
        ("return joined", "stopped", "return joined([y.detach(), self.second(y)], not mask)"),
        ("return y.masked", "kept", "y.masked_fill(~mask, 0.0)"),
        ("far =", "broadcast", "far = torch.maximum(db, db.amax(dim=tuple(range(1, db.ndim)), keepdim=True) - quiet)"),
        ("return torch.zeros", "setting", "torch.zeros_like(far).scatter_reduce(0, spread, far, 'amax', include_self=False)"),
        ("var.addcmul_", "sequence", "var.addcmul_(grad - mean, grad - mean)"),
        ("away = away", "broadcast", "away.mean(dim=tuple(range(1, away.ndim)), keepdim=True)"),
        ("return full", "sequence", "full = stock + gain + rain; return full - out"),
        ("return full", "sequence", "full = stock; return full - out + rain + gain"),
        ("return ctx", "incoming", "(incoming.reshape(incoming.shape + (1,) * ((ctx * 2).ndim - incoming.ndim)) * (ctx * 2), None)"),
        ("return rearrange", "arrangement", "'(b b1 b2) c h w -> b c (b1 h) (b2 w)'"),
        ("angle =", "operation", "torch.remainder(away, 2)"),
        ("angle =", "divisor", "(torch.fmod(away, 2) * mask.unsqueeze(1)).sum(-1) / mask.unsqueeze(1).sum(-1)"),
    ],
)  # fmt: skip
def test_what_may_be_meant_is_among_the_edits_of_a_line(
    module: ModuleType, text: str, kind: str, after: str
) -> None:
    edits = CodeEdits(None, no_model).of([line_of(text)], ())[line_of(text)]
    assert after in [" ".join(new.split()) for kind_, _, new in edits if kind_ == kind], edits


def test_a_backward_pass_that_leaves_out_what_comes_back_is_tried_from_all_over_its_file(
    module: ModuleType,
) -> None:
    found = CodeEdits(None, no_model).of([line_of("y = x * factor")], ["rest"])
    assert line_of("return ctx * 2") in found and line_of("return ctx * 3") not in found


def test_numbers_and_functions_of_keras_are_tried_in_a_line(module: ModuleType) -> None:
    line, edits = line_of("far ="), CodeEdits(None, no_model)
    plain = edits.of([line], ())[line]
    more = edits.of([line], (), [-2.5, 0.5], ["maximum", "tanh", "segment_max"])[line]
    assert more[: len(plain)] == plain, "the numbers of edits stay"
    after = [new for *_, new in more[len(plain) :]]
    assert "far = torch.maximum(db, db.max() - quiet.clamp(min=-2.5))" in after, after
    assert not any("clamp(-2.5, 0.5)" in each for each in after), "a bound that Keras has not"
    assert "torch.maximum(db, db.max() - quiet).tanh()" in after, after
    wide = [
        new
        for *_, new in edits.of([line_of("quiet = db")], (), [-2.5, 2.0, 2.5], ["clip"])[
            line_of("quiet = db")
        ]
    ]
    bounds = [f"db.clamp(-1, 1).clamp({low}, {high})" for low, high in ((-2.5, 2.5), (-2.5, 2.0), (2.0, 2.5))]
    assert [each for each in wide if each in bounds] == bounds, wide
    assert edits.of([line], (), [-2.5, 0.5], ["maximum", "tanh", "segment_max"])[line] == more
    line = line_of("quiet = db")
    after = [new for *_, new in edits.of([line], (), [0.5], ())[line]]
    assert "quiet = db.clamp(-1, 0.5)" in after, after


def test_a_live_model_runs_with_edits_and_without_them_again(module: ModuleType) -> None:
    edits, net, scale = CodeEdits(None, no_model), module.Net(), module.scaled(3.0)
    line = line_of("return joined")
    turned = number_of(edits, line, "[self.second(y), y]")
    kept = number_of(edits, line, "return joined([y, self.second(y)], mask)")
    assert net.forward(-2, True) == [-2.0, 2.0]
    edits.set(line, turned, True)
    assert net.forward(-2, True) == [2.0, -2.0]
    edits.set(line, kept, True)  # two in one line, of one statement
    assert (net.forward(-2, True), net.forward(-2, False)) == ([], [2.0, -2.0])
    edits.set(line, kept, False)
    assert net.forward(-2, True) == [2.0, -2.0]
    # What a call has made of a nested function is edited, too.
    inner = line_of("y = x * factor")
    edits.set(inner, number_of(edits, inner, "y = x / factor"), True)
    assert scale(6.0) == module.scaled(3.0)(6.0) == 1.0
    edits.clear()
    assert net.forward(-2, True) == [-2.0, 2.0] and scale(6.0) == 17.0


def test_a_live_model_has_what_its_constructors_make_with_edits(module: ModuleType) -> None:
    model = module.build()
    model._parameters["weight"] = weight = np.arange(4.0)  # as of Keras's model
    edits = CodeEdits(model, module.build)
    line = line_of("y = x * self.scale")
    lines = [*edits.of([line], ("built_by",))]
    assert lines[:2] == [line, line_of("self.scale =")], lines
    assert line_of("width = size - 2") in lines and line_of("return Ramp") in lines
    assert line_of("self.power =") in lines
    lines = [*edits.of([line_of("return self.power")], ("built_by",))]
    assert line_of("return steps / size") in lines
    plain = model.forward(1.0)
    np.testing.assert_allclose(plain, 0.5 + np.arange(4) / 4)

    def differs(text: str, after: str) -> np.ndarray:
        where = line_of(text)
        number = number_of(edits, where, after)
        edits.set(where, number, True)
        result = model.forward(1.0)
        assert model._parameters["weight"] is weight
        edits.set(where, number, False)
        np.testing.assert_array_equal(model.forward(1.0), plain)
        return result - plain

    # A number of its own; a table that a function makes; what a function takes from around it, and a name with what follows from it.
    np.testing.assert_allclose(differs("self.scale", "self.scale = width ** 0.5"), 1.5)
    np.testing.assert_allclose(differs("return steps", "steps * size"), 3.75 * np.arange(4))
    np.testing.assert_allclose(differs("width = size", "width = size - 1"), 3**-1.5 - 0.5)
    with pytest.raises(ValueError, match="other weights"):
        differs("return Ramp", "return Ramp(5)")
    np.testing.assert_array_equal(model.forward(1.0), plain)
    # One that is refused leaves those in force that were.
    where = line_of("self.scale")
    edits.set(where, number_of(edits, where, "self.scale = width ** 0.5"), True)
    with_one = model.forward(1.0)
    with pytest.raises(ValueError, match="other weights"):
        differs("return Ramp", "return Ramp(5)")
    np.testing.assert_array_equal(model.forward(1.0), with_one)
    assert (with_one != plain).all()
    edits.clear()
    assert model._modules.keys() == {"abs", "sign"}


def test_parts_in_another_order_keep_their_weights(module: ModuleType) -> None:
    order = ["first", "second"]

    def build() -> object:
        weighted, plain = module.Part(), module.Part()
        weighted._parameters["w"] = np.ones(2)
        return module.Part(**dict(zip(order, (weighted, plain), strict=True)))

    model: Any = build()
    parts = [*model._modules.values()]
    parts[0]._parameters["w"] = weight = np.arange(2.0)
    constructed = Constructed(model, build)
    order.reverse()
    constructed.follow()
    assert [*model._modules.items()] == [("second", parts[0]), ("first", parts[1])]
    assert parts[0]._parameters["w"] is weight
    order.append(order.pop(0))
    constructed.follow()
    assert [*model._modules.items()] == [("first", parts[0]), ("second", parts[1])]
    order[:] = ["first", "third"]
    constructed.follow()
    assert [*model._modules.items()] == [("first", parts[0]), ("third", parts[1])]
    constructed.restore()
    assert [*model._modules.items()] == [("first", parts[0]), ("second", parts[1])]


def test_code_that_cannot_run_so_is_refused_and_stays(module: ModuleType) -> None:
    edits, scale = CodeEdits(None, no_model), module.scaled(3.0)
    line = line_of("y = x * factor")
    # Without it, the function would take nothing from around it.
    lost = number_of(edits, line, "y = x")
    with pytest.raises(ValueError, match="cannot run with this edit"):
        edits.set(line, lost, True)
    assert scale(6.0) == 17.0
    written = line_of("np.save")
    assert edits.of([written], ()) == {written: []}
    assert edits.of(["no_such_file.py:3"], EVERYWHERE) == {"no_such_file.py:3": []}
    other = line_of("rank = x")
    edits.set(other, number_of(edits, other, "x.argsort(dim=1, descending=True).argsort(dim=1)"), True)
    order = np.array([[2, 0, 1]])
    with pytest.raises(TypeError, match="dim"):  # as of NumPy's
        module.ranks(order)


def test_code_that_does_not_end_with_an_edit_is_ended(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    edits = CodeEdits(None, no_model)
    handler, memory = signal.getsignal(signal.SIGPROF), resource.getrlimit(resource.RLIMIT_AS)
    with edits.bounded():  # none is in force
        assert signal.getsignal(signal.SIGPROF) == handler
    line = line_of("rank = x")
    edits.set(line, number_of(edits, line, "x.argsort(dim=1, descending=True).argsort(dim=1)"), True)
    monkeypatch.setattr(limits, "LONGEST_EDITED", 0.05)
    with pytest.raises(TimeoutError, match="runs longer"), edits.bounded():
        _never_ends()
    monkeypatch.setattr(limits, "LONGEST_EDITED", 5.0)
    with pytest.raises((MemoryError, RuntimeError)), edits.bounded():
        np.ones(2**31)
    assert signal.getsignal(signal.SIGPROF) == handler
    assert resource.getrlimit(resource.RLIMIT_AS) == memory
    # Once it has ended so, it may take what it takes, as where gradients are recorded.
    with edits.bounded():
        assert signal.getsignal(signal.SIGPROF) != handler
    with edits.bounded():
        assert signal.getsignal(signal.SIGPROF) == handler
    edits.set(line, number_of(edits, line, "x.argsort(dim=1)"), True)
    with edits.bounded():  # with others it is not known
        assert signal.getsignal(signal.SIGPROF) != handler


def _never_ends() -> None:
    for number in itertools.count():
        str(number)


def test_every_edit_is_code(module: ModuleType) -> None:
    count = 0
    lines = [f"edited_net.py:{number}" for number in range(1, MODULE.count("\n") + 1)]
    for several in CodeEdits(None, no_model).of(lines, EVERYWHERE).values():
        for _, before, after in several:
            count += 1
            assert before != after
            if "..." not in after:
                ast.parse(after)
    assert count > 100


def _info(name: str) -> TensorInfo:
    return TensorInfo(name=name, shape=(3, 3), layer=name[:5], role="kernel", dtype="float64", trainable=True)


def test_a_part_that_no_experiment_tells_of_is_mapped_as_the_part_that_it_is_a_copy_of() -> None:
    names = ["a/kernel", "b/kernel", "c/kernel"]
    ours = [_info(f"{part}/{name}") for part in ("one", "two") for name in names]
    theirs = [_info(f"{part}.{name[0]}.weight") for part in ("p", "q") for name in names]
    told = [
        Pair(keras=(f"one/{n}",), torch=(f"p.{t}.weight",), rule="transpose", source="probed")
        for n, t in zip(names, "bca", strict=True)
    ]
    guessed = [
        Pair(keras=(f"two/{n}",), torch=(f"q.{n[0]}.weight",), rule="same", source="order", doubt="by order")
        for n in names
    ]
    layers = (LayerPair(keras="one/a", torch="p.b"), LayerPair(keras="two/a", torch="q.a"))
    mapping = Mapping(keras="k", torch="t", tensors=(*told, *guessed), layers=layers)
    outlines = [
        Outline(framework=framework, target="x", type="x", versions={}, layers=(), tensors=tuple(tensors))
        for framework, tensors in (("tensorflow", ours), ("torch", theirs))
    ]
    found = like_their_copies(mapping, outlines)
    assert [pair.torch[0] for pair in found.tensors[3:]] == ["q.b.weight", "q.c.weight", "q.a.weight"]
    assert {pair.rule for pair in found.tensors} == {"transpose"}
    assert found.layers[1] == LayerPair(keras="two/a", torch="q.b")
    # What an experiment has shown stays.
    shown = tuple(pair.model_copy(update={"source": "probed"}) for pair in guessed)
    confirmed = mapping.model_copy(update={"tensors": (*told, *shown)})
    assert like_their_copies(confirmed, outlines) == confirmed
