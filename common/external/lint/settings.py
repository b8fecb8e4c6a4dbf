"""Canonical settings of layers and optimizers: what each changes, its row in DIFFERENCES, and where to set it.

How a framework's own value becomes the canonical one stands in `{tf,torch}_impl/external/{settings,outline}.py`.
Canonical is Keras's meaning where the two differ: `decay` of batch normalisation is Keras's momentum, and one minus
PyTorch's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from parity.common.spec.external.outline import Setting

Changes = Literal["forward", "backward", "update", "initial values", "training mode", "layout"]

# The rows that are named here, in a few words.
ROWS: Mapping[int, str] = {
    1: "batch-norm momentum",
    2: "batch-norm epsilon",
    3: "batch-norm running variance",
    5: "synchronised batch norm",
    6: "frozen batch norm",
    7: "SGD momentum",
    8: "Nesterov",
    9: "SGD weight decay",
    10: "L2 regulariser",
    11: "Adam epsilon",
    12: "Adam weight decay",
    13: "AdamW default decay",
    14: "RMSprop",
    15: "Adagrad",
    16: "Adadelta",
    17: "clipping by global norm",
    18: "clipping by norm",
    20: "gradient accumulation",
    22: "when the schedule steps",
    32: "cross-entropy on probabilities or logits",
    33: "padding with stride",
    34: "average pooling",
    37: "flatten",
    38: "LSTM",
    39: "GRU",
    40: "LayerNorm and GroupNorm epsilon",
    41: "LeakyReLU slope",
    42: "PReLU",
    43: "initial values",
    44: "truncated normal",
    45: "initial embedding",
    46: "GELU",
    47: "dropout in recurrent nets",
    48: "image resize",
    49: "loss scale",
}

# Code that a fix of torch's side speaks of, by its name there.
PASTE: Mapping[str, str] = {
    "KerasBatchNorm": """\
class KerasBatchNorm(nn.BatchNorm2d):  # or nn.BatchNorm1d, nn.BatchNorm3d
    def forward(self, x):
        if not self.training:
            return super().forward(x)
        axes = [0, *range(2, x.dim())]
        with torch.no_grad():
            self.running_mean.lerp_(x.mean(axes), self.momentum)
            self.running_var.lerp_(x.var(axes, unbiased=False), self.momentum)
        return nn.functional.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)
""",
    "KerasAdam": """\
class KerasAdam(torch.optim.Adam):  # or torch.optim.AdamW; give it Keras's epsilon, eps=1e-7
    updates = 0

    def step(self, closure=None):
        self.updates += 1
        for group in self.param_groups:
            epsilon = group.setdefault("keras_eps", group["eps"])
            group["eps"] = epsilon / (1 - group["betas"][1] ** self.updates) ** 0.5
        return super().step(closure)
""",
}


@dataclass(frozen=True)
class Meaning:
    """What a setting is.

    row: of DIFFERENCES, None where it has none. changes: what the two models do differently. keras, torch: how to
    give one side the other's value: {v} is that value, {c} one minus it, {tanh} torch's word for it where it is of a GELU.
    optional: a layer without it has none, rather than one that could not be read.
    """

    row: int | None
    changes: Changes
    keras: str
    torch: str
    optional: bool = False

    def fix(self, side: Literal["keras", "torch"], value: Setting) -> str:
        """How to give a side this value of the other."""
        template = self.keras if side == "keras" else self.torch
        opposite = said(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            opposite = said(round(1 - float(value), 12))
        spelt = _spelt(value, side) if self.changes == "initial values" else said(value)
        tanh = "'tanh'" if value else "'none'"
        return template.replace("{v}", spelt).replace("{c}", opposite).replace("{tanh}", tanh)


def _forward(keras: str, torch: str, row: int | None = None, optional: bool = False) -> Meaning:
    return Meaning(row, "forward", keras, torch, optional)


def _training(keras: str, torch: str, row: int | None = None) -> Meaning:
    return Meaning(row, "training mode", keras, torch)


# Canonical initialisers in either side's own words; X is the number in the name.
_SPELT = {
    "keras": {
        "uniform_fan_in": "RandomUniform(-b, b) with b = 1 / sqrt(fan-in of the kernel)",
        "he_normal_uncut": "VarianceScaling(2, 'fan_in', 'untruncated_normal')",
        "he_normal_uncut of fan-out": "VarianceScaling(2, 'fan_out', 'untruncated_normal')",
        "glorot_normal_uncut": "VarianceScaling(1, 'fan_avg', 'untruncated_normal')",
        "normal": "RandomNormal(stddev=X)",
        "truncated_normal": "TruncatedNormal(stddev=X)",
        "uniform": "RandomUniform(-X, X)",
        "constant": "Constant(X)",
    },
    "torch": {
        "zeros": "nn.init.zeros_",
        "he_normal": "nn.init.trunc_normal_ by the fan-in",
        "ones": "nn.init.ones_",
        "glorot_uniform": "nn.init.xavier_uniform_",
        "he_uniform": "nn.init.kaiming_uniform_",
        "orthogonal": "nn.init.orthogonal_",
        "uniform_fan_in": "nn.init.uniform_(-b, b) with b = 1 / sqrt(fan-in of the kernel)",
        "normal": "nn.init.normal_(std=X)",
        "truncated_normal": "nn.init.trunc_normal_(std=X, a=-2 * X, b=2 * X)",
        "uniform": "nn.init.uniform_(-X, X)",
        "constant": "nn.init.constant_(X)",
    },
}


def _spelt(value: Setting, side: Literal["keras", "torch"]) -> str:
    text = said(value)
    kind, _, number = text.rpartition("_")
    if text in _SPELT[side]:
        return _SPELT[side][text]
    return _SPELT[side][kind].replace("X", number) if kind in _SPELT[side] else text


def said(value: Setting) -> str:
    """A value, for people."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, float):
        return f"{value:.12g}"
    return str(value)


