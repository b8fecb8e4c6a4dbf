"""The base of `torch_scripts` on two ranks of DDP, recorded: `python -m parity_tests.recorded.rank_script OUT`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from parity.torch_impl.recorder import Recorder
from parity_tests.recorded import BATCH, STEPS, batch, data
from parity_tests.recorded.torch_scripts import model_of, optimizer_of

RANKS = 2


def train(rank: int, out: str, store: str) -> None:
    """One rank: every second sample."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    model = DistributedDataParallel(model_of())
    optimizer = optimizer_of(model, {})
    features, classes = map(torch.from_numpy, data())
    with Recorder(out, model, optimizer, distributed=True, every=1, taps=True) as recorder:
        for step in range(STEPS):
            ids = torch.from_numpy(batch(step)[rank::RANKS].copy())
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(features[ids]), classes[ids])
            loss.backward()
            optimizer.step()
            recorder.step(loss, BATCH // RANKS, ids)
    dist.destroy_process_group()
    # DDP keeps gloo's threads; where one still releases a tensor while Python ends, torch 2.13 aborts the process.
    os._exit(0)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    processes.spawn(train, (str(folder / "ranks"), str(folder / "store")), nprocs=RANKS)
