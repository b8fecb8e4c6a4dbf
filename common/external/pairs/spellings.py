"""Losses and optimizers by the names that Keras and PyTorch have for them, as ours."""

from __future__ import annotations

from typing import Any, get_args

from parity.common.spec.losses import LossSpec
from parity.common.spec.optimizers import OptimizerSpec

# Without underscores, in lower case. What Keras takes from probabilities unless it is told otherwise is of logits here.
_LOSSES: dict[str, dict[str, Any]] = {
    "sparsecategoricalcrossentropy": {"kind": "softmax_cross_entropy"},
    "crossentropyloss": {"kind": "softmax_cross_entropy"},
    "crossentropy": {"kind": "softmax_cross_entropy"},
    "sparsesoftmaxcrossentropywithlogits": {"kind": "softmax_cross_entropy"},
    "categoricalcrossentropy": {"kind": "softmax_cross_entropy", "targets": "distributions"},
    "binarycrossentropy": {"kind": "binary_cross_entropy"},
    "bcewithlogitsloss": {"kind": "binary_cross_entropy"},
    "binarycrossentropywithlogits": {"kind": "binary_cross_entropy"},
    "sigmoidcrossentropy": {"kind": "binary_cross_entropy"},
    "sigmoidcrossentropywithlogits": {"kind": "binary_cross_entropy"},
    "bceloss": {
        "kind": "binary_cross_entropy",
        "outputs": "probabilities",
        "clip": 0.0,
        "log_floor": -100.0,
    },
    "mse": {"kind": "mean_squared_error"},
    "mseloss": {"kind": "mean_squared_error"},
    "mae": {"kind": "mean_absolute_error"},
    "l1loss": {"kind": "mean_absolute_error"},
    "huberloss": {"kind": "huber"},
    "smoothl1loss": {"kind": "huber"},
    "kldivloss": {"kind": "kl_divergence", "outputs": "log_probabilities"},
}
_FIELDS = {
    "lr": "learning_rate",
    "eps": "epsilon",
    "pos_weight": "positive_weight",
    "ignore_index": "ignore",
    "ignore_class": "ignore",
}


def _kinds(union: Any) -> dict[str, dict[str, Any]]:
    classes = get_args(get_args(union)[0])
    kinds = [cls.model_fields["kind"].default for cls in classes]
    return {_short(kind): {"kind": kind} for kind in kinds}


def _short(name: str) -> str:
    return name.lower().replace("_", "")


_KNOWN_LOSSES = _kinds(LossSpec) | _LOSSES
_KNOWN_OPTIMIZERS = _kinds(OptimizerSpec)
LOSS_KINDS, OPTIMIZER_KINDS = (
    tuple(dict.fromkeys(str(each["kind"]) for each in known.values()))
    for known in (_KNOWN_LOSSES, _KNOWN_OPTIMIZERS)
)


def is_loss(name: str) -> bool:
    """Whether a loss is called so by us or by a framework."""
    return _short(name) in _KNOWN_LOSSES


def as_ours(data: dict[str, Any]) -> dict[str, Any]:
    """Return plain data of a loss or an optimizer with our name of it and of its fields; unknown names stay."""
    given = dict(data)
    kind = _short(given.pop("kind"))
    known = _KNOWN_LOSSES.get(kind) or _KNOWN_OPTIMIZERS.get(kind)
    found = dict(known or {"kind": data["kind"]})
    for name, value in given.items():
        if name == "from_logits" and isinstance(value, bool):
            found["outputs"] = "logits" if value else "probabilities"
        elif name == "betas" and isinstance(value, list | tuple) and len(value) == 2:
            found["beta_1"], found["beta_2"] = value
        elif name == "alpha" and found["kind"] == "rmsprop":
            found["rho"] = value
        else:
            found[_FIELDS.get(name, name)] = value
    return found
