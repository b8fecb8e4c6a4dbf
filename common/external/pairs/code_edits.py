"""Causes that are a small edit of the user's torch code: with it, what deviates agrees."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from parity.common.diagnosis import limits
from parity.common.diagnosis.result import Explanation
from parity.common.external.pairs.bench import Bench
from parity.common.external.pairs.places import CAUSE

# What is no computation of other numbers.
_OF_GRADIENTS = ("stopped", "through")
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
    "too_much": "too much",
    "operand": "another tensor",
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

    def explanation(self, confirmed: bool, evidence: str, layers: tuple[str, ...]) -> Explanation:
        """The explanation that the code should be so."""
        of_gradients = self.kind in _OF_GRADIENTS
        due = f"`{self.after}`" if self.after else "nothing"
        what = _IN_WORDS[self.kind]
        where = "what agrees with Keras is" if of_gradients else "what Keras computes is"
        return Explanation(
            f"gradient:{self.kind}" if of_gradients else f"{CAUSE}{self.kind}",
            f"{self.line}: {what}: torch has `{self.before}`, and {where} {due}",
            "confirmed" if confirmed else "likely",
            f"in torch, at {self.line}: {self.after or 'take it away'}",
            evidence,
            defect=f"{self.kind} {self.after}",
            layers=layers,
        )


def fitting_edit(
    bench: Bench,
    lines: Collection[str],
    deviation: Callable[[CodeEdit], float],
    *,
    of_gradients: bool = False,
    beside: bool = True,
) -> tuple[CodeEdit, float] | None:
    """The edit of torch's code with which all agrees, and what deviation is left; None where there is none, or time is over.

    Args:
        lines: of the user's code, that are edited first; then the rest of their functions.
        deviation: what is left with an edit.
        of_gradients: whether gradients alone deviate: then those edits are tried first that stop them.
        beside: whether the rest of the functions is edited, too.
    """
    for edit in _edits(bench, lines, of_gradients, beside):
        if bench.edited > limits.LONGEST_EDITS:
            return None
        began = time.monotonic()
        left = deviation(edit)
        bench.edited += time.monotonic() - began
        if left <= limits.LIVE_FLOAT64:
            return edit, left
    return None


def _edits(bench: Bench, lines: Collection[str], of_gradients: bool, beside: bool) -> Iterator[CodeEdit]:
    found = [
        CodeEdit(line, number, True, *edit)
        for line, edits in bench.torch.code_edits([*lines]).items()
        if beside or line in lines
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
