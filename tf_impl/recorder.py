"""A recorder for a training in TensorFlow that is not ours: a loop, or `model.fit` with a callback.

    with Recorder("runs/mine", model, optimizer) as recorder:
        for inputs, targets, ids in batches:
            loss = train_step(inputs, targets)          # a tf.function or not
            recorder.step(loss, count=len(inputs), ids=ids)

    model.fit(..., callbacks=[RecorderCallback("runs/mine")])

It reads and changes nothing: the training has the same bits with it and without. docs/how_to/recorders.md has the
details, docs/reference/record.md what is written.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from parity.common.base.errors import RecordError
from parity.common.record.followed import Follower, open_states
from parity.common.record.script import (
    ALWAYS,
    NAN,
    ScriptRecorder,
    Sums,
    check_settings,
    mapping_of,
    optimizers_of,
    precision_of,
)
from parity.common.record.script_checks import checkable
from parity.common.spec import ScriptInfo
from parity.common.spec.external.mapping import Mapping as TensorMapping
from parity.common.state.canonical import State
from parity.tf_impl import runtime
from parity.tf_impl.external import names
from parity.tf_impl.external.outline import describe, outline
from parity.tf_impl.legacy.keras2 import is_keras2
from parity.tf_impl.private_names import CommonVariable
from parity.tf_impl.recorder_observer import ModelObserver
from parity.tf_impl.recorder_states import SEEDS, LiveState
from parity.tf_impl.recorder_taps import LayerTaps

# On a GPU, a step's numbers are read when the next one has been launched.
_LAG = 1
# Reading a variable takes 0.1 ms and more, so what updates left is read for so many steps together, once each step
# was seen to have one update.
_TOGETHER = 8


class Recorder(ScriptRecorder):
    """Records a loop. It must be made before the first step, and before a tf.function with the step is traced.

    The gradient's norm is that of the gradients given to `optimizer.apply`: before Keras clips them. Under a strategy
    of several replicas, where each has gradients of its own, it is not recorded.
    """

    def __init__(
        self,
        out: str | Path,
        model: keras.Model,
        optimizer: Any = None,
        *,
        name: str = "script",
        global_batch_size: int | None = None,
        mapping: str | Path | TensorMapping | None = None,
        precision: str | None = None,
        every: int | None = None,
        taps: bool | Sequence[str] = False,
        order: int | None = None,
        settings: Mapping[str, Any] | None = None,
        states: bool = False,
        follow: str | Path | None = None,
        frozen: Sequence[str] = (),
        checks: bool = True,
        overwrite: bool = False,
    ) -> None:
        """Begin a record and write the model's initial state.

        Args:
            out: a new folder, or with `overwrite` one of an earlier record.
            model: as it is trained, built.
            optimizer: of Keras; several where each updates some of the tensors, of which the first one's learning rate is recorded.
                Without it that is not recorded, nor is the gradient's norm unless `gradients` are given to `step`.
            name: what is trained; records are compared where it is equal.
            global_batch_size: for the reports.
            mapping: mapping.yaml or what it was read into. Keras's names are the ones it maps to; tensors that it
                ignores are left out.
            precision: one of a TrainSpec's; None goes by the parameters' type.
            every: record norms at multiples of it; None: at as many steps as take no more than half a percent of the time.
            taps: record fingerprints of what the layers give, of all or of those named, at the first 9 steps, then at 16,
                32, 64, ..., or at multiples of `every`. It needs one replica.
            order: this is a repetition with permuted batches, to measure rounding: its number.
            settings: anything else worth knowing, shown where it differs.
            states: keep weights, slots and gradients for others to follow: at every step until they take 256 MiB, and at
                the first 9 steps, then at 16, 32, 64, ... (see docs/how_to/recorders.md).
            follow: a record with such states. At these steps this training starts from them, and updates by its
                gradients, so each step is compared by itself. **This changes the training.**
            frozen: names of tensors, or prefixes of names, that must not change; a change is reported.
            checks: check invariants while the script trains (see `parity check`).
            overwrite: replace an earlier record in `out`, and nothing else.

        Raises:
            RecordError: the folder is taken, the model is not built yet, its type is no precision, or there is nothing
                to follow.
            ExternalModelError: the mapping cannot be read.
        """
        self._model, self._optimizers = model, optimizers_of(optimizer)
        only = self._optimizers[0] if len(self._optimizers) == 1 else None
        self._mapping = mapping_of(mapping)
        if is_keras2(model):
            raise RecordError(
                f"{model.name} is of Keras 2 (tf_keras), of which a recorder sees nothing; record the same model of Keras 3's, or"
                " compare the models with parity pair"
            )
        if not isinstance(model, keras.layers.Layer):
            raise RecordError(
                f"a recorder takes a keras.Model, or a layer, and received a {type(model).__name__}; make its variables weights of one"
                " (self.add_weight)"
            )
        if not model.weights or not (model.built or _has_built_parts(model)):
            raise RecordError(
                f"{model.name} has no weights yet: call it on a batch before making its recorder; if you have, it holds tf.Variables, which"
                " Keras 3 neither sees nor trains: make them by self.add_weight"
            )
        self._trained = names.trained(model)
        self._live = [_tensor_of(variable) for variable in self._trained.values()]
        self._names = list(self._trained)
        on_gpu = any("GPU" in variable.device for variable in self._live)
        precision = precision or precision_of(variable.dtype.name for variable in self._live)
        world = tf.distribute.get_strategy().num_replicas_in_sync

        def refused() -> str | None:
            if world > 1:
                return f"needs one replica, and there are {world}"
            if not self._optimizers:
                return "needs the optimizer, whose slots and gradients it is about"
            return "needs another precision: float16 skips steps" if precision == "float16_mixed" else None

        live = LiveState(model, self._optimizers)
        observer = ModelObserver(model, only, frozen)
        invariants = checkable(
            optimizer=only is not None, gradients=False, modes=False, ranks=1, sharded=False
        )
        kept = open_states(Path(out), states, follow, "tensorflow", self._mapping, live, refused)
        script_info = ScriptInfo.parse(
            {
                "kind": "script",
                "name": name,
                "precision": precision,
                "framework": "tensorflow",
                "naming": "keras",
                "global_batch_size": global_batch_size,
                "world_size": world,
                "follows": kept.identity if isinstance(kept, Follower) else None,
                "invariants": invariants if checks else (),
                "settings": check_settings(settings),
            }
        )
        facts = {
            "versions": runtime.versions(),
            "devices": [device.name for device in tf.config.list_logical_devices("GPU" if on_gpu else "CPU")],
            "threads": runtime.thread_counts(),
        }
        super().__init__(
            out, script_info, facts, order, every, _LAG if on_gpu else 0, kept, observer, overwrite
        )
        self._state("initial", self._final_state())
        self._write_outline(
            lambda: outline(model, model.name),
            lambda: [describe(each, model) for each in self._optimizers],
        )
        self._cost = 0.0
        self._before: list[tf.Variable] = []
        self._first = [_like(variable) for variable in self._live] if self.writes else []
        # Written by the step, wherever it is computed: learning rate, norm of the gradient and place of the optimizer of the last
        # updates, the last one first, and in the last row how many there were.
        self._seen = tf.Variable(tf.fill([_TOGETHER + 1, 3], tf.constant(0.0, tf.float64)), trainable=False)
        self._calls = 0
        self._updates: list[list[float]] = []
        # Read by the step: whether to take the norm, and whether to keep the gradients.
        self._measuring = tf.Variable(True, trainable=False)
        self._measures_now = True
        self._keeping = tf.Variable(True, trainable=False)
        self._keeps_now = True
        # Of a followed run: of which tensors this step's update is by the reference's gradients, and these.
        self._giving = tf.Variable([False] * len(self._live), trainable=False)
        self._given = [_like(variable) for variable in self._live] if isinstance(kept, Follower) else []
        self._reached: set[int] = set()  # places of tensors that updates have had a gradient of
        self._copy, self._norms = tf.function(self._copied), tf.function(self._normed)
        self._layers = self._watched(taps)
        for each in self._optimizers:
            self._wrap(each)
        self._begin_step()
        self._keep_parameters()

    def batches(self, source: Iterable[Any]) -> Iterator[Any]:
        """Go through pairs (ids, batch), as of `dataset.enumerate()` before it is shuffled and batched; `add` and `step` need no ids then.

        Raises:
            RecordError: an element is no such pair.
        """
        for pair in source:
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise RecordError(
                    "batches: takes pairs (ids, batch), as of dataset.enumerate().batch(...); received a"
                    f" {type(pair).__name__}"
                )
            self._batch_ids, batch = pair
            yield batch
        self._batch_ids = None

    def step(
        self,
        loss: Any = None,
        count: float = 0,
        ids: Any = None,
        *,
        loss_sum: Any = None,
        gradients: Sequence[Any] | None = None,
    ) -> None:
        """A step is over, the parameters are updated.

        Args:
            loss: the mean over `count` samples (or tokens): a tensor or a number.
            count: how many the mean was taken over. 0, without a loss: all of the step was given to `add`.
            ids: of the samples, whole numbers; at every step or at none.
            loss_sum: instead of `loss`, the sum.
            gradients: in the order of `model.trainable_variables`, where no optimizer of Keras's takes them.

        Raises:
            RecordError: what was given does not fit together.
        """
        if loss is not None or loss_sum is not None or count:
            self.add(loss, count, ids, loss_sum=loss_sum)
        if gradients is not None:
            own = self._optimizers[0] if self._optimizers else None
            self._see(list(gradients), self._model.trainable_variables, own)
        self._end(*self._added())

    def _end_batch(self, numbers: tf.Tensor, ids: Any = None, summed: bool = False) -> None:
        """A step is over whose loss, mean or sum, and count are this tensor's two numbers."""
        if self._lag:
            self._add(numbers[0], 1.0 if summed else numbers[1], numbers[1])
        else:
            loss, count = numbers.numpy().tolist()
            if not count > 0:
                raise RecordError(
                    "fit's train_step called no compute_loss and took no gradients of a number by a tf.GradientTape, so its loss is not seen: have the"
                    " model's compute_loss return it, and call that in train_step"
                )
            self._add(loss, 1.0 if summed else count, count)
        self._end(self._added()[0], None if ids is None else self._ids(ids))

    def _end(self, sums: Sums, received: Any) -> None:
        norms = self._see_parameters()
        if self._layers is not None and self.taps_now:
            self._write_taps({name: digest.numpy().tolist() for name, digest in self._layers.table().items()})
        # On a GPU a copy: the variable is written by the next step.
        seen = self._seen.read_value() if self._lag else None
        if self._states is not None and self._states.wants(self.count):
            self._guarded(self._states.saw, self.count, self._gradients_now())
        if self.count == 0:
            self._end_first()  # before the next step begins, which clears what several optimizers were given
        self._end_step((sums, seen, norms), received, self._cost)
        self._cost = 0.0
        self._keep_parameters()

    def _wrap(self, optimizer: Any) -> None:
        """Be told the gradients that the optimizer is given."""
        if not isinstance(optimizer, keras.optimizers.Optimizer):
            raise RecordError(
                f"optimizer: expected one of Keras, received {type(optimizer).__name__}; leave it out, and give"
                " step() the gradients"
            )
        if optimizer.gradient_accumulation_steps:
            raise RecordError(
                "optimizer: gradient_accumulation_steps makes several calls one step, which a recorder cannot see"
            )
        apply = optimizer.apply

        # As AutoGraph can read it, for a loop in a tf.function.
        def watched(grads: Any, trainable_variables: Any = None) -> Any:
            grads = list(grads)
            if trainable_variables is None:
                self._see(grads, optimizer._trainable_variables, optimizer)
                grads = self._replaced(grads, optimizer._trainable_variables)
            else:
                trainable_variables = list(trainable_variables)
                self._see(grads, trainable_variables, optimizer)
                grads = self._replaced(grads, trainable_variables)
            return apply(grads, trainable_variables)

        optimizer.apply = watched
        if getattr(self._model, "train_function", None) is not None:
            # What an earlier fit has traced does not call it.
            self._model.make_train_function(force=True)

    def _unwatch(self) -> None:
        super()._unwatch()
        for each in self._optimizers:
            each.__dict__.pop("apply", None)

    def _watched(self, taps: bool | Sequence[str]) -> LayerTaps | None:
        if taps is False:
            return None
        if tf.distribute.get_strategy().num_replicas_in_sync > 1:
            raise RecordError("taps: the layers of several replicas cannot be tapped; record one replica")
        found = LayerTaps(self._model, taps)
        found.open(self.taps_now)
        return found

    def _see(self, gradients: list[Any], variables: Sequence[Any], optimizer: Any) -> None:
        """Keep what is known before an update, as part of the step's graph where it has one."""
        if tf.distribute.get_strategy().num_replicas_in_sync > 1:
            return
        pairs = [(g, v) for g, v in zip(gradients, variables, strict=False) if g is not None]
        if not pairs:
            return

        def looked_at() -> tf.Tensor:
            scale = getattr(optimizer, "dynamic_scale", None)
            factor = 1.0 if scale is None else 1 / tf.cast(tf.convert_to_tensor(scale), tf.float64)
            if self._first:
                tf.cond(self._keeping, lambda: self._keep(pairs, factor), lambda: tf.constant(False))
            return factor * _norm([gradient for gradient, _ in pairs])

        # One branch, which is not taken at most steps: each operation of a graph has its price.
        taken = tf.cond(self._measuring, looked_at, lambda: tf.constant(NAN, tf.float64))
        update = tf.stack([self._rate(optimizer), taken, tf.constant(self._place(optimizer), tf.float64)])
        self._seen.assign(tf.concat([[update], self._seen[: _TOGETHER - 1], self._seen[_TOGETHER:] + 1], 0))

    def _place(self, optimizer: Any) -> int:
        """Which of several optimizers one is; 0 of the only one."""
        return next((n for n, each in enumerate(self._optimizers) if each is optimizer), 0)

    def _replaced(self, gradients: list[Any], variables: Sequence[Any]) -> list[Any]:
        """The gradients to update by: in a followed run the reference's, at the steps that are followed."""
        if not self._given:
            return gradients
        places = {id(variable): place for place, variable in enumerate(self._live)}
        found = []
        for gradient, variable in zip(gradients, variables, strict=False):
            place = places.get(id(_tensor_of(variable)))
            if gradient is None or place is None:
                found.append(gradient)
            else:
                own, given = tf.convert_to_tensor(gradient), self._given[place]
                found.append(
                    tf.cond(self._giving[place], lambda g=given, o=own: tf.cast(g, o.dtype), lambda o=own: o)
                )
        return found

    def _begin_step(self) -> None:
        """A step begins: its state is kept, or replaced by the reference's with its slots and gradients."""
        super()._begin_step()
        if self._states is None or not self.writes:
            return
        wanted = self._states.wants(self.count)
        if wanted:
            self._states.place_slots(self.count)
        if wanted != self._keeps_now:
            self._keeps_now = wanted
            self._keeping.assign(wanted)
        if wanted and len(self._optimizers) > 1:
            for copy in self._first:
                copy.assign(tf.zeros_like(copy))  # of an optimizer that has no turn at this step
        given = self._states.given(self.count)
        if self._given:
            self._giving.assign([name in (given or {}) for name in self._names])
            for name, array in (given or {}).items():
                if name in self._names:
                    self._given[self._names.index(name)].assign(array)

    def _evaluates(self) -> None:
        super()._evaluates()
        if self._states is not None and self._states.wants(self.count) and not self._keeps_now:
            self._keeps_now = self._measures_now = True
            self._keeping.assign(True)
            self._measuring.assign(True)

    def _gradients_now(self) -> State:
        """Those of the step at hand, by native name."""
        return {self._names[place]: self._first[place].numpy() for place in sorted(self._reached)}

    def _keep(self, pairs: Sequence[tuple[Any, Any]], factor: Any) -> tf.Tensor:
        """Copy the gradients of the first step."""
        places = {id(variable): place for place, variable in enumerate(self._live)}
        for gradient, variable in pairs:
            place = places.get(id(_tensor_of(variable)))
            if place is not None:
                self._reached.add(place)
                value = tf.convert_to_tensor(gradient)
                self._first[place].assign(value * tf.cast(factor, value.dtype))
        return tf.constant(True)

    def _rate(self, optimizer: Any) -> tf.Tensor:
        first = bool(self._optimizers) and optimizer is self._optimizers[0]
        rate = optimizer.learning_rate if first else NAN
        return tf.cast(tf.convert_to_tensor(rate), tf.float64)

    @property
    def _measures(self) -> bool:
        return self.writes and self.pace.wants(self.count)

    def _keep_parameters(self) -> None:
        """Copy the parameters before a step whose norms are recorded."""
        began, measures = time.perf_counter(), self._measures
        seen = measures or (self._states is not None and self._keeps_now)
        if self._measures_now != seen:
            self._measures_now = seen
            self._measuring.assign(seen)
        if measures:
            if not self._before:
                self._before = [_like(variable) for variable in self._live]
            self._copy()
            self._cost += time.perf_counter() - began

    def _see_parameters(self) -> Any:
        """Norms of parameters and update of the step at hand; None where they are not recorded."""
        if not self._measures:
            return None
        began = time.perf_counter()
        norms = self._norms()
        # The norm of the gradient is taken inside the step: about half of what these cost.
        self._cost = 1.5 * (self._cost + time.perf_counter() - began)
        return norms

    def _copied(self) -> None:
        for copy, variable in zip(self._before, self._live, strict=True):
            copy.assign(variable)

    def _normed(self) -> tf.Tensor:
        pairs = zip(self._live, self._before, strict=True)
        return tf.stack([_norm(self._live), _norm([variable - before for variable, before in pairs])])

    def _end_first(self) -> None:
        """Write the first step's gradients, where the step had an optimizer to see them by."""
        if self._first and float(self._seen[_TOGETHER, 0]):
            found = {name: copy.numpy() for name, copy in zip(self._trained, self._first, strict=True)}
            self._state("first_gradients", self._named(found))
        if self._states is None:
            self._keeping.assign(False)

    def _kept(self, value: Any) -> Any:
        return tf.convert_to_tensor(value) if self._lag else float(value)

    def _host(self, ids: Any) -> Any:
        return ids

    def _read(self, handle: Any) -> Sequence[float]:
        sums, seen, norms = handle
        if seen is not None:
            self._updates = self._taken(seen, 1)
        rate, gradient = self._updates.pop(0)
        loss_sum = sum(float(loss) * float(weight) for loss, weight, _ in sums)
        count = sum(float(count) for *_, count in sums)
        return [loss_sum, count, rate, gradient, *([NAN, NAN] if norms is None else norms.numpy().tolist())]

    def _fetch(self, rows: int) -> None:
        if not self._lag:
            self._updates = self._taken(self._seen.read_value(), rows)

    def _taken(self, seen: tf.Tensor, steps: int) -> list[list[float]]:
        """Learning rate and norm of the gradient of each of the last steps; NaN where it is not known which is whose."""
        *updates, (calls, *_) = seen.numpy().tolist()
        new, self._calls = int(calls) - self._calls, int(calls)
        if len(self._optimizers) > 1:
            rows = updates[: min(new, len(updates))]
            rate = next((rate for rate, *_ in rows if not math.isnan(rate)), NAN)
            # Of several updates of one optimizer the last.
            norms = {place: norm for _, norm, place in reversed(rows)}
            return [[rate, math.hypot(*norms.values()) if rows else NAN]]
        # One step may have several updates, of which the last is taken.
        known = new == steps or (steps == 1 and new > 0)
        self._chunk = _TOGETHER if new == steps and self.count >= ALWAYS and not self._lag else 1
        return [row[:2] for row in updates[:steps][::-1]] if known else [[NAN, NAN]] * steps

    def _final_state(self) -> State:
        tensors = names.tensors(self._model)
        return self._named({name: np.array(variable) for name, variable in tensors.items()})

    def _named(self, arrays: State) -> State:
        ignored = {} if self._mapping is None else self._mapping.ignored.keras
        kept = {name: array for name, array in arrays.items() if name not in ignored and SEEDS not in name}
        return {f"tensors/{name}": array for name, array in kept.items()}


