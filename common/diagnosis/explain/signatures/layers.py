"""Signatures of a layer that does something else: the layer by itself, changed, on the same numbers.

Everything is tried in a clean process, on the whole batch by ascending ids unless replicas matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from parity.common.diagnosis import limits
from parity.common.diagnosis.explain.case import Case, once
from parity.common.diagnosis.explain.counterfactuals import Side, Variant
from parity.common.diagnosis.explain.signatures.base import (
    LOW_TYPES,
    Match,
    Tensors,
    is_claimed,
    lies_on,
    named_ratio,
    ratio_of,
    signature_of,
)
from parity.common.diagnosis.isolate.comparison import consumers
from parity.common.parity.deviation import tensor_deviation
from parity.common.record.trace import Array, tensor_of
from parity.common.spec import Node
from parity.common.spec.model import walk

# Fields of layers that drop something in training, and in no evaluation.
DROPPING = ("rate", "dropout", "drop_rate", "input_dropout", "recurrent_dropout")


@dataclass(frozen=True, eq=False)
class Layer:
    """The layer that a finding is about, and what it was given, of the global batch by ascending ids.

    made: of it what the suspect made: `y`, `dx`, `gradient/NAME`, `after/buffers/...`. copies: of the buffers what the
    other replicas made, where all should have the same.
    """

    node: Node
    x: Array
    dy: Array | None
    tensors: dict[str, Array]
    made: dict[str, Array]
    output_is_wrong: bool
    copies: dict[str, list[Array]] = field(default_factory=dict)

    @property
    def spec(self) -> Any:
        return self.node.spec

    def _inside(self, name: str) -> str:
        """A tensor's name inside the layer."""
        return name.partition("/")[2].removeprefix(f"{self.node.path}/")

    def own(self) -> dict[str, Array]:
        """Its own tensors, in their shapes, by their names inside it."""
        named = {self._inside(name): value for name, value in self.tensors.items()}
        return {name: value for name, value in named.items() if "/" not in name}

    def changed(self, own: Tensors) -> dict[str, Array]:
        """Its tensors with some of its own, any shape, replaced."""
        return {name: own.get(self._inside(name), value) for name, value in self.tensors.items()}

    def facts(self, words: str) -> dict[str, str]:
        """What a cause's text says of it."""
        return {"layer": self.node.path, "kind": self.spec.kind, "words": words}


@dataclass(frozen=True, eq=False)
class Try:
    """A changed layer. variants: one on the whole batch, or one on each of the suspect's replicas.

    facts: for the cause's words. split: whether there is one for each replica. flipped: axes along which its output
    is turned round. y: its output, where that is computed here. cause, value: as in `Match`.
    """

    words: str
    variants: tuple[Variant, ...] = ()
    facts: dict[str, str] = field(default_factory=dict)
    split: bool = False
    flipped: tuple[int, ...] = ()
    y: Array | None = None
    cause: str = ""
    value: float | None = None


@signature_of
def layer_signature(case: Case, others: Callable[[Case, Layer], Iterable[Try]]) -> Iterator[Match]:
    """What a layer may be instead that gives what the suspect made, where the layer as it is does not.

    Outputs that are computed here come first: a trial takes a second. They explain nothing where the output is right.
    """
    layer, before = layer_of(case), is_wrong(case)
    if layer is None or not base(case) or (before is None and case.claim is None):
        return
    tries = list(others(case, layer))
    claimed = [one for one in tries if is_claimed(case, {**layer.facts(one.words), **one.facts}, one.cause)]
    here = [one for one in claimed if one.y is not None]
    if not layer.output_is_wrong and (
        "y" not in layer.made or _far(base(case)["y"], layer.made["y"]) <= most_allowed(case)
    ):
        here = []
    for batch in (here, [one for one in claimed if one.y is None]):
        for one, result in zip(batch, results(case, batch), strict=True):
            after = _left(layer, result)
            doubt = ""
            if case.claim is None:
                if after > min(most_allowed(case), limits.UNEXPLAINED * (before or 0.0)):
                    continue
                doubt = _doubt(case, layer, tries, one)
            if doubt == "coincides":
                continue
            what = layer.node.path + (" by itself" if one.y is None else "")
            by = f"{what}, {one.words}, gives these numbers to {after:.0e}"
            facts = {**layer.facts(one.words), **one.facts}
            either = doubt == "either"
            yield Match(facts, before or 0.0, after, by, cause=one.cause, value=one.value, either=either)


@once
def layer_of(case: Case) -> Layer | None:
    """The finding's layer; None where its input was not kept."""
    return layer_at(case, _path_of(case))


