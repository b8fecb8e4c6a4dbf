"""Which placements there are for some GPUs, which of them fit, and which one to take."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from typing import Any

from parity.common.base.errors import SpecError
from parity.common.base.package import MODULES
from parity.common.base.units import show_size
from parity.common.execution.checks import check_run
from parity.common.execution.flags import flags_of
from parity.common.planning.adviser.memory import Estimate, estimate
from parity.common.spec import Placement, TrainSpec
from parity.common.spec.strategies import Framework

# Of the memory, what the framework's own context, its libraries and gaps between tensors take.
HEADROOM = 0.1
_ACCUMULATIONS = (2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True)
class Question:
    """What to place where. gpus: over all nodes. memory: bytes of each."""

    spec: TrainSpec
    framework: Framework
    gpus: int
    memory: int
    nodes: int = 1
    headroom: float = HEADROOM

    @property
    def usable(self) -> int:
        """Bytes of a GPU that tensors may take."""
        return int(self.memory * (1 - self.headroom))


@dataclass(frozen=True)
class Choice:
    """A placement with what it takes. `refused`: why it cannot run this spec; it has no estimate then."""

    placement: Placement
    estimate: Estimate | None
    fits: bool
    refused: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "placement": placement_text(self.placement),
            "label": self.placement.label,
            "fits": self.fits,
            "refused": self.refused,
            "bytes": None if self.estimate is None else asdict(self.estimate),
        }


@dataclass(frozen=True)
class Advice:
    """All choices, the simplest first, and the one to take; None, with the reason, where nothing fits."""

    question: Question
    choices: list[Choice]
    chosen: Choice | None
    reason: str


def advise(question: Question) -> Advice:
    """Estimate every placement and take the simplest that fits.

    Simplest first: whole copies; divided optimizer and parameters; blocks computed twice; micro-batches;
    host memory. Raises SpecError where the spec cannot be divided over so many GPUs.
    """
    if question.gpus > question.spec.global_batch_size:
        raise SpecError(
            f"--gpus {question.gpus}: a global batch of {question.spec.global_batch_size} leaves some without samples"
        )
    choices = [_choice(question, text) for text in _texts(question)]
    chosen = next((choice for choice in choices if choice.fits), None)
    return Advice(question, choices, chosen, _reason(question, choices, chosen))


def _choice(question: Question, text: str) -> Choice:
    placement = Placement.from_text(text, device="gpu", nodes=question.nodes)
    try:
        check_run(question.spec, placement)
    except SpecError as error:
        return Choice(placement, None, False, str(error))
    found = estimate(question.spec, placement)
    return Choice(placement, found, found.total <= question.usable)


def _texts(question: Question) -> list[str]:
    """Placements from the simplest to the most involved, as `Placement.from_text` reads them."""
    n, spec = question.gpus, question.spec
    local = -(-spec.global_batch_size // n)

    def cut(text: str) -> list[str]:
        return [f"{text},accumulation={count}" for count in _ACCUMULATIONS if count <= local]

    if question.framework == "tensorflow":
        usual = f"tensorflow:mirrored:{n},cross_device=nccl" if n > 1 else "tensorflow:single:1"
        if question.nodes > 1:
            each = n // question.nodes
            usual = f"tensorflow:multi_worker:{n},replicas_per_worker={each},communication=nccl"
        return [usual, *cut(usual)]
    usual = f"torch:ddp:{n}" if n > 1 else "torch:single:1"
    blocks = f"torch:fsdp2:{n},wrap=blocks"
    divided = []
    if n > 1:
        divided = [
            f"torch:zero_redundancy:{n}",
            f"torch:deepspeed:{n},stage=1",
            f"torch:deepspeed:{n},stage=2",
            f"torch:fsdp2:{n},reshard=false,wrap=blocks",
            blocks,
            f"torch:fsdp2:{n}",
            f"torch:fsdp1:{n},wrap=blocks",
            f"torch:fsdp1:{n},sharding=shard_grad_op,wrap=blocks",
            f"torch:deepspeed:{n},stage=3",
        ]
        per_node = n // question.nodes
        if question.nodes > 1 and per_node > 1:
            divided.insert(5, f"{blocks},shard_group={per_node}")
        shares = [ranks for ranks in (2, 4, 8) if n % (ranks * question.nodes) == 0]
        divided += [f"torch:tensor_parallel:{n // ranks},ranks={ranks}" for ranks in shares]
    saving = f"{blocks},checkpoint=true"
    recomputed = ([f"torch:ddp:{n},checkpoint=true"] if n > 1 else []) + [saving]
    offloaded = [f"{saving},cpu_offload=true"]
    if n > 1:
        offloaded += [f"torch:deepspeed:{n},stage=3,offload_optimizer=true,offload_parameters=true"]
    offloaded += cut(offloaded[0])
    return [usual, *divided, *recomputed, *cut(usual), *cut(saving), *offloaded]


def _reason(question: Question, choices: list[Choice], chosen: Choice | None) -> str:
    usable = f"{show_size(question.usable)} usable of {show_size(question.memory)}"
    possible = [(c.estimate.total, c.placement.label) for c in choices if c.estimate is not None]
    if chosen is None or chosen.estimate is None:
        if not possible:
            return f"no strategy can run this spec: {choices[0].refused}"
        total, label = min(possible, key=lambda each: each[0])
        return (
            f"nothing fits {usable}: the least, {label}, needs {show_size(total)};"
            " take more GPUs, larger ones, or a smaller model or batch"
        )
    text = f"{chosen.placement.label} needs {show_size(chosen.estimate.total)}, and there are {usable}"
    if chosen is choices[0]:
        return f"{text}; it is the simplest, and nothing needs to be divided"
    first = choices[0]
    if first.estimate is None:
        return f"{text}; {first.placement.label} cannot run this spec"
    too_much = show_size(first.estimate.total)
    return f"{text}; {first.placement.label} would need {too_much}: {_what(chosen)}"


def _what(chosen: Choice) -> str:
    """What the chosen placement does to need less."""
    options, placement = chosen.placement.options, chosen.placement
    done = []
    if placement.strategy in ("fsdp1", "fsdp2") or getattr(options, "stage", 0) == 3:
        done.append("divides parameters, gradients and optimizer")
    elif placement.strategy in ("zero_redundancy", "deepspeed"):
        done.append("divides the optimizer" + (" and gradients" if getattr(options, "stage", 1) == 2 else ""))
    elif placement.strategy == "tensor_parallel":
        done.append("divides the matrices")
    if getattr(options, "checkpoint", False):
        done.append("computes blocks twice instead of keeping them")
    if placement.accumulates:
        done.append("takes the batch in pieces")
    if getattr(options, "cpu_offload", False) or getattr(options, "offload_optimizer", False):
        done.append("keeps the rest in host memory, which is slow")
    return f"this one {', '.join(done)}"


def placement_text(placement: Placement) -> str:
    """The placement as `--placement` takes it; that it is on GPUs goes without saying."""
    return placement.text(leave_out=("device",))


def command_line(placement: Placement, what: list[str], out: str) -> str:
    """A command that trains so; `what` are the flags that choose the spec.

    On one node our own launcher starts all processes. On several, torchrun must be run on each, with the
    first one's address for HEAD; for TensorFlow srun starts one process a node.
    """
    package = MODULES[placement.framework]
    train = ["-m", package, *what, *flags_of(placement), "--out", out]
    if placement.nodes == 1:
        return shlex.join(["python", *train])
    if placement.framework == "tensorflow":
        return shlex.join(["srun", "--nodes", str(placement.nodes), "python", *train, "--launcher", "srun"])
    each = str(placement.processes // placement.nodes)
    meet = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "HEAD:29500"]
    nodes = ["--nnodes", str(placement.nodes), "--nproc-per-node", each, *meet]
    return shlex.join(["torchrun", *nodes, *train, "--launcher", "torchrun"])
