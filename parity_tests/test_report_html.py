"""The HTML report: what it says, that it escapes, that it opens in a browser without a network."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from parity.common.base.errors import RecordError
from parity.common.parity.result import Result, judge
from parity.common.recipes.digits import digits_mlp, digits_transformer
from parity.common.record import RunRecord, read_record
from parity.common.report.html.comparison import why, write_html
from parity.common.report.html.plots import loss_figure, plot_text, thin, to_json
from parity.common.report.html.splits import (
    NOBODY,
    SEVERAL,
    received,
    split_figure,
    split_positions,
    split_rows,
)
from parity.common.scaling.result import Ratio, Scaling
from parity.common.spec import Placement, TrainSpec
from parity_tests.helpers.browser import browsing, installed
from parity_tests.helpers.records import Run
from parity_tests.helpers.scaled import full_scaling

pytest.importorskip("plotly", reason="the report needs plotly")

SCALING_SECTIONS = ["speed", "phases", "losses", "laws", "projection", "targets", "memory"]
HOSTILE = "</script><img src=x onerror=alert(1)>"


def small_spec(steps: int = 30, **changes: object) -> TrainSpec:
    return digits_mlp().model_copy(update={"steps": steps, **changes}).resolved()


def write_record(
    folder: Path, spec: TrainSpec, placement: Placement, noise: float = 0.0, ids_from: int = 0
) -> RunRecord:
    """A record as a run would leave it; no framework.

    `noise` is the relative change of losses and final state; `ids_from` replaces replica 0's first
    sample id of step 3 by that of another replica.
    """
    run = Run.of(spec, placement)
    run.column("loss_sum")[:] *= 1 + noise * (np.arange(spec.steps) % 7)
    final = run.states["final"]
    final |= {name: value * (1 + noise) for name, value in final.items() if name.startswith("parameters")}
    if ids_from:
        run.ids[3][0] = np.array([run.ids[3][ids_from][0], *run.ids[3][0][1:]])
    return run.write(folder)


def write_pair(folder: Path, spec: TrainSpec, noise: float = 0.0, ids_from: int = 0) -> Result:
    reference = write_record(folder / "0", spec, Placement(framework="torch", strategy="single"))
    two = Placement(framework="tensorflow", strategy="mirrored", replicas=2)
    return judge([reference, write_record(folder / "1", spec, two, noise, ids_from)])


def spoil_header(folder: Path, text: str) -> None:
    """Put `text` wherever a header takes free text."""
    path = folder / "header.json"
    header = json.loads(path.read_text())
    header |= {"host": text, "git_revision": text, "started": text, "devices": [text]}
    header |= {"versions": {text: text}, "threads": {text: 1}}
    path.write_text(json.dumps(header))


def timing() -> Scaling:
    speedups = tuple(Ratio(f"torch ddp x{n}", n, 0.9 * n, 0.8 * n, 0.95 * n, 3) for n in (2, 4, 8))
    return replace(full_scaling(), speedups=speedups)


class Page(HTMLParser):
    """The elements of a page with their attributes, and the text outside scripts."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.json: list[str] = []
        self._inside: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        is_json = dict(attrs).get("type") == "application/json"
        self._inside = [tag if not is_json else "json"]

    def handle_endtag(self, tag: str) -> None:
        self._inside = []

    def handle_data(self, data: str) -> None:
        if self._inside == ["json"]:
            self.json.append(data)
        elif self._inside not in (["script"], ["style"]):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def attribute(self, name: str) -> list[str | None]:
        return [attributes[name] for _, attributes in self.elements if name in attributes]


def test_a_pair_within_budget_is_shown_as_parity_with_all_its_parts(tmp_path: Path) -> None:
    result = write_pair(tmp_path, small_spec(), noise=1e-15)
    write_html(replace(result, scaling=timing()), tmp_path / "report.html")
    page = Page(tmp_path / "report.html")
    assert page.attribute("data-verdict") == ["parity"]
    sections = [attributes["id"] for tag, attributes in page.elements if tag == "section"]
    assert sections == ["checks", "loss", "deviation", "splits", *SCALING_SECTIONS, "runs", "terms"]
    assert page.attribute("data-figure") == [
        "figure-loss",
        "figure-deviation",
        "figure-split-1",
        "figure-speedup",
        "figure-phases",
        "figure-projection",
    ]
    assert len(page.json) == 7  # as above, and the split of the other record
    assert all(json.loads(text)["data"] for text in page.json)
    for words in (
        result.records[0].header.spec_hash,
        "tensorflow mirrored x2",
        "every sample once, on its own replica, in 30 steps",
        "2 × 32 15 + 14 at step 22",
        "1.80x [1.60, 1.90]",
        "6x to 7x",
        "not pinned",
        "50.00% (180 of 360)",
        "global_batch_size: 64",
        "No tensor was left out",
    ):
        assert words in page.text


