"""The scaling analysis in words and tables, for the page. Nothing here is escaped: the template escapes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from parity.common.base.units import show_size
from parity.common.scaling.result import (
    Cause,
    Configuration,
    Interval,
    PhaseTimes,
    Projection,
    Ratio,
    Scaling,
)

_NONE = "–"
_SEEN = 0.005  # smaller shares of a step would be shown as 0 %
# Of the projected numbers of devices, the powers of four are enough for a table.
_TOLD = frozenset(4**power for power in range(16))


@dataclass(frozen=True)
class Cell:
    """A cell of a table; `tone` is a class of the page where it is a verdict."""

    text: str
    tone: str = ""


@dataclass(frozen=True)
class Table:
    """Columns as (title, whether it holds numbers), rows of cells; the first cell names the row."""

    columns: tuple[tuple[str, bool], ...]
    rows: tuple[tuple[Cell, ...], ...]


def words(scaling: Scaling) -> dict[str, Any]:
    """Everything that the scaling parts of the template say."""
    return {
        "notes": scaling.notes,
        "speeds": _speeds(scaling),
        "efficiencies": _efficiencies(scaling),
        "decisions": _decisions(scaling),
        "between": _between(scaling),
        "phases": _phases(scaling),
        "messages": _messages(scaling),
        "losses": _losses(scaling),
        "sentences": [loss.sentence for loss in scaling.losses],
        "how": _how(scaling),
        "laws": _laws(scaling),
        "not_fitted": _not_fitted(scaling),
        "projections": [_projection(p) for p in scaling.projections],
        "most_devices": max((p.devices for q in scaling.projections for p in q.points), default=0),
        "targets": _targets(scaling),
        "memory": _memory(scaling),
        "intervals": "in brackets the 95 % bootstrap interval over the rounds",
    }


def _table(columns: str, rows: Iterable[Sequence[str | Cell]]) -> Table:
    """A table; in `columns`, parted by |, the title of one that holds numbers begins with #."""
    titles = [title.strip() for title in columns.split("|")]
    cells = (tuple(c if isinstance(c, Cell) else Cell(c) for c in row) for row in rows)
    return Table(tuple((title.lstrip("#"), title.startswith("#")) for title in titles), tuple(cells))


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
    decimals = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{decimals}f}"


def usual(expected: tuple[float, float] | None) -> str:
    """What is usually reached, as '1.8x' or '6x to 7x'."""
    if expected is None:
        return _NONE
    low, high = expected
    return f"{low:g}x" + (f" to {high:g}x" if high > low else "")


def _speeds(scaling: Scaling) -> Table:
    units = {c.unit for c in scaling.configurations}
    each = units.pop() if len(units) == 1 else "core or device"
    return _table(
        f"Configuration|#Global batch|#Samples/s|#Per {each}|#Step, ms|#Steps timed|#Left out",
        (
            (
                titled(c.label, c.mode),
                f"{c.global_batch:,}",
                interval(c.samples_per_second, ",.0f"),
                number(c.per_unit.median, ",.0f"),
                milliseconds(c.step_seconds.median),
                f"{c.timed_steps:,}",
                f"{c.warm_up_steps} a run" + ("" if c.settled else ", not settled"),
            )
            for c in scaling.configurations
        ),
    )


def _efficiencies(scaling: Scaling) -> Table:
    return _table(
        "Configuration|#Speedup|#Ideal|#Usually reached|#Efficiency|#Serial fraction|Verdict",
        (
            (
                titled(r.name, r.mode),
                interval(r, ".2f", "x"),
                f"{r.replicas}x",
                usual(r.expected),
                interval(r.efficiency_interval, ".0%"),
                _NONE if r.serial_fraction is None else interval(r.serial_fraction, ".1%"),
                verdict(r),
            )
            for r in scaling.speedups
        ),
    )


def verdict(ratio: Ratio) -> Cell:
    """Whether the rounds decide anything, as a chip."""
    if ratio.conclusion == "conclusive":
        return Cell("conclusive", "parity")
    return Cell("too noisy", "inconclusive")


def _decisions(scaling: Scaling) -> list[str]:
    """What to do about ratios that decided nothing."""
    return [
        f"{titled(r.name, r.mode)}: {r.advice}"
        for r in (*scaling.speedups, *scaling.between)
        if r.conclusion != "conclusive" and r.advice
    ]


def _between(scaling: Scaling) -> Table:
    return _table(
        "Ratio of samples/s|#Replicas|#Ratio|Verdict",
        (
            (titled(r.name, r.mode), f"{r.replicas}", interval(r, ".2f", "x"), verdict(r))
            for r in scaling.between
        ),
    )


def _phases(scaling: Scaling) -> Table:
    return _table(
        "ms of a step|#Data|#Forward|#Backward|#Optimizer|#Messages alone|#exposed|#hidden"
        "|#Whole step|#Slowest rank",
        (
            (titled(c.label, c.mode), *_times(c.phases))
            for c in scaling.configurations
            if c.phases is not None
        ),
    )


