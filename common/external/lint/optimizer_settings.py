"""Canonical settings of optimizers: what each changes, its row in DIFFERENCES, and where to set it."""

from __future__ import annotations

from collections.abc import Mapping

from parity.common.external.lint.settings import Meaning


def _plain(keras: str, torch: str = "", row: int | None = None) -> Meaning:
    """torch: default: as Keras."""
    return Meaning(row, "update", keras, torch or keras)


def _optimizer(decay_row: int | None = None, row: int | None = None) -> dict[str, Meaning]:
    """row: of the optimizer's own settings. decay_row: of its weight decay."""
    return {
        "learning_rate": _plain("learning_rate={v}", "lr={v}", row),
        "schedule": _plain("learning_rate: the same schedule", "the same schedule by lr_scheduler", 22),
        "weight_decay": _plain("weight_decay={v}", row=decay_row),
        "weight_decay_mode": _plain(
            "regularizers.L2 of half the decay (coupled), or a decoupled optimizer in torch",
            "the class with decoupled decay (AdamW), or scale the weights before the step",
            decay_row,
        ),
        "decay_mask": _plain(
            "exclude_from_weight_decay: {v}", "param_groups with weight_decay=0: {v}", decay_row
        ),
        "clip_global_norm": _plain("global_clipnorm={v}", "clip_grad_norm_(parameters, {v})", 17),
        "clip_norm": _plain("clipnorm={v}", "clip_grad_norm_ of each parameter by itself, {v}", 18),
        "clip_value": _plain("clipvalue={v}", "clip_grad_value_(parameters, {v})"),
        "ema": _plain("use_ema, ema_momentum={v}", "AveragedModel with get_ema_multi_avg_fn({v})"),
        "accumulation": _plain(
            "gradient_accumulation_steps={v}", "step every {v} batches, mean gradient", 20
        ),
        "maximize": _plain("no such setting: negate the loss", "maximize={v}"),
        "loss_scale": Meaning(49, "update", "LossScaleOptimizer({v})", "GradScaler({v})", optional=True),
    }


def _betas(decay_row: int | None = None) -> dict[str, Meaning]:
    beta_1, beta_2 = _plain("beta_1={v}", "betas[0]={v}"), _plain("beta_2={v}", "betas[1]={v}")
    return {**_optimizer(decay_row), "beta_1": beta_1, "beta_2": beta_2}


def _epsilon(row: int | None = None) -> Meaning:
    return _plain("epsilon={v}", "eps={v}", row)


def _place(row: int | None = None) -> Meaning:
    return _plain("no such setting ({v}): an optimizer of your own, with epsilon there", row=row)


def _momentum_form(row: int) -> Meaning:
    return _plain("no such setting ({v}); the same while the learning rate stays", row=row)


_ADAM = {
    **_betas(12),
    "epsilon": _epsilon(11),
    "epsilon_place": _plain(
        "no such setting ({v}); epsilon_torch * sqrt(1 - beta_2^t) is the same at step t",
        "no such setting ({v}): a subclass, KerasAdam of the FAQ, takes epsilon_keras / sqrt(1 - beta_2^t) at step t",
        11,
    ),
    "amsgrad": _plain("amsgrad={v}"),
}
OPTIMIZERS: Mapping[str, Mapping[str, Meaning]] = {
    "sgd": {
        **_optimizer(9),
        "momentum": _plain("momentum={v}", row=7),
        "nesterov": _plain("nesterov={v}", row=8),
        "momentum_form": _momentum_form(7),
        "dampening": _plain("no such setting ({v})", "dampening={v}", 7),
    },
    "adam": _ADAM,
    "adamw": {**_ADAM, "weight_decay": _plain("weight_decay={v}", row=13)},
    "rmsprop": {
        **_optimizer(None, 14),
        "rho": _plain("rho={v}", "alpha={v}", 14),
        "epsilon": _epsilon(14),
        "epsilon_place": _place(14),
        "centered": _plain("centered={v}", row=14),
        "momentum": _plain("momentum={v}", row=14),
        "momentum_form": _momentum_form(14),
    },
    "adagrad": {
        **_optimizer(None, 15),
        "initial_accumulator": _plain("initial_accumulator_value={v}", row=15),
        "epsilon": _epsilon(15),
        "epsilon_place": _place(15),
        "rate_decay": _plain("a schedule: lr / (1 + step * {v})", "lr_decay={v}", 15),
    },
    "adadelta": {**_optimizer(None, 16), "rho": _plain("rho={v}", row=16), "epsilon": _epsilon(16)},
    "adamax": {**_betas(), "epsilon": _epsilon(), "epsilon_place": _place()},
    "nadam": {
        **_betas(),
        "epsilon": _epsilon(),
        "momentum_decay": _plain("no such setting: Keras's is 1", "momentum_decay={v}"),
    },
    "lion": _betas(),
}
