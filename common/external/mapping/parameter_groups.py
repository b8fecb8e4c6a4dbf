"""Group a model's tensors that belong together, in whatever class they are: a kernel with its bias, a norm.

An attention is four of them, whether it is one layer, four, or one with its three kernels in one tensor.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from parity.common.external.mapping.name_similarity import words_of
from parity.common.spec.external.outline import LayerInfo, Outline, TensorInfo
from parity.common.spec.external.patterns import Shape

# What a tensor is in its group, and the last parts of the roles that say so.
_ROLES = {
    "main": "kernel weight weights embeddings embedding gamma scale gain alpha w",
    "shift": "bias beta shift offset b",
    "mean": "moving_mean running_mean",
    "variance": "moving_variance moving_var running_variance running_var",
    "recurrent": "recurrent_kernel",
    "recurrent_shift": "recurrent_bias",
}
# Of what is not trained too.
_STATISTICS = {"mean": "mean", "avg": "mean", "var": "variance", "variance": "variance"}
_SLOTS = {role: slot for slot, roles in _ROLES.items() for role in roles.split()}
_STATISTIC = re.compile(rf"(?:(.*?)[_.])??({'|'.join(_STATISTICS)})(?:_?(\d+))?")
_ROLE = re.compile(rf"(?:(.*?)[_.])??({'|'.join(_SLOTS)})(?:_?(\d+))?")
_RECURRENT = ("lstm", "gru", "simple_rnn")
_ATTENTION = ("query", "key", "value")
# Tensors that hold several: what those are, and the words of their names.
_SEVERAL = {
    _ATTENTION: ("qkv", "wqkv", "in projection", "convolution attention", "query key value"),
    ("key", "value"): ("kv", "key value"),
    ("gate", "up"): ("gate up",),
}
_FUSED = {frozenset(name.split()): parts for parts, names in _SEVERAL.items() for name in names}

# Of 'to_kv' and 'qkv_proj'.
_FILLING = {"to", "projection"}


@dataclass(frozen=True)
class Part:
    """A tensor, or the part `index` of `count` of one that holds several, joined along `axis`.

    shape: of the part.
    """

    info: TensorInfo
    shape: Shape
    index: int = 0
    count: int = 1
    axis: int = 0


@dataclass(frozen=True)
class ParameterGroup:
    """op: what it computes, '' where that is not known. words, numbers: of its names.

    contains: whether its layer has other owners of tensors inside, or is never called, so that its place in the order says nothing.
    """

    layer: LayerInfo
    op: str
    parts: dict[str, Part]
    words: tuple[str, ...]
    numbers: tuple[int, ...]
    contains: bool = False


def parameter_groups_of(
    outline: Outline, left_out: Iterable[str], split: bool, other: Outline
) -> list[ParameterGroup]:
    """In the order of first calls.

    Args:
        outline: of either framework.
        left_out: names of tensors to ignore; tied ones always are.
        split: whether tensors that hold several are taken apart.
        other: of the other framework; the sizes of its tensors may say where such are taken apart.
    """
    own, sizes = (Counter(math.prod(info.shape) for info in each.tensors) for each in (outline, other))
    # What both sides have as many of is not in several tensors on one of them.
    wholes = {size for size, count in own.items() if sizes[size] >= count} if split else ()
    skipped = set(left_out)
    separator = "/" if outline.framework == "tensorflow" else "."
    owned: dict[str, list[TensorInfo]] = {}
    for info in outline.tensors:
        if info.name not in skipped and info.tied_to is None:
            owned.setdefault(info.layer, []).append(info)
    called = {layer.path: layer for layer in outline.layers}
    places = {path: place for place, path in enumerate(called)}
    passed = any(layer.calls for layer in outline.layers)
    found: list[ParameterGroup] = []
    for path in sorted(owned, key=lambda path: places.get(path, len(places))):
        layer = called.get(path) or LayerInfo(path=path, kind="", type="")
        inside = f"{path}{separator}" if path else ""
        contains = any(other != path and other.startswith(inside) for other in owned)
        # A list of parameters is not called itself.
        contains |= passed and not layer.calls
        stems, groups = _stems(layer, owned[path]), list[ParameterGroup]()
        for stem, members in stems.items():
            op = _op(layer, stem, members, [slots for other, slots in stems.items() if other != stem])
            whole = any(math.prod(info.shape) in wholes for slot, info in members.items() if slot == "main")
            new = _groups(layer, op, stem, members, separator, split and not whole, sizes)
            groups += [replace(group, contains=contains) for group in new]
        found += _with_shared_bias(groups) if split else groups
    return found


def _with_shared_bias(groups: list[ParameterGroup]) -> list[ParameterGroup]:
    """Groups of one layer; where kernels of queries, keys and values stand by themselves, as for keys of another size, and their biases
    in one tensor, each with its part of that.
    """
    roles = [{part.info.role: slot for slot, part in group.parts.items()} for group in groups]
    kernels = [n for role in _ATTENTION for n, each in enumerate(roles) if each == {f"{role}_kernel": "main"}]
    shared = next((n for n, each in enumerate(roles) if each == {"in_bias": "shift"}), None)
    if len(kernels) != len(_ATTENTION) or shared is None:
        return groups
    info, lengths = (
        groups[shared].parts["shift"].info,
        tuple(groups[n].parts["main"].shape[0] for n in kernels),
    )
    parts = {n: _part(info, index, lengths, 0) for index, n in enumerate(kernels)}
    return [
        replace(group, parts={**group.parts, "shift": parts[n]}) if n in parts else group
        for n, group in enumerate(groups)
        if n != shared
    ]


def number_of(group: ParameterGroup) -> int | None:
    """Keras's own number of a layer; None where a person has named it."""
    name, _, number = group.layer.path.rpartition("/")[2].rpartition("_")
    stem, number = (name, number) if number.isdigit() else (f"{name}_{number}", "0")
    automatic = stem.replace("_", "") == group.layer.type.rpartition(".")[2].lower()
    return int(number) if automatic else None


