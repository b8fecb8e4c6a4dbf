"""Experiments on the ways that gradients take through the functions of a live model: stopped, let through, of padding."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from parity.common.external.process.code_lines import code_line
from parity.common.external.process.gradient_paths import Calls, Ways

# Functions of an output and a target, or of two tensors that are compared.
_LOSSES = (
    *("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "cross_entropy"),
    *("binary_cross_entropy", "binary_cross_entropy_with_logits"),
    *("cosine_similarity", "cosine_embedding_loss", "pairwise_distance"),
)
# Functions through which a port lets gradients that Keras stops.
_THROUGH = frozenset(
    (
        *_LOSSES,
        *(
            "add",
            "radd",
            "iadd",
            "sub",
            "mul",
            "div",
            "truediv",
            "matmul",
            "bmm",
            "einsum",
            "cat",
            "stack",
            "getitem",
        ),
        *("linear", "conv1d", "conv2d", "conv3d", "embedding", "gru", "lstm", "rnn_tanh", "rnn_relu"),
        *("batch_norm", "layer_norm", "group_norm", "rms_norm"),
        *("relu", "relu6", "leaky_relu", "elu", "selu", "gelu", "silu", "tanh", "sigmoid", "softplus"),
        *("hardswish", "hardsigmoid"),
    )
)
# Of those, by two tensors.
_OF_TWO = frozenset(("add", "radd", "iadd", "sub", "mul", "div", "truediv", "matmul", "bmm", *_LOSSES))
_TURNED = {"__rmul__": "mul"}  # a number before a tensor
# Terms of a loss are near one another; a loop makes thousands of single numbers.
_MOST_TERMS = 32
# Two terms are of one value, relative.
_ONE_VALUE = 1e-12
_EXCHANGED = "weights one of two terms of equal value by {}, and Keras the other one, of {}"
_NOT_WEIGHTED = "adds one of two terms of equal value of which the other one, at {1}, is weighted by {0}, and Keras weights this one"
_LET_THROUGH = "lets the gradient of {} through, and Keras stops it"
# Calls that take a tensor where its gradient comes together from several.
_FORK = 2
# The place of an argument of torch.autograd.grad.
_CREATE_GRAPH = 4
_NO_GRAPH = "has no create_graph, so that no gradient goes through what it gives, and Keras's goes through"
_STOPPED = "stops the gradient, and Keras's goes through"


@contextmanager
def altered(wanted: Mapping[int, str]) -> Iterator[Calls]:
    """Have the gradients of some calls of a pass go otherwise; wanted: by the number of a call, the short name of a way."""
    calls = Calls(wanted)
    with _Functions(calls):
        yield calls


class _Functions(TorchFunctionMode):
    def __init__(self, calls: Calls) -> None:
        super().__init__()
        self._calls = calls
        self._with_gradients = torch.is_grad_enabled()
        # By identity, of tensors that are held: how many calls take each, a view for what it is of.
        self._uses, self._bases, self._held = Counter[int](), dict[int, int](), list[Tensor]()
        # Of the calls that could stop what goes into them: their ways, and of which tensor.
        self._inputs: list[tuple[dict[str, str], str, int]] = []
        # Single numbers with gradients: those that were multiplied by a number, and all others; each with its line.
        self._weighted = deque[tuple[Tensor, float, str]](maxlen=_MOST_TERMS)
        self._terms = deque[tuple[Tensor, str]](maxlen=_MOST_TERMS)

    def __exit__(self, *given: Any) -> None:
        super().__exit__(*given)
        # Where one call alone takes a tensor, its gradient is stopped where the tensor is made.
        for ways, short, tensor in self._inputs:
            if self._uses[tensor] < _FORK:
                del ways[short]
        self._held.clear()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        stock = partial(func, *args, **(kwargs or {}))
        full = getattr(func, "__name__", "")
        name = _TURNED.get(full, full.strip("_"))
        in_place = full.startswith("__i") or full.rstrip("_") == full[:-1]
        if func == torch.Tensor.data.__get__:  # type: ignore[attr-defined]
            name = ".data"
        ways = {} if self._calls.over else _ways(name, func, args, kwargs or {})
        # What is changed in place may be a buffer, which must not remember where it came from.
        if self._with_gradients and not torch.is_grad_enabled() and _is_floating(args) and not in_place:
            # All that is called in such a block goes together.
            name, ways = "no_grad", {"through": (_STOPPED, lambda: _with_gradients(stock))}
        if not self._calls.over:
            ways |= self._exchanged(name, args, stock)
        taken = {} if self._calls.over or name not in _THROUGH else self._inputs_of(name, args)
        for place, tensor in taken.items():
            stopped = partial(func, *args[:place], tensor.detach(), *args[place + 1 :], **(kwargs or {}))
            text = "its input" if [*taken] == [0] else f"its input {place + 1}"
            ways[_input(place)] = _LET_THROUGH.format(text), stopped
        result = self._calls.call(name, ways, stock) if ways else stock()
        for place, tensor in taken.items():
            self._inputs.append((self._calls.found[-1]["ways"], _input(place), self._base(tensor)))
        if not self._calls.over and _is_term(result):
            self._terms.append((result, code_line()))
        if not taken and not self._calls.over and args and isinstance(args[0], Tensor):
            # One, or the parts that `unbind` and `chunk` give.
            for each in result if isinstance(result, tuple | list) else [result]:
                if isinstance(each, Tensor):
                    self._bases[id(each)] = self._base(args[0])
                    self._held.append(each)
        return result

    def _exchanged(self, name: str, args: Any, stock: Callable[[], Any]) -> Ways:
        """The ways that give the weight of one of two terms to the other, which is of one value and has gradients of its own.

        As `|sg(a) - b|` and `|a - sg(b)|` are, where sg stops a gradient.
        """
        ways: Ways = {}
        weights = [each for each in args if isinstance(each, float | int)]
        if name == "mul" and len(weights) == 1 and _is_term(args[0]):
            term, (weight,) = args[0], weights
            for place, (other, line) in enumerate(self._terms):
                if _are_equal(other, term):
                    made = partial(_moved, term, other, weight, stock)
                    ways[f"exchanged {place + 1}"] = _EXCHANGED.format(weight, line), made
            self._weighted.append((term, weight, code_line()))
        elif name in ("add", "radd", "iadd") and not weights and len(args) == 2:
            # The one that is not weighted may come later.
            for place, (other, weight, line) in enumerate(self._weighted):
                for term in args:
                    if _is_term(term) and _are_equal(other, term):
                        made = partial(_moved, other, term, weight, stock)
                        ways[f"exchanged {place + 1}"] = _NOT_WEIGHTED.format(weight, line), made
        return ways

    def _inputs_of(self, name: str, args: Any) -> dict[int, Tensor]:
        """The tensors with gradients that a call takes, by their places among its arguments."""
        found = {
            place: each
            for place, each in enumerate(args[: 2 if name in _OF_TWO else 1])
            if isinstance(each, Tensor) and each.requires_grad and not isinstance(each, nn.Parameter)
        }
        self._uses.update(map(self._base, found.values()))
        self._held += found.values()
        return found

    def _base(self, tensor: Tensor) -> int:
        return self._bases.get(id(tensor), id(tensor))


def _is_term(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim == 0 and value.requires_grad


def _are_equal(one: Tensor, other: Tensor) -> bool:
    with torch.no_grad():
        return one is not other and bool(torch.isclose(one, other, rtol=_ONE_VALUE, atol=0.0))


def _moved(weighted: Tensor, other: Tensor, weight: float, stock: Callable[[], Tensor]) -> Tensor:
    """What `stock` makes, with a gradient of `weighted` that is not weighted, and of `other` that is; both are of one value."""
    return stock() + (1 - weight) * (weighted - other)


def _input(place: int) -> str:
    """The short name of the way that stops the gradient of an argument."""
    return f"stopped input {place + 1}"


def _ways(name: str, func: Callable[..., Any], args: Any, kwargs: Any) -> Ways:
    if name in ("detach", ".data") and args[0].is_floating_point():
        return {"through": (_STOPPED, lambda: args[0].clone())}
    ways: Ways = {}
    if func is torch.autograd.grad and not kwargs.get(
        "create_graph", len(args) > _CREATE_GRAPH and args[_CREATE_GRAPH]
    ):
        ways["graph"] = _NO_GRAPH, partial(func, *args[:_CREATE_GRAPH], **{**kwargs, "create_graph": True})
    if name == "embedding":
        rest = dict(zip(("padding_idx",), args[2:], strict=False)) | kwargs
        row = rest.get("padding_idx")
        text = f"leaves out the gradient of row {row}, and Keras does not"
        # Without such a row too: calls are counted, and a setting that is changed must not change their number.
        ways["of padding" if row is not None else "of no padding"] = (
            text,
            partial(func, *args[:2], *args[3:], **{**rest, "padding_idx": None}),
        )
    if name in _THROUGH:
        operands = list(args[0]) if args and isinstance(args[0], list | tuple) else []
        for place, each in enumerate(operands):
            if isinstance(each, Tensor):
                others = [*operands[:place], each.detach(), *operands[place + 1 :]]
                stopped = partial(func, others, *args[1:], **kwargs)
                ways[f"stopped {place + 1}"] = _LET_THROUGH.format(f"operand {place + 1}"), stopped
        if not operands:
            ways["stopped"] = _LET_THROUGH.format("its result"), lambda: _detached(func(*args, **kwargs))
    return ways


def _is_floating(args: Any) -> bool:
    return any(isinstance(each, Tensor) and each.is_floating_point() for each in args)


def _with_gradients(stock: Callable[[], Any]) -> Any:
    with torch.enable_grad():
        return stock()


def _detached(result: Any) -> Any:
    return result.detach() if isinstance(result, Tensor) else result
