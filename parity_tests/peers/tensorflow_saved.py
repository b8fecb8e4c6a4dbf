"""A live Keras model paired as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
from safetensors.numpy import load_file

import parity
from parity_tests.external_models import pair_keras
from parity_tests.peers import Arrays


def paired(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """The verdict of a live model beside torch's module of its name; see the test."""
    keras.utils.set_random_seed(99)
    model = getattr(pair_keras, facts["model"])()
    folder = Path(facts["folder"])
    data = {"x": arrays["x"], "y": arrays["y"].astype(int)}
    port = "NoResidual" if facts["model"] == "chain" else "CNN"
    torch = f"parity_tests.external_models.pair_torch:{port}"
    found = parity.pair(model, torch, data, steps=3, replicas=1, out=folder, quiet=True)
    begins = load_file(folder / "weights.safetensors")
    live = [variable.numpy().astype(np.float64) for variable in model.weights]
    same = [any(np.array_equal(each.ravel(), one.ravel()) for one in begins.values()) for each in live]
    return {
        "verdict": np.frombuffer(found.verdict.encode(), np.uint8),
        "begins": np.array(same),
        "kept": np.array([(folder / "keras_model.keras").is_file()]),
    }