def holds_several(outline: Outline) -> bool:
    """Whether any tensor's name says that it holds several."""
    separator = "/" if outline.framework == "tensorflow" else "."
    layers = {layer.path: layer for layer in outline.layers}
    return any(
        _holds(info, layers.get(info.layer), separator) for info in outline.tensors if len(info.shape) > 1
    )


def statistic_of(info: TensorInfo) -> str:
    """What a buffer keeps by its name: 'mean', 'variance', or '' for anything else."""
    match = _STATISTIC.fullmatch(info.role) or _ROLE.fullmatch(info.role) if info.buffer else None
    slot = {**_STATISTICS, **_SLOTS}[match[2]] if match else ""
    return slot if slot in _STATISTICS.values() else ""


def _above(info: TensorInfo, layer: LayerInfo | None, separator: str) -> str:
    """What a tensor's own name stands behind: its layer by the attribute that holds it, where there is one, else by its path."""
    above = info.name.rpartition(separator)[0]
    if layer is not None and layer.attribute and f"{above}{separator}".startswith(f"{layer.path}{separator}"):
        return layer.attribute + above.removeprefix(layer.path).replace(separator, ".")
    return above.replace(separator, ".")


def _stems(layer: LayerInfo, tensors: Sequence[TensorInfo]) -> dict[str, dict[str, TensorInfo]]:
    """Stem -> slot -> tensor: of 'query_kernel' and 'query_bias' the stem is 'query'."""
    found: dict[str, dict[str, TensorInfo]] = {}
    for info in tensors:
        match = _ROLE.fullmatch(info.role) or (_STATISTIC.fullmatch(info.role) if info.buffer else None)
        slot = {**_STATISTICS, **_SLOTS}[match[2]] if match else "main"
        recurrent = layer.kind.removesuffix("_cell") in _RECURRENT or "bidirectional" in layer.kind
        if match is None or (slot.startswith("recurrent") and not recurrent):
            stem, slot = info.role, "main"
        else:
            stem = f"{match[1] or ''}{match[3] or ''}"
        if slot in found.get(stem, {}):
            stem = info.role
        found.setdefault(stem, {})[slot] = info
    # Statistics by themselves are those of the norm beside them: 'gain', 'seen_mean', 'seen_var'.
    statistics = [stem for stem, slots in found.items() if slots.keys() == {"mean", "variance"}]
    norms = [
        slots
        for slots in found.values()
        if statistics and "mean" not in slots and _is_norm(slots, found[statistics[0]]["mean"].shape)
    ]
    if len(norms) == len(statistics) == 1:
        norms[0].update(found.pop(statistics[0]))
    # A bias without a kernel of its own is that of the last kernel: of a separable convolution.
    alone = found.get("", {})
    if "main" not in alone and set(alone) == {"shift"} and len(found) > 1:
        del found[""]
        last = next(reversed(found.values()))
        sizes = {size for info in last.values() for size in info.shape}
        if "shift" in last or not sizes.issuperset(alone["shift"].shape):
            found[""] = alone
        else:
            last["shift"] = alone["shift"]
    return found


