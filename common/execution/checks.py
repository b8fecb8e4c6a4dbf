"""What a spec and a placement say together."""

from __future__ import annotations

from parity.common.base.errors import SpecError
from parity.common.spec.instrumentation import Instrumentation
from parity.common.spec.model import walk
from parity.common.spec.optimizers import Adafactor, Lamb, Muon, OptimizerBase
from parity.common.spec.placement import Placement
from parity.common.spec.run_options import RunOptions
from parity.common.spec.schedules import ReduceOnPlateau
from parity.common.spec.tensor_parallel import division
from parity.common.spec.train import TrainSpec
from parity.common.state.imported import check_imported


def check_run(
    spec: TrainSpec,
    placement: Placement,
    run_options: RunOptions = RunOptions(),
    instrumentation: Instrumentation = Instrumentation(),
) -> None:
    """Raise SpecError where a placement would change the mathematics of a spec, or cannot run it as asked."""
    check_imported(spec, placement, run_options, instrumentation)
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
    if run_options.taps:
        _check_taps(placement)
    if instrumentation.replay is not None:
        _check_taps(placement, "looked into")
    if run_options.phase_repeats:
        _check_phases(placement, run_options)
    if placement.steps_per_call > 1:
        _check_several_steps(spec, placement, run_options)
    if placement.compile and placement.framework == "tensorflow":
        _check_xla(spec, placement)
    if run_options.save is not None or run_options.resume is not None:
        _check_saving(placement, run_options, instrumentation)


def feeds_back(spec: TrainSpec) -> bool:
    """Whether a step's scalars depend on how earlier steps went: on their losses, or on skipped updates."""
    return spec.loss_scale is not None or isinstance(spec.schedule, ReduceOnPlateau)


def steps_behind(spec: TrainSpec, run_options: RunOptions) -> int:
    """How many steps may have been launched since the one that is read.

    0 where the next step needs what this one gave, or where the record holds what is replaced by it.
    """
    return 0 if feeds_back(spec) or run_options.digests else 1


def _check_several_steps(spec: TrainSpec, placement: Placement, run_options: RunOptions) -> None:
    """Where nothing may come between two steps of one call, but something must."""
    why = None
    if placement.engine != "own":
        why = f"engine '{placement.engine}' owns the loop; take engine own"
    elif feeds_back(spec):
        cause = "its loss scale" if spec.loss_scale is not None else "schedule reduce_on_plateau"
        why = f"{cause} needs to see each step before the next; take steps_per_call 1"
    elif run_options.digests:
        why = "digests are taken between two steps; leave them out or take steps_per_call 1"
    elif len(placement.accumulation) > 1:
        why = "the number of micro-batches changes between steps; take one number or steps_per_call 1"
    if why is not None:
        raise SpecError(f"{placement.label}: {why}")


def _check_xla(spec: TrainSpec, placement: Placement) -> None:
    """Where XLA cannot compile a replica's forward and backward pass."""
    why = None
    if placement.engine != "own":
        why = f"engine '{placement.engine}' compiles for itself; take engine own"
    elif placement.replicas > 1:
        for node in walk(spec.model.tree()):
            if getattr(node.spec, "statistics", "") == "global":
                why = (
                    f"batch norm {node.path!r} sums over the replicas, which XLA cannot; set its statistics to"
                    " per_replica, or leave out compile"
                )
    if why is not None:
        raise SpecError(f"{placement.label}: {why}")


def _check_taps(placement: Placement, what: str = "tapped") -> None:
    """Where layer outputs and gradients cannot be seen one by one."""
    why = None
    if placement.engine in ("keras", "lightning"):
        why = f"engine '{placement.engine}' owns the loop; take engine own"
    elif placement.compile:
        why = "a compiled graph fuses layers; leave out compile"
    elif placement.steps_per_call > 1:
        why = "one call takes several steps; take steps_per_call 1"
    elif placement.strategy in ("tensor_parallel", "data_parallel", "deepspeed"):
        why = "it divides layers, or gradients, in ways of its own; take ddp, fsdp1 or fsdp2"
    if why is not None:
        raise SpecError(f"{placement.label}: cannot be {what}: {why}")


def _check_phases(placement: Placement, run_options: RunOptions) -> None:
    """Where the parts of a step cannot be run apart."""
    why = None
    if placement.engine in ("keras", "lightning"):
        why = f"engine '{placement.engine}' owns the loop; take engine own"
    elif placement.steps_per_call > 1 or (placement.compile and placement.framework == "tensorflow"):
        name = "compile" if placement.compile else "steps_per_call"
        why = f"its parts would be others than those of the graph that trains; leave out {name}"
    elif placement.strategy in ("tensor_parallel", "data_parallel", "deepspeed"):
        why = "its passes send as they compute; take ddp or fsdp2"
    elif run_options.taps:
        why = "taps would be a part of each; leave them out"
    if why is not None:
        raise SpecError(f"{placement.label}: phases cannot be timed: {why}")


def _check_saving(placement: Placement, run_options: RunOptions, instrumentation: Instrumentation) -> None:
    """Where a run cannot be saved between two steps, or cannot go on from there."""
    why = None
    if placement.engine in ("keras", "lightning"):
        why = f"engine '{placement.engine}' owns the loop; take engine own"
    elif instrumentation.replay is not None:
        why = "a replay begins where it is told, and leaves nothing to go on from; leave out save and resume"
    elif run_options.save is not None and run_options.save.sharded and placement.framework == "tensorflow":
        why = "TensorFlow has whole tensors on every worker, so that one writes; leave out save.sharded"
    elif (
        run_options.resume is not None
        and placement.engine == "accelerate"
        and len(placement.accumulation) > 1
    ):
        why = "engine 'accelerate' counts its steps from 0, and the micro-batches change with them; take engine own"
    if why is not None:
        verb = "saved" if run_options.resume is None else "resumed"
        raise SpecError(f"{placement.label}: cannot be {verb}: {why}")


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


def known_departure(spec: TrainSpec, placement: Placement, run_options: RunOptions) -> str | None:
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
    if not rest % placement.replicas or spec.data.tail == "drop" or whole >= run_options.steps_of(spec.steps):
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
