"""From injected tensors that deviate to findings: one for each defect.

Given the reference's tensors, a defect shows in what it touches only: a layer in its output, in what flows
back through it, in its parameters' gradients and in its buffers; these are one finding. What flows back to
a layer's output was made by the layer after it, or after the last one by the loss.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from parity.common.diagnosis import limits
from parity.common.diagnosis.isolate.comparison import OF_REFERENCE, consumers, order_of
from parity.common.diagnosis.result import Finding, TensorComparison
from parity.common.record import taps
from parity.common.record.trace import tensor_of
from parity.common.spec import TrainSpec

# What a finding is about: ("layer", its path), ("loss", ""), or a stage by itself.
Key = tuple[str, str]

_BY_STAGE = {"ids": "ids", "inputs": "inputs", "before": "before", "total": "total", "gradient": "gradient"}
_BY_STAGE |= {"clipped": "clipped", "scalar": "scalar", "loss": "loss", "slots": "update", "update": "update"}


@dataclass(frozen=True)
class KeyedFinding:
    """A finding, and what it is about: findings of several steps that are about the same are one."""

    key: Key
    finding: Finding


class Grouping:
    """Groups the deviations of the steps of one spec. layers: of each layer's path the name of its input."""

    def __init__(self, spec: TrainSpec, layers: Mapping[str, str]) -> None:
        self._layers, self._order = layers, order_of(spec)
        self._paths = [layer.path for layer in taps.layers_of(spec.model.tree())]

    def of_step(self, step: int | None, injected: Sequence[TensorComparison]) -> list[KeyedFinding]:
        """The findings of one injected step, in execution order."""
        groups: dict[Key, list[TensorComparison]] = {}
        deviating = [compared for compared in injected if not compared.agrees]
        for compared in deviating:
            groups.setdefault(self._key(compared, deviating), []).append(compared)
        self._absorb_starts(groups)
        self._absorb_containers(groups)
        self._join_gradients(groups, injected)
        found = [KeyedFinding(key, self._finding(step, group, injected)) for key, group in groups.items()]
        return sorted(found, key=lambda grouped: self._order(grouped.finding.name))

    def _key(self, compared: TensorComparison, deviating: Sequence[TensorComparison]) -> Key:
        stage, rest = compared.stage, compared.name.partition("/")[2]
        if stage in _BY_STAGE:
            return _BY_STAGE[stage], ""
        if stage == "forward":
            return "layer", rest
        if stage == "backward":
            return self._who_sends_back(rest, deviating)
        return "layer", self._layer_of(compared)

    def _who_sends_back(self, path: str, deviating: Sequence[TensorComparison]) -> Key:
        """Whose backward pass makes the gradient with respect to a layer's output."""
        after = [name for name in consumers(self._layers, path) if name in self._paths]
        parent = path.rpartition("/")[0]
        if not after and parent in self._paths:
            after = [parent]  # the last of a residual, a branch of a sum: its container goes on with it
        if path == self._paths[-1] or (self._layers and not after):
            return "loss", ""
        if not after:
            # Not known: the next one, as in a plain chain.
            after = self._paths[self._paths.index(path) + 1 :][:1]
        wrong = {name.name.partition("/")[2] for name in deviating if name.stage == "forward"}
        return "layer", next((name for name in after if name in wrong), after[0])

    def _layer_of(self, compared: TensorComparison) -> str:
        """Whose tensor it is, of those layers whose output is a tensor of the step; or what it is a part of."""
        path = here = tensor_of(compared.name).rpartition("/")[0]
        while here and here not in self._paths:
            here = here.rpartition("/")[0]
        return here or path

    def _absorb_starts(self, groups: dict[Key, list[TensorComparison]]) -> None:
        """Where replicas begin with other tensors, what these make there is not another defect."""
        start = groups.get(("before", ""))
        if start is None:
            return
        replicas = frozenset().union(*(compared.replicas for compared in start))
        begun = {self._layer_of(compared) for compared in start}
        for key, group in list(groups.items()):
            inside = [
                c for c in group if c.replicas <= replicas and (key[1] in begun or self._layer_of(c) in begun)
            ]
            if key == ("before", "") or not inside:
                continue
            start += inside
            groups[key] = [compared for compared in group if compared not in inside]
            if not groups[key]:
                del groups[key]

    def _absorb_containers(self, groups: dict[Key, list[TensorComparison]]) -> None:
        """A container's defect is that of the layer inside that has it."""
        for key in [key for key in groups if key[0] == "layer"]:
            inner = next((other for other in groups if other[1].startswith(f"{key[1]}/")), None)
            if inner is not None:
                groups[inner] += groups.pop(key)

    def _join_gradients(
        self, groups: dict[Key, list[TensorComparison]], injected: Sequence[TensorComparison]
    ) -> None:
        """Gradients that are wrong of most layers are no layer's defect; and where local ones are not to be
        seen, a wrong layer makes the reduced ones of its parameters wrong."""
        local = {compared.name for compared in injected if compared.stage == "local_gradient"}
        wrong = {
            key: group
            for key, group in groups.items()
            if key[0] == "layer" and all(compared.stage == "local_gradient" for compared in group)
        }
        names = {compared.name for group in wrong.values() for compared in group}
        if len(wrong) > 1 and 2 * len(names) > len(local):
            joined = [compared for key in wrong for compared in groups.pop(key)]
            groups.setdefault(("gradient", ""), []).extend(joined)
        if local or ("gradient", "") not in groups:
            return
        rest: list[TensorComparison] = []
        for compared in groups.pop(("gradient", "")):
            groups.get(("layer", self._layer_of(compared)), rest).append(compared)
        if rest:
            groups["gradient", ""] = rest

    def _finding(
        self, step: int | None, group: list[TensorComparison], injected: Sequence[TensorComparison]
    ) -> Finding:
        group = sorted(group, key=lambda compared: self._order(compared.name))
        first = group[0]
        before = injected[: next(place for place, c in enumerate(injected) if c.name == first.name)]
        agreeing = [c for c in before if c.agrees][-limits.AGREEING_SHOWN :]
        stage = first.stage
        if step is None and stage not in ("ids", "inputs", "before"):
            stage = "evaluation"
        replicas = sorted(frozenset().union(*(compared.replicas for compared in group)))
        return Finding(step, stage, first.name, tuple(replicas), tuple(group), tuple(agreeing))


