"""Experiments on the settings that a user's code gives torch's functions: one called with another value, wherever a line calls it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from parity.common.external.process.code_lines import code_line

Settings = dict[str, Any]
# By way what a function has now, what it has then, and what makes its result so.
Ways = dict[str, tuple[str, str, Callable[[], Any]]]
# By function: what it takes behind its first argument, in its order.
_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "interpolate": ("size", "scale_factor", "mode", "align_corners", "recompute_scale_factor", "antialias"),
    "grid_sample": ("grid", "mode", "padding_mode", "align_corners"),
    "affine_grid": ("size", "align_corners"),
    "pad": ("pad", "mode", "value"),
    "normalize": ("p", "dim", "eps"),
    "local_response_norm": ("size", "alpha", "beta", "k"),
    "gelu": ("approximate",),
    "glu": ("dim",),
    "embedding_bag": (
        *("weight", "offsets", "max_norm", "norm_type", "scale_grad_by_freq", "mode", "sparse"),
        *("per_sample_weights", "include_last_offset", "padding_idx"),
    ),
    "stft": (
        *("n_fft", "hop_length", "win_length", "window", "center", "pad_mode", "normalized", "onesided"),
        "return_complex",
    ),
    "quantile": ("q", "dim", "keepdim"),
    "pairwise_distance": ("x2", "p", "eps", "keepdim"),
    "cdist": ("x2", "p"),
    "triplet_margin_loss": ("positive", "negative", "margin", "p", "eps", "swap"),
    "kl_div": ("target", "size_average", "reduce", "reduction", "log_target"),
    "poisson_nll_loss": ("target", "log_input", "full"),
    "gaussian_nll_loss": ("target", "var", "full", "eps"),
    "ctc_loss": ("targets", "input_lengths", "target_lengths", "blank", "reduction", "zero_infinity"),
    **{
        f"avg_pool{rank}d": ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")
        for rank in (1, 2, 3)
    },
    **{f"lp_pool{rank}d": ("norm_type", "kernel_size", "stride", "ceil_mode") for rank in (1, 2)},
    **dict.fromkeys(("softmax", "log_softmax", "softmin", "cumsum", "cumprod", "logcumsumexp"), ("dim",)),
    "flip": ("dims",),
    "roll": ("shifts", "dims"),
    **dict.fromkeys(("var", "std", "var_mean", "std_mean"), ("dim", "unbiased")),
    "norm": ("p", "dim"),
    "linalg_vector_norm": ("ord", "dim"),
    **dict.fromkeys(("bucketize", "searchsorted"), ("boundaries",)),
    **{f"fft_{name}": ("n", "dim", "norm") for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")},
    **{
        f"fft_{name}": ("s", "dim", "norm")
        for name in ("fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn")
    },
    **dict.fromkeys(("sort", "argsort"), ("dim", "descending")),
    "topk": ("k", "dim", "largest"),
    "cross_entropy": ("target", "weight", "size_average", "ignore_index", "reduce", "reduction"),
    "nll_loss": ("target", "weight", "size_average", "ignore_index", "reduce", "reduction"),
    "binary_cross_entropy_with_logits": (
        *("target", "weight", "size_average", "reduce", "reduction", "pos_weight"),
    ),
    "smooth_l1_loss": ("target", "size_average", "reduce", "reduction", "beta"),
    "huber_loss": ("target", "reduction", "delta"),
}
# Settings that are on or off, with what they are by default.
_SWITCHES = {
    "antialias": False,
    "ceil_mode": False,
    "count_include_pad": True,
    "center": True,
    "normalized": False,
    "scale_grad_by_freq": False,
    "swap": False,
    "log_target": False,
    "log_input": True,
    "full": False,
    "zero_infinity": False,
    "unbiased": True,
    "right": False,
    "descending": False,
    "largest": True,
}
_MODES = {
    "grid_sample": {
        "mode": ("bilinear", "nearest", "bicubic"),
        "padding_mode": ("zeros", "border", "reflection"),
    },
    "pad": {"mode": ("constant", "reflect", "replicate", "circular")},
    "stft": {"pad_mode": ("reflect", "constant", "replicate")},
    "gelu": {"approximate": ("none", "tanh")},
    "embedding_bag": {"mode": ("mean", "sum", "max"), "padding_idx": (None, 0)},
    "quantile": {"interpolation": ("linear", "lower", "higher", "midpoint", "nearest")},
    "kl_div": {"reduction": ("mean", "batchmean", "sum")},
    "ctc_loss": {"reduction": ("mean", "sum")},
    "triplet_margin_loss": {"p": (2.0, 1.0)},
    "pairwise_distance": {"p": (2.0, 1.0), "eps": (1e-6, 0.0)},
    "cdist": {"p": (2.0, 1.0)},
    "normalize": {"p": (2.0, 1.0)},
    "norm": {"p": (2, 1)},
    "linalg_vector_norm": {"ord": (2, 1)},
}


class _Functions(TorchFunctionMode):
    """Has functions that some lines call do so in another way, and knows the ways of all.

    found: by function and line, 'interpolate model.py:12', by way what the function has, and what it has in this way.
    """

    def __init__(self, wanted: Mapping[str, str], lists: bool) -> None:
        """wanted: by function and line, the way. lists: whether `found` is filled."""
        super().__init__()
        self._wanted, self._lists = wanted, lists
        self.found: dict[str, dict[str, tuple[str, str]]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        if name not in _ARGUMENTS:
            return func(*args, **kwargs)
        key = f"{name} {code_line()}"
        wanted, lists = self._wanted.get(key), self._lists and key not in self.found
        if wanted is None and not lists:
            return func(*args, **kwargs)
        ways = _ways(func, name, args, kwargs)
        if lists:
            self.found[key] = {way: (has, due) for way, (has, due, _) in ways.items()}
        return ways[wanted][2]() if wanted in ways else func(*args, **kwargs)


@contextmanager
def altered(wanted: Mapping[str, str], lists: bool) -> Iterator[_Functions]:
    """Have functions go another way in a pass; see `_Functions`."""
    with _Functions(wanted, lists) as functions:
        yield functions


def _ways(func: Callable[..., Any], name: str, args: Any, kwargs: Settings) -> Ways:
    given = _given(name, args, kwargs)
    ways: Ways = {}
    for other in (*_SPECIAL.get(name, lambda *_: ())(args[0], given), *_usual(name, args, given)):
        now = {setting: given.get(setting, _default(name, setting)) for setting in other}
        changed = {setting: value for setting, value in other.items() if now[setting] != value}
        if changed:
            other_args, other_kwargs = _with(name, args, kwargs, other)
            due = f"{name}({_said(changed)})"
            ways[due] = (
                _said({setting: now[setting] for setting in changed}),
                due,
                partial(func, *other_args, **other_kwargs),
            )
    return ways | _OTHERWISE.get(name, lambda *_: {})(func, args, kwargs, given)


def _said(settings: Settings) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in settings.items())


def _names(name: str, args: Any) -> tuple[str, ...]:
    # x.var(False) names no axis.
    first_is_switch = (
        name in ("var", "std", "var_mean", "std_mean") and len(args) > 1 and isinstance(args[1], bool)
    )
    return _ARGUMENTS[name][first_is_switch:]


def _given(name: str, args: Any, kwargs: Settings) -> Settings:
    return {**dict(zip(_names(name, args), args[1:], strict=False)), **kwargs}


def _with(name: str, args: Any, kwargs: Settings, other: Settings) -> tuple[tuple[Any, ...], Settings]:
    """Arguments with other values of some."""
    args, kwargs, names = list(args), dict(kwargs), _names(name, args)
    for setting, value in other.items():
        place = names.index(setting) + 1 if setting in names else len(args)
        if place < len(args):
            args[place] = value
        else:
            kwargs[setting] = value
    return tuple(args), kwargs


def _default(name: str, setting: str) -> Any:
    modes = _MODES.get(name, {}).get(setting)
    return modes[0] if modes else _SWITCHES.get(setting)


def _usual(name: str, args: Any, given: Settings) -> Iterator[Settings]:
    names = {*_names(name, args), *given}
    names |= {"right"} if name in ("bucketize", "searchsorted") else set()
    if "correction" in given:
        names -= {"unbiased"}
        yield {"correction": 1 - int(given["correction"])}
    for setting in sorted(names & _SWITCHES.keys()):
        yield {setting: not given.get(setting, _SWITCHES[setting])}
    for setting, values in _MODES.get(name, {}).items():
        yield from ({setting: value} for value in values)
    dim = given.get("dim", given.get("dims"))
    if isinstance(dim, int) and hasattr(args[0], "dim"):
        setting = "dim" if "dim" in given else "dims"
        axes = range(args[0].dim())
        yield from ({setting: axis} for axis in axes if axis != dim % len(axes))


def _interpolated(x: Any, given: Settings) -> Iterator[Settings]:
    mode = given.get("mode", "nearest")
    smooth = ("linear", "bilinear", "bicubic", "trilinear")
    if mode in smooth:
        yield {"align_corners": not given.get("align_corners")}
    modes = (
        "nearest",
        "nearest-exact",
        "area",
        *{3: ("linear",), 4: ("bilinear", "bicubic"), 5: ("trilinear",)}[x.dim()],
    )
    for other in modes:
        for corners in (False, True) if other in smooth else (None,):
            if other != mode:
                yield {"mode": other, "align_corners": corners}


def _normalized_by_neighbours(x: Any, given: Settings) -> Iterator[Settings]:
    """TensorFlow's has a radius for the size, and its alpha is not divided by the size."""
    size, alpha = given["size"], given.get("alpha", 1e-4)
    for other in dict.fromkeys((size, 2 * size + 1, 2 * size - 1, size // 2)):
        for factor in (1, other, 1 / max(size, 1), size):
            yield {"size": other, "alpha": alpha * factor}
    yield from ({"k": k} for k in (0.0, 1.0, 2.0))


def _rolled(x: Any, given: Settings) -> Iterator[Settings]:
    shifts = given["shifts"]
    yield {"shifts": [-each for each in shifts] if isinstance(shifts, list | tuple) else -shifts}


def _transformed(x: Any, given: Settings) -> Iterator[Settings]:
    yield from ({"norm": norm} for norm in ("backward", "ortho", "forward"))


_SPECIAL: dict[str, Callable[[Any, Settings], Iterator[Settings]]] = {
    "interpolate": _interpolated,
    "grid_sample": lambda x, given: iter([{"align_corners": not given.get("align_corners")}]),
    "affine_grid": lambda x, given: iter([{"align_corners": not given.get("align_corners")}]),
    "local_response_norm": _normalized_by_neighbours,
    "roll": _rolled,
    "ctc_loss": lambda x, given: iter([{"blank": blank} for blank in (0, x.shape[-1] - 1)]),
    **{name: _transformed for name in _ARGUMENTS if name.startswith("fft_")},
}


def _averaged_over_all(func: Callable[..., Any], args: Any, kwargs: Settings, given: Settings) -> Ways:
    """A mean over all elements, where torch's is divided by the sum of the weights, or by the count of targets that are not ignored."""
    ignored = bool((given["target"] == given.get("ignore_index", -100)).any())
    if given.get("reduction", "mean") != "mean" or (given.get("weight") is None and not ignored):
        return {}
    by = "the sum of the weights" if given.get("weight") is not None else "how many targets are not ignored"
    apart = partial(func, *args, **{**kwargs, "reduction": "none"})
    has = f"a mean that is divided by {by}"
    ways: Ways = {"mean of all": (has, "reduction='none', then mean()", lambda: apart().mean())}
    if ignored and given.get("weight") is not None:
        count = int((given["target"] != given.get("ignore_index", -100)).sum())
        due = "reduction='sum', divided by how many targets are not ignored"
        ways["mean of those"] = has, due, lambda: apart().sum() / count
    return ways


def _weighted(func: Callable[..., Any], args: Any, kwargs: Settings, given: Settings) -> Ways:
    """Numbers that weigh what is positive as weights of all, and the other way round."""
    pairs = (("pos_weight", "weight"), ("weight", "pos_weight"))
    have = [(one, other) for one, other in pairs if given.get(one) is not None and given.get(other) is None]
    if len(have) != 1:
        return {}
    ((one, other),) = have
    rest = {name: value for name, value in given.items() if name not in (one, other)}
    made = partial(func, args[0], **rest, **{other: given[one]})
    return {other: (f"these numbers as {one}", f"them as {other}", made)}


def _huber(func: Callable[..., Any], args: Any, kwargs: Settings, given: Settings) -> Ways:
    beta, reduction = given.get("beta", 1.0), given.get("reduction", "mean")
    made = partial(F.huber_loss, args[0], given["target"], reduction=reduction, delta=beta)
    return (
        {}
        if beta == 1
        else {"huber": (f"beta={beta}, by which it is divided", f"huber_loss(delta={beta})", made)}
    )


def _smooth_l1(func: Callable[..., Any], args: Any, kwargs: Settings, given: Settings) -> Ways:
    delta, reduction = given.get("delta", 1.0), given.get("reduction", "mean")
    made = partial(F.smooth_l1_loss, args[0], given["target"], reduction=reduction, beta=delta)
    return {} if delta == 1 else {"smooth": (f"delta={delta}", f"smooth_l1_loss(beta={delta})", made)}


def _squared(func: Callable[..., Any], args: Any, kwargs: Settings, given: Settings) -> Ways:
    return {"squared": ("a root", "its square", lambda: func(*args, **kwargs).square())}


_OTHERWISE: dict[str, Callable[..., Ways]] = {
    **dict.fromkeys(("cross_entropy", "nll_loss"), _averaged_over_all),
    "binary_cross_entropy_with_logits": _weighted,
    "smooth_l1_loss": _huber,
    "huber_loss": _smooth_l1,
    **dict.fromkeys(("norm", "linalg_vector_norm", "pairwise_distance", "cdist"), _squared),
}
