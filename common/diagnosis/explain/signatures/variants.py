"""What a layer may have been made into: other settings, kernels turned, gates swapped, masks keyed otherwise."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from parity.common.base.errors import ParityError
from parity.common.diagnosis import limits
from parity.common.diagnosis.explain.signatures import attention
from parity.common.diagnosis.explain.signatures.backward import backward_match, wrong_gradients
from parity.common.diagnosis.explain.signatures.base import Case, Match, ratio_of
from parity.common.diagnosis.explain.signatures.layers import (
    Layer,
    Try,
    base,
    computed,
    divided,
    is_wrong,
    layer_of,
    plain,
    tried,
)
from parity.common.diagnosis.explain.spec_variants import neighbours, rounded_fields, said
from parity.common.parity.deviation import tensor_deviation
from parity.common.record.trace import Array
from parity.common.spec.layers.windows import Windowed


def _with(case: Case, layer: Layer, words: str, facts: dict[str, str] | None = None, **own: Array) -> Try:
    """The layer with some of its own tensors replaced."""
    return Try(words, (plain(case, layer, tensors=layer.changed(**own)),), facts or {})


def _matrices(layer: Layer) -> dict[str, Array]:
    return {name: value for name, value in layer.own().items() if value.ndim >= 2}


# Settings.


def other_setting(case: Case) -> tuple[str, Match] | None:
    """(field, match): the layer with one field of its spec changed."""
    layer = layer_of(case)
    if layer is None or is_wrong(case) is None:
        return None
    found = tried(case, _settings(case, layer)) or _fitted_epsilon(case, layer) or _fitted_decay(case, layer)
    return None if found is None else (found.facts["field"], found)


def rounded_setting(case: Case) -> Match | None:
    """The layer with a number of its spec, or an attention's scale, that has been through float32."""
    layer, before = layer_of(case), is_wrong(case)
    if layer is None or before is None or before > limits.FLOAT32_LARGEST:
        return None
    tries = []
    for field, _, changed in rounded_fields(layer.spec):
        variant = plain(case, layer, layer=changed)
        tries.append(Try(f"with {field} rounded to float32", (variant,), {"what": field}))
    return tried(case, tries) or attention.attention(case, "rounded", what="scale")


def activity_missing(case: Case) -> Match | None:
    """A layer that penalizes its input does not."""
    layer = layer_of(case)
    if layer is None or layer.spec.kind != "activity_penalty":
        return None
    changed = layer.spec.model_copy(update={"l1": 0.0, "l2": 0.0})
    return tried(case, [Try("without its penalty", (plain(case, layer, layer=changed),))])


def _settings(case: Case, layer: Layer) -> Iterator[Try]:
    spec, shape = layer.spec, layer.node.input_shape
    for field, value, changed in neighbours(spec):
        try:
            same = changed.output_shape(shape) == layer.node.output_shape
            kept = {(p.name, p.shape) for p in changed.parameters(shape)} <= {
                (p.name, p.shape) for p in layer.node.parameters
            }
        except ParityError:
            continue
        if not same or not kept:
            continue
        variant = plain(case, layer, layer=changed)
        split = field == "statistics" and value == "per_replica"
        facts = {"field": field, "value": said(value), "own": said(getattr(spec, field)), "where": spec.kind}
        variants = divided(case, variant) if split else (variant,)
        yield Try(f"with {field} {said(value)} instead of {facts['own']}", variants, facts, split)


def _fitted_epsilon(case: Case, layer: Layer) -> Match | None:
    """Of a norm: the epsilon, whatever it is, from the size of what comes out."""
    own = getattr(layer.spec, "epsilon", None)
    if not isinstance(own, float) or "y" not in layer.made:
        return None
    tries = []
    for value in _epsilons(layer, np.asarray((base(case) or {})["y"]), own):
        changed = layer.spec.model_copy(update={"epsilon": value})
        facts = {"field": "epsilon", "value": said(value), "own": said(own), "where": layer.spec.kind}
        tries.append(Try(f"with epsilon {said(value)}", (plain(case, layer, layer=changed),), facts))
    return tried(case, tries)


