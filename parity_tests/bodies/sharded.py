"""Runs whose ranks leave their final state as shards too, beside the one that is gathered."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from parity.common.checkpoint.shards import gather, shard_file, write_shard
from parity.common.record.files import write_json
from parity.torch_impl import train
from parity.torch_impl.sharded_checkpoint import ShardWriter
from parity_tests.helpers.rerouted import rerouted

SHARDS, FILES = "shards", "files.json"
_SECONDS = 60


def writing_shards() -> AbstractContextManager[None]:
    """What the worker enters: it sends its ranks through `rank`."""
    return rerouted(train, "parity_tests.bodies.sharded:rank")


def rank(*arguments: Any) -> None:
    """A rank's whole life, with its shard written before the final state is gathered."""
    real = train._Run.finish

    def finish(run: Any) -> None:
        writer = ShardWriter(run.model, run.optimizer, run.strategy)
        folder = Path(run.out_dir) / SHARDS
        write_shard(folder, writer.export(run.steps.stop))
        if run.primary:
            write_json(
                folder / FILES, gather(folder, map(shard_file, range(run.placement.processes)), _SECONDS)
            )
        real(run)

    with patch.object(train._Run, "finish", finish):
        train._train_rank(*arguments)
