"""How long the phases of a step take in this process, and which messages a replica sends."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from parity.common.execution.phases import PASSES, REDUCED, Message, Probe, synchronised_channels
from parity.tf_impl.graphs.eager import graph_of
from parity.tf_impl.runtime import uses_gpu
from parity.tf_impl.step import Step
from parity.tf_impl.strategy import Strategy

_NUMBER = 0
_Shape = tuple[int, ...]


def wait(strategy: Strategy) -> None:
    """Wait for the devices of this process."""
    if uses_gpu(strategy.placement):
        tf.test.experimental.sync_devices()


def probes(step: Step, batch: Any, scalars: dict[str, float]) -> dict[str, Probe]:
    """What is timed of a step. Each part is a graph of its own, traced here."""
    strategy, number = step.strategy, tf.constant(_NUMBER, tf.int64)
    micro_batches = strategy.placement.micro_batches(0)
    scaled = {
        name: tf.constant(value, step.spec.master_dtype)
        for name, value in scalars.items()
        if name == "loss_scale"
    }

    def forward(*local: tf.Tensor) -> list[tf.Tensor]:
        pieces = step.micro_batches(local, _NUMBER)
        return [total for piece in pieces for total in step.pass_forward(piece, number)]

    def passes(*local: tf.Tensor) -> list[tf.Tensor]:
        step.pieces = micro_batches
        gradients, loss_sum, count, _, tapped = step.local_gradients(local, scaled, number)
        return [*tf.nest.flatten(tapped), *gradients, loss_sum, count]

    def reduced(*local: tf.Tensor) -> list[tf.Tensor]:
        return strategy.sum(passes(*local))

    def whole() -> None:
        step(batch, scalars, _NUMBER).numbers.numpy()

    gradients = step(batch, scalars, _NUMBER).gradients
    alone = {
        "step": Probe(whole),
        "forward": Probe(_graph(strategy, forward, batch)),
        PASSES: Probe(_graph(strategy, passes, batch)),
        "optimizer": Probe(_update(step, gradients, scalars)),
    }
    if strategy.placement.replicas == 1:
        return alone
    return {
        **alone,
        REDUCED: Probe(_graph(strategy, reduced, batch)),
        "communication": Probe(_sender(step)),
    }


def _graph(
    strategy: Strategy, replica: Callable[..., list[tf.Tensor]], values: Sequence[Any]
) -> Callable[[], Any]:
    """A function that computes, on each replica of this process, what `replica` makes of its values."""

    def graph() -> list[list[tf.Tensor]]:
        return list(map(strategy.unpack, strategy.native.run(replica, args=tuple(values))))

    # Results that nobody takes, even those that others wait for, TensorFlow does not compute.
    return graph_of(graph)


def _update(step: Step, gradients: Sequence[tf.Tensor], scalars: dict[str, float]) -> Callable[[], Any]:
    """The optimizer's clipping and update, by the same gradients each time."""
    strategy, optimizer = step.strategy, step.optimizer
    given = strategy.distribute(lambda context: tuple(gradients))
    named = {name: tf.constant(value, step.spec.master_dtype) for name, value in scalars.items()}
    if "loss_scale" in named:
        named["updated"] = tf.constant(True)

    def clip(*own: tf.Tensor) -> list[tf.Tensor]:
        return optimizer.clip(list(own), tf.linalg.global_norm(own))

    def graph() -> list[tf.Tensor]:
        return optimizer.update(strategy.native.run(clip, args=given), named)

    return graph_of(graph)


def _sums(step: Step) -> list[list[_Shape]]:
    """Shapes of what a step sums over the replicas: together, in one call after another.

    Batch norm: rows' sums and number, squared deviations, and backward the gradients of both. Then all
    gradients with the loss sum, the count and that by which replicas are compared.
    """
    found: list[list[_Shape]] = []
    for channels in synchronised_channels(step.spec):
        found += [[(channels,), ()], [(channels,)], [(channels,)], [(channels,)]]
    gradients = [tuple(weight.shape) for weight in step.model.parameters.values()]
    return [*found, [*gradients, (), (), *[()] * len(step.fingerprint())]]


def messages(step: Step) -> list[Message]:
    """What a replica sends in a step, one after another.

    MirroredStrategy reduces tensor by tensor; between processes what is summed in one call is packed into
    one message.
    """
    placement, size = step.strategy.placement, tf.as_dtype(step.spec.master_dtype).size
    if placement.replicas == 1:
        return []
    found: list[Message] = []
    for shapes in _sums(step):
        sizes = [math.prod(shape) * size for shape in shapes]
        found += [("all_reduce", each) for each in ([sum(sizes)] if placement.processes > 1 else sizes)]
    return found


def _sender(step: Step) -> Callable[[], Any]:
    """A function that sums tensors of the same shapes, and does nothing else."""
    strategy, sums, dtype = step.strategy, _sums(step), step.spec.master_dtype

    def values(context: tf.distribute.ValueContext) -> tuple[tf.Tensor, ...]:
        del context
        # Not constants, and not the same on any two replicas: a graph would compute their sum beforehand.
        return tuple(tf.random.uniform(shape, dtype=dtype) for shapes in sums for shape in shapes)

    def send(*own: tf.Tensor) -> list[tf.Tensor]:
        parts, results = iter(own), []
        for shapes in sums:
            results += strategy.sum([next(parts) for _ in shapes])
        return results

    return _graph(strategy, send, strategy.distribute(values))
