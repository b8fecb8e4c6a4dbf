"""What the phases of a training step hand on: local gradients -> reduced -> the step's result."""

from __future__ import annotations

from typing import Any, NamedTuple


class LocalGradients(NamedTuple):
    """What a replica's passes leave: gradients of its loss sum (times the loss scale), that sum, and its count.

    gradients: in PyTorch as the backward passes left them, which may have reduced them. rest: in TensorFlow the
    fingerprints of the activations, where the step is tapped; in PyTorch waits for the sums over the replicas of
    loss sum, count and `Step.fingerprint`, which are on their way.
    """

    gradients: list[Any]
    loss_sum: Any
    count: Any
    rest: Any = ()


class Reduced(NamedTuple):
    """A step's gradients, loss sum and count, all global.

    gradients: in PyTorch this rank's parts, in pieces as of `Optimizer.join`. compared: what replicas are compared by:
    its sum over all, and this replica's. finite: whether all gradients are. taps: as of `StepResult`; in TensorFlow
    of this replica.
    """

    gradients: list[Any]
    loss_sum: Any
    count: Any
    compared: list[Any]
    finite: Any = True
    taps: Any = ()


class StepResult(NamedTuple):
    """What a step leaves behind, still on the device.

    numbers: loss sum, count, norms of gradient, parameters and update, all global. Then, by which replicas are
        compared: in TensorFlow fingerprints of several local ones after the step; of several processes the sum of
        `Step.fingerprint` over all replicas, and this process's own.
    ids: the sample ids of each replica that this process speaks for.
    gradients: the global batch's mean gradients before clipping, in the order of `model.parameters`.
    updated: whether the weights were updated; float16 skips a step whose gradients overflowed.
    taps: of each of these replicas, [names, 2]; empty where nothing is tapped.
    """

    numbers: Any
    ids: list[Any]
    gradients: list[Any]
    updated: Any = True
    taps: Any = ()
