"""Signatures of a layer that does something else: the layer by itself, changed, on the same numbers.

Everything is tried in a clean process, on the whole batch by ascending ids unless replicas matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from parity.common.diagnosis import limits
from parity.common.diagnosis.explain.counterfactuals import Side, Variant
from parity.common.diagnosis.explain.signatures.base import Case, Match, Tensors, lies_on, once, ratio_of
from parity.common.diagnosis.isolate.comparison import consumers
from parity.common.parity.deviation import tensor_deviation
from parity.common.record.trace import Array
from parity.common.spec import Node
from parity.common.spec.model import walk


@dataclass(frozen=True, eq=False)
class Layer:
    """The layer that a finding is about, and what it was given, of the global batch by ascending ids.

    made: of it what the suspect made: `y`, `dx`, `gradient/NAME`, `after/buffers/...`.
    """

    node: Node
    x: Array
    dy: Array | None
    tensors: dict[str, Array]
    made: dict[str, Array]
    output_is_wrong: bool

    @property
    def spec(self) -> Any:
        return self.node.spec

    def own(self) -> dict[str, Array]:
        """Its own tensors, by their names inside it."""
        head = f"{self.node.path}/"
        found = {}
        for name, value in self.tensors.items():
            rest = name.partition("/")[2]
            if rest.startswith(head) and "/" not in rest.removeprefix(head):
                found[rest.removeprefix(head)] = value
        return found

    def changed(self, **own: Array) -> dict[str, Array]:
        """Its tensors with some of its own replaced."""
        found = dict(self.tensors)
        for name in found:
            last = name.rpartition("/")[2]
            if last in own and name.partition("/")[2] == f"{self.node.path}/{last}":
                found[name] = own[last]
        return found


@dataclass(frozen=True)
class Try:
    """A changed layer. variants: one on the whole batch, or one on each of the suspect's replicas.

    after: what is done with its output. facts: for the cause's words.
    """

    words: str
    variants: tuple[Variant, ...]
    facts: dict[str, str] = field(default_factory=dict)
    split: bool = False
    flipped: tuple[int, ...] = ()


@once
def layer_of(case: Case) -> Layer | None:
    """The finding's layer; None where its input was not kept."""
    return layer_at(case, _path_of(case))


def layer_at(case: Case, path: str) -> Layer | None:
    """The layer of a path, and what it was given."""
    evidence, given = case.evidence, case.given
    nodes = {node.path: node for node in walk(evidence.tree)}
    node, source = nodes.get(path), evidence.layers.get(path, "")
    if node is None or source not in given.names:
        return None
    x = given.rows(source)
    dy = given.rows(f"backward/{path}") if f"backward/{path}" in given.names else None
    begun = given.replicas[0]
    names = [n for n in begun if n.startswith(("before/parameters/", "before/buffers/"))]
    tensors = {n.removeprefix("before/"): begun[n] for n in names if _below(n, path)}
    if not tensors and case.step is None:
        tensors = _state_tensors(case, path)
    wrong = f"forward/{path}" in {seen.name for seen in evidence.finding.tensors}
    return Layer(node, x, dy, tensors, _made(case, path, source), wrong)


def _below(name: str, path: str) -> bool:
    head, _, rest = name.partition("/")
    if head in ("before", "after"):
        rest = rest.partition("/")[2]
    return rest.startswith(f"{path}/")


def _state_tensors(case: Case, path: str) -> dict[str, Array]:
    """Of the evaluation the weights that it is made with, where the last step's state says them."""
    state, ema = case.evidence.state or {}, case.spec.optimizer.ema
    found = {n: v for n, v in state.items() if n.startswith(("parameters/", "buffers/")) and _below(n, path)}
    if ema is not None and ema.evaluate:
        averages = {n: f"slots/average/{n.removeprefix('parameters/')}" for n in found}
        found = {n: state.get(averages[n], v) for n, v in found.items()}
    return found


def _path_of(case: Case) -> str:
    """The layer that makes the finding's first tensor."""
    head, _, rest = case.name.partition("/")
    if head == "backward":
        after = consumers(case.evidence.layers, rest)
        wrong = [seen.name for seen in case.evidence.finding.tensors]
        return next(
            (p for p in after if f"forward/{p}" in wrong or any(_below(n, p) for n in wrong)),
            (after or [""])[0],
        )
    if head == "forward":
        return rest
    path = rest.removeprefix("buffers/").rpartition("/")[0]
    while path and path not in case.evidence.layers:
        path = path.rpartition("/")[0]
    return path


