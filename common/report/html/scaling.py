"""What the scaling part of a page and the terminal say alike: figures in words, and tables whose columns vary."""

from __future__ import annotations

import math
from typing import Any

from parity.common.base.units import show_size
from parity.common.scaling.result import Cause, Interval, ProjectedPoint, Projection, Ratio, Scaling

NONE = "–"
UNCHECKED = "no measured point was left to check the model on; measure more numbers of replicas"
_SEEN = 0.005  # smaller shares of a step would be shown as 0 %
# Of the projected numbers of devices, the powers of four are enough for a table.
_SHOWN = frozenset(4**power for power in range(16))

# Titles of columns, those of numbers beginning with #, and rows.
Table = tuple[list[str], list[list[str]]]


def words(scaling: Scaling) -> dict[str, Any]:
    """Return what the scaling part of the template says beside `scaling` itself, unescaped, and its functions."""
    ratios = (*scaling.speedups, *scaling.between)
    causes = (cause for loss in scaling.losses for cause in loss.causes)
    return {
        "decisions": [
            f"{titled(r.name, r.mode)}: {r.advice}"
            for r in ratios
            if r.conclusion != "conclusive" and r.advice
        ],
        "messages": _messages(scaling),
        "losses": _losses(scaling),
        "how": list(dict.fromkeys(f"{cause.name}: {cause.how}" for cause in causes if cause.how)),
        "laws": _laws(scaling),
        "not_fitted": _not_fitted(scaling),
        "most_devices": max(
            (p.devices for q in filter(is_checked, scaling.projections) for p in q.points), default=0
        ),
        "memory": _memory(scaling),
        "dash": NONE,
        "unchecked": UNCHECKED,
        **{
            function.__name__: function
            for function in (
                titled,
                number,
                interval,
                milliseconds,
                usual,
                error_words,
                points_shown,
                is_checked,
            )
        },
    }


def titled(label: str, mode: str) -> str:
    """A label, which is the same in strong and weak scaling, with what tells the two apart."""
    return f"{label}, weak" if mode == "weak" else label


def number(value: float, form: str) -> str:
    """A number, or that it is not known."""
    return format(value, form) if math.isfinite(value) else "not known"


def interval(figure: Interval | Ratio, form: str, unit: str = "") -> str:
    """'1.80x [1.70, 1.90]'."""
    if not math.isfinite(figure.median):
        return "not known"
    text = f"{format(figure.median, form)}{unit}"
    if not math.isfinite(figure.low) or not math.isfinite(figure.high):
        return text
    return f"{text} [{format(figure.low, form)}, {format(figure.high, form)}]"


def milliseconds(seconds: float) -> str:
    """Seconds as milliseconds with three digits."""
    if not math.isfinite(seconds):
        return "not known"
    value = 1e3 * seconds
    return f"{value:,.{0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2}f}"


def usual(expected: tuple[float, float] | None) -> str:
    """What is usually reached, as '1.8x' or '6x to 7x'."""
    if expected is None:
        return NONE
    low, high = expected
    return f"{low:g}x" + (f" to {high:g}x" if high > low else "")


def _messages(scaling: Scaling) -> list[str]:
    """What one replica sends in a step, and in which configurations it does."""
    senders: dict[str, list[str]] = {}
    for c in scaling.configurations:
        if c.phases is not None and c.phases.message_bytes:
            sent = "; ".join(
                f"{c.phases.messages.get(name, 0)} {name}, {show_size(size)} together"
                for name, size in c.phases.message_bytes.items()
            )
            senders.setdefault(sent, []).append(titled(c.label, c.mode))
    return [f"{sent} ({'; '.join(labels)})" for sent, labels in senders.items()]


def _losses(scaling: Scaling) -> Table:
    """A row a configuration, a column a cause."""
    # A cause of nothing anywhere needs no column.
    seen = (c for loss in scaling.losses for c in loss.causes if abs(c.share_of_step) >= _SEEN)
    names = sorted(dict.fromkeys(cause.name for cause in seen), key=lambda name: name == "unexplained")
    rows = []
    for loss in scaling.losses:
        parts = {cause.name: cause for cause in loss.causes}
        seconds = (loss.step_seconds, loss.ideal_seconds, loss.lost_seconds)
        shares = [_part(parts.get(name), loss.lost_seconds) for name in names]
        rows.append([titled(loss.label, loss.mode), *map(milliseconds, seconds), *shares])
    return ["ms of a step", "#Taken", "#Ideal", "#Lost", *(f"#{name.capitalize()}" for name in names)], rows


def _part(cause: Cause | None, lost: float) -> str:
    if cause is None:
        return NONE
    # Of nothing lost, or of a gain, there are no shares.
    shown = lost > 0 and math.isfinite(cause.share_of_loss) and abs(cause.share_of_loss) >= _SEEN
    return milliseconds(cause.seconds) + (f" ({cause.share_of_loss:.0%})" if shown else "")


def _laws(scaling: Scaling) -> Table:
    rows = []
    for fit in scaling.laws:
        if fit.why_not:
            continue
        parameters = "\n".join(f"{name} {interval(p, '.3g')}" for name, p in fit.parameters.items())
        residuals = "\n".join(
            f"{r.replicas}: {number(r.measured, '.2f')}x, fitted {number(r.fitted, '.2f')}x"
            for r in fit.residuals
        )
        limit = "none" if math.isinf(fit.limit) else number(fit.limit, ".3g") + "x"
        strategy = titled(f"{fit.framework} {fit.strategy}", fit.mode)
        rows.append([strategy, fit.law, parameters, residuals, number(fit.rms, ".1%"), limit])
    titles = ["Strategy", "Law", "Parameters, 95 % interval", "Measured and fitted", "#Error, rms"]
    return [*titles, "#Largest speedup"], rows


def _not_fitted(scaling: Scaling) -> list[str]:
    """Why laws were not fitted, each reason once, with whose they are."""
    whose: dict[str, list[str]] = {}
    for fit in scaling.laws:
        if fit.why_not:
            strategy = titled(f"{fit.framework} {fit.strategy}", fit.mode)
            whose.setdefault(fit.why_not, []).append(strategy)
    return [f"{reason} ({'; '.join(strategies)})" for reason, strategies in whose.items()]


def points_shown(projection: Projection) -> list[ProjectedPoint]:
    """Return the points of a projection that a table shows: some, and the last of each mode."""
    last = {point.mode: point for point in projection.points}
    return [p for p in projection.points if p.devices in _SHOWN or p is last[p.mode]]


def is_checked(projection: Projection) -> bool:
    """Whether there is a projection, and a measured point that it took nothing from: else nobody can believe it."""
    return not projection.why_not and math.isfinite(projection.error)


def error_words(projection: Projection) -> str:
    """How far off the model was where it was measured, in a sentence."""
    return f"On measured points that it took nothing from, the model was off by up to {projection.error:.0%}."


def _memory(scaling: Scaling) -> Table:
    held = [c for c in scaling.configurations if c.memory_bytes]
    kinds = list(dict.fromkeys(kind for c in held for kind in c.memory_bytes))
    sizes = [{kind: show_size(size) for kind, size in c.memory_bytes.items()} for c in held]
    rows = [
        [titled(c.label, c.mode), *(shown.get(kind, NONE) for kind in kinds)]
        for c, shown in zip(held, sizes, strict=True)
    ]
    return ["Memory of one replica", *(f"#{kind.replace('_', ' ').capitalize()}" for kind in kinds)], rows
