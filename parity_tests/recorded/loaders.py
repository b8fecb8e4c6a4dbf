"""Loops whose sample ids come from what gives the batches: `... loaders OUT torch|keras`. Prints the ids that are due, step by step."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from parity.common.base.errors import RecordError

SAMPLES, BATCH, EPOCHS = 40, 8, 2
Due = list[list[int]]


def by_torch(out: Path) -> dict[str, Due]:
    """With and without workers, which fetch ahead; in one of them another loop goes over the same loader within a step."""
    import torch
    from torch.utils.data import DataLoader, IterableDataset, TensorDataset

    from parity.torch_impl.recorder import Recorder

    class Stream(IterableDataset):
        def __iter__(self) -> Any:
            return iter(torch.zeros(2, 1))

    rows = TensorDataset(torch.arange(float(SAMPLES))[:, None])
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    found = {}
    for workers in (0, 2):
        due: Due = []
        loader = DataLoader(rows, BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
        name, kind = f"workers_{workers}", type(loader.batch_sampler)
        with Recorder(out / name, model, optimizer) as recorder:
            for _ in range(EPOCHS):
                for (x,) in recorder.batches(loader):
                    due.append(x[:, 0].int().tolist())
                    if len(due) == 3 and not workers:
                        assert sum(len(each) for (each,) in loader) == SAMPLES
                    optimizer.zero_grad()
                    loss = model(x).square().mean()
                    loss.backward()
                    optimizer.step()
                    recorder.step(loss, count=len(x))
        assert type(loader.batch_sampler) is kind
        found[name] = due
    plain = DataLoader(rows, BATCH)
    for stream in (DataLoader(Stream(), 2), DataLoader(rows, None), zip(plain, plain, strict=True)):
        try:
            next(iter(recorder.batches(stream)))
            raise AssertionError("such a loader has no ids")
        except RecordError:
            pass
    try:
        next(zip(recorder.batches(plain), recorder.batches(plain), strict=True))
        raise AssertionError("a step has the ids of one of two loaders")
    except RecordError:
        pass
    # What was left of one loop is nothing to the next.
    next(iter(recorder.batches(plain)))
    next(iter(recorder.batches(plain)))
    return found


def by_keras(out: Path) -> dict[str, Due]:
    """A dataset that was enumerated before it was shuffled."""
    import keras
    import tensorflow as tf

    from parity.tf_impl.recorder import Recorder

    rows = np.arange(float(SAMPLES), dtype=np.float32)[:, None]
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(1e-4)
    plain = tf.data.Dataset.from_tensor_slices(rows)
    due: Due = []
    with Recorder(out / "pairs", model, optimizer) as recorder:
        for x in recorder.batches(plain.enumerate().shuffle(SAMPLES, seed=3).batch(BATCH)):
            due.append(x[:, 0].numpy().astype(int).tolist())
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(x)))
            variables = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            recorder.step(loss, count=len(x))
    try:
        next(iter(recorder.batches(plain)))
        raise AssertionError("its elements are no pairs")
    except RecordError:
        pass
    return {"pairs": due}


if __name__ == "__main__":
    side = {"torch": by_torch, "keras": by_keras}[sys.argv[2]]
    print(json.dumps(side(Path(sys.argv[1]))))
