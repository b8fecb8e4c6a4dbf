"""Hand-written PyTorch loops, recorded. See the package."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from parity.torch_impl.recorder import Recorder
from parity_tests.recorded import (
    BARE,
    BATCH,
    BETAS,
    CHANNELS,
    CLASSES,
    FEATURES,
    MOMENTUM,
    PIXELS,
    SCRIPTS,
    STEPS,
    UNITS,
    batch,
    data,
    image_weights,
    images,
    run_snippet,
    weights,
)


def model_of(
    scale: float = 1.0, dtype: torch.dtype = torch.float64, activation: str = "tanh"
) -> torch.nn.Sequential:
    """Two dense layers with the weights of the package."""
    between = torch.nn.Tanh() if activation == "tanh" else torch.nn.ReLU()
    model = torch.nn.Sequential(
        torch.nn.Linear(FEATURES, UNITS), between, torch.nn.Linear(UNITS, CLASSES)
    ).to(dtype)
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), weights(scale), strict=True):
            parameter.copy_(torch.from_numpy(value.T))
    return model


def optimizer_of(model: torch.nn.Module, given: dict[str, Any]) -> torch.optim.Optimizer:
    """SGD with momentum, or Adam with the epsilon given."""
    rate = given.get("learning_rate", 0.25)
    if "adam" in given:
        return torch.optim.Adam(model.parameters(), rate / 4, BETAS, given["adam"])
    return torch.optim.SGD(model.parameters(), rate, momentum=given.get("momentum", MOMENTUM))


def train(out: Path | None, given: dict[str, Any], steps: int = STEPS, **options: Any) -> np.ndarray:
    """One script; gives its weights, end to end. out: None records nothing."""
    model = model_of(
        given.get("scale", 1.0), given.get("dtype", torch.float64), given.get("activation", "tanh")
    )
    optimizer = optimizer_of(model, given)
    features, classes = map(torch.from_numpy, data())
    features = features.to(given.get("dtype", torch.float64))
    summed = given.get("reduction") == "sum"
    clip, parts = given.get("clip"), given.get("parts", 1)
    with nullcontext() if out is None else Recorder(out, model, optimizer, **options) as recorder:
        for step in range(steps):
            ids = batch(step, given.get("order", 0))
            if given.get("permuted"):
                ids = np.random.default_rng([given["permuted"], step]).permutation(ids)
            optimizer.zero_grad()
            for part in np.split(ids, parts):
                loss = functional.cross_entropy(
                    model(features[part]), classes[part], reduction="sum" if summed else "mean"
                )
                (loss / parts).backward()
                if recorder is not None and parts > 1:
                    recorder.add(loss, len(part), part)
            if clip:
                if recorder is not None and given.get("told", True):
                    recorder.gradients()
                torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            if recorder is None:
                continue
            if parts > 1:
                recorder.step()
            elif summed:
                recorder.step(loss_sum=loss, count=BATCH, ids=ids)
            elif given.get("ids", True):
                recorder.step(loss, count=BATCH, ids=torch.from_numpy(ids))
            else:
                recorder.step(loss.item(), BATCH)
            if given.get("killed") == step:
                os.kill(os.getpid(), signal.SIGKILL)
    return np.concatenate([p.detach().numpy().ravel() for p in model.parameters()])


class Pictures(torch.nn.Module):
    """A convolution, and one that is used twice; padding: of the second."""

    def __init__(self, padding: str) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(PIXELS[2], CHANNELS, 3, padding="same")
        self.twice = torch.nn.Conv2d(CHANNELS, CHANNELS, 3, padding="same", padding_mode=padding)
        self.double()
        with torch.no_grad():
            for parameter, value in zip(self.parameters(), image_weights(), strict=True):
                parameter.copy_(torch.from_numpy(value.transpose(3, 2, 0, 1) if value.ndim == 4 else value))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(samples, channels, height, width) to (samples, channels)."""
        x = torch.relu(self.first(x))
        return self.twice(torch.relu(self.twice(x))).mean((2, 3))


def pictures(out: Path, padding: str = "zeros", taps: Any = True, **options: Any) -> None:
    """Three steps of two micro-batches, with a look at the whole batch after each."""
    model = Pictures(padding)
    optimizer = torch.optim.SGD(model.parameters(), 0.125)
    inputs, wanted = map(torch.from_numpy, images())
    inputs = inputs.permute(0, 3, 1, 2)
    with Recorder(out, model, optimizer, taps=taps, **options) as recorder:
        for _ in range(3):
            optimizer.zero_grad()
            for part in (slice(0, 4), slice(4, 8)):
                loss = functional.mse_loss(model(inputs[part]), wanted[part])
                (loss / 2).backward()
                recorder.add(loss, 4)
            optimizer.step()
            recorder.step()
            with torch.no_grad():
                model(inputs)


def main(folder: Path) -> None:
    """All scripts."""
    for name, given in SCRIPTS.items():
        weights_after = train(folder / name, given, every=1, taps=True)
        if name in BARE:
            np.save(folder / f"bare_{name}.npy", train(None, given))
            np.save(folder / f"with_{name}.npy", weights_after)
    mapping = folder.parent / "mapping.yaml"
    train(folder / "mapped", {}, every=1, mapping=mapping, taps=True)
    train(folder / "no_ids", {"ids": False}, every=4)
    train(folder / "parts", {"parts": 4}, every=1, taps=["1", "2"])
    train(folder / "clipped", {"clip": 0.125}, every=1)
    train(folder / "clipped_untold", {"clip": 0.125, "told": False}, every=1)
    train(folder / "named", {}, name="another")
    train(folder / "single", {"dtype": torch.float32}, every=1)
    for order in range(1, 5):
        given = {"dtype": torch.float32, "permuted": order}
        train(folder / f"floor_{order}", given, every=1, order=order)
    pictures(folder / "pictures")
    pictures(folder / "pictures_mapped", mapping=folder.parent / "images.yaml")
    pictures(folder / "pictures_padding", "reflect")
    model = model_of()
    features, classes = map(torch.from_numpy, data())
    told = {
        "model": model,
        "optimizer": optimizer_of(model, {}),
        "loss_of": functional.cross_entropy,
        "batches": [(features[ids], classes[ids], ids) for ids in map(batch, range(STEPS))],
    }
    run_snippet(0, folder, told)
    without = model_of()
    with Recorder(folder / "no_optimizer", without, every=1) as recorder:
        for step in range(2):
            recorder.step(torch.tensor(1.0 + step), 1)


if __name__ == "__main__":
    if sys.argv[2:]:
        train(Path(sys.argv[1]), {"killed": int(sys.argv[2])}, every=1)
    else:
        main(Path(sys.argv[1]))
