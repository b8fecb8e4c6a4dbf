"""What passes through a user's model share in both frameworks: taps, injected values, the results of a backward pass."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from parity.common.base.errors import ExternalModelError
from parity.common.external.process.calling import check_reached, closest
from parity.common.external.process.operations import Recording
from parity.common.external.process.pass_result import Array, Arrays, tap_name, tensors_in, with_tensors

Taps = bool | Sequence[str]


class Tapped(ABC):
    """Visits the calls of a pass: keeps what they give, and puts injected values in its place.

    activations: by tap name, what each call gave. seen: the names, in the order of the calls. live: the tensors among them that gradients are taken of.
    rows: gradients of rows of a table, as the framework has them, by the place of the tensor. repeating: whether the backward pass
    has begun, in which a checkpointed part is computed once more. recording: of the operations of the pass, where there is one; what taps do is no part of it.
    """

    is_tensor: Callable[[Any], bool]
    array_of: Callable[[Any], Array]

    def __init__(
        self, taps: Taps, inject: Arrays | None, differentiable: bool, send: Arrays | None = None
    ) -> None:
        """
        Args:
            taps: whether to keep activations, or the names of those to keep.
            inject: values by tap name, each of the shape of what it replaces.
            differentiable: whether gradients are taken.
            send: gradients by tap name, likewise: what goes on to the layer whatever comes back to its output.
        """
        self._taps = taps if isinstance(taps, bool) else frozenset(taps)
        self._inject, self._send = inject or {}, send or {}
        self.differentiable = differentiable
        self.recording: Recording | None = None
        self.repeating = False
        self._calls: Counter[str] = Counter()
        self._calls_of_forward: dict[str, int] = {}
        self.seen: list[str] = []
        self.activations: Arrays = {}
        self.live: dict[str, Any] = {}
        self.rows: dict[int, Any] = {}

    def visit(self, path: str, output: Any) -> Any:
        """Return the output of a layer's next call, each of its tensors replaced."""
        with nullcontext() if self.recording is None else self.recording.hidden():
            return self._visited(path, output)

    def _visited(self, path: str, output: Any) -> Any:
        call = self._calls[path]
        self._calls[path] += 1
        if self.repeating:
            call %= self._calls_of_forward.get(path, 1)
        several = len(tensors_in(output, self.is_tensor)) > 1
        count = itertools.count()

        def visited(tensor: Any) -> Any:
            place = next(count)
            name = tap_name(path, call, place if several else None)
            self.seen.append(name)
            wanted = self._taps if isinstance(self._taps, bool) else name in self._taps
            if wanted and not self.repeating:
                self.activations[name] = self.array_of(tensor)
            injected = self._injected(name, tensor) if name in self._inject else None
            tensor = self.replaced(tensor, injected, self._send.get(name))
            return self.watched(name, tensor) if wanted and self.differentiable else tensor

        return with_tensors(output, self.is_tensor, visited)

    @abstractmethod
    def replaced(self, tensor: Any, injected: Array | None, sent: Array | None) -> Any:
        """Return the tensor with which the pass goes on.

        Args:
            tensor: what the layer gave.
            injected: values of the tensor's shape that take its place; gradients go on to the layer as if it had given
                them. None: none do.
            sent: the gradient, of its shape, that goes on to the layer instead of what comes back. None: that does.
        """

    @abstractmethod
    def watched(self, name: str, tensor: Any) -> Any:
        """Return a tensor of a pass as one of its own, kept in `live` by its tap's name, of which a gradient can be taken."""

    @abstractmethod
    def is_differentiable(self, tensor: Any) -> bool:
        """Return whether a gradient with respect to a tensor of the pass can be taken."""

    @abstractmethod
    def derivatives(self, mean: Any, wanted: Sequence[Any]) -> Sequence[Any]:
        """Return the gradients of a mean loss, a scalar; None where none arrives."""

    def shape_of(self, tensor: Any) -> tuple[int, ...]:
        """Return that of a tensor's values, with a function that takes a batch row by row as of the batch."""
        return tuple(tensor.shape)

    def _injected(self, name: str, tensor: Any) -> Array:
        """The array to inject; one of complex numbers is given with both parts along its last axis."""
        array, shape = self._inject[name], self.shape_of(tensor)
        if tensor.dtype.is_complex and array.ndim == len(shape) + 1:
            array = array[..., 0] + 1j * array[..., 1]
        if tuple(array.shape) != shape:
            raise ExternalModelError(
                f"feed {name}: the layer gives the shape {shape}, received {tuple(array.shape)}"
            )
        return array

    def check_used(self) -> None:
        """Raise ExternalModelError for a name to inject at that no call has; how often a layer is called may depend on numbers."""
        layers = {name.partition("#")[0] for name in self.seen}
        for name in self._inject:
            if name not in self.seen and name.partition("#")[0] not in layers:
                raise ExternalModelError(
                    f"feed {name}: no call of this pass has that name{closest(name, self.seen)}"
                )

    def gradients(self, mean: Any, trained: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a `PassResult` that a backward pass fills.

        Args:
            mean: as of `derivatives`.
            trained: the trained tensors by name.
            outputs: the model's, by name.

        Raises:
            ExternalModelError: no gradient reached a trained tensor.
        """
        self.repeating, self._calls_of_forward = True, dict(self._calls)
        last = {name: tensor for name, tensor in outputs.items() if self.is_differentiable(tensor)}
        wanted = [*trained.values(), *self.live.values(), *last.values()]
        names = [*trained, *self.live]
        found = self.derivatives(mean, wanted)
        reached = {n: self.array_of(v) for n, v in zip(names, found, strict=False) if v is not None}
        check_reached(trained, reached)
        of_outputs = zip(last, found[len(names) :], strict=True)
        return {
            "output_gradients": {n: self.array_of(v) for n, v in of_outputs if v is not None},
            "activation_gradients": {name: reached[name] for name in self.live if name in reached},
            "gradients": {name: reached[name] for name in trained if name in reached},
            "untouched": [name for name in trained if name not in reached],
        }
