"""What all pages have: contents, meanings, dates, next steps, a light form, curves to save; looked at in a browser."""

from __future__ import annotations

import ast
import base64
import csv
import io
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from parity.common.assertions.assertions import write_failure
from parity.common.commands.main import parser_of
from parity.common.parity import compare, followed
from parity.common.parity.result import Result, judge
from parity.common.record import read_record
from parity.common.record.trace import TITLES
from parity.common.report.html.comparison import write_html
from parity.common.report.html.diagnosis import COLUMNS, Subject, write_diagnosis_html
from parity.common.report.html.drawn import curves, svg
from parity.common.report.html.page import MODE, utc
from parity.common.report.html.plots import (
    Figure,
    axis,
    deviation_figure,
    framed,
    loss_figure,
    scatter,
    switchable,
)
from parity.common.report.html.scaling_plots import figures
from parity.common.report.meanings import MEANINGS
from parity.common.report.next_steps import after_comparison, after_diagnosis
from parity.common.report.study import COLUMNS as STUDY_COLUMNS
from parity.common.study.metrics import METRICS
from parity_tests.helpers.browser import Browser, browsing, installed
from parity_tests.helpers.records import DDP, TORCH, Run, tiny_spec, write_pair
from parity_tests.helpers.scaled import full_scaling
from parity_tests.test_report_diagnosis import synthetic
from parity_tests.test_report_html import HOSTILE, Page, small_spec, spoil_header

pytest.importorskip("plotly", reason="the figures need plotly")


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MODE, "light")


def comparison(folder: Path) -> Path:
    """A page with every part: divergent, with a scaling analysis."""
    result = write_pair(folder / "runs", small_spec(steps=200), noise=1e-6)
    write_html(replace(result, scaling=full_scaling()), folder / "report.html")
    return folder / "report.html"


def diagnosis(folder: Path) -> Path:
    records = write_pair(folder / "runs", small_spec()).records
    write_diagnosis_html(synthetic(), Subject.of_records(*records), folder / "diagnosis.html")
    return folder / "diagnosis.html"


def failure(folder: Path) -> Path:
    write_failure(folder / "failure.html", ["not the same"], synthetic().steps[0].injected, None)
    return folder / "failure.html"


