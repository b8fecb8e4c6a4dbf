"""A step, or several of them, as one graph that is called with plain tensors."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from parity.common import reference
from parity.common.base.errors import ExternalModelError
from parity.common.data.plan import BatchPlan
from parity.common.data.samples import Samples
from parity.common.execution.step import StepResult
from parity.common.spec import TrainSpec
from parity.tf_impl.data import _distributed
from parity.tf_impl.graphs.eager import graph_of, run_eagerly
from parity.tf_impl.private_names import context, executor
from parity.tf_impl.strategy import Strategy


class StepGraph:
    """How a `Step` is called: its `take` is traced once for each number of micro-batches."""

    def open_graph(self) -> None:
        """Say what the graphs are called with; nothing is traced yet."""
        spec, replicas = self.spec, len(self.strategy.local_replicas)
        self._names = list(reference.StepScalars(spec).scalars(0))
        scalars = tf.TensorSpec([len(self._names)], spec.master_dtype)
        self.signature = [*_local_batch(spec) * replicas, scalars, tf.TensorSpec([], tf.int64)]
        self._traced: dict[int, Callable[..., StepResult]] = {}
        # Graphs of steps that are looked into, by `probe.Probe`.
        self.probed: dict[tuple[int, bool], Any] = {}

    def __call__(self, batch: Any, scalars: dict[str, float], number: int) -> StepResult:
        graph = self._graph(self.strategy.placement.micro_batches(self.plan.epoch(number)))
        values = tf.constant([*scalars.values()], self.spec.master_dtype)
        result = graph(*self.flat(batch), values, step_number(number))
        return result._replace(updated="loss_scale" not in scalars or bool(result.updated))

    def _graph(self, micro_batches: int) -> Callable[..., StepResult]:
        if micro_batches not in self._traced:
            self._traced[micro_batches] = self._trace(micro_batches)
        return self._traced[micro_batches]

    def _trace(self, micro_batches: int) -> Callable[..., StepResult]:
        """The step as a graph, for one number of micro-batches and batches of any size; as it is for code that only runs eagerly."""
        try:
            return graph_of(*self._function(micro_batches))
        except ExternalModelError:
            if tf.config.functions_run_eagerly():
                raise
            # A user's code may count with the batch's size, or ask a tensor for its numbers.
            run_eagerly(True)
            return self._function(micro_batches)[0]

    def _function(self, micro_batches: int) -> tuple[Callable[..., StepResult], list[tf.TensorSpec]]:
        """What is traced, and what with."""
        return self.body(micro_batches), self.signature

    def body(self, micro_batches: int) -> Callable[..., StepResult]:
        """step(*tensors of `flat`, scalars, number), inside a graph."""
        self.remember_fingerprints()

        def step(*tensors: tf.Tensor) -> StepResult:
            *flat, scalars, number = tensors
            self.pieces = micro_batches
            named = dict(zip(self._names, tf.unstack(scalars), strict=True))
            return self.take(self.regrouped(flat), named, number)

        return step

    def remember_fingerprints(self, prints: list[tf.Tensor] | None = None) -> None:
        """Keep what `fingerprint` gives; by default that of the parameters as they are."""
        if self._own is not None:
            own = self.fingerprints() if prints is None else prints
            for variable, value in zip(self.strategy.unpack(self._own), own, strict=True):
                variable.assign(value)

    def fingerprints(self) -> list[tf.Tensor]:
        """Half the squared norm of each local replica's parameters, computed on its own device."""
        found = []
        for copies in zip(*map(self.strategy.unpack, self._weights), strict=True):
            with tf.device(copies[0].device):
                found.append(tf.add_n([tf.nn.l2_loss(copy.value()) for copy in copies]))
        return found

    def flat(self, batch: Any) -> list[tf.Tensor]:
        """The tensors of a distributed batch, one local replica after another.

        TensorFlow takes 0.9 ms of Python to call a graph with values of several replicas, 0.2 ms with tensors.
        """
        return list(itertools.chain(*zip(*map(self.strategy.unpack, batch), strict=True)))

    def regrouped(self, flat: Any) -> Any:
        """The distributed batch of `flat`, inside a graph."""
        first, size = self.strategy.local_replicas.start, len(_local_batch(self.spec))

        def local(context: tf.distribute.ValueContext) -> tuple[tf.Tensor, ...]:
            start = (context.replica_id_in_sync_group - first) * size
            return tuple(flat[start : start + size])

        return self.strategy.distribute(local)


