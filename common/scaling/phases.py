"""Where a step's time goes, and where the efficiency went that is missing from 100 %."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from parity.common.base.errors import RecordError
from parity.common.record import RunRecord
from parity.common.scaling.result import Cause, Configuration, Loss, PhaseTimes

COMPUTE = ("data", "forward", "backward", "optimizer")
PHASES = (*COMPUTE, "communication", "exposed_communication", "step")
# A smaller loss than this share of a step is not worth a cause.
_NOTHING = 0.01


def phase_times(records: Sequence[RunRecord]) -> PhaseTimes | None:
    """Medians over the rounds of one configuration; None where a record has no phase times."""
    found = [times for times in map(_of_record, records) if times is not None]
    if not found:
        return None
    seconds = {name: float(np.median([times[0][name] for times in found])) for name in found[0][0]}
    _, messages, ranks = found[0]
    # Of a replica that sends nothing, only the noise of two equal passes.
    exposed = max(0.0, seconds["exposed_communication"]) if messages else 0.0
    communication = seconds["communication"] if messages else 0.0
    return PhaseTimes(
        **{name: seconds[name] for name in (*COMPUTE, "step", "imbalance")},
        communication=communication,
        exposed=exposed,
        hidden=max(0.0, communication - exposed),
        ranks=ranks,
        message_bytes={name: sum(size for n, size in messages if n == name) for name, _ in messages},
        messages=dict(Counter(name for name, _ in messages)),
        sizes=tuple((name, size, count) for (name, size), count in Counter(messages).items()),
    )


def _of_record(record: RunRecord) -> tuple[dict[str, float], list[tuple[str, int]], int] | None:
    """(seconds by phase, messages, ranks): medians over the repeats, means over the ranks."""
    try:
        ranks: list[dict[str, Any]] = record.phases
    except RecordError:  # a trainer that measures none
        return None
    repeats = {name: [facts.get("seconds", {}).get(name) or [math.nan] for facts in ranks] for name in PHASES}
    medians = {name: [float(np.median(np.array(each, float))) for each in of] for name, of in repeats.items()}
    if not ranks or any(math.isnan(value) for name in PHASES for value in medians[name]):
        return None
    seconds = {name: float(np.mean(values)) for name, values in medians.items()}
    computing = np.sum([medians[name] for name in COMPUTE], axis=0)
    seconds["imbalance"] = float(computing.max() - computing.mean())
    messages = [(str(name), int(size)) for name, size in ranks[0].get("messages", [])]
    return seconds, messages, len(ranks)


def loss_of(configuration: Configuration, baseline: Configuration, weak: Configuration | None) -> Loss:
    """Where the seconds went that a step takes beyond the ideal.

    The ideal is the single replica's step over the replicas for strong scaling, and that step itself
    for weak scaling, of a batch as large as each replica's. All parts but the messages are what a
    phase takes beyond the same ideal of the single replica's phase. Passes at a smaller batch are
    slower for two reasons, which a weak run of as many replicas tells apart: it has the baseline's
    batch a replica, so that only shared cores, caches and memory can have slowed it down.

    Args:
        weak: as many replicas of the same strategy in weak scaling, where there is such a run.
    """
    replicas = configuration.replicas
    divided = replicas if configuration.mode == "strong" else 1
    step = configuration.step_seconds.median
    ideal = baseline.step_seconds.median / divided
    lost = step - ideal
    causes: list[Cause] = []
    ours, alone = configuration.phases, baseline.phases

    def add(name: str, seconds: float, how: str) -> None:
        of_loss = seconds / lost if abs(lost) > _NOTHING * step else math.nan
        causes.append(Cause(name, seconds, seconds / step, of_loss, how))

    if ours is not None and alone is not None:
        add("communication", ours.exposed, "passes with the reduction less those without")
        add("data", max(0.0, ours.data - alone.data / divided), "beyond the single replica's share")
        add("imbalance", ours.imbalance, "the slowest rank's computation less the mean")
        add("optimizer", max(0.0, ours.optimizer - alone.optimizer / divided), "not divided by the replicas")
        passes = ours.forward + ours.backward
        excess = max(0.0, passes - (alone.forward + alone.backward) / divided)
        shared, small, how = _excess(configuration, alone, passes, excess, weak)
        add("cores shared", shared, how)
        add("batch too small", small, how)
    explained = sum(cause.seconds for cause in causes)
    add("unexplained", lost - explained, "the rest" if causes else "no phase times were recorded")
    c, sentence = configuration, _sentence(configuration, causes, lost, step)
    return Loss(c.label, c.framework, replicas, c.mode, step, ideal, lost, tuple(causes), sentence)


def _excess(
    configuration: Configuration, alone: PhaseTimes, passes: float, excess: float, weak: Configuration | None
) -> tuple[float, float, str]:
    """(cores shared, batch too small, how they were distinguished) of what the passes take too long."""
    if configuration.mode == "weak":
        return excess, 0.0, "the batch a replica is the single replica's"
    if weak is not None and weak.phases is not None:
        slower = (weak.phases.forward + weak.phases.backward) / (alone.forward + alone.backward)
        shared = min(excess, passes * max(0.0, 1 - 1 / slower))
        return shared, excess - shared, f"the passes take {slower:.2f} times as long in weak scaling"
    if configuration.oversubscribed:
        return excess, 0.0, "more threads than cores; indistinguishable from a small batch without a weak run"
    return 0.0, excess, "indistinguishable from shared caches and memory without a weak run"


def _sentence(configuration: Configuration, causes: Sequence[Cause], lost: float, step: float) -> str:
    name = configuration.label + (" in weak scaling" if configuration.mode == "weak" else "")
    if not math.isfinite(lost):
        return f"{name}: no steps were timed."
    if lost <= _NOTHING * step:
        return f"{name} loses nothing that could be seen."
    text = f"{name} loses {lost / step:.0%} of a step"
    if len(causes) == 1:
        return f"{text}; no phase times were recorded that could say where."
    largest = max(causes, key=lambda cause: cause.seconds)
    return f"{text}, most of it to {_WORDS[largest.name]} ({largest.share_of_step:.0%} of a step)."


_WORDS = {
    "communication": "communication that nothing hides",
    "data": "waiting for data",
    "imbalance": "ranks that wait for the slowest",
    "optimizer": "the optimizer, which every replica runs whole",
    "cores shared": "cores, caches and memory that the replicas share",
    "batch too small": "costs that a smaller batch does not reduce",
    "unexplained": "something that the phases do not show",
}