def layer_at(case: Case, path: str) -> Layer | None:
    """The layer of a path, and what it was given."""
    nodes = {node.path: node for node in walk(case.tree)}
    node, source, given = nodes.get(path), case.layers.get(path, ""), case.given
    if node is None or source not in given:
        return None
    dy = case.ref.rows(f"backward/{path}") if f"backward/{path}" in given else None
    heads = (f"before/parameters/{path}/", f"before/buffers/{path}/")
    tensors = {n.removeprefix("before/"): given[n] for n in given if n.startswith(heads)}
    if not tensors and case.step is None:
        tensors = _evaluated_tensors(case, path)
    wrong = f"forward/{path}" in {seen.name for seen in case.finding.tensors}
    made, copies = _made(case, path, source), {}
    if getattr(node.spec, "statistics", "") != "per_replica":
        buffers = [name for name in made if name.startswith("after/buffers/")]
        copies = {n: [s[n] for s in case.made.replicas[1:] if n in s] for n in buffers}
    return Layer(node, case.ref.rows(source), dy, tensors, made, wrong, copies)


def _evaluated_tensors(case: Case, path: str) -> dict[str, Array]:
    """Of the evaluation the weights that it is made with, where the last step's state says them."""
    state, ema = case.state or {}, case.spec.optimizer.ema
    heads = (f"parameters/{path}/", f"buffers/{path}/")
    found = {n: v for n, v in state.items() if n.startswith(heads)}
    if ema is not None and ema.evaluate:
        found = averaged(case, found)
    return found


def averaged(case: Case, tensors: Tensors) -> dict[str, Array]:
    """The averages that the state has of some tensors, in their shapes; for others themselves."""
    state = case.state or {}
    return {n: state.get(f"slots/average/{n.removeprefix('parameters/')}", v) for n, v in tensors.items()}


def _path_of(case: Case) -> str:
    """The layer that makes the finding's first tensor."""
    head, _, rest = case.finding.name.partition("/")
    if head == "backward":
        after = consumers(case.layers, rest)
        wrong = [seen.name for seen in case.finding.tensors]
        return next(
            (p for p in after if any(n == f"forward/{p}" or tensor_of(n).startswith(f"{p}/") for n in wrong)),
            (after or [""])[0],
        )
    if head == "forward":
        return rest
    path = rest.removeprefix("buffers/").rpartition("/")[0]
    while path and path not in case.layers:
        path = path.rpartition("/")[0]
    return path


def _made(case: Case, path: str, source: str) -> dict[str, Array]:
    """What the suspect made in this layer, by the names of a trial's results."""
    made, found = case.made.replicas[0], {}
    if f"forward/{path}" in made:
        found["y"] = case.rows(f"forward/{path}")
    head, _, before = source.partition("/")
    if head == "forward" and f"backward/{before}" in made and consumers(case.layers, before) == [path]:
        found["dx"] = case.rows(f"backward/{before}")
    for name in made:
        if case.is_zero_gradient(name):
            continue
        if name.startswith(f"local_gradient/{path}/"):
            found[f"gradient/{tensor_of(name)}"] = case.made.summed(name)
        elif name.startswith(f"after/buffers/{path}/"):
            found[name] = made[name]
    return found


def plain(case: Case, layer: Layer, /, **more: Any) -> Variant:
    """The layer as the spec has it; `more` changes the trial."""
    variant = Variant(
        layer.spec,
        layer.node.path,
        layer.node.input_shape,
        layer.x,
        layer.tensors,
        layer.dy,
        np.sort(np.concatenate(case.ids)),
        case.token_mask,
        training=case.step is not None,
        step=case.step or 0,
        seed=case.spec.seed,
        dtype=case.spec.master_dtype,
    )
    return replace(variant, **more)


def divided(case: Case, variant: Variant, ids: Sequence[Array] | None = None) -> tuple[Variant, ...]:
    """The same trial on each of the suspect's replicas, maybe as if its samples had other ids, int64 (samples,)."""
    parts: dict[str, Any] = {}
    for name in ("x", "dy", "ids", "token_mask"):
        rows = getattr(variant, name)
        if rows is not None:
            parts[name] = case.shares(rows)
    if ids is not None:
        parts["ids"] = ids
    return tuple(
        replace(variant, **{name: rows[replica] for name, rows in parts.items()})
        for replica in range(len(case.ids))
        if len(case.ids[replica])
    )


