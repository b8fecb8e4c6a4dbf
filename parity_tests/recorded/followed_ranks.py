"""Two ranks of DDP or FSDP2 that follow one process, and one process that follows two ranks: `... followed_ranks OUT`.

OUT has the record `gpt` of `followed_torch`.
"""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from parity.torch_impl.recorder import Recorder
from parity_tests.recorded.followed import BATCH, CLIPPED, RANK_FAULTS, batches, data
from parity_tests.recorded.followed_torch import Gpt, gpt

RANKS = 2


def train(rank: int, out: Path, kind: str, fault: str, **options: Any) -> None:
    """The loop of `followed_torch.train` for the transformer, on every second sample."""
    torch.manual_seed(4 + rank * (fault == "own weights"))
    model: Any = Gpt()
    if kind == "fsdp":
        fully_shard(model)
    # Gradients that are views of DDP's buckets, as those who save memory have them.
    trained = model if kind == "fsdp" else DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(
        model.parameters(), 3e-3, (0.9, 0.999), weight_decay=0.0 if fault == "weight decay" else 0.1
    )
    _, _, texts = map(torch.from_numpy, data())
    with Recorder(out, trained, optimizer, distributed=True, **options) as recorder:
        for ids in batches(True):
            own = ids.copy() if fault == "whole batches" else ids[rank::RANKS].copy()
            optimizer.zero_grad()
            with trained.no_sync() if fault == "not reduced" else nullcontext():
                loss = functional.cross_entropy(
                    trained(texts[own, :-1]).flatten(0, 1), texts[own, 1:].flatten()
                )
                (loss * (RANKS if fault == "added up" else 1)).backward()
            if fault == "one rank" and rank == 1:
                model.narrow.bias.grad *= 1.5
            recorder.gradients()
            nn.utils.clip_grad_norm_(model.parameters(), CLIPPED)
            optimizer.step()
            recorder.step(loss, count=len(own), ids=own)


def rank(index: int, folder: str, store: str) -> None:
    """All scripts of one rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=index, world_size=RANKS)
    out = Path(folder)
    train(index, out / "ddp", "ddp", "", states=True)
    for kind, faults in RANK_FAULTS.items():
        for fault in faults:
            train(index, out / f"{kind}_{fault}", kind, fault, follow=out / "gpt")
    dist.destroy_process_group()
    # As in `rank_script`.
    os._exit(0)


if __name__ == "__main__":
    assert BATCH % RANKS == 0
    folder = Path(sys.argv[1])
    processes.spawn(rank, (str(folder), str(folder / "store")), nprocs=RANKS)
    for planted in ("", "weight decay"):
        gpt(folder / f"gpt_ddp_{planted}", planted, True, follow=folder / "ddp")