def test_a_divergent_pair_says_so_and_says_where(tmp_path: Path) -> None:
    result = write_pair(tmp_path, small_spec(), noise=1e-6)
    write_html(result, tmp_path / "report.html")
    page = Page(tmp_path / "report.html")
    assert page.attribute("data-verdict") == ["divergent"]
    assert "tensorflow mirrored x2 differs from torch single x1: loss curve at step 1" in page.text
    assert "exceeds" in page.text
    assert "Not measured" in page.text


def test_a_float32_pair_without_a_floor_is_inconclusive(tmp_path: Path) -> None:
    write_html(write_pair(tmp_path, small_spec(precision="float32")), tmp_path / "report.html")
    page = Page(tmp_path / "report.html")
    assert page.attribute("data-verdict") == ["inconclusive"]
    assert "give the permuted runs with --floor" in page.text
    assert "No budget" in page.text


def test_equal_bits_are_said_to_be_equal(tmp_path: Path) -> None:
    assert "equal bits" in why(write_pair(tmp_path, small_spec()))


def test_null_directions_are_listed_with_their_reason(tmp_path: Path) -> None:
    spec = digits_transformer().model_copy(update={"steps": 3}).resolved()
    write_html(write_pair(tmp_path, spec), tmp_path / "report.html")
    text = Page(tmp_path / "report.html").text
    assert "softmax over keys is invariant to a key bias" in text


def test_a_wrong_split_is_drawn_and_told(tmp_path: Path) -> None:
    result = write_pair(tmp_path, small_spec(), ids_from=1)
    write_html(result, tmp_path / "report.html")
    page = Page(tmp_path / "report.html")
    told = r"sample ids at tensorflow mirrored x2, step 3: sample \d+ went to replicas 0 and 1 \(2 of "
    assert re.search(told, page.text)
    assert "A cross marks" in page.text
    marks = json.loads(page.json[3])["data"][-1]
    assert (marks["mode"], marks["x"]) == ("markers", ["3"])
    record = result.records[1]
    replica, _ = received(record, split_rows(record), split_positions(record))
    assert replica[0, 3] == NOBODY
    assert replica[32, 3] == SEVERAL
    assert (replica[:32, 2] == 0).all()
    assert (replica[32:, 2] == 1).all()


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    folder = tmp_path / HOSTILE.replace("/", "")
    write_pair(folder, small_spec())
    spoil_header(folder / "1", HOSTILE)
    result = judge([read_record(folder / "0"), read_record(folder / "1")])
    scaling = replace(timing(), speedups=(Ratio(HOSTILE, 2, 1.8, 1.7, 1.9, 3),))
    write_html(replace(result, scaling=scaling), tmp_path / "report.html")
    page = Page(tmp_path / "report.html")
    assert "img" not in {tag for tag, _ in page.elements}
    assert page.text.count(HOSTILE) >= 6
    # plotly would make an element of a raw tag in a name.
    assert any(
        html.escape(HOSTILE) in trace.get("name", "")
        for text in page.json
        for trace in json.loads(text)["data"]
    )
    assert not any("<" in text for text in page.json)


def test_plotly_does_not_read_names_as_templates() -> None:
    assert plot_text("<b>%{x}") == "&lt;b&gt;%&#123;x}"


