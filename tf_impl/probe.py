"""A step that keeps every tensor that it makes, and goes on with another where one is injected.

It is a graph like the step itself: the same parts, traced once more with hooks around them. What is injected are
inputs of that graph, with a truth value for each, so that one graph serves whatever a call injects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from parity.common.execution.hooks import Hook, Hooks, attached
from parity.common.execution.pass_context import Context
from parity.common.execution.step import LocalGradients, Reduced, StepResult
from parity.common.record.taps import layers_of, tapped_parameters
from parity.common.spec import TrainSpec
from parity.common.state.canonical import State, parameter_specs
from parity.tf_impl.graphs.eager import graph_of
from parity.tf_impl.step import Step

# As a batch has them.
_BATCH = ("inputs", "targets", "ids")


class Probe:
    """Looks into single steps and evaluations of a run, each on its own.

    step: the run's. layers: of the step or evaluation last looked into, {path of a layer: name of what was its input}.
    injects: whether something will be injected into some step; set before the first. Without, graphs are smaller.
    """

    def __init__(self, step: Step) -> None:
        self._step, self._strategy = step, step.strategy
        self.layers: dict[str, str] = {}
        self.injects = True
        self._nothing: list[State] = [{} for _ in step.strategy.local_replicas]

    def traced(
        self, batch: Any, scalars: dict[str, float], number: int, injected: list[State]
    ) -> tuple[StepResult, list[State]]:
        """Take a step, and give what was seen in it of each replica that this process speaks for.

        batch, scalars: the run's own. injected: by name, for each of these replicas: what to go on with in place of
        what is the run's own. All names of `parity.common.record.trace`, but for `before/` and `after/`. Every process must call it.
        """
        self.injects = self.injects or any(injected)
        received, graph = self._received(batch), self._graph(number)
        own = {f"scalar/{name}": np.array(value) for name, value in scalars.items()}
        scalars = {name: float(injected[0].get(f"scalar/{name}", value)) for name, value in scalars.items()}
        result, seen = graph(self._injected_batch(received, injected), scalars, number, injected)
        self.layers = graph.layers
        own["updated"] = np.array(bool(result.updated))
        states = [{**samples, **_joined(kept), **own} for samples, kept in zip(received, seen, strict=True)]
        if not result.updated:
            # What was to be their update leaves no trace.
            for kept in states:
                kept |= {n: np.zeros_like(kept[n]) for n in list(kept) if n.startswith("clipped/")}
        return result, states

    def taken(self, batch: Any, scalars: dict[str, float], number: int) -> StepResult:
        """Take a step without telling what was seen, for where there are too few to trace them a graph of their own."""
        return self._graph(number)(self._step.flat(batch), scalars, number, self._nothing)[0]

    def evaluated(self, batch: Any, injected: list[State]) -> list[State]:
        """What is seen in the evaluation of a batch, as `traced`: samples, layers' outputs, loss sum and count."""
        received, step = self._received(batch), self._step
        looks = [_Look(step.spec, {name: tf.constant(t) for name, t in each.items()}) for each in injected]
        given = step.regrouped(self._injected_batch(received, injected))
        with attached(step, _Looks(looks, self._strategy.local_replicas.start).of_evaluation()):
            step.evaluate(given)
        self.layers = looks[0].layers
        return [{**samples, **_joined(look.kept)} for samples, look in zip(received, looks, strict=True)]

    def _graph(self, number: int) -> _Graph:
        """Of a step with as many micro-batches."""
        step = self._step
        count = self._strategy.placement.micro_batches(step.plan.epoch(number))
        # Into one that can take tensors none need be injected.
        known = [key for key in ((count, self.injects), (count, True)) if key in step.probed]
        if not known:
            step.probed[count, self.injects] = _Graph(step, count, self.injects)
        return step.probed[known[0] if known else (count, self.injects)]

    def _received(self, batch: Any) -> list[State]:
        """What the loader gave to each local replica."""
        values = zip(*map(self._strategy.unpack, batch), strict=True)
        return [{name: np.array(x) for name, x in zip(_BATCH, local, strict=True)} for local in values]

    def _injected_batch(self, received: Sequence[State], injected: Sequence[State]) -> list[tf.Tensor]:
        """The tensors of the batch to go on with, one local replica after another."""
        return [
            tf.constant(other.get(name, own[name]), own[name].dtype)
            for own, other in zip(received, injected, strict=True)
            for name in _BATCH
        ]


