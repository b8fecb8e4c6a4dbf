"""What is injected into each replica of the candidate: the reference's tensors of a step, shared out anew.

The shares are those of the batch plan, computed here whatever the candidate's own loader does.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from parity.common.data.plan import BatchPlan, Ids
from parity.common.record.trace import (
    INJECTABLE,
    Trace,
    is_of_samples,
    read_injected,
    step_folder,
    write_replica,
)
from parity.common.state.canonical import State, save_state

STATE = "state.safetensors"


def injections_of(ref: Trace, plan: BatchPlan, step: int | None) -> list[State]:
    """For each replica of a plan what is injected into it in a step; None is the first batch of the evaluation."""
    own = np.concatenate(ref.each("ids"))
    planned = ref.ids if step is None else plan.global_ids(step)
    places = _places(own, planned)
    common = {
        name: value
        for name, value in ref.replicas[0].items()
        if name.partition("/")[0] in INJECTABLE and not is_of_samples(name)
    }
    rows = {
        name: np.concatenate(ref.each(name))
        for name in ref.names
        if is_of_samples(name) and all(name in tensors for tensors in ref.replicas)
    }
    injections = []
    for replica in range(plan.replicas):
        share = plan.share(places, replica)
        injections.append({**{name: values[share] for name, values in rows.items()}, **common})
    return injections


def _places(own: Ids, planned: Ids) -> Ids:
    """Where in the reference's batch the planned samples are, in the plan's order.

    Where the reference did not have those samples: its own, in its own order.
    """
    order = np.argsort(own, kind="stable")
    ranks = np.argsort(planned, kind="stable")
    if not np.array_equal(own[order], planned[ranks]):
        return np.arange(len(own))
    places = np.empty(len(own), np.int64)
    places[ranks] = order
    return places


def state_before(ref: Trace, step: int) -> State:
    """The canonical state that the reference's step began with."""
    state = {
        name.removeprefix("before/"): value
        for name, value in ref.replicas[0].items()
        if name.startswith("before/")
    }
    return {**state, "step": np.array(step, np.int64)}


def write_injections(parent: Path, step: int | None, injections: list[State], state: State) -> list[State]:
    """Write what is injected into a step, and the state that it begins with; returns it, left in its files."""
    folder = step_folder(parent, step)
    for replica, tensors in enumerate(injections):
        write_replica(folder, replica, tensors)
    save_state(folder / STATE, state)
    return read_injected(parent, step, range(len(injections)))
