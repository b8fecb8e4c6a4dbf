"""TensorFlow loops of one model in one process, in turns: ours, one written by hand, and stock Keras `fit`.

Run: python -m benchmarks.tf_loops --replicas 2 --spec compute_bound_cnn --rounds 12 --block-steps 4

All variants stay alive and take turns in blocks of a few steps, in an order drawn anew each round, so that
whatever the machine does besides meets them alike. Prints one line of JSON: `seconds` holds the seconds of
each block by variant, `cpu_seconds` the processor's time, which a loaded machine changes less, `agreement` by
how much each variant's losses differ from ours over its first steps.

ours             `parity.common.execution.run.Run.loop` with its record, threads as the runtime sets them, pinned.
ours_unrecorded  the same without one; ours_tapped: with digests of all activations and gradients.
ours_N_a_call    the same with steps_per_call=N; ours_compiled: with compile.
ours_looked_into  the same with every tensor of every step kept.
ours_saving      the same with a checkpoint every 50 steps, on the disk before the block ends.
bare             what a good engineer writes: stock Keras layers and optimizer, a distributed tf.data pipeline,
                 one tf.function around strategy.run, losses read at the end of a block.
keras_fit        stock `compile` and `fit` of those layers, the same pipeline.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from benchmarks import models, shared
from benchmarks.tf_families import FAMILIES, family
from parity.common.data import sources
from parity.common.data.plan import BatchPlan
from parity.common.execution.hooks import within
from parity.common.execution.run import Run
from parity.common.record import read_record
from parity.common.spec import SGD, Adam, AdamW, Instrumentation, Placement, RunConfig, TrainSpec
from parity.common.spec import layers as layer_specs
from parity.common.state.canonical import initial_state
from parity.tf_impl import runtime, train
from parity.tf_impl.graphs.steps import launching_ahead
from parity.tf_impl.probe import Probe
from parity.tf_impl.strategy import open_strategy


class Ours:
    """The trainer as it is, handed its batches a block at a time."""

    def __init__(self, name: str, spec: TrainSpec, config: RunConfig, folder: Path) -> None:
        placement, options, _ = config.parts
        (folder / name).mkdir(parents=True)
        with within():
            # A step of its own, whatever has been traced before.
            self._run = run = train.Training(spec, placement, folder / name, options, Instrumentation())
        if name == "ours_looked_into":
            probe = Probe(run.step)
            probe.injects = False
            run.step = shared.LookedInto(run, probe)
        self._batches = iter(run.batches())
        self._per_call = placement.steps_per_call
        self._folder = folder / name

    def block(self, steps: int) -> None:
        """Train this many steps more."""
        _rewrite_sums(False)
        part = itertools.islice(self._batches, steps // self._per_call)
        self._run.batches = lambda: part
        with launching_ahead(self._run.behind):
            Run.loop(self._run)
        shared.wait_until_written(self._run)

    def losses(self) -> list[float]:
        """Of every step, once all blocks are done."""
        self._run.checkpoints.close()
        self._run.finish()
        return list(read_record(self._folder).loss)


class Bare:
    """A custom loop around `strategy.run`."""

    def __init__(self, spec: TrainSpec, placement: Placement) -> None:
        strategy = open_strategy(placement).native
        with strategy.scope():
            model, optimizer = stock_model(spec), stock_optimizer(spec)
            optimizer.build(model.trainable_variables)
        loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
        # Of samples, or of their tokens.
        count = spec.global_batch_size * int(np.prod(model.output_shape[1:-1]))

        def replica(inputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = loss_of(targets, model(inputs, training=True)) / count
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        @tf.function
        def step(batch: tuple) -> tf.Tensor:
            return strategy.reduce("SUM", strategy.run(replica, args=batch), axis=None)

        self._step = step
        self._batches = iter(strategy.experimental_distribute_dataset(dataset(spec)))
        self._losses: list[float] = []

    def block(self, steps: int) -> None:
        _rewrite_sums(True)
        found = [self._step(next(self._batches)) for _ in range(steps)]
        self._losses += [float(loss) for loss in found]

    def losses(self) -> list[float]:
        return self._losses


class KerasFit:
    """One call of `fit`, in a thread that is given its turns by a callback."""

    def __init__(self, spec: TrainSpec, placement: Placement) -> None:
        self._strategy = open_strategy(placement).native
        with self._strategy.scope():
            self._model = stock_model(spec)
            self._model.compile(
                optimizer=stock_optimizer(spec),
                loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                jit_compile=False,
            )
        self._data = dataset(spec)
        self._turns = _Turns()
        self._thread = threading.Thread(target=self._fit, daemon=True)
        self._thread.start()

    def _fit(self) -> None:
        self._turns.wait()
        _rewrite_sums(True)
        self._model.fit(self._data, epochs=1, verbose=0, shuffle=False, callbacks=[self._turns])

    def block(self, steps: int) -> None:
        self._turns.take(steps)

    def losses(self) -> list[float]:
        """fit shows the mean so far; each step's own follows from two of them."""
        self._turns.stop()
        self._thread.join()
        sums = np.arange(1, len(self._turns.means) + 1) * np.array(self._turns.means)
        return list(np.diff(sums, prepend=0.0))


class _Turns(keras.callbacks.Callback):
    """Lets `fit` go on by some batches at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._left, self._ended = 0, False
        self.means: list[float] = []

    def wait(self) -> None:
        self._go.acquire()

    def take(self, steps: int) -> None:
        """Let `steps` batches be trained, and wait for them."""
        self._left = steps
        self._go.release()
        self._done.acquire()

    def stop(self) -> None:
        self._ended = True
        self._go.release()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del batch
        self.means.append(logs["loss"])
        self._left -= 1
        if not self._left:
            self._done.release()
            self.wait()
            self.model.stop_training = self._ended


def _rewrite_sums(on: bool) -> None:
    """TensorFlow's rewriting of sums in graphs that this thread calls: usually on, which our runtime changes."""
    tf.config.optimizer.set_experimental_options({"arithmetic_optimization": on})


