"""Settings that a call of one of torch's functions or modules could have: another value, one that is given beside those that are, another name."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from parity.torch_impl.external.experiments.syntax import (
    argument,
    called,
    changed,
    code,
    number,
    renamed,
    value_of,
)

_ON_OFF = (True, False)
_POOLED = (
    "avg_pool1d avg_pool2d avg_pool3d AvgPool1d AvgPool2d AvgPool3d max_pool1d max_pool2d MaxPool1d MaxPool2d"
)
_FOURIER = "fft ifft rfft irfft fft2 ifft2 rfft2 irfft2 fftn ifftn rfftn irfftn"
# By the names of functions and modules the values of each setting.
_TABLE: dict[str, dict[str, tuple[Any, ...]]] = {
    "interpolate Upsample": {
        "align_corners": _ON_OFF,
        "antialias": _ON_OFF,
        "recompute_scale_factor": _ON_OFF,
    },
    "grid_sample": {
        "mode": ("bilinear", "nearest", "bicubic"),
        "padding_mode": ("zeros", "border", "reflection"),
        "align_corners": _ON_OFF,
    },
    "affine_grid": {"align_corners": _ON_OFF},
    "pad": {"mode": ("constant", "reflect", "replicate", "circular")},
    "Conv1d Conv2d Conv3d": {"padding_mode": ("zeros", "reflect", "replicate", "circular")},
    "norm pairwise_distance cdist PairwiseDistance": {"p": (1, 2)},
    "vector_norm": {"ord": (1, 2)},
    "gelu GELU": {"approximate": ("none", "tanh")},
    "embedding_bag EmbeddingBag": {
        "mode": ("mean", "sum", "max"),
        "padding_idx": (0,),
        "scale_grad_by_freq": _ON_OFF,
    },
    "stft": {"center": _ON_OFF, "normalized": _ON_OFF, "pad_mode": ("reflect", "constant", "replicate")},
    "quantile nanquantile": {"interpolation": ("linear", "lower", "higher", "midpoint", "nearest")},
    "kl_div KLDivLoss": {"reduction": ("mean", "batchmean", "sum"), "log_target": _ON_OFF},
    "triplet_margin_loss TripletMarginLoss": {"swap": _ON_OFF, "p": (1, 2)},
    "poisson_nll_loss PoissonNLLLoss": {"log_input": _ON_OFF, "full": _ON_OFF},
    "gaussian_nll_loss GaussianNLLLoss": {"full": _ON_OFF},
    "ctc_loss CTCLoss": {"reduction": ("mean", "sum"), "zero_infinity": _ON_OFF, "blank": (0,)},
    _POOLED: {"ceil_mode": _ON_OFF, "count_include_pad": _ON_OFF},
    _FOURIER: {"norm": ("backward", "ortho", "forward")},
    "std var std_mean var_mean": {"unbiased": _ON_OFF, "correction": (0, 1)},
    "triu_indices tril_indices": {"offset": (1, -1)},
    "triu tril": {"diagonal": (1, -1, 0)},
    "normalize": {"dim": (0, 1, -1), "p": (1, 2)},
    "cosine_similarity glu": {"dim": (0, 1, -1)},
    "bucketize searchsorted": {"right": _ON_OFF},
    "scatter_reduce scatter_reduce_ index_reduce index_reduce_": {"include_self": _ON_OFF},
    "hann_window hamming_window blackman_window bartlett_window kaiser_window": {"periodic": _ON_OFF},
    "meshgrid": {"indexing": ("ij", "xy")},
    "solve_triangular": {"upper": _ON_OFF, "left": _ON_OFF, "unitriangular": _ON_OFF},
    "cholesky": {"upper": _ON_OFF},
    "cov": {"correction": (0, 1)},
    "cross_entropy CrossEntropyLoss nll_loss NLLLoss": {
        "reduction": ("mean", "sum"),
        "ignore_index": (0, -1),
    },
    "huber_loss HuberLoss": {"delta": (1.0,)},
    "smooth_l1_loss SmoothL1Loss": {"beta": (1.0,)},
    "sort argsort": {"descending": _ON_OFF},
    "topk": {"largest": _ON_OFF},
    "MultiheadAttention LSTM GRU RNN": {"batch_first": _ON_OFF},
}
_SETTINGS = {name: settings for names, settings in _TABLE.items() for name in names.split()}
# By the names of functions and modules the setting that is a number of a formula.
_NUMBERS = {
    "huber_loss HuberLoss": "delta",
    "smooth_l1_loss SmoothL1Loss softplus Softplus": "beta",
    "leaky_relu LeakyReLU": "negative_slope",
    "elu ELU celu": "alpha",
    "layer_norm group_norm batch_norm instance_norm rms_norm normalize cosine_similarity logit": "eps",
    "cross_entropy CrossEntropyLoss": "label_smoothing",
    "triplet_margin_loss TripletMarginLoss margin_ranking_loss MarginRankingLoss cosine_embedding_loss": "margin",
    "gumbel_softmax": "tau",
    "clamp": "min",
}
_NUMBER_OF = {name: setting for names, setting in _NUMBERS.items() for name in names.split()}
_MODES = ("nearest", "nearest-exact", "area", "linear", "bilinear", "bicubic", "trilinear")
# Names of settings that are taken for one another.
_OTHER_NAMES = {"weight": "pos_weight", "pos_weight": "weight", "beta": "delta", "delta": "beta"}
_OTHER_LOSSES = {
    "smooth_l1_loss": "huber_loss",
    "huber_loss": "smooth_l1_loss",
    "SmoothL1Loss": "HuberLoss",
    "HuberLoss": "SmoothL1Loss",
}


def other_settings(node: ast.Call) -> Iterator[ast.expr]:
    """Yield a call with other settings than it has."""
    name = called(node)
    for setting, values in _SETTINGS.get(name, {}).items():
        others = (each for each in values if each != value_of(argument(node, setting)))
        yield from (_with(node, {setting: ast.Constant(value)}) for value in others)
    if name in ("interpolate", "Upsample"):
        for mode, corners in itertools.product(_MODES, (None, True, False)):
            yield _with(node, {"mode": ast.Constant(mode), "align_corners": ast.Constant(corners)})
    if name in ("ctc_loss", "CTCLoss") and node.args:
        yield _with(node, {"blank": code("V.shape[-1] - 1", V=node.args[0])})
    if name in ("local_response_norm", "LocalResponseNorm"):
        yield from _by_neighbours(node, name)
    for place, each in enumerate(node.keywords):
        if other := _OTHER_NAMES.get(each.arg or ""):
            by = renamed(node, _OTHER_LOSSES[name]) if name in _OTHER_LOSSES else node
            keywords = [*node.keywords[:place], changed(each, arg=other), *node.keywords[place + 1 :]]
            yield changed(by, keywords=keywords)
    if name in ("norm", "vector_norm", "pairwise_distance", "cdist"):
        yield code("V.square()", V=node)


def with_numbers(node: ast.expr, numbers: Sequence[float]) -> Iterator[ast.expr]:
    """A call with one of some numbers as a setting that it leaves at its default."""
    setting = _NUMBER_OF.get(called(node))
    if isinstance(node, ast.Call) and setting is not None and argument(node, setting) is None:
        yield from (_with(node, {setting: number(each)}) for each in numbers)


def _with(node: ast.Call, settings: Mapping[str, ast.expr]) -> ast.Call:
    kept = [each for each in node.keywords if each.arg not in settings]
    return changed(node, keywords=[*kept, *(ast.keyword(name, value) for name, value in settings.items())])  # type: ignore[no-any-return]


def _by_neighbours(node: ast.Call, name: str) -> Iterator[ast.expr]:
    """TensorFlow's has a radius for the size, and its alpha is not divided by the size."""
    place = int(name.islower())
    given = dict(zip(("size", "alpha", "beta", "k"), node.args[place:], strict=False))
    given |= {each.arg: each.value for each in node.keywords if each.arg}
    size, alpha = value_of(given.get("size")), value_of(given.get("alpha", ast.Constant(1e-4)))
    if not isinstance(size, int) or not isinstance(alpha, float):
        return
    bare = changed(node, args=node.args[:place])
    for other in dict.fromkeys((size, 2 * size + 1, 2 * size - 1, size // 2)):
        for factor in (1, other, 1 / max(size, 1), size):
            yield _with(bare, given | {"size": number(other), "alpha": number(alpha * factor)})
    yield from (_with(bare, given | {"k": number(k)}) for k in (0.0, 1.0, 2.0))
