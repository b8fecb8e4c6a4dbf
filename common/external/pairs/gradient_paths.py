"""Causes that change nothing but gradients: a path that one side stops and the other does not, a row without gradient."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from parity.common.diagnosis import limits
from parity.common.diagnosis.result import Explanation
from parity.common.external.pairs.bench import Bench
from parity.common.external.pairs.explain import Attribution, DeviatingTensor
from parity.common.external.process.objective import BatchLoss

# Calls of a pass that are tried one by one before all alike are.
_FEW = 24
# Of so many alike, as those of a function that a loss calls for each of its operands, any part is tried.
_MOST_ALIKE = 6


@dataclass(frozen=True)
class GradientPath:
    """A call of torch's whose gradients go otherwise: call, its number in a pass; way: how, None: as they do; text: in words."""

    call: int
    way: str | None
    name: str = ""
    text: str = ""

    @property
    def stops(self) -> bool:
        """Whether a gradient is stopped that goes through."""
        return (self.way or "").startswith("stopped")

    @property
    def exchanges(self) -> bool:
        """Whether the weight of a term is given to another one."""
        return (self.way or "").startswith("exchanged")

    @property
    def fix(self) -> str:
        """What to do in torch, with a place for which calls."""
        if self.stops:
            return "put .detach() there, at {}"
        if self.way == "through":
            return "take the detach(), .data or no_grad() away, at {}"
        if self.way == "graph":
            return "give create_graph=True, at {}"
        if self.way == "of padding":
            return "leave out padding_idx, at {}; or in Keras give that row no gradient"
        if self.exchanges:
            return "give the weight to the other of the two terms, at {}"
        return "change {} in torch"

    def make(self, bench: Bench) -> GradientPath:
        """Have it so, and return what takes it back."""
        return GradientPath(self.call, bench.torch.alter(self.call, self.way))


def gradient_causes(
    tensor: DeviatingTensor,
    loss: BatchLoss | None = None,
    control: DeviatingTensor | None = None,
    limit: float | None = None,
) -> list[Attribution]:
    """Return the calls of torch's, one or several alike, with which a deviation of gradients vanishes, as one; none where none do.

    Args:
        tensor: what deviates.
        loss: of the user's own, whose calls are tried, too. control: what must vanish besides.
        limit: of the deviation that is left, LIVE_FLOAT64 where None; above it, where something else differs too, a cause is only likely.
    """
    limit = limits.LIVE_FLOAT64 if limit is None else limit
    measured, bench = [tensor] if control is None else [tensor, control], tensor.bench
    paths = [
        GradientPath(number, way, call["name"], f"{call['name']}{_at(call['line'])} {text}")
        for number, call in enumerate(bench.torch.gradient_paths(bench.inputs[1], loss))
        for way, text in call["ways"].items()
        if way != "of no padding"
    ]
    single, alike = [[each] for each in paths], list(_alike(paths))
    parts = (list(part) for group in alike for part in _parts(group))
    # In a loop each call is made many times, and all alike are what stands in the code.
    for tried in (*single, *alike, *parts) if len(paths) <= _FEW else (*alike, *single, *parts):
        # Operations may have taken all their time; gradients have half as much besides.
        if bench.searched > 1.5 * limits.LONGEST_IN_ALL:
            break
        began = bench.busy
        deviation = max(each.deviation_with(tried) for each in measured)
        bench.searched += bench.busy - began
        if deviation > limit:
            continue
        first, more = tried[0], len(tried) - 1
        these = f"these {more + 1} calls" if more else "this call"
        also = f", and so in {more} more call{'s' if more > 1 else ''}" if more else ""
        why = Explanation(
            f"gradient:{'stopped' if first.stops else 'weight' if first.exchanges else first.way}",
            f"torch's {first.text}{also}",
            "confirmed" if limit <= limits.LIVE_FLOAT64 else "likely",
            first.fix.format(these),
            tensor.by_experiment(deviation, f": with {these} made so"),
            defect="torch",
        )
        return [Attribution(why, tuple(tried))]
    return []


def _at(line: str) -> str:
    return f" ({line})" if line else ""


def _alike(paths: Sequence[GradientPath]) -> Iterator[list[GradientPath]]:
    """The same in all calls of a line, and of a function: code of a block is called by each of them."""
    groups: dict[tuple[str | None, ...], list[GradientPath]] = {}
    for each in paths:
        groups.setdefault((each.way, each.text), []).append(each)
    for each in paths:
        groups.setdefault((each.way, each.name, ""), []).append(each)
    return (group for group in groups.values() if len(group) > 1)


def _parts(group: Sequence[GradientPath]) -> Iterator[tuple[GradientPath, ...]]:
    """Several of a few calls of one line, and not all."""
    if len(group) <= _MOST_ALIKE and len({each.text for each in group}) == 1:
        for size in range(2, len(group)):
            yield from combinations(group, size)
