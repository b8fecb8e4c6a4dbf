"""Bytes that one process, or one device, holds under a placement."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from parity.common.data.plan import BatchPlan
from parity.common.planning.adviser.passes import batch_bytes, itemsizes, passes
from parity.common.spec import Node, Placement, TrainSpec, walk
from parity.common.spec.optimizers import OptimizerBase
from parity.common.spec.tensor_parallel import division
from parity.common.state.canonical import canonical_name, parameter_specs, slots_of

# Bytes of DeepSpeed's master weights; it keeps them whatever the precision.
_MASTER = 4
# Elements of DeepSpeed's reduce_bucket_size, its default.
_BUCKET = 500_000_000


@dataclass(frozen=True)
class Estimate:
    """The fullest device of a placement, in bytes.

    parameters, slots: between two steps; exact. gradients: as long as they are held, this device's share.
    activations: what the forward pass of a micro-batch keeps for its backward pass. temporary: whatever
    else there is at the fullest moment: gathered parameters, buckets, gradients of activations, the
    update's intermediate results. total: at that moment. host: in the host's memory instead.
    """

    parameters: int
    gradients: int
    slots: int
    buffers: int
    activations: int
    temporary: int
    total: int
    host: int = 0


@dataclass(frozen=True)
class _InMemory:
    """What stays, and the two phases of a step that may be the fullest, all in bytes.

    carried: gradients that are there already when a backward pass begins. gathered: parameters that are
    put together for a pass. update: all that the update needs, gradients included.
    """

    parameters: int
    gradients: int
    slots: int
    accumulated: int
    gathered: int
    update: int
    resident: int = 0
    host: int = 0


class _Sizes:
    """A spec in bytes: of all parameters, their slots and the buffers. tensors: the trained ones, with their slots."""

    def __init__(self, spec: TrainSpec) -> None:
        self.spec = spec
        self.itemsize, _ = itemsizes(spec)
        specs = parameter_specs(spec)
        self.buffers = self.itemsize * sum(math.prod(p.shape) for p in specs.values() if not p.trainable)
        self.tensors = {
            name: (specs[name].shape, [slot.shape for slot in slots.values()])
            for name, slots in slots_of(spec.optimizer, specs).items()
        }
        self.parameters, self.slots = self.held(lambda name, elements: elements)

    def held(self, share: Callable[[str, int], int]) -> tuple[int, int]:
        """Bytes of parameters and slots where so many of a tensor's elements are here; slots of another shape are whole."""
        parameters = slots = 0
        for name, (shape, others) in self.tensors.items():
            own = share(name, math.prod(shape))
            parameters += own
            slots += sum(own if other == shape else math.prod(other) for other in others)
        return parameters * self.itemsize, slots * self.itemsize


def estimate(spec: TrainSpec, placement: Placement) -> Estimate:
    """What the fullest device of a placement holds. The spec must be resolved."""
    sizes = _Sizes(spec)
    largest = largest_micro_batch(spec, placement)
    batch = batch_bytes(spec, largest * max(count for _, count in placement.accumulation))
    checkpointed = getattr(placement.options, "checkpoint", False)
    paths = frozenset(block.path for block in blocks_of(spec.model.tree())) if checkpointed else frozenset()
    memory = passes(spec, largest, paths, alone=placement.replicas == 1)
    in_memory = _IN_MEMORY.get(placement.strategy, _whole)(sizes, placement)
    backward = memory.peak
    if placement.accumulates or in_memory.accumulated:
        backward = max(memory.peak, memory.added + (in_memory.accumulated or sizes.parameters))
    stays = in_memory.parameters + in_memory.slots + sizes.buffers + batch + in_memory.resident
    total = stays + max(backward + in_memory.gathered, in_memory.update)
    held = (in_memory.parameters, in_memory.gradients, in_memory.slots, sizes.buffers, memory.saved)
    return Estimate(*held, max(total - sum(held), 0), total, in_memory.host)


