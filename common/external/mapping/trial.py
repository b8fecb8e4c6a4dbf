"""Two models with the same random weights by a mapping, and how far their layers are apart.

Keras's activations are injected into the torch model at every mapped layer, so that one pass judges each layer in
isolation, whatever is wrong before it.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as Names
from dataclasses import dataclass, replace

import numpy as np

from parity.common.base.errors import ExternalModelError
from parity.common.external.mapping.components import Views, components, deviation, moments, relative, taps_of
from parity.common.external.mapping.graphs import connected
from parity.common.external.mapping.variants import Variants
from parity.common.external.process.layouts import block_of
from parity.common.external.process.pass_result import Array, Arrays, PassResult
from parity.common.external.process.worker import ExternalWorker
from parity.common.spec.external.mapping import Mapping, Pair
from parity.common.spec.external.outline import Outline, TensorInfo
from parity.common.spec.external.rules import Constant, parse_rule

# Of float64: rounding through a deep model stays below this.
AGREES = 1e-10
# Another eps or another gelu is less than this, and a wrong tensor is more.
WRONG = 1e-2
# Below it relu, relu6, silu and gelu give nothing.
_LOWEST = -0.3
# Of larger tensors no orbits are computed: they get one value.
_ORBIT_SIZE = 20_000_000

Inputs = Array | Arrays


@dataclass(frozen=True)
class Trial:
    """deviations: of the components that can be watched, by their place. outputs: the largest deviation of an output."""

    deviations: dict[int, float]
    outputs: float


class Bench:
    """Two models under test, which have their own weights again at the end of the context.

    parts: the groups of layers that are judged. trials: how many passes it took.
    """

    def __init__(
        self,
        mapping: Mapping,
        keras_side: ExternalWorker,
        torch_side: ExternalWorker,
        inputs: Inputs,
        torch_inputs: Inputs | None = None,
    ) -> None:
        given = inputs if torch_inputs is None else torch_inputs
        self.mapping, self.sides, self.inputs = mapping, (keras_side, torch_side), (inputs, given)
        self.outlines: tuple[Outline, Outline] = keras_side.outline(inputs), torch_side.outline(given)
        mapping.check(*self.outlines, unmapped=True)
        self.parts = components(mapping.tensors, *self.outlines)
        # Of each torch tensor the layer in which what is computed with it is watched.
        self._home = {
            name: component.torch
            for component in self.parts
            for index in component.pairs
            for name in mapping.tensors[index].torch
        }
        self.variants = Variants(*self.outlines)
        self.infos = {info.name: info for info in self.outlines[0].tensors}
        self.trials = 0
        self._expected: dict[bool, tuple[Arrays, PassResult]] = {}
        self._found: PassResult | None = None
        self._written: dict[int, object] = {}
        self._watched: list[str] = []

    def __enter__(self) -> Bench:
        self._own = [side.read() for side in self.sides]
        # What is not mapped gets values that change little, so that it does not hide what is mapped.
        left = self.mapping.unmapped.keras, self.mapping.unmapped.torch
        for side, outline, names in zip(self.sides, self.outlines, left, strict=True):
            state = {}
            for info in (info for info in outline.tensors if info.name in names):
                value = info.role.endswith(("gamma", "scale", "variance"))
                state[info.name] = np.full(info.shape, value, info.dtype.replace("bfloat16", "float32"))
            if state:
                side.write(state)
        return self

    def __exit__(self, *_: object) -> None:
        for side, weights in zip(self.sides, self._own, strict=True):
            side.write(weights)

    def _keras_values(self, pairs: Sequence[Pair], shared: bool) -> Arrays:
        """Values of every mapped Keras tensor; `shared`: equal ones for all components of a signature."""
        constants = {name: constant_of(pair.rule) for pair in pairs for name in pair.keras}
        found: Arrays = {}
        for component in self.parts:
            names = [name for index in component.pairs for name in pairs[index].keras]
            for slot, name in enumerate(names):
                info, value = self.infos[name], constants[name]
                key = (component.signature, slot) if shared else name
                found[name] = draw(info, key) if value is None else np.full(info.shape, value)
        for pair in (pair for pair in pairs if pair.rule == "tied_kernel"):
            found |= _tied(pair, found)
        if shared:
            for pair in pairs:
                rules = self.variants.rules(pair) if pair.keras and pair.torch else ()
                if len(rules) > 1:
                    arrays = levelled([found[name] for name in pair.keras], rules, len(pair.torch))
                    found |= dict(zip(pair.keras, arrays, strict=True))
        return found

    def expect(self, pairs: Sequence[Pair], shared: bool) -> tuple[Arrays, PassResult]:
        """Keras's values and what it computes with them, which the mapping has no part in."""
        if shared not in self._expected:
            given = self._keras_values(pairs, shared)
            self.sides[0].write({name: value.astype(self.infos[name].dtype) for name, value in given.items()})
            self._expected[shared] = given, self.sides[0].forward(self.inputs[0], taps=True)
        return self._expected[shared]

    def run(
        self, pairs: Sequence[Pair], inject: bool, shared: bool, changed: Names[str, Array] | None = None
    ) -> tuple[PassResult, PassResult]:
        """Run both passes.

        Args:
            inject: whether every watched torch layer's output is replaced by Keras's.
            shared: whether components of one signature get equal values.
            changed: torch tensors that get these values instead, in their shapes.
        """
        given, expected = self.expect(pairs, shared)
        self._write(pairs, given, shared)
        if changed:
            self.sides[1].write(dict(changed))
        arrays = self._inject(pairs, expected) if inject else None
        self.trials += 1
        found = self.sides[1].forward(self.inputs[1], taps=self._watched or True, inject=arrays)
        if self._found is None:
            self._found = found
            paths = {component.torch for component in self.parts}
            self._watched = [name for path in sorted(paths) for name in taps_of(found.activations, path)]
        return expected, found

    def _write(self, pairs: Sequence[Pair], given: Arrays, shared: bool) -> None:
        """Give the torch model its tensors, as far as it does not have them."""
        moved: Arrays = {}
        for index, pair in enumerate(pairs):
            key = pair.keras, pair.torch, pair.rule, shared
            if pair.torch and self._written.get(index) != key:
                moved |= self._moved(pair, given)
                self._written[index] = key
        if moved:
            self.sides[1].write(moved)

    def _moved(self, pair: Pair, given: Arrays) -> Arrays:
        arrays = pair.parsed.to_torch([given[name] for name in pair.keras], len(pair.torch))
        return dict(zip(pair.torch, arrays, strict=True))

    def taps(
        self, pairs: Sequence[Pair], expected: PassResult, found: PassResult
    ) -> Iterator[tuple[int, list[str], list[str]]]:
        """Each component with its taps of both passes: torch's of the layer that has its tensors under `pairs`.

        Without those whose units are in another order: their numbers are, too.
        """
        for place, component in enumerate(self.parts):
            if any(pairs[index].moves_units for index in component.pairs):
                continue
            names = [name for index in component.pairs for name in pairs[index].torch]
            theirs = self._home[names[0]] if names else component.torch
            ours = taps_of(expected.activations, component.keras)
            others = taps_of(found.activations, theirs)
            yield place, ours, _in_order_of(ours, expected.activations, others, found.activations)

    def _inject(self, pairs: Sequence[Pair], expected: PassResult) -> Arrays:
        """Keras's activations in torch's layouts, by torch's taps."""
        if self._found is None:
            self.run(pairs, inject=False, shared=False)
        assert self._found is not None
        views = self.views(pairs, expected, self._found)
        injected: Arrays = {}
        for place, one, other in self.taps(pairs, expected, self._found):
            if self.parts[place].observed and len(one) == len(other):
                for a, b in zip(one, other, strict=True):
                    array = views.as_torch(expected.activations[a], self._found.activations[b])
                    if array is not None:
                        injected[b] = array
        return injected

    def views(self, pairs: Sequence[Pair], expected: PassResult, found: PassResult) -> Views:
        return Views(
            (expected.activations[one[0]], found.activations[other[0]])
            for _, one, other in self.taps(pairs, expected, found)
            if one and other
        )

    def try_out(
        self, pairs: Sequence[Pair], inject: bool = True, changed: Names[str, Array] | None = None
    ) -> Trial:
        """How far the components and the outputs of the models are apart with tensors of their own.

        Args: as of `run`; `changed` in the shapes of torch's tensors. With tensors that a model refuses, which took others before,
            all is infinitely far.
        """
        try:
            expected, found = self.run(pairs, inject, shared=False, changed=changed)
        except ExternalModelError:
            if self._found is None:
                raise
            return Trial(dict.fromkeys(range(len(self.parts)), math.inf), math.inf)
        views = self.views(pairs, expected, found)
        deviations: dict[int, float] = {}
        for place, one, other in self.taps(pairs, expected, found):
            calls = list(zip(one, other, strict=False))
            far = [_apart(views, expected.activations[a], found.activations[b]) for a, b in calls]
            known = [value for value in far if value is not None]
            if self.parts[place].observed and known and len(known) == len(calls):
                deviations[place] = max(known)
        return Trial(deviations, _outputs_apart(views, expected.outputs, found.outputs))

    def spoiled(self, pairs: Sequence[Pair], indices: Sequence[int], inject: bool = True) -> Trial:
        """A trial with other values in the torch tensors of some pairs."""
        given, _ = self.expect(pairs, shared=False)
        changed: Arrays = {}
        for index in indices:
            for name, value in self._moved(pairs[index], given).items():
                changed[name] = np.asarray(np.roll(value.ravel(), 1).reshape(value.shape) * 1.5 + 0.1)
                break
        trial = self.try_out(pairs, inject=inject, changed=changed)
        for index in indices:
            self._written.pop(index, None)
        return trial

    def find_functions(self, pairs: Sequence[Pair]) -> None:
        """Watch the Keras activation behind a layer whose counterpart in torch applies it itself."""
        expected, found = self.run(pairs, inject=False, shared=False)
        for place, component in enumerate(self.parts):
            own = taps_of(expected.activations, component.keras)
            other = taps_of(found.activations, component.torch)
            if not (component.observed and len(own) == len(other) == 1):
                continue
            behind = _behind(component.keras, self.outlines[0], expected)
            if behind is None:
                continue
            after = taps_of(expected.activations, behind)
            ours, theirs = expected.activations[after[0]], found.activations[other[0]]
            before = expected.activations[own[0]]
            if _moments_apart(before, theirs) <= AGREES or ours.size != theirs.size:
                continue
            # Once something before it is wrong, only the range of the numbers decides.
            cut = theirs.min() >= _LOWEST > before.min()
            if _moments_apart(ours, theirs) <= AGREES or cut:
                self.parts[place] = replace(component, keras=behind)

    def every_layer(self, pairs: Sequence[Pair]) -> tuple[PassResult, PassResult]:
        """Both passes, with the taps of all layers."""
        self._watched = []
        return self.run(pairs, inject=False, shared=False)