def _times(phases: PhaseTimes) -> list[str]:
    computing = (phases.data, phases.forward, phases.backward, phases.optimizer)
    sending = (phases.communication, phases.exposed, phases.hidden)
    sent = map(milliseconds, sending) if phases.message_bytes else (_NONE for _ in sending)
    return [
        *map(milliseconds, computing),
        *sent,
        milliseconds(phases.step),
        f"+{milliseconds(phases.imbalance)}",
    ]


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
    titles = "".join(f"|#{name.capitalize()}" for name in names)
    rows = []
    for loss in scaling.losses:
        parts = {cause.name: cause for cause in loss.causes}
        seconds = (loss.step_seconds, loss.ideal_seconds, loss.lost_seconds)
        rows.append(
            (
                titled(loss.label, loss.mode),
                *map(milliseconds, seconds),
                *(_part(parts.get(name), loss.lost_seconds) for name in names),
            )
        )
    return _table(f"ms of a step|#Taken|#Ideal|#Lost{titles}", rows)


def _part(cause: Cause | None, lost: float) -> str:
    if cause is None:
        return _NONE
    # Of nothing lost, or of a gain, there are no shares.
    told = lost > 0 and math.isfinite(cause.share_of_loss) and abs(cause.share_of_loss) >= _SEEN
    return milliseconds(cause.seconds) + (f" ({cause.share_of_loss:.0%})" if told else "")


def _how(scaling: Scaling) -> list[str]:
    """How each cause was found; configurations may differ in it."""
    causes = (cause for loss in scaling.losses for cause in loss.causes)
    return list(dict.fromkeys(f"{cause.name}: {cause.how}" for cause in causes if cause.how))


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
        rows.append((strategy, fit.law, parameters, residuals, number(fit.rms, ".1%"), limit))
    return _table(
        "Strategy|Law|Parameters, 95 % interval|Measured and fitted|#Error, rms|#Largest speedup", rows
    )


def _not_fitted(scaling: Scaling) -> list[str]:
    """Why laws were not fitted, each reason once, with whose they are."""
    whose: dict[str, list[str]] = {}
    for fit in scaling.laws:
        if fit.why_not:
            strategy = titled(f"{fit.framework} {fit.strategy}", fit.mode)
            whose.setdefault(fit.why_not, []).append(strategy)
    return [f"{reason} ({'; '.join(strategies)})" for reason, strategies in whose.items()]


def _projection(projection: Projection) -> dict[str, Any]:
    last = {p.mode: p for p in projection.points}
    told = [p for p in projection.points if p.devices in _TOLD or p is last[p.mode]]
    points = _table(
        "Devices|Scaling|#Compute, ms|#Messages, ms|#Exposed, ms|#Step, ms|#Samples/s|#Speedup|#Efficiency"
        "|Algorithm",
        (
            (
                f"{p.devices:,}",
                p.mode,
                milliseconds(p.compute_seconds),
                milliseconds(p.communication_seconds),
                milliseconds(p.exposed_seconds),
                milliseconds(p.step_seconds),
                number(p.samples_per_second, ",.0f"),
                number(p.speedup, ",.1f") + "x",
                number(p.efficiency, ".0%"),
                p.algorithm,
            )
            for p in told
        ),
    )
    checks = _table(
        "Measured point|Scaling|#Measured, ms|#Model, ms|#Error|",
        (
            (
                v.label,
                v.mode,
                milliseconds(v.measured_seconds),
                milliseconds(v.predicted_seconds),
                number(v.error, "+.0%"),
                "fitted to this point, so it proves nothing" if v.fitted else "not used by the model",
            )
            for v in projection.validation
        ),
    )
    return {
        "name": f"{projection.framework} {projection.strategy}",
        "link": projection.link,
        "why_not": projection.why_not,
        "error": error_words(projection),
        "points": points,
        "assumptions": projection.assumptions,
        "checks": checks,
    }


def error_words(projection: Projection) -> str:
    """How far off the model was where it was measured, in a sentence."""
    if math.isnan(projection.error):
        return "No measured point was left to check the model on, so its error is not known."
    return f"On measured points that it took nothing from, the model was off by up to {projection.error:.0%}."


def _targets(scaling: Scaling) -> Table:
    rows: list[Sequence[str | Cell]] = []
    for t in scaling.targets:
        goal = f"{t.quality} {t.target:g}"
        reached = Cell("reached", "parity") if t.reached else Cell("not reached", "inconclusive")
        effort = (
            [f"{t.seconds:,.2f}", f"{t.samples:,.0f}", f"{t.steps:,.0f}"]
            if t.reached
            else [_NONE, _NONE, _NONE]
        )
        rows.append((titled(t.label, t.mode), goal, reached, *effort, f"{t.best:.4g}", t.note))
    return _table("Configuration|Target|Reached|#Seconds|#Samples|#Steps|#Best seen|What happened", rows)


def _memory(scaling: Scaling) -> Table:
    held = [c for c in scaling.configurations if c.memory_bytes]
    kinds = list(dict.fromkeys(kind for c in held for kind in c.memory_bytes))
    titles = "".join(f"|#{kind.replace('_', ' ').capitalize()}" for kind in kinds)
    return _table(
        f"Memory of one replica{titles}",
        ((titled(c.label, c.mode), *_sizes(c, kinds)) for c in held),
    )


def _sizes(configuration: Configuration, kinds: Sequence[str]) -> list[str]:
    held = configuration.memory_bytes
    return [show_size(held[kind]) if kind in held else _NONE for kind in kinds]
