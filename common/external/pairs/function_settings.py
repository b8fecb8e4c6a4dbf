"""Causes that are a setting of one of torch's functions, as code calls it: `align_corners`, `count_include_pad`, an axis, a norm."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from parity.common.base.errors import ExternalModelError
from parity.common.diagnosis import limits
from parity.common.diagnosis.result import Explanation
from parity.common.external.pairs.bench import Bench
from parity.common.external.process.objective import BatchLoss


@dataclass(frozen=True, eq=False)
class FunctionSetting:
    """A way that a function of torch's goes wherever a line calls it, as by another setting; None: that of the code."""

    function: str
    way: str | None

    def make(self, bench: Bench) -> FunctionSetting:
        """Have it so, and return what takes it back."""
        return FunctionSetting(self.function, bench.torch.set_function(self.function, self.way))


def fitting_setting(
    bench: Bench,
    lines: Collection[str],
    deviation: Callable[[FunctionSetting], float],
    *,
    training: bool,
    loss: BatchLoss | None = None,
) -> tuple[FunctionSetting, tuple[str, str], float] | None:
    """The setting of a function with which all agrees, what it is now and what it is then in words, and what deviation is left; None where there is none, or time is over.

    Where none leaves nothing, that which leaves what constants make that code rounds to float32.

    Args:
        lines: of the user's code, whose functions are tried.
        deviation: what is left with a setting.
        training: the mode. loss: of the user's own, whose functions are tried, too.
    """
    nearest: tuple[FunctionSetting, tuple[str, str], float] | None = None
    try:
        functions = bench.torch.function_settings(bench.inputs[1], loss, training=training)
    except ExternalModelError:  # it is called as no function is that we know
        return None
    for function, ways in functions.items():
        for way, words in ways.items() if function.partition(" ")[2] in lines else ():
            if bench.searched > limits.LONGEST_IN_ALL:
                return nearest
            began = bench.busy
            left = deviation(FunctionSetting(function, way))
            bench.searched += bench.busy - began
            if left <= (limits.ROUNDED_CONSTANT if nearest is None else nearest[2]):
                nearest = FunctionSetting(function, way), words, left
            if left <= limits.LIVE_FLOAT64:
                return nearest
    return nearest


def in_words(
    setting: FunctionSetting, words: tuple[str, str], confirmed: bool, evidence: str, layers: tuple[str, ...]
) -> Explanation:
    """The explanation that a function should go a way; words: what it has now, and then."""
    name, _, line = setting.function.partition(" ")
    has, due = words
    return Explanation(
        f"setting:{name}",
        f"{line}: torch's {name} has {has}, and Keras computes what it gives with {due}",
        "confirmed" if confirmed else "likely",
        f"in torch: {due}",
        evidence,
        defect=f"{name} {due}",
        layers=layers,
    )
