"""Figures without the plotting library: lines, points and bands as inline SVG, and each curve's numbers as CSV."""

from __future__ import annotations

import base64
import csv
import html
import io
import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.common.report.html.plots import EXACT, Figure, Trace, thin

MOST_DRAWN = 1200  # points of all curves of one figure; a page of them stays small
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 320, 84, 14, 10, 46
_DASHES = {"dash": "9 6", "dot": "2 4", "dashdot": "9 4 2 4", "longdash": "14 6", "longdashdot": "14 4 2 4"}
_GREY = "#7A7A7A"
Values = NDArray[np.float64]


def few(figure: Figure) -> Figure:
    """Return the figure with so few points that it may be written out."""
    limit = max(60, MOST_DRAWN // max(1, len(figure["data"])))
    return figure | {"data": [_few(trace, limit) for trace in figure["data"]]}


def _few(trace: Trace, limit: int) -> Trace:
    if trace["type"] != "scatter" or len(trace["x"]) <= limit:
        return trace
    rows = thin(np.asarray(trace["y"], float), limit)
    return trace | {key: np.asarray(trace[key])[rows] for key in ("x", "y", "customdata") if key in trace}


def curves(figure: Figure) -> list[tuple[str, str]]:
    """Return of each curve its name and a data: link to its numbers as CSV; none for bars and maps."""
    x = html.unescape(figure["layout"]["xaxis"]["title"]["text"]) or "x"
    links = []
    for trace in figure["data"]:
        bounds = trace.get("hoverinfo") == "skip" or trace.get("fill") == "toself"
        # A table has what has intervals, without the shift that keeps the points apart.
        tabled = "error_x" in trace or "error_y" in trace
        if trace["type"] != "scatter" or not trace.get("name") or bounds or tabled:
            continue
        name, text = html.unescape(trace["name"]), io.StringIO()
        values = trace["customdata" if trace.get("meta") == EXACT else "y"]
        writer = csv.writer(text, lineterminator="\n")
        # A name must not become a formula of a spreadsheet.
        writer.writerow([re.sub(r"^(?=[=+\-@\t])", "'", title) for title in (x, name)])
        writer.writerows(zip(np.asarray(trace["x"]).tolist(), np.asarray(values).tolist(), strict=True))
        coded = base64.b64encode(text.getvalue().encode()).decode()
        links.append((name, f"data:text/csv;base64,{coded}"))
    return links


def svg(figure: Figure) -> str | None:
    """Return the figure as an SVG element with a legend; None where it has bars or a map, which a table shows as well.

    Names and titles in a figure are escaped already (`plots.plot_text`).
    """
    traces, layout = figure["data"], figure["layout"]
    if any(trace["type"] != "scatter" for trace in traces):
        return None
    x = _Axis.of(layout["xaxis"], [_values(t, "x") for t in traces], _LEFT, _WIDTH - _RIGHT)
    y = _Axis.of(layout["yaxis"], [_values(t, "y") for t in traces], _HEIGHT - _BOTTOM, _TOP)
    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" aria-hidden="true">']
    for at, text in x.ticks:
        parts.append(f'<path class="grid" d="M{at:.1f} {_TOP}V{_HEIGHT - _BOTTOM}"/>')
        parts.append(f'<text x="{at:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{text}</text>')
    for at, text in y.ticks:
        parts.append(f'<path class="grid" d="M{_LEFT} {at:.1f}H{_WIDTH - _RIGHT}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{text}</text>')
    parts.append(f'<text x="{(_LEFT + _WIDTH) / 2}" y="{_HEIGHT - 8}" text-anchor="middle">{x.title}</text>')
    middle = (_HEIGHT - _BOTTOM) / 2
    parts.append(
        f'<text transform="translate(14 {middle}) rotate(-90)" text-anchor="middle"><tspan>{y.title}</tspan></text>'
    )
    parts.append(
        f'<svg x="{_LEFT}" y="{_TOP}" width="{_WIDTH - _LEFT - _RIGHT}" height="{_HEIGHT - _TOP - _BOTTOM}"'
    )
    parts.append(f' viewBox="{_LEFT} {_TOP} {_WIDTH - _LEFT - _RIGHT} {_HEIGHT - _TOP - _BOTTOM}">')
    before = ""
    for trace in traces:
        drawn, before = _drawn(trace, x, y, before)
        parts.append(drawn)
    parts.append("</svg></svg>")
    shown = [t for t in traces if t.get("showlegend", True) and t.get("name")]
    legend = "".join(f'<li><i style="background: {_colour(t)}"></i>{t["name"]}</li>' for t in shown)
    return "".join(parts) + f'<ul class="names">{legend}</ul>'


@dataclass(frozen=True)
class _Axis:
    """From values to pixels. ticks: pixels and texts."""

    log: bool
    low: float
    high: float
    start: float
    end: float
    title: str
    marked: tuple[tuple[float, str], ...] = ()

    @classmethod
    def of(cls, axis: dict[str, Any], data: list[Values], start: float, end: float) -> _Axis:
        log = axis.get("type") == "log"
        values = np.concatenate([np.zeros(0), *data])
        values = _scaled(values[np.isfinite(values)], log)
        values = values[np.isfinite(values)]
        low, high = axis.get("range") or ((values.min(), values.max()) if len(values) else (0.0, 1.0))
        room = 0 if "range" in axis else 0.04 * (high - low) or 0.5
        if axis.get("autorange") == "reversed":
            start, end = end, start
        places = axis.get("tickvals", ())
        texts = axis.get("ticktext") or [f"{place:g}" for place in places]
        marked = tuple(zip(map(float, places), texts, strict=True))
        title = axis["title"]["text"].replace("<br>", '</tspan><tspan x="0" dy="14">')
        return cls(log, float(low) - room, float(high) + room, start, end, title, marked)

    def at(self, values: Values) -> Values:
        """Pixels; NaN where a log axis has no place."""
        return self.start + (_scaled(values, self.log) - self.low) / (self.high - self.low) * (
            self.end - self.start
        )

    @property
    def ticks(self) -> list[tuple[float, str]]:
        marked = self.marked
        if not marked and self.log:
            first, last = math.ceil(self.low), math.floor(self.high)
            marked = tuple((10.0**n, f"1e{n}") for n in range(first, last + 1, max(1, (last - first) // 6)))
        if len(marked) < 2 and not self.marked:
            rough = (self.high - self.low) / 5
            unit = 10.0 ** math.floor(math.log10(rough))
            step = unit * next(n for n in (1, 2, 5, 10) if n * unit >= rough)
            places = [n * step for n in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]
            marked = tuple((10.0**p, f"{10.0**p:.3g}") if self.log else (p, f"{p:g}") for p in places)
        return [(float(self.at(np.array(value))), text) for value, text in marked]


def _scaled(values: Values, log: bool) -> Values:
    if not log:
        return values
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log10(values)


def _values(trace: Trace, key: str) -> Values:
    return np.asarray(trace[key], float)


def _colour(trace: Trace) -> str:
    return str(trace.get("line", {}).get("color") or trace.get("marker", {}).get("color") or _GREY)


def _drawn(trace: Trace, x: _Axis, y: _Axis, before: str) -> tuple[str, str]:
    """A trace as SVG, and its points as a path, to which the next one's band may be filled."""
    ours, theirs = x.at(_values(trace, "x")), y.at(_values(trace, "y"))
    there = np.isfinite(ours) & np.isfinite(theirs)
    points = [f"{a:.1f} {b:.1f}" for a, b in zip(ours[there], theirs[there], strict=True)]
    # A line is broken where a value is not finite.
    starts = np.flatnonzero(there & ~np.r_[False, there[:-1]])
    heads = set((np.cumsum(there)[starts] - 1).tolist())
    path = "".join(("M" if n in heads else "L") + point for n, point in enumerate(points))
    style, mode, parts = trace.get("line", {}), trace["mode"], []
    if trace.get("fill") == "tonexty" and points and before:
        band = f"M{'L'.join(points)}L{'L'.join(reversed(before.replace('M', 'L')[1:].split('L')))}Z"
        parts.append(f'<path d="{band}" fill="{trace["fillcolor"]}"/>')
    elif trace.get("fill") == "toself":
        parts.append(f'<path d="{path}Z" fill="{trace["fillcolor"]}"/>')
    if "lines" in mode and path and style.get("width", 2):
        dash = (
            f' stroke-dasharray="{_DASHES[style["dash"]]}"' if style.get("dash", "solid") in _DASHES else ""
        )
        look = f'stroke="{_colour(trace)}" stroke-width="{style.get("width", 2):.3g}" opacity="{trace.get("opacity", 1)}"'
        parts.append(f'<path d="{path}" fill="none" {look}{dash}/>')
    if "markers" in mode:
        parts += [_whiskers(trace, x, y)] + [
            f'<circle cx="{a}" cy="{b}" r="4" fill="{_colour(trace)}"/>'
            for a, b in (p.split(" ") for p in points)
        ]
    return "".join(parts), path


def _whiskers(trace: Trace, x: _Axis, y: _Axis) -> str:
    """Intervals about the points."""
    lines = []
    for key, mine, other in (("x", x, y), ("y", y, x)):
        error = trace.get(f"error_{key}")
        if error is None:
            continue
        middle, across = _values(trace, key), other.at(_values(trace, "y" if key == "x" else "x"))
        ends = (
            mine.at(middle + sign * np.asarray(error[side], float))
            for sign, side in ((-1, "arrayminus"), (1, "array"))
        )
        for low, high, place in zip(*ends, across, strict=True):
            if math.isfinite(low + high + place):
                d = (
                    f"M{low:.1f} {place:.1f}H{high:.1f}"
                    if key == "x"
                    else f"M{place:.1f} {low:.1f}V{high:.1f}"
                )
                lines.append(f'<path d="{d}" stroke="{error["color"]}" stroke-width="2"/>')
    return "".join(lines)