def _initial(role: str, row: int = 43) -> Meaning:
    keras = "embeddings_initializer" if role == "embedding" else f"{role}_initializer"
    names = {"kernel": "weight", "gamma": "weight", "beta": "bias", "alpha": "weight", "embedding": "weight"}
    torch = f"{{v}} on {names.get(role, role)}, or copy the weights"
    return Meaning(row, "initial values", f"{keras}={{v}}, or copy the weights", torch)


def _initials(*roles: str) -> dict[str, Meaning]:
    return {f"{role}_initializer": _initial(role) for role in roles}


def _penalties(*roles: str) -> dict[str, Meaning]:
    torch = "add {v} times the sum (l2: of squares) of the tensor to the loss"
    return {
        name: Meaning(
            10, "backward", f"{name}: remove it, or give the optimizer the decay", torch, optional=True
        )
        for name in (f"{role}_regularizer" for role in roles)
    }


def _constraint(argument: str, tensor: str) -> Meaning:
    return Meaning(None, "update", f"{argument}: remove it", f"apply {{v}}{tensor} after each step", True)


_BIAS = _forward("use_bias={v}", "bias={v}")
_TRAINABLE = Meaning(None, "update", "layer.trainable = {v}", "requires_grad_({v}) on its parameters")
_KERNEL = {
    **_initials("kernel", "bias"),
    **_penalties("kernel", "bias", "activity"),
    "kernel_constraint": _constraint("kernel_constraint", " to weight"),
    "bias_constraint": _constraint("bias_constraint", " to bias"),
    "use_bias": _BIAS,
    "trainable": _TRAINABLE,
}
_DENSE = {"units": _forward("units={v}", "out_features={v}"), **_KERNEL}
_PADDING = _forward(
    "ZeroPadding of {v} before it, and padding='valid'", "F.pad by {v} before it, and padding=0", row=33
)
_STRIDES = _forward("strides={v}", "stride={v}")
_CONVOLUTION = {
    "filters": _forward("filters={v}", "out_channels={v}"),
    "kernel_size": _forward("kernel_size={v}", "kernel_size={v}"),
    "strides": _STRIDES,
    "padding": _PADDING,
    "padding_values": _forward("pad with {v} before it", "padding_mode={v}"),
    "dilation": _forward("dilation_rate={v}", "dilation={v}"),
    "groups": _forward("groups={v}", "groups={v}"),
    **_KERNEL,
}
_TRANSPOSED = {
    **{name: meaning for name, meaning in _CONVOLUTION.items() if name != "padding"},
    "cropping": _forward(
        "padding='valid', and Cropping of {v} after it",
        "take {v} off the result, (before, after) of each axis: by padding=before with output_padding=before - after; where more goes off after,"
        " by padding=0 and a slice behind it",
        row=33,
    ),
}
_AFFINE = {
    "scale": _forward("scale={v}", "affine (elementwise_affine)={v}"),
    "center": _forward("center={v}", "bias={v}"),
    **_initials("gamma", "beta"),
    **_penalties("gamma", "beta"),
    "trainable": _TRAINABLE,
}
_STATISTICS = _forward("no such setting: {v} statistics need a layer of your own", "track_running_stats: {v}")
_BATCH_NORM = {
    **_AFFINE,
    "decay": _training("momentum={v}", "momentum={c}", row=1),
    "epsilon": _forward("epsilon={v}", "eps={v}", row=2),
    "running_variance": _training(
        "no such setting: a layer of your own that stores the {v} variance",
        "no such setting: a subclass, KerasBatchNorm of the FAQ, stores the {v} variance",
        row=3,
    ),
    "statistics": _STATISTICS,
    "synchronized": _training("synchronized={v}", "nn.SyncBatchNorm: {v}", row=5),
    "frozen_statistics": _training(
        "call it with training=True to update its statistics", "keep a frozen layer in eval()", row=6
    ),
    **_initials("moving_mean", "moving_variance"),
    "trainable": Meaning(6, "update", "layer.trainable = {v}", "requires_grad_({v}) on its parameters"),
}
_NORM = {**_AFFINE, "epsilon": _forward("epsilon={v}", "eps={v}", row=40)}
_AXES = _forward("axis: the last {v}", "normalized_shape of {v} axes")
_POOL = {
    "size": _forward("pool_size={v}", "kernel_size={v}"),
    "strides": _STRIDES,
    # Of zeros it would be another function: the largest of what is below zero.
    "padding": _forward(
        "a padding of {v} with -inf before it, and padding='valid'",
        "F.pad by {v} with value=-inf before it, and padding=0",
        row=33,
    ),
    "dilation": _forward("no such setting: a layer of your own with dilation {v}", "dilation={v}"),
}
_AVERAGE_POOL = {
    **{name: meaning for name, meaning in _POOL.items() if name not in ("dilation", "padding_values")},
    "padding": _forward(
        "a padding of {v} before it, and padding='valid'", "F.pad by {v} before it, and padding=0", row=33
    ),
    "count_padding": _forward("ZeroPadding before it, and padding='valid'", "count_include_pad={v}", row=34),
    "divisor": _forward("no such setting: multiply its output", "divisor_override={v}"),
}
_ADAPTIVE = {"sides": _forward("output_size: {v}", "output_size: {v}")}
_RATE = _training("rate={v}", "p={v}")
_RECURRENT_DROPOUT = _training(
    "{v} as dropout or recurrent_dropout", "no such setting: a loop over cells with {v} inside", row=47
)