class _Looks:
    """Hooks of a step or an evaluation, within each replica: they send each one's tensors to its own look."""

    def __init__(self, looks: Sequence[_Look], first: int) -> None:
        self._looks, self._first = looks, first

    def of_step(self) -> Hooks:
        """Around the parts of a step."""
        return Hooks(
            context=self._context,
            local_gradients=self._local,
            sum_over_replicas=self._summed,
            divide=self._divided,
            clip=self._clipped,
        )

    def of_evaluation(self) -> Hooks:
        """Around the parts of an evaluation."""
        return Hooks(context=self._context, loss=self._loss)

    def _context(self, step: Step, part: Hook, inputs: tf.Tensor, *rest: Any) -> Context:
        context, look = part(inputs, *rest), self._here()
        look.begin(inputs)
        others = context.taps

        def taps(path: str, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            y = look.layer(path, x, y)
            return y if others is None else others(path, x, y)

        return replace(context, taps=taps)

    def _loss(self, step: Step, part: Hook, *given: Any) -> tuple[tf.Tensor, tf.Tensor]:
        return self._lost(*part(*given))

    def _lost(self, loss_sum: tf.Tensor, count: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        self._here().keep("loss_sum", loss_sum)
        self._here().keep("count", count)
        return loss_sum, count

    def _local(self, step: Step, part: Hook, batch: Any, scalars: Any, number: Any) -> LocalGradients:
        look = self._here()
        look.scale = scalars.get("loss_scale")
        local = part(batch, scalars, number)
        look.local_gradients(local.gradients)
        self._lost(local.loss_sum, local.count)
        return local

    def _summed(self, step: Step, part: Hook, *given: Any) -> Reduced:
        sums, look = part(*given), self._here()
        loss_sum = look.go_on("total/loss_sum", sums.loss_sum)
        return sums._replace(loss_sum=loss_sum, count=look.go_on("total/count", sums.count))

    def _divided(self, step: Step, part: Hook, *given: Any) -> Reduced:
        means = part(*given)
        return means._replace(gradients=self._here().parameters("gradient", means.gradients))

    def _clipped(self, step: Step, part: Hook, *given: Any) -> tuple[list[tf.Tensor], tf.Tensor]:
        clipped, norm = part(*given)
        return self._here().parameters("clipped", clipped), norm

    def _here(self) -> _Look:
        number = tf.distribute.get_replica_context().replica_id_in_sync_group
        return self._looks[int(tf.get_static_value(number)) - self._first]


class _Look:
    """What one replica sees, and what is injected there.

    injected: by name. flags: which of those are to be gone on with, inside a graph; None: all. cut: whether there
    are several micro-batches. kept: each tensor by name, in as many pieces. layers: as in `Probe`.
    """

    def __init__(
        self,
        spec: TrainSpec,
        injected: Mapping[str, tf.Tensor],
        flags: Mapping[str, tf.Tensor] | None = None,
        cut: bool = False,
    ) -> None:
        self._injected, self._flags, self._cut = injected, flags, cut
        self._tapped = {layer.path for layer in layers_of(spec.model.tree())}
        self._parameters = tapped_parameters(spec)
        self.kept: dict[str, list[tf.Tensor]] = {}
        self.layers: dict[str, str] = {}
        self._rows: tuple[Any, Any] = (0, 0)
        self.scale: tf.Tensor | None = None

    def begin(self, inputs: tf.Tensor) -> None:
        """A pass over a micro-batch begins."""
        # With the tensors themselves, so that no other is given the id of one.
        self._names = {id(inputs): ("inputs", inputs)}
        self._rows = (self._rows[1], self._rows[1] + tf.shape(inputs)[0])

    def layer(self, path: str, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """Of a layer's output the one to go on with; going backward, likewise of its gradient."""
        if path not in self._tapped:
            return y
        if id(x) not in self._names:
            self._names[id(x)] = (f"input/{path}", x)
            self.keep(f"input/{path}", x)
        self.layers[path], _ = self._names[id(x)]
        scale = self.scale

        @tf.custom_gradient
        def go_on(y: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
            return self.go_on(f"forward/{path}", y), lambda dy: self.go_on(f"backward/{path}", dy, scale)

        result = go_on(y)
        self._names[id(result)] = (f"forward/{path}", result)
        return result

    def local_gradients(self, gradients: Sequence[tf.Tensor]) -> None:
        """Those of the loss sum times the scale."""
        for name, gradient in zip(self._parameters, gradients, strict=True):
            self.keep(f"local_gradient/{name}", gradient if self.scale is None else gradient / self.scale)

    def parameters(self, kind: str, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Of one tensor for each parameter, those to go on with."""
        named = zip(self._parameters, tensors, strict=True)
        return [self.go_on(f"{kind}/{name}", tensor) for name, tensor in named]

    def keep(self, name: str, tensor: tf.Tensor) -> None:
        """Keep a tensor, or a further piece of it."""
        self.kept.setdefault(name, []).append(tensor)

    def go_on(self, name: str, tensor: tf.Tensor, scale: tf.Tensor | None = None) -> tf.Tensor:
        """Keep a tensor; the one to go on with. What is kept or injected is without the factor `scale`."""
        self.keep(name, tensor if scale is None else tensor / scale)
        if name not in self._injected:
            return tensor
        other = tf.cast(self._injected[name], tensor.dtype)
        if self._cut and name.startswith(("forward/", "backward/")):
            other = self._piece(name, other)
        if scale is not None:
            other = other * scale
        if self._flags is None:
            return other
        chosen = tf.where(self._flags[name], other, tensor)
        chosen.set_shape(tensor.shape)
        return chosen

    def _piece(self, name: str, other: tf.Tensor) -> tf.Tensor:
        """The rows of the micro-batch; all, where there is but a stand-in."""
        start, stop = self._rows
        if self._flags is None:
            return other[start:stop]
        flag = self._flags[name]
        return other[tf.where(flag, start, 0) : tf.where(flag, stop, 1)]


class _Graph:
    """A step traced with all that is seen in it. Takes some seconds to make."""

    def __init__(self, step: Step, micro_batches: int, injects: bool) -> None:
        self._dtype, self._ranks = step.spec.master_dtype, _ranks(step.spec) if injects else {}
        # Something of each rank, for what is not injected.
        self._none = {rank: tf.zeros([1] * rank, self._dtype) for rank in self._ranks.values()}
        self.layers: dict[str, str] = {}
        replicas, names = step.strategy.local_replicas, list(self._ranks)
        body = step.body(micro_batches)

        def seen(*tensors: tf.Tensor) -> tuple:
            given, injected = tensors[: len(step.signature)], iter(tensors[len(step.signature) :])
            flags = tf.unstack(next(injected))
            looks = []
            for own in flags:
                named = {name: next(injected) for name in names}
                flagged = dict(zip(names, tf.unstack(own) if names else (), strict=True))
                looks.append(_Look(step.spec, named, flagged, micro_batches > 1))
            step.unrolls = True
            try:
                with attached(step, _Looks(looks, replicas.start).of_step()):
                    left = body(*given)
            finally:
                step.unrolls = False
            self.layers = looks[0].layers
            return left, [look.kept for look in looks]

        flags = tf.TensorSpec([len(replicas), len(names)], tf.bool)
        injected = [tf.TensorSpec([None] * rank, self._dtype) for rank in self._ranks.values()] * len(
            replicas
        )
        signature = [*step.signature, flags, *injected]
        self._call = graph_of(seen, signature)

    def __call__(
        self, flat: list[tf.Tensor], scalars: dict[str, float], number: int, injected: Sequence[State]
    ) -> tuple[StepResult, list[dict[str, list[tf.Tensor]]]]:
        values = tf.constant([*scalars.values()], self._dtype)
        flags = tf.constant([[name in tensors for name in self._ranks] for tensors in injected], tf.bool)
        others = [
            tf.constant(tensors[name], self._dtype) if name in tensors else self._none[rank]
            for tensors in injected
            for name, rank in self._ranks.items()
        ]
        left, kept = self._call(*flat, values, tf.constant(number, tf.int64), flags, *others)
        return left._replace(updated="loss_scale" not in scalars or bool(left.updated)), kept


def _ranks(spec: TrainSpec) -> dict[str, int]:
    """What can be injected into a graph, by name: how many axes it has."""
    layers, parameters = layers_of(spec.model.tree()), parameter_specs(spec)
    ranks = {f"forward/{layer.path}": 1 + len(layer.output_shape) for layer in layers}
    ranks |= {
        f"backward/{layer.path}": 1 + len(layer.output_shape) for layer in layers if layer.differentiable
    }
    ranks |= {"total/loss_sum": 0, "total/count": 0}
    for kind in ("gradient", "clipped"):
        ranks |= {f"{kind}/{n}": len(parameters[f"parameters/{n}"].shape) for n in tapped_parameters(spec)}
    return ranks


def _joined(kept: Mapping[str, list[tf.Tensor]]) -> State:
    """The pieces of each tensor, together."""
    arrays = {name: [np.array(piece) for piece in pieces] for name, pieces in kept.items()}
    return {name: a[0] if len(a) == 1 else np.concatenate(a) for name, a in arrays.items()}