@pytest.mark.parametrize("make", [comparison, diagnosis, failure])
def test_every_link_within_a_page_leads_somewhere(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    page = Page(make(tmp_path))
    ids = page.attribute("id")
    assert len(ids) == len(set(ids))
    links = [str(link) for link in page.attribute("href") if str(link).startswith("#")]
    assert {link.removeprefix("#") for link in links} <= set(ids)
    assert set(page.attribute("aria-describedby")) <= set(ids)
    titled = [a["id"] for tag, a in page.elements if tag == "section"]
    assert make is failure or {f"#{name}" for name in titled} <= set(links)


def names_of_checks() -> Iterator[str]:
    """What `compare` calls its checks, from its source: first arguments that are known without running it."""
    makers = {"Check", "_equal", "_exact", "_worst_tensor"}
    for call in ast.walk(ast.parse(Path(compare.__file__).read_text())):
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") in makers:
            try:
                yield eval(ast.unparse(call.args[0]), vars(compare))
            except NameError:
                pass  # a parameter: the name comes from another such call, or is one of those below


def test_everything_that_is_checked_has_a_meaning() -> None:
    curves_of = {name.replace("_", " ") for name in compare.CURVES} - {"loss sum"}
    known = {*names_of_checks(), *compare._TITLES.values(), *curves_of}
    assert {"sample ids", "replicas equal", "gradients in float32", "loss scale"} <= known
    stages = set(re.findall(r'FollowedStage\("(\w+)"', Path(followed.__file__).read_text())) | {
        "gradients",
        "buffers",
    }
    figure_names = {name.lstrip("#") for name in STUDY_COLUMNS} - {"figure"}
    wanted = known | stages | set(TITLES.values()) | set(COLUMNS.values()) | figure_names | set(METRICS)
    assert wanted - set(MEANINGS) == set()
    assert all(text.endswith(".") and len(text) < 140 for text in MEANINGS.values())


def test_a_check_says_its_meaning_where_it_stands_and_in_the_list(tmp_path: Path) -> None:
    page = Page(comparison(tmp_path))
    terms = [a for tag, a in page.elements if a.get("class") == "term"]
    assert {a["data-means"] for a in terms} >= {MEANINGS["loss curve"], MEANINGS["Efficiency"]}
    for text in {str(a["data-means"]) for a in terms}:
        assert page.text.count(text) == 1  # in the list; an attribute is not text


def test_a_page_made_again_says_the_date_of_its_records_and_its_own(tmp_path: Path) -> None:
    write_pair(tmp_path, small_spec())
    for name in ("reference", "candidate"):
        spoil_header(tmp_path / name, "2001-02-03T04:05:06+00:00")
    write_html(
        judge([read_record(tmp_path / name) for name in ("reference", "candidate")]), tmp_path / "report.html"
    )
    text = Page(tmp_path / "report.html").text
    head = text.partition("Checks against")[0]
    assert "Run 2001-02-03 04:05 UTC" in head and "Host" in head and "Versions" in head
    assert re.search(r"Page written 20[2-9]\d-\d\d-\d\d \d\d:\d\d UTC", head)


@pytest.mark.parametrize("time", ["2026-03-01T12:30:59.25+00:00", "2026-03-01T12:30:59Z"])
def test_times_are_read_by_people(time: str) -> None:
    assert utc(time) == "2026-03-01 12:30 UTC" and utc("yesterday") == "yesterday"


@pytest.mark.parametrize(
    ("losses", "log"),
    [([4.0, 1e-3], True), ([4.0, 1.0], False), ([4.0, 0.0], None), ([np.nan, 4.0, 1e-3], True)],
)
def test_losses_that_span_decades_are_drawn_on_a_log_axis(losses: list[float], log: bool | None) -> None:
    figure = switchable(
        framed([scatter("a", "lines", range(len(losses)), losses)], axis("step"), axis("loss"), 400)
    )
    assert figure["log"] is log and (figure["layout"]["yaxis"].get("type") == "log") is bool(log)


# What to do next.


def test_a_divergent_pair_is_to_be_diagnosed(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    result = write_pair(folder, tiny_spec(), noise=1e-6)
    (step,) = after_comparison(result)
    words = shlex.split(step.command)
    assert words[:4] == ["parity", "diagnose", *(str(record.folder) for record in result.records)]
    parser_of().parse_args(words[1:])
    assert step.line == f"{step.why}: {step.command}"
    write_html(result, tmp_path / "report.html")
    page = Page(tmp_path / "report.html")
    assert "next" in page.attribute("id") and " ".join(step.command.split()) in page.text


def test_parity_needs_no_next_step(tmp_path: Path) -> None:
    result = write_pair(tmp_path, tiny_spec())
    assert after_comparison(result) == []
    write_html(result, tmp_path / "report.html")
    assert "next" not in Page(tmp_path / "report.html").attribute("id")


def test_commands_of_an_inconclusive_pair_can_be_given(tmp_path: Path) -> None:
    proof, floor = after_comparison(write_pair(tmp_path / "a", tiny_spec("precision=float32")))
    for step in (proof, floor):
        parser_of().parse_args(shlex.split(step.command)[1:])
    assert "precision=float64" in proof.command and "--spec spec.yaml" in proof.command
    assert "--floor" in floor.command
    recipe = after_comparison(write_pair(tmp_path / "b", small_spec(steps=300, precision="float32")))
    assert "--recipe" not in recipe[0].command or "digits_mlp" in recipe[0].command


def test_a_session_gives_its_noise_floor_to_the_diagnosis(tmp_path: Path) -> None:
    run = Run.of(tiny_spec("precision=float32"), TORCH)
    session = tmp_path / "s"
    for seed in range(4):
        run.noisy(1e-7, seed).write(session / "floor" / f"0{seed}_torch")
    records = [
        run.write(session / "runs/00_torch"),
        run.noisy(1e-2, 9).copy(DDP).write(session / "runs/01_torch"),
    ]
    result = judge(records, [read_record(path) for path in sorted((session / "floor").iterdir())])
    assert result.verdict == "divergent"
    diagnose, proof = after_comparison(result)
    assert f"--floor {session}/floor/*" in diagnose.command and diagnose.command.endswith(
        f"--out {session}-diagnosis"
    )
    assert "precision=float64" in proof.command


def test_after_a_diagnosis_the_defect_is_mended(tmp_path: Path) -> None:
    records = write_pair(tmp_path, tiny_spec()).records
    fix = synthetic().findings[0].explanation.fix  # type: ignore[union-attr]
    (step,) = after_diagnosis(synthetic(), records)
    assert fix in step.why and step.command == f"parity compare {records[0].folder} {records[1].folder}"
    (step,) = after_diagnosis(synthetic())
    assert fix in step.why and not step.command
    assert after_diagnosis(replace(synthetic(), verdict="parity")) == []
    unsure = replace(synthetic(), verdict="inconclusive")
    assert "precision=float64" in after_diagnosis(unsure, records)[0].command
    assert "--precision float64" in after_diagnosis(unsure)[0].why


# Light pages.


@pytest.mark.usefixtures("light")
def test_a_light_page_is_small_and_has_drawings(tmp_path: Path) -> None:
    pair = write_pair(tmp_path / "runs", small_spec(steps=2100), noise=1e-6)
    count = 5
    records, comparisons = pair.records[:1] + pair.records[1:] * count, pair.comparisons * count
    result = Result(records, comparisons, pair.audits[:1] + pair.audits[1:] * count, full_scaling())
    write_html(result, tmp_path / "light.html")
    assert (tmp_path / "light.html").stat().st_size < 300_000
    page = Page(tmp_path / "light.html")
    tags = [tag for tag, _ in page.elements]
    assert "script" not in tags and tags.count("path") > 50 and "A light page" in page.text


def test_without_the_flag_a_page_is_not_light(tmp_path: Path) -> None:
    assert comparison(tmp_path).stat().st_size > 300_000


def test_without_plotly_a_page_is_light_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "plotly.offline", None)
    text = Page(comparison(tmp_path)).text
    assert "pip install 'tf-torch-parity[report]'" in text or "pip install '.[report]'" in text


@pytest.mark.usefixtures("light")
def test_hostile_names_stay_text_in_drawings(tmp_path: Path) -> None:
    result = write_pair(tmp_path, small_spec(), noise=1e-6)
    spoiled = tuple(replace(c, candidate=HOSTILE) for c in result.comparisons)
    write_html(replace(result, comparisons=spoiled), tmp_path / "report.html")
    page = Page(tmp_path / "report.html")
    assert not {"img", "script"} & {tag for tag, _ in page.elements}
    assert page.text.count(HOSTILE) >= 3


def test_a_drawing_breaks_at_what_is_not_finite() -> None:
    def moves(values: list[float]) -> int:
        text = svg(
            framed([scatter("a", "lines", range(len(values)), values)], axis("step"), axis("loss"), 400)
        )
        found = re.search(r'<path d="([^"]*)" fill="none"', str(text))
        assert found is not None
        return found[1].count("M")

    assert moves([1.0, 2.0, 3.0]) == 1 and moves([1.0, np.nan, 3.0, 2.0, np.inf, 4.0]) == 3


# Curves to save.


def read_csv(link: str) -> list[list[str]]:
    head, _, data = link.partition(",")
    assert head == "data:text/csv;base64"
    return list(csv.reader(io.StringIO(base64.b64decode(data).decode())))


def test_saved_curves_are_the_recorded_numbers(tmp_path: Path) -> None:
    result = write_pair(tmp_path, small_spec(), noise=0)
    for record, (name, link) in zip(result.records, curves(loss_figure(result.records)), strict=True):
        titles, *rows = read_csv(link)
        assert (name, titles) == (record.label, ["step", record.label])
        assert [float(value) for _, value in rows] == record.loss.tolist()
    links = dict(curves(deviation_figure(result.comparisons)))
    drawn_at_the_bottom = read_csv(links[result.comparisons[0].candidate])[1:]
    assert {value for _, value in drawn_at_the_bottom} == {"0.0"}


def test_a_name_is_no_formula_for_a_spreadsheet() -> None:
    figure: Figure = framed([scatter("=HYPERLINK(1)", "lines", [0], [1])], axis("step"), axis("loss"), 400)
    assert read_csv(curves(figure)[0][1])[0] == ["step", "'=HYPERLINK(1)"]


def test_nothing_is_projected_where_nothing_checks_it() -> None:
    full = full_scaling()
    unchecked = tuple(replace(each, error=float("nan")) for each in full.projections)
    assert "projection" in figures(full) and "projection" not in figures(replace(full, projections=unchecked))


def test_a_page_does_not_project_where_nothing_checks_it(tmp_path: Path) -> None:
    result = write_pair(tmp_path, small_spec())
    unchecked = tuple(replace(each, error=float("nan")) for each in full_scaling().projections)
    write_html(
        replace(result, scaling=replace(full_scaling(), projections=unchecked)), tmp_path / "report.html"
    )
    text = Page(tmp_path / "report.html").text
    assert "Not projected: no measured point" in text and "1,024" not in text


# In a browser.


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if installed() is None:
        pytest.skip("chromium is not installed (apt-get install -y chromium)")
    with browsing(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.mark.sweep
@pytest.mark.parametrize("make", [comparison, diagnosis, failure])
@pytest.mark.parametrize("dark", [False, True])
def test_pages_fit_narrow_screens(
    tmp_path: Path, browser: Browser, make: Callable[[Path], Path], dark: bool
) -> None:
    browser.open(make(tmp_path), 390, dark)
    assert browser.value("document.documentElement.dataset.error") is None
    wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not browser.value(wide)
    colour = browser.value("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", colour))) < 200) is dark
    browser.value("document.querySelector('main').style.minWidth = '600px'")
    assert browser.value(wide)