def over_steps(found: Iterable[KeyedFinding]) -> list[Finding]:
    """Findings of all steps, those about the same joined at the first.

    What replicas evaluate otherwise with a state that they hold otherwise is not another defect.
    """
    first: dict[Key, Finding] = {}
    for grouped in found:
        start = first.get(("before", ""))
        if start is not None and grouped.finding.step is None and _follows(start, grouped):
            continue
        # What its replicas have drifted apart by since, as trained.
        drifted = grouped.key == ("before", "") and _in_reference(grouped.finding)
        drifted = drifted or (grouped.finding.step is None and grouped.key[0] == "layer")
        if drifted and any(_in_reference(finding) for finding in first.values()):
            continue
        first.setdefault(grouped.key, grouped.finding)
    return list(first.values())


def _in_reference(finding: Finding) -> bool:
    """Whether the reference's replicas are not alike."""
    return any(tensor.where.endswith(OF_REFERENCE) for tensor in finding.tensors)


def _follows(start: Finding, grouped: KeyedFinding) -> bool:
    kind, path = grouped.key
    layers = {
        tensor_of(tensor.name).rpartition("/")[0] for tensor in start.tensors if tensor.stage == "before"
    }
    inside = any(layer == path or layer.startswith(f"{path}/") for layer in layers)
    return kind == "layer" and inside and set(grouped.finding.replicas) <= set(start.replicas)


def merged(findings: Sequence[Finding]) -> list[Finding]:
    """Findings that have the same explanation, as one: every GELU of a net is approximated by one defect."""
    result: dict[object, Finding] = {}
    counts: Counter[object] = Counter()
    for number, finding in enumerate(findings):
        why = finding.explanation
        key: object = number if why is None else (why.cause, why.fix)
        counts[key] += 1
        same = result.setdefault(key, finding)
        if same is not finding:
            result[key] = replace(
                same,
                replicas=tuple(sorted({*same.replicas, *finding.replicas})),
                tensors=(*same.tensors, *finding.tensors) if same.step == finding.step else same.tensors,
            )
    return [_counted(finding, counts[key] - 1) for key, finding in result.items()]


def _counted(finding: Finding, more: int) -> Finding:
    """A finding whose text says how many more are like it."""
    why = finding.explanation
    if why is None or not more:
        return finding
    text = f"{why.text}; so in {more} more place{'s' if more > 1 else ''}"
    return replace(finding, explanation=replace(why, text=text))
