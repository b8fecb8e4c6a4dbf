"""Plain loops of torch's own, with a recorder and without, and beside our trainer; run by `torch_side`."""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parity.common.record import read_record
from parity.common.record.script_taps import is_tapped
from parity.common.spec import SGD, LayerSpec, ModelSpec, Placement, RunOptions, TrainSpec
from parity.common.spec.data import DataSpec
from parity.common.spec.layers import Activation, BatchNorm, Conv2D, Dense, GlobalAveragePool, MaxPool2D
from parity.common.spec.sources import Npz
from parity.torch_impl import runtime
from parity.torch_impl.recorder import Recorder
from parity_tests.gpu.torch_side import Ours

_STEPS, _BATCH, _SAMPLES = 24, 16, 96
# (filters, batch, rounds, steps of a block) of the loops that are timed.
_SIZES = {"gpu": ((64, 64, 128, 128, 256, 256), 256, 9, 20), "cpu": ((8, 16), 32, 5, 4)}
_SIDE, _CLASSES = 32, 10
_WARM_UP_ROUNDS = 2
# What torch warns with; another warning says that it does not see all that waits.
_WAITED = "called a synchronizing CUDA operation"


class _Loop:
    """A small net with batch norm and dropout, trained from a seed."""

    def __init__(self, device: str) -> None:
        self.device = torch.device("cuda" if device == "gpu" else "cpu")
        torch.manual_seed(0)
        convolved = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten()
        self.model = nn.Sequential(*convolved, nn.Dropout(0.2), nn.Linear(8 * 64, 10)).to(self.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-3)
        drawn = np.random.default_rng(0)
        images = drawn.standard_normal((_SAMPLES, 3, 8, 8)).astype(np.float32)
        self._images = torch.from_numpy(images).to(self.device)
        self._classes = torch.from_numpy(drawn.integers(0, 10, _SAMPLES)).to(self.device)

    def step(self, number: int) -> Tensor:
        """Take a step; its loss, which nothing has read."""
        first = number * _BATCH % _SAMPLES
        batch = slice(first, first + _BATCH)
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(self._images[batch]), self._classes[batch])
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def ids(self, number: int) -> np.ndarray:
        """Of the step's samples (batch,), int64."""
        return number * _BATCH % _SAMPLES + np.arange(_BATCH)


def recorder(device: str, folder: Path) -> dict[str, Any]:
    """Whether a loop has the same bits with a recorder, and its record all of it."""
    runtime.configure(Placement.from_text("torch:single:1", device=device))
    plain = _Loop(device)
    losses = [plain.step(number) for number in range(_STEPS)]
    watched, recorded = _Loop(device), list[Tensor]()
    with Recorder(folder / "record", watched.model, watched.optimizer, taps=True, every=1) as writes:
        for number in range(_STEPS):
            recorded.append(watched.step(number))
            writes.step(recorded[-1], _BATCH, watched.ids(number))
    record = read_record(folder / "record")
    means, norms = torch.stack(recorded).double().cpu().numpy(), record.columns["update_norm"]
    weights = zip(plain.model.state_dict().values(), watched.model.state_dict().values(), strict=True)
    complete = {
        "every step": record.steps.tolist() == list(range(_STEPS)),
        "summary": record.summary is not None,
        "losses": bool(np.allclose(record.loss, means, rtol=1e-15, atol=0)),
        "norms": bool(np.isfinite(norms).all() and (norms > 0).all()),
        "states": all(record.has(which) for which in ("initial", "first_gradients", "final")),
        "taps": record.script_taps is not None,
        "no violations": not record.violations,
    }
    return {
        "losses": sum(not torch.equal(a, b) for a, b in zip(losses, recorded, strict=True)),
        "tensors": sum(not torch.equal(a, b) for a, b in weights),
        "steps": _STEPS,
        "incomplete": [name for name, there in complete.items() if not there],
    }


def waits(device: str, folder: Path) -> dict[str, Any]:
    """How often a loop waits for the GPU, as torch reports it: recorded, alone, and where it reads a loss."""
    runtime.configure(Placement.from_text("torch:single:1", device=device))
    loop = _Loop(device)
    loop.step(0)
    torch.cuda.synchronize()
    with _counted() as alone:
        for number in range(_STEPS):
            loop.step(number)
    counts = []
    with Recorder(folder / "record", loop.model, loop.optimizer) as writes:
        for number in range(_STEPS):
            with _counted() as seen:
                writes.step(loop.step(number), _BATCH, loop.ids(number))
            counts.append(len(seen))
    with _counted() as control:
        loop.step(0).item()
    # At a few steps layers, dtypes and the first gradients are looked at, which has to wait.
    rare = [is_tapped(number, None) for number in range(_STEPS)]
    return {
        "usual": sum(count for count, seldom in zip(counts, rare, strict=True) if not seldom),
        "usual_steps": rare.count(False),
        "rare": sum(count for count, seldom in zip(counts, rare, strict=True) if seldom),
        "control": len(control),
        "alone": len(alone),
    }