def _epsilons(layer: Layer, due: Array, own: float) -> Iterator[float]:
    """From normalised values that are r times as large: (v + e') = (v + e) / r^2, by the worst sample."""
    made = np.asarray(layer.made["y"], np.float64)
    tensors = layer.own()
    beta, gamma = tensors.get("beta", np.zeros(1)), tensors.get("gamma", np.ones(1))
    if made.shape != due.shape or layer.spec.kind not in ("layer_norm", "rms_norm") or layer.spec.axes != 1:
        return
    x = np.asarray(layer.x, np.float64)
    variance = (x**2).mean(-1) if layer.spec.kind == "rms_norm" else x.var(-1)
    a, b = (due - beta) / gamma, (made - beta) / gamma
    ratio = (a * b).sum(-1) / np.maximum((a * a).sum(-1), limits.NEARLY_ZERO)
    at = np.unravel_index(int(np.argmax(np.abs(ratio - 1))), ratio.shape)
    value = float((variance[at] + own) / ratio[at] ** 2 - variance[at])
    if value > 0:
        yield float(f"{value:.3g}")
        yield value


def _fitted_decay(case: Case, layer: Layer) -> Match | None:
    """Of moving statistics: new = d old + (1 - d) batch, whatever d is."""
    own = getattr(layer.spec, "decay", None)
    due = base(case) or {}
    names = [n for n in layer.made if n.startswith("after/buffers/") and n in due]
    if not isinstance(own, float) or not names or own == 1:
        return None
    old = [np.asarray(layer.tensors[n.removeprefix("after/")], np.float64) for n in names]
    batch = [(due[n] - own * o) / (1 - own) for n, o in zip(names, old, strict=True)]
    ratio = ratio_of(
        [o - b for o, b in zip(old, batch, strict=True)],
        [layer.made[n] - b for n, b in zip(names, batch, strict=True)],
    )
    if ratio is None or not 0 <= ratio < 1:
        return None
    tries = []
    for value in (float(f"{ratio:.6g}"), ratio):
        changed = layer.spec.model_copy(update={"decay": value})
        facts = {"field": "decay", "value": said(value), "own": said(own), "where": layer.spec.kind}
        tries.append(Try(f"with decay {said(value)}", (plain(case, layer, layer=changed),), facts))
    return tried(case, tries)


# Kernels.


def transposed(case: Case) -> Match | None:
    """A kernel whose shape allows it is used transposed."""
    layer = layer_of(case)
    return None if layer is None else tried(case, _transposes(case, layer))