def _made(case: Case, path: str, source: str) -> dict[str, Array]:
    """What the suspect made in this layer, by the names of a trial's results."""
    names, found = set(case.made.names), {}
    if f"forward/{path}" in names:
        found["y"] = case.rows(f"forward/{path}")
    back = f"backward/{source.partition('/')[2]}"
    if (
        source.startswith("forward/")
        and back in names
        and consumers(case.evidence.layers, source[8:]) == [path]
    ):
        found["dx"] = case.rows(back)
    for name in names:
        head, _, rest = name.partition("/")
        if head == "local_gradient" and rest.startswith(f"{path}/") and rest not in case.zero_gradients:
            found[f"gradient/{rest}"] = case.made.summed(name)
        if name.startswith(f"after/buffers/{path}/") and rest.partition("/")[2] not in case.zero_gradients:
            found[name] = case.made.replicas[0][name]
    return found


def plain(case: Case, layer: Layer, /, **more: Any) -> Variant:
    """The layer as the spec has it; `more` changes the trial."""
    made = {
        "layer": layer.spec,
        "path": layer.node.path,
        "input_shape": layer.node.input_shape,
        "x": layer.x,
        "tensors": layer.tensors,
        "dy": layer.dy,
        "ids": np.sort(np.concatenate(case.ids)),
        "token_mask": case.token_mask,
        "training": case.step is not None,
        "step": case.step or 0,
        "seed": case.spec.seed,
        "dtype": case.spec.master_dtype,
    }
    return Variant(**{**made, **more})


def divided(case: Case, variant: Variant, ids: Sequence[Array] | None = None) -> tuple[Variant, ...]:
    """The same trial on each of the suspect's replicas, maybe as if its samples had other ids."""
    parts: dict[str, Any] = {}
    for name in ("x", "dy", "ids", "token_mask"):
        rows = getattr(variant, name)
        if rows is not None:
            parts[name] = case.shares(rows)
    if ids is not None:
        parts["ids"] = list(ids)
    return tuple(
        replace(variant, **{name: rows[replica] for name, rows in parts.items()})
        for replica in range(len(case.ids))
        if len(case.ids[replica])
    )


def results(case: Case, tries: Sequence[Try], side: Side | None = None) -> list[dict[str, Array] | None]:
    """What each try gives; None for one that cannot be computed. side: whose framework tries, if not `_side`'s."""
    variants = [variant for one in tries for variant in one.variants]
    raw = iter(case.evidence.experiments.trial(variants, side or _side(case)))
    found: list[dict[str, Array] | None] = []
    for one in tries:
        parts = [next(raw) for _ in one.variants]
        whole = [part for part in parts if part is not None]
        found.append(_joined(case, one, whole) if len(whole) == len(parts) else None)
    return found


def _side(case: Case) -> Side:
    """Whose framework tries: not the suspect's, where the fault may be in the layer's own source."""
    return "reference" if case.suspect == "candidate" else "candidate"


def _joined(case: Case, one: Try, parts: Sequence[Tensors]) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for name in parts[0]:
        each = [part[name] for part in parts]
        if one.split and name in ("y", "dx"):
            joined = np.concatenate(each)
            found[name] = joined[case.order]
        elif one.split and name.startswith("gradient/"):
            found[name] = np.sum(each, axis=0)
        else:
            found[name] = each[0]
    if one.flipped and "y" in found:
        found = {"y": np.flip(found["y"], one.flipped)}
    return found


@once
def base(case: Case) -> dict[str, Array] | None:
    """What the layer makes as the spec has it."""
    layer = layer_of(case)
    if layer is None:
        return None
    variant = plain(case, layer)
    split = getattr(layer.spec, "statistics", "") == "per_replica"
    variants = divided(case, variant) if split else (variant,)
    return results(case, [Try("as it is", variants, split=split)])[0]


def left(layer: Layer, result: Tensors | None) -> float:
    """How far what the suspect made is from a result: its output, and where that is in order all else.

    What a layer with a wrong output makes of gradients follows from it, one way or another.
    """
    if result is None:
        return float("inf")
    common = [name for name in layer.made if name in result]
    if not common:
        return float("inf")
    if layer.output_is_wrong:
        common = ["y"]
    return max(_far(result[name], layer.made[name]) for name in common)


def _far(due: Array, made: Array) -> float:
    if due.shape == made.shape and not np.abs(made).max(initial=0.0) > limits.NEARLY_ZERO:
        return 0.0 if not np.any(due) else 1.0
    return tensor_deviation(due, made)


