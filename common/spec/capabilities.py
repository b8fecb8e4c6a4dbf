"""What goes with what, as data: strategies, engines, launchers, and what else a run may ask for.

This is the one place. Placements and runs are refused for the reasons that stand here, flags offer what is listed
here, `parity doctor` shows what of it a machine can run, and docs/evidence/strategies.md has it as tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from parity.common.base.errors import did_you_mean
from parity.common.spec import strategies as kinds
from parity.common.spec.strategies import Framework

if TYPE_CHECKING:
    from parity.common.spec.placement import Placement


class Strategy(NamedTuple):
    """How replicas share the work.

    options: what it leaves to choose. package: what must be installed, which is also the name of the extra.
    local_gradients: a replica's gradients can be seen before they are reduced; sharded ones are reduced as they arise.
    """

    options: type[kinds.Options]
    about: str
    local_gradients: bool = False
    package: str = ""


class Engine(NamedTuple):
    """Whose loop trains, and over which strategies it can. only: why it runs no others. package: as of a strategy."""

    strategies: tuple[str, ...]
    about: str
    only: str = ""
    owns_loop: bool = False
    package: str = ""


class Launcher(NamedTuple):
    """What starts the processes. program: what a machine must have for it."""

    frameworks: tuple[Framework, ...]
    about: str
    program: str = ""


_WHOLE = "one process a replica, the model whole on each"
_SHARDS = "one process a replica, parameters and optimizer slots in shards"
STRATEGIES: dict[Framework, dict[str, Strategy]] = {
    "tensorflow": {
        "mirrored": Strategy(
            kinds.Mirrored, "replicas on GPUs, or on logical CPU devices, of one process", True
        ),
        "single": Strategy(kinds.OneProcess, "one replica in one process", True),
        "multi_worker": Strategy(kinds.MultiWorker, "processes that each hold such replicas", True),
    },
    "torch": {
        "single": Strategy(kinds.OneProcess, "one replica in one process", True),
        "ddp": Strategy(kinds.DDP, _WHOLE, True),
        "fsdp2": Strategy(kinds.FSDP2, _SHARDS),
        "fsdp1": Strategy(kinds.FSDP1, _SHARDS),
        "manual": Strategy(kinds.Options, f"{_WHOLE}, reduced by all-reduces of our own", True),
        "zero_redundancy": Strategy(kinds.Options, f"{_WHOLE}, optimizer slots in shards", True),
        "deepspeed": Strategy(
            kinds.DeepSpeed, "one process a replica, ZeRO; float32 and lower", False, "deepspeed"
        ),
        "tensor_parallel": Strategy(kinds.TensorParallel, "several processes a replica share its layers"),
        "data_parallel": Strategy(kinds.DataParallel, "one process that scatters each batch over its GPUs"),
    },
}
ENGINES: dict[Framework, dict[str, Engine]] = {
    "tensorflow": {
        "own": Engine(tuple(STRATEGIES["tensorflow"]), "the step of tf_impl/step.py"),
        "keras": Engine(
            ("single", "mirrored"), "stock compile and fit", "it is wired to one process only", True
        ),
    },
    "torch": {
        "own": Engine(tuple(STRATEGIES["torch"]), "the step of torch_impl/step.py"),
        "lightning": Engine(
            ("single", "ddp", "fsdp1", "fsdp2"),
            "Lightning's Trainer",
            "Lightning's DeepSpeedStrategy demands a GPU and was not tried on one, for the others it has no strategy",
            True,
            "lightning",
        ),
        "fabric": Engine(("single", "ddp", "fsdp2"), "Lightning Fabric in our loop", package="lightning"),
        "accelerate": Engine(("single", "ddp"), "Accelerate in our loop", package="accelerate"),
    },
}
_BOTH: tuple[Framework, ...] = ("tensorflow", "torch")
LAUNCHERS: dict[str, Launcher] = {
    "local": Launcher(_BOTH, "the run itself, on this machine"),
    "mp_spawn": Launcher(("torch",), "torch.multiprocessing, on this machine"),
    "torchrun": Launcher(("torch",), "one process for each replica, by torchrun", "torchrun"),
    "environment": Launcher(_BOTH, "whoever sets RANK, WORLD_SIZE and MASTER_ADDR, or TF_CONFIG"),
    "srun": Launcher(_BOTH, "SLURM", "srun"),
    "kubernetes": Launcher(_BOTH, "a training operator, or an indexed job"),
}


# They divide layers, or gradients, in ways of their own.
DIVIDING = ("tensor_parallel", "data_parallel", "deepspeed")
_DIVIDING = "|".join(DIVIDING)
_COMPILED = ("single", "ddp", "fsdp2")
_NOT_COMPILED = "|".join(name for name in STRATEGIES["torch"] if name not in _COMPILED)
_LOOPS = "|".join(name for rows in ENGINES.values() for name, row in rows.items() if row.owns_loop)
_OWNS_LOOP = {_LOOPS: "engine '{engine}' owns the loop; take engine own"}
_LAYER_BY_LAYER = {
    "imported": "the model is imported ({imported}), and its layers are not those of a spec; 'parity pair' compares"
    " the two models layer by layer",
    **_OWNS_LOOP,
    "compile": "a compiled graph fuses layers; leave out compile",
    "steps_per_call": "one call takes several steps; take steps_per_call 1",
    _DIVIDING: "it divides layers, or gradients, in ways of its own; take ddp, fsdp1 or fsdp2",
}
_BETWEEN_STEPS = {
    **_OWNS_LOOP,
    "replay": "a replay begins where it is told, and leaves nothing to go on from; leave out save and resume",
}
_ITS_PARTS = "its parts would be others than those of the graph that trains; leave out"
_WHOLE_TENSORS = "looks at whole tensors, which this strategy divides among ranks or joins; take"
# feature that a run asks for -> what it cannot be combined with -> the reason, and what to do.
# The second key holds features, strategies, engines or frameworks: a space means and, '|' means or. Braces in a reason
# take the value of a feature or a field of the placement.
REFUSALS: dict[str, dict[str, str]] = {
    "mp_spawn": {"lightning single|fsdp1|fsdp2": "Lightning spawns ranks for ddp only; take launcher local"},
    "replicas": {
        "tensorflow single": "strategy 'single' has one replica; for more take mirrored or multi_worker",
        "torch single": "strategy 'single' has one replica; for more take ddp, fsdp2 or fsdp1",
    },
    "imported": {
        _DIVIDING: "strategy {strategy} divides layers in ways of its own; take ddp or fsdp2",
        "keras|lightning|fabric|accelerate": "engine '{engine}' was not seen to train imported models; take engine own",
        "low_precision": "precision {precision} rounds the products of a spec's layers; take float32 or float64",
        "compile": "compiled, its layers may compute in other ways; leave out compile",
        "checkpoint": "it would compute the whole model twice; leave out checkpoint",
        "sharded": "ranks write parts of canonical tensors, which are not theirs; leave out save.sharded",
    },
    "loss_scale": {
        "deepspeed": "scales no loss, DeepSpeed has its own way to; take fsdp2 or bfloat16_mixed",
        _LOOPS: "scales no loss, engine '{engine}' owns the loop; take engine own",
    },
    "low_precision": {
        "tensor_parallel": "would round the part of a product that each rank computes; take another strategy or float32",
        "keras": "is not wired to stock Keras; take float32 or float64, or engine own",
    },
    "float8_mixed": {
        "tensorflow": "has no float8 products; train with torch on a GPU, or take bfloat16_mixed",
        "deepspeed": "not possible, DeepSpeed has no such precision; take float32, or strategy fsdp2",
        "accumulation": "would scale each micro-batch by its own largest number; take no accumulation or bfloat16_mixed",
    },
    "float64": {
        "deepspeed": "not possible, DeepSpeed keeps its master weights in float32; set precision=float32, or take"
        " strategy fsdp2",
    },
    "compile": {
        "keras": "engine 'keras' compiles for itself; take engine own",
        f"torch {_NOT_COMPILED}": "strategy {strategy} was not seen to keep parity compiled; take"
        f" {', '.join(_COMPILED)}",
        "lightning|fabric|accelerate": "engine {engine} hooks into the model's passes; take engine own",
        "checkpoint": "checkpoint=true computes blocks again, which compilation decides by itself; leave one of them",
    },
    "global_statistics": {
        "accumulation": "takes its statistics of the whole global batch, which micro-batches would cut; set its"
        " statistics to per_replica (then each micro-batch has its own, on both frameworks alike), or use group_norm"
        " or layer_norm",
        "data_parallel replicas": "takes its statistics of the whole global batch, of which each GPU sees a part; set"
        " its statistics to per_replica, or take strategy ddp",
        "tensorflow compile replicas": "sums over the replicas, which XLA cannot; set its statistics to per_replica,"
        " or leave out compile",
    },
    "stock_precision": {
        "imported": "is set where a model is built, and this one is imported; leave it out",
        "activity_penalty": "would sum the activities of {activity_penalty!r} in low precision; leave one of them out",
        "tensorflow recurrent": "rounds in {recurrent!r} in another order than Keras's own layer; take precision"
        " bfloat16_mixed, or leave one of them out",
        _DIVIDING: "was not tried with strategy {strategy}; take ddp, fsdp1 or fsdp2",
    },
    "stock_dropout": {
        "imported": "is set where a model is built, and this one is imported; leave it out",
        "checkpoint": "would have blocks computed again with other masks; leave out checkpoint",
        "resume": "begins anew with each process, so that a resumed run has other masks; leave one of them out",
    },
    "whole_tensors": {
        "zero_redundancy|deepspeed": f"{_WHOLE_TENSORS} another optimizer, or strategy ddp, fsdp1 or fsdp2",
    },
    # The ranks of zero_redundancy clip whole gradients, before each updates its share of the tensors.
    "clip_norm": {"deepspeed": f"{_WHOLE_TENSORS} clip_global_norm, or strategy ddp, fsdp1 or fsdp2"},
    "taps": _LAYER_BY_LAYER,
    "replay": {**_LAYER_BY_LAYER, "stock": "of what each framework does in its own way nothing is explained"},
    "phase_repeats": {
        **_OWNS_LOOP,
        "tensorflow compile": f"{_ITS_PARTS} compile",
        "steps_per_call": f"{_ITS_PARTS} steps_per_call",
        _DIVIDING: "its passes send as they compute; take ddp or fsdp2",
        "taps": "taps would be a part of each; leave them out",
    },
    "steps_per_call": {
        "torch": "steps_per_call is TensorFlow's; PyTorch takes its steps one by one",
        "keras": "engine 'keras' owns the loop; take engine own",
        "loss_scale": "its loss scale needs to see each step before the next; take steps_per_call 1",
        "reduce_on_plateau": "schedule reduce_on_plateau needs to see each step before the next; take steps_per_call 1",
        "digests": "digests are taken between two steps; leave them out or take steps_per_call 1",
        "changing_accumulation": "the number of micro-batches changes between steps; take one number or"
        " steps_per_call 1",
    },
    "resume": {
        **_BETWEEN_STEPS,
        "accelerate changing_accumulation": "engine 'accelerate' counts its steps from 0, and the micro-batches change"
        " with them; take engine own",
    },
    "save": _BETWEEN_STEPS,
    "sharded": {
        "tensorflow": "TensorFlow has whole tensors on every worker, so that one writes; leave out save.sharded",
    },
    "accumulation": {
        "keras": "stock fit does not cut a batch (gradient_accumulation_steps joins batches, and fails under a"
        " strategy); leave accumulation at 1, or take engine own",
    },
    "uneven_batch": {
        "keras": "stock fit fails where the first batch, here of {uneven_batch}, is split unevenly over {replicas}"
        " replicas; choose a global_batch_size that they divide, or take engine own",
    },
    "few_eval_samples": {
        "keras": "stock evaluate fails on {few_eval_samples} samples over {replicas} replicas; set data.eval_samples to"
        " no fewer than the replicas",
    },
    "split": {
        "keras replicas": "Keras splits a batch into contiguous shares, received data.split '{split}'; set it to"
        " contiguous",
    },
    "activity_penalty": {
        "keras": "{activity_penalty!r} penalises activities, which is not wired to stock Keras; take engine own",
    },
    # What a machine lacks: asked where the framework runs, which knows.
    "no_gpu": {
        "lightning fsdp1": "Lightning's FSDPStrategy demands a GPU; take engine own, or strategy fsdp2",
        "data_parallel replicas": "without {replicas} GPUs nn.DataParallel would silently run on one device; take"
        " strategy ddp, which has {replicas} replicas on CPU too, or one replica",
        "mirrored nccl": "cross_device=nccl needs GPUs; on CPU take cross_device=one_device",
        "multi_worker nccl": "communication=nccl needs GPUs; on CPU take communication=ring",
    },
    "old_fsdp2": {
        "fsdp2": "fully_shard of torch {old_fsdp2} runs on GPUs alone; on CPU take torch 2.7 or newer, or strategy"
        " fsdp1",
    },
    "no_compiler": {
        "torch compile": "--compile needs a C++ compiler, and none was found; run: apt-get install g++ (or set CXX to"
        " the compiler's path)",
    },
}
# What begins the line that refuses them.
_REFUSED = {
    "imported": "the model is imported: ",
    **dict.fromkeys(("loss_scale", "low_precision", "float8_mixed", "float64"), "precision {precision}: "),
    "global_statistics": "batch norm {global_statistics!r} ",
    "stock_precision": "stock {stock_precision} ",
    "stock_dropout": "stock dropout ",
    "whole_tensors": "optimizer.kind {whole_tensors!r} ",
    "clip_norm": "optimizer.clip_norm {clip_norm:g} ",
    "taps": "cannot be tapped: ",
    "replay": "cannot be traced: ",
    "phase_repeats": "phases cannot be timed: ",
    "resume": "cannot be resumed: ",
    **dict.fromkeys(("save", "sharded"), "cannot be saved: "),
}


def unlisted(framework: Framework, strategy: str, engine: str, launcher: str) -> str | None:
    """Why there is no such combination, in one line; None where there is."""
    strategies, engines = STRATEGIES[framework], ENGINES[framework]
    if strategy not in strategies:
        others = [name for name in STRATEGIES if strategy in STRATEGIES[name]]
        near = f", which {others[0]} has" if others else did_you_mean(strategy, strategies)
        return f"strategy of {framework} must be one of {', '.join(strategies)}, received {strategy!r}{near}"
    if engine not in engines or strategy not in engines[engine].strategies:
        able = ", ".join(name for name, row in engines.items() if strategy in row.strategies)
        why = f" ({engines[engine].only})" if engine in engines and engines[engine].only else ""
        return f"engine '{engine}' does not run {framework} {strategy}{why}; this one is run by {able}"
    if launcher not in launchers_of(framework):
        return f"launcher '{launcher}' does not start {framework}; {', '.join(launchers_of(framework))} do"
    return None


def launchers_of(framework: Framework) -> list[str]:
    """The launchers that start a framework."""
    return [name for name, row in LAUNCHERS.items() if framework in row.frameworks]


def lacks(framework: Framework, field: str) -> bool:
    """Whether a framework has no such field of a placement or of saving."""
    return framework in REFUSALS.get(field, ())


def packages_of(placement: Placement) -> dict[str, str]:
    """The packages that a placement needs besides its framework, by what needs them: {'engine=fabric': 'lightning'}."""
    found = {
        f"engine={placement.engine}": ENGINES[placement.framework][placement.engine].package,
        f"strategy={placement.strategy}": STRATEGIES[placement.framework][placement.strategy].package,
    }
    return {what: package for what, package in found.items() if package}


def asked_by(placement: Placement) -> dict[str, Any]:
    """What a placement itself asks for, as `refusal` takes it."""
    options = placement.options
    return {
        "mp_spawn": placement.launcher == "mp_spawn",
        "replicas": placement.replicas if placement.replicas > 1 else None,
        "accumulation": placement.accumulates,
        "changing_accumulation": len(placement.accumulation) > 1,
        "compile": placement.compile,
        "steps_per_call": placement.steps_per_call > 1,
        "checkpoint": getattr(options, "checkpoint", False),
        "nccl": "nccl" in (getattr(options, "cross_device", ""), getattr(options, "communication", "")),
    }


def refusal(placement: Placement, asked: Mapping[str, Any]) -> str | None:
    """Why a placement cannot have what is asked of it, in one line; None where it can.

    Args:
        placement: how a spec is run.
        asked: names of REFUSALS with the values that the reasons show; None and False: not asked for.
    """
    facts = {
        name: value for name, value in {**asked_by(placement), **asked}.items() if value not in (None, False)
    }
    fields = {name: getattr(placement, name) for name in ("framework", "strategy", "engine", "launcher")}
    names = {*fields.values(), *facts}
    for name, rows in REFUSALS.items():
        for others, why in rows.items() if name in asked and name in facts else ():
            if all(names.intersection(each.split("|")) for each in others.split()):
                return f"{placement.label}: {(_REFUSED.get(name, '') + why).format(**fields, **facts)}"
    return None
