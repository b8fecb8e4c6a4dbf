"""What a pass in training makes of the buffers, each layer by itself."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from parity.common.diagnosis import limits
from parity.common.diagnosis.result import Explanation, Finding, TensorComparison
from parity.common.external.pairs.bench import Bench, PairTrace, compared, place_of
from parity.common.external.pairs.explain import MODE, DeviatingTensor
from parity.common.external.pairs.places import Place
from parity.common.external.pairs.points import NOWHERE, Segment
from parity.common.external.pairs.search import Search, finding_of
from parity.common.external.pairs.structure import structural_causes
from parity.common.external.pairs.unused import NOT_CALLED
from parity.common.external.process.pass_result import Array, Arrays, PassResult
from parity.common.parity.deviation import tensor_deviation

_PASSES = 3  # one behind the other, in which statistics are watched


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
            findings = list(enumerate(self.search.findings))
            same = (n for n, f in findings if place_of(f).split("/before_act")[0] == layer)
            number = next(same, None)
            apart = self.search.barrier >= 0 or layer in self.search.compared.skipped
            told = next((n for n, f in findings if _tells_of(f, layer)), None)
            barred = next((n for n, f in findings if f.name == self.search.barred), None)
            if told is not None:
                self.search.add_to(told, mine)
                continue
            if number is None and barred is not None and trace.misshapen:
                # What follows a layer of another shape could not be given what is due.
                number = barred
            if number is not None and apart and not suspects:
                self.search.add_to(number, mine)
                continue
            loss = next((n for n, f in findings if f.stage == "loss"), None)
            if (
                loss is not None
                and self.search.bench.trains_by_step
                and not suspects
                and self._move_alike(mine)
            ):
                # A pass of the model moves them alike: the steps call it on something else.
                self.search.add_to(loss, mine)
                continue
            torch = frozenset(s.torch for s in suspects if s.torch)
            segment = Segment(None, frozenset({layer}), torch)
            measure = partial(self._apart, trace, {tensor.name for tensor in mine})
            worst = max(tensor.deviation for tensor in mine)
            deviating = DeviatingTensor(self.search.bench, segment, suspects, measure, worst)
            self.search.trial = (deviating, False, None) if suspects else None
            why = None if suspects else self._by_share(layer, mine)
            causes = [] if suspects or why is not None else self._by_operations(trace, layer, mine[0])
            yield from (finding_of("buffers", mine, why=cause) for cause in causes or (why,))

    def _by_operations(self, trace: PairTrace, layer: str, tensor: TensorComparison) -> list[Explanation]:
        """What torch computes otherwise on the way to what it keeps; nothing where no tensor of its layout is it."""
        bench, name = self.search.bench, place_of(tensor).removeprefix("buffers/")
        pair = next((p for p in bench.mapping.tensors if p.keras == (name,) and p.rule == "same"), None)
        own = None if pair is None else trace.injected.buffers.get(pair.torch[0])
        due = trace.reference.buffers.get(name)
        if own is None or due is None:
            return []
        place = Place(own, due, True, trace.injections, trace.reference.activations)
        measure = partial(self._apart, trace, {tensor.name})
        deviating = DeviatingTensor(bench, NOWHERE, [], measure, tensor.deviation)

        def behind() -> tuple[float, float]:
            left = measure()
            return left, left

        # What an edit makes of one pass says nothing of the next.
        found = structural_causes(deviating, behind, place, lambda changes: True, edits=False)
        return [replace(each.explanation, layers=(layer,)) for each in found]

    def _move_alike(self, tensors: Sequence[TensorComparison]) -> bool:
        """Whether both models move some buffers alike in passes of their own."""
        names = {place_of(tensor).removeprefix("buffers/") for tensor in tensors}
        factors = np.array(self._factors(names, self.search.bench.rows))
        return tensor_deviation(np.ones_like(factors), factors) <= limits.LIVE_FLOAT64

    def _by_share(self, layer: str, tensors: Sequence[TensorComparison]) -> Explanation | None:
        """Torch moves what a layer keeps by another share of what is new; None where that is not all.

        A moving mean m becomes m + s * (new - m): both sides see the same new one where their moves are multiples.
        """
        rows = self.search.bench.rows
        counts = [rows, max(1, rows // 2)]
        names = {place_of(tensor).removeprefix("buffers/") for tensor in tensors}
        by_count = np.array([self._factors(names, count) for count in counts])
        # Of each pass the factor that all buffers have, whatever the samples are.
        factors = by_count[0, :, 0]
        if (
            rows < 2
            or not tensor_deviation(by_count, np.broadcast_to(factors[:, None], by_count.shape))
            <= limits.LIVE_FLOAT64
            or tensor_deviation(np.ones_like(factors), factors) <= limits.LIVE_FLOAT64
        ):
            return None
        info = next((i for i in self.search.bench.outlines[0].layers if i.path == layer), None)
        decay = info.settings.get("decay") if info is not None else None
        due = 1 - decay if isinstance(decay, float) else None
        fix = "in torch: the same share of the new statistics as in Keras"
        if due is not None:
            fix = f"in torch: momentum={due:.6g}, as a share of the new statistics"
        cause = "statistics:share"
        if tensor_deviation(factors, np.full_like(factors, factors[0])) <= limits.LIVE_FLOAT64:
            text = f"torch moves the statistics of {layer} {factors[0]:.6g} times as far as Keras in a step"
            if due is not None:
                share = factors[0] * due
                text += f": by {share:.6g} of the way to those of the batch, in place of {due:.6g}"
                if abs(share - (1 - due)) <= limits.LIVE_FLOAT64:
                    text += ", which is Keras's momentum: that is the share of the old statistics, torch's of the new"
        elif due is not None and _is_of_an_average(factors * due):
            cause, shares = "statistics:average", ", ".join(f"{share:.3g}" for share in factors * due)
            text = (
                f"torch keeps the average of all batches since the beginning in the statistics of {layer}: each pass moves"
                f" them by less of the way ({shares}), in place of {due:.6g} each time"
            )
        else:
            return None
        evidence = (
            f"by experiment: in {_PASSES} passes on {counts[0]} and on {counts[1]} samples the moves differ by this and by"
            " nothing else"
        )
        return Explanation(cause, text, "confirmed", fix, evidence, defect="torch", layers=(layer,))

    def _factors(self, names: Collection[str], count: int) -> list[list[float]]:
        """How many times as far torch's pass on some samples moves each buffer than Keras's; NaN where it is no multiple.

        Of passes one behind the other, each from what Keras's made of the one before.
        """
        bench = self.search.bench
        begun = bench.keras.read(), bench.torch.read()
        given = [{name: value[:count] for name, value in inputs.items()} for inputs in bench.inputs]
        found = []
        try:
            for _ in range(_PASSES):
                kept = bench.keras.read()
                ours = bench.keras.forward(given[0], training=True, taps=False)
                theirs = bench.torch.forward(given[1], training=True, taps=False)
                after = _after(bench, theirs)
                moves = [
                    (ours.buffers.get(name, kept[name]) - kept[name], after[name] - kept[name])
                    for name in names
                ]
                found.append([_factor(due, own) for due, own in moves])
                bench.keras.write(ours.buffers)
                # What torch alone keeps, such as a count of passes, goes on as it is.
                bench.torch.write(theirs.buffers | bench.mapping.to_torch(kept | ours.buffers))
        finally:
            bench.keras.write(begun[0])
            bench.torch.write(begun[1])
        return found

    def _apart(self, trace: PairTrace, names: set[str]) -> float:
        """The largest deviation of some buffers after a pass of the models as they are now."""
        bench, injections = self.search.bench, trace.injections
        due = {p.keras: trace.reference.activations[p.keras] for p in bench.points}
        ours = bench.keras.forward(bench.inputs[0], training=True, taps=False, inject=due)
        theirs = bench.torch.forward(bench.inputs[1], training=True, taps=False, inject=injections)
        return max(t.deviation for t in compared_buffers(bench, ours, theirs) if t.name in names)


def _tells_of(finding: Finding, layer: str) -> bool:
    """Whether a finding says that torch never calls a layer, or that it runs in another mode."""
    why = finding.explanation
    if why is None:
        return False
    in_mode = why.cause == MODE and any(name.startswith(f"{layer} (") for name in why.layers)
    return in_mode or (why.cause == NOT_CALLED and layer in why.layers)


def _factor(due: Array, own: Array) -> float:
    """By what one move is a multiple of the other; NaN where it is none."""
    square = float(np.square(due).sum())
    factor = float((due * own).sum()) / square if square else np.nan
    return factor if tensor_deviation(factor * due, own) <= limits.LIVE_FLOAT64 else np.nan


def _is_of_an_average(shares: Array) -> bool:
    """Whether shares of new statistics, pass by pass, are those of an average: 1/n, 1/(n + 1), 1/(n + 2)."""
    return bool(tensor_deviation(1 / shares[1:], 1 / shares[:-1] + 1) <= limits.LIVE_FLOAT64)


def _after(bench: Bench, passed: PassResult) -> Arrays:
    """Torch's state after a pass, by Keras's names; buffers that no state holds (persistent=False) are nothing of it."""
    state = bench.torch.read()
    return bench.mapping.to_keras(state | {n: v for n, v in passed.buffers.items() if n in state})


def compared_buffers(bench: Bench, ours: PassResult, theirs: PassResult) -> list[TensorComparison]:
    """Return the buffers that a pass in training of either side has changed, compared."""
    kept = bench.keras.read()
    torch = _after(bench, theirs)
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
