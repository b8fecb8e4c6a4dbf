"""Patterns: how the axes of Keras tensors become those of torch tensors, and back, in NumPy.

A pattern names the axes of both sides, Keras's first, as einops does: 'h w i o -> o i h w'.
Axes in brackets are one axis of the array, the last name changing fastest; '1' is an axis of size one; '...' is any
number of axes. Sizes that the shapes of one side do not tell are written behind: '(h w c) o -> o (c h w); h=7 w=7'.
Where a side has several tensors, an axis `n` at its front counts them: 'n d h k -> (n h k) d; h=12' joins the
three kernels of an attention; or sizes with plus signs say along which axis they are joined: 'd h k -> (h k) d;
h=8+2+2'. Behind a size '!' says that this tensor is written without its axes of size one: 'i o -> o i; i=10+1!'.
Every pattern is a bijection.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from parity.common.base.errors import ExternalModelError

Array = npt.NDArray[np.generic]
Shape = tuple[int, ...]
Side = tuple[tuple[str, ...], ...]  # one entry an axis of the array: the names that it is the product of

_AXES_LIMIT = 16
_LIST_AXIS = "n"
_ANY = "..."
_TOKEN = re.compile(r"\s*(\.\.\.|[()]|1(?![0-9])|[a-z_]+)")
_SIZE = re.compile(r"([a-z_]+)=([1-9][0-9]{0,8}!?(?:\+[1-9][0-9]{0,8}!?)*)")


class Rule:
    """One rule. Shapes and arrays come and go as lists, one entry a tensor of that side."""

    text: str
    # What training by this rule cannot keep equal, for a person; '' for a bijection.
    note = ""
    # Whether one side has one tensor where the other has several, which training makes unequal.
    shared_by_one = False

    def torch_shapes(self, shapes: Sequence[Shape], count: int) -> list[Shape]:
        """The shapes of `count` torch tensors, given Keras's; raises ExternalModelError where the rule does not fit."""
        return self._shapes(shapes, count, True)

    def keras_shapes(self, shapes: Sequence[Shape], count: int) -> list[Shape]:
        """The shapes of `count` Keras tensors, given torch's; raises ExternalModelError where the rule does not fit."""
        return self._shapes(shapes, count, False)

    def to_torch(self, arrays: Sequence[Array], count: int) -> list[Array]:
        """Return `count` torch arrays, of the shapes of `torch_shapes`."""
        raise NotImplementedError

    def to_keras(self, arrays: Sequence[Array], count: int) -> list[Array]:
        """Return `count` Keras arrays, of the shapes of `keras_shapes`."""
        raise NotImplementedError

    def _shapes(self, shapes: Sequence[Shape], count: int, to_torch: bool) -> list[Shape]:
        raise NotImplementedError

    def gradients(self, arrays: Sequence[Array], count: int) -> list[Array]:
        """Return gradients with respect to the Keras tensors, of their shapes, from those with respect to torch's."""
        return self.to_keras(arrays, count)


