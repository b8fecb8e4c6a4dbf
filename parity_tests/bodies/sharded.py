"""Runs whose ranks leave their final state as shards too, beside the one that is gathered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from parity.common.checkpoint.shards import gather, shard_file, write_shard
from parity.common.record.files import write_json
from parity.torch_impl import train
from parity.torch_impl.sharding.checkpoint import ShardWriter
from parity_tests.helpers.hooks import in_ranks

SHARDS, FILES = "shards", "files.json"
_SECONDS = 60


def writing_shards() -> AbstractContextManager[None]:
    """What the worker enters: its ranks enter `in_rank`."""
    return in_ranks("parity_tests.bodies.sharded:in_rank")


@contextmanager
def in_rank() -> Iterator[None]:
    """A rank inside it writes its shard before the final state is gathered."""
    real = train.Training.finish

    def finish(run: Any) -> None:
        writer = ShardWriter(run.model, run.optimizer, run.strategy)
        folder = Path(run.out_dir) / SHARDS
        write_shard(folder, writer.export(run.steps.stop))
        if run.primary:
            write_json(
                folder / FILES, gather(folder, map(shard_file, range(run.placement.processes)), _SECONDS)
            )
        real(run)

    with patch.object(train.Training, "finish", finish):
        yield