def _has_built_parts(model: keras.layers.Layer) -> bool:
    """Whether all layers of a model are built: a trainer that is only called part by part is never built itself."""
    parts = names.layers(model).values()
    return bool(parts) and all(layer.built for layer in parts)


def _tensor_of(variable: Any) -> Any:
    """TensorFlow's variable behind one of Keras."""
    return variable.value if isinstance(variable, CommonVariable) else variable


def _like(variable: Any) -> tf.Variable:
    return tf.Variable(tf.zeros(variable.shape, variable.dtype), trainable=False)


def _norm(tensors: list[Any]) -> tf.Tensor:
    """Of all elements; infinite where it is not a number, as NaN stands for one that was not taken."""
    found = [tf.convert_to_tensor(tensor) for tensor in tensors]
    wide = [tf.cast(t, tf.float32) if t.dtype in (tf.float16, tf.bfloat16) else t for t in found]
    kinds = {tensor.dtype for tensor in wide}
    halves = [
        tf.cast(tf.stack([tf.nn.l2_loss(t) for t in wide if t.dtype == kind]), tf.float64) for kind in kinds
    ]
    total = tf.sqrt(2 * tf.add_n([tf.reduce_sum(half) for half in halves]))
    return tf.where(tf.math.is_nan(total), tf.constant(math.inf, tf.float64), total)


def __getattr__(name: str) -> Any:
    """RecorderCallback, of `recorders/keras.py`, which itself needs this module."""
    if name != "RecorderCallback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from parity.tf_impl.recorders.keras import RecorderCallback

    return RecorderCallback
