"""The figures of the HTML report, as plotly JSON. Colours that depend on light or dark are left to the page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.data.plan import BatchPlan
from common.parity.compare import Comparison
from common.parity.deviation import Curve
from common.parity.scaling import EXPECTATION, Ratio
from common.record import RunRecord

# Okabe and Ito 2008: told apart with every common colour blindness, and on white and near-black.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#8C6D31", "#7A7A7A")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "star", "hexagon")

MOST_POINTS = 2000  # a curve with more is thinned
SMALLEST, LARGEST = 1e-17, 10.0  # the ends of the deviation's log axis; equal and non-finite are drawn there
FIRST_STEPS, TAIL_STEPS, MOST_POSITIONS = 50, 4, 256  # the window of the batch-split figure
NOBODY, SEVERAL = -1, -2

Trace = dict[str, Any]
Figure = dict[str, Any]
Rows = NDArray[np.int64]


def thin(values: Curve, limit: int = MOST_POINTS) -> Rows:
    """Indices, ascending, of at most `limit` points (8 or more) that keep every bucket's extremes.

    Kept are the first and last point and, of each bucket of consecutive points, the smallest, the
    largest and the first that is not finite. All points where there are no more than `limit`.
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
    return escape(text).replace("%{", "%&#123;")


def loss_figure(records: Sequence[RunRecord]) -> Figure:
    """Loss curves over each other: wide below, narrow above, so that equal curves stay visible."""
    traces = []
    for number, record in enumerate(records):
        rows = thin(record.loss)
        width = 1.75 + 5 * (len(records) - 1 - number) / max(1, len(records) - 1)
        traces.append(
            _line(number, record.label, record.steps[rows], record.loss[rows], width)
            | {"hovertemplate": "%{y:.10g}", "opacity": 0.55 if number == 0 else 1.0}
        )
    return _figure(traces, _axis("step"), _axis("mean loss of the global batch"), height=420)


def deviation_figure(comparisons: Sequence[Comparison]) -> Figure:
    """Deviation of the loss by step on a log axis, above the band that the budget allows."""
    traces, budgets = [], {c.loss_budget.tobytes(): c for c in comparisons}
    for comparison in budgets.values():
        traces += _budget_band(comparison, len(budgets) > 1)
    top = SMALLEST
    for number, comparison in enumerate(comparisons):
        deviation = comparison.loss_deviation
        rows = thin(np.log10(np.clip(deviation, SMALLEST, LARGEST)))
        steps = np.array(comparison.steps)[rows]
        drawn = np.clip(deviation[rows], SMALLEST, LARGEST)
        top = max(top, float(drawn.max()), *np.nan_to_num(comparison.loss_budget).tolist())
        line = _line(number + 1, comparison.candidate, steps, drawn, 1.75)
        traces.append(line | {"customdata": deviation[rows], "hovertemplate": "%{customdata:.3g}"})
    log_axis = _axis("relative deviation of the loss<br>(equal losses drawn at 1e-17)") | {
        "type": "log",
        "exponentformat": "power",
        "dtick": 2,
        "range": [np.log10(SMALLEST) - 0.5, np.log10(min(top, LARGEST)) + 1],
    }
    return _figure(traces, _axis("step"), log_axis, height=420)


def _budget_band(comparison: Comparison, named: bool) -> list[Trace]:
    if np.isnan(comparison.loss_budget).all():
        return []
    rows = thin(comparison.loss_budget)
    x = np.array(comparison.steps)[rows]
    # The band starts below the axis' lower end, where a log axis has no zero to fill to.
    floor = {"x": x, "y": np.full(len(x), SMALLEST / 10), "mode": "lines", "line": {"width": 0}}
    ceiling = {
        "x": x,
        "y": comparison.loss_budget[rows],
        "name": "budget" + (f" of {plot_text(comparison.candidate)}" if named else ""),
        "mode": "lines",
        "line": {"width": 2.5, "color": "#7A7A7A"},
        "fill": "tonexty",
        "fillcolor": "rgba(0, 158, 115, 0.10)",
        "hovertemplate": "%{y:.3g}",
    }
    return [
        {"type": "scatter", **floor, "hoverinfo": "skip", "showlegend": False},
        {"type": "scatter", **ceiling},
    ]


