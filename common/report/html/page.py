"""What every page shares: templates, scripts, a policy that lets nothing else run, writing whole or not at all."""

from __future__ import annotations

import base64
import hashlib
import math
from pathlib import Path
from typing import Any

from parity import __version__
from parity.common.base.errors import MissingPackageError, RecordError, how_to_install
from parity.common.base.files import naming_os_errors, replacing
from parity.common.base.plain import without_controls
from parity.common.report.html import plots

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

    Args:
        path: the file.
        template: a file beside this module.
        words: what the template says, unescaped: the template escapes.
        figures: by name, for elements whose data-figure is figure-NAME; a page without any has no plotly.
        script: another file beside this module, which brings the page to life; None: a page without scripts.

    Raises:
        MissingPackageError: there are figures, and plotly is not installed.
        RecordError: the file cannot be written.
    """
    import jinja2
    from markupsafe import Markup

    scripts = {}
    if script is not None:
        names = {"guard": "guard.js", "page": script}
        scripts = {name: (_HERE / file).read_text(encoding="utf-8") for name, file in names.items()}
    if figures:
        try:
            import plotly.offline
        except ImportError as error:
            needed = f"the HTML report needs {error.name}; {how_to_install('report')}"
            raise MissingPackageError(needed) from None
        plotly_js = plotly.offline.get_plotlyjs()
        scripts["plotly"] = plotly_js.replace("\r\n", "\n").replace("</script", "<\\/script")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        finalize=_finalized,
    )
    environment.globals |= {"version": __version__, "symbols": SYMBOLS}
    environment.filters |= {"short": short, "breakable": _breakable}
    page = environment.get_template(template).render(
        words,
        policy=_policy(list(scripts.values())),
        scripts={name: Markup(text) for name, text in scripts.items()},
        figures={name: Markup(plots.to_json(figure)) for name, figure in figures.items()},
    )
    with naming_os_errors(RecordError, f"{path}: the report cannot be written"), replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8", newline="\n")


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