def _is_norm(slots: dict[str, TensorInfo], shape: Shape) -> bool:
    return all(slot in ("main", "shift") and info.shape == shape for slot, info in slots.items())


def _op(
    layer: LayerInfo, stem: str, slots: dict[str, TensorInfo], beside: Sequence[dict[str, TensorInfo]]
) -> str:
    kind, main = layer.kind, slots.get("main")
    kernels = [each["main"] for each in beside if "main" in each]
    if main is not None and "mean" not in slots and _axes(main) < 2 <= max(map(_axes, kernels), default=0):
        return ""  # a gain of a layer with a kernel: neither a norm nor such a layer by itself
    if any(name in kind for name in _RECURRENT) or "recurrent" in slots:
        return "recurrent"
    op = next((op for op in ("norm", "conv", "embedding") if op in kind), None)
    if op is not None:
        return op
    if kind in ("dense", "attention", "self_attention", "cross_attention", "einsum_dense"):
        return "dense"
    if main is not None and main.role in ("gamma", "scale", "gain") and len(main.shape) == 1:
        return "norm"
    return ""


def _axes(info: TensorInfo) -> int:
    """How many axes a tensor has along which there are several elements."""
    return sum(size != 1 for size in info.shape)


def _holds(info: TensorInfo, layer: LayerInfo | None, separator: str) -> tuple[str, ...]:
    """What a tensor of several holds by its name; () where it is a tensor like others."""
    if info.role in ("in_kernel", "in_bias"):
        return _ATTENTION
    # The words of what holds the tensor: of 'in_proj' in 'attn.in_proj_weight', of 'qkv' in 'attn.qkv.weight'.
    holder = _ROLE.fullmatch(info.name.rpartition(separator)[2])
    own = (holder[1] if holder else "") or _above(info, layer, separator).rpartition(".")[2]
    words = frozenset(words_of(own)[0])
    return _FUSED.get(words) or _FUSED.get(words - _FILLING, ())


def _groups(
    layer: LayerInfo,
    op: str,
    stem: str,
    slots: dict[str, TensorInfo],
    separator: str,
    split: bool,
    known: Collection[int],
) -> list[ParameterGroup]:
    """The tensors of one stem: one group, or one for each of the parts that they hold."""
    first = slots.get("main") or next(iter(slots.values()))
    names = _holds(first, layer, separator) if split and "main" in slots else ()
    sizes = _part_sizes(first.shape, len(names), layer, separator, known) if names else None
    words, numbers = words_of(f"{_above(first, layer, separator)}.{stem}")
    if sizes is None or "mean" in slots:
        parts = {slot: Part(info, info.shape) for slot, info in slots.items()}
        return [ParameterGroup(layer, op, parts, words, numbers)]
    found = []
    axis, lengths = sizes
    for index, name in enumerate(names):
        parts = {s: _part(info, index, lengths, axis if s == "main" else 0) for s, info in slots.items()}
        found.append(ParameterGroup(layer, op, parts, (*words, name), numbers))
    return found


def _part(info: TensorInfo, index: int, lengths: tuple[int, ...], axis: int) -> Part:
    shape = list(info.shape)
    if axis < len(shape) and shape[axis] == len(lengths) and len(shape) > 2:
        del shape[axis]  # (in, 3, heads, size)
    elif len(shape) == 1 or axis < len(shape):
        shape[min(axis, len(shape) - 1)] = lengths[index]
    return Part(info, tuple(shape), index, len(lengths), axis)


def _part_sizes(
    shape: Shape, count: int, layer: LayerInfo, separator: str, known: Collection[int]
) -> tuple[int, tuple[int, ...]] | None:
    """Along which axis a tensor holds its parts, and how long each is; None where it cannot. known: sizes of the other side's tensors."""
    if len(shape) == 4 and shape[1] == count:
        return 1, (shape[2],) * count
    if len(shape) != 2:
        return None
    # (out, in) is torch's dense kernel; (in, out) is Keras's, and that of some classes written for torch.
    axes = [0, 1] if separator == "." and (layer.kind or shape[0] >= shape[1]) else [1, 0]
    for axis in axes:
        whole, other = shape[axis], shape[1 - axis]
        rest, equal = (whole - other) // 2, whole % count == 0
        if equal and whole // count * other in known and rest * other not in known:
            return axis, (whole // count,) * count
        if count == 3 and other < whole < 3 * other and (whole - other) % 2 == 0:
            return axis, (other, rest, rest)
        if equal and whole >= other:
            return axis, (whole // count,) * count
    return None
