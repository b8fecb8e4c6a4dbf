"""What a pass in training makes of the buffers, each layer by itself."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial

import numpy as np

from parity.common.diagnosis import limits
from parity.common.diagnosis.result import Explanation, Finding, TensorComparison
from parity.common.external.pairs.bench import Bench, PairTrace, compared, place_of
from parity.common.external.pairs.explain import DeviatingTensor
from parity.common.external.pairs.points import Segment
from parity.common.external.pairs.search import Search, finding_of
from parity.common.external.process.pass_result import Arrays, PassResult
from parity.common.parity.deviation import tensor_deviation


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
            why = None if suspects else self._by_share(layer, mine)
            yield finding_of("buffers", mine, why=why)

    def _by_share(self, layer: str, tensors: Sequence[TensorComparison]) -> Explanation | None:
        """Torch moves what a layer keeps by another share of what is new; None where that is not all.

        A moving mean m becomes m + s * (new - m): both sides see the same new one where their moves are multiples.
        """
        rows = len(next(iter(self.search.bench.inputs[0].values())))
        counts = [rows, max(1, rows // 2)]
        factors = [
            factor
            for count in counts
            for factor in self._factors({place_of(t).removeprefix("buffers/") for t in tensors}, count)
        ]
        apart = tensor_deviation(np.full(len(factors), factors[0]), np.array(factors))
        if rows < 2 or not apart <= limits.LIVE_FLOAT64:
            return None
        info = next((i for i in self.search.bench.outlines[0].layers if i.path == layer), None)
        decay = info.settings.get("decay") if info is not None else None
        text = f"torch moves the statistics of {layer} {factors[0]:.6g} times as far as Keras in a step"
        fix = "in torch: the same share of the new statistics as in Keras"
        if isinstance(decay, float):
            share = factors[0] * (1 - decay)
            text += f": by {share:.6g} of the way to those of the batch, in place of {1 - decay:.6g}"
            if abs(share - decay) <= limits.LIVE_FLOAT64:
                text += (
                    ", which is Keras's momentum: that is the share of the old statistics, torch's of the new"
                )
            fix = f"in torch: momentum={1 - decay:.6g}, as a share of the new statistics"
        evidence = f"by experiment: with {counts[0]} and with {counts[1]} samples the moves differ by this factor and by nothing else"
        return Explanation(
            "statistics:share", text, "confirmed", fix, evidence, defect="torch", layers=(layer,)
        )

    def _factors(self, names: Collection[str], count: int) -> list[float]:
        """How many times as far torch's pass on some samples moves each buffer; NaN where it is no multiple."""
        bench = self.search.bench
        kept = bench.keras.read()
        given = [{name: value[:count] for name, value in inputs.items()} for inputs in bench.inputs]
        ours = bench.keras.forward(given[0], training=True, taps=False)
        theirs = bench.torch.forward(given[1], training=True, taps=False)
        after = bench.mapping.to_keras(bench.torch.read() | theirs.buffers)
        found = []
        for name in names:
            due = np.subtract(ours.buffers.get(name, kept[name]), kept[name])
            own = np.subtract(after[name], kept[name])
            square = float(np.square(due).sum())
            factor = float((due * own).sum()) / square if square else np.nan
            found.append(factor if tensor_deviation(factor * due, own) <= limits.LIVE_FLOAT64 else np.nan)
        return found

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