def test_a_meaning_is_shown_on_focus_by_keyboard(tmp_path: Path, browser: Browser) -> None:
    browser.open(comparison(tmp_path), 1400)
    shown = "getComputedStyle(document.querySelector('.term'), '::after').content"
    assert browser.value(shown) == "none"
    for _ in range(60):
        browser.press("Tab")
        if browser.value("document.activeElement.className") == "term":
            break
    assert browser.value("document.activeElement.textContent") == "sample ids"
    assert browser.value(shown) == f'"{MEANINGS["sample ids"]}"'


def test_a_switch_changes_the_axis_and_a_figure_is_saved_as_png_offline(
    tmp_path: Path, browser: Browser
) -> None:
    browser.open(comparison(tmp_path), 1400)
    loss = "document.querySelector('[data-figure=figure-loss]')"
    kinds = []
    for _ in range(2):
        kinds.append(browser.value(f"{loss}._fullLayout.yaxis.type"))
        browser.value("document.querySelector('[data-log]').click()")
    assert sorted(kinds) == ["linear", "log"]
    picture = browser.value(f"Plotly.toImage({loss}, {{format: 'png'}})")
    head, _, data = picture.partition(",")
    assert head == "data:image/png;base64" and base64.b64decode(data).startswith(b"\x89PNG")
    assert browser.value("document.querySelectorAll('[data-title=\"Download plot as a PNG\"]').length") > 0
    outside = (
        "performance.getEntriesByType('resource').map(r => r.name).filter(n => !/^(data|blob):/.test(n))"
    )
    assert browser.value(outside) == []
    assert browser.value("document.documentElement.dataset.error") is None