def _in_order_of(ours: list[str], expected: Arrays, theirs: list[str], found: Arrays) -> list[str]:
    """Torch's calls of a layer in the order of Keras's, as far as sizes tell: a pyramid's levels may be called the other way round."""
    sizes = [expected[tap].size for tap in ours]
    own = [found[tap].size for tap in theirs]
    if own == sizes or sorted(own) != sorted(sizes):
        return theirs
    by_size = zip(np.argsort(sizes, kind="stable"), np.argsort(own, kind="stable"), strict=True)
    return [theirs[other] for _, other in sorted(by_size)]


def _behind(path: str, keras: Outline, expected: PassResult) -> str | None:
    """The activation of a layer's output, by its numbers: branches are not called one after the other."""
    kinds = {layer.path: layer.kind for layer in keras.layers}
    order = [other for other in keras.order or kinds if other in kinds]
    x = expected.activations[taps_of(expected.activations, path)[0]]
    ranks: Array | None = None
    for after in order[order.index(path) + 1 :] if path in order else ():
        taps = taps_of(expected.activations, after) if kinds[after] == "activation" and after != path else []
        if len(taps) != 1 or expected.activations[taps[0]].shape != x.shape:
            continue
        if ranks is None:
            ranks = np.argsort(x, axis=None)
        values = expected.activations[taps[0]].ravel()[ranks]
        # What is a function of it goes up, or down, or back a little (gelu, silu); anything else goes to and fro.
        if np.abs(np.diff(values)).sum() <= 2 * np.ptp(values):
            return after
    return None


