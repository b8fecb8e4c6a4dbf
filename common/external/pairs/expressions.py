"""What a model computes, as an expression of tensors that both models have, and how it is told."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

# As deep as this an expression is told, and what is deeper as '...', unless all of it is longer than this.
_LEAST_DEPTH, _DEEPEST, _LENGTH = 3, 12, 360
# What makes a tensor names it where it is no longer than this.
LONGEST_NAME = 120
# Of more operands only some are told.
_OPERANDS = 5
# How tensors are called that are no weight, no input and nothing of the other model: by their numbers, or their shape.
UNNAMED = ("the numbers", "a tensor of")
# How masks are called that code makes in many ways.
CAUSAL, HIDDEN = "a causal mask", "what a causal mask hides"
BETWEEN = {"add": "+", "sub": "-", "mul": "*", "div": "/", "matmul": "@"}
# What takes a part of a tensor.
PARTS = ("take", "slice")
COMMUTATIVE = frozenset(("add", "mul", "maximum", "minimum", "eq", "ne", "and", "or"))
# Numbers below this hide what they stand for.
FAR_BELOW = -1e4


@dataclass(frozen=True)
class Expression:
    """An operation on expressions; or a tensor that both models have, or a number.

    name: of the operation, '' for a tensor or a number. same: of a tensor that both have, its number in Keras's pass. number:
    that all elements are. text: how a tensor is called, '' for numbers that are no weights. tensor: its number in its own pass. settings: as the framework has them.
    chain: how the tensor is rearranged before it is used. used: its number then. shape: with which it is used. line: of the user's code. called: from where.
    """

    name: str = ""
    operands: tuple[Expression, ...] = ()
    settings: tuple[tuple[str, Any], ...] = ()
    same: int | None = None
    number: float | None = None
    text: str = ""
    chain: tuple[str, ...] = field(default=(), compare=False)
    shape: tuple[int, ...] = field(default=(), compare=False)
    tensor: int | None = field(default=None, compare=False)
    used: int | None = field(default=None, compare=False)
    line: str = field(default="", compare=False)
    called: str = field(default="", compare=False)

    def __str__(self) -> str:
        text = self.told(_LEAST_DEPTH)
        for depth in range(_LEAST_DEPTH + 1, _DEEPEST):
            more = self.told(depth) if "..." in text else text
            if len(more) > _LENGTH:
                break
            text = more
        return text

    def told(self, depth: int) -> str:
        """In words; parts that are deeper are left out."""
        if not self.name:
            return self.text or f"{self.number:.9g}"
        if not depth:
            return "..."
        operands = [each.told(depth - 1) for each in self.operands]
        if len(operands) > _OPERANDS:
            # Of a stack of all steps the first ones say what the others are.
            operands = [*operands[:2], "...", operands[-1]]
        sign = BETWEEN.get(self.name)
        if sign is not None and len(operands) == 2:
            of_sums = [
                f"({text})" if each.name in BETWEEN and text != "..." else text
                for each, text in zip(self.operands, operands, strict=True)
            ]
            return f" {sign} ".join(of_sums)
        if self.name in PARTS and operands:
            of, taken = _of_part(self)
            told = of.told(depth - 1)
            return f"{f'({told})' if of.name in BETWEEN and told != '...' else told}{_index(taken)}"
        # A name of a sum needs no brackets here.
        sums = {each.text for each in self.operands if not each.name and _is_in_brackets(each.text)}
        operands = [text[1:-1] if text in sums else text for text in operands]
        settings = [f"{name}={brief(value)}" for name, value in self.settings]
        return f"{self.name}({', '.join([*operands, *settings])})"

    def parts(self) -> list[Expression]:
        """This and all that it consists of, each once: what a loop computes is a part of all that comes after it."""
        found, waiting, seen = [], [self], {id(self)}
        while waiting:
            part = waiting.pop()
            found.append(part)
            new = [each for each in part.operands if id(each) not in seen]
            seen |= set(map(id, new))
            waiting += new
        return found

    @cached_property
    def shared(self) -> Counter[int]:
        """How often each tensor that both models have stands in it."""
        return Counter(part.same for part in self.parts() if part.same is not None)


def _of_part(part: Expression) -> tuple[Expression, dict[int, str]]:
    """Of what a part is taken, and by axis what: slices of several axes are one part."""
    of, taken = part, dict[int, str]()
    while of.name in PARTS and of.operands:
        settings = dict(of.settings)
        axis = settings.get("axis", 0)
        ends = [str(settings.get(name, "")) for name in ("start", "stop", "step")]
        if taken and (of.name != "slice" or axis < 0 or axis in taken or min(taken) < 0):
            break
        taken[axis] = (
            str(settings["index"]) if "index" in settings else ":".join(ends if ends[2] else ends[:2])
        )
        of = of.operands[0]
        if "index" in settings:  # it has an axis less
            break
    return of, taken


def _index(taken: Mapping[int, str]) -> str:
    """A part of a tensor as one indexes it: '[:, 1:]'."""
    first, last = min(taken), max(taken)
    if first < 0:
        return f"[..., {taken[first]}{', :' * (-first - 1)}]"
    return f"[{', '.join(taken.get(axis, ':') for axis in range(last + 1))}]"


def _is_in_brackets(text: str) -> bool:
    """Whether one pair of brackets is around all of a text; it is not around '(a + b)[:, 1]' or '(a) + (b)'."""
    depths = list(itertools.accumulate((char == "(") - (char == ")") for char in text))
    return text.startswith("(") and all(depths[:-1]) and not depths[-1]


def brief(value: Any) -> str:
    """A setting's value, as a call would say it."""
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(brief, value))}{',' if len(value) == 1 else ''})"
    return str(value)


def is_far_below(one: Expression) -> bool:
    """Whether it is a number that hides what it stands for, as minus infinity does."""
    return one.number is not None and one.number <= FAR_BELOW