@contextmanager
def _counted() -> Iterator[list[str]]:
    """What waits for the GPU within: operations that torch warns of, and calls of `synchronize`."""
    found: list[str] = []
    plain = torch.cuda.synchronize

    def synchronize(*arguments: Any) -> None:
        found.append("synchronize")
        plain(*arguments)

    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as said, patch("torch.cuda.synchronize", synchronize):
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield found
        finally:
            torch.cuda.set_sync_debug_mode(before)
            found += [str(each.message) for each in said if _WAITED in str(each.message)]


def _spec(device: str, path: Path) -> TrainSpec:
    """Convolutions on 32x32 colour images in memory, in bfloat16_mixed."""
    filters, batch, _, _ = _SIZES[device]
    drawn, count = np.random.default_rng(0), 4 * batch
    images = drawn.integers(0, 256, (count, _SIDE, _SIDE, 3), np.uint8)
    np.savez(path, inputs=images, targets=drawn.integers(0, _CLASSES, count))
    layers: list[LayerSpec] = []
    for number, each in enumerate(filters):
        layers += [MaxPool2D(size=2)] if number in (2, 4) else []
        convolution = Conv2D(filters=each, padding=1, use_bias=False), BatchNorm(statistics="per_replica")
        layers += [*convolution, Activation(function="relu")]
    source = Npz(path=str(path), inputs="inputs", targets="targets", divide_by=255.0)
    return TrainSpec(
        name="gpu_throughput",
        model=ModelSpec(
            input_shape=(_SIDE, _SIDE, 3), layers=(*layers, GlobalAveragePool(), Dense(units=_CLASSES))
        ),
        data=DataSpec(source=source, train_samples=count, eval_samples=0),
        optimizer=SGD(learning_rate=0.05, momentum=0.9),
        global_batch_size=batch,
        steps=10_000,
        precision="bfloat16_mixed",
    ).resolved()


class _Mean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))


class Bare:
    """The same net of stock modules under autocast, as a good engineer writes it: it never waits for a loss."""

    def __init__(self, device: str, path: Path) -> None:
        filters, self._batch, _, _ = _SIZES[device]
        self._device = "cuda" if device == "gpu" else "cpu"
        modules: list[nn.Module] = []
        for number, (before, after) in enumerate(zip((3, *filters), filters, strict=False)):
            modules += [nn.MaxPool2d(2)] if number in (2, 4) else []
            modules += [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
        net = nn.Sequential(*modules, _Mean(), nn.Linear(filters[-1], _CLASSES))
        self._model = net.to(self._device, memory_format=torch.channels_last)
        fused = {"fused": True} if device == "gpu" else {}
        self._optimizer = torch.optim.SGD(self._model.parameters(), 0.05, 0.9, **fused)
        with np.load(path) as held:
            images = torch.from_numpy(held["inputs"]).float().div(255).permute(0, 3, 1, 2)
            self._data = images, torch.from_numpy(held["targets"])
        self._taken = 0

    def block(self, steps: int) -> None:
        """Train this many steps more."""
        with _as_usual():
            for _ in range(steps):
                self._step()

    def _step(self) -> None:
        images, classes = self._data
        ids = torch.arange(self._taken, self._taken + self._batch) % len(images)
        self._taken += self._batch
        inputs, targets = (each[ids].to(self._device, non_blocking=True) for each in (images, classes))
        self._optimizer.zero_grad()
        with torch.autocast(self._device, torch.bfloat16):
            loss = F.cross_entropy(self._model(inputs), targets)
        loss.backward()
        self._optimizer.step()


@contextmanager
def _as_usual() -> Iterator[None]:
    """Kernels as a loop takes them that need not be deterministic."""
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        torch.backends.cudnn.benchmark = before[1]


def throughput(device: str, folder: Path) -> dict[str, Any]:
    """Seconds of each block of steps by variant, in rounds: ours recorded and not, and the bare loop."""
    _, batch, rounds, steps = _SIZES[device]
    placement = Placement.from_text("torch:single:1", device=device)
    runtime.configure(placement)
    spec = _spec(device, folder / "images.npz")
    ours = {
        name: Ours(spec, placement, folder / name, RunOptions(recording=recording))
        for name, recording in (("recorded", "full"), ("unrecorded", "off"))
    }
    variants: dict[str, Any] = {**ours, "bare": Bare(device, folder / "images.npz")}
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    order = random.Random(0)
    for number in range(rounds + _WARM_UP_ROUNDS):
        for name in order.sample(list(variants), len(variants)):
            took = _timed(device, lambda name=name: variants[name].block(steps))  # type: ignore[misc]
            if number >= _WARM_UP_ROUNDS:
                seconds[name].append(took)
    for each in ours.values():
        each.close()
    return {"seconds": seconds, "samples": steps * batch}


def _timed(device: str, block: Callable[[], None]) -> float:
    """Seconds of a block: on a GPU between two events in its own order of work."""
    if device == "cpu":
        began = time.perf_counter()
        block()
        return time.perf_counter() - began
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    first.record()
    block()
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last)) / 1000
