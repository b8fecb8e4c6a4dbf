"""The run record: the folder a run writes. One writer, one reader, one schema (docs/reference/record.md).

header.json            what was run, on what, with which versions
steps.f64              one row of float64 a step; header.json names the columns
sample_ids/replica_N.ids     the sample ids that replicas really received, whole
sample_ids/replica_N.hashes  hashes of them by blocks of steps, where a run is too long to keep all ids
fingerprints/replica_N.jsonl one line a step: a fingerprint of that replica's parameters, where asked for
taps/, phases/         fingerprints of every tensor of every step, times of each phase, where asked for
violations/replica_N.jsonl   what must hold in every run and did not, where anything
memory/rank_N.json     bytes that process held: parameters, slots, all tensors, peak
states/step_N.safetensors    canonical states on the way, of small models in long runs
initial.safetensors, first_gradients.safetensors, final.safetensors   canonical states
summary.json           written last: the run is complete
resumed/001/, ...      the same again of each time that the run went on from a checkpoint
checkpoints/           what it would go on from (`parity.common.checkpoint`)
start.json             where the run goes on, as rank 0 has told the others

All that grows is flushed step by step, so the record is complete up to its last whole step
whatever kills the run.
"""

from parity.common.record.header import claim_folder
from parity.common.record.parts import branch, next_part, parts_of, run_of
from parity.common.record.reader import RunRecord, read_record
from parity.common.record.writer import RecordWriter

__all__ = [
    "RecordWriter",
    "RunRecord",
    "branch",
    "claim_folder",
    "next_part",
    "parts_of",
    "read_record",
    "run_of",
]
