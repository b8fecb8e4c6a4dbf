"""A step of a two-layer net in NumPy, traced and fed as `parity.common.record.trace` says: what the diagnosis is tried on
without a framework. Each place may be made wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from parity.common import recipes
from parity.common.data.plan import BatchPlan
from parity.common.record.trace import Array, Trace
from parity.common.spec import Placement, TrainSpec, override
from parity.common.state.canonical import State, initial_state

SPEC = override(
    recipes.get("digits_mlp"), ["global_batch_size=10", "steps=4", "data.train_samples=44"]
).resolved()
LAYERS = {
    "flatten": "inputs",
    "dense_1": "forward/flatten",
    "activation": "forward/dense_1",
    "dense_2": "forward/activation",
}
RATE, MOMENTUM = 0.05, 0.9
# What a place makes, by its name and the replica, and what it is to make instead.
Faults = Mapping[str, Callable[[Array, int], Array]]


def placement(replicas: int) -> Placement:
    return Placement.parse({"framework": "torch", "strategy": "ddp", "replicas": replicas})


def samples(ids: Array) -> tuple[Array, Array]:
    """Inputs and targets of some samples."""
    inputs = np.stack(
        [np.random.default_rng(int(i)).normal(size=(8, 8, 1)) for i in ids] or [np.zeros((8, 8, 1))]
    )
    return inputs[: len(ids)], ids % 10


def traced(
    step: int,
    replicas: int,
    injected: Sequence[State] | None = None,
    faults: Faults | None = None,
    state: State | None = None,
    spec: TrainSpec = SPEC,
) -> Trace:
    """A step on some replicas, each place passed through its fault."""
    plan, faults = BatchPlan.of(spec, placement(replicas)), faults or {}
    before = {**(state or initial_state(spec)), "step": np.array(step, np.int64)}
    kept: list[State] = [{} for _ in range(replicas)]

    def place(name: str, value: Array, replica: int) -> Array:
        own = faults[name](value, replica) if name in faults else value
        kept[replica][name] = np.array(own)
        given = injected[replica].get(name) if injected else None
        return np.array(own) if given is None else given

    locals_: list[dict[str, Array]] = []
    for replica in range(replicas):
        ids = place("ids", plan.local_ids(step, replica), replica)
        inputs, targets = samples(kept[replica]["ids"])
        inputs, targets = place("inputs", inputs, replica), place("targets", targets, replica)
        held = {name: place(f"before/{name}", value, replica) for name, value in before.items()}
        del ids
        local: dict[str, Array] = {}
        flat = place("forward/flatten", inputs.reshape(len(inputs), -1), replica)
        k1, b1 = held["parameters/dense_1/kernel"], held["parameters/dense_1/bias"]
        k2, b2 = held["parameters/dense_2/kernel"], held["parameters/dense_2/bias"]
        hidden = place("forward/dense_1", flat @ k1 + b1, replica)
        active = place("forward/activation", np.maximum(hidden, 0), replica)
        logits = place("forward/dense_2", active @ k2 + b2, replica)
        exps = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares = exps / exps.sum(axis=1, keepdims=True)
        rows = np.arange(len(logits))
        place("loss_sum", np.array(-np.log(shares[rows, targets]).sum()), replica)
        place("count", np.array(float(len(logits))), replica)
        shares[rows, targets] -= 1
        d2 = place("backward/dense_2", shares, replica)
        local["dense_2/kernel"], local["dense_2/bias"] = active.T @ d2, d2.sum(axis=0)
        da = place("backward/activation", d2 @ k2.T, replica)
        d1 = place("backward/dense_1", da * (hidden > 0), replica)
        local["dense_1/kernel"], local["dense_1/bias"] = flat.T @ d1, d1.sum(axis=0)
        for name, value in local.items():
            place(f"local_gradient/{name}", value, replica)
        locals_.append(local)
    for replica in range(replicas):
        for name in ("loss_sum", "count"):
            total = np.array(sum(float(tensors[name]) for tensors in kept))
            place(f"total/{name}", total, replica)
        count = (injected[replica] if injected else {}).get("total/count", kept[replica]["total/count"])
        for name in locals_[0]:
            own = sum(tensors[f"local_gradient/{name}"] for tensors in kept) / count
            gradient = place(f"gradient/{name}", own, replica)
            clipped = place(f"clipped/{name}", np.array(gradient), replica)
            rate = place("scalar/learning_rate", np.array(RATE), replica)
            held = kept[replica]
            slot = MOMENTUM * held[f"before/slots/momentum_velocity/{name}"] - rate * clipped
            slot = place(f"after/slots/momentum_velocity/{name}", slot, replica)
            place(f"after/parameters/{name}", held[f"before/parameters/{name}"] + slot, replica)
        place("updated", np.array(True), replica)
    ids = None if injected is None else tuple(np.asarray(tensors["ids"]) for tensors in injected)
    return Trace(tuple(kept), ids)
