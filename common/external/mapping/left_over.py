"""What one layer alone does not explain: fused layers, biases by themselves, weights that one side ties to its embedding."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from parity.common.external.mapping.candidate_rules import arrangements, fits
from parity.common.external.mapping.name_similarity import words_of
from parity.common.external.mapping.parameter_groups import ParameterGroup, number_of, statistic_of
from parity.common.spec.external.mapping import Pair, Source
from parity.common.spec.external.outline import Outline, TensorInfo
from parity.common.spec.external.patterns import Shape
from parity.common.spec.external.rules import Constant, parse_rule

_T = TypeVar("_T")
BY_USE = "told from the others by the order in which a pass uses them"
# What a tensor that one side lacks must be to change nothing.
NEUTRAL = {"shift": 0, "main": 1}
# How many layers one may stand for.
_MOST_FUSED = 5
# So many ways to make a tensor of others are looked at for their names.
_MOST_RUNS = 64


def fused(
    keras: Sequence[ParameterGroup],
    torch: Sequence[ParameterGroup],
    fits_one: Callable[[ParameterGroup, ParameterGroup], bool] = lambda ours, theirs: False,
) -> list[Pair]:
    """One layer of torch's whose outputs are those of some of Keras's, which follow each other.

    Args:
        keras, torch: groups without a counterpart.
        fits_one: whether two are each other's counterpart; such a one of torch's is left alone.
    """
    ours, theirs = (
        # What is never called may be so by a training step.
        [group for group in side if "main" in group.parts and not (group.contains and group.layer.calls)]
        for side in (keras, torch)
    )
    every, pairs = list(ours), list[Pair]()
    # Numbers tell where each one of a shape has parts of its number; one that is counted from another begin has not.
    unnumbered = {
        whole.parts["main"].shape
        for whole in theirs
        if not any(part.numbers == whole.numbers and _is_part(part, whole) for part in ours)
    }
    for whole in theirs:
        if any(fits_one(part, whole) for part in every):
            continue
        # Those of the same number first: value0 and gate0 are in blocks.0.
        told = whole.parts["main"].shape not in unnumbered
        numbered = [part for part in ours if told and part.numbers == whole.numbers and _is_part(part, whole)]
        each = (
            [run for start in range(len(side)) if (run := _run(side[start:], whole, alike))]
            for alike in (True, False)
            for side in (numbered, ours)
        )
        runs: list[list[ParameterGroup]] = next(filter(None, each), [[]])
        names = [[part.parts["main"].info.name for part in run] for run in runs]
        found = runs[_told_by_name(whole.parts["main"].info.name, names) or 0]
        if all(number_of(part) is not None for part in found):
            # Branches of a functional model stand in no order of their own; they were made in one.
            found.sort(key=lambda part: number_of(part) or 0)
        if found:
            sizes = [part.parts["main"].shape[-1] for part in found]
            doubt = f"{len(found)} layers of Keras's in one of torch's, by shapes and order"
            pairs += _by_outputs(found, [whole], sizes, doubt)
        ours = [part for part in ours if part not in found]
    return pairs


def _run(ours: Sequence[ParameterGroup], whole: ParameterGroup, alike: bool) -> list[ParameterGroup]:
    """The first of Keras's groups, as many as together have the outputs of one of torch's; [] where they do not fit it.

    alike: whether all have biases or none; else those of one side have, and of the other not.
    """
    shape, found = whole.parts["main"].shape, list[ParameterGroup]()
    for part in ours[:_MOST_FUSED]:
        slots = {*part.parts}, {*(found or [part])[0].parts}
        if not _is_part(part, whole) or slots[0] != slots[1] or (slots[0] == {*whole.parts}) != alike:
            break
        found.append(part)
        if sum(each.parts["main"].shape[-1] for each in found) >= shape[0]:
            break
    whole_size = sum(each.parts["main"].shape[-1] for each in found)
    return found if len(found) > 1 and whole_size == shape[0] else []


def _is_part(part: ParameterGroup, whole: ParameterGroup) -> bool:
    """Whether the outputs of one of Keras's groups may be some of those of one of torch's."""
    one, shape = part.parts["main"].shape, whole.parts["main"].shape
    same = len(one) > 1 and (*one[-2:-1], *one[:-2]) == shape[1:] and part.op == whole.op
    # A convolution over one place is a dense layer.
    same |= len(one) == 2 and (one[0], *_ones(part, whole)) == shape[1:] and whole.op in ("dense", "conv")
    return same and not {*part.parts, *whole.parts} - {"main", "shift"}


def _ones(part: ParameterGroup, whole: ParameterGroup) -> tuple[int, ...]:
    """The axes of one place that a kernel of torch's has more than a dense kernel of Keras's."""
    return (1,) * (len(whole.parts["main"].shape) - len(part.parts["main"].shape))


def divided(keras: Sequence[ParameterGroup], torch: Sequence[ParameterGroup]) -> list[Pair]:
    """One layer of Keras's whose outputs are those of some of torch's, which follow each other.

    Args:
        keras, torch: groups without a counterpart.
    """
    ours, theirs = (list(filter(_is_dense, side)) for side in (keras, torch))
    pairs = list[Pair]()
    for whole in (group for group in ours if len(group.parts["main"].shape) > 1):
        *_, inputs, outputs = shape = whole.parts["main"].shape
        found = next(
            (
                run
                # Biases that torch alone has are what they are while they change nothing.
                for alike in ((True, False) if "shift" not in whole.parts else (True,))
                for run in _runs_of(theirs)
                if sum(part.parts["main"].shape[0] for part in run) == outputs
                and all(part.parts["main"].shape[1:] == (inputs, *shape[:-2]) for part in run)
                and all(not alike or part.parts.keys() == whole.parts.keys() for part in run)
            ),
            [],
        )
        theirs = [part for part in theirs if part not in found]
        if found:
            sizes = [part.parts["main"].shape[0] for part in found]
            doubt = f"one of Keras's layers in {len(found)} of torch's, by shapes and order"
            pairs += _by_outputs([whole], found, sizes, doubt)
    return pairs


def joined_norms(keras: Sequence[ParameterGroup], torch: Sequence[ParameterGroup]) -> list[Pair]:
    """A batch norm of one side whose channels are those of some of the other's, which follow each other: each channel is normalised by itself.

    Args:
        keras, torch: groups without a counterpart.
    """
    left = [[group for group in side if "mean" in group.parts] for side in (keras, torch)]
    pairs = list[Pair]()
    for one, several in ((1, 0), (0, 1)):
        for whole in left[one]:
            size = math.prod(whole.parts["mean"].shape)
            for run in _runs_of(left[several]):
                sizes = [math.prod(part.parts["mean"].shape) for part in run]
                if sum(sizes) != size or len({frozenset(part.parts) for part in run}) > 1:
                    continue
                left[several] = [part for part in left[several] if part not in run]
                doubt = f"{len(run)} norms in one, by shapes and order"
                rule = f"o -> o; o={'+'.join(map(str, sizes))}"
                for slot in (slot for slot in whole.parts if slot in run[0].parts):
                    members = [part.parts[slot].info for part in run]
                    pairs.append(_several_in_one(one, whole.parts[slot].info, members, rule, doubt))
                break
    return pairs


def _several_in_one(
    side: int, whole: TensorInfo, several: Sequence[TensorInfo], rule: str, doubt: str
) -> Pair:
    """The pair of a tensor of Keras's (side 0) or torch's (1) and of those of the other side that it holds."""
    names = [tuple(info.name for info in several)] * 2
    names[side] = (whole.name,)
    return Pair(keras=names[0], torch=names[1], rule=rule, source="order", doubt=doubt)


def _by_outputs(
    keras: Sequence[ParameterGroup], torch: Sequence[ParameterGroup], sizes: Sequence[int], doubt: str
) -> list[Pair]:
    """Kernels, and biases where there are some, of one layer whose outputs are those of several; sizes: how many each of these has."""
    joined = "+".join(map(str, sizes))
    ones = _ones(keras[0], torch[0])
    kernel = " ".join(["i o -> o i", *map(str, ones)]) if ones else "... i o -> o i ..."
    both = [
        Pair(
            keras=tuple(group.parts[slot].info.name for group in keras),
            torch=tuple(group.parts[slot].info.name for group in torch),
            rule=f"{rule}; o={joined}",
            source="order",
            doubt=doubt,
        )
        for slot, rule in (("main", kernel), ("shift", "o -> o"))
        if slot in keras[0].parts and slot in torch[0].parts
    ]
    alone = [
        Pair(**{side: (part.info.name,)}, rule=neutral("shift", part.shape), source="order", doubt=doubt)
        for side, groups, others in (("keras", keras, torch), ("torch", torch, keras))
        for part in (group.parts["shift"] for group in groups if "shift" in group.parts)
        if "shift" not in others[0].parts
    ]
    return both + alone


def _is_dense(group: ParameterGroup) -> bool:
    """Whether a group is a kernel, with or without a bias."""
    return "main" in group.parts and not group.parts.keys() - {"main", "shift"}


def cells(keras: Sequence[ParameterGroup], torch: Sequence[ParameterGroup]) -> list[Pair]:
    """Recurrent layers of Keras's that are two dense layers of one module in torch: of the inputs and of the state.

    Args:
        keras, torch: groups without a counterpart.
    """
    modules: dict[str, list[ParameterGroup]] = {}
    for group in filter(_is_dense, torch):
        modules.setdefault(group.layer.path.rpartition(".")[0], []).append(group)
    pairs = list[Pair]()
    for ours in (group for group in keras if "recurrent" in group.parts):
        kernels = [ours.parts[slot].info for slot in ("main", "recurrent")]
        due = [info.shape[::-1] for info in kernels]
        found = [
            (path, both)
            for path, groups in modules.items()
            for both in itertools.permutations(groups, 2)
            if [each.parts["main"].shape for each in both] == due
        ]
        if not found:
            continue
        (path, both), many = found[0], len(found) > 1
        modules[path] = [group for group in modules[path] if group not in both]
        doubt = (
            "a recurrent layer of Keras's as two dense layers of torch's, by shapes and order"
            if many
            else None
        )
        source: Source = "order" if many else "shape"
        parts: list[tuple[TensorInfo, tuple[TensorInfo, ...], str]] = [
            (info, (each.parts["main"].info,), "transpose") for info, each in zip(kernels, both, strict=True)
        ]
        shifts = tuple(each.parts["shift"].info for each in both if "shift" in each.parts)
        if shifts and "shift" in ours.parts:
            bias = ours.parts["shift"].info
            several = "two_biases" if len(bias.shape) == 1 else "n o -> n o"
            parts.append((bias, shifts, "same" if len(shifts) == 1 else several))
        pairs += [
            Pair(
                keras=(info.name,),
                torch=tuple(other.name for other in others),
                rule=rule,
                source=source,
                doubt=doubt,
            )
            for info, others, rule in parts
        ]
    return pairs


def rows(keras: Sequence[ParameterGroup], torch: Sequence[ParameterGroup]) -> list[Pair]:
    """Tensors of Keras's that are one of torch's: tables of several columns in one, vectors of one shape in a stack.

    Args:
        keras, torch: groups without a counterpart.
    """
    left = [part.info for group in keras for part in group.parts.values() if len(group.parts) == 1]
    wholes = [next(iter(group.parts.values())).info for group in torch if len(group.parts) == 1]
    pairs = list[Pair]()
    # First those whose names tell which; then in their order.
    for named, whole in itertools.product((True, False), wholes):
        if any(whole.name in pair.torch for pair in pairs):
            continue
        # What lies between them is of other kinds, such as a table that is not trained.
        kinds = dict.fromkeys(len(each.shape) for each in left)
        alike = [
            [each for each in left if (len(each.shape), each.trainable) == (rank, whole.trainable)]
            for rank in kinds
        ]
        every = itertools.chain.from_iterable(_making(each, whole.shape) for each in alike)
        ways = [*itertools.islice(every, _MOST_RUNS if named else 1)]
        place = (
            _told_by_name(whole.name, [[info.name for info in members] for members, _ in ways])
            if named
            else 0
        )
        if ways and place is not None:
            members, rule = ways[place]
            left = [info for info in left if info not in members]
            doubt = f"{len(members)} tensors of Keras's in one of torch's, by shapes and order"
            names = tuple(info.name for info in members)
            pairs.append(Pair(keras=names, torch=(whole.name,), rule=rule, source="order", doubt=doubt))
    return pairs


def _told_by_name(whole: str, ways: Sequence[Sequence[str]]) -> int | None:
    """Which of some ways to make a tensor of others has most words of its name, in all members and in any; None where no way has more than another."""
    words = {*words_of(whole)[0]}
    # 'qkv' and its like are three names in one.
    for letters in [word for word in words if {*word} <= {*"qkv"} and len(word) > 1]:
        words |= {*words_of(" ".join(letters))[0]}
    shared = []
    for members in ways:
        each = [words.intersection(words_of(name)[0]) for name in members]
        shared.append(len(set.intersection(*each)) + len(set.union(*each)) if each else 0)
    return shared.index(max(shared)) if shared and max(shared) > min(shared) else None


def stacked(keras: Sequence[ParameterGroup], torch: Sequence[ParameterGroup]) -> list[Pair]:
    """Dense layers of Keras's of one shape, in their order, whose kernels and biases are a stack in torch: experts, towers.

    Args:
        keras, torch: groups without a counterpart.
    """
    ours, pairs = (
        [group for group in keras if _is_dense(group) and len(group.parts["main"].shape) > 1],
        list[Pair](),
    )
    for whole in (group for group in torch if _is_dense(group) and len(group.parts["main"].shape) > 2):
        count = whole.parts["main"].shape[0]
        # The layers of an expert follow each other, and those of one shape do not.
        alike: dict[object, list[ParameterGroup]] = {}
        for each in ours:
            shapes = tuple((slot, part.shape) for slot, part in sorted(each.parts.items()))
            alike.setdefault(shapes, []).append(each)
        for run in (members[:count] for members in alike.values() if len(members) >= count > 1):
            if run[0].parts.keys() != whole.parts.keys():
                continue
            rules = {
                slot: _stack(part.shape, count, whole.parts[slot].shape)
                for slot, part in run[0].parts.items()
            }
            if not all(rules.values()):
                continue
            doubt = f"{count} layers of Keras's in a stack of torch's, by shapes and order"
            pairs += [
                Pair(
                    keras=tuple(each.parts[slot].info.name for each in run),
                    torch=(whole.parts[slot].info.name,),
                    rule=rule,
                    source="order",
                    doubt=doubt,
                )
                for slot, rule in rules.items()
            ]
            ours = [each for each in ours if each not in run]
            break
    return pairs


def _stack(shape: Shape, count: int, whole: Shape) -> str:
    """The likeliest rule by which so many tensors of a shape are a stack; '' where they are not."""
    rules = [
        rule
        for rule in arrangements((count, *shape), whole)
        if rule.startswith("a ") and rule.partition("-> ")[2].startswith("a ")
    ]
    return re.sub(r"\ba\b", "n", rules[0]) if rules else ""


def _making(left: Sequence[TensorInfo], whole: Shape) -> Iterator[tuple[list[TensorInfo], str]]:
    """Some tensors, which follow each other, that make one of a shape: joined along an axis or stacked; the likely first."""
    for run in _runs(left, math.prod(whole)):
        first, rank = run[0].shape, len(run[0].shape)
        differing = [axis for axis in range(rank) if len({info.shape[axis] for info in run}) > 1]
        # Of equal ones the heads of attention, or the rows.
        for axis in differing or ([1, 0, 2] if rank == 3 else range(rank)):
            sizes = [info.shape[axis] for info in run]
            for rule in arrangements((*first[:axis], sum(sizes), *first[axis + 1 :]), whole):
                axes, _, rest = rule.partition(";")
                names = axes.split("->")[0].split()
                if "(" in "".join(names) or names[axis] == "1":
                    continue
                given = [part for part in rest.split() if not part.startswith(f"{names[axis]}=")]
                joined = f"{names[axis]}={'+'.join(map(str, sizes))}"
                yield run, f"{axes.strip()}; {' '.join([joined, *given])}"
        for rule in () if differing else arrangements((len(run), *first), whole):
            if rule.startswith("a "):
                yield run, re.sub(r"\ba\b", "n", rule)


def _runs(left: Sequence[TensorInfo], size: int) -> Iterator[list[TensorInfo]]:
    """Two and more tensors that follow each other, differ in one axis at most, and have so many elements together."""
    for start in range(len(left)):
        total = 0
        for end in range(start, len(left)):
            shapes = {info.shape for info in left[start : end + 1]}
            total += math.prod(left[end].shape)
            apart = [axis for axis, sides in enumerate(zip(*shapes, strict=False)) if len(set(sides)) > 1]
            if total > size or len({len(shape) for shape in shapes}) > 1 or len(apart) > 1:
                break
            if total == size and end > start:
                yield list(left[start : end + 1])


def biases(
    pairs: Sequence[Pair],
    outlines: tuple[Outline, Outline],
    keras: Sequence[ParameterGroup],
    torch: Sequence[ParameterGroup],
) -> list[Pair]:
    """The pairs, with biases that stand in another layer than their kernel on one side: around a dense layer without one,
    or in the model itself.

    Args:
        pairs: known ones; of those in which one side alone has a bias, two may become one.
        outlines: of Keras and torch. keras, torch: groups without a counterpart.
    """
    tensors = [{info.name: info for info in outline.tensors} for outline in outlines]
    alone: list[list[TensorInfo]] = [
        [part.info for group in side for part in group.parts.values() if _is_alone(group)]
        for side in (keras, torch)
    ]
    for pair in pairs:
        if isinstance(pair.parsed, Constant) and not pair.parsed.value:
            side = 0 if pair.keras else 1
            alone[side].append(tensors[side][(pair.keras or pair.torch)[0]])
    # The layers of which each has a tensor of the other's.
    layers = {
        (tensors[0][ours].layer, tensors[1][theirs].layer)
        for pair in pairs
        for ours, theirs in itertools.product(pair.keras, pair.torch)
    }
    found = list(pairs)
    while alone[0]:
        ours, *alone[0] = alone[0]
        fits = [theirs for theirs in alone[1] if theirs.shape == ours.shape]
        # One of several projections, which stand in an axis of their own on one side.
        fits = fits or [theirs for theirs in alone[1] if ways_of(ours, theirs)]
        others = [info for info in alone[0] if info.shape == ours.shape]
        near = [
            theirs
            for theirs in fits
            if any(
                _is_inside(one, ours.layer, "/") and _is_inside(other, theirs.layer, ".")
                for one, other in layers
            )
        ]
        if not near and len(fits) == 1 + len(others):
            near = fits
        if not near:
            continue
        theirs = max(near, key=lambda info: len(info.layer))
        many = sum(info.layer == theirs.layer for info in near)
        doubt = f"one of {many} of its shape, told from the others by order alone" if many > 1 else None
        alone[1].remove(theirs)
        taken = {ours.name, theirs.name}
        found = [pair for pair in found if not taken.intersection((*pair.keras, *pair.torch))]
        source: Source = "order" if doubt else "shape"
        rule = ways_of(ours, theirs)[0]
        found.append(Pair(keras=(ours.name,), torch=(theirs.name,), rule=rule, source=source, doubt=doubt))
    return found


def by_shape(keras: Sequence[ParameterGroup], torch: Sequence[ParameterGroup]) -> list[Pair]:
    """Tensors that are each the only one of its side left that fits the other: of layers that hold others besides.

    Args:
        keras, torch: groups without a counterpart.
    """
    ours, theirs = ([part.info for group in side for part in group.parts.values()] for side in (keras, torch))
    rules = {
        (left.name, right.name): _rules(left, right)
        for left, right in itertools.product(ours, theirs)
        if left.trainable == right.trainable
    }
    fitting = [names for names, found in rules.items() if found]
    return [
        Pair(
            keras=(left,),
            torch=(right,),
            rule=rules[left, right][0],
            source="shape",
            doubt="of all that is left only this fits, by its shape" if len(rules[left, right]) > 1 else None,
        )
        for left, right in fitting
        if sum(left == each for each, _ in fitting) == sum(right == each for _, each in fitting) == 1
    ]


def by_inputs(keras: Sequence[ParameterGroup], torch: Sequence[ParameterGroup]) -> list[Pair]:
    """Kernels of one side that are one of the other's, side by side along its inputs: of a layer that is given several tensors
    joined there, and of as many layers whose outputs are added up here. Some may be written without axes of size one: a dense kernel
    beside that of a 1x1 convolution, a vector of one input or of one output.

    Args:
        keras, torch: groups without a counterpart.
    """
    left = [[part.info for group in side for part in group.parts.values()] for side in (keras, torch)]
    pairs = list[Pair]()
    for one, several in ((0, 1), (1, 0)):
        for whole in (info for info in left[one] if len(info.shape) > 1):
            kernels = [info for info in left[several] if len(info.shape) > 1]
            for run in itertools.chain(_runs_of(kernels), _runs_of(left[several])):
                rule = _along_inputs(whole, run, one)
                if rule:
                    left[several] = [info for info in left[several] if info not in run]
                    doubt = f"{len(run)} kernels in one along its inputs, by shapes and order"
                    pairs.append(_several_in_one(one, whole, run, rule, doubt))
                    break
    return pairs


def _along_inputs(whole: TensorInfo, run: Sequence[TensorInfo], side: int) -> str:
    """The rule by which kernels are one of Keras's (side 0) or of torch's along its inputs; '' where they are not."""
    inputs, outputs, rest = _kernel(whole, side)
    axes = max(len(info.shape) for info in run)
    if axes < 2:
        return ""
    # Of all parts, or of those that are written with all their axes.
    own = next(_kernel(info, 1 - side)[2] for info in run if len(info.shape) == axes)
    sizes, lengths = list[str](), list[int]()
    for info in run:
        if len(info.shape) == axes:
            length, *others = _kernel(info, 1 - side)
            agrees = others == [outputs, own]
        else:
            vector = info.shape[0] if outputs == 1 else 1
            length = _kernel(info, 1 - side)[0] if len(info.shape) > 1 else vector
            long = (outputs, length) if side == 0 else (length, outputs)
            agrees = set(own) <= {1} and info.shape == tuple(size for size in long if size != 1)
        if not agrees:
            return ""
        lengths.append(length)
        sizes.append(f"{length}{'' if len(info.shape) == axes else '!'}")
    if sum(lengths) != inputs or (own != rest and not {*own, *rest} <= {1}):
        return ""
    ours, theirs = (
        ["1"] * len(each) if own != rest else ["..."] for each in ((rest, own), (own, rest))[side]
    )
    return f"{' '.join([*ours, 'i', 'o'])} -> {' '.join(['o', 'i', *theirs])}; i={'+'.join(sizes)}"


def side_by_side(keras: Sequence[ParameterGroup], torch: Sequence[ParameterGroup]) -> list[Pair]:
    """Tensors of one side, which follow each other, that are one of the other's in the same layout: tables along their columns,
    or several of one shape along an axis of their own.

    Args:
        keras, torch: groups without a counterpart.
    """
    left = [_trained(side) for side in (keras, torch)]
    pairs = list[Pair]()
    for one, several in ((1, 0), (0, 1)):
        for whole in left[one]:
            tables = [info for info in left[several] if info.shape[:-1] == whole.shape[:-1]]
            alike = [info for info in left[several] if len(info.shape) == len(whole.shape) - 1]
            for run in itertools.chain(_runs_of(tables), _runs_of(alike)):
                sides = _beside([info.shape for info in run], whole.shape)
                if sides is None:
                    continue
                left[several] = [info for info in left[several] if info not in run]
                rule = " -> ".join(sides[:2] if several == 0 else sides[1::-1]) + sides[2]
                doubt = f"{len(run)} tensors in one, by shapes and order"
                pairs.append(_several_in_one(one, whole, run, rule, doubt))
                break
    return pairs


def _beside(parts: Sequence[Shape], whole: Shape) -> tuple[str, str, str] | None:
    """The axes of parts, those of the whole, and sizes that no shape tells, as a pattern has them; None where they do not fit."""
    names = [chr(ord("a") + axis) for axis in range(len(whole))]
    axes = " ".join(names)
    if len(whole) > 1 and all(part[:-1] == whole[:-1] for part in parts):
        sizes = [part[-1] for part in parts]
        if sum(sizes) == whole[-1]:
            return axes, axes, f"; {names[-1]}={'+'.join(map(str, sizes))}"
    if len(whole) > 1 and len(set(parts)) == 1:
        own = names[:-1]
        # As they are, or a kernel transposed.
        for rest, part in ((own, parts[0]), (own[::-1], parts[0][::-1]))[: 1 + (len(own) == 2)]:
            for axis in range(len(whole)):
                if whole[axis] == len(parts) and (*whole[:axis], *whole[axis + 1 :]) == part:
                    return " ".join(["n", *own]), " ".join([*rest[:axis], "n", *rest[axis:]]), ""
    return None


def _kernel(info: TensorInfo, side: int) -> tuple[int, int, Shape]:
    """How many inputs and outputs a kernel has, and its other axes; of Keras (0) or of torch (1)."""
    shape = info.shape
    return (shape[1], shape[0], shape[2:]) if side else (shape[-2], shape[-1], shape[:-2])


def _runs_of(left: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """Two and more, which follow each other."""
    for start in range(len(left)):
        for end in range(start + 2, min(start + _MOST_FUSED, len(left)) + 1):
            yield left[start:end]


def _trained(groups: Sequence[ParameterGroup]) -> list[TensorInfo]:
    return [part.info for group in groups for part in group.parts.values() if part.info.trainable]


def neutral(slot: str, shape: Shape) -> str:
    """The rule of a tensor of `NEUTRAL` that one side lacks."""
    return _constant(NEUTRAL[slot], shape)


def _constant(number: float, shape: Shape) -> str:
    return f"constant({number:g}; {' '.join(map(str, shape))})"


def of_one_side(side: str, info: TensorInfo, number: float) -> Pair:
    """The pair of a tensor that one side, 'keras' or 'torch', alone has, as the number that all its elements are."""
    lacks = "torch" if side == "keras" else "Keras"
    rule, doubt = _constant(number, info.shape), f"{lacks} has no such tensor"
    return Pair(**{side: (info.name,)}, rule=rule, source="order", doubt=doubt)


def neutral_alone(keras: Sequence[ParameterGroup], torch: Sequence[ParameterGroup]) -> list[Pair]:
    """Scales and shifts of norms, and biases of layers whose kernels have a counterpart, that one side alone has, where all else has a
    counterpart: what they are while they change nothing.

    Args:
        keras, torch: groups without a counterpart.
    """
    pairs = list[Pair]()
    if _trained(keras) and _trained(torch):
        return pairs
    for side, groups in zip(("keras", "torch"), (keras, torch), strict=True):
        for group in groups:
            if group.op != "norm" and not (group.op and group.parts.keys() == {"shift"}):
                continue
            for slot, part in group.parts.items():
                # A buffer of that name is a constant of the model's.
                if slot in NEUTRAL and part.count == 1 and part.info.trainable:
                    pairs.append(of_one_side(side, part.info, NEUTRAL[slot]))
    return pairs


def by_use(
    keras: Sequence[ParameterGroup],
    torch: Sequence[ParameterGroup],
    used: tuple[Sequence[str], Sequence[str]],
) -> list[Pair]:
    """Tensors of one size that a pass uses first, second and so on, where both sides have as many: of a model that keeps its
    tensors in lists, by what they are and not by layer.

    Args:
        keras, torch: groups without a counterpart. used: names in the order of their first use, of Keras and of torch.
    """
    sizes: list[dict[tuple[bool, str, tuple[int, ...]], list[TensorInfo]]] = [{}, {}]
    for groups, names, found in zip((keras, torch), used, sizes, strict=True):
        place = {name: number for number, name in enumerate(names)}
        left = [part.info for group in groups for part in group.parts.values() if part.info.name in place]
        for info in sorted(left, key=lambda info: place[info.name]):
            long = tuple(sorted(size for size in info.shape if size != 1))
            found.setdefault((info.trainable, statistic_of(info), long), []).append(info)
    pairs = []
    # The layers whose kernels are each other's, by which their vectors are told.
    partner: dict[str, str] = {}
    every = sorted(sizes[0].items(), key=lambda of: -len(of[0][2]))
    for key, ours in every:
        theirs = sizes[1].get(key, [])
        if len(ours) == len(theirs) and len(key[2]) > 1:
            partner |= {one.layer: other.layer for one, other in zip(ours, theirs, strict=True)}
        elif len(ours) == len(theirs):
            theirs = _with_their_kernels(ours, theirs, partner)
        rules = [rule for pair in zip(ours, theirs, strict=False) for rule in ways_of(*pair)[:1]]
        if len(ours) != len(theirs) or len(rules) != len(ours):
            continue
        doubt = f"one of {len(ours)} of its size, {BY_USE}"
        pairs += [
            Pair(keras=(left.name,), torch=(right.name,), rule=rule, source="order", doubt=doubt)
            for left, right, rule in zip(ours, theirs, rules, strict=True)
        ]
    return pairs


def _with_their_kernels(
    ours: Sequence[TensorInfo], theirs: Sequence[TensorInfo], partner: Mapping[str, str]
) -> list[TensorInfo]:
    """As many of torch's vectors in the order of Keras's: of layers whose kernels are each other's, the one of that layer; the rest as they are."""
    found: list[TensorInfo | None] = []
    for one in ours:
        due = [each for each in theirs if each.layer == partner.get(one.layer)]
        alone = len(due) == 1 and sum(each.layer == one.layer for each in ours) == 1
        found.append(due[0] if alone and due[0] not in found else None)
    rest = iter([each for each in theirs if each not in found])
    return [next(rest) if each is None else each for each in found]


