"""What a pass in training makes of the buffers, each layer by itself."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from parity.common.diagnosis import limits
from parity.common.diagnosis.result import Finding, TensorComparison
from parity.common.external.pairs.bench import Bench, PairTrace, compared, place_of
from parity.common.external.pairs.explain import DeviatingTensor
from parity.common.external.pairs.points import Segment
from parity.common.external.pairs.search import Search, finding_of
from parity.common.external.process.pass_result import Arrays, PassResult


class BufferSearch:
    """The part of a search that looks at buffers."""

    def __init__(self, search: Search) -> None:
        self.search = search

    def run(self, trace: PairTrace) -> Iterator[Finding]:
        """Yield what a pass in training made of them that deviates, each layer by itself."""
        tensors = compared_buffers(self.search.bench, trace.reference, trace.injected)
        self.search.injected += tensors
        by_layer: dict[str, list[TensorComparison]] = {}
        for tensor in tensors:
            if not tensor.agrees:
                by_layer.setdefault(self.search.layer_of(tensor), []).append(tensor)
        for layer, mine in by_layer.items():
            suspects = [s for s in self.search.suspects if s.changes == "training mode" and s.keras == layer]
            # What a layer was given, or makes of it, is wrong in its buffers, too.
            same = (
                n for n, f in enumerate(self.search.findings) if place_of(f).split("/before_act")[0] == layer
            )
            number = next(same, None)
            apart = self.search.barrier >= 0 or layer in self.search.compared.skipped
            if number is not None and apart and not suspects:
                self.search.add_to(number, mine)
                continue
            torch = frozenset(s.torch for s in suspects if s.torch)
            segment = Segment(None, (), frozenset({layer}), torch)
            measure = partial(self._apart, trace, {tensor.name for tensor in mine})
            worst = max(tensor.deviation for tensor in mine)
            deviating = DeviatingTensor(self.search.bench, segment, suspects, measure, worst)
            self.search.trial = (deviating, False) if suspects else None
            yield finding_of("buffers", mine)

    def _apart(self, trace: PairTrace, names: set[str], more: Arrays) -> float:
        """The largest deviation of some buffers after a pass of the models as they are now."""
        bench, injections = self.search.bench, {**trace.injections, **more}
        due = {p.keras: trace.reference.activations[p.keras] for p in bench.points}
        ours = bench.keras.forward(bench.inputs[0], training=True, taps=False, inject=due)
        theirs = bench.torch.forward(bench.inputs[1], training=True, taps=False, inject=injections)
        return max(t.deviation for t in compared_buffers(bench, ours, theirs) if t.name in names)


def compared_buffers(bench: Bench, ours: PassResult, theirs: PassResult) -> list[TensorComparison]:
    """Return the buffers that a pass in training of either side has changed, compared."""
    kept = bench.keras.read()
    torch = bench.mapping.to_keras(bench.torch.read() | theirs.buffers)
    changed = set(ours.buffers) | {
        n for n, v in torch.items() if n in kept and not np.array_equal(v, kept[n])
    }
    buffers = {
        info.name: ours.buffers.get(info.name, kept[info.name])
        for info in bench.outlines[0].tensors
        if info.buffer and info.name in changed and info.name in torch
    }
    sizes = {name: float(np.abs(value).max(initial=0.0)) for name, value in buffers.items()}
    # Of a layer: a mean that is zero but for rounding is no larger than rounding of what is beside it.
    largest: dict[str, float] = {}
    for name, size in sizes.items():
        layer = name.rpartition("/")[0]
        largest[layer] = max(size, largest.get(layer, 0.0))
    found = []
    for name, value in buffers.items():
        share = limits.ROUNDING_SHARE * largest[name.rpartition("/")[0]]
        allowed = limits.LIVE_FLOAT64 + (share / sizes[name] if sizes[name] else 0.0)
        found.append(compared(f"after/buffers/{name}", value, torch[name], allowed))
    return found
