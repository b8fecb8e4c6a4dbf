"""The figures of the scaling analysis: speedup, phases of a step, projection."""

from __future__ import annotations

import math
from collections.abc import Sequence

from parity.common.report.html import plots
from parity.common.report.html.plots import Figure, Trace
from parity.common.report.html.scaling import is_checked, titled
from parity.common.scaling.result import EXPECTATION, Configuration, Mode, Projection, Ratio, Scaling

_GREY = "#7A7A7A"
# Parts of a step in the order they are taken in, with colours that stay apart for colour-blind eyes.
_PARTS = (
    ("data", "data", _GREY),
    ("forward", "forward", "#56B4E9"),
    ("backward", "backward", "#0072B2"),
    ("exposed", "communication, exposed", "#D55E00"),
    ("optimizer", "optimizer", "#009E73"),
)
_HIDDEN = ("communication, hidden", "#D55E00")
_BAR, _THIN = 0.46, 0.16
_CLOSEST = {"hovermode": "closest"}
_BELOW_BUTTONS = 72  # pixels above a plot whose legend would reach the buttons


def figures(scaling: Scaling) -> dict[str, Figure]:
    """All figures that there are numbers for, by name."""
    found = {}
    if scaling.speedups:
        found["speedup"] = speedup_figure(scaling.speedups)
    phased = [c for c in scaling.configurations if c.phases is not None]
    if phased:
        found["phases"] = phase_figure(phased)
    projected = [p for p in scaling.projections if is_checked(p) and p.points]
    if projected:
        found["projection"] = projection_figure(projected, scaling)
    return found


def speedup_figure(speedups: Sequence[Ratio]) -> Figure:
    """Speedup over replicas: medians with their intervals, the ideal, and what is usually reached."""
    counts = sorted({1, *(ratio.replicas for ratio in speedups)})
    most = max(counts)
    traces = [_ideal(1, most), _usual(most)]
    # Ratios that differ in replicas alone, by their name without them.
    groups: dict[str, list[Ratio]] = {}
    for ratio in speedups:
        name = titled(ratio.name.replace(f" x{ratio.replicas}", "", 1), ratio.mode)
        groups.setdefault(name, []).append(ratio)
    for number, (name, ratios) in enumerate(groups.items()):
        # Side by side, so that the whiskers of equal replica counts do not cover each other.
        shift = (number - (len(groups) - 1) / 2) * 0.045 * most
        colour = plots.PALETTE[(number + 1) % len(plots.PALETTE)]
        symbol = plots.SYMBOLS[number % len(plots.SYMBOLS)] + ("-open" if ratios[0].mode == "weak" else "")
        finite = [r for r in ratios if math.isfinite(r.median)]
        traces.append(
            plots.scatter(name, "markers", [r.replicas + shift for r in finite], [r.median for r in finite])
            | {
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": [r.high - r.median for r in finite],
                    "arrayminus": [r.median - r.low for r in finite],
                    "thickness": 2,
                    "width": 7,
                    "color": colour,
                },
                "marker": {"size": 11, "color": colour, "symbol": symbol, "line": {"width": 2}},
                "customdata": [[r.low, r.high] for r in finite],
                "hovertemplate": "%{y:.2f}x (%{customdata[0]:.2f} to %{customdata[1]:.2f})",
            }
        )
    x = plots.axis("replicas") | {"tickvals": counts, "range": [0.7, most * 1.12 + 0.1]}
    # A whisker of a noisy session must not make all else too small to see.
    top = max(1.15 * most, *(1.1 * r.median for r in speedups if math.isfinite(r.median)))
    return plots.framed(traces, x, plots.axis("speedup") | {"range": [0, top]}, 420, _CLOSEST)


def _ideal(first: float, last: float) -> Trace:
    line = {"dash": "dash", "color": _GREY}
    return plots.scatter("ideal", "lines", [first, last], [first, last]) | {"hoverinfo": "skip", "line": line}


def _usual(most: int) -> Trace:
    usual = sorted(n for n in EXPECTATION if n <= most * 1.01)
    lows, highs = ([EXPECTATION[n][side] for n in usual] for side in (0, 1))
    return plots.scatter("usually reached", "lines+markers", usual + usual[::-1], highs + lows[::-1]) | {
        "fill": "toself",
        "line": {"color": "#009E73", "width": 5},
        "marker": {"size": 9},
        "opacity": 0.35,
        "fillcolor": "rgba(0, 158, 115, 0.35)",
        "hovertemplate": "%{y:.1f}x",
    }


