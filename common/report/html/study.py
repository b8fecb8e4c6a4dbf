"""The page of a study: verdict, differences against their margins, seeds, curves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from parity.common.parity.deviation import Curve
from parity.common.report import next_steps
from parity.common.report.html import plots
from parity.common.report.html.comparison import ran
from parity.common.report.html.page import write_page
from parity.common.report.html.plots import Figure, Trace
from parity.common.report.html.scaling_plots import broken
from parity.common.report.study import COLUMNS, cells_of
from parity.common.spec import dump_yaml
from parity.common.study.curves import Band
from parity.common.study.metrics import METRICS
from parity.common.study.result import FigureResult, StudyResult

_TONES = {"equivalent": "parity", "different": "divergent", "undecided": "inconclusive"}
_TITLES = {"equivalent": "Equivalent", "different": "Different", "undecided": "Undecided"}
_CLOSEST = {"hovermode": "closest"}


def write_study_html(result: StudyResult, path: Path) -> None:
    """Write the page of a study, whole or not at all.

    Raises:
        RecordError: the file cannot be written.
    """
    question = result.question
    figures: dict[str, Figure] = {}
    if result.results:
        figures["differences"] = differences_figure(result.results)
    for number, each in enumerate(result.results):
        if each.a:
            figures[f"seeds-{number}"] = seeds_figure(
                each, question.labels[0], question.first_seed, question.paired
            )
    for number, band in enumerate(result.bands):
        figures[f"curves-{number}"] = curves_figure(band, question.labels[0])
        figures[f"band-{number}"] = band_figure(band)
    several = len(question.labels) > 2
    words: dict[str, Any] = {
        "headline": {"verdict": result.verdict, "tone": _TONES[result.verdict], **_headline(result)},
        "spec": {"name": "records of scripts" if question.spec is None else question.spec.name},
        "facts": _facts(result),
        "ran": ran(result.records),
        "next_steps": next_steps.after_study(result, path.parent),
        "result": result,
        "table": (
            ["candidate"] * several + list(COLUMNS),
            [[each.candidate] * several + cells_of(each) for each in result.results],
        ),
        "tones": _TONES,
        "figure_names": list(figures),
        "yaml": dump_yaml(question),
        "metrics": METRICS,
    }
    write_page(path, "study.html.j2", words, figures)


def _headline(result: StudyResult) -> dict[str, str]:
    counts = f"{result.seeds} seeds of at most {result.question.looks[-1]}"
    why = {
        "equivalent": f"every figure is within its margin, over {counts}",
        "different": f"a figure differs by more than its margin, over {counts}",
        "undecided": f"neither is shown, over {counts}",
    }
    return {"title": _TITLES[result.verdict], "why": why[result.verdict]}


def _facts(result: StudyResult) -> dict[str, str]:
    question = result.question
    facts = {"Reference": question.labels[0], "Candidates": ", ".join(question.labels[1:])}
    if question.spec is not None:
        facts |= {"Spec hash": question.spec.content_hash(), "Precision": question.spec.precision}
        facts["Seeds of a pair share"] = ", ".join(question.shared())
    facts["Looked at after"] = ", ".join(map(str, question.looks)) + " seeds"
    facts["Error of either kind"] = f"{question.alpha:.0%}"
    return facts


def differences_figure(results: tuple[FigureResult, ...]) -> Figure:
    """Each figure's difference and its interval, in margins: within -1 and 1 it is equivalent."""
    rows = list(range(len(results)))
    # Of one candidate the page says everywhere who it is.
    several = len({each.candidate for each in results}) > 1
    names = [
        "<br>".join([plots.plot_text(each.figure.name), *([broken(each.candidate)] if several else [])])
        for each in results
    ]
    scaled = [
        np.array([each.estimate, *each.interval]) / each.margin_size
        if each.margin_size
        else np.full(3, np.nan)
        for each in results
    ]
    points: Trace = plots.scatter("difference and interval", "markers", [s[0] for s in scaled], rows) | {
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [s[2] - s[0] for s in scaled],
            "arrayminus": [s[0] - s[1] for s in scaled],
            "thickness": 2.5,
            "width": 8,
            "color": plots.PALETTE[0],
        },
        "marker": {"size": 11, "color": plots.PALETTE[0]},
        "hovertemplate": "%{x:.3g} margins<extra></extra>",
    }
    edges = [
        plots.scatter("margin", "lines", [side, side], [-0.5, len(rows) - 0.5])
        | {"line": {"dash": "dash", "color": "#D55E00"}, "showlegend": side > 0, "hoverinfo": "skip"}
        for side in (-1, 1)
    ]
    y = plots.axis("") | {"tickvals": rows, "ticktext": names, "autorange": "reversed"}
    x = plots.axis("difference, in margins")
    return plots.framed([points, *edges], x, y, 150 + 52 * len(rows), _CLOSEST)


