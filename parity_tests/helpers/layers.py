"""One layer, or a small model, in TensorFlow, in PyTorch and in NumPy: outputs, gradients, buffers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.common.spec import ModelSpec
from parity.common.spec.model import walk
from parity.common.state.canonical import canonical_name
from parity_tests.peers import Arrays, Peer
from parity_tests.tables.vocabulary import LIMIT, Vocabulary

# NumPy: f(x, tensors by their own names) -> y, in complex-safe operations only.
NumpyLayer = Callable[[NDArray[Any], dict[str, NDArray[Any]]], NDArray[Any]]


@dataclass(frozen=True)
class Case:
    """One pass: what is computed, on which numbers. Everything follows from the fields."""

    layers: tuple[dict[str, Any], ...]
    input_shape: tuple[int, ...]
    convention: str = "keras"
    batch: int = 3
    draw: int = 0
    training: bool = True
    step: int = 5
    seed: int = 1
    vocabulary: int | None = None  # inputs are tokens below this
    pad_id: int | None = None

    @property
    def model(self) -> ModelSpec:
        data = {
            "input_shape": self.input_shape,
            "layers": self.layers,
            "inputs": "numbers" if self.vocabulary is None else "tokens",
            "pad_id": self.pad_id,
        }
        return ModelSpec.parse(data).resolve(self.convention)

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "model": self.model.to_dict(),
            "training": self.training,
            "seed": self.seed,
            "step": self.step,
            "precision": "float64",
        }

    def arrays(self) -> Arrays:
        """Inputs, cotangent and tensors: numbers of order one, all different."""
        random = np.random.default_rng(self.draw)
        tree = self.model.tree()
        shape = (self.batch, *self.input_shape)
        x = random.normal(size=shape)
        if self.vocabulary is not None:
            x = random.integers(0, self.vocabulary, shape)
        arrays = {
            "x": x,
            "sample_ids": random.integers(0, 2**40, self.batch),
            "cotangent": random.normal(size=(self.batch, *tree.output_shape)),
        }
        for node in walk(tree):
            for p in node.parameters:
                values = 0.5 * random.normal(size=p.shape)
                # A variance must be positive, a gain should not be near zero.
                positive = "variance" in p.name or p.name == "gamma"
                arrays[canonical_name(node.path, p)] = 0.5 + np.abs(values) if positive else values
        return arrays


def deviation(a: NDArray[Any], b: NDArray[Any]) -> float:
    """max |a - b| / max(1, |a|, |b|): relative, but for results that cancel to nearly nothing."""
    if a.shape != b.shape or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return float("inf")
    scale = max(1.0, np.abs(a).max(initial=0.0), np.abs(b).max(initial=0.0))
    return float(np.abs(a - b).max(initial=0.0) / scale)


def deviations(ours: Arrays, theirs: Arrays) -> dict[str, float]:
    """Of every array of either side; infinite for one that only one side has."""
    return {
        name: deviation(ours[name], theirs[name]) if name in ours and name in theirs else float("inf")
        for name in sorted({*ours, *theirs})
    }


def both(
    peers: dict[str, Peer], function: str, facts: dict[str, Any], arrays: Arrays
) -> tuple[Arrays, Arrays]:
    """The same call in TensorFlow and in PyTorch."""
    calls = [peers[framework].begin(function, facts, arrays) for framework in ("tensorflow", "torch")]
    tensorflow, torch = (call.result() for call in calls)
    return tensorflow, torch


def check_layer(
    peers: dict[str, Peer], vocabulary: Vocabulary, case: Case, numpy: NumpyLayer | None = None
) -> None:
    """Assert that a case comes out the same everywhere; the entry is the kind of its first layer.

    `numpy` gives the output of the one layer of the case. Its gradient is checked along a random
    direction by the complex step (Squire and Trapp, SIAM Review 1998), which is exact to rounding.
    """
    entry = case.layers[0]["kind"]
    arrays = case.arrays()
    tensorflow, torch = both(peers, "layers:forward_backward", case.facts, arrays)
    found = deviations(tensorflow, torch)
    referee = "TensorFlow, PyTorch"
    if numpy is not None:
        referee += ", NumPy"
        found |= {f"numpy {name}": d for name, d in _against_numpy(case, arrays, torch, numpy).items()}
    vocabulary.saw("layer", entry, max(found.values()), referee)
    far = {name: value for name, value in found.items() if not value <= LIMIT}
    assert not far, f"{entry}, {case}: {far}"


def _against_numpy(case: Case, arrays: Arrays, torch: Arrays, numpy: NumpyLayer) -> dict[str, float]:
    # Tensors by their name inside the (first) layer: "parameters/dense/kernel" is "kernel".
    names = {k: "/".join(k.split("/")[2:]) for k in arrays if k.startswith(("parameters/", "buffers/"))}
    tensors = {short: arrays[name] for name, short in names.items()}
    found = {"y": deviation(torch["y"], numpy(arrays["x"], tensors))}
    random = np.random.default_rng(case.draw + 1)
    h = 1e-30
    moved, slope = dict(tensors), 0.0
    x = arrays["x"]
    if "dx" in torch:
        direction = random.normal(size=x.shape)
        x = x + 1j * h * direction
        slope += float((torch["dx"] * direction).sum())
    for name, short in names.items():
        if name.startswith("parameters/"):
            direction = random.normal(size=tensors[short].shape)
            moved[short] = tensors[short] + 1j * h * direction
            slope += float((torch[f"d{name}"] * direction).sum())
    expected = (numpy(x, moved).imag / h * arrays["cotangent"]).sum()
    found["slope"] = deviation(np.array(slope), np.array(expected))
    return found