def _moments_apart(ours: Array, theirs: Array) -> float:
    """As `deviation`, of arrays whose elements may stand in another order."""
    return relative(moments(ours), moments(theirs))


def _apart(views: Views, keras: Array, torch: Array) -> float | None:
    array = views.as_torch(keras, torch)
    if array is not None:
        return deviation(array, torch)
    # What is cropped inside of a layer of Keras's may be so behind torch's: that it is no part of it says nothing.
    return None if block_of(keras, torch) is None else 0.0


def _outputs_apart(views: Views, keras: Arrays, torch: Arrays) -> float:
    """The largest deviation of a Keras output from the torch output that is nearest to it."""
    far = []
    for one in keras.values():
        near = [_apart(views, one, other) for other in torch.values()]
        fitting = [value for value in near if value is not None]
        # What one model alone returns says nothing.
        far += [min(fitting)] if fitting else []
    return max(far, default=float("inf"))


# --- Values to try a mapping with: random, of a size that keeps activations in bounds, and no two tensors alike ---


def draw(info: TensorInfo, key: object) -> Array:
    """Values for a tensor; equal keys and shapes give equal values."""
    random = np.random.default_rng(zlib.crc32(repr(key).encode()))
    role, shape = info.role, info.shape
    positive: Array = np.asarray(random.uniform(0.5, 1.5, shape))
    normal: Array = random.standard_normal(shape)
    scale = random.uniform(0.8, 1.25)
    one_weight = role.endswith("weight") and len(shape) == 1
    if "var" in role or role.endswith(("gamma", "scale", "alpha")) or one_weight:
        return positive
    if not info.trainable and len(shape) == 2 and shape[0] == shape[1]:
        # It may be a moving covariance, of which code takes a root.
        return np.asarray(normal @ normal.T / shape[0] + np.eye(shape[0]))
    size = 1.3 / max(1.0, math.prod(shape[:-1])) ** 0.5
    if len(shape) < 2 or role.endswith(("bias", "beta", "mean")):
        size = 0.2
    elif "embedding" in role:
        size = 0.5
    return np.asarray(normal * (scale * size))