def largest_micro_batch(spec: TrainSpec, placement: Placement) -> int:
    """Samples of the largest micro-batch that a replica is given."""
    plan = BatchPlan.of(spec, placement)
    local = -(-plan.global_batch_size // placement.replicas)
    return -(-local // min(count for _, count in placement.accumulation))


def blocks_of(root: Node) -> list[Node]:
    """The blocks of a model, as `Blocks` in common/spec/strategies.py defines them."""
    inside, blocks = root, _containers(root)
    while len(blocks) == 1 and (within := _containers(blocks[0])):
        inside, blocks = blocks[0], within
    return blocks or [child for child in inside.children if child.parameters]


def _containers(node: Node) -> list[Node]:
    return [child for child in node.children if child.children]


def update_units(optimizer: OptimizerBase) -> int:
    """Tensors of the parameters' size that an update makes besides the mean gradients.

    Counted in torch_impl/optimizers, at the fullest moment.
    """
    kind, decay = optimizer.kind, bool(optimizer.weight_decay)  # type: ignore[attr-defined]
    decoupled = decay and optimizer.weight_decay_mode == "decoupled"
    units = {"lion": 1, "adam": 2, "adamw": 2, "nadam": 2}.get(kind, 3)
    if kind == "sgd":
        form, nesterov = optimizer.momentum_form, optimizer.nesterov  # type: ignore[attr-defined]
        moving = bool(optimizer.momentum)  # type: ignore[attr-defined]
        units = 1 if not moving else 2 if nesterov else 0 if form == "velocity" else 1
    # What decays is a tensor of its own, and so is its sum with the change.
    units += 1 if decoupled else int(decay)
    clips = (optimizer.clip_global_norm, optimizer.clip_norm, optimizer.clip_value)
    return units + int(any(clip is not None for clip in clips)) + 2 * int(optimizer.ema is not None)


def _update(sizes: _Sizes, gradients: int) -> int:
    """The gradients, their means, and what the rule makes of them."""
    penalties = bool(sizes.spec.loss.l1 or sizes.spec.loss.l2)
    return gradients * (2 + penalties + update_units(sizes.spec.optimizer))


# Strategies whose devices hold the whole model.


def _whole(sizes: _Sizes, placement: Placement) -> _InMemory:
    whole = sizes.parameters
    return _InMemory(whole, whole, sizes.slots, 0, 0, _update(sizes, whole))


def _ddp(sizes: _Sizes, placement: Placement) -> _InMemory:
    """Gradients live in buckets that are there from the start, or beside them."""
    whole = sizes.parameters
    beside = 0 if getattr(placement.options, "gradient_as_bucket_view", True) else whole
    return _InMemory(whole, whole, sizes.slots, whole, 0, _update(sizes, whole) + beside, beside)


def _data_parallel(sizes: _Sizes, placement: Placement) -> _InMemory:
    """The first device also gathers the other replicas' gradients."""
    whole = sizes.parameters
    return _InMemory(whole, whole, sizes.slots, whole, whole, _update(sizes, whole))


def _mirrored(sizes: _Sizes, placement: Placement) -> _InMemory:
    """The local gradients, their sums, the means, and the update of a tensor at a time."""
    whole, many = sizes.parameters, placement.replicas > 1
    return _InMemory(whole, whole, sizes.slots, 0, 0, whole * (2 + many + 1))


def _zero_redundancy(sizes: _Sizes, placement: Placement) -> _InMemory:
    """As DDP, but whole tensors' slots are dealt out, the largest first to who has least."""
    owned, slots = [0] * placement.replicas, [0] * placement.replicas
    counts = {name: math.prod(shape) for name, (shape, _) in sizes.tensors.items()}
    for name in sorted(counts, key=counts.__getitem__, reverse=True):
        owner = owned.index(min(owned))
        owned[owner] += counts[name]
        slots[owner] += sum(map(math.prod, sizes.tensors[name][1])) * sizes.itemsize
    whole, own = sizes.parameters, max(owned) * sizes.itemsize
    # The old weights stay until the changes are known.
    update = 3 * whole + max(own * (1 + update_units(sizes.spec.optimizer)), whole)
    return _InMemory(whole, whole, max(slots), whole, 0, update)


# Strategies whose devices hold parts of it.


def _shards(placement: Placement) -> int:
    """How many ranks share a copy of the model."""
    return getattr(placement.options, "shard_group", None) or placement.replicas


def _fsdp2(sizes: _Sizes, placement: Placement) -> _InMemory:
    """Each tensor's rows divided over the ranks, the last ones padded."""
    ranks, rows = _shards(placement), dict(_rows(sizes.spec.model.tree()))
    parameters, slots = sizes.held(lambda name, elements: -(-rows[name] // ranks) * (elements // rows[name]))
    gathered = _gathered(sizes, placement, getattr(placement.options, "reshard", None) is not False)
    return _sharded(sizes, placement, parameters, slots, gathered)


def _fsdp1(sizes: _Sizes, placement: Placement) -> _InMemory:
    """All tensors of a unit as one, divided over the ranks, padded at the end."""
    sharding = getattr(placement.options, "sharding", "full_shard")
    if sharding == "no_shard":
        return _ddp(sizes, placement)
    blocks, rest = _units(sizes, placement)
    shares = [-(-size // sizes.itemsize // _shards(placement)) for size in (*blocks, rest)]
    parameters = sum(shares) * sizes.itemsize
    slots = round(sizes.slots * parameters / max(sizes.parameters, 1))
    gathered = _gathered(sizes, placement, sharding != "shard_grad_op")
    return _sharded(sizes, placement, parameters, slots, gathered)


def _sharded(sizes: _Sizes, placement: Placement, parameters: int, slots: int, gathered: int) -> _InMemory:
    update = _update(sizes, parameters)
    if getattr(placement.options, "cpu_offload", False):
        return _InMemory(0, 0, 0, 0, gathered, 0, host=parameters + slots + update)
    return _InMemory(parameters, parameters, slots, 0, gathered, update)


def _units(sizes: _Sizes, placement: Placement) -> tuple[list[int], int]:
    """Bytes of what is gathered at once, each block or else the whole model, and of what is in no block."""
    blocks = []
    if getattr(placement.options, "wrap", "root") != "root":
        trees = blocks_of(sizes.spec.model.tree())
        blocks = [sum(node.trained for node in walk(block)) * sizes.itemsize for block in trees]
    return (blocks, sizes.parameters - sum(blocks)) if blocks else ([sizes.parameters], 0)


def _gathered(sizes: _Sizes, placement: Placement, reshard: bool) -> int:
    """Parameters that are whole at the fullest moment.

    A unit may be gathered while the one before is still whole, and what is in no block is for the whole
    pass. FSDP2 gathers a unit from a copy of its shards into one buffer, and copies it out of that.
    """
    blocks, rest = _units(sizes, placement)
    largest, together = max(blocks), sum(blocks)
    whole = rest + (min(2 * largest, together) if reshard else together)
    return whole if placement.strategy == "fsdp1" else whole + largest + largest // _shards(placement)


def _deepspeed(sizes: _Sizes, placement: Placement) -> _InMemory:
    """ZeRO 1, 2 and 3: slots and master weights divided, then gradients, then parameters too."""
    options, ranks = placement.options, placement.replicas
    stage = getattr(options, "stage", 2)
    count = sizes.parameters // sizes.itemsize
    # Stages 1 and 2 pad the flat parameters to an even number for each rank.
    padded = -(-count // (2 * ranks)) * 2 * ranks if stage < 3 else count
    own = -(-padded // ranks)
    whole, share = padded * sizes.itemsize, own * sizes.itemsize
    kept, master = own * (sizes.slots // max(count, 1)), own * _MASTER
    bucket = min(count, _BUCKET) * sizes.itemsize
    parameters = share if stage == 3 else whole
    gradients = whole if stage == 1 else share
    update = gradients + share * (1 + update_units(sizes.spec.optimizer))
    host = 0
    if getattr(options, "offload_optimizer", False):
        host, kept, master, update = kept + master + update, 0, 0, gradients
    if getattr(options, "offload_parameters", False) and stage == 3:
        host, parameters = host + share, 0
    gathered = bucket if stage == 3 else 0
    phases = (gradients + bucket, gathered, update)
    return _InMemory(parameters, gradients, kept, *phases, resident=master, host=host)


def _tensor_parallel(sizes: _Sizes, placement: Placement) -> _InMemory:
    """Kernels divided as `division` says; activations are counted as if they were whole."""
    ranks, tree = placement.ranks_per_replica, sizes.spec.model.tree()
    cuts = division(tree, ranks)
    divided = {
        canonical_name(node.path, tensor)
        for node in walk(tree)
        for tensor in node.parameters
        if node.path in cuts and tensor.name not in _UNCUT[cuts[node.path]]
    }
    parameters, slots = sizes.held(lambda name, elements: elements // (ranks if name in divided else 1))
    return _InMemory(parameters, parameters, slots, parameters, 0, _update(sizes, parameters))


# Of a layer that is divided so, the tensors that stay whole.
_UNCUT = {"heads": {"output_bias"}, "columns": set[str](), "rows": {"bias"}}


# Which axis of the canonical tensor PyTorch stores first, where it is not the first.
_FIRST_AXIS = {
    **{
        (kind, "kernel"): -1 for kind in ("dense", "conv1d", "conv2d", "conv1d_transpose", "conv2d_transpose")
    },
    ("depthwise_conv2d", "kernel"): -2,
    ("separable_conv2d", "depthwise_kernel"): -2,
    ("separable_conv2d", "pointwise_kernel"): -1,
}


def _rows(root: Node) -> Iterator[tuple[str, int]]:
    """(canonical name, length of the axis that FSDP2 divides) of each trained tensor."""
    for node in walk(root):
        for tensor in node.parameters:
            if tensor.trainable:
                axis = _FIRST_AXIS.get((node.spec.kind, tensor.name), 0)
                yield canonical_name(node.path, tensor), tensor.shape[axis]


_IN_MEMORY = {
    "ddp": _ddp,
    "data_parallel": _data_parallel,
    "zero_redundancy": _zero_redundancy,
    "fsdp1": _fsdp1,
    "fsdp2": _fsdp2,
    "deepspeed": _deepspeed,
    "tensor_parallel": _tensor_parallel,
    "mirrored": _mirrored,
    "multi_worker": _mirrored,
}
