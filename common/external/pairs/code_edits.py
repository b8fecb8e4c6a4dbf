"""Causes that are a small edit of the user's torch code: with it, what deviates agrees."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from parity.common.base.errors import ExternalModelError
from parity.common.diagnosis import limits
from parity.common.diagnosis.result import Explanation
from parity.common.external.pairs.bench import Bench
from parity.common.external.pairs.explain import Attribution, made
from parity.common.external.pairs.places import CAUSE
from parity.common.external.pairs.view import View
from parity.common.external.process.objective import BatchLoss

# What is no computation of other numbers.
_OF_GRADIENTS = ("incoming", "stopped", "through")
EVERYWHERE = "within", "built_by", "rest"
# So many edits are made at once; so many are tried with others, of those that bring something nearer.
_MOST_AT_ONCE, _MOST_FIRST, _MOST_NEARER = 4, 3, 12
_IN_WORDS = {
    "setting": "another setting",
    "order": "in another order",
    "arrangement": "in another order of elements",
    "part": "another part",
    "argument": "another argument",
    "operation": "another operation",
    "divisor": "a mean over other elements",
    "sequence": "one after the other, in another order",
    "number": "another number",
    "kept": "the other way round",
    "broadcast": "along another axis",
    "left_out": "something left out",
    "too_much": "too much",
    "operand": "another tensor",
    "incoming": "a backward pass that leaves out the gradient that comes back to it",
    "stopped": "a gradient that Keras stops",
    "through": "no gradient where Keras's goes through",
}


@dataclass(frozen=True)
class CodeEdit:
    """An edit of a line of torch's code, by its number, in force or not; kind, before and after: what it is, and the code of both."""

    line: str
    number: int
    on: bool = True
    kind: str = ""
    before: str = ""
    after: str = ""

    def make(self, bench: Bench) -> CodeEdit:
        """Have it so, and return what takes it back."""
        bench.torch.edit_code(self.line, self.number, self.on)
        return CodeEdit(self.line, self.number, not self.on)

    @property
    def text(self) -> str:
        """What stands there, and what should."""
        what = f"{self.line}: {_IN_WORDS[self.kind]}: torch"
        if not self.after:
            return f"{what} has `{self.before}`, and agrees with Keras without it"
        if not self.before:
            return f"{what} agrees with Keras with `{self.after}` before this line"
        where = "what agrees with Keras is" if self.kind in _OF_GRADIENTS else "what Keras computes is"
        return f"{what} has `{self.before}`, and {where} `{self.after}`"

    @property
    def fix(self) -> str:
        """What to do in torch."""
        return f"in torch, at {self.line}: {self.after or 'take it away'}"

    def explanation(self, confirmed: bool, evidence: str, layers: tuple[str, ...]) -> Explanation:
        """The explanation that the code should be so."""
        of_gradients = self.kind in _OF_GRADIENTS
        return Explanation(
            f"gradient:{self.kind}" if of_gradients else f"{CAUSE}{self.kind.replace('setting', 'argument')}",
            self.text,
            "confirmed" if confirmed else "likely",
            self.fix,
            evidence,
            defect=f"{self.kind} {self.after}",
            layers=layers,
        )


def told_edits(
    bench: Bench, edits: Sequence[CodeEdit], confirmed: bool, evidence: str, layers: tuple[str, ...]
) -> list[Attribution]:
    """What says that code should be so, of each edit by itself, and of two in one line together."""
    first, *others = edits
    if others and all(each.line == first.line for each in others):
        with made(bench, edits):
            before, after = bench.torch.edited(first.line)
        both = replace(first, before=before, after=after)
        return [Attribution(both.explanation(confirmed, evidence, layers), tuple(edits))]
    also = f": with {len(edits)} edits at once" if others else ""
    return [Attribution(each.explanation(confirmed, evidence + also, layers), (each,)) for each in edits]


