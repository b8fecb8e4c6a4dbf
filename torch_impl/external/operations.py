"""The operations of one pass of a live model in torch, below its modules and functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from parity.common.external.process.operations import Recording, key_of_result, plain
from parity.common.external.process.pass_result import Array
from parity.torch_impl.external import names
from parity.torch_impl.external.calling import array_of
from parity.torch_impl.external.dropped import attended
from parity.torch_impl.private_names import (
    PAD_PACKED,
    TorchDispatchMode,
    has_no_numbers,
    modes_off,
    tree_leaves,
)

# They give the elements of one tensor, each once or several times, and compute nothing.
_REARRANGING = frozenset(
    (
        *("view", "_unsafe_view", "reshape", "_reshape_alias", "permute", "transpose", "t", "unsqueeze"),
        *("squeeze", "expand", "clone", "contiguous", "detach", "alias", "_to_copy", "copy", "lift_fresh"),
        *("view_as_real", "view_as_complex", "_conj", "resolve_conj"),
        *("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "native_channel_shuffle"),
    )
)
# They make what is filled later.
_UNFILLED = ("empty", "empty_like", "empty_strided", "new_empty")


@contextmanager
def recorded(model: nn.Module, replaced: Mapping[str, Array], records: bool) -> Iterator[Recording]:
    """Record the operations of a pass, or have some give other results.

    Args:
        model: that is called within.
        replaced: by key of an operation, an array of its result's shape and type.
        records: whether operations are recorded.
    """
    recording = Recording(replaced, records)
    with ExitStack() as stack:
        for path, module in names.layers(model).items():
            enter = module.register_forward_pre_hook(lambda *_, path=path: recording.enter(path))
            leave = module.register_forward_hook(lambda *_: recording.leave())
            stack.callback(enter.remove)
            stack.callback(leave.remove)
        operations = _Operations(recording)
        stack.enter_context(_Functions(operations))
        stack.enter_context(operations)
        yield recording


class _Functions(TorchFunctionMode):
    """Attention as one writes it: its kernels are several, by what needs gradients, and one of them divides the scale between query and key.

    And a packed sequence that is padded again as one operation, which is a copy for each length.
    """

    def __init__(self, operations: _Operations) -> None:
        super().__init__()
        self._operations = operations

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.scaled_dot_product_attention:
            return attended(_weights, False, *args, **kwargs or {})
        if func is PAD_PACKED:
            return self._operations.whole("pad_packed_sequence", func, args[:2], args[2:])
        return func(*args, **kwargs or {})


def _weights(scores: Tensor, _: float) -> Tensor:
    """Of a token that sees none torch's own function gives zeros."""
    return torch.where(scores.isneginf().all(-1, keepdim=True), 0.0, scores.softmax(-1))


class _Operations(TorchDispatchMode):
    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self._recording = recording
        # By where a tensor lies and how it is read, its number; kept alive, so that no other comes to lie there.
        self._numbers: dict[Any, int] = {}
        self._alive: list[Tensor] = []
        # By where a storage lies, the number of what was last written into it.
        self._written: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, recording = kwargs or {}, self._recording
        if recording.ignores:
            return func(*args, **kwargs)
        writes, name = func._schema.is_mutable, func._schema.name.partition("::")[2]
        name = name.rstrip("_") if writes else name
        if not recording.concerns(name) or _are_shapes((args, kwargs)):
            return func(*args, **kwargs)
        named = {key: value for key, value in kwargs.items() if not isinstance(value, Tensor)}
        tensors = (*args, *(kwargs[key] for key in kwargs.keys() - named.keys()))
        given = [self._argument(each) for each in tensors] if recording.records else []
        result = func(*args, **kwargs)
        made = [each for each in tree_leaves(result) if isinstance(each, Tensor)]
        if _are_shapes(made):
            return result
        if name in _UNFILLED:
            if recording.records:
                with modes_off():
                    result.zero_()  # else what the memory held before would be told as numbers of the code's
            return result
        key = recording.key_of(name)
        with modes_off():
            for number, each in enumerate(made):
                other = recording.replacement(key_of_result(key[0], number), each.shape)
                if other is not None:
                    each.detach().copy_(torch.from_numpy(np.array(other)))
            if recording.records and made:
                results = [self._number(each, _version(each, args) + writes) for each in made]
                if writes:
                    self._written[_storage(made[0])] = results[0]
                settings = {**_called(func, args), **named}
                recording.add(key, name, given, results, name in _REARRANGING, settings)
        return result

    def whole(self, name: str, func: Any, tensors: Sequence[Tensor], rest: Sequence[Any]) -> Any:
        """Call a function of tensors and of other arguments, and record it as one operation, whatever it is made of."""
        recording = self._recording
        if recording.ignores:
            return func(*tensors, *rest)
        given = [self._argument(each) for each in tensors] if recording.records else []
        # Hidden whatever is recorded, so that operations are counted alike in each pass.
        with recording.hidden():
            result = func(*tensors, *rest)
            if not recording.concerns(name):
                return result
            key = recording.key_of(name)
            other = recording.replacement(key[0], result[0].shape)
            if other is not None:
                with torch.no_grad():
                    result[0].copy_(torch.from_numpy(np.array(other)))
        if recording.records:
            with modes_off():
                recording.add(key, name, given, [self._number(each, each._version) for each in result])
        return result

    def _argument(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            with modes_off():
                return {"value": self._number(value)}
        if isinstance(value, list | tuple) and any(isinstance(each, Tensor) for each in value):
            return {"list": [self._argument(each) for each in value]}
        return {"literal": plain(value)}

    def _number(self, tensor: Tensor, version: int | None = None) -> int:
        """That of a tensor: of a result with its version, of an argument without."""
        read_as = (
            tensor.storage_offset(),
            tuple(tensor.shape),
            tuple(tensor.stride()),
            tensor.dtype,
            tensor.is_conj(),
        )
        key = _storage(tensor), *read_as, tensor._version if version is None else version
        if key not in self._numbers:
            self._alive.append(tensor)
            self._numbers[key] = self._recording.number_of(array_of(tensor))
            written = self._written.get(key[0])
            if version is None and written is not None:
                # A view, made before, of what has been written into since.
                self._recording.add(
                    ("", ()), "view", [{"value": written}], [self._numbers[key]], rearranges=True
                )
        return self._numbers[key]


def _called(func: Any, args: Any) -> dict[str, Any]:
    """What a function is given besides tensors and numbers to compute with, by name, where it is not the default."""
    named = zip(func._schema.arguments, args, strict=False)
    return {
        argument.name: value
        for argument, value in named
        if not isinstance(value, Tensor)
        and value != argument.default_value
        and "Tensor" not in str(argument.type)
    }


def _are_shapes(values: Any) -> bool:
    """Whether some tensors have no numbers: of zeros that were never stored torch asks for shapes alone."""
    return any(isinstance(each, Tensor) and each.is_meta for each in tree_leaves(values))


def _storage(tensor: Tensor) -> int:
    stored = tensor.layout == torch.strided and not has_no_numbers(tensor)
    return tensor.untyped_storage().data_ptr() if stored else id(tensor)


def _version(made: Tensor, args: Any) -> int:
    """That of a result; of a view, which does not know yet that it is one, that of what it is a view of."""
    of = args[0] if args else None
    return of._version if isinstance(of, Tensor) and _storage(of) == _storage(made) else made._version