def _rules(ours: TensorInfo, theirs: TensorInfo) -> list[str]:
    """Those that take one shape to the other; of what is not trained, which may be a constant of one side, only by one name."""
    if not ours.trainable and ours.role != theirs.role:
        return []
    return ways_of(ours, theirs)


def ways_of(ours: TensorInfo, theirs: TensorInfo) -> list[str]:
    """Rules that take one shape to the other, the likeliest first."""
    every = ["same"]
    # Batch statistics are kept in the shape in which they are broadcast.
    if ours.trainable or statistic_of(ours):
        every = ["transpose", "same"] if len(ours.shape) == 2 else ["same", "conv"]
        every += arrangements(ours.shape, theirs.shape)
    return [rule for rule in every if fits(rule, [ours.shape], [theirs.shape])]


def _is_alone(group: ParameterGroup) -> bool:
    """Whether a group is one tensor, which may be a bias by another name."""
    return len(group.parts) == 1 and bool(group.parts.keys() & {"shift", "main"})


def _is_inside(path: str, layer: str, separator: str) -> bool:
    """Whether a path is a layer's, or that of something in it."""
    return not layer or path == layer or path.startswith(layer + separator)


def untied(
    pairs: Sequence[Pair],
    outlines: tuple[Outline, Outline],
    keras: Sequence[ParameterGroup],
    torch: Sequence[ParameterGroup],
) -> list[Pair]:
    """The pairs, an embedding's with the output weights that one side has besides it, where the other ties the two.

    Args:
        pairs: known ones. outlines: Keras's and torch's. keras, torch: groups without a counterpart.
    """
    found = list(pairs)
    kinds = {info.path: info.kind for info in outlines[0].layers}
    tensors = {info.name: info for info in outlines[0].tensors}
    # A table of the code's own may be of no known kind.
    tied = {info.tied_to for outline in outlines for info in outline.tensors}
    for side, groups, rule in (("torch", torch, "copies"), ("keras", keras, "tied_kernel")):
        for info in (group.parts["main"].info for group in groups if "main" in group.parts):
            shape = info.shape if side == "torch" else info.shape[::-1]
            of = [
                place
                for place, pair in enumerate(found)
                if pair.rule == "same"
                and (own := tensors[pair.keras[0]]).shape == shape
                and (kinds.get(own.layer) == "embedding" or not tied.isdisjoint((*pair.keras, *pair.torch)))
            ]
            if len(of) != 1 or not info.trainable:
                continue
            pair = found[of[0]]
            both = {side: (*getattr(pair, side), info.name), "rule": rule, "source": "shape"}
            doubt = f"{info.name} has no counterpart and the shape of this embedding's weights"
            found[of[0]] = pair.model_copy(update={**both, "doubt": doubt, "note": parse_rule(rule).note})
    return found
