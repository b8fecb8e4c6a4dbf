"""What the scripts of both frameworks that follow each other have in common. See `test_followed.py`."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from parity_tests.helpers import ROOT

SAMPLES, BATCH, STEPS = 64, 16, 18
PIXELS, CLASSES, WORDS, TOKENS = 8, 5, 11, 6
CLIPPED, DECAY = 0.5, 5e-4
# Between steps that are kept of every training: an epoch begins, whose first step shows what an evaluation left behind.
LATER = 12

# Stages that differ, each with its first step, None after the last one.
Due = list[tuple[str, int | None]]
# Reference -> planted mistake -> what is due. "": a faithful counterpart.
FAULTS: dict[str, dict[str, Due]] = {
    "torch": {
        "": [],
        "learning rate": [("learning rate", 0)],
        "momentum": [("update", 1)],
        "loss scale": [("loss", 0)],
        "not zeroed": [("gradients", 1)],
        "weight decay": [("update", 0)],
        "by hand": [("update", 0)],
        "rate of a group": [("update", 0)],
        "frozen": [("gradients", 0), ("update", 0)],
        "stopped": [("gradients", 0)],
        "other classes' weights": [("loss", 0)],
        "gradients of an evaluation": [("gradients", LATER)],
    },
    "norm": {
        "": [],
        "momentum": [("update", 1)],
        "not zeroed": [("gradients", 1)],
        "momentum of averages": [("buffers", 0)],
        # Its running averages move, of which the evaluation is made.
        "evaluated in training mode": [("final state", None)],
        # Gradients and buffers are off where the loss is.
        "still in inference": [("loss", LATER)],
    },
    "gpt": {
        "": [],
        "beta": [("update", 0)],
        "weight decay": [("update", 0)],
        "loss scale": [("loss", 0)],
        "not clipped": [("update", 0)],
    },
}
CROSS: dict[str, Due] = {
    "": [],
    "learning rate": [("learning rate", 0)],
    "momentum": [("update", 1)],
    "weight decay": [("update", 0)],
}
# Of an optimizer of the script's own, derived from a stock one.
OWN: dict[str, Due] = {"own": [], "own momentum": [("update", 1)]}
# Of two optimizers, the second of which has its turn at each second step.
TWO: dict[str, Due] = {
    "": [],
    "momentum": [("update", 1)],
    "second rate": [("update", 0)],
    "other turns": [("gradients", 0), ("update", 0)],
    "still between turns": [],
}
# Of two ranks that follow one process.
RANK_FAULTS: dict[str, dict[str, Due]] = {
    "ddp": {
        "": [],
        "own weights": [],
        "weight decay": [("update", 0)],
        "added up": [("gradients", 0)],
        "not reduced": [("gradients", 0)],
        "one rank": [("gradients", 0)],
        # What other samples give says nothing of loss and gradients.
        "whole batches": [("sample ids", 0)],
    },
    "fsdp": {"": [], "weight decay": [("update", 0)]},
}

MAPPING = """\
keras: scripts:keras
torch: scripts:torch
tensors:
  - {keras: conv/kernel, torch: conv.weight, rule: conv}
  - {keras: conv/bias, torch: conv.bias, rule: same}
  - {keras: head/kernel, torch: head.weight, rule: transpose}
  - {keras: head/bias, torch: head.bias, rule: same}
"""

RECURRENT = """\
keras: scripts:keras
torch: scripts:torch
tensors:
  - {keras: lstm/lstm_cell/kernel, torch: lstm.weight_ih_l0, rule: transpose}
  - {keras: lstm/lstm_cell/recurrent_kernel, torch: lstm.weight_hh_l0, rule: transpose}
  - {keras: lstm/lstm_cell/bias, torch: [lstm.bias_ih_l0, lstm.bias_hh_l0], rule: two_biases}
  - {keras: head/kernel, torch: head.weight, rule: transpose}
  - {keras: head/bias, torch: head.bias, rule: same}
"""


def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images float32 (samples, height, width), classes and texts (samples, tokens + 1)."""
    random = np.random.default_rng(11)
    images = random.standard_normal((SAMPLES, PIXELS, PIXELS)).astype(np.float32)
    return images, random.integers(0, CLASSES, SAMPLES), random.integers(0, WORDS, (SAMPLES, TOKENS + 1))


def weights() -> list[np.ndarray]:
    """The convnet's, float32, as Keras lays them out."""
    random = np.random.default_rng(12)
    shapes = [(3, 3, 1, 4), (4,), (4 * (PIXELS // 2 - 1) ** 2, CLASSES), (CLASSES,)]
    return [(random.standard_normal(shape) / 4).astype(np.float32) for shape in shapes]


def batches(shuffled: bool) -> Iterator[np.ndarray]:
    """Sample ids step by step; shuffled: each batch in another order, which rounds otherwise."""
    random = np.random.default_rng(13)
    for step in range(STEPS):
        ids = (np.arange(BATCH) + step * BATCH) % SAMPLES
        yield random.permutation(ids) if shuffled else ids


def diff_pieces() -> list[str]:
    """The scripts of docs/how_to/recorders.md after its diffs."""
    text = (ROOT / "docs" / "how_to" / "recorders.md").read_text()
    pieces = re.findall(r"```diff\n(.*?)```", text, re.DOTALL)
    kept = [[line[1:] for line in piece.splitlines() if not line.startswith("-")] for piece in pieces]
    return ["\n".join(lines) for lines in kept]