def _recurrent(row: int | None) -> Mapping[str, Meaning]:
    return {
        "units": _forward("units={v}", "hidden_size={v}"),
        "layers": _forward("{v} layers, one after another", "num_layers={v}"),
        "use_bias": _forward("use_bias={v}", "bias={v}"),
        "biases": Meaning(
            row,
            "update",
            "no such setting for {v} biases: train with half the rate of a torch bias in mind, or freeze one there",
            "set bias_hh to zero, and requires_grad_(False) on it",
        ),
        "direction": _forward("Bidirectional or go_backwards: {v}", "bidirectional, or a flipped input: {v}"),
        "merge": _forward("merge_mode={v}", "merge the two ways by {v} yourself", optional=True),
        "between_dropout": _training("a Dropout of {v} between the layers", "dropout={v}", row=47),
        "input_dropout": _RECURRENT_DROPOUT,
        "recurrent_dropout": _RECURRENT_DROPOUT,
        "reset": _forward("reset_after: {v}", "no such setting: a cell of your own, reset {v}", row=39),
        "function": _forward("activation={v}", "nonlinearity={v} (nn.RNN), or a cell of your own"),
        "gate_function": _forward("recurrent_activation={v}", "a cell of your own with {v}"),
        "kernel_initializer": _initial("kernel"),
        "recurrent_kernel_initializer": _initial("recurrent"),
        "bias_initializer": _initial("bias", 38 if row == 38 else 43),
        **_penalties("kernel", "recurrent", "bias"),
        "trainable": _TRAINABLE,
    }


_ATTENTION = {
    "heads": _forward("num_heads={v}", "num_heads={v}"),
    "head_size": _forward("key_dim={v}", "embed_dim / num_heads = {v}"),
    "scale_factor": _forward("scale the queries, to {v} in all", "scale the queries, to {v} in all"),
    "dropout": _training("dropout={v}", "dropout={v}"),
    "use_bias": _BIAS,
    "output_bias": _forward("use_bias={v}", "out_proj.bias: {v}"),
    "key_value_bias": _forward("no such setting", "add_bias_kv={v}"),
    "zero_attention": _forward("no such setting", "add_zero_attn={v}"),
    "kernel_initializer": _initial("kernel"),
    "output_kernel_initializer": _initial("output kernel"),
    "bias_initializer": _initial("bias"),
    **_penalties("kernel", "bias"),
    "trainable": _TRAINABLE,
}
_RESIZE = {
    name: _forward(keras, torch, row=48, optional=True)
    for name, keras, torch in (
        ("interpolation", "interpolation={v}", "mode={v}"),
        ("align_corners", "no such setting: resize with align_corners={v} yourself", "align_corners={v}"),
        ("antialias", "antialias={v} of Resizing", "F.interpolate(antialias={v})"),
        ("cubic_coefficient", "no such setting", "no such setting but antialias, which has -0.5"),
        ("cubic_edge", "no such setting", "no such setting"),
        ("nearest_from", "no such setting", "mode='nearest-exact' takes the cell from the center"),
    )
}
_ACTIVATION = {
    "function": _forward("activation: {v}", "activation: {v}"),
    "negative_slope": _forward("negative_slope={v}", "negative_slope={v}", row=41, optional=True),
    "approximate": _forward(
        "keras.activations.gelu(x, approximate={v})", "approximate={tanh}", row=46, optional=True
    ),
    "axis": _forward("axis: {v}", "dim: {v}", optional=True),
    **{
        name: _forward(f"{name}={{v}}", f"{name}={{v}}", optional=True)
        for name in ("alpha", "beta", "low", "high", "threshold", "value")
    },
}

