"""How long the phases of a step take on this rank, and which messages it sends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from parity.common.execution.phases import PASSES, REDUCED, Message, Probe, synchronised_channels
from parity.torch_impl.private_names import FSDPModule, all_gather, reduce_scatter
from parity.torch_impl.sharding.tensors import local
from parity.torch_impl.step import Step
from parity.torch_impl.strategy import Strategy
from parity.torch_impl.strategy.sharded import FSDP2

# (operation, bytes, the group of ranks that takes part)
_Sent = tuple[str, int, Any]
_NUMBER = 0


def wait(strategy: Strategy) -> None:
    """Wait for the device of this rank."""
    if strategy.device != "cpu":
        torch.cuda.synchronize()


def probes(step: Step, batch: Any, scalars: dict[str, float]) -> dict[str, Probe]:
    """What is timed of a step.

    The passes of FSDP2 are also run with parameters that stay gathered and gradients that stay where they are,
    so that what is exposed is the gathering too. The messages of an optimizer that has any (ZeroRedundancyOptimizer)
    are part of its update. FSDP1's passes cannot be had without its messages: forward, backward, communication and
    exposed_communication are left out.
    """
    whole = Probe(lambda: step(batch, scalars, _NUMBER))
    gradients = step(batch, scalars, _NUMBER).gradients
    update = {"step": whole, "optimizer": Probe(_update(step, gradients, scalars))}
    placement = step.strategy.placement
    if placement.strategy == "fsdp1" or getattr(placement.options, "static_graph", False):
        # Neither lets a pass be made that sends nothing.
        return update
    passes = _Passes(step, batch, scalars)
    alone = {
        **update,
        "forward": Probe(passes.forward, passes.silent),
        PASSES: Probe(lambda: passes.both(reduce=False), passes.silent),
    }
    sent = _sent(step)
    if not sent:
        return alone
    return {
        **alone,
        REDUCED: Probe(lambda: passes.both(reduce=True), passes.cleared),
        "communication": Probe(_sender(sent, step)),
    }


def _update(step: Step, gradients: list[Tensor], scalars: dict[str, float]) -> Callable[[], None]:
    """The optimizer's clipping and update, by the same gradients each time."""
    optimizer, kept = step.optimizer, [gradient.clone() for gradient in gradients]
    norm = step.strategy.norms(optimizer.join(kept))[0]

    @torch.no_grad()
    def update() -> None:
        # Joined they are copies, else an update may take their memory.
        pieces = [piece.clone() for piece in optimizer.join(kept)]
        optimizer.update(optimizer.clip(pieces, norm), scalars)

    return update


