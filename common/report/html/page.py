"""What every page shares: templates, scripts, a policy that lets nothing else run, writing whole or not at all."""

from __future__ import annotations

import base64
import hashlib
import math
import os
import re
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from parity import __version__
from parity.common.base.errors import RecordError, how_to_install
from parity.common.base.files import naming_os_errors, replacing
from parity.common.base.plain import without_controls
from parity.common.report.html import drawn, plots
from parity.common.report.meanings import MEANINGS

MODE = "PARITY_REPORT"  # "light": pages without the plotting library
_HERE = Path(__file__).parent
SYMBOLS = {"parity": "✓", "divergent": "✕", "inconclusive": "?"}


def write_page(
    path: Path,
    template: str,
    words: dict[str, Any],
    figures: dict[str, plots.Figure],
    script: str | None = "report.js",
) -> None:
    """Write a page, whole or not at all, replacing an older one.

    A light page, under 300 KB, has its figures as SVG instead of plotly's: where the environment has PARITY_REPORT=light,
    or plotly is not installed.

    Args:
        path: the file.
        template: a file beside this module.
        words: what the template says, unescaped: the template escapes.
        figures: by name, which the template draws with `plot`; a page without any has no plotly.
        script: another file beside this module, which brings the page to life; None: a page without scripts.

    Raises:
        RecordError: the file cannot be written.
    """
    import jinja2
    from markupsafe import Markup

    plotly = _plotly() if figures else None
    light = bool(figures) and (plotly is None or os.environ.get(MODE) == "light")
    scripts = {}
    if script is not None and not (light and script == "report.js"):
        names = {"guard": "guard.js", "page": script}
        scripts = {name: (_HERE / file).read_text(encoding="utf-8") for name, file in names.items()}
    if light:
        figures = {name: drawn.few(figure) for name, figure in figures.items()}
    elif plotly is not None:
        scripts["plotly"] = plotly.replace("\r\n", "\n").replace("</script", "<\\/script")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        finalize=_finalized,
    )
    terms: dict[str, str] = {}
    environment.globals |= {
        "version": __version__,
        "written": utc(datetime.now(timezone.utc).isoformat(timespec="minutes")),
        "symbols": SYMBOLS,
        "light": light,
        "why_light": "" if plotly is not None else f" Plotly is not installed; {how_to_install('report')}.",
        "terms": terms,
        "svg": {name: Markup(drawn.svg(figure) or "") for name, figure in figures.items()} if light else {},
        "curves": {name: drawn.curves(figure) for name, figure in figures.items()},
        "log": {name: figure.get("log") for name, figure in figures.items()},
    }
    environment.filters |= {"short": short, "breakable": _breakable, "anchor": _anchor, "contents": _contents}
    environment.filters["term"] = lambda name: _term(name, terms)
    page = environment.get_template(template).render(
        words,
        policy=_policy(list(scripts.values())),
        scripts={name: Markup(text) for name, text in scripts.items()},
        figures={} if light else {name: Markup(plots.to_json(figure)) for name, figure in figures.items()},
    )
    with naming_os_errors(RecordError, f"{path}: the report cannot be written"), replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8", newline="\n")


def _plotly() -> str | None:
    """The plotting library's own script; None where it is not installed."""
    try:
        import plotly.offline
    except ImportError:
        return None
    return str(plotly.offline.get_plotlyjs())


def _term(name: str, terms: dict[str, str]) -> str:
    """A name with its meaning on hover and focus, as a link to the list at the end; a name without one as it is.

    The same text is in the list, where assistive technology finds it (aria-describedby).
    """
    from markupsafe import Markup

    if name not in MEANINGS:
        return name
    terms[name] = MEANINGS[name]
    link = '<a class="term" href="#{0}" aria-describedby="{0}" data-means="{1}">{2}</a>'
    return Markup(link).format(_anchor(name), MEANINGS[name], name)


def _anchor(name: str) -> str:
    return "term-" + re.sub(r"\W+", "-", name)


def _contents(body: str) -> list[tuple[str, str]]:
    """The sections of a page's body: id, and title as it stands there, escaped."""
    from markupsafe import Markup

    found = re.findall(r'<section id="([\w-]+)"[^>]*>\s*<h2>(.*?)</h2>', body, re.DOTALL)
    return [(name, Markup(title)) for name, title in found]


def utc(time: str) -> str:
    """An ISO 8601 time as people read it: '2026-03-01 12:30 UTC'."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)[\d:.]*(?:\+00:00|Z)", time)
    return f"{found[1]} {found[2]} UTC" if found else time


def _policy(scripts: list[str]) -> str:
    """Nothing from any network, and no script but exactly these."""
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _finalized(value: object) -> object:
    """What a template shows; names that others chose lose their control characters."""
    from markupsafe import Markup

    return without_controls(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def short(value: float) -> str:
    """A deviation for people."""
    if math.isnan(value):
        return "not known"
    return "infinite" if math.isinf(value) else f"{value:.2g}"


def _breakable(name: str) -> str:
    """A tensor's name, escaped, that may be broken at its slashes."""
    from markupsafe import Markup, escape

    return Markup(str(escape(without_controls(name))).replace("/", "/<wbr>"))