class SeveralStepsGraph(StepGraph):
    """Several steps a call."""

    def __call__(self, batch: Any, scalars: list[dict[str, float]], steps: range) -> StepResult:
        """As of one step, but with the numbers of each, and for ids (those of all steps, how many of each)."""
        values = tf.constant([[*each.values()] for each in scalars], self.spec.master_dtype)
        graph = self._graph(self.strategy.placement.micro_batches(0))
        result = graph(*self.flat(batch), values, step_number(steps.start))
        return result._replace(updated=True)

    def _function(self, micro_batches: int) -> tuple[Callable[..., StepResult], list[tf.TensorSpec]]:
        step, replicas = self.body(micro_batches), len(self.strategy.local_replicas)
        sizes, width = tf.TensorSpec([None], tf.int64), len(_local_batch(self.spec)) + 1

        def calls(*tensors: tf.Tensor) -> StepResult:
            *flat, scalars, first = tensors
            local = [flat[start : start + width] for start in range(0, len(flat), width)]
            count = tf.shape(scalars)[0]
            stops = [tf.cumsum(sizes) for *_, sizes in local]

            def more(place: tf.Tensor, numbers: Any, ids: list, _: list) -> tuple:
                cut = []
                for (*batch, sizes), stop in zip(local, stops, strict=True):
                    cut += [tensor[stop[place] - sizes[place] : stop[place]] for tensor in batch]
                made = step(*cut, scalars[place], first + tf.cast(place, tf.int64))
                ids = [array.write(place, some) for array, some in zip(ids, made.ids, strict=True)]
                return place + 1, numbers.write(place, made.numbers), ids, made.gradients

            def array(dtype: Any, shape: list) -> tf.TensorArray:
                return tf.TensorArray(dtype, count, element_shape=shape, infer_shape=False)

            zeros = [tf.zeros(weight.shape, weight.dtype) for weight in self.model.parameters.values()]
            begun = array(self.spec.master_dtype, [None]), [array(tf.int64, [None]) for _ in local], zeros
            _, numbers, ids, gradients = tf.while_loop(
                lambda place, *_: place < count, more, (tf.constant(0), *begun), parallel_iterations=1
            )
            received = [(a.concat(), sizes) for a, (*_, sizes) in zip(ids, local, strict=True)]
            return StepResult(numbers.stack(), received, gradients)

        signature = [*_local_batch(self.spec), sizes] * replicas
        scalars = tf.TensorSpec([None, len(self._names)], self.spec.master_dtype)
        signature += [scalars, tf.TensorSpec([], tf.int64)]
        return calls, signature


def step_number(step: int) -> tf.Tensor:
    """A step's number as a tensor. Not of a Python number: TensorFlow keeps each of those for ever, 760 bytes a step."""
    return tf.constant(np.int64(step))


def joined(plan: BatchPlan, samples: Samples, strategy: Strategy, calls: Iterable[range]) -> Iterator[Any]:
    """Per call: its steps' batches, one after another, and how many samples of a replica each step has."""
    items = ([(plan.global_ids(step), plan.epoch(step)) for step in steps] for steps in calls)
    return _distributed(items, plan, samples, strategy, sizes=True)


def apart(result: StepResult) -> list[StepResult]:
    """What each step of a call did."""
    received = [np.split(joined.numpy(), np.cumsum(sizes.numpy())[:-1]) for joined, sizes in result.ids]
    steps = zip(result.numbers.numpy(), *received, strict=True)
    return [result._replace(numbers=numbers, ids=ids) for numbers, *ids in steps]


# What launched calls of which one failed; something of them may still run, and must not outlive it.
_FAILED: list[Any] = []


@contextmanager
def launching_ahead(steps: int) -> Iterator[None]:
    """Within it calls return before they are done, on CPU as on a GPU, where `steps` are to be launched ahead."""
    if not steps:
        yield
        return
    here = context.context()
    own, here.executor = here.executor, executor.new_executor(enable_async=True)
    try:
        yield
        here.executor.wait()
    except BaseException:
        # Its error would be raised again by whatever this process does next with it.
        _FAILED.append(here.executor)
        raise
    finally:
        here.executor = own


def _local_batch(spec: TrainSpec) -> list[tf.TensorSpec]:
    """Types of one replica's inputs, targets and sample ids, of any number of samples."""
    return [
        tf.TensorSpec([None, *spec.model.input_shape], spec.input_dtype),
        tf.TensorSpec([None, *spec.target_shape], spec.target_dtype),
        tf.TensorSpec([None], tf.int64),
    ]
