"""Training loops of someone's own, with a recorder and without, in turns.

Run: python -m benchmarks.recorded --framework torch --rounds 11

A small CNN on 32x32 colour images, batches of 32, float32, one thread; the loop reads the loss of every step, as loops
do. The variants stay alive and take turns in blocks, in an order drawn anew each round. Of each there are two loops,
made in an order and its reverse: of equal loops one can be 2% faster than another, by where its memory lies. Prints
one line of JSON: `seconds` and `cpu_seconds` of each block by variant.

bare      the loop.       recorded     with a `Recorder`: loss, count, ids, norms as often as it takes them by itself.
every     with norms at every step.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

BATCH, SIDE, CLASSES, SAMPLES = 32, 32, 10, 512
FILTERS = (32, 64, 64)
VARIANTS = {"bare": None, "recorded": {}, "every": {"every": 1}}


def data() -> tuple[np.ndarray, np.ndarray]:
    """Images, channels last, and classes."""
    drawn = np.random.default_rng(0)
    images = drawn.standard_normal((SAMPLES, SIDE, SIDE, 3)).astype(np.float32)
    return images, drawn.integers(0, CLASSES, SAMPLES)


def torch_loop(out: Path, given: dict[str, Any] | None) -> tuple[Callable[[int], None], str]:
    """What trains so many steps more; and the framework's version."""
    import torch
    from torch import nn

    from parity.torch_impl.recorder import Recorder

    torch.set_num_threads(1)
    layers: list[nn.Module] = []
    for before, after in zip((3, *FILTERS), FILTERS, strict=False):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    model = nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(FILTERS[-1] * 16, 256), nn.ReLU(), nn.Linear(256, CLASSES)
    )
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    images, classes = map(torch.from_numpy, data())
    images = images.permute(0, 3, 1, 2).contiguous()
    recorder = None if given is None else Recorder(out, model, optimizer, **given)
    taken = 0

    def block(steps: int) -> None:
        nonlocal taken
        for _ in range(steps):
            ids = torch.arange(taken * BATCH, (taken + 1) * BATCH) % SAMPLES
            taken += 1
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images[ids]), classes[ids])
            loss.backward()
            optimizer.step()
            loss.item()
            if recorder is not None:
                recorder.step(loss, BATCH, ids)

    return block, f"torch {torch.__version__}"


def tensorflow_loop(out: Path, given: dict[str, Any] | None) -> tuple[Callable[[int], None], str]:
    """As `torch_loop`, of TensorFlow."""
    import keras
    import tensorflow as tf

    from parity.tf_impl.recorder import Recorder

    layers: list[Any] = [keras.Input((SIDE, SIDE, 3))]
    for after in FILTERS:
        layers += [keras.layers.Conv2D(after, 3, padding="same", activation="relu"), keras.layers.MaxPool2D()]
    layers += [keras.layers.Flatten(), keras.layers.Dense(256, "relu"), keras.layers.Dense(CLASSES)]
    model, optimizer = keras.Sequential(layers), keras.optimizers.Adam(1e-3)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    images, classes = data()

    @tf.function
    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    recorder = None if given is None else Recorder(out, model, optimizer, **given)
    taken = 0

    def block(steps: int) -> None:
        nonlocal taken
        for _ in range(steps):
            ids = np.arange(taken * BATCH, (taken + 1) * BATCH) % SAMPLES
            taken += 1
            loss = train_step(tf.constant(images[ids]), tf.constant(classes[ids]))
            float(loss)
            if recorder is not None:
                recorder.step(loss, BATCH, ids)

    return block, f"tensorflow {tf.__version__}, keras {keras.__version__}"


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--framework", choices=["torch", "tensorflow"], required=True)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--block-steps", type=int, default=20)
    given = parser.parse_args()
    if given.framework == "tensorflow":
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    make = torch_loop if given.framework == "torch" else tensorflow_loop
    with tempfile.TemporaryDirectory() as scratch:
        made = [(name, make(Path(scratch) / f"{name}_1", kind)) for name, kind in VARIANTS.items()]
        again = reversed(VARIANTS.items())
        made += [(name, make(Path(scratch) / f"{name}_2", kind)) for name, kind in again]
        versions = dict(part.split() for part in made[0][1][1].split(", "))
        loops = {name: [block for other, (block, _) in made if other == name] for name in VARIANTS}
        for _, (block, _) in made:
            block(2 * given.block_steps)  # compile, and let the recorder find its pace
        seconds: dict[str, list[float]] = {name: [] for name in loops}
        cpu_seconds: dict[str, list[float]] = {name: [] for name in loops}
        order, drawn = list(loops), random.Random(0)
        for _ in range(given.rounds):
            drawn.shuffle(order)
            for name in order:
                began, used = time.perf_counter(), time.process_time()
                for block in loops[name]:
                    block(given.block_steps // 2)
                seconds[name].append(time.perf_counter() - began)
                cpu_seconds[name].append(time.process_time() - used)
    facts = {
        "block_steps": given.block_steps,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "versions": versions,
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
