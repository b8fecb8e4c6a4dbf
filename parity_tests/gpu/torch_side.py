"""What is asked of torch in a process of its own: python -m parity_tests.gpu.torch_side FUNCTION gpu|cpu FOLDER.

Writes FOLDER/answer.json. An error of a GPU ends this process and nothing else.
"""

from __future__ import annotations

import importlib
import itertools
import json
import platform
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from parity.common import recipes
from parity.common.execution.run import Run
from parity.common.planning.adviser.memory import estimate
from parity.common.recipes.models.sequence import gpt2_model
from parity.common.spec import AdamW, Instrumentation, Placement, RunOptions, TrainSpec, override
from parity.common.spec.data import DataSpec
from parity.common.spec.sources import Synthetic
from parity.torch_impl import runtime, train

# Whose names say that attention or an LSTM ran as one operation; `_math` is attention written out in single ones.
_FUSED = {
    "attention": re.compile(r"_scaled_dot_product_(?!attention_math)\w+"),
    "lstm": re.compile(r"_cudnn_rnn|mkldnn_rnn_layer|miopen_rnn"),
}
_SHARE = 0.8  # of a GPU's free memory that the row of memory may take


def facts(device: str, folder: Path) -> dict[str, Any]:
    """Versions and GPUs."""
    del device, folder
    properties = [torch.cuda.get_device_properties(n) for n in range(torch.cuda.device_count())]
    versions = {
        "Python": platform.python_version(),
        "PyTorch": torch.__version__,
        "NumPy": np.__version__,
        "CUDA": torch.version.cuda,
        "cuDNN": torch.backends.cudnn.version() if properties else None,
        "NCCL": ".".join(map(str, torch.cuda.nccl.version())) if properties else None,
    }
    gpus = [{"name": p.name, "bytes": p.total_memory, "capability": [p.major, p.minor]} for p in properties]
    return {"versions": {name: str(v) for name, v in versions.items() if v is not None}, "gpus": gpus}


class Ours:
    """The trainer as it is, handed its batches a block at a time."""

    def __init__(self, spec: TrainSpec, placement: Placement, folder: Path, options: RunOptions) -> None:
        folder.mkdir()
        self.run = train.Training(spec, placement, folder, options, Instrumentation())
        self._batches = iter(self.run.batches())

    def block(self, steps: int) -> None:
        """Train this many steps more."""
        part = itertools.islice(self._batches, steps)
        self.run.batches = lambda: part  # type: ignore[method-assign]
        Run.loop(self.run)

    def close(self) -> None:
        """End the run and its record."""
        self.run.checkpoints.close()
        self.run.finish()


def kernels(device: str, folder: Path) -> dict[str, list[str]]:
    """The fast kernels that a step of a transformer and one of an LSTM go through, by torch's names."""
    model = gpt2_model(vocabulary=61, positions=16, tokens=12, width=24, depth=2, heads=3, dropout=0.0)
    gpt2 = override(recipes.get("gpt2:tiny"), ["precision=float32"]).model_copy(update={"model": model})
    specs = {"attention": gpt2, "lstm": override(recipes.get("lstm_classifier:tiny"), ["precision=float32"])}
    placement = Placement.from_text("torch:single:1", device=device)
    runtime.configure(placement)
    found = {}
    for name, spec in specs.items():
        ours = Ours(spec.resolved(), placement, folder / name, RunOptions(recording="off"))
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
            ours.block(1)
        names = {event.key.removeprefix("aten::") for event in seen.key_averages()}
        found[name] = sorted(
            each for each in names if _FUSED[name].fullmatch(each) and "backward" not in each
        )
        ours.close()
    return found


def memory(device: str, folder: Path) -> dict[str, dict[str, int]]:
    """Most bytes of a step, as the adviser foretells them and as CUDA's allocator counts them, by precision."""
    tokens, vocabulary = 256, 8192
    spec = TrainSpec(
        name="gpu_memory",
        model=gpt2_model(vocabulary, tokens, tokens, width=512, depth=6, heads=8, dropout=0.0),
        data=DataSpec(
            source=Synthetic(shape=(tokens,), target="next", vocabulary=vocabulary),
            train_samples=64,
            eval_samples=0,
        ),
        optimizer=AdamW(learning_rate=1e-4),
        global_batch_size=32,
        steps=3,
    )
    placement = Placement.from_text("torch:single:1", device=device)
    runtime.configure(placement)
    found: dict[str, dict[str, int]] = {}
    for precision in ("float32", "bfloat16_mixed"):
        asked = spec.model_copy(update={"precision": precision}).resolved()
        foretold = estimate(asked, placement).total
        free, _ = torch.cuda.mem_get_info()
        if foretold > _SHARE * free:
            found[precision] = {"foretold": foretold, "free": free}
            continue
        ours = Ours(asked, placement, folder / precision, RunOptions(recording="off"))
        # The first step makes what stays: slots, workspaces of the libraries.
        ours.block(1)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        ours.block(2)
        torch.cuda.synchronize()
        found[precision] = {"foretold": foretold, "measured": torch.cuda.max_memory_allocated()}
        del ours
        torch.cuda.empty_cache()
    return found


_OWN: dict[str, Callable[[str, Path], Any]] = {"facts": facts, "kernels": kernels, "memory": memory}


def main(function: str, device: str, folder: Path) -> None:
    """Answer; functions that are not here are those of `loops`."""
    if function in _OWN:
        found: Mapping[str, Any] = _OWN[function](device, folder)
    else:
        found = getattr(importlib.import_module("parity_tests.gpu.loops"), function)(device, folder)
    (folder / "answer.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