def test_the_file_loads_nothing_and_allows_nothing_to_load(tmp_path: Path) -> None:
    write_html(write_pair(tmp_path, small_spec()), tmp_path / "report.html")
    page = Page(tmp_path / "report.html")
    for name in ("src", "action", "data", "srcset"):
        assert page.attribute(name) == []
    assert all(str(link).startswith(("#", "data:text/csv;base64,")) for link in page.attribute("href"))
    assert not {"link", "iframe", "object", "base"} & {tag for tag, _ in page.elements}
    policy = next(a["content"] for _, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "http" not in policy
    assert "script-src 'unsafe-inline'" not in policy


def test_the_file_is_replaced_whole(tmp_path: Path) -> None:
    result = write_pair(tmp_path / "runs", small_spec())
    target = tmp_path / "report.html"
    target.write_text("old")
    write_html(result, target)
    assert target.read_text().startswith("<!DOCTYPE html>")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report.html", "runs"]
    with pytest.raises(RecordError, match="cannot be written"):
        write_html(result, tmp_path / "absent" / "report.html")


def test_thinning_keeps_extremes_ends_and_what_is_not_finite() -> None:
    curve = np.sin(np.arange(100_000) / 500)
    curve[[41_234, 77_777, 500]] = [9.0, -9.0, np.nan]
    rows = thin(curve, 2000)
    assert len(rows) <= 2000
    assert (np.diff(rows) > 0).all()
    assert {0, 99_999, 41_234, 77_777, 500} <= set(rows.tolist())
    for bucket in np.array_split(np.arange(len(curve)), (2000 - 2) // 3):
        kept = curve[np.intersect1d(bucket, rows)]
        assert np.nanmin(kept) == np.nanmin(curve[bucket])
        assert np.nanmax(kept) == np.nanmax(curve[bucket])


@pytest.mark.parametrize("size", [0, 1, 8, 2000])
def test_short_curves_are_not_thinned(size: int) -> None:
    assert thin(np.zeros(size), 2000).tolist() == list(range(size))


def test_thinning_to_almost_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="received 3"):
        thin(np.zeros(10), 3)


def test_long_records_of_large_batches_stay_small(tmp_path: Path) -> None:
    record = write_pair(tmp_path, small_spec(steps=60, global_batch_size=1000)).records[1]
    assert len(to_json(split_figure(record))) < 400_000
    steps = np.arange(100_000.0)
    long = replace(record, columns={**record.columns, "step": steps, "loss_sum": steps, "count": steps + 1})
    assert len(to_json(loss_figure([long]))) < 60_000


def test_split_window_holds_the_first_steps_and_the_tail_of_the_first_epoch(tmp_path: Path) -> None:
    spec = small_spec(steps=200, global_batch_size=16)  # 90 steps an epoch
    record = write_pair(tmp_path, spec).records[1]
    assert split_rows(record).tolist() == [*range(50), 86, 87, 88, 89]
    assert split_rows(record, [3, 120]).tolist() == [*range(50), 86, 87, 88, 89, 120]
    columns = split_figure(record, [3, 120])["data"][0]["x"]
    assert len(set(columns)) == len(columns) == 55 + 2
    assert (columns[49], columns[51], columns[56]) == ("49", "86", "120")


def rendered(target: Path, folder: Path) -> Page:
    """The page after a real browser has run its scripts."""
    if installed() is None:
        pytest.skip("chromium is not installed (apt-get install -y chromium)")
    with browsing(folder) as browser:
        browser.open(target, 1280)
        text = browser.value("document.documentElement.outerHTML")
    (folder / "rendered.html").write_text(text, encoding="utf-8")
    return Page(folder / "rendered.html")


def test_a_real_browser_draws_every_figure_without_an_error(tmp_path: Path) -> None:
    write_pair(tmp_path / "runs", small_spec(), noise=1e-15)
    spoil_header(tmp_path / "runs" / "1", HOSTILE)
    result = judge([read_record(tmp_path / "runs" / name) for name in ("0", "1")])
    spoiled = replace(timing(), between=(Ratio(HOSTILE, 1, 1.0, 1.0, 1.0, 3),))
    spoiled = replace(spoiled, speedups=(*spoiled.speedups, Ratio(HOSTILE, 2, 1.0, 0.9, 1.1, 3)))
    target = tmp_path / "report.html"
    write_html(replace(result, scaling=spoiled), target)
    page = rendered(target, tmp_path)
    assert page.attribute("data-error") == []
    assert page.attribute("data-plots") == ["drawn"]
    classes = [str(name).split() for name in page.attribute("class")]
    assert sum("js-plotly-plot" in names for names in classes) == 6
    assert sum("main-svg" in names for names in classes) >= 6
    bars = [a for tag, a in page.elements if tag == "path" and "stroke-opacity" in str(a.get("style"))]
    assert len(bars) > 30  # the phases of ten configurations
    assert sum("heatmaplayer" in names for names in classes) >= 1
    # Lines really have points: the path of each trace is drawn.
    paths = [a.get("d") for tag, a in page.elements if tag == "path" and a.get("class") == "js-line"]
    assert sum(len(path or "") > 100 for path in paths) >= 3  # two losses, one deviation
    assert "onerror" not in {name for _, attributes in page.elements for name in attributes}
    assert "img" not in {tag for tag, _ in page.elements}
    assert HOSTILE in page.text


def test_a_browser_blocks_and_reports_what_was_smuggled_in(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    write_html(write_pair(tmp_path / "runs", small_spec()), target)
    text = target.read_text(encoding="utf-8")
    smuggled = "<main><script>document.documentElement.dataset.smuggled = 'ran'</script>"
    target.write_text(text.replace("<main>", smuggled, 1), encoding="utf-8")
    page = rendered(target, tmp_path)
    assert page.attribute("data-smuggled") == []
    assert [str(error).split()[:2] for error in page.attribute("data-error")] == [
        ["blocked", "script-src-elem"]
    ]


def test_a_broken_figure_is_said_on_the_page(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    write_html(write_pair(tmp_path / "runs", small_spec()), target)
    text = target.read_text(encoding="utf-8")
    target.write_text(text.replace('id="figure-loss">{', 'id="figure-loss">{{', 1), encoding="utf-8")
    page = rendered(target, tmp_path)
    assert page.attribute("data-plots") == []
    assert len(page.attribute("data-error")) == 1
    assert "Part of this page could not be drawn" in page.text
