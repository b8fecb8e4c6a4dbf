"""Optimizer steps and learning rates in PyTorch: ours, and those that it ships."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from parity.common.reference import StepScalars
from parity.common.spec import Placement, TrainSpec
from parity.torch_impl import state
from parity.torch_impl.model import build_model
from parity.torch_impl.optimizers import build_optimizer
from parity.torch_impl.strategy import open_strategy
from parity_tests.peers import Arrays


def steps(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """Weights after each step, the final state, and what an evaluation sees and leaves behind when it fails.

    facts: spec (resolved TrainSpec), steps. arrays: the initial state, and `N/<parameter>` gradients.
    """
    spec = TrainSpec.parse(facts["spec"])
    strategy = open_strategy(Placement(framework="torch", strategy="single"))
    model = build_model(spec, strategy)
    optimizer = build_optimizer(spec.optimizer, model, strategy)
    state.load(arrays, model, optimizer)
    rates, results = StepScalars(spec), {}
    for step in range(facts["steps"]):
        gradients = [tensor.shard(arrays[f"{step}/{name}"]) for name, tensor in model.parameters.items()]
        gradients = optimizer.join(gradients)
        norm = strategy.norms(gradients)[0]
        optimizer.update(optimizer.clip(gradients, norm), rates.scalars(step))
        for name, tensor in model.parameters.items():
            results[f"{step}/{name}"] = tensor.to_canonical(tensor.live)
    results |= state.export(model, optimizer, facts["steps"])
    with suppress(InterruptedError), optimizer.averaged():
        for name, tensor in model.parameters.items():
            results[f"evaluated/{name}"] = tensor.to_canonical(tensor.live)
        raise InterruptedError("an evaluation that fails")
    for name, tensor in model.parameters.items():
        results[f"left/{name}"] = tensor.to_canonical(tensor.live)
    return results


# Canonical layout <-> PyTorch's, by the number of axes.
_AXES = {1: (0,), 2: (1, 0), 4: (3, 2, 0, 1)}


def _native(value: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(value.transpose(_AXES[value.ndim])))


def _canonical(tensor: Tensor) -> np.ndarray:
    return tensor.detach().numpy().transpose(np.argsort(_AXES[tensor.ndim])).copy()


def stock(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """Weights after each step of a class of torch.optim; its default learning rate; averages.

    facts: name, options, rates (one a step), no_decay, clip (a function of torch.nn.utils and its
    limit), average (a decay), others (name and options for what is not a matrix), narrow (whether
    Muon rounds to bfloat16, as it does).
    """
    # NAdam keeps the product of its momenta in this type.
    torch.set_default_dtype(torch.float64)
    names = [name for name in arrays if name.startswith("parameters/")]
    parameters = {name: nn.Parameter(_native(arrays[name])) for name in names}
    optimizers = _stock_optimizers(facts, parameters)
    results = {"learning_rate": np.array(optimizers[0].param_groups[0]["lr"])}
    averaged = None
    if "average" in facts:
        averaged = AveragedModel(
            nn.ParameterList(parameters.values()), multi_avg_fn=get_ema_multi_avg_fn(facts["average"])
        )
    for step, rate in enumerate(facts["rates"]):
        for name, parameter in parameters.items():
            parameter.grad = _native(arrays[f"{step}/{name}"].copy())
        if "clip" in facts:
            function, limit = facts["clip"]
            getattr(nn.utils, function)(list(parameters.values()), limit)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            with _wide() if not facts.get("narrow", True) else warnings.catch_warnings():
                optimizer.step()
        if averaged is not None:
            averaged.update_parameters(nn.ParameterList(parameters.values()))
        results |= {f"{step}/{name}": _canonical(parameter) for name, parameter in parameters.items()}
    if averaged is not None:
        pairs = zip(names, averaged.module, strict=True)
        results |= {f"average/{name}": _canonical(parameter) for name, parameter in pairs}
    return results


def _stock_optimizers(facts: dict[str, Any], parameters: dict[str, nn.Parameter]) -> list[Any]:
    make = lambda name, groups, options: getattr(torch.optim, name)(groups, **options)  # noqa: E731
    options = {k: tuple(v) if isinstance(v, list) else v for k, v in facts["options"].items()}
    if "others" in facts:
        matrices = [p for p in parameters.values() if p.ndim == 2]
        rest = [p for p in parameters.values() if p.ndim != 2]
        return [make(facts["name"], matrices, options), make(facts["others"], rest, {})]
    still = set(facts.get("no_decay", ()))
    groups = [
        {"params": [p for n, p in parameters.items() if n not in still]},
        {"params": [p for n, p in parameters.items() if n in still], "weight_decay": 0.0},
    ]
    return [make(facts["name"], [group for group in groups if group["params"]], options)]


def _wide() -> Any:
    """Muon without its rounding to bfloat16."""
    return patch.object(Tensor, "bfloat16", lambda self: self.clone())


def schedule(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """Learning rates of classes of torch.optim.lr_scheduler by step; several take turns at milestones."""
    del arrays
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=facts["rate"])
    schedulers = torch.optim.lr_scheduler
    made = [getattr(schedulers, name)(optimizer, **options) for name, options in facts["chain"]]
    scheduler = made[0]
    if len(made) > 1:
        scheduler = schedulers.SequentialLR(optimizer, made, milestones=facts["milestones"])
    rates = []
    for step in range(facts["steps"]):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if "losses" in facts:
            scheduler.step(facts["losses"][step])
        elif step + 1 < facts["steps"]:
            scheduler.step()
    return {"rates": np.array(rates)}