def phase_figure(configurations: Sequence[Configuration]) -> Figure:
    """A bar a configuration: what a step's milliseconds go into; below it the communication that is hidden."""
    rows = list(range(len(configurations)))
    traces: list[Trace] = []
    starts = [0.0] * len(rows)
    hidden_ends = starts
    for field, name, colour in _PARTS:
        if field == "exposed":
            hidden_ends = list(starts)
        lengths = [_milliseconds(c, field) for c in configurations]
        traces.append(_bars(name, lengths, starts, rows, -_BAR / 2, _BAR) | {"marker": {"color": colour}})
        starts = [start + length for start, length in zip(starts, lengths, strict=True)]
    lengths = [_milliseconds(c, "hidden") for c in configurations]
    begins = [max(0.0, end - length) for end, length in zip(hidden_ends, lengths, strict=True)]
    pattern = {"shape": "/", "size": 6, "solidity": 0.35, "fgcolor": _HIDDEN[1], "bgcolor": "rgba(0,0,0,0)"}
    marker = {"color": _HIDDEN[1], "pattern": pattern, "line": {"color": _HIDDEN[1], "width": 1}}
    traces.append(_bars(_HIDDEN[0], lengths, begins, rows, _BAR / 2, _THIN) | {"marker": marker})
    labels = [broken(titled(c.label, c.mode)) for c in configurations]
    y = plots.axis("") | {"tickvals": rows, "ticktext": labels, "autorange": "reversed", "showgrid": False}
    x = plots.axis("milliseconds of a step") | {"rangemode": "tozero"}
    return plots.framed(traces, x, y, 140 + 62 * len(rows), {"barmode": "overlay"} | _CLOSEST, _BELOW_BUTTONS)


def _bars(
    name: str, lengths: list[float], starts: list[float], rows: list[int], offset: float, width: float
) -> Trace:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        # Nothing is drawn as nothing, not as a line.
        "x": [length or None for length in lengths],
        "base": starts,
        "y": rows,
        "offset": offset,
        "width": width,
        "customdata": lengths,
        "hovertemplate": name + ": %{customdata:.3g} ms<extra></extra>",
    }


def _milliseconds(configuration: Configuration, part: str) -> float:
    phases = configuration.phases
    seconds: float = getattr(phases, part)
    # What is measured of messages where there are none is noise.
    nothing = part in ("exposed", "hidden") and not (phases and phases.message_bytes)
    return 1e3 * max(0.0, seconds) if math.isfinite(seconds) and not nothing else 0.0


def broken(label: str) -> str:
    """A label in lines short enough to stand beside what it names."""
    words = label.split(" ")
    lines = [" ".join(words[:2]), " ".join(words[2:4]), *words[4:]]
    return "<br>".join(plots.plot_text(line) for line in lines if line)


def projection_figure(projections: Sequence[Projection], scaling: Scaling) -> Figure:
    """Projected speedup over devices, both logarithmic, with the measured points."""
    most = max(point.devices for projection in projections for point in projection.points)
    traces = [_ideal(1, most)]
    number = 0
    for projection in projections:
        name = f"{projection.framework} {projection.strategy}"
        for mode in ("strong", "weak"):
            points = [p for p in projection.points if p.mode == mode]
            if not points:
                continue
            named = f"{name}, {mode}"
            colour = plots.PALETTE[number % len(plots.PALETTE)]
            dash = plots.DASHES[number % len(plots.DASHES)]
            traces.append(
                plots.scatter(named, "lines", [p.devices for p in points], [p.speedup for p in points])
                | {
                    "line": {"color": colour, "dash": dash, "width": 2.5},
                    "customdata": [[p.efficiency, p.algorithm] for p in points],
                    "hovertemplate": "%{x} devices: %{y:.1f}x, efficiency %{customdata[0]:.0%}, %{customdata[1]}",
                }
            )
            measured = _measured(scaling, projection, mode)
            if measured:
                seen = [r.replicas for r in measured], [r.median for r in measured]
                marker = {"size": 10, "color": colour, "symbol": plots.SYMBOLS[number % len(plots.SYMBOLS)]}
                quiet = {"showlegend": False, "hovertemplate": "measured: %{y:.2f}x"}
                traces.append(plots.scatter(named, "markers", *seen) | quiet | {"marker": marker})
            number += 1
    ticks = {"type": "log", "tickvals": [2**power for power in range(int(math.log2(most)) + 1)]}
    top = math.log10(most)
    x = plots.axis("devices") | ticks | {"range": [-0.05, top + 0.1]}
    y = plots.axis("speedup") | ticks | {"range": [-0.1, top + 0.1]}
    return plots.framed(traces, x, y, 460, _CLOSEST, _BELOW_BUTTONS)


def _measured(scaling: Scaling, projection: Projection, mode: Mode) -> list[Ratio]:
    """The measured speedups of what a projection is of."""
    which = (projection.framework, projection.strategy, mode)
    mine = {c.label for c in scaling.configurations if (c.framework, c.strategy, c.mode) == which}
    return [r for r in scaling.speedups if r.name in mine and r.mode == mode and math.isfinite(r.median)]
