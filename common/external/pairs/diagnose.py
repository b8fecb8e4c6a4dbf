"""Where two external models part, and why: each layer of torch's given what Keras's was, on live models in float64.

One fault is one finding: a layer is fed Keras's tensors, so that what a fault before it made does not count; a
setting that is found to be the cause is put right on the live model before the search goes on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from rich.console import Console

from parity.common.base.errors import ExternalModelError
from parity.common.diagnosis.result import Diagnosis, Explanation, Finding, Seen, StepSeen, When
from parity.common.external.pairs.bench import (
    LEAK,
    LIMIT,
    OUTPUT,
    Arrays,
    Bench,
    Look,
    exactly,
    gradients,
    losses,
    of_stage,
    seen,
)
from parity.common.external.pairs.experiments import Change, keep, ways_of, worker_of
from parity.common.external.pairs.explain import Case, Found, Suspect, explained, likely
from parity.common.external.pairs.points import Segment, segments_of
from parity.common.external.pairs.updates import Updates
from parity.common.external.process.pass_result import PassResult
from parity.common.parity.deviation import tensor_deviation

_MOST_ROUNDS = 40  # as many faults are looked for
_AGREEING = 2
_STAGES = ("before", "forward", "loss", "backward", "gradient", "buffers", "evaluation", "update")
_PASSES = ("forward", "evaluation")
_SETTLED = {
    "initial values": "the weights were copied, so that it does not count here",
    "layout": "the mapping permutes the weights behind it, so that it does not count here",
}
_NAMED = 4
_RULE = "every stage of one step agrees by itself, and the rule says that an update does not"
_LEAK_FIX = "none: it is rounding of Keras's own, below what float32 resolves; the port is right"
_STEP = 0


def diagnose_pair(
    bench: Bench,
    suspects: Sequence[Suspect],
    updates: Updates | None = None,
    when: When | None = None,
    console: Console | None = None,
) -> Diagnosis:
    """Say where and why two models part; their settings are left as the search has changed them.

    Args:
        bench: both, with equal weights.
        suspects: differences of their settings.
        updates: of the users' own optimizers, where these were compared.
        when: what a training saw; None: nothing was trained.
        console: where progress is told.
    """
    return _Search(bench, suspects, console or Console(quiet=True)).diagnosed(updates, when)


class _Search:
    """One diagnosis at work."""

    def __init__(self, bench: Bench, suspects: Sequence[Suspect], console: Console) -> None:
        self.bench, self.suspects, self.console = bench, list(suspects), console
        self.began = time.monotonic()
        self.findings: list[Finding] = []
        self.used: set[Suspect] = set()
        self.notes: list[str] = []
        self.segments = segments_of(bench.outlines, bench.points)
        # The last point, in order, that deviates for a reason that could not be put right.
        self.barrier = -1
        self._barred = ""

    def diagnosed(self, updates: Updates | None, when: When | None) -> Diagnosis:
        """All of it."""
        before = self._weights()
        first = self.bench.look(True)
        free = [*before, *self._free(first)]
        with exactly(self.bench):
            forced = [*before, *self._by_themselves()]
        self._float32()
        order = {
            (f"{stage}/{one.name.partition('/')[2]}"): n
            for stage in _PASSES
            for n, one in enumerate(first.seen)
        }
        self.findings.sort(key=lambda finding: (_STAGES.index(finding.stage), order.get(finding.name, 0)))
        if updates is not None:
            forced += updates.seen
            free += updates.seen
            self.findings += updates.findings
            self.notes += updates.notes
        if when is not None and not self.findings:
            self._by_rules()
        if when is not None and not self.findings:
            self.notes.append(
                "by itself every stage of one step agrees: what made the runs part is in how they were run"
            )
        if not self.bench.backward:
            self.notes.append(
                "torch's outputs have the channels first, so that no loss was taken of them by itself"
            )
        self._note_the_rest()
        parted = bool(self.findings) or when is not None or any(not one.agrees for one in free)
        keras, torch = self.bench.outlines
        return Diagnosis(
            f"keras {keras.target}",
            f"torch {torch.target}",
            "pair",
            "divergent" if parted else "parity",
            (when or _when(free, self.findings)) if parted else None,
            (StepSeen(_STEP, tuple(free), tuple(forced)),),
            tuple(self.findings),
            tuple(self.notes),
            parted,
            time.monotonic() - self.began,
        )

    def _by_themselves(self) -> list[Seen]:
        """Every stage, and why it deviates; the constants of Keras in float64."""
        first = self.bench.look(True)
        found = list(first.seen)
        last = self._forward("forward", first)
        found += [*self._loss(last), *self._backward(last), *self._gradients(last), *self._buffers(last)]
        evaluated = self.bench.look(False)
        told = [of_stage(one, "evaluation") for one in evaluated.seen]
        self._claim([one for one in told if not one.agrees])
        self._forward("evaluation", evaluated)
        return [*found, *told]

    def _float32(self) -> None:
        """What deviates only by constants that Keras takes through float32."""
        known = {finding.name for finding in self.findings if finding.explanation is None}
        seen_now = self.bench.look(True).seen
        off = [one for one in seen_now if not one.agrees and one.name not in known]
        if not off or max(one.deviation for one in off) > LEAK:
            return
        places = [self.segments[seen_now.index(one)] for one in off[:_NAMED]]
        names = [self._suspected(place, one) for place, one in zip(places, off, strict=False)]
        text = f"Keras takes constants of {', '.join(names)} through float32, which float64 shows"
        evidence = (
            f"by experiment: with Keras's constants kept in float64 it agrees; off by {off[0].deviation:.2g}, and a unit"
            " in the last place of float32 is 6e-8"
        )
        if self.findings:
            self.notes.append(f"{text}: {evidence}; no fault of the port")
            return
        why = Explanation("float32_leak", text, "confirmed", _LEAK_FIX, evidence)
        self.findings.append(Finding(_STEP, "forward", off[0].name, (), tuple(off), (), why))

    @staticmethod
    def _suspected(segment: Segment, one: Seen) -> str:
        """What computes before a point without being looked at itself, else the point."""
        return " or ".join(segment.unpaired[0]) or one.name.partition("/")[2]

    def _claim(self, off: Sequence[Seen]) -> None:
        """Count what deviates in inference to the finding of the same place in training."""
        for number, finding in enumerate(self.findings):
            place = finding.name.partition("/")[2]
            mine = tuple(one for one in off if one.name.partition("/")[2] == place)
            if mine and finding.stage == "forward":
                self.findings[number] = replace(finding, seen=(*finding.seen, *mine))

    def _say(self, text: str) -> None:
        self.console.print(f"[dim]{text}[/dim]", highlight=False, soft_wrap=True)

    def _free(self, look: Look) -> list[Seen]:
        """The pass as it is, tensor by tensor."""
        bench = self.bench
        found = [*bench.activations(look.expected, look.free), *bench.outputs(look.reference, look.free)]
        found += losses(look.reference, look.free)
        return found + gradients(bench, look.reference, look.free)

    def _weights(self) -> list[Seen]:
        """The state that both begin with."""
        bench = self.bench
        ours, theirs = bench.keras.read(), bench.mapping.to_keras(bench.torch.read())
        found = [
            Seen(
                "before", f"before/parameters/{name}", None, tensor_deviation(ours[name], theirs[name]), 1e-12
            )
            for name in ours
            if name in theirs
        ]
        off = [one for one in found if not one.agrees]
        if off:
            self.findings.append(Finding(_STEP, "before", off[0].name, (), tuple(off), ()))
        return found

    def _forward(self, stage: str, look: Look) -> Look:
        """Explain every point that deviates by itself, in order; gives the last look."""
        training = stage == "forward"
        known: set[str] = {finding.name.partition("/")[2] for finding in self.findings}
        for _ in range(_MOST_ROUNDS):
            number = next(
                (
                    n
                    for n, one in enumerate(look.seen)
                    if not one.agrees and one.name.partition("/")[2] not in known
                ),
                None,
            )
            if number is None or self._blocked(look, number, known):
                return look
            one = look.seen[number]
            known.add(one.name.partition("/")[2])
            self._say(f"{stage}: {one.name.partition('/')[2]} deviates by {one.deviation:.2g}; trying why")
            found = explained(self._case(look, number, training))
            agreeing = tuple(s for s in look.seen[:number] if s.agrees)[-_AGREEING:]
            if self._took(found, of_stage(one, stage), tuple(of_stage(s, stage) for s in agreeing)):
                look = self._elsewhere(found, stage, look, known)
            else:
                self.barrier = max(self.barrier, number)
                self._barred = of_stage(look.seen[self.barrier], stage).name
        return look

    def _blocked(self, look: Look, number: int, known: set[str]) -> bool:
        """Whether a layer before has given another shape, so that what follows could not be given what is due."""
        for before in look.seen[:number]:
            name = before.name.partition("/")[2]
            point = next((p for p in self.bench.points if p.name == name), None)
            if name in known and point is not None and point.torch in look.misshapen:
                self.notes.append(
                    f"what comes after {name} could not be looked at by itself: its output has another shape"
                )
                return True
        return False

    def _took(self, found: Sequence[Found], one: Seen, agreeing: tuple[Seen, ...]) -> bool:
        """Note findings; whether what they name could be put right."""
        if not found:
            self.findings.append(Finding(_STEP, one.stage, one.name, (), (one,), agreeing))
        for each in found:
            why = each.explanation
            self.findings.append(Finding(_STEP, one.stage, one.name, (), (one,), agreeing, why))
            keep(self.bench, each.changes)
        self.used |= {s for s in self.suspects for each in found if each.explanation.text == s.text}
        return any(each.changes for each in found)

    def _elsewhere(self, found: Sequence[Found], stage: str, before: Look, known: set[str]) -> Look:
        """Put the same right in all layers that have it too, at once: a default differs everywhere. The next look."""
        alike = {
            (s.setting, s.ours, s.theirs) for s in self.used for f in found if f.explanation.text == s.text
        }
        tried: dict[Suspect, tuple[Change, Change]] = {}
        for suspect in self.suspects:
            if suspect not in self.used and (suspect.setting, suspect.ours, suspect.theirs) in alike:
                for way in ways_of(
                    suspect.keras, suspect.torch, suspect.setting, suspect.ours, suspect.theirs
                ):
                    old = self._set(way)
                    if old is not None:
                        tried[suspect] = (way, old)
                        break
        look = self.bench.look(stage == "forward")
        if not tried:
            return look
        told: set[Suspect] = set()
        for was, one, segment in zip(before.seen, look.seen, self.segments, strict=True):
            name = one.name.partition("/")[2]
            if was.agrees or not one.agrees or name in known:
                continue
            for suspect in (s for s in tried if s not in told and segment.holds(s.keras, s.torch)):
                evidence = (
                    f"by experiment: set in {len(tried)} more layers at once, with it the deviation is {one.deviation:.2g}"
                    f" instead of {was.deviation:.2g}"
                )
                why = Explanation(
                    f"setting:{suspect.setting}", suspect.text, "confirmed", suspect.fix, evidence
                )
                self.findings.append(
                    Finding(_STEP, stage, f"{stage}/{name}", (), (of_stage(was, stage),), (), why)
                )
                told.add(suspect)
                known.add(name)
        self.used |= told
        others = [old for suspect, (_, old) in tried.items() if suspect not in told]
        keep(self.bench, others)
        return self.bench.look(stage == "forward") if others else look

    def _set(self, way: Change) -> Change | None:
        """Make a change; the one that takes it back, None where it cannot be made."""
        try:
            old = worker_of(self.bench, way.side).set(way.layer, way.setting, way.value)
        except ExternalModelError:
            return None
        return replace(way, value=old)

    def _case(self, look: Look, number: int, training: bool) -> Case:
        segment = self.segments[number]
        one = look.seen[number]
        inject = dict(look.inject)

        def measured(more: Arrays) -> float:
            return self._by_itself(segment, look, {**inject, **more}, training)

        def injected(more: Arrays) -> float | None:
            try:
                return measured(more)
            except ExternalModelError:
                return None

        return Case(
            self.bench,
            segment,
            [s for s in self.suspects if s.changes in ("forward", "layout") and s not in self.used],
            lambda: measured({}),
            one.deviation,
            injected,
            look.reference.activations,
            look.free.activations,
        )

    def _by_itself(self, segment: Segment, look: Look, inject: Arrays, training: bool) -> float:
        """The deviation of a segment's point, or of the outputs, with the models as they are now."""
        bench, point = self.bench, segment.point
        due = {
            p.keras: look.reference.activations[p.keras]
            for p in bench.points
            # A function that belongs to the segment is at the end of the layer before it.
            if f"{p.keras_layer}/activation" not in segment.keras or p == point
        }
        if point is None:
            ours = bench.keras.forward(bench.inputs[0], training=training, taps=False, inject=due)
            theirs = bench.torch.forward(bench.inputs[1], training=training, taps=False, inject=inject)
            return max(one.deviation for one in bench.outputs(ours, theirs))
        own = bench.keras_own(point, due, training)
        passed = bench.torch.forward(bench.inputs[1], training=training, taps=[point.torch], inject=inject)
        return seen("forward", point.name, own, passed.activations.get(point.torch)).deviation

    def _loss(self, look: Look) -> list[Seen]:
        found = losses(look.reference, look.forced)
        off = [one for one in found if not one.agrees]
        if off and self.barrier >= 0:
            self._blame_barrier(off)
        elif off:
            self.findings.append(Finding(_STEP, "loss", off[0].name, (), tuple(off), ()))
        if look.reference.penalty:
            penalties = [s for s in self.suspects if s.setting.endswith("_regularizer")]
            self.notes.append(
                f"Keras's model adds {look.reference.penalty:.3g} to its loss by regularizers or add_loss, which this"
                " comparison leaves out" + "".join(f"; {s.text}: {s.fix}" for s in penalties)
            )
            self.used |= set(penalties)
        return found

    def _backward(self, look: Look) -> list[Seen]:
        """What flows back to each layer's output; from the loss on, so that the first that deviates is the fault."""
        found = []
        for number in range(len(self.bench.points) - 1, -1, -1):
            point = self.bench.points[number]
            due = look.reference.activation_gradients.get(point.keras)
            own = look.forced.activation_gradients.get(point.torch)
            if point.linear or due is None or own is None or point.torch in look.misshapen:
                continue
            found.append(seen("backward", f"backward/{point.name}", due, own))
        self._first_of("backward", found)
        return found

    def _gradients(self, look: Look) -> list[Seen]:
        found = gradients(self.bench, look.reference, look.forced)
        if not any(f.stage == "backward" for f in self.findings):
            self._first_of("gradient", found)
        return found

    def _first_of(self, stage: str, found: Sequence[Seen]) -> None:
        """Note the first of a backward pass that deviates, with the others, which may follow from it."""
        off = [one for one in found if not one.agrees]
        if not off:
            return
        if self.barrier >= 0:
            # A layer that could not be put right is wrong in its backward pass, too.
            place = next(
                n for n, f in enumerate(self.findings) if f.explanation is None or f.stage == "forward"
            )
            old = self.findings[place]
            self.findings[place] = replace(old, seen=(*old.seen, *off))
            return
        layer = self._layer_of(off[0])
        suspect = next(
            (s for s in self.suspects if layer in (s.keras, s.torch) and s.setting == "trainable"), None
        )
        why = None
        if suspect is not None:
            why = likely(suspect)
            self.used.add(suspect)
        agreeing = tuple(one for one in found[: found.index(off[0])] if one.agrees)[-_AGREEING:]
        self.findings.append(Finding(_STEP, stage, off[0].name, (), tuple(off), agreeing, why))

    def _blame_barrier(self, off: Sequence[Seen]) -> None:
        """What a layer that could not be put right makes of what is behind it, and of what flows back through it."""
        name = self._barred
        number = next(n for n, finding in enumerate(self.findings) if finding.name == name)
        old = self.findings[number]
        self.findings[number] = replace(old, seen=(*old.seen, *off))

    def _layer_of(self, one: Seen) -> str:
        name = one.name.partition("/")[2].removeprefix("buffers/")
        info = next((t for t in self.bench.outlines[0].tensors if t.name == name), None)
        return name if info is None else info.layer

    def _buffers(self, look: Look) -> list[Seen]:
        """What a pass in training made of them, each layer by itself."""
        found = self._buffers_now(look, look.reference, look.forced)
        done: set[str] = set()
        for one in found:
            layer = self._layer_of(one)
            if one.agrees or layer in done:
                continue
            done.add(layer)
            self._say(f"buffers: {one.name} deviates by {one.deviation:.2g}; trying why")
            mine = [other for other in found if self._layer_of(other) == layer and not other.agrees]
            names = {other.name for other in mine}
            due = {p.keras: look.reference.activations[p.keras] for p in self.bench.points}

            def measure(names: set[str] = names, due: Arrays = due) -> float:
                bench = self.bench
                ours = bench.keras.forward(bench.inputs[0], training=True, taps=False, inject=due)
                theirs = bench.torch.forward(bench.inputs[1], training=True, taps=False, inject=look.inject)
                return max(s.deviation for s in self._buffers_now(look, ours, theirs) if s.name in names)

            self._explain_buffer(layer, mine, measure)
        return found

    def _explain_buffer(self, layer: str, mine: Sequence[Seen], measure: Callable[[], float]) -> None:
        suspects = [s for s in self.suspects if s.changes == "training mode" and s.keras == layer]
        torch = frozenset(s.torch for s in suspects if s.torch)
        segment = Segment(None, (), frozenset({layer}), torch)
        worst = max(one.deviation for one in mine)
        found = explained(Case(self.bench, segment, suspects, measure, worst)) if suspects else []
        if not found:
            self.findings.append(Finding(_STEP, "buffers", mine[0].name, (), tuple(mine), ()))
        for each in found:
            why = each.explanation
            self.findings.append(Finding(_STEP, "buffers", mine[0].name, (), tuple(mine), (), why))
        self.used |= {s for s in suspects for each in found if each.explanation.text == s.text}

    def _buffers_now(self, look: Look, ours: PassResult, theirs: PassResult) -> list[Seen]:
        bench = self.bench
        kept = bench.keras.read()
        torch = bench.mapping.to_keras(bench.torch.read() | theirs.buffers)
        changed = set(ours.buffers) | {
            n for n, v in torch.items() if n in kept and not np.array_equal(v, kept[n])
        }
        buffers = [info.name for info in bench.outlines[0].tensors if info.buffer and info.name in changed]
        return [
            seen("buffers", f"after/buffers/{name}", ours.buffers.get(name, kept[name]), torch.get(name))
            for name in buffers
            if name in torch
        ]

    def _note_the_rest(self) -> None:
        """Differences of settings that make no difference here, alike ones in one line."""
        groups: dict[tuple[object, ...], list[Suspect]] = {}
        for suspect in self.suspects:
            if suspect.changes == "initial values":
                groups.setdefault((suspect.setting, suspect.ours, suspect.theirs), []).append(suspect)
        for group in groups.values():
            more = f", and so of {len(group) - 1} more" if len(group) > 1 else ""
            self.notes.append(
                f"{group[0].text}{more}: the weights were copied, so that it does not count here"
            )

    def _by_rules(self) -> None:
        """Where one step agrees and a training does not: tensors of which one side has more than the other."""
        for pair in self.bench.mapping.tensors:
            if pair.note is None:
                continue
            name = f"update/{(pair.keras or pair.torch)[0]}"
            text = f"{pair.label} (rule {pair.rule}): {pair.note}"
            fix = "freeze what only torch has (requires_grad_(False)), or give both sides the same tensors"
            why = Explanation(f"rule:{pair.rule.partition('(')[0]}", text, "likely", fix, _RULE)
            self.findings.append(
                Finding(_STEP, "update", name, (), (Seen("update", name, None, math.inf, LIMIT),), (), why)
            )


def _when(free: Sequence[Seen], findings: Sequence[Finding]) -> When:
    """Where nothing was trained: what one pass says."""
    output = next((one for one in free if one.name.startswith(f"forward/{OUTPUT}")), None)
    if output is not None and not output.agrees:
        return When(
            _STEP, f"before training: the outputs of one batch differ by {output.deviation:.2g} in float64"
        )
    first = next((one for one in free if not one.agrees), None)
    if first is not None:
        return When(_STEP, f"with equal weights, {first.name} differs by {first.deviation:.2g} in float64")
    return When(_STEP, f"with equal weights, {findings[0].name} differs")
