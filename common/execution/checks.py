"""What a spec and a placement say together."""

from __future__ import annotations

from typing import Any

from parity.common.base.errors import SpecError
from parity.common.spec.capabilities import asked_by, refusal
from parity.common.spec.instrumentation import Instrumentation
from parity.common.spec.model import walk
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
    why = refusal(placement, _asked(spec, placement, run_options, instrumentation))
    if why is not None:
        raise SpecError(why)
    check_imported(spec)
    if placement.strategy == "tensor_parallel":
        division(spec.model.tree(), placement.ranks_per_replica)


def _asked(
    spec: TrainSpec, placement: Placement, run_options: RunOptions, instrumentation: Instrumentation
) -> dict[str, Any]:
    """All that a run asks for, by the names of `REFUSALS`, with what the reasons show of it."""
    optimizer, imported, save = spec.optimizer, spec.model.imported, run_options.save
    first, evaluated = min(spec.global_batch_size, spec.data.train_samples), spec.data.eval_samples
    nodes = list(walk(spec.model.tree()))
    statistics = (node.path for node in nodes if getattr(node.spec, "statistics", "") == "global")
    recurrent = (node.path for node in nodes if node.spec.kind in ("lstm", "gru", "simple_rnn"))
    penalties = (node.path for node in nodes if node.spec.kind == "activity_penalty")
    return asked_by(placement) | {
        "imported": imported and f"{imported.keras} and {imported.torch}",
        "precision": spec.precision,
        spec.precision: True,
        "low_precision": spec.low_dtype is not None,
        "loss_scale": spec.loss_scale is not None,
        "reduce_on_plateau": isinstance(spec.schedule, ReduceOnPlateau),
        "global_statistics": next(statistics, None),
        "activity_penalty": next(penalties, None),
        "recurrent": next(recurrent, None),
        "whole_tensors": None if optimizer.elementwise else optimizer.kind,
        "clip_norm": optimizer.clip_norm,
        "uneven_batch": first if first % placement.replicas else None,
        "few_eval_samples": evaluated if 0 < evaluated < placement.replicas else None,
        "split": spec.data.split if spec.data.split != "contiguous" else None,
        "taps": run_options.taps,
        "phase_repeats": run_options.phase_repeats > 0,
        "digests": run_options.digests,
        "stock": ", ".join(spec.stock) or None,
        "stock_precision": spec.stock_precision,
        "stock_dropout": "dropout" in spec.stock,
        "save": save is not None,
        "sharded": save is not None and save.sharded,
        "resume": run_options.resume is not None,
        "replay": instrumentation.replay is not None,
    }


def feeds_back(spec: TrainSpec) -> bool:
    """Whether a step's scalars depend on how earlier steps went: on their losses, or on skipped updates."""
    return spec.loss_scale is not None or isinstance(spec.schedule, ReduceOnPlateau)


def known_departure(spec: TrainSpec, placement: Placement, run_options: RunOptions) -> str | None:
    """Why a run on this placement leaves the spec's curve, where that is known; None where it must not.

    Only engines that train as other people's code does may have one; none of ours has.
    """
    if placement.engine != "keras" or placement.replicas == 1:
        return None
    for clip in ("clip_global_norm", "clip_norm", "clip_value"):
        if getattr(spec.optimizer, clip):
            return f"stock Keras clips each replica's gradients before it sums them, so {clip} limits other norms"
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