def results(case: Case, tries: Sequence[Try], side: Side | None = None) -> list[dict[str, Array]]:
    """What each try gives, in the shapes of a trial; nothing for one that cannot be computed.

    side: whose framework tries; None: not the suspect's, where the fault may be in the layer's own source.
    """
    side = side or ("reference" if case.suspect == "candidate" else "candidate")
    raw = iter(case.experiments.trial([variant for one in tries for variant in one.variants], side))
    found: list[dict[str, Array]] = []
    for one in tries:
        parts = [next(raw) for _ in one.variants]
        whole = [part for part in parts if part is not None]
        if one.y is not None:
            found.append({"y": one.y})
        else:
            found.append(_joined(case, one, whole) if len(whole) == len(parts) else {})
    return found


def _joined(case: Case, one: Try, parts: Sequence[Tensors]) -> dict[str, Array]:
    if one.flipped:
        return {"y": np.flip(parts[0]["y"], one.flipped)}
    if not one.split:
        return dict(parts[0])
    found: dict[str, Array] = {}
    for name in parts[0]:
        each = [part[name] for part in parts]
        if name in ("y", "dx"):
            found[name] = np.concatenate(each)[case.order]
        else:
            found[name] = np.sum(each, axis=0) if name.startswith("gradient/") else each[0]
    return found


@once
def base(case: Case) -> dict[str, Array]:
    """What the layer makes as the spec has it, in the shapes of a trial; nothing where that cannot be known."""
    layer = layer_of(case)
    return {} if layer is None else _as_it_is(case, layer)


def _as_it_is(case: Case, layer: Layer, side: Side | None = None) -> dict[str, Array]:
    variant = plain(case, layer)
    split = getattr(layer.spec, "statistics", "") == "per_replica"
    variants = divided(case, variant) if split else (variant,)
    return results(case, [Try("as it is", variants, split=split)], side)[0]


def _left(layer: Layer, result: Tensors) -> float:
    """How far what the suspect made is from a result: its output, and where that is in order all else.

    What a layer with a wrong output makes of gradients follows from it, one way or another.
    """
    common = [name for name in layer.made if name in result]
    if common and layer.output_is_wrong:
        common = ["y"]
    far = [_far(result[n], made) for n in common for made in (layer.made[n], *layer.copies.get(n, ()))]
    return max(far, default=float("inf"))


def _far(due: Array, made: Array) -> float:
    if due.shape == made.shape and not np.abs(made).max(initial=0.0) > limits.NEARLY_ZERO:
        return 0.0 if not np.any(due) else 1.0
    return tensor_deviation(due, made)


def most_allowed(case: Case) -> float:
    """The largest deviation from what a formula, or a layer, gives."""
    return max(limits.FITS, case.allowed)


@once
def is_wrong(case: Case) -> float | None:
    """How far the suspect is from the layer as the spec has it; None where it is not."""
    layer = layer_of(case)
    if layer is None or not base(case):
        return None
    before = _left(layer, base(case))
    return before if before > most_allowed(case) else None


@once
def is_as_its_framework(case: Case) -> bool:
    """Whether the suspect does what its own framework's layer does by itself, in a clean process."""
    layer = layer_of(case)
    return layer is not None and _left(layer, _as_it_is(case, layer, case.suspect)) <= most_allowed(case)


def _doubt(case: Case, layer: Layer, tries: Sequence[Try], found: Try) -> str:
    """What the suspect's own framework says against a changed field that gives these numbers; "": nothing.

    "coincides": it gives the same with the change and without, though other values of the field do change what it
    gives, as relu6 is relu where nothing passes 6; then the layer that tries is wrong. "either": its layer does what
    the run does, and goes by the field, so that it may as well be the other framework's that does not.
    """
    field = found.facts.get("field")
    if field is None or case.candidate.framework == case.reference.framework:
        return ""
    alike = [one for one in tries if one.facts.get("field") == field]
    due, *made = results(case, [Try("as it is", (plain(case, layer),)), *alike], case.suspect)
    own = made[alike.index(found)]
    if "y" not in due or "y" not in own:
        return ""
    if _far(due["y"], own["y"]) > limits.FITS:
        return "either" if _left(layer, due) <= most_allowed(case) else ""
    moved = any("y" in result and _far(due["y"], result["y"]) > limits.FITS for result in made)
    return "coincides" if moved else ""


def in_float32(case: Case) -> Match | None:
    """The layer computes something in float32.

    To the bit where all it makes lies on its grid; by one factor, that is off by as much; else by size.
    """
    before, layer = is_wrong(case), layer_of(case)
    if before is None or layer is None or before > limits.FLOAT32_LARGEST:
        return None
    if case.spec.master_dtype != "float64":
        return None
    after, by = _as_float32(case, layer, before)
    facts = {"layer": layer.node.path, "kind": layer.spec.kind}
    return Match(facts, before, after, by)