class _Passes:
    """A step's passes over one batch, with and without their messages."""

    def __init__(self, step: Step, batch: Any, scalars: dict[str, float]) -> None:
        self._step, self._strategy, self._scalars = step, step.strategy, scalars
        self._parameters = [tensor.live for tensor in step.model.parameters.values()]
        self._pieces = step.micro_batches(batch, _NUMBER)

    def forward(self) -> None:
        for piece in self._pieces:
            with self._strategy.accumulating(self._step.model, last=False):
                self._step.pass_forward(piece, _NUMBER)

    def both(self, reduce: bool) -> None:
        """As `Step.take` up to the reduced gradients."""
        _, sums = self._step._passes(self._pieces, self._scalars, _NUMBER, reduce)
        if reduce:
            self._strategy.reduced([local(parameter.grad) for parameter in self._parameters])
            sums()

    @contextmanager
    def cleared(self) -> Iterator[None]:
        yield
        for parameter in self._parameters:
            parameter.grad = None

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Within it no pass gathers parameters."""
        if not isinstance(self._strategy, FSDP2):
            with self.cleared():
                yield
            return
        units = _units(self._step)
        root = units[0][0]
        root.set_reshard_after_forward(False)
        root.set_reshard_after_backward(False)
        self.both(reduce=False)
        with self.cleared():
            yield
        root.set_reshard_after_backward(True)
        for unit, freed in units:
            unit.set_reshard_after_forward(freed, recurse=False)
        # Gradients that were kept go with the next that are reduced.
        with self.cleared():
            self.both(reduce=True)


def messages(step: Step) -> list[Message]:
    """What this rank sends in a step, one after another as without overlap."""
    return [(operation, size) for operation, size, _ in _sent(step)]


def _sent(step: Step) -> list[_Sent]:
    """As `messages`, with the groups.

    DDP: its buckets, as it says itself. FSDP2: of each unit an all-gather for the forward pass, one for the
    backward pass where its parameters were freed in between, and a reduce-scatter, each padded to a
    multiple of the ranks; with groups also the all-reduce between them. Besides: loss sum and count, where the
    gradients do not take them along; norms, where a rank has only parts; the statistics of batch norm, in the
    forward and in the backward pass.
    """
    strategy, spec = step.strategy, step.spec
    if strategy.placement.processes == 1:
        return []
    size, ranks = getattr(torch, spec.master_dtype).itemsize, strategy.placement.processes
    passes = strategy.placement.micro_batches(0)
    found: list[_Sent] = []
    for channels in synchronised_channels(spec):
        found.append(("all_gather", ranks * (2 * channels + 1) * size, None))
        found.append(("all_reduce", 2 * channels * size, None))
    if not strategy.sums_with_gradients:
        found.append(("all_reduce", (2 + len(step.fingerprint())) * size, None))
    parameters = [tensor.live for tensor in step.model.parameters.values()]
    if isinstance(strategy, FSDP2):
        found += _of_shards(step, passes)
        clips = spec.optimizer.clip_global_norm is not None
        norms = (1,) * clips + (3 - clips,) * step.recording
        found += [("all_reduce", count * size, strategy.mesh.get_group("shard")) for count in norms]
    elif strategy.placement.strategy == "manual":
        found += [("all_reduce", parameter.numel() * size, None) for parameter in parameters]
    else:
        found += [("all_reduce", bucket, None) for bucket in _buckets(step)]
    if strategy.placement.strategy == "zero_redundancy":
        found += [("broadcast", parameter.numel() * size, None) for parameter in parameters]
    return found


def _buckets(step: Step) -> list[int]:
    """Bytes of DDP's buckets, as rebuilt after its first step where they were."""
    wrappers = (m for m in step.model.module.modules() if isinstance(m, DistributedDataParallel))
    said = next(wrappers)._get_ddp_logging_data()
    sizes = said.get("rebuilt_bucket_sizes") or said["bucket_sizes"]
    return [int(size) for size in str(sizes).split(", ")]


def _units(step: Step) -> list[tuple[FSDPModule, bool]]:
    """FSDP2's units, the root first: each with whether its parameters are freed after the forward pass."""
    reshard = step.strategy.placement.options.reshard
    units = [module for module in step.model.module.modules() if isinstance(module, FSDPModule)]
    return [(unit, unit is not units[0] if reshard is None else reshard) for unit in units]


def _of_shards(step: Step, passes: int) -> list[_Sent]:
    mesh, units = step.strategy.mesh, _units(step)
    group, root = mesh.get_group("shard"), units[0][0]
    ranks, found = dist.get_world_size(group), []
    inner = {id(p) for unit, _ in units[1:] for p in unit.parameters()}
    for unit, freed in units:
        held = [p for p in unit.parameters() if unit is not root or id(p) not in inner]
        rows = [(-(-len(p) // ranks) * ranks, p) for p in held]
        size = sum(padded * p[:1].numel() * p.element_size() for padded, p in rows)
        if not size:
            continue
        found += [("all_gather", size, group)] * (passes * (1 + freed))
        found.append(("reduce_scatter", size, group))
        if "replicate" in mesh.mesh_dim_names:
            found.append(("all_reduce", size // ranks, mesh.get_group("replicate")))
    return found


def _sender(messages: list[_Sent], step: Step) -> Callable[[], None]:
    """A function that sends messages of the same sizes, and does nothing else."""
    dtype = getattr(torch, step.spec.master_dtype)
    calls: list[Callable[[], Any]] = []
    for operation, size, group in messages:
        ranks = dist.get_world_size(group)
        whole = torch.zeros(size // dtype.itemsize, dtype=dtype, device=step.strategy.device)
        part = whole.new_zeros(len(whole) // ranks)
        calls.append(
            {
                "all_reduce": lambda w=whole, g=group: dist.all_reduce(w, group=g),
                "broadcast": lambda w=whole, g=group: dist.broadcast(w, 0, group=g),
                "all_gather": lambda w=whole, p=part, g=group: all_gather(w, p, group=g),
                "reduce_scatter": lambda w=whole, p=part, g=group: reduce_scatter(p, w, group=g),
            }[operation]
        )

    def send() -> None:
        for call in calls:
            call()

    return send
