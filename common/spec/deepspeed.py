"""The DeepSpeed configuration of a run: generated, or the user's own with every "auto" resolved."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from parity.common.base.errors import SpecError
from parity.common.base.files import naming_os_errors, unique_keys
from parity.common.spec.model import walk
from parity.common.spec.placement import Placement
from parity.common.spec.strategies import DeepSpeed
from parity.common.spec.train import TrainSpec

_AUTO = "auto"
# DeepSpeed's name of a setting of its optimizers -> the spec's fields.
_OPTIMIZER_FIELDS: dict[str, str | tuple[str, ...]] = {
    "lr": "learning_rate",
    "betas": ("beta_1", "beta_2"),
    "eps": "epsilon",
    "weight_decay": "weight_decay",
    "momentum": "momentum",
}

# What would round, or weigh, otherwise than the spec's precision says.
_ROUNDING = {
    "communication_data_type": "fp32",
    "data_types.grad_accum_dtype": "fp32",
    "prescale_gradients": False,
    "sparse_gradients": False,
    "torch_autocast.enabled": False,
    "zero_optimization.zero_quantized_gradients": False,
    "zero_optimization.zero_quantized_weights": False,
}


def deepspeed_config(spec: TrainSpec, placement: Placement) -> dict[str, Any]:
    """What `deepspeed.initialize` is given; nothing is left to be guessed.

    The user's file may say anything about how DeepSpeed works. What it says about what is trained must
    be what the spec says.

    Raises:
        SpecError: the file cannot be read, or contradicts the spec or the placement; names both values.
    """
    ours = _generated(spec, placement)
    path = _options(placement).config
    if path is None:
        return _merged(_defaults(spec), ours)
    theirs = _read(path)
    for name, given, wanted, whose in _claims(theirs, spec, placement, ours):
        if given not in (None, _AUTO) and given != wanted:
            raise SpecError(
                f"{path}: {name} is {given!r}, but {wanted!r} by the {whose}; make them agree, or write 'auto'"
            )
    # The update is the spec's own rule, and so is clipping.
    for section in ("optimizer", "scheduler", "fp16", "bf16", "train_batch_size"):
        theirs.pop(section, None)
    return _merged(_merged(_defaults(spec), _without_auto(theirs)), ours)


def _options(placement: Placement) -> DeepSpeed:
    assert isinstance(placement.options, DeepSpeed)
    return placement.options


def _generated(spec: TrainSpec, placement: Placement) -> dict[str, Any]:
    options = _options(placement)
    fixed = len(placement.accumulation) == 1
    accumulation = placement.accumulation[0][1] if fixed else 1
    local = -(-spec.global_batch_size // placement.replicas)
    host = {"device": "cpu", "pin_memory": placement.device == "gpu"}
    zero: dict[str, Any] = {"stage": options.stage, "round_robin_gradients": False}
    if options.offload_optimizer:
        zero["offload_optimizer"] = host
    if options.offload_parameters:
        zero["offload_param"] = host
    return {
        # The largest that comes: shares and micro-batches may be uneven.
        "train_micro_batch_size_per_gpu": -(-local // accumulation),
        "gradient_accumulation_steps": accumulation,
        "zero_optimization": zero,
        "gradient_clipping": 0.0,
        "zero_allow_untested_optimizer": True,
        # DeepSpeed's own would be compiled first, and have a rule of its own.
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": None,
    }


def _defaults(spec: TrainSpec) -> dict[str, Any]:
    """What a file may say otherwise."""
    elements = sum(node.trained for node in walk(spec.model.tree()))
    return {
        "zero_optimization": {
            # DeepSpeed's own are made for large models: stage 3 takes 2 GB for its bucket at once, and
            # keeps every parameter of less than 100,000 elements whole.
            "reduce_bucket_size": min(elements, 500_000_000),
            "stage3_prefetch_bucket_size": min(elements, 50_000_000),
            "stage3_param_persistence_threshold": 0,
        }
    }


def _read(path: str) -> dict[str, Any]:
    try:
        with naming_os_errors(SpecError, f"{path}: the DeepSpeed configuration cannot be read"):
            found = json.loads(Path(path).read_text(encoding="utf-8"), object_pairs_hook=unique_keys)
    except ValueError as error:
        raise SpecError(f"{path}: not JSON: {error}") from None
    if not isinstance(found, dict):
        raise SpecError(f"{path}: must hold one JSON object, received a {type(found).__name__}")
    return found


def _claims(
    theirs: dict[str, Any], spec: TrainSpec, placement: Placement, ours: dict[str, Any]
) -> Iterator[tuple[str, Any, Any, str]]:
    """(setting, the user's value, what it must be, by whom) of all that a spec or a placement decides."""
    options, optimizer = _options(placement), spec.optimizer

    def section(*names: str) -> dict[str, Any]:
        found: Any = theirs
        for name in names:
            found = found.get(name) or {}
            if not isinstance(found, dict):
                raise SpecError(f"{options.config}: {'.'.join(names)} must be an object, received {found!r}")
        return dict(found)

    yield "train_batch_size", theirs.get("train_batch_size"), spec.global_batch_size, "spec"
    for name in ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps"):
        yield name, theirs.get(name), ours[name], "spec and placement"
    zero = section("zero_optimization")
    yield "zero_optimization.stage", zero.get("stage"), options.stage, "placement"
    for name, asked in (("optimizer", options.offload_optimizer), ("param", options.offload_parameters)):
        device = section("zero_optimization", f"offload_{name}").get("device")
        yield f"zero_optimization.offload_{name}.device", device, "cpu" if asked else "none", "placement"
    yield "gradient_clipping", theirs.get("gradient_clipping"), optimizer.clip_global_norm or 0.0, "spec"
    for name in ("fp16", "bf16"):
        yield f"{name}.enabled", section(name).get("enabled"), False, f"spec's precision {spec.precision}"
    kind = section("optimizer").get("type")
    yield "optimizer.type", kind.lower() if isinstance(kind, str) else kind, optimizer.kind, "spec"
    for name, value in section("optimizer", "params").items():
        fields = _OPTIMIZER_FIELDS.get(name)
        if isinstance(fields, tuple):
            yield f"optimizer.params.{name}", value, [getattr(optimizer, f, None) for f in fields], "spec"
        elif fields is not None:
            yield f"optimizer.params.{name}", value, getattr(optimizer, fields, None), "spec"
    for name, plain in _ROUNDING.items():
        *outer, last = name.split(".")
        yield name, section(*outer).get(last), plain, "law that a placement changes no curve"
    scheduler = section("scheduler").get("type")
    yield "scheduler.type", scheduler, None, f"spec, which has the schedule {spec.schedule.kind!r}"


def _without_auto(value: Any) -> Any:
    """Without settings that are 'auto': ours, or DeepSpeed's default where we have none."""
    if not isinstance(value, dict):
        return value
    return {name: _without_auto(each) for name, each in value.items() if each != _AUTO}


def _merged(theirs: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """Both; ours where both say something."""
    merged = dict(theirs)
    for name, value in ours.items():
        deeper = isinstance(value, dict) and isinstance(theirs.get(name), dict)
        merged[name] = _merged(theirs[name], value) if deeper else value
    return merged