def split_figure(record: RunRecord) -> Figure:
    """Which replica got which sample: steps across, position in the global batch up."""
    rows = split_rows(record)
    positions = split_positions(record)
    replica, sample = _received(record, rows, positions)
    replicas = record.placement.replicas
    colours = len(PALETTE) if replicas > len(PALETTE) else replicas
    gap = np.flatnonzero(np.diff(rows) > 1) + 1
    names = [str(step) for step in record.steps[rows]]
    names = [*names[: gap[0]], "…", *names[gap[0] :]] if len(gap) else names
    shades = np.where(replica >= 0, replica % colours, np.nan)
    facts = np.stack([replica.astype(np.float64), sample.astype(np.float64)], axis=-1)
    if len(gap):
        shades = np.insert(shades, gap[0], np.nan, axis=1)
        facts = np.insert(facts, gap[0], np.nan, axis=1)
        replica = np.insert(replica, gap[0], 0, axis=1)
    common = {"type": "heatmap", "x": names, "y": positions, "xgap": 2, "hoverongaps": False}
    trace = common | {
        "z": shades.astype(np.float32),
        "customdata": facts.astype(np.float32 if np.nanmax(facts, initial=0.0) < 2**24 else np.float64),
        "hovertemplate": "step %{x}, position %{y}<br>replica %{customdata[0]}<br>"
        "sample %{customdata[1]}<extra></extra>",
        "colorscale": _steps_of(PALETTE[:colours]),
        "zmin": -0.5,
        "zmax": colours - 0.5,
        "showscale": replicas <= colours,
        "colorbar": {
            "tickvals": list(range(colours)),
            "ticktext": [f"replica {number}" for number in range(colours)],
            "ticks": "",
            "outlinewidth": 0,
            "thickness": 14,
        },
    }
    traces = [trace]
    for code, words in ((NOBODY, "went to no replica"), (SEVERAL, "went to several replicas")):
        if (replica == code).any():
            traces.append(common | _fault(replica == code, code, words))
    x = _axis("step") | {"type": "category", "showgrid": False, "nticks": 20, "tickangle": 0}
    y = _axis("position in the global batch") | {"showgrid": False}
    figure = _figure(traces, x, y, height=420)
    figure["layout"] |= {"hovermode": "closest", "shapes": _epoch_lines(record, names)}
    return figure


def split_rows(record: RunRecord) -> Rows:
    """Rows of the window: the first steps and, where those end earlier, the tail of their first epoch."""
    rows = np.arange(len(record.steps))
    per_epoch = BatchPlan.of(record.spec, record.placement).steps_per_epoch
    end = per_epoch - int(record.steps[0]) % per_epoch
    tail = (rows >= end - TAIL_STEPS) & (rows < end)
    return rows[(rows < FIRST_STEPS) | tail]


def split_positions(record: RunRecord) -> Rows:
    """Positions drawn: all of a small batch; of a large one an even choice that shows every pattern."""
    size = min(record.spec.global_batch_size, record.spec.data.train_samples)
    if size <= MOST_POSITIONS:
        return np.arange(size)
    if record.spec.data.split == "strided":
        # Every k-th position could meet the same replica each time.
        return np.arange(MOST_POSITIONS)
    return np.linspace(0, size - 1, MOST_POSITIONS).round().astype(np.int64)


def _received(record: RunRecord, rows: Rows, positions: Rows) -> tuple[Rows, NDArray[np.float64]]:
    """Replica and sample id by (position, row), as the replicas recorded them; sample NaN beyond a batch."""
    plan = BatchPlan.of(record.spec, record.placement)
    replica = np.full((len(positions), len(rows)), -3, np.int64)
    sample = np.full((len(positions), len(rows)), np.nan)
    for column, row in enumerate(rows.tolist()):
        ids = plan.global_ids(int(record.steps[row]))
        inside = positions < len(ids)
        wanted = ids[positions[inside]]
        received = [local_ids[row] for local_ids in record.splits]
        owners = np.repeat(np.arange(len(received)), [len(local_ids) for local_ids in received])
        held, first, times = np.unique(np.concatenate(received), return_index=True, return_counts=True)
        holders = np.full(len(wanted), NOBODY)
        if len(held):
            found = np.minimum(np.searchsorted(held, wanted), len(held) - 1)
            known = held[found] == wanted
            holders[known] = np.where(times[found] > 1, SEVERAL, owners[first[found]])[known]
        replica[inside, column] = holders
        sample[inside, column] = wanted
    return replica, sample


def _fault(where: NDArray[np.bool_], code: int, words: str) -> Trace:
    colour = "#000000" if code == NOBODY else "#FF00FF"
    return {
        "z": np.where(where, 1.0, np.nan),
        "colorscale": [[0, colour], [1, colour]],
        "showscale": False,
        "hovertemplate": f"step %{{x}}, position %{{y}}<br>{words}<extra></extra>",
    }


