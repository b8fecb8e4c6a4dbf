"""What the changes of a live layer share in both frameworks."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Mapping
from typing import Any

from parity.common.base.errors import ExternalModelError
from parity.common.execution.processes.user_errors import blame
from parity.common.external.process.calling import closest

Read = Callable[[Any], Mapping[str, Any]]
Write = Callable[[Any, str, Any], None]


def change_all(
    layers: Mapping[str, Any], path: str, setting: str, value: Any, read: Read, write: Write
) -> Any:
    """Set a canonical setting of a layer, or of all that a pattern fits and that have it; see `lint/settings.py`.

    A change is read again: one that has not come to be is undone and refused.

    Args:
        layers: by path.
        path: one of them, or a pattern such as '*' or 'blocks.*'.
        setting: canonical name.
        value: in the canonical meaning, as an outline has it.
        read: gives the canonical settings of a layer.
        write: changes one; raises KeyError for one that it cannot change.

    Returns:
        The old value; of a pattern, the old values by path.

    Raises:
        ExternalModelError: no such layer or setting, or one that cannot be changed on a built model.
    """
    value = tuple(value) if isinstance(value, list) else value
    if "*" not in path:
        if path not in layers:
            raise ExternalModelError(f"the model has no layer {path!r}{closest(path, layers)}")
        return _change(path, layers[path], setting, value, read, write)
    having = {
        name: layer
        for name, layer in layers.items()
        if fnmatch.fnmatchcase(name, path) and setting in read(layer)
    }
    if not having:
        raise ExternalModelError(f"no layer that {path!r} fits has the setting {setting!r}")
    old: dict[str, Any] = {}
    try:
        for name, layer in having.items():
            old[name] = _change(name, layer, setting, value, read, write)
    except ExternalModelError:
        for name, was in old.items():
            write(layers[name], setting, was)
        raise
    return old


# Settings that a forward function of ours puts into effect: in the layer's own dictionary, setting -> value.
FORCED = "_parity_forced"


def force(method: str, layer: Any, setting: str, value: Any, make: Callable[[Any], Any] | None) -> None:
    """Replace the forward method of one layer.

    Args:
        method: its name, "call" or "forward".
        layer, setting, value: what has which value from now on.
        make: makes the replacement from the method of the layer's class; None restores that method.

    Raises:
        ExternalModelError: another setting of this layer has replaced it already.
    """
    own = vars(layer)
    forced: dict[str, Any] = own.get(FORCED, {})
    # Not by the frameworks' own setattr, which tracks what it is given.
    object.__setattr__(layer, FORCED, forced)
    if make is None:
        forced.pop(setting, None)
        own.pop(method, None)
        return
    if set(forced) - {setting}:
        raise ExternalModelError(
            f"{', '.join(forced)} of this layer has been changed already; change that back first"
        )
    object.__setattr__(layer, method, make(getattr(type(layer), method).__get__(layer)))
    forced[setting] = value


def set_attribute(
    layer: Any, setting: str, value: Any, attributes: Mapping[str, tuple[str, Callable[[Any], Any]]]
) -> None:
    """Set the attribute that holds a setting.

    Args:
        attributes: canonical setting -> attribute, and its value of the canonical one.

    Raises:
        KeyError: the layer has no such attribute.
    """
    attribute, native = attributes[setting]
    if not hasattr(layer, attribute):
        raise KeyError(setting)
    setattr(layer, attribute, native(value))


def _change(path: str, layer: Any, setting: str, value: Any, read: Read, write: Write) -> Any:
    had = read(layer)
    if setting not in had:
        raise ExternalModelError(
            f"{path} ({_class(layer)}) has no setting {setting!r}"
            + (f"; it has {', '.join(had)}" if had else "; it is of no kind that has any")
        )
    old = had[setting]
    try:
        write(layer, setting, value)
    except KeyError:
        raise ExternalModelError(
            f"{path} ({_class(layer)}): {setting} cannot be changed to {value!r} on a built model"
        ) from None
    except (TypeError, ValueError, AttributeError) as error:
        raise blame(error, f"{path}: {setting}={value!r}") from None
    found = read(layer).get(setting)
    if not _equal(found, value):
        write(layer, setting, old)
        raise ExternalModelError(
            f"{path} ({_class(layer)}): {setting} stays {found!r}, whatever it is set to"
        )
    return old


def _class(layer: Any) -> str:
    return type(layer).__name__.lstrip("_")


def _equal(found: Any, value: Any) -> bool:
    if isinstance(found, float) and isinstance(value, int | float):
        return math.isclose(found, value, rel_tol=1e-14)
    return bool(found == value)


def numbers(value: Any, rank: int) -> tuple[int, ...]:
    """A setting of each axis, of one number for all or of as many."""
    return tuple(value) if isinstance(value, tuple | list) else (value,) * rank


def sides(
    padding: Any,
    sizes: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilation: tuple[int, ...],
) -> list[tuple[int, int]]:
    """How much is padded before and behind each axis.

    Args:
        padding: 'valid'; 'causal'; 'same' as Keras means it (row 33); or (before, behind) of all axes in one tuple.
        sizes: of the input's axes; kernel, strides and dilation by axis too.

    Raises:
        KeyError: another padding.
    """
    if padding == "valid":
        return [(0, 0)] * len(sizes)
    if padding == "causal":
        return [((window - 1) * step, 0) for window, step in zip(kernel, dilation, strict=True)]
    if padding == "same":
        found = []
        for size, window, stride, step in zip(sizes, kernel, strides, dilation, strict=True):
            total = max(0, (-(-size // stride) - 1) * stride + (window - 1) * step + 1 - size)
            found.append((total // 2, total - total // 2))
        return found
    if not isinstance(padding, tuple) or len(padding) != 2 * len(sizes):
        raise KeyError(padding)
    return list(zip(padding[::2], padding[1::2], strict=True))


# What layers call the share that they drop, and a noise's deviation.
_RATES = (
    "p",
    "rate",
    "dropout",
    "_dropout",
    "recurrent_dropout",
    "stddev",
    "drop_prob",
    "drop_path",
    "drop_rate",
    "dropout_p",
    "dropout_prob",
    "dropout_rate",
    "attention_dropout",
    "hidden_dropout",
    "activation_dropout",
)
_KEPT = "_parity_rates"


def switch_rates(layers: Mapping[str, Any], on: bool) -> list[str]:
    """Set all rates at which layers drop to 0, or back; gives the paths of the layers that this changes."""
    changed = []
    for path, layer in layers.items():
        kept: dict[str, float] = vars(layer).get(_KEPT, {})
        for name in _RATES:
            value = vars(layer).get(name)
            if on and name in kept:
                object.__setattr__(layer, name, kept[name])
            elif not on and isinstance(value, float) and 0 < value <= 1:
                object.__setattr__(layer, _KEPT, kept)
                kept[name] = value
                object.__setattr__(layer, name, 0.0)
            else:
                continue
            changed.append(path)
        if on:
            kept.clear()
    return list(dict.fromkeys(changed))
