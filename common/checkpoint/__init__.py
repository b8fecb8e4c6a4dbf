"""Checkpoints: what a run goes on from, in either framework and on any placement (docs/how_to/checkpoints.md).

    RUN/checkpoints/step_00000050/
        state.safetensors       the canonical state before step 50
        shard_NNNNN.safetensors instead of it, where every rank writes its own parts (`save.sharded`)
        replica_N.safetensors   buffers of replica N, where the spec lets each have its own
        manifest.json           step, spec, schedule and loss scale, size and SHA-256 of each file

A folder has this name only once all of it is on the disk; until then it is `step_00000050.partial`.
"""

from parity.common.checkpoint.files import Checkpoint, check_fits, checkpoints_of, find, read_checkpoint
from parity.common.checkpoint.manager import CheckpointManager

__all__ = ["Checkpoint", "CheckpointManager", "check_fits", "checkpoints_of", "find", "read_checkpoint"]