def dataset(spec: TrainSpec) -> tf.data.Dataset:
    """The spec's batches, in its order, as tf.data reads arrays in memory."""
    samples, _ = sources.load_for(spec)
    plan = BatchPlan.of(spec, Placement(framework="tensorflow", strategy="single"))
    inputs, targets = samples.rows(np.arange(spec.data.train_samples))
    kept = spec.data.train_samples // spec.global_batch_size * spec.global_batch_size
    order = [plan.global_ids(step) for step in range(spec.steps)]
    assert kept == spec.data.train_samples or spec.data.tail == "drop"
    found = tf.data.Dataset.from_tensor_slices(np.concatenate(order))
    found = found.batch(spec.global_batch_size, drop_remainder=True)
    inputs, targets = tf.constant(inputs), tf.constant(targets)
    return found.map(lambda ids: (tf.gather(inputs, ids), tf.gather(targets, ids))).prefetch(tf.data.AUTOTUNE)


def stock_model(spec: TrainSpec) -> keras.Model:
    """The spec's model of the layers that Keras ships, at the spec's initial values."""
    keras.config.set_floatx(spec.master_dtype)
    keras.config.set_dtype_policy(spec.master_dtype)
    if spec.name in FAMILIES:
        return family(spec)
    inputs = x = keras.Input(spec.model.input_shape)
    for layer in spec.model.layers:
        x = _STOCK[type(layer)](layer)(x)
    model = keras.Model(inputs, x)
    state = initial_state(spec)
    kinds = {"trainable": "parameters/", "non_trainable": "buffers/"}
    for kind, prefix in kinds.items():
        variables = getattr(model, f"{kind}_variables")
        values = [value for name, value in state.items() if name.startswith(prefix)]
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
    return model


_STOCK: dict[type, Callable[[Any], keras.layers.Layer]] = {
    layer_specs.Conv2D: lambda s: keras.layers.Conv2D(
        s.filters, s.kernel_size, s.strides, padding="same", use_bias=s.use_bias
    ),
    layer_specs.BatchNorm: lambda s: keras.layers.BatchNormalization(momentum=s.decay, epsilon=s.epsilon),
    layer_specs.Activation: lambda s: keras.layers.Activation(s.function),
    layer_specs.MaxPool2D: lambda s: keras.layers.MaxPooling2D(s.size),
    layer_specs.Flatten: lambda s: keras.layers.Flatten(),
    layer_specs.GlobalAveragePool: lambda s: keras.layers.GlobalAveragePooling2D(),
    layer_specs.Dense: lambda s: keras.layers.Dense(s.units),
}


def stock_optimizer(spec: TrainSpec) -> keras.optimizers.Optimizer:
    """Keras's own of a spec that trains at a constant rate."""
    given = spec.optimizer
    clip = {"global_clipnorm": given.clip_global_norm}
    if isinstance(given, SGD):
        assert given.momentum_form == "velocity"
        return keras.optimizers.SGD(given.learning_rate, momentum=given.momentum, **clip)
    assert isinstance(given, Adam | AdamW)
    betas = {"beta_1": given.beta_1, "beta_2": given.beta_2, "epsilon": given.epsilon}
    if isinstance(given, AdamW):
        return keras.optimizers.AdamW(given.learning_rate, given.weight_decay, **betas, **clip)
    return keras.optimizers.Adam(given.learning_rate, **betas, **clip)


def build(name: str, spec: TrainSpec, replicas: int, folder: Path) -> Any:
    """A variant by name."""
    config = shared.config_of(name, f"tensorflow:mirrored:{replicas}")
    if name.startswith("ours"):
        return Ours(name, spec, config, folder)
    return {"bare": Bare, "keras_fit": KerasFit}[name](spec, config.placement)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds of each block by variant, and how the variants' losses compare with the first one's."""
    names = options.variants.split(",")
    spec = shared.prepared(models.get(options.spec), options.rounds, options.block_steps)
    runtime.configure(shared.config_of("bare", f"tensorflow:mirrored:{options.replicas}").placement)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    busy: dict[str, list[float]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory(prefix="parity-benchmark-") as folder:
        variants = {name: build(name, spec, options.replicas, Path(folder)) for name in names}
        for number, order in enumerate(shared.orders(names, options.rounds + shared.WARM_UP_ROUNDS)):
            for name in order:
                begun, worked = time.perf_counter(), time.process_time()
                variants[name].block(options.block_steps)
                if number >= shared.WARM_UP_ROUNDS:
                    seconds[name].append(time.perf_counter() - begun)
                    busy[name].append(time.process_time() - worked)
        losses = {name: variant.losses()[: shared.COMPARED_STEPS] for name, variant in variants.items()}
    return {
        "framework": "tensorflow",
        "spec": spec.name,
        "replicas": options.replicas,
        "block_steps": options.block_steps,
        "global_batch_size": spec.global_batch_size,
        "seconds": seconds,
        "cpu_seconds": busy,
        "agreement": shared.agreement("tf_loops", losses),
        "versions": runtime.versions(),
        "threads": runtime.thread_counts(),
    }


def main() -> None:
    print(json.dumps(measure(shared.arguments(__doc__, "ours,bare,keras_fit").parse_args())))


if __name__ == "__main__":
    main()
