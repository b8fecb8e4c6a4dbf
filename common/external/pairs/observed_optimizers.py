"""What a user's own optimizer does, told from its updates: the formula that makes the same of the same gradients.

A class of one's own may do other than what it derives from. Its settings are tried as they stand, then with other places
of epsilon, clippings and weight decays, each with numbers that the optimizers themselves hold; a decay may be of some
tensors only.
"""

from __future__ import annotations

import glob
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import ValidationError

from parity.common import reference
from parity.common.diagnosis import limits
from parity.common.external.process.pass_result import Array, Arrays
from parity.common.parity.deviation import tensor_deviation
from parity.common.spec.optimizers import OptimizerBase, parse_optimizer
from parity.common.spec.optimizers.base import COMMON

# By setting: what a clipping does, how Keras is told, how torch.
CLIPPED = {
    "clip_global_norm": (
        "clips all gradients by their common norm, at {:g}",
        "global_clipnorm={:g}",
        "clip_grad_norm_(parameters, {:g})",
    ),
    "clip_norm": (
        "clips each tensor's gradient by its own norm, at {:g}",
        "clipnorm={:g}",
        "clip_grad_norm_ of each parameter by itself, {:g}",
    ),
    "clip_value": ("clips each element, at {:g}", "clipvalue={:g}", "clip_grad_value_(parameters, {:g})"),
}
CLIPS = tuple(CLIPPED)

# The changes that a spec makes of some tensors, by gradients of each update.
Changes = Callable[[OptimizerBase, Sequence[Arrays], Sequence[str]], Arrays]


def observed(
    declared: OptimizerBase, numbers: Sequence[float], changes: Changes, moved: Arrays, sets: Sequence[Arrays]
) -> OptimizerBase | None:
    """The formula that an optimizer follows; None where none of those tried does.

    Args:
        declared: its settings, as it holds them.
        numbers: positive ones that either optimizer holds: limits of clippings and weight decays.
        changes: of a formula that clips nothing: (spec, gradients of every update, names) -> changes of these tensors.
        moved: what the optimizer made of the tensors that were given gradients.
        sets: those gradients, of each update.
    """
    smallest_first = sorted(moved, key=lambda name: moved[name].size)
    for clipping in _clippings(declared, numbers):
        clipped = [reference.clip(clipping, gradients) for gradients in sets]
        for spec in _variants(clipping, numbers):
            undecayed = _undecayed(spec, changes, moved, clipped, smallest_first)
            if undecayed is not None:
                mask = {"decay_mask": [glob.escape(name) for name in undecayed]}
                return with_fields(spec, mask) if undecayed else spec
    return None


def _undecayed(
    spec: OptimizerBase, changes: Changes, moved: Arrays, clipped: Sequence[Arrays], names: Sequence[str]
) -> list[str] | None:
    """The tensors that do not decay; None where a tensor follows the formula neither with its decay nor without."""
    found: list[str] = []
    for name in names:
        if _follows(spec, changes, moved, clipped, name):
            continue
        plain = spec.model_copy(update={"weight_decay": 0.0})
        if not spec.weight_decay or not _follows(plain, changes, moved, clipped, name):
            return None
        found.append(name)
    return sorted(found)


def _follows(
    spec: OptimizerBase, changes: Changes, moved: Arrays, clipped: Sequence[Arrays], name: str
) -> bool:
    due: Array = changes(spec.model_copy(update=dict.fromkeys(CLIPS)), clipped, [name])[name]
    return tensor_deviation(moved[name], due) <= limits.LIVE_FLOAT64


def _clippings(declared: OptimizerBase, numbers: Sequence[float]) -> Iterator[OptimizerBase]:
    """An optimizer with its own clipping, with none, and with others."""
    yield declared
    none = dict.fromkeys(CLIPS)
    choices = [none]
    for limit, clip in itertools.product(numbers, CLIPS):
        epsilons = COMMON["clip_epsilon"] if clip != "clip_value" else (0.0,)
        choices += [{**none, clip: limit, "clip_epsilon": epsilon} for epsilon in epsilons]
    yield from _each(declared, choices)


def _variants(spec: OptimizerBase, numbers: Sequence[float]) -> Iterator[OptimizerBase]:
    """An optimizer of a given clipping with other settings, those that change least first."""
    yield spec
    fields = type(spec).model_fields
    axes: list[list[dict[str, Any]]] = []
    if "epsilon_place" in fields:
        kinds = get_args(fields["epsilon_place"].annotation)
        axes.append([{}, *({"epsilon_place": place} for kind in kinds for place in get_args(kind))])
    if "nesterov" in fields:
        axes.append([{}, {"nesterov": True}, {"nesterov": False}])
    modes = ("decoupled", "coupled")
    decays = itertools.product(numbers, modes)
    axes.append(
        [{}, {"weight_decay": 0.0}, *({"weight_decay": d, "weight_decay_mode": m} for d, m in decays)]
    )
    tried = sorted(itertools.product(*axes), key=lambda choice: sum(bool(part) for part in choice))
    choices = [{name: value for part in choice for name, value in part.items()} for choice in tried]
    yield from _each(spec, [{"decay_mask": "all", **choice} for choice in choices])


def _each(spec: OptimizerBase, choices: Sequence[Mapping[str, Any]]) -> Iterator[OptimizerBase]:
    return (found for values in choices if (found := with_fields(spec, values)) is not None)


def with_fields(spec: OptimizerBase, values: Mapping[str, Any]) -> OptimizerBase | None:
    """A spec with some fields changed; None where it does not allow that."""
    try:
        return parse_optimizer({**spec.to_dict(), **values})
    except ValidationError:
        return None