def fitting_edits(
    view: View, deviation: Callable[[Sequence[CodeEdit]], float]
) -> tuple[list[CodeEdit], float] | None:
    """The edits of torch's code, one or some at once, with which a place agrees, and what deviation is left; None where there are none, or time is over.

    Of several each makes more of what Keras computes on the way to the place be there.

    Args:
        view: of the place.
        deviation: what is left with edits.
    """
    lines = view.code
    if view.end is None:
        one = fitting_edit(view.bench, lines, lambda edit: deviation([edit]))
        return None if one is None else ([one[0]], one[1])
    trials = _Trials(view, deviation)
    numbers, functions, bounds = view.of_keras_alone
    every = list(_edits(view.bench, lines, False, numbers=numbers))
    # Other tensors are many.
    likely = [edit for edit in every if edit.line in lines and edit.kind != "operand"]
    found = trials.one_of([], likely) or trials.together()
    if not found and math.isfinite(trials.apart([])):  # of another shape: what is behind says more
        found = (
            next(filter(None, (trials.one_of(first, likely) for first in trials.nearest())), None)
            or trials.one_of([], every)
            or trials.together()
            # With another edit a function says little: x.abs() ** 1 for x ** 2.
            or trials.one_of([], _edits(view.bench, lines, False, numbers=bounds, functions=functions))
            or trials.by_what_is_off(every)
        )
    if found and len({edit.line for edit in found[0]}) > 1:
        # One elsewhere may do the work of several: of what a line gives to these.
        return trials.one_of([], [edit for edit in every if edit.kind != "operand"]) or found
    return found


class _Trials:
    """Edits that are tried at a place, and those that bring torch nearer to what Keras computes on the way to it."""

    def __init__(self, view: View, deviation: Callable[[Sequence[CodeEdit]], float]) -> None:
        self._view, self._deviation = view, deviation
        self._ends = min(limits.LONGEST_EDITS, view.bench.edited + limits.LONGEST_EDITS_HERE)
        self._before = view.left_with(())
        # Edits, one or some, and how much they leave of what Keras computes.
        self._nearer: list[tuple[int, list[CodeEdit]]] = []
        self._tried: set[tuple[CodeEdit, ...]] = set()

    def nearest(self) -> list[list[CodeEdit]]:
        """The edits after which the least is left."""
        return self._by_what_is_left()[:_MOST_FIRST]

    def _by_what_is_left(self) -> list[list[CodeEdit]]:
        return [edits for _, edits in sorted(self._nearer, key=lambda found: found[0])]

    def one_of(self, first: list[CodeEdit], edits: Iterable[CodeEdit]) -> tuple[list[CodeEdit], float] | None:
        """What agrees with one more than some edits; None where nothing does, time is over, or these are as many as are made at once."""
        before = next((left for left, several in self._nearer if several == first), self._before)
        for edit in edits if len(first) < _MOST_AT_ONCE else ():
            if self._view.bench.edited > self._ends:
                return None
            both = [*first, edit]
            if edit in first or tuple(both) in self._tried:
                continue
            self._tried.add(tuple(both))
            seen = self._seen(both)
            left = self._deviation(both) if self._view.end in seen else math.inf
            if left <= limits.LIVE_FLOAT64:
                return self._needed(both, left)
            if seen and edit.kind != "operand" and (count := self._view.left_with(seen)) < before:
                self._nearer.append((count, both))
        return None

    def _needed(self, edits: list[CodeEdit], left: float) -> tuple[list[CodeEdit], float]:
        """Of edits with which the place agrees those without which it does not, and what deviation is left."""
        for edit in list(edits):
            others = [each for each in edits if each is not edit]
            if others and (without := self._deviation(others)) <= limits.LIVE_FLOAT64:
                edits, left = others, without
        return edits, left

    def together(self) -> tuple[list[CodeEdit], float] | None:
        """What agrees with several at once that each bring it nearer."""
        single = [edits[0] for edits in self._by_what_is_left() if len(edits) == 1]
        for _ in range(_MOST_AT_ONCE - 1):
            for first in self.nearest():
                if found := self.one_of(first, single[:_MOST_NEARER]):
                    return found
        return None

    def by_what_is_off(self, edits: Sequence[CodeEdit]) -> tuple[list[CodeEdit], float] | None:
        """Two that agree together, of which one makes the deviation much smaller: where one side packs what the other pads, nothing on the way
        to the place says what brings it nearer.
        """
        self._ends = min(limits.LONGEST_EDITS, self._view.bench.edited + limits.LONGEST_EDITS_HERE)
        enough = limits.MUCH_NEARER * self.apart([])
        left = [(self.apart([edit]), number) for number, edit in enumerate(edits)]
        firsts = [edits[number] for far, number in sorted(left) if far < enough][:_MOST_FIRST]
        return next(filter(None, (self.one_of([first], edits) for first in firsts)), None)

    def apart(self, edits: Sequence[CodeEdit]) -> float:
        """What deviation is left with edits; infinite where torch cannot be run so, or time is over."""
        if self._view.bench.edited > self._ends:
            return math.inf
        try:
            with _trying(self._view.bench):
                return self._deviation(edits)
        except ExternalModelError:
            return math.inf

    def _seen(self, edits: Sequence[CodeEdit]) -> frozenset[int]:
        """What torch's model gives of what Keras computes, with edits; nothing where it cannot be run so."""
        bench = self._view.bench
        try:
            with _trying(bench), made(bench, edits):
                return self._view.seen()
        except ExternalModelError:
            return frozenset()