def _as_float32(case: Case, layer: Layer, before: float) -> tuple[float, str]:
    """How far what was made is from what float32 would make of it, and what says so."""
    tensors, path = base(case), layer.node.path
    what = next((n for n in layer.made if _far(tensors[n], layer.made[n]) > limits.FITS), "y")
    due, made = (np.asarray(of[what], np.float64) for of in (tensors, layer.made))
    if lies_on(made, 24) and not lies_on(due, 24):
        return 0.0, f"{what} of {path} lies on the grid of float32"
    factor = ratio_of([due], [made]) or 0.0
    after = tensor_deviation(factor * due, made)
    if abs(factor - 1) <= limits.FLOAT32_FACTOR and after <= limits.UNEXPLAINED * before:
        times = f"times a factor that is off by {factor - 1:.1e}, as float32 rounds"
        return after, f"{what} of {path} is the due one {times}"
    after = _left(layer, results(case, [Try("in float32", (plain(case, layer, dtype="float32"),))])[0])
    if after <= limits.UNEXPLAINED * before:
        return after, f"{path} by itself in float32 gives these numbers"
    return before, (
        f"the deviation, {before:.0e}, is that of a float32 number in a float64 path; nothing larger differs"
    )


# A layer whose output is in order and whose backward pass is not.


@once
def wrong_gradients(case: Case) -> dict[str, tuple[Array, Array]]:
    """(due, made), each in the tensor's shape, of what flows back through the layer, where its output is in order."""
    layer, due = layer_of(case), base(case)
    if layer is None or not due:
        return {}
    far = {n: tensor_deviation(due[n], layer.made[n]) for n in layer.made if n in due}
    if far.get("y", 0.0) > limits.FITS:
        return {}
    wrong = [n for n, value in far.items() if value > most_allowed(case) and not n.startswith("after/")]
    return {n: (np.asarray(due[n], np.float64), np.asarray(layer.made[n], np.float64)) for n in wrong}


def backward_match(
    case: Case,
    after: float,
    tried: str,
    cause: str = "",
    words: str = "",
    value: float | None = None,
    **facts: str,
) -> Match:
    """A match of what flows back through the layer."""
    layer = layer_of(case)
    assert layer is not None
    before = max(tensor_deviation(*pair) for pair in wrong_gradients(case).values())
    return Match({**layer.facts(words), **facts}, before, after, tried, cause=cause, value=value)


def gradients_rounded(case: Case) -> Match | None:
    """Gradients of weights lie on the grid of a narrower type, on every replica."""
    wrong = wrong_gradients(case)
    names = [n.partition("/")[2] for n in wrong if n.startswith("gradient/")]
    local = [f"local_gradient/{n}" for n in names]
    each = [state[n] for n in local for state in case.made.replicas if n in state]
    each = [value for value in [*each, *(wrong[n][1] for n in wrong if n == "dx")] if np.any(value)]
    for name, bits in LOW_TYPES.items():
        small = all(tensor_deviation(*pair) < 2.0 ** (4 - bits) for pair in wrong.values())
        if each and small and all(lies_on(value, bits) for value in each):
            what = ", ".join(names) or "what flows back"
            return backward_match(case, 0.0, f"{what} lies on the grid of {name}", type=name)
    return None


def gradients_scaled(case: Case) -> Match | None:
    """Gradients of the layer are one multiple of what is due, its output in order."""
    wrong = wrong_gradients(case)
    ratio = ratio_of([due for due, _ in wrong.values()], [made for _, made in wrong.values()])
    if not ratio:
        return None
    far = max(tensor_deviation(ratio * due, made) for due, made in wrong.values())
    if far > limits.FITS:
        return None
    factor = named_ratio(case, ratio)
    tried = f"{', '.join(wrong)} are {ratio:.9g} times what is due"
    return backward_match(case, far, tried, factor.cause, value=factor.free, factor=factor.words)


def gradients_missing(case: Case) -> Match | None:
    """Gradients of the layer are zero, its output in order."""
    wrong = wrong_gradients(case)
    if not wrong or any(np.any(made) for _, made in wrong.values()):
        return None
    return backward_match(case, 0.0, f"{', '.join(wrong)} are 0")


def gradients_transposed(case: Case) -> Match | None:
    """The gradient of a kernel is the due one, transposed."""
    for name, (due, made) in wrong_gradients(case).items():
        square = due.ndim >= 2 and due.shape[-1] == due.shape[-2]
        if square and tensor_deviation(np.swapaxes(due, -1, -2), made) <= limits.FITS:
            words = f"with {name} transposed"
            return backward_match(case, 0.0, f"{name} is the due one, transposed", words=words)
    return None