def _epoch_lines(record: RunRecord, names: list[str]) -> list[dict[str, Any]]:
    plan = BatchPlan.of(record.spec, record.placement)
    lines = []
    for column, (name, following) in enumerate(zip(names, names[1:], strict=False)):
        if "…" not in (name, following) and plan.epoch(int(name)) != plan.epoch(int(following)):
            at = column + 0.5
            lines.append({"type": "line", "x0": at, "x1": at, "y0": 0, "y1": 1, "yref": "paper"})
    return [line | {"line": {"width": 1.5, "dash": "dot", "color": "#7A7A7A"}} for line in lines]


def _steps_of(colours: Sequence[str]) -> list[list[Any]]:
    """A colour scale of flat steps."""
    edges = np.linspace(0, 1, len(colours) + 1).tolist()
    return [[edge, colour] for low, high, colour in zip(edges, edges[1:], colours) for edge in (low, high)]


def speedup_figure(speedups: Sequence[Ratio]) -> Figure:
    """Speedup over replicas: medians with their spread, the ideal, and what is usually reached."""
    counts = sorted({1, *(ratio.replicas for ratio in speedups)})
    usual = sorted(n for n in EXPECTATION if n <= max(counts) * 1.01)
    lows, highs = ([EXPECTATION[n][side] for n in usual] for side in (0, 1))
    ideal = {"x": [1, max(counts)], "y": [1, max(counts)], "line": {"dash": "dash", "color": "#7A7A7A"}}
    band = {"x": usual + usual[::-1], "y": highs + lows[::-1], "fill": "toself"}
    traces: list[Trace] = [
        {"type": "scatter", "name": "ideal", "mode": "lines", "hoverinfo": "skip", **ideal},
        {
            "type": "scatter",
            "name": "usually reached",
            "mode": "lines+markers",
            "line": {"color": "#009E73", "width": 5},
            "marker": {"size": 9},
            "opacity": 0.35,
            "fillcolor": "rgba(0, 158, 115, 0.35)",
            "hovertemplate": "%{y:.1f}x",
            **band,
        },
    ]
    for number, ratio in enumerate(speedups):
        alike = [other for other in speedups if other.replicas == ratio.replicas]
        # Side by side, so that the whiskers of equal replica counts do not cover each other.
        shift = (alike.index(ratio) - (len(alike) - 1) / 2) * 0.045 * max(counts)
        traces.append(
            {
                "type": "scatter",
                "name": plot_text(ratio.name),
                "mode": "markers",
                "x": [ratio.replicas + shift],
                "y": [ratio.median],
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": [ratio.high - ratio.median],
                    "arrayminus": [ratio.median - ratio.low],
                    "thickness": 2,
                    "width": 7,
                },
                "marker": {
                    "size": 11,
                    "color": _colour(number + 1),
                    "symbol": SYMBOLS[number % len(SYMBOLS)],
                },
                "customdata": [[ratio.low, ratio.high]],
                "hovertemplate": "%{y:.2f}x (%{customdata[0]:.2f} to %{customdata[1]:.2f})",
            }
        )
    x = _axis("replicas") | {"tickvals": counts, "range": [0.7, max(counts) * 1.12 + 0.1]}
    figure = _figure(traces, x, _axis("speedup") | {"rangemode": "tozero"}, height=400)
    figure["layout"]["hovermode"] = "closest"
    return figure


def to_json(figure: Figure) -> str:
    """The figure, checked by plotly, as JSON that may stand inside a script element."""
    import plotly.graph_objects as go  # type: ignore[import-untyped]

    text: str = go.Figure(figure["data"], figure["layout"]).to_json()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _colour(number: int) -> str:
    return PALETTE[number % len(PALETTE)]


def _line(number: int, name: str, x: Rows, y: Curve, width: float) -> Trace:
    style = {"color": _colour(number), "dash": DASHES[number % len(DASHES)], "width": width}
    return {"type": "scatter", "mode": "lines", "name": plot_text(name), "x": x, "y": y, "line": style}


def _axis(title: str) -> dict[str, Any]:
    return {"title": {"text": title, "standoff": 12}, "zeroline": False, "automargin": True}


def _figure(traces: list[Trace], x: dict[str, Any], y: dict[str, Any], height: int) -> Figure:
    layout = {
        "template": {},
        "height": height,
        "margin": {"l": 64, "r": 16, "t": 44, "b": 52},
        "xaxis": x,
        "yaxis": y,
        "hovermode": "x unified",
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
    }
    return {"data": traces, "layout": layout}
