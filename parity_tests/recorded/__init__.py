"""Training scripts of both frameworks, as a user would write them, for `test_recorder.py`.

Each module makes many runs in one process: starting a framework costs seconds. `python -m parity_tests.recorded.torch_scripts
OUT` writes a record for each, and of some `with_NAME.npy` and `bare_NAME.npy`, the weights after it and after the same
training without a recorder.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from parity_tests.helpers import ROOT

SAMPLES, FEATURES, UNITS, CLASSES, BATCH, STEPS = 64, 8, 16, 3, 16, 12
# Numbers that float32 holds exactly: Keras takes Python's through it.
MOMENTUM, BETAS, EPSILON = 0.875, (0.875, 0.9921875), 2.0**-20

# name -> what is other than usual in that script.
SCRIPTS: dict[str, dict[str, object]] = {
    "base": {},
    "rate": {"learning_rate": 0.125},
    "momentum": {"momentum": 0.75},
    "order": {"order": 1},
    "adam": {"adam": EPSILON},
    "epsilon": {"adam": 2.0**-10},
    # The gradients are as many times as large, and the updates are not.
    "sum": {"reduction": "sum", "learning_rate": 0.25 / BATCH},
    "weights": {"scale": 1.0625},
    "activation": {"activation": "relu"},
}
# The scripts that Keras has, too.
KERAS = ("base", "adam", "epsilon", "sum")
# Of these, the same training is also made without a recorder.
BARE = ("base", "adam")


def data() -> tuple[np.ndarray, np.ndarray]:
    """Features and classes."""
    random = np.random.default_rng(7)
    return random.standard_normal((SAMPLES, FEATURES)), random.integers(0, CLASSES, SAMPLES)


def weights(scale: float = 1.0) -> list[np.ndarray]:
    """Kernel and bias of both layers, as Keras lays them out."""
    random = np.random.default_rng(8)
    shapes = [(FEATURES, UNITS), (UNITS,), (UNITS, CLASSES), (CLASSES,)]
    return [scale * random.standard_normal(shape) / 4 for shape in shapes]


def batch(step: int, order: int = 0) -> np.ndarray:
    """Sample ids of a step: epochs go through the samples, each in another order."""
    per_epoch = SAMPLES // BATCH
    epoch, within = divmod(step, per_epoch)
    shuffled = np.random.default_rng([order, epoch]).permutation(SAMPLES)
    return shuffled[within * BATCH : (within + 1) * BATCH]


PIXELS, CHANNELS = (5, 6, 2), 3


def images() -> tuple[np.ndarray, np.ndarray]:
    """A batch of pictures, channels last, and what is wanted of them."""
    random = np.random.default_rng(9)
    return random.standard_normal((8, *PIXELS)), random.standard_normal((8, CHANNELS))


def image_weights() -> list[np.ndarray]:
    """Kernel and bias of a convolution, and of one that is used twice, as Keras lays them out."""
    random = np.random.default_rng(10)
    shapes = [(3, 3, PIXELS[2], CHANNELS), (CHANNELS,), (3, 3, CHANNELS, CHANNELS), (CHANNELS,)]
    return [random.standard_normal(shape) / 4 for shape in shapes]


def run_snippet(number: int, folder: Path, names: dict[str, Any]) -> None:
    """Run a piece of Python of docs/how_to/recorders.md, in their order, in a folder of its own, with what it takes for given."""
    text = (ROOT / "docs" / "how_to" / "recorders.md").read_text()
    piece = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[number]
    before = Path.cwd()
    os.chdir(folder)
    try:
        exec(compile(piece, f"docs/how_to/recorders.md, piece {number}", "exec"), names)
    finally:
        os.chdir(before)


MAPPING = """\
keras: scripts:keras
torch: scripts:torch
tensors:
  - {keras: hidden/kernel, torch: 0.weight, rule: transpose}
  - {keras: hidden/bias, torch: 0.bias, rule: same}
  - {keras: logits/kernel, torch: 2.weight, rule: transpose}
  - {keras: logits/bias, torch: 2.bias, rule: same}
layers:
  - {keras: hidden, torch: "1"}
  - {keras: logits, torch: "2"}
"""


IMAGE_MAPPING = """\
keras: scripts:keras
torch: scripts:torch
tensors:
  - {keras: first/kernel, torch: first.weight, rule: conv}
  - {keras: first/bias, torch: first.bias, rule: same}
  - {keras: twice/kernel, torch: twice.weight, rule: conv}
  - {keras: twice/bias, torch: twice.bias, rule: same}
layers:
  - {keras: first, torch: first}
  - {keras: twice, torch: twice}
  - {keras: "twice#1", torch: "twice#1"}
"""


def write_mapping(folder: Path) -> Path:
    """mapping.yaml of the two models, and images.yaml of those of pictures."""
    path = folder / "mapping.yaml"
    path.write_text(MAPPING)
    (folder / "images.yaml").write_text(IMAGE_MAPPING)
    return path