# By kind of layer; a setting that is not here is of no consequence to what is computed, or is read with another.
LAYERS: Mapping[str, Mapping[str, Meaning]] = {
    "dense": _DENSE,
    **{f"conv{rank}d": _CONVOLUTION for rank in (1, 2, 3)},
    **{f"depthwise_conv{rank}d": _CONVOLUTION for rank in (1, 2)},
    # Compared as the two, or the one, that they are.
    **{f"separable_conv{rank}d": {} for rank in (1, 2)},
    "einsum_dense": {},
    **{f"conv{rank}d_transpose": _TRANSPOSED for rank in (1, 2, 3)},
    **{f"max_pool{rank}d": _POOL for rank in (1, 2, 3)},
    **{f"average_pool{rank}d": _AVERAGE_POOL for rank in (1, 2, 3)},
    "adaptive_average_pool": _ADAPTIVE,
    "adaptive_max_pool": _ADAPTIVE,
    "global_average_pool": {},
    "global_max_pool": {},
    "batch_norm": _BATCH_NORM,
    "layer_norm": {**_NORM, "axes": _AXES},
    "rms_norm": {**_AFFINE, "epsilon": _forward("epsilon={v}", "eps={v}"), "axes": _AXES},
    "group_norm": {**_NORM, "groups": _forward("groups={v}", "num_groups={v}")},
    "instance_norm": {**_NORM, "statistics": _STATISTICS},
    "embedding": {
        "vocabulary": _forward("input_dim={v}", "num_embeddings={v}"),
        "features": _forward("output_dim={v}", "embedding_dim={v}"),
        "padding_id": Meaning(None, "backward", "no such setting: keep row {v} as it is", "padding_idx={v}"),
        "max_norm": _forward("no such setting: limit rows to norm {v}", "max_norm={v}"),
        "scale_by_frequency": Meaning(None, "backward", "no such setting", "scale_grad_by_freq={v}"),
        "embedding_initializer": _initial("embedding", 45),
        **_penalties("embeddings", "activity"),
        "embeddings_constraint": _constraint("embeddings_constraint", ""),
        "trainable": _TRAINABLE,
    },
    "dropout": {
        "rate": _RATE,
        "whole": _training("SpatialDropout for channels: {v}", "Dropout2d for channels: {v}"),
    },
    "alpha_dropout": {"rate": _RATE},
    "prelu": {
        "slope_per": _forward("shared_axes: one slope a {v}", "num_parameters: one slope a {v}", row=42),
        "alpha_initializer": _initial("alpha", 42),
        **_penalties("alpha"),
        "trainable": _TRAINABLE,
    },
    "flatten": {
        "order": Meaning(
            37,
            "layout",
            "Permute((3, 1, 2)) before it, or permute the next kernel, as a mapping does",
            "x.permute(0, 2, 3, 1) before it, or permute the next kernel, as a mapping does",
        )
    },
    "lstm": _recurrent(38),
    "gru": _recurrent(39),
    "simple_rnn": _recurrent(None),
    "attention": _ATTENTION,
    "resize": _RESIZE,
    "zero_pad": {"padding": _forward("padding={v}", "padding={v}", row=33)},
    "activation": _ACTIVATION,
}

# What routes or reorders tensors: written as an expression on one side or the other, so it is not matched.
_ARITHMETIC = {"add", "average", "dot", "maximum", "minimum", "multiply", "subtract"}
PLUMBING = _ARITHMETIC | {"concatenate", "crop", "identity", "masking", "permute", "repeat", "reshape"}
# Settings that are read for the sake of others: of padding and cropping.
_OF_WINDOWS = {"ceil_mode", "data_format", "output_padding"}
_WITHOUT_VALUE = {"first", "last", "mask_zero", "return_sequences", "equation"}
READ_WITH_OTHERS = _OF_WINDOWS | _WITHOUT_VALUE
