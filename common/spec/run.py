"""What a spec and a placement say together."""

from __future__ import annotations

from common.errors import SpecError
from common.spec.model import walk
from common.spec.optimizers import Adafactor, Lamb, Muon, OptimizerBase
from common.spec.placement import Placement
from common.spec.tensor_parallel import division
from common.spec.train import TrainSpec


def check_run(spec: TrainSpec, placement: Placement) -> None:
    """Raise SpecError where a placement would change the mathematics of a spec, or cannot run it."""
    if spec.low_dtype is not None:
        _check_low_products(spec, placement)
    if placement.accumulates:
        _check_statistics_are_not_cut(spec, placement)
    if placement.strategy == "tensor_parallel":
        division(spec.model.tree(), placement.ranks_per_replica)
    if placement.strategy == "zero_redundancy":
        # It clips whole gradients, before each rank updates its share of the tensors.
        check_elementwise(spec.optimizer.model_copy(update={"clip_norm": None}))
    if placement.strategy == "data_parallel" and placement.replicas > 1:
        _check_statistics_need_no_others(spec, placement)


def _check_low_products(spec: TrainSpec, placement: Placement) -> None:
    """Where low products, or what goes with them, would be others than the spec's."""
    why = None
    if placement.strategy == "tensor_parallel":
        why = "would round the part of a product that each rank computes; take another strategy or float32"
    elif spec.loss_scale is not None and placement.strategy == "deepspeed":
        why = "scales no loss, DeepSpeed has its own way to; take fsdp2 or bfloat16_mixed"
    elif spec.loss_scale is not None and placement.engine in ("keras", "lightning"):
        why = f"scales no loss, engine '{placement.engine}' owns the loop; take engine own or bfloat16_mixed"
    elif spec.precision == "float8_mixed" and placement.framework == "tensorflow":
        why = "has no float8 products; train with torch on a GPU, or take bfloat16_mixed"
    elif spec.precision == "float8_mixed" and placement.accumulates:
        why = "would scale each micro-batch by its own largest number; take no accumulation or bfloat16_mixed"
    if why is not None:
        raise SpecError(f"{placement.label}: precision {spec.precision}: {why}")


def check_elementwise(optimizer: OptimizerBase) -> None:
    """Raise SpecError for an optimizer whose update of an element depends on others of its tensor."""
    told = None
    if isinstance(optimizer, Adafactor | Lamb | Muon):
        told, instead = f"optimizer.kind '{optimizer.kind}'", "another optimizer"
    elif optimizer.clip_norm is not None:
        told, instead = f"optimizer.clip_norm {optimizer.clip_norm:g}", "clip_global_norm"
    if told is not None:
        raise SpecError(
            f"{told} looks at whole tensors, which this strategy divides among ranks or joins;"
            f" take {instead}, or strategy ddp, fsdp1 or fsdp2"
        )


def _check_statistics_need_no_others(spec: TrainSpec, placement: Placement) -> None:
    """nn.DataParallel's replicas are threads, whose batch norms cannot hear of each other."""
    for node in walk(spec.model.tree()):
        if getattr(node.spec, "statistics", "") == "global":
            raise SpecError(
                f"{placement.label}: batch norm {node.path!r} takes its statistics of the whole global batch,"
                " of which each GPU sees a part; set its statistics to per_replica, or take strategy ddp"
            )


def _check_statistics_are_not_cut(spec: TrainSpec, placement: Placement) -> None:
    """Batch norm takes its statistics of all samples that are forwarded together.

    Cut into micro-batches these would be others, and the curve with them; only statistics that the
    spec itself ties to how a replica works may be cut.
    """
    for node in walk(spec.model.tree()):
        if getattr(node.spec, "statistics", "") == "global":
            raise SpecError(
                f"{placement.label}: batch norm {node.path!r} takes its statistics of the whole global batch,"
                " which micro-batches would cut; set its statistics to per_replica (then each micro-batch"
                " has its own, on both frameworks alike), or use group_norm or layer_norm"
            )


def known_departure(spec: TrainSpec, placement: Placement) -> str | None:
    """Why a run on this placement leaves the spec's curve, where that is known; None where it must not.

    Only engines that train as other people's code does may have one; none of ours has.
    """
    if placement.engine != "keras" or placement.replicas == 1:
        return None
    clips = [
        name for name in ("clip_global_norm", "clip_norm", "clip_value") if getattr(spec.optimizer, name)
    ]
    if clips:
        return f"stock Keras clips each replica's gradients before it sums them, so {clips[0]} limits other norms"
    whole, rest = divmod(spec.data.train_samples, spec.global_batch_size)
    if not rest % placement.replicas or spec.data.tail == "drop" or whole >= placement.steps_of(spec.steps):
        return None
    return (
        "stock fit averages the means of the replicas, which is another number where their shares are unequal,"
        f" first at step {whole}; with data.tail drop and a batch that the replicas divide it agrees"
    )


def effective_batch(spec: TrainSpec, placement: Placement) -> str:
    """'effective batch 64 = 8 samples x 4 micro-batches x 2 replicas', for people."""
    replicas = f"{placement.replicas} replica{'s' if placement.replicas > 1 else ''}"
    lines = []
    for epoch, count in placement.accumulation:
        each = spec.global_batch_size / (placement.replicas * count)
        size = f"{each:g}" if each == int(each) else f"about {each:.1f}"
        since = f" from epoch {epoch} on" if epoch else ""
        micro = f"{count} micro-batch{'es' if count > 1 else ''}"
        lines.append(f"{size} samples x {micro} x {replicas}{since}")
    return f"effective batch {spec.global_batch_size} = " + "; ".join(lines)