def _tied(pair: Pair, values: Arrays) -> Arrays:
    """Of Keras's tensors that torch has one for: alike."""
    arrays = pair.parsed.to_torch([values[name] for name in pair.keras], 1)
    return dict(zip(pair.keras, pair.parsed.to_keras(arrays, len(pair.keras)), strict=True))


def constant_of(rule: str) -> float | None:
    """What a tensor of one side must be by its rule, None where it is free."""
    parsed = parse_rule(rule)
    return parsed.value if isinstance(parsed, Constant) else None


def levelled(arrays: Sequence[Array], rules: Sequence[str], count: int) -> list[Array]:
    """The arrays with equal values wherever rules disagree, so that it does not matter which of them is right.

    Args:
        arrays: of Keras, of any shapes; those that are returned have the same.
        rules: the first is the one that the others are compared with.
        count: of torch tensors.
    """
    total = sum(array.size for array in arrays)
    if total > _ORBIT_SIZE:
        return [np.full(array.shape, array.flat[0]) for array in arrays]
    indices = _divided(np.arange(total), arrays)
    places = [
        np.concatenate([part.ravel() for part in parse_rule(rule).to_torch(indices, count)]) for rule in rules
    ]
    # Equal for elements that any two rules put into the same place.
    labels = np.arange(total)
    for other in places[1:]:
        labels = connected(labels[places[0]], labels[other], total)[labels]
    flat = np.concatenate([np.asarray(array).ravel() for array in arrays])
    sums, counts = np.bincount(labels, flat), np.bincount(labels)
    # The mean of many is small; of the root of their number it is as large as one of them.
    return _divided((sums / np.sqrt(np.maximum(counts, 1.0)))[labels], arrays)


def _divided(flat: Array, arrays: Sequence[Array]) -> list[Array]:
    """One row of values in the shapes of the arrays."""
    parts = np.split(flat, np.cumsum([array.size for array in arrays])[:-1])
    return [part.reshape(array.shape) for part, array in zip(parts, arrays, strict=True)]
