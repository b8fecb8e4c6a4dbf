"""What training would take on more devices: measured computation and messages, and a model of the links.

A step takes compute + exposed communication:

compute   fixed + per_sample x local batch + the optimizer, from the single replica's phases and from the
          smallest number of replicas in strong scaling
messages  by the alpha-beta model of `links`, of the sizes that a replica sends; the fastest algorithm
overlap   exposed = messages - share hidden x min(messages, the passes that messages run beside)

The parameters come from the single replica and the fewest replicas. All other measured points are
predicted, which shows how far the model can be believed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from parity.common.scaling.links import ALGORITHMS, LOOPBACK, Link, Network, fastest, network_seconds, terms
from parity.common.scaling.result import (
    Configuration,
    Mode,
    PhaseTimes,
    ProjectedPoint,
    Projection,
    Validation,
)

PROJECTED_DEVICES = 1024
# A strategy with one of these messages divides the optimizer's work among the replicas.
_DIVIDING = {"reduce_scatter", "broadcast"}


@dataclass(frozen=True)
class Model:
    """One strategy of one framework. Seconds, of one device with one replica.

    global_batch: of the single replica; what strong scaling divides and weak scaling multiplies.
    messages: (operation, bytes of one, how many) that a replica sends in a step.
    beside: of the passes, the part that messages run beside. hidden: of what could be hidden, the
    share that is.
    """

    global_batch: int
    fixed: float
    per_sample: float
    optimizer: float
    divided_optimizer: bool
    messages: tuple[tuple[str, int, int], ...]
    beside: float
    hidden: float
    network: Network

    def passes(self, local_batch: float) -> float:
        """Loading, forward and backward pass of a local batch."""
        return self.fixed + self.per_sample * local_batch

    def point(self, devices: int, mode: Mode, crowding: float = 1.0) -> ProjectedPoint:
        """A step on `devices`; `crowding` threads share a core."""
        batch = self.global_batch * (devices if mode == "weak" else 1)
        passes = self.passes(batch / devices)
        optimizer = self.optimizer / (devices if self.divided_optimizer else 1)
        compute = crowding * (passes + optimizer)
        parts = [
            (size * count, count, *fastest(self.network, operation, size, devices))
            for operation, size, count in self.messages
        ]
        communication = sum(count * seconds for _, count, seconds, _ in parts)
        exposed = communication - self.hidden * min(communication, crowding * self.beside * passes)
        step = compute + exposed
        alone = step if devices == 1 else self.point(1, mode).step_seconds
        throughput = batch / step
        speedup = throughput / (self.global_batch / alone)
        algorithm = max(parts)[3] if parts and devices > 1 else "none"
        seconds = (compute, communication, exposed, step)
        return ProjectedPoint(devices, mode, algorithm, *seconds, throughput, speedup, speedup / devices)


def project(
    baseline: Configuration, measured: Sequence[Configuration], devices: int, network: Network | None = None
) -> Projection:
    """Project one strategy to up to `devices`.

    Args:
        baseline: the framework's single replica.
        measured: the strategy on more replicas, in any mode.
        network: that is projected to; None: the one that was measured.
    """
    first = measured[0]
    # The fewest replicas, in strong scaling where there is.
    timed = [c for c in measured if c.phases is not None]
    fitted = min(timed, key=lambda c: (c.oversubscribed, c.replicas, c.mode == "weak"), default=None)
    if baseline.phases is None or fitted is None or fitted.phases is None:
        why_not = (
            f"no phase times of {baseline.label if baseline.phases is None else first.label};"
            " record them with --phase_repeats"
        )
        return Projection(first.framework, first.strategy, "", (), (), (), math.nan, why_not)
    here = _model(baseline, fitted, baseline.phases, fitted.phases)
    there = here if network is None else replace(here, network=network)
    counts = sorted({devices, *(2**power for power in range(devices.bit_length()))} - {0})
    strong = [there.point(count, "strong") for count in counts if count <= baseline.global_batch]
    points = (*strong, *(there.point(count, "weak") for count in counts))
    validation = tuple(_validate(here, c, c in (baseline, fitted)) for c in (baseline, *measured))
    crowded = [c.oversubscribed for c in (baseline, *measured)]
    # Devices of a projection are not shared, so that points that share cores count only for want of others.
    checked = [(shared, abs(v.error)) for v, shared in zip(validation, crowded, strict=True) if not v.fitted]
    errors = [error for shared, error in checked if not shared] or [error for _, error in checked]
    return Projection(
        first.framework,
        first.strategy,
        str(there.network),
        points,
        tuple(_assumptions(there, here, baseline, fitted, points)),
        validation,
        max(errors, default=math.nan),
    )


def _model(baseline: Configuration, fitted: Configuration, alone: PhaseTimes, together: PhaseTimes) -> Model:
    scales = [_scale(baseline, alone), _scale(fitted, together)]
    batch, replicas = baseline.global_batch, fitted.replicas
    passes, shared = (phases.data + phases.forward + phases.backward for phases in (alone, together))
    point = fitted.global_batch / replicas, scales[1] * shared / fitted.crowding
    fixed, per_sample = _passes((batch, scales[0] * passes), point)
    messages = tuple(message for message in together.sizes if message[1])
    # Gathered parameters are awaited in the forward pass too.
    beside = together.backward + (together.forward if "all_gather" in together.messages else 0.0)
    hideable = min(together.communication, beside)
    return Model(
        batch,
        fixed,
        per_sample,
        alone.optimizer * scales[0],
        not _DIVIDING.isdisjoint(together.messages),
        messages,
        beside / shared,
        min(1.0, together.hidden / hideable) if hideable > 0 else 0.0,
        Network(measured_link(messages, scales[1] * together.communication, replicas)),
    )


def _scale(configuration: Configuration, phases: PhaseTimes) -> float:
    """What a phase takes in a step of the run, over what it takes on its own."""
    parts = phases.data + phases.forward + phases.backward + phases.optimizer + phases.exposed
    return configuration.step_seconds.median / parts


def _passes(alone: tuple[float, float], together: tuple[float, float]) -> tuple[float, float]:
    """(fixed, per sample) seconds of a straight line through two (local batch, seconds)."""
    (batch, seconds), (local, shared) = alone, together
    if batch == local:
        return 0.0, seconds / batch
    per_sample = (seconds - shared) / (batch - local)
    fixed = seconds - per_sample * batch
    if fixed >= 0 and per_sample > 0:
        return fixed, per_sample
    # Faster a sample at the smaller batch (caches), or no slower at the larger one: nothing is fixed, or all.
    return (0.0, seconds / batch) if fixed < 0 else (seconds, 0.0)


def measured_link(messages: Sequence[tuple[str, int, int]], seconds: float, devices: int) -> Link:
    """The link that explains what all messages of a step took on a few devices, by the fastest algorithms.

    One time cannot tell alpha from the bandwidth: alpha is the loopback preset's, but at most half
    of the time is left to it.
    """
    link = LOOPBACK
    # Which algorithm is the fastest depends on the link; it settles at once.
    for _ in range(3):
        hops = moved = 0.0
        for operation, size, count in messages:
            algorithm = fastest(Network(link), operation, size, devices)[1]
            steps, share = terms(algorithm, operation, devices) or (0.0, 0.0)
            hops, moved = hops + steps * count, moved + share * size * count
        if seconds <= 0 or not hops or not moved:
            return LOOPBACK
        alpha = min(LOOPBACK.alpha, 0.5 * seconds / hops)
        bandwidth = moved / (seconds - hops * alpha)
        link = Link("measured here", alpha, bandwidth, f"from {devices} replicas' messages")
    return link


def _validate(model: Model, configuration: Configuration, fitted: bool) -> Validation:
    c, measured = configuration, configuration.step_seconds.median
    predicted = model.point(c.replicas, c.mode, c.crowding).step_seconds
    return Validation(c.label, c.replicas, c.mode, measured, predicted, predicted / measured - 1, fitted)


def _assumptions(
    model: Model,
    here: Model,
    baseline: Configuration,
    fitted: Configuration,
    points: Sequence[ProjectedPoint],
) -> list[str]:
    together = fitted.phases
    assert together is not None
    sent = ", ".join(
        f"{together.messages[name]:,} {name} of {size:,} bytes together"
        for name, size in together.message_bytes.items()
    )
    what = "divided among the devices" if model.divided_optimizer else "whole on every device"
    lines = [
        f"Computation as measured on {baseline.label} and {fitted.label}: {1e3 * model.per_sample:.3g} ms a sample"
        f" and {1e3 * model.fixed:.3g} ms a step, whatever its batch; the optimizer takes"
        f" {1e3 * model.optimizer:.3g} ms, {what}.",
        "Devices are all alike and share nothing: no cores, caches, memory or disks. None is late, none fails.",
        f"A replica sends {sent or 'nothing'} a step, however many there are.",
        f"Links: {model.network}. Every device sends and receives at full speed at once; messages do not"
        " meet, and follow each other.",
        "Of ring, tree, recursive doubling and recursive halving, each operation takes the fastest.",
        f"{model.hidden:.0%} of the messages that fit beside {model.beside:.0%} of the passes are hidden, as on"
        f" {fitted.label}.",
        f"Strong scaling divides a global batch of {model.global_batch:,}, to one sample a device at most; weak"
        f" scaling gives each device {model.global_batch:,}.",
    ]
    if here.network != model.network:
        lines.append(f"The measured points are predicted with the links they ran on: {here.network}.")
    if points and model.messages:
        lines.append(_alternatives(model, points[-1].devices))
    return lines


def _alternatives(model: Model, devices: int) -> str:
    """What each algorithm takes for the messages that move most at the largest number of devices."""
    operation, size, count = max(model.messages, key=lambda message: message[1] * message[2])
    times = {name: network_seconds(model.network, name, operation, size, devices) for name in ALGORITHMS}
    listed = ", ".join(f"{name} {1e3 * count * t:.3g} ms" for name, t in times.items() if math.isfinite(t))
    return f"{count:,} {operation} of {size:,} bytes on {devices:,} devices: {listed}."
