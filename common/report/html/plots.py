"""The curves and speedups of the HTML report. Colours that depend on light or dark are left to the page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.common.base.plain import without_controls
from parity.common.parity.compare import Comparison
from parity.common.parity.deviation import Curve, recorded_rows
from parity.common.record import RunRecord

# Okabe and Ito 2008: distinguishable with every common colour blindness, and on white and near-black.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#8C6D31", "#7A7A7A")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "star", "hexagon")

MOST_POINTS = 2000  # a curve with more is thinned
EXACT = "exact"  # meta of a trace whose customdata are the numbers, and y where they are drawn
DECADES = 2  # a loss that spans more is drawn on a log axis
SMALLEST, LARGEST = 1e-17, 10.0  # the ends of the deviation's log axis; equal and non-finite are drawn there

Trace = dict[str, Any]
Figure = dict[str, Any]
Rows = NDArray[np.int64]


def thin(values: Curve, limit: int = MOST_POINTS) -> Rows:
    """Return int64 (points,), indices, ascending, of at most `limit` points that keep every bucket's extremes.

    Kept are the first and last point and, of each bucket of consecutive points, the smallest, the
    largest and the first that is not finite. All points where there are no more than `limit`.

    Raises:
        ValueError: the limit is below 8.
    """
    if limit < 8:
        raise ValueError(f"limit must be at least 8, received {limit}")
    if len(values) <= limit:
        return np.arange(len(values))
    keep = {0, len(values) - 1}
    for bucket in np.array_split(np.arange(len(values)), (limit - 2) // 3):
        finite = bucket[np.isfinite(values[bucket])]
        if len(finite):
            keep |= {int(finite[np.argmin(values[finite])]), int(finite[np.argmax(values[finite])])}
        if len(finite) < len(bucket):
            keep.add(int(bucket[~np.isfinite(values[bucket])][0]))
    return np.array(sorted(keep))


def plot_text(text: str) -> str:
    """Text that plotly shows as it is: plotly reads tags and %{...} in labels."""
    return escape(without_controls(text)).replace("%{", "%&#123;")


def loss_figure(records: Sequence[RunRecord]) -> Figure:
    """Loss curves over each other: wide below, narrow above, so that equal curves stay visible."""
    return column_figure(records, "loss_sum", "mean loss of the global batch")


def column_figure(records: Sequence[RunRecord], column: str, title: str) -> Figure:
    """As `loss_figure`, of a column of the records; where one was not recorded at every step, what was.

    On a log axis where the numbers are positive and span decades; the page can switch where `log` is not None.
    """
    traces = []
    for number, record in enumerate(records):
        values = record.loss if column == "loss_sum" else record.columns[column]
        there = np.flatnonzero(recorded_rows(column, record))
        rows = there[thin(values[there])]
        width = 1.75 + 5 * (len(records) - 1 - number) / max(1, len(records) - 1)
        traces.append(
            _line(number, record.label, record.steps[rows], values[rows], width)
            | {"hovertemplate": "%{y:.10g}", "opacity": 0.7 if number == 0 else 1.0}
        )
    return switchable(framed(traces, axis("step"), axis(title), height=420))


def switchable(figure: Figure) -> Figure:
    """The figure with `log`: whether its y axis is logarithmic, None where it cannot be."""
    values = np.concatenate([np.zeros(0), *(np.asarray(trace["y"], float) for trace in figure["data"])])
    finite = values[np.isfinite(values)]
    log = None if not len(finite) or finite.min() <= 0 else bool(finite.max() > 10**DECADES * finite.min())
    if log:
        figure["layout"]["yaxis"] |= {"type": "log"}
    return figure | {"log": log}


def deviation_figure(comparisons: Sequence[Comparison]) -> Figure:
    """Deviation of the loss by step on a log axis, above the band that the budget allows."""
    traces, budgets = [], {c.loss_budget.tobytes(): c for c in comparisons}
    for comparison in budgets.values():
        traces += _budget_band(comparison, len(budgets) > 1)
    top = SMALLEST
    for number, comparison in enumerate(comparisons):
        deviation = comparison.loss_deviation
        rows = thin(np.log10(np.clip(deviation, SMALLEST, LARGEST)))
        steps = comparison.steps[rows]
        drawn = np.clip(deviation[rows], SMALLEST, LARGEST)
        top = max(top, float(drawn.max()), float(np.nan_to_num(comparison.loss_budget).max()))
        line = _line(number + 1, comparison.candidate, steps, drawn, 1.75)
        traces.append(
            line | {"customdata": deviation[rows], "meta": EXACT, "hovertemplate": "%{customdata:.3g}"}
        )
    log_axis = axis("relative deviation of the loss<br>(equal losses drawn at 1e-17)") | {
        "type": "log",
        "exponentformat": "power",
        "dtick": 2,
        "range": [np.log10(SMALLEST) - 0.5, np.log10(min(top, LARGEST)) + 1],
    }
    return framed(traces, axis("step"), log_axis, height=420)


def _budget_band(comparison: Comparison, named: bool) -> list[Trace]:
    if np.isnan(comparison.loss_budget).all():
        return []
    rows = thin(comparison.loss_budget)
    x = comparison.steps[rows]
    # The band starts below the axis' lower end, where a log axis has no zero to fill to.
    floor = {"type": "scatter", "x": x, "y": np.full(len(x), SMALLEST / 10), "mode": "lines"}
    budget = "budget" + (f" of {comparison.candidate}" if named else "")
    ceiling = {
        "line": {"width": 2.5, "color": "#7A7A7A"},
        "fill": "tonexty",
        "fillcolor": "rgba(0, 158, 115, 0.10)",
        "hovertemplate": "%{y:.3g}",
    }
    return [
        floor | {"line": {"width": 0}, "hoverinfo": "skip", "showlegend": False},
        scatter(budget, "lines", x, comparison.loss_budget[rows]) | ceiling,
    ]


def to_json(figure: Figure) -> str:
    """The figure, checked by plotly, as JSON that may stand inside a script element."""
    import plotly.graph_objects as go

    return in_script(go.Figure(figure["data"], figure["layout"]).to_json())


def in_script(text: str) -> str:
    """JSON that may stand inside a script element."""
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def scatter(name: str, mode: str, x: Sequence[float] | Rows | Curve, y: Sequence[float] | Curve) -> Trace:
    """Points or lines at x and y, (points,) each."""
    return {"type": "scatter", "mode": mode, "name": plot_text(name), "x": x, "y": y}


def _line(number: int, name: str, x: Rows, y: Curve, width: float) -> Trace:
    style = {"color": PALETTE[number % len(PALETTE)], "dash": DASHES[number % len(DASHES)], "width": width}
    return scatter(name, "lines", x, y) | {"line": style}


def axis(title: str) -> dict[str, Any]:
    """An axis with a title."""
    return {"title": {"text": title, "standoff": 12}, "zeroline": False, "automargin": True}


def framed(
    traces: list[Trace],
    x: dict[str, Any],
    y: dict[str, Any],
    height: int,
    more: dict[str, Any] | None = None,
    above: int = 44,
) -> Figure:
    """Traces in the common layout with `more`; `above` them so many pixels."""
    layout = {
        "template": {},
        "height": height,
        "margin": {"l": 64, "r": 16, "t": above, "b": 52},
        "xaxis": x,
        "yaxis": y,
        "hovermode": "x unified",
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
    }
    return {"data": traces, "layout": layout | (more or {})}
