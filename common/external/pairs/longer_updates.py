"""The users' own optimizers over a whole training: a limit that is reached late, an average of weights, a schedule of a class's own.

Three updates do not show these. The gradients are Keras's along the training by our optimizer of the same settings, and both optimizers are
given all of them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from parity.common.diagnosis import limits
from parity.common.diagnosis.result import Explanation, Finding, TensorComparison
from parity.common.external.pairs.bench import Bench, taken
from parity.common.external.pairs.checks import acting_later
from parity.common.external.pairs.given_gradients import (
    Rate,
    beyond_limits,
    mapped_alone,
    moved_by,
    moves,
    numbers_held,
    why_updates_part,
)
from parity.common.external.pairs.later_steps import bench_at
from parity.common.external.pairs.request import PairRequest
from parity.common.external.pairs.updates import slots_of, updated
from parity.common.external.process.pass_result import Arrays
from parity.common.parity.deviation import tensor_deviation
from parity.common.spec import TrainSpec
from parity.common.spec.external.target import Target
from parity.common.spec.optimizers import OptimizerBase

# Of the gradients that are kept, and of the time that taking them may need.
_MOST_BYTES, _LONGEST = 2**29, 60.0
# Of a pair that is not trained; and the steps of which gradients are made beyond a limit.
_LONGEST_ALONE, _FEW = 15.0, 3


def longer_updates(
    bench: Bench, optimizers: tuple[Target, Target], rule: OptimizerBase, asked: PairRequest, spec: TrainSpec
) -> tuple[list[Finding], str, str]:
    """Give both optimizers the gradients of the whole training, or of its first steps where it is long.

    Args:
        bench: both models, with equal weights, which they have again afterwards.
        optimizers: Keras's and torch's.
        rule: what both do by their settings, which the training goes by.
        asked, spec: where the samples are, and of the training.

    Returns:
        Where they part; what was compared, in one line; and what has to stand beside a verdict, '' where all steps were compared.
    """
    sets = _along(bench, rule, spec.steps, lambda step: bench_at(step, bench, asked, spec), _LONGEST)
    rate = bench.rates or None
    apart = _apart(bench, optimizers, sets, rate)
    worst = max(apart.values(), default=0.0)
    told = f"optimizers: {len(sets)} updates by the gradients of this training differ by at most {worst:.2g}"
    short = (
        f"of {spec.steps} updates by your own optimizers the first {len(sets)} were compared"
        if len(sets) < spec.steps
        else ""
    )
    found = [] if worst <= limits.LIVE_FLOAT64 else [_parted(bench, optimizers, sets, "of this training")]
    return found, told, short


def updates_on_one_batch(
    bench: Bench, optimizers: tuple[Target, Target], rule: OptimizerBase, steps: int
) -> list[Finding]:
    """Give both optimizers the gradients of Keras's training on one batch: of a pair that differs in something else, and is not trained.

    Args: as of `longer_updates`; steps: of the training that was asked for.

    Returns:
        Where they part; nothing where nothing speaks for that they may.
    """
    own = any(outline.optimizer is None or not outline.optimizer.kind for outline in bench.outlines)
    if not (acting_later(bench) or own or len(set(bench.rates)) > 1):
        return []
    sets, rate = _along(bench, rule, steps, lambda step: bench, _LONGEST_ALONE), bench.rates or None
    if max(_apart(bench, optimizers, sets, rate).values(), default=0.0) > limits.LIVE_FLOAT64:
        return [_parted(bench, optimizers, sets, "of Keras's training on one batch")]
    # Another batch may reach what this one does not.
    largest = max(numbers_held(bench), default=0.0)
    if not largest:
        return []
    grown = [beyond_limits(each, largest, 1.0 + number) for number, each in enumerate(sets[:_FEW])]
    if max(_apart(bench, optimizers, grown, rate).values(), default=0.0) <= limits.LIVE_FLOAT64:
        return []
    found = _parted(bench, optimizers, grown, "with gradients made larger than all limits")
    assert found.explanation is not None
    largest_norm = max(
        math.sqrt(sum(float(np.square(value).sum()) for value in each.values())) for each in sets
    )
    evidence = (
        f"{found.explanation.evidence}; the gradients of one batch have a norm of at most {largest_norm:.3g}"
    )
    return [replace(found, explanation=replace(found.explanation, confidence="likely", evidence=evidence))]


def _parted(bench: Bench, optimizers: tuple[Target, Target], sets: Sequence[Arrays], whose: str) -> Finding:
    """Where optimizers part that make other updates of some gradients in the end, and why."""
    rate = bench.rates or None
    agree, differ = 0, len(sets)
    while differ - agree > 1:
        middle = (agree + differ) // 2
        if max(_apart(bench, optimizers, sets[:middle], rate).values()) <= limits.LIVE_FLOAT64:
            agree = middle
        else:
            differ = middle
    apart = _apart(bench, optimizers, sets[:differ], rate)
    tensors = tuple(
        TensorComparison(f"update/{name}", None, deviation, limits.LIVE_FLOAT64)
        for name, deviation in apart.items()
        if deviation > limits.LIVE_FLOAT64
    )
    why = (
        _changing_rate(bench, optimizers, sets, agree, whose)
        or why_updates_part(bench, optimizers, sets, agree, rate)
        or Explanation(
            "updates:later",
            f"{optimizers[0]} and {optimizers[1]} make the same {agree} updates {whose}, and another one at step {agree}",
            "likely",
            "have both do the same from that step on: an average of weights, a limit on single gradients, a schedule within a class of your own",
            f"by experiment: both were given the gradients of {len(sets)} steps {whose}",
        )
    )
    return Finding(agree, "update", tensors[0].name, (), tensors, (), explanation=why)


def _changing_rate(
    bench: Bench, optimizers: tuple[Target, Target], sets: Sequence[Arrays], step: int, whose: str
) -> Explanation | None:
    """That both do the same while the learning rate stays, and something else once it changes; None where that is not it."""
    if len(set(bench.rates[: len(sets)])) < 2:
        return None
    if max(_apart(bench, optimizers, sets, max(bench.rates)).values()) > limits.LIVE_FLOAT64:
        return None
    forms = [
        None if info.optimizer is None else info.optimizer.settings.get("momentum_form")
        for info in bench.outlines
    ]
    known = None not in forms and forms[0] != forms[1]
    how, fix = (
        (
            "Keras's velocity has the learning rate in it, and torch's momentum buffer has not",
            "where the rate changes, multiply torch's momentum buffers by the new rate over the old one; or keep Keras's velocity without"
            " the rate, in a subclass",
        )
        if forms == ["velocity", "buffer"]
        else (
            "they use the rate at another place, as in what is kept from step to step, or in a weight decay",
            "have both use the rate of the step at the same places",
        )
    )
    return Explanation(
        "setting:momentum_form" if known else "updates:changing_rate",
        f"the optimizers make the same updates while the learning rate stays, and others once it has changed, from step {step} on: {how}",
        "confirmed",
        fix,
        f"by experiment: given the gradients of {len(sets)} steps {whose} at one rate, both make the same updates",
    )


def _along(
    bench: Bench, rule: OptimizerBase, steps: int, at: Callable[[int], Bench], longest: float
) -> list[Arrays]:
    """The gradients of Keras's tensors at each step of a training by a rule, as many as time (seconds) and memory allow; at: the batch of a step."""
    began, found = time.monotonic(), list[Arrays]()
    whole = bench.keras.read()
    weights, slots = mapped_alone(bench, whole), dict[str, Any]()
    try:
        for step in range(steps):
            size = sum(value.nbytes for value in found[0].values()) if found else 0
            if found and (time.monotonic() - began > longest or size * (step + 1) > _MOST_BYTES):
                break
            here = at(step)
            passed = taken(here.keras, here.inputs[0], here.losses[0], training=True, taps=False)
            if not found:
                moved = moved_by(bench, passed.gradients, weights)
                weights = {name: weights[name] for name in moved}
                slots = slots_of(rule, weights)
            found.append({name: passed.gradients[name] for name in weights})
            rate = None
            if bench.rates:
                rate = (rule.learning_rate or 0.0) * bench.rates[step] / max(bench.rates)
            weights, slots = updated(rule, step, weights, found[-1], slots, rate)
            bench.keras.write(weights)
    finally:
        bench.keras.write(whole)
    return found


def _apart(
    bench: Bench, optimizers: tuple[Target, Target], sets: Sequence[Arrays], rate: Rate
) -> dict[str, float]:
    moved, other = moves(bench, optimizers, sets, rate)
    return {name: tensor_deviation(moved[name], other[name]) for name in moved}