def is_wrong(case: Case) -> float | None:
    """How far the suspect is from the layer as the spec has it; None where it is not."""
    layer = layer_of(case)
    if layer is None or base(case) is None:
        return None
    before = left(layer, base(case))
    return before if before > max(limits.FITS, case.allowed) else None


def tried(case: Case, tries: Iterable[Try]) -> Match | None:
    """The first try that gives what the suspect made, where the layer as it is does not."""
    before, layer = is_wrong(case), layer_of(case)
    if before is None or layer is None:
        return None
    tries = list(tries)
    for one, result in zip(tries, results(case, tries), strict=True):
        after = left(layer, result)
        if after <= max(limits.FITS, case.allowed) and after <= limits.UNEXPLAINED * before:
            if _coincides(case, layer, tries, one):
                continue
            facts = {"layer": layer.node.path, "kind": layer.spec.kind, "words": one.words, **one.facts}
            by = f"{layer.node.path} by itself, {one.words}, gives these numbers to {after:.0e}"
            return Match(facts, before, after, by)
    return None


def _coincides(case: Case, layer: Layer, tries: Sequence[Try], found: Try) -> bool:
    """Whether a changed field gives these numbers only because it makes no difference to them.

    relu6 is relu where nothing passes 6. So it is where the suspect's own framework gives the same with the change
    and without, though other values of the field do change what it gives: then the layer that tries is wrong.
    """
    field, evidence = found.facts.get("field"), case.evidence
    if field is None or evidence.candidate.framework == evidence.reference.framework:
        return False
    alike = [one for one in tries if one.facts.get("field") == field]
    made = results(case, [Try("as it is", (plain(case, layer),)), *alike], case.suspect)
    due, moved = made[0], []
    if due is None:
        return False
    for one, result in zip(alike, made[1:], strict=True):
        moves = result is not None and _far(due["y"], result["y"]) > limits.FITS
        if one is found and moves:
            return False
        moved.append(moves)
    return any(moved)


def computed(case: Case, found: Iterable[tuple[str, Array]], **facts: str) -> Match | None:
    """The first of some outputs, computed here, that the suspect made; in words what each is."""
    before, layer, due = is_wrong(case), layer_of(case), base(case)
    if before is None or layer is None or due is None or "y" not in layer.made:
        return None
    if tensor_deviation(due["y"], layer.made["y"]) <= max(limits.FITS, case.allowed):
        return None  # the output is right, and something else is not
    for words, y in found:
        after = tensor_deviation(y, layer.made["y"])
        if after <= max(limits.FITS, case.allowed) and after <= limits.UNEXPLAINED * before:
            more = {"layer": layer.node.path, "kind": layer.spec.kind, "words": words, **facts}
            return Match(
                more, before, after, f"{layer.node.path}, {words}, gives these numbers to {after:.0e}"
            )
    return None


def in_float32(case: Case) -> Match | None:
    """The layer computes something in float32.

    To the bit where all it makes lies on its grid; by one factor, that is off by as much; else by size.
    """
    before, layer = is_wrong(case), layer_of(case)
    if (
        before is None
        or layer is None
        or case.spec.master_dtype != "float64"
        or before > limits.FLOAT32_LARGEST
    ):
        return None
    tensors = base(case) or {}
    what = next((n for n in layer.made if _far(tensors[n], layer.made[n]) > limits.FITS), "y")
    facts = {
        "layer": layer.node.path,
        "kind": layer.spec.kind,
        "what": f"layer {layer.node.path} ({layer.spec.kind})",
    }
    due, made = (np.asarray(of[what], np.float64) for of in (tensors, layer.made))
    if lies_on(made, 24) and not lies_on(due, 24):
        return Match(facts, before, 0.0, f"{what} of {layer.node.path} lies on the grid of float32")
    factor = ratio_of([due], [made]) or 0.0
    after = tensor_deviation(factor * due, made)
    if abs(factor - 1) <= limits.FLOAT32_FACTOR and after <= limits.UNEXPLAINED * before:
        by = f"{what} of {layer.node.path} is the due one times a factor that is off by {factor - 1:.1e}, as float32 rounds"
        return Match(facts, before, after, by)
    narrow = results(case, [Try("in float32", (plain(case, layer, dtype="float32"),))])[0]
    after = left(layer, narrow)
    if after <= limits.UNEXPLAINED * before:
        return Match(facts, before, after, f"{layer.node.path} by itself in float32 gives these numbers")
    by = f"the deviation, {before:.0e}, is that of a float32 number in a float64 path; nothing larger differs"
    return Match(facts, before, before, by)