def seeds_figure(result: FigureResult, reference: str, first_seed: int, paired: bool) -> Figure:
    """Every seed's value: of pairs, candidate against reference with the line of equal ones; else side by side."""
    metric = METRICS[result.figure.name]
    a, b = (np.array(values) * metric.scale for values in (result.a, result.b))
    marker = {"size": 10, "color": plots.PALETTE[0], "opacity": 0.75}
    if not paired:
        traces = [
            plots.scatter(name, "markers", [place] * len(values), values) | {"marker": marker}
            for place, (name, values) in enumerate(((reference, a), (result.candidate, b)))
        ]
        x = plots.axis("") | {
            "tickvals": [0, 1],
            "ticktext": [plots.plot_text(reference), plots.plot_text(result.candidate)],
        }
        return plots.framed(traces, x, plots.axis(metric.about), 380, _CLOSEST | {"showlegend": False})
    fine = np.isfinite(a) & np.isfinite(b)
    ends = (
        [float(f(np.concatenate([a[fine], b[fine]]))) for f in (np.min, np.max)] if fine.any() else [0.0, 1.0]
    )
    seeds = first_seed + np.arange(len(a))
    points = plots.scatter("seeds", "markers", a[fine], b[fine]) | {
        "marker": marker,
        "customdata": seeds[fine],
        "hovertemplate": "seed %{customdata}: %{x:.5g}, %{y:.5g}<extra></extra>",
    }
    equal = plots.scatter("equal", "lines", ends, ends) | {
        "line": {"dash": "dash", "color": "#7A7A7A"},
        "hoverinfo": "skip",
    }
    return plots.framed(
        [equal, points],
        plots.axis(f"{plots.plot_text(reference)}"),
        plots.axis(f"{plots.plot_text(result.candidate)}"),
        420,
        _CLOSEST,
    )


def curves_figure(band: Band, reference: str) -> Figure:
    """The mean curves of both arms, and how far seeds are from them."""
    traces: list[Trace] = []
    arms = (
        (reference, band.reference, band.reference_spread, "rgba(0, 114, 178, 0.15)"),
        (band.label, band.candidate, band.candidate_spread, "rgba(230, 159, 0, 0.15)"),
    )
    for number, (name, values, spread, colour) in enumerate(arms):
        traces += _filled("", band, values - spread, values + spread, colour)
        style = {"color": plots.PALETTE[number], "width": 5 - 3 * number, "dash": plots.DASHES[0]}
        traces.append(plots.scatter(name, "lines", band.middles, values) | {"line": style})
    figure = plots.framed(traces, plots.axis("step"), plots.axis("training loss, mean of the seeds"), 380)
    return plots.switchable(figure)


def _filled(name: str, band: Band, low: Curve, high: Curve, colour: str) -> list[Trace]:
    """An area between two curves; one without a name is not in the legend."""
    quiet = {"line": {"width": 0}, "hoverinfo": "skip"}
    fill = {"fill": "tonexty", "fillcolor": colour, "showlegend": bool(name)}
    return [
        plots.scatter("", "lines", band.middles, low) | quiet | {"showlegend": False},
        plots.scatter(name, "lines", band.middles, high) | quiet | fill,
    ]


def band_figure(band: Band) -> Figure:
    """The difference of the curves with its bands, against the margin."""
    traces = [
        *_filled("all points together", band, band.lowest, band.highest, "rgba(0, 114, 178, 0.15)"),
        *_filled("each point", band, band.low, band.high, "rgba(0, 114, 178, 0.30)"),
        plots.scatter("difference", "lines", band.middles, band.difference)
        | {"line": {"color": plots.PALETTE[0], "width": 2.5}, "hovertemplate": "%{y:.4g}"},
    ]
    for side in (-1.0, 1.0):
        traces.append(
            plots.scatter("margin", "lines", band.middles, side * band.margin)
            | {"line": {"dash": "dash", "color": "#D55E00"}, "showlegend": side > 0, "hoverinfo": "skip"}
        )
    return plots.framed(traces, plots.axis("step"), plots.axis("difference of the training loss"), 380)