@dataclass(frozen=True)
class Rearranged(Rule):
    """A pattern, and for gates the order in which torch has them.

    sizes: of axes that one side's shapes do not tell. parts: the axis along which several tensors of a side are
    joined, and the sizes of each. bare: which of these lack their axes of size one. order: of one axis, torch's order by Keras's index; its own inverse.
    """

    text: str
    keras: Side
    torch: Side
    sizes: Mapping[str, int]
    parts: tuple[str, tuple[int, ...]] | None = None
    order: tuple[str, tuple[int, ...]] | None = None
    bare: frozenset[int] = frozenset()

    def to_torch(self, arrays: Sequence[Array], count: int) -> list[Array]:
        return self._arrays(self.keras, self.torch, arrays, count)

    def to_keras(self, arrays: Sequence[Array], count: int) -> list[Array]:
        return self._arrays(self.torch, self.keras, arrays, count)

    def _shapes(self, shapes: Sequence[Shape], count: int, to_torch: bool) -> list[Shape]:
        source, target = (self.keras, self.torch) if to_torch else (self.torch, self.keras)
        flat = self._flat(source, target, shapes, count)
        return [self._grouped(target, flat, count, index)[1] for index in range(count)]

    def _arrays(self, source: Side, target: Side, arrays: Sequence[Array], count: int) -> list[Array]:
        flat = self._flat(source, target, [array.shape for array in arrays], count)
        names, joined = self._joined(source, flat, arrays)
        if self.order is not None:
            axis, order = self.order
            joined = np.take(joined, order, names.index(axis))
        ends = self._grouped(target, flat, count, 0)[0]
        moved = joined.transpose([names.index(name) for name in ends])
        if count == 1 or self._listed(target, count):
            pieces = [moved] if count == 1 else list(moved)
        else:
            axis, sizes = self._split(count)
            pieces = np.split(moved, np.cumsum(sizes)[:-1].tolist(), ends.index(axis))
        shapes = [self._grouped(target, flat, count, index)[1] for index in range(count)]
        return [
            np.ascontiguousarray(piece).reshape(shape) for piece, shape in zip(pieces, shapes, strict=True)
        ]

    def _joined(
        self, side: Side, flat: Mapping[str, int], arrays: Sequence[Array]
    ) -> tuple[list[str], Array]:
        """All arrays of a side as one, every axis by itself."""
        listed = self._listed(side, len(arrays))
        axes = [name for group in self._expanded(side, flat)[listed:] for name in group if name != "1"]
        if listed or len(arrays) == 1:
            parts = [array.reshape([flat[name] for name in axes]) for array in arrays]
            return ([_LIST_AXIS, *axes], np.stack(parts)) if listed else (axes, parts[0])
        axis, sizes = self._split(len(arrays))
        parts = [
            array.reshape([size if name == axis else flat[name] for name in axes])
            for array, size in zip(arrays, sizes, strict=True)
        ]
        return axes, np.concatenate(parts, axes.index(axis))

    def _flat(self, source: Side, target: Side, shapes: Sequence[Shape], count: int) -> dict[str, int]:
        """The size of every axis by name, all tensors of a side joined."""
        if not shapes or not count:
            raise ExternalModelError(f"rule {self.text!r} needs tensors on both sides")
        flat = dict(self.sizes)
        listed = self._listed(source, len(shapes))
        for side, number in ((target, count), (source, len(shapes))):
            if self._listed(side, number):
                flat[_LIST_AXIS] = number
            elif number > 1:
                self._split(number)
        if self.parts is not None:
            flat[self.parts[0]] = sum(self.parts[1])
        joined = len(shapes) > 1 and not listed and self.parts is not None
        for index, shape in enumerate(shapes):
            if joined and index in self.bare:
                continue
            own = dict(flat)
            if joined and self.parts is not None:
                own[self.parts[0]] = self.parts[1][index]
            self._measure(source[listed:], shape, own)
            if self.parts is not None:
                own[self.parts[0]] = flat[self.parts[0]]
            if any(flat.get(name, size) != size for name, size in own.items()):
                raise ExternalModelError(f"rule {self.text!r} does not fit: shapes {list(shapes)} differ")
            flat = own
        for index in self.bare if joined else ():
            # Of the other ones its shape is known.
            if self._grouped(source, flat, len(shapes), index)[1] != tuple(shapes[index]):
                raise ExternalModelError(f"rule {self.text!r} does not fit shape {shapes[index]}")
        return flat

    def _measure(self, side: Side, shape: Shape, known: dict[str, int]) -> None:
        """Add the size of every axis of one array to `known`."""
        if (_ANY,) in side:
            place, extra = side.index((_ANY,)), len(shape) - len(side) + 1
            if extra < 0 or extra > _AXES_LIMIT:
                raise ExternalModelError(f"rule {self.text!r} does not fit shape {shape}")
            known[_ANY] = extra
            side = side[:place] + tuple((f"{_ANY}{i}",) for i in range(extra)) + side[place + 1 :]
        if len(shape) != len(side):
            raise ExternalModelError(f"rule {self.text!r} needs {len(side)} axes, received shape {shape}")
        for group, size in zip(side, shape, strict=True):
            unknown = [name for name in group if name != "1" and name not in known]
            product = math.prod(known[name] for name in group if name in known)
            if len(unknown) > 1:
                raise ExternalModelError(
                    f"rule {self.text!r} does not say how {size} is divided: add '; {unknown[0]}=...'"
                )
            if unknown and product and size % product == 0:
                known[unknown[0]] = size // product
            elif unknown or product != size:
                raise ExternalModelError(f"rule {self.text!r} does not fit shape {shape}")

    def _expanded(self, side: Side, flat: Mapping[str, int]) -> Side:
        groups: list[tuple[str, ...]] = []
        for group in side:
            groups += [(f"{_ANY}{i}",) for i in range(flat[_ANY])] if group == (_ANY,) else [group]
        return tuple(groups)

    def _grouped(
        self, side: Side, flat: Mapping[str, int], count: int, index: int
    ) -> tuple[list[str], Shape]:
        """The order of all axes on a side, and the shape of its tensor `index`."""
        groups = self._expanded(side, flat)
        axes = [name for group in groups for name in group if name != "1"]
        missing = [name for name in axes if name not in flat]
        if missing:
            raise ExternalModelError(f"rule {self.text!r} does not say how large {missing[0]!r} is")
        listed = self._listed(side, count)
        sizes = {"1": 1, **flat}
        if count > 1 and not listed:
            axis, parts = self._split(count)
            sizes[axis] = parts[index]
        shape = tuple(math.prod(sizes[name] for name in group) for group in groups[listed:])
        if count > 1 and not listed and index in self.bare:
            shape = tuple(size for size in shape if size != 1)
        return axes, shape

    def _listed(self, side: Side, count: int) -> bool:
        return count > 1 and side[:1] == ((_LIST_AXIS,),)

    def _split(self, count: int) -> tuple[str, tuple[int, ...]]:
        if self.parts is None or len(self.parts[1]) != count:
            raise ExternalModelError(
                f"rule {self.text!r} does not say how {count} tensors are joined: begin that side with"
                f" {_LIST_AXIS!r}, or write one size each, as in h=8+2+2"
            )
        return self.parts