@contextmanager
def _trying(bench: Bench) -> Iterator[None]:
    """Count what is done within as time of edits."""
    began = bench.busy
    try:
        yield
    finally:
        bench.edited += bench.busy - began


def lines_of_training(bench: Bench, loss: BatchLoss | None) -> list[str]:
    """The lines of the user's torch code that a pass in training runs, with a loss of the user's own, the last first."""
    told = bench.torch.operations(bench.inputs[1], loss, training=True)["operations"]
    return [*dict.fromkeys(line for each in reversed(told) for line in each["lines"])]


def fitting_edit(
    bench: Bench,
    lines: Collection[str],
    deviation: Callable[[CodeEdit], float],
    *,
    of_gradients: bool = False,
    others: Sequence[str] = EVERYWHERE,
) -> tuple[CodeEdit, float] | None:
    """The edit of torch's code with which all agrees, and what deviation is left; None where there is none, or time is over.

    Args:
        lines: of the user's code, that are edited first; then the rest of their functions.
        deviation: what is left with an edit.
        of_gradients: whether gradients alone deviate: then those edits are tried first that stop them.
        others: that are edited, too, as `ExternalWorker.code_edits` takes them.
    """
    for edit in _edits(bench, lines, of_gradients, others):
        if bench.edited > limits.LONGEST_EDITS:
            return None
        with _trying(bench):
            left = deviation(edit)
        if left <= limits.LIVE_FLOAT64:
            return edit, left
    return None


def _edits(
    bench: Bench,
    lines: Collection[str],
    of_gradients: bool,
    others: Sequence[str] = EVERYWHERE,
    numbers: Sequence[float] = (),
    functions: Sequence[str] = (),
) -> Iterator[CodeEdit]:
    found = [
        CodeEdit(line, number, True, *edit)
        for line, edits in bench.torch.code_edits(
            [*lines], others=others, numbers=numbers, functions=functions
        ).items()
        for number, edit in enumerate(edits)
        # Where numbers differ, what gradients do is no cause; where they do not, hardly anything else.
        if (
            edit[0] in (*_OF_GRADIENTS, "operand", "too_much")
            if of_gradients
            else edit[0] not in _OF_GRADIENTS
        )
    ]
    # Other tensors are many, and tried at last.
    yield from sorted(
        found, key=lambda e: (e.kind not in _OF_GRADIENTS, e.line not in lines, e.kind == "operand")
    )
