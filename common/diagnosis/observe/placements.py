"""Which placements replays use instead of the runs' own, and what else two runs differ in."""

from __future__ import annotations

from typing import Any

from parity.common.record import RunRecord
from parity.common.spec import Placement

# Of a header, what may matter where two runs diverge.
_FACTS = ("versions", "host", "git_revision", "data_hash")
# What divides layers or gradients in ways of its own.
_OWN_WAYS = ("tensor_parallel", "data_parallel", "deepspeed")


def traceable(placement: Placement) -> tuple[Placement, list[str]]:
    """The placement nearest to this one whose steps can be traced, and what it leaves out but for pinning."""
    left_out = []
    fields: dict[str, Any] = {
        name: getattr(placement, name)
        for name in ("framework", "replicas", "device", "threads_per_replica", "loader_workers")
    }
    fields |= {name: getattr(placement, name) for name in ("prefetch_batches", "timeout_seconds")}
    fields |= {"accumulation": placement.accumulation, "sample_order_seed": placement.sample_order_seed}
    if placement.strategy in _OWN_WAYS:
        left_out.append(f"strategy {placement.strategy}")
        fields["strategy"] = "ddp" if placement.replicas > 1 else "single"
    else:
        fields |= {"strategy": placement.strategy, "options": placement.options.to_dict()}
    if placement.engine != "own":
        left_out.append(f"engine {placement.engine}")
    if placement.launcher != "local":
        left_out.append(f"launcher {placement.launcher}")
    if placement.compile:
        left_out.append("compile")
    if placement.steps_per_call > 1:
        left_out.append(f"steps_per_call {placement.steps_per_call}")
    return Placement.parse(fields), left_out


def differences(reference: RunRecord, candidate: RunRecord) -> list[str]:
    """What the runs' headers say differently, beside the placement."""
    found = []
    ours, theirs = reference.header, candidate.header
    for fact in _FACTS:
        a, b = getattr(ours, fact), getattr(theirs, fact)
        if isinstance(a, dict):
            shared = [name for name in a if name in b and a[name] != b[name]]
            found += [f"{fact} {name}: {a[name]} and {b[name]}" for name in shared]
        elif a != b:
            found.append(f"{fact}: {a} and {b}")
    return found