def pattern(text: str, body: str, order: tuple[str, tuple[int, ...]] | None = None) -> Rearranged:
    """Return the rule of a pattern 'axes -> axes; sizes'.

    Args:
        text: the rule as the file has it, for the message.
        body: the pattern.

    Raises:
        ExternalModelError: it is no pattern.
    """
    axes, _, sizes_text = body.partition(";")
    left, arrow, right = axes.partition("->")
    if not arrow:
        raise ExternalModelError(f"rule {text!r}: a pattern is 'Keras axes -> torch axes'")
    keras, torch = _side(text, left), _side(text, right)
    names = [sorted(name for group in side for name in group if name != "1") for side in (keras, torch)]
    if any(len(set(one)) != len(one) for one in names):
        raise ExternalModelError(f"rule {text!r} names an axis twice on one side")
    if names[0] != names[1]:
        odd = sorted(set(names[0]) ^ set(names[1]))
        raise ExternalModelError(f"rule {text!r} has {odd[0]!r} on one side alone")
    sizes: dict[str, int] = {}
    parts: tuple[str, tuple[int, ...]] | None = None
    bare: frozenset[int] = frozenset()
    for part in sizes_text.replace(",", " ").split():
        match = _SIZE.fullmatch(part)
        if match is None or match[1] not in names[0] or match[1] in sizes:
            raise ExternalModelError(
                f"rule {text!r}: a size is written as {(names[0] or ['a'])[-1]}=12, received {part[:40]!r}"
            )
        texts = match[2].split("+")
        given = tuple(int(size.rstrip("!")) for size in texts)
        marked = frozenset(place for place, size in enumerate(texts) if size.endswith("!"))
        if len(marked) == len(texts):
            raise ExternalModelError(f"rule {text!r}: one tensor at least has all its axes, without '!'")
        if len(given) == 1:
            sizes[match[1]] = given[0]
        elif parts is None:
            parts, bare = (match[1], given), marked
        else:
            raise ExternalModelError(f"rule {text!r} joins tensors along two axes")
    return Rearranged(text, keras, torch, sizes, parts, order, bare)


def _side(text: str, part: str) -> Side:
    groups: list[tuple[str, ...]] = []
    inside: list[str] | None = None
    position = 0
    part = part.rstrip()
    while position < len(part):
        match = _TOKEN.match(part, position)
        if match is None:
            raise ExternalModelError(f"rule {text!r}: cannot read {part[position : position + 20]!r}")
        position, token = match.end(), match[1]
        if token == "(" and inside is None:
            inside = []
        elif token == ")" and inside is not None:
            groups.append(tuple(inside))
            inside = None
        elif token in "()" or (inside is not None and token == _ANY):
            raise ExternalModelError(f"rule {text!r}: {token!r} where none can be")
        elif inside is not None:
            inside.append(token)
        else:
            groups.append((token,))
    if inside is not None:
        raise ExternalModelError(f"rule {text!r}: a bracket is not closed")
    if len(groups) > _AXES_LIMIT or sum(map(len, groups)) > _AXES_LIMIT:
        raise ExternalModelError(f"rule {text!r} has more than {_AXES_LIMIT} axes")
    return tuple(groups)
