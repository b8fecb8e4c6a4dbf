"""What passes through a user's model share in both frameworks: taps, injected values, the results of a backward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from parity.common.base.errors import ExternalModelError
from parity.common.external.process.calling import check_reached, unused_injections
from parity.common.external.process.pass_result import (
    Array,
    Arrays,
    PassResult,
    same,
    tap_name,
    tensors_in,
    with_tensors,
)

Taps = bool | Sequence[str]


class Tapped:
    """Visits the calls of a pass: keeps what they give, and puts injected values in its place.

    activations: by tap name, what each call gave. live: the tensors among them that gradients are taken of.

    A subclass says in `replaced` with which tensor the pass goes on.
    """

    def __init__(self, taps: Taps, inject: Arrays | None, is_tensor: Callable[[Any], bool]) -> None:
        """
        Args:
            taps: whether to keep activations, or the names of those to keep.
            inject: values by tap name, each of the shape of what it replaces.
            is_tensor: whether a value is a tensor of the framework.
        """
        self._taps = taps if isinstance(taps, bool) else frozenset(taps)
        self._is_tensor = is_tensor
        self.inject = inject or {}
        self._used: set[str] = set()
        self._seen: list[str] = []
        self.activations: Arrays = {}
        self.live: dict[str, Any] = {}

    def visit(self, path: str, call: int, output: Any) -> Any:
        """Return the output of a layer's call number `call`, each of its tensors replaced."""
        several = len(tensors_in(output, self._is_tensor)) > 1
        count = iter(range(1 << 30))

        def visited(tensor: Any) -> Any:
            place = next(count)
            name = tap_name(path, call, place if several else None)
            self._seen.append(name)
            if name in self.inject:
                self._used.add(name)
            return self.replaced(name, tensor)

        return with_tensors(output, self._is_tensor, visited)

    def replaced(self, name: str, tensor: Any) -> Any:
        """Return the tensor with which the pass goes on."""
        raise NotImplementedError

    def wants(self, name: str) -> bool:
        """Return whether the activation of this name is to be kept."""
        return self._taps if isinstance(self._taps, bool) else name in self._taps

    def injected(self, name: str, shape: Sequence[int], is_complex: bool) -> Array:
        """Return the array to inject; one of complex numbers is given with both parts along its last axis.

        Raises:
            ExternalModelError: it has another shape than the tensor that it replaces.
        """
        array = self.inject[name]
        if is_complex and array.ndim == len(shape) + 1:
            array = array[..., 0] + 1j * array[..., 1]
        if tuple(array.shape) != tuple(shape):
            raise ExternalModelError(
                f"feed {name}: the layer gives the shape {tuple(shape)}, received {tuple(array.shape)}"
            )
        return array

    def check_used(self) -> None:
        """Raise ExternalModelError for a name of `inject` that no call has."""
        unused_injections(self.inject, self._used, self._seen)

    def gradients_result(
        self, outputs: Arrays, trained: Mapping[str, Any], reached: Arrays, **more: Any
    ) -> PassResult:
        """Return the results of a backward pass.

        Args:
            outputs: by name.
            trained: the trained tensors by name.
            reached: gradients by name, of trained and of live tensors; those that no gradient reached are not in it.
            more: further fields of `PassResult`.

        Raises:
            ExternalModelError: no gradient reached a trained tensor.
        """
        check_reached(trained, reached)
        return PassResult(
            outputs=outputs,
            activations=self.activations,
            activation_gradients={name: reached[name] for name in self.live if name in reached},
            gradients={name: reached[name] for name in trained if name in reached},
            untouched=tuple(name for name in trained if name not in reached),
            **more,
        )


def stochastic(forward: Callable[..., PassResult]) -> list[str]:
    """Return the tap names of the calls that, in training, give different outputs for the same inputs.

    The second pass has other random numbers, and each of its calls is followed by what the first pass gave: only
    what differs in isolation differs. A function that draws between layers is seen at the next layer behind it.

    Args:
        forward: makes a forward pass in training; takes `seed` and `inject`.
    """
    first = forward(seed=0)
    second = forward(seed=1, inject=first.activations)
    return [name for name, value in first.activations.items() if not same(value, second.activations[name])]