def _transposes(case: Case, layer: Layer) -> Iterator[Try]:
    turned: dict[str, Array] = {}
    for name, kernel in _matrices(layer).items():
        for first, second in itertools.combinations(range(kernel.ndim), 2):
            if kernel.shape[first] == kernel.shape[second]:
                other = np.swapaxes(kernel, first, second)
                turned[name] = other
                yield _with(case, layer, f"with {name} transposed", {"names": name}, **{name: other})
        columns, rows = kernel.shape[-1], kernel.shape[-2]
        if kernel.ndim == 2 and columns > rows and columns % rows == 0:
            gates = np.split(kernel, columns // rows, axis=-1)
            other = np.concatenate([gate.T for gate in gates], axis=-1)
            turned[name] = other
            yield _with(case, layer, f"with each gate of {name} transposed", {"names": name}, **{name: other})
    if len(turned) > 1:
        yield _with(case, layer, "with all kernels transposed", {"names": ", ".join(turned)}, **turned)


def flipped(case: Case) -> Match | None:
    """A convolution's kernel is used backwards along its window."""
    layer = layer_of(case)
    if layer is None or not isinstance(layer.spec, Windowed):
        return None
    rank, tries = layer.spec.rank, []
    for name, kernel in _matrices(layer).items():
        for count in range(rank, 0, -1):
            for axes in itertools.combinations(range(rank), count):
                other = np.flip(kernel, axes)
                tries.append(_with(case, layer, f"with {name} flipped", {"names": name}, **{name: other}))
    return tried(case, tries)


def gates_swapped(case: Case) -> Match | None:
    """A recurrent layer's gates are in another order."""
    layer = layer_of(case)
    gates = getattr(layer.spec, "gates", 1) if layer is not None else 1
    if layer is None or gates < 3:
        return None
    names = "ifco" if gates == 4 else "zrh"
    tries = []
    for order in list(itertools.permutations(range(gates)))[1:]:
        own = {}
        for name, value in layer.own().items():
            parts = np.split(value, gates, axis=-1)
            own[name] = np.concatenate([parts[place] for place in order], axis=-1)
        words = "".join(names[place] for place in order)
        tries.append(
            _with(case, layer, f"with gates {words} for {names}", {"order": words, "own": names}, **own)
        )
    return tried(case, tries)


def bias_doubled(case: Case) -> Match | None:
    """A bias counts twice."""
    return _biases(case, 2.0, "doubled")


def bias_missing(case: Case) -> Match | None:
    """A bias counts for nothing."""
    return _biases(case, 0.0, "left out")


def _biases(case: Case, factor: float, words: str) -> Match | None:
    layer = layer_of(case)
    if layer is None:
        return None
    own = {n: v for n, v in layer.own().items() if n.endswith(("bias", "beta")) and np.any(v)}
    tries = [_with(case, layer, f"with {n} {words}", {"names": n}, **{n: factor * v}) for n, v in own.items()]
    if len(own) > 1:
        scaled = {n: factor * v for n, v in own.items()}
        tries.append(_with(case, layer, f"with all biases {words}", {"names": ", ".join(own)}, **scaled))
    return tried(case, tries) or _of_biases(case, factor, words)


def _of_biases(case: Case, factor: float, words: str) -> Match | None:
    """A bias that is still zero shows in its gradient only."""
    wrong = {n: pair for n, pair in wrong_gradients(case).items() if n.endswith(("bias", "beta"))}
    if not wrong or any(_relative(factor * due, made) > limits.FITS for due, made in wrong.values()):
        return None
    names = ", ".join(n.rpartition("/")[2] for n in wrong)
    return backward_match(case, 0.0, f"the gradient of {names} is that of a bias {words}", names=names)


def _relative(due: Array, made: Array) -> float:
    return 0.0 if not np.any(made) and not np.any(due) else tensor_deviation(due, made)


# Inputs and outputs.


def padding_side(case: Case) -> Match | None:
    """The odd cell of a padding is on the other side."""
    layer = layer_of(case)
    if layer is None or not isinstance(layer.spec, Windowed):
        return None
    pads = layer.spec.pads(layer.node.input_shape)
    uneven = [axis for axis, (before, after) in enumerate(pads) if before != after]
    tries = []
    for count in range(len(uneven), 0, -1):
        for axes in itertools.combinations(uneven, count):
            rows = tuple(axis + 1 for axis in axes)
            own = {name: np.flip(kernel, axes) for name, kernel in _matrices(layer).items()}
            variant = plain(case, layer, x=np.flip(layer.x, rows), tensors=layer.changed(**own), dy=None)
            tries.append(Try("padded on the other side", (variant,), flipped=rows))
    return tried(case, tries)


def axes_swapped(case: Case) -> Match | None:
    """Axes of the output, or of the input, are swapped."""
    layer, due = layer_of(case), base(case)
    if layer is None or due is None or "y" not in layer.made:
        return None
    outputs, tries = [], []
    y, shape = due["y"], layer.made["y"].shape
    for first, second in itertools.combinations(range(1, y.ndim), 2):
        words = f"with axes {first} and {second} of the output swapped"
        outputs.append((words, np.swapaxes(y, first, second)))
        if y.size == layer.made["y"].size:
            words = f"with axes {first} and {second} swapped and the shape kept"
            outputs.append((words, np.swapaxes(y, first, second).reshape(shape)))
    for axis in range(1, y.ndim):
        # Tokens, or features, that are a grid's cells row by row.
        for rows in range(2, y.shape[axis]):
            if y.shape[axis] % rows == 0:
                order = np.arange(y.shape[axis]).reshape(rows, -1).T.ravel()
                outputs.append((f"with axis {axis} column by column", np.take(y, order, axis)))
    for first, second in itertools.combinations(range(1, layer.x.ndim), 2):
        other = np.swapaxes(layer.x, first, second)
        if other.shape == layer.x.shape:
            words = f"with axes {first} and {second} of the input swapped"
        else:
            words, other = (
                f"with axes {first} and {second} of the input swapped",
                other.reshape(layer.x.shape),
            )
        tries.append(Try(words, (plain(case, layer, x=np.ascontiguousarray(other), dy=None),)))
    return computed(case, outputs) or tried(case, tries)


def flattened_otherwise(case: Case) -> Match | None:
    """An image is flattened in another order of its axes."""
    layer = layer_of(case)
    if layer is None or layer.spec.kind not in ("flatten", "reshape", "patchify"):
        return None
    axes, shape = range(1, layer.x.ndim), layer.made.get("y", layer.x).shape
    orders = [order for order in itertools.permutations(axes) if order != tuple(axes)]
    found = []
    for order in orders:
        words = "in the order " + "".join(
            "HWC"[axis - 1] if layer.x.ndim == 4 else str(axis) for axis in order
        )
        found.append((words, layer.x.transpose(0, *order).reshape(shape)))
    return computed(case, found)


def features_permuted(case: Case) -> Match | None:
    """The output is the due one with its features, or tokens, in another order."""
    layer, due = layer_of(case), base(case)
    if layer is None or due is None or "y" not in layer.made or due["y"].shape != layer.made["y"].shape:
        return None
    found = []
    for axis in range(layer.made["y"].ndim - 1, 0, -1):
        order = _order_along(due["y"], layer.made["y"], axis)
        if order is not None:
            found.append((f"with axis {axis} in another order", np.take(due["y"], order, axis)))
    for axis in range(1, due["y"].ndim):
        for shift in (1, -1):
            found.append((f"with axis {axis} shifted by {shift}", np.roll(due["y"], shift, axis)))
    return computed(case, found)


def _order_along(due: Array, made: Array, axis: int) -> list[int] | None:
    """Which slice of what is due each slice of what was made is; None where it is none, or no permutation."""
    a = np.moveaxis(due, axis, 0).reshape(due.shape[axis], -1)
    b = np.moveaxis(made, axis, 0).reshape(made.shape[axis], -1)
    scale = np.abs(a).max(initial=0.0)
    order = [int(np.argmin(np.abs(a - row).max(1))) for row in b]
    near = all(
        np.abs(a[place] - row).max() <= limits.FITS * scale for place, row in zip(order, b, strict=True)
    )
    return order if near and len(set(order)) == len(order) else None


def output_scaled(case: Case) -> Match | None:
    """The output is the due one times a number."""
    layer, due = layer_of(case), base(case)
    if layer is None or due is None or "y" not in layer.made:
        return None
    factor = ratio_of([due["y"]], [layer.made["y"]])
    if not factor or abs(factor - 1) <= limits.FLOAT32_FACTOR:
        return None
    return computed(case, [(f"times {factor:.9g}", factor * due["y"])], factor=f"{factor:.9g}")


def skip_missing(case: Case) -> Match | None:
    """A residual gives its branch without its input."""
    layer, due = layer_of(case), base(case)
    if layer is None or due is None or layer.spec.kind != "residual":
        return None
    return computed(case, [("without its input added", due["y"] - layer.x), ("without its branch", layer.x)])
