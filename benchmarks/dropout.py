"""What dropout keyed by (seed, step, sample) costs beside the frameworks' own, on one core.

Run: python -m benchmarks.dropout --framework torch --rounds 11

Prints one line of JSON: `seconds` of an activation's forward and backward pass (`keyed`, `stock`), and of
a step of a small GPT with keyed dropout, with the framework's own in its place, and without (`gpt_*`).
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks import models, shared
from parity.common.spec import Placement
from parity.common.spec.strategies import Framework

# Batch, tokens, features; about a million elements.
SHAPE = (32, 128, 256)
RATE = 0.1
_PASSES, _STEPS = 4, 4
_WARM_UP_ROUNDS = 2
# Where layers take their masks from.
_USERS = ("random", "containers", "attention")

Piece = Callable[[], object]


def torch_pieces(folder: Path) -> dict[str, Piece]:
    """What is timed of PyTorch."""
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F

    from benchmarks.torch_loops import Ours
    from parity.common.execution.pass_context import Context
    from parity.torch_impl.layers.random import keep_mask

    dist.init_process_group("gloo", init_method=f"file://{folder / 'rendezvous'}", rank=0, world_size=1)
    x = torch.ones(SHAPE, requires_grad=True)
    context = Context(training=True, step=3, sample_ids=torch.arange(SHAPE[0]))

    def through(drop: Callable[[Any], Any]) -> Piece:
        def passes() -> None:
            for _ in range(_PASSES):
                x.grad = None
                drop(x).sum().backward()

        return passes

    def stock_mask(x: Any, context: Any, path: str, shape: tuple[int, ...], rate: float) -> Any:
        del context, path
        return F.dropout(torch.ones(len(x), *shape, dtype=x.dtype), rate)

    def trained(name: str, rate: float) -> Piece:
        run = Ours(_gpt(rate), shared.config_of("ours", "torch:single:1,device=cpu"), folder / name)
        return lambda: run.block(_STEPS)

    return {
        "keyed": through(lambda x: x * keep_mask(x, context, "here", SHAPE[1:], RATE)),
        "stock": through(lambda x: F.dropout(x, RATE)),
        **_gpt_pieces("parity.torch_impl", trained, stock_mask),
    }


def tensorflow_pieces(folder: Path) -> dict[str, Piece]:
    """What is timed of TensorFlow."""
    import keras
    import tensorflow as tf

    from benchmarks.tf_loops import Ours
    from parity.common.execution.pass_context import Context
    from parity.tf_impl.layers.random import keep_mask

    x = tf.Variable(tf.ones(SHAPE))
    context = Context(training=True, step=3, sample_ids=tf.range(SHAPE[0], dtype=tf.int64))
    layer = keras.layers.Dropout(RATE)

    def through(drop: Callable[[Any], Any]) -> Piece:
        @tf.function
        def gradient() -> tf.Tensor:
            with tf.GradientTape() as tape:
                total = tf.reduce_sum(drop(x.value()))
            return tf.reduce_sum(tape.gradient(total, x))

        return lambda: [float(gradient()) for _ in range(_PASSES)]

    def stock_mask(x: Any, context: Any, path: str, shape: tuple[int, ...], rate: float) -> Any:
        del context, path
        return tf.nn.dropout(tf.ones([tf.shape(x)[0], *shape], x.dtype), rate)

    def trained(name: str, rate: float) -> Piece:
        config = shared.config_of("ours", "tensorflow:mirrored:1,device=cpu")
        run = Ours(name, _gpt(rate), config, folder)
        return lambda: run.block(_STEPS)

    return {
        "keyed": through(lambda x: x * keep_mask(x, context, "here", SHAPE[1:], RATE)),
        "stock": through(lambda x: layer(x, training=True)),
        **_gpt_pieces("parity.tf_impl", trained, stock_mask),
    }


def _gpt(rate: float) -> Any:
    # As many steps as any number of rounds takes.
    return models.small_gpt(rate).model_copy(update={"steps": 10_000}).resolved()


def _gpt_pieces(package: str, trained: Callable[[str, float], Piece], stock_mask: Any) -> dict[str, Piece]:
    """The steps of a GPT with each kind of dropout; the patch stands while it is built and whenever it runs."""

    def under(enter: Callable[[], AbstractContextManager[Any]], name: str, rate: float) -> Piece:
        with enter():
            piece = trained(name, rate)

        def patched() -> None:
            with enter():
                piece()

        return patched

    def stock() -> AbstractContextManager[Any]:
        with ExitStack() as stack:
            for user in _USERS:
                module = importlib.import_module(f"{package}.layers.{user}")
                stack.enter_context(patch.object(module, "keep_mask", stock_mask))
            return stack.pop_all()

    return {
        "gpt_keyed": under(nullcontext, "keyed", RATE),
        "gpt_stock": under(stock, "stock", RATE),
        "gpt_none": under(nullcontext, "none", 0.0),
    }


_PIECES = {"torch": torch_pieces, "tensorflow": tensorflow_pieces}
_PACKAGES: dict[Framework, str] = {"torch": "parity.torch_impl", "tensorflow": "parity.tf_impl"}


def measure(framework: Framework, rounds: int) -> dict[str, Any]:
    """Seconds a round of each piece, of one pass or one step."""
    runtime = importlib.import_module(f"{_PACKAGES[framework]}.runtime")
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    runtime.configure(Placement.from_text(f"{framework}:single:1,device=cpu"))
    with tempfile.TemporaryDirectory(prefix="parity-benchmark-") as folder:
        pieces = _PIECES[framework](Path(folder))
        seconds: dict[str, list[float]] = {name: [] for name in pieces}
        for number in range(rounds + _WARM_UP_ROUNDS):
            order = list(pieces)
            random.Random(number).shuffle(order)
            for name in order:
                begun = time.perf_counter()
                pieces[name]()
                if number >= _WARM_UP_ROUNDS:
                    seconds[name].append(time.perf_counter() - begun)
    return {
        "framework": framework,
        "block_steps": _STEPS,
        "elements": int(np.prod(SHAPE)),
        "seconds": seconds,
        "versions": runtime.versions(),
        "threads": runtime.thread_counts(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--framework", choices=list(_PIECES), required=True)
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    print(json.dumps(measure(options.framework, options.rounds)))


if __name__ == "__main__":
    main()
