"""The benchmark table says what its measurements hold. Nothing is timed here."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import harness, models, rows, shared
from benchmarks.harness import Row, Target, cost, speed
from benchmarks.rows import ROWS, tool_lines
from parity.common.base.errors import RecordError, RunError, SpecError
from parity.common.spec.layers import BatchNorm
from parity.common.spec.sources import Npz
from parity_tests.helpers import ROOT

ROW = Row(
    "pair",
    "Ours beside another",
    lambda rounds, log: {},
    (
        speed("throughput, ours / other", "ours", "other", Target(1.1)),
        cost("time, ours / other", "ours", "other", Target(0.9, at_most=True)),
        speed("noise", "ours", "again"),
    ),
)
# Ours takes 10 ms, the other 11.5 ms, in every round a little else.
SECONDS = {
    "ours": [0.0100, 0.0102, 0.0098, 0.0100, 0.0101],
    "other": [0.0115, 0.0116, 0.0114, 0.0115, 0.0117],
    "again": [0.0100, 0.0101, 0.0099, 0.0101, 0.0100],
}


def keep(folder: Path, **changed: Any) -> None:
    facts = {
        "name": "pair",
        "date": "2026-01-02",
        "machine": "a machine, 2 cores",
        "rounds": 5,
        "versions": {"torch": "2.13"},
        "seconds": SECONDS,
    }
    (folder / "pair.json").write_text(json.dumps({**facts, **changed}))


def lines(seconds: dict[str, list[float]]) -> list[harness.Line]:
    return harness.lines_of(ROW, {"seconds": seconds})


def test_table_is_composed_from_what_is_kept(tmp_path):
    keep(tmp_path)
    other = Row("other", "Not measured", lambda rounds, log: {})
    page = harness.compose([ROW, other], tmp_path)
    assert page.missing == ["other"] and page.unreached == [] and page.damaged == []
    assert "Machine: a machine, 2 cores." in page.text and "torch 2.13" in page.text
    assert "Measured: 2026-01-02." in page.text and "Not measured: other." in page.text
    (row,) = [line for line in page.text.splitlines() if line.startswith("| throughput")]
    assert (
        [cell.strip() for cell in row.strip("|").split("|")][::4]
        == [
            "throughput, ours / other",
            "≥ 1.1",
        ]
        and "| 1.150 |" in row
        and "| yes |" in row
        and "| 11.5 / 10.0 |" in row
    )


def test_missed_target_is_said(tmp_path):
    keep(tmp_path, seconds={**SECONDS, "other": SECONDS["again"]})
    page = harness.compose([ROW], tmp_path)
    assert page.unreached == ["pair: throughput, ours / other", "pair: time, ours / other"]
    assert page.text.count("| no |") == 2 and "| yes |" not in page.text


def test_interval_holds_the_rounds_ratios():
    line = lines(SECONDS)[0]
    low, high = map(float, line.interval.split(" - "))
    # Of 1.137, 1.15, 1.15, 1.158 and 1.163.
    assert 1.09 < low < 1.15 <= high < 1.2 and line.quartiles == "1.150 - 1.158"
    assert lines({name: values[:1] for name, values in SECONDS.items()})[0].interval == ""


def test_busy_machine_is_named(tmp_path):
    keep(tmp_path, cores_busy_before=0.1)
    assert "busy" not in harness.compose([ROW], tmp_path).text
    keep(tmp_path, cores_busy_before=1.26)
    assert "2026-01-02; 1.3 cores were busy with other things" in harness.compose([ROW], tmp_path).text
    assert 0 <= harness.busy_cores(0.02) <= (os.cpu_count() or 1)


def test_processor_time_is_shown_where_it_is_known(tmp_path):
    assert lines(SECONDS)[0].processor == ""
    keep(tmp_path, cpu_seconds={"ours": [2.0] * 5, "other": [3.0] * 5})
    page = harness.compose([ROW], tmp_path)
    assert page.text.count("| 1.500 |") == 1 and page.text.count("| 0.667 |") == 1


def test_target_inside_the_interval_is_not_certain():
    near = {**SECONDS, "other": [0.0100, 0.0120, 0.0109, 0.0118, 0.0112]}
    assert lines(SECONDS)[0].certain and not lines(near)[0].certain
    assert lines(SECONDS)[2].certain  # no target, nothing to be certain of


@pytest.mark.parametrize(
    ("target", "good", "bad", "text"),
    [
        (Target(0.99), 0.99, 0.9899, "≥ 0.99"),
        (Target(1.0, beyond=True), 1.001, 1.0, "> 1"),
        (Target(1.02, at_most=True), 1.02, 1.021, "≤ 1.02"),
        (Target(2.0, at_most=True, beyond=True), 1.99, 2.0, "< 2"),
    ],
)
def test_targets(target, good, bad, text):
    assert target.reached(good) and not target.reached(bad) and not target.reached(float("nan"))
    assert str(target) == text


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"name": "another"}, "another row's"),
        ({"rounds": 6}, "cut short"),
        ({"seconds": {"ours": [1.0] * 5}}, "variant 'other' is missing"),
    ],
)
def test_measurement_that_does_not_serve_is_not_shown(tmp_path, changed, message):
    keep(tmp_path, **changed)
    with pytest.raises(RecordError, match=message):
        harness.kept(ROW, tmp_path)
    page = harness.compose([ROW], tmp_path)
    assert page.missing == ["pair"] and message in page.damaged[0]


@pytest.mark.parametrize(
    ("value", "wanted", "holds"),
    [
        ("1.93 s (median of 5, 1.8 s to 2.1 s)", "under 2 s", True),
        ("2.01 s (median of 5, 1.8 s to 2.1 s)", "under 2 s", False),
        ("980 bytes a step", "under 1 KB", True),
        ("1100 bytes a step", "under 1 KB", False),
        ("1.2 million sample ids/s", "at least 1 million", True),
        ("0.9 million sample ids/s", "at least 1 million", False),
        ("90 MB, 91 MB", "constant", True),
        ("90 MB, 120 MB", "constant", False),
    ],
)
def test_figures_of_the_tools_are_judged(value, wanted, holds):
    (line,) = tool_lines({"rows": [{"what": "it", "value": value, "wanted": wanted}]})
    assert (line.figure, line.target, line.reached) == (value, wanted, holds)


@pytest.mark.parametrize("error", [KeyError("block_steps"), ValueError("no JSON"), OSError("no disk")])
def test_row_that_cannot_be_measured_leaves_the_others(tmp_path, monkeypatch, error):
    def fail(rounds: int, log: Path) -> dict[str, Any]:
        raise error

    monkeypatch.setattr(harness, "busy_cores", lambda: 0.0)
    with pytest.raises(RunError, match=f"broken: {type(error).__name__}: "):
        harness.measure(Row("broken", "Broken", fail), 1, tmp_path)
    assert not (tmp_path / "broken.json").exists()


def test_command_that_fails_is_named_with_its_last_words(tmp_path):
    log = tmp_path / "log"
    command = [sys.executable, "-c", "print('a line'); print('{}')"]
    assert harness.output_of(command, log, 60) == "{}"
    with pytest.raises(RunError, match=r"^it ended with code 1: it broke \(log: "):
        harness.output_of([sys.executable, "-c", "import sys; sys.exit('it broke')"], log, 60)
    with pytest.raises(RunError, match=r"more than 0.2 s"):
        harness.output_of([sys.executable, "-c", "import time; time.sleep(60)"], log, 0.2)


def test_page_keeps_what_people_wrote(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(f"# Mine\n\n{harness.BEGIN}\nold\n{harness.END}\n\nA tail.\n")
    harness.write_page(path, "new\n")
    assert path.read_text() == f"# Mine\n\n{harness.BEGIN}\n\nnew\n\n{harness.END}\n\nA tail.\n"
    path.write_text("# Mine, without marks\n")
    with pytest.raises(RecordError, match="no place for the table"):
        harness.write_page(path, "new\n")
    assert path.read_text() == "# Mine, without marks\n"


def test_docs_page_has_a_place_for_the_table():
    text = (ROOT / "docs" / "evidence" / "benchmarks.md").read_text()
    assert text.count(harness.BEGIN) == text.count(harness.END) == 1


def test_blocks_that_save_hold_whole_numbers_of_checkpoints():
    assert {int(steps) % shared.SAVED_EVERY for steps, _ in rows._SAVING_BLOCKS.values()} == {0}
    saving = shared.config_of("ours_saving", "torch:ddp:2").run_options.save
    assert saving is not None and saving.every_steps == shared.SAVED_EVERY and saving.in_background
    assert shared.config_of("ours", "torch:ddp:2").run_options.save is None
    assert [str(ratio.target) for row in ROWS for ratio in row.ratios if "checkpoint" in ratio.what] == [
        "< 1.03"
    ] * 4


def test_a_block_waits_for_what_it_saved():
    class Keeper:
        waits = 0

        def wait_until_written(self) -> None:
            self.waits += 1

    for name, times in (("ours_saving", 1), ("ours", 0)):
        options = shared.config_of(name, "torch:ddp:2").run_options
        run = SimpleNamespace(run_options=options, checkpoints=Keeper())
        shared.wait_until_written(run)
        assert run.checkpoints.waits == times


def test_rows_have_names_of_their_own():
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names) and all(row.ratios or row.figures for row in ROWS)


@pytest.mark.parametrize("convention", ["keras", "torch"])
@pytest.mark.parametrize("name", list(models.SPECS))
def test_specs_are_what_stock_code_can_train(name, convention):
    spec = models.SPECS[name](convention).resolved()
    norms = [layer for layer in spec.model.layers if isinstance(layer, BatchNorm)]
    if norms:
        assert {norm.statistics for norm in norms} == {"per_replica"}
        assert {norm.decay for norm in norms} == {{"keras": 0.99, "torch": 0.9}[convention]}
    assert bool(norms) == (spec.model.inputs != "tokens")
    # Whole batches only, which every replica count that is measured divides.
    assert spec.data.train_samples % spec.global_batch_size == 0 or spec.data.source.kind == "digits"
    assert spec.global_batch_size % 2 == 0 and spec.precision == "float32"


def test_specs_do_not_change_unseen():
    found = {name: make("keras").resolved().content_hash() for name, make in models.SPECS.items()}
    assert found == {
        "compute_bound_cnn": "561137962d2d837c",
        "overhead_bound_net": "aa7ac74bf922e108",
        "gpt": "3446818a15d228fa",
        "lstm": "33e054d63762ddef",
        "gru": "7f0de6e1ec26afe4",
    }


def test_images_are_made_once(tmp_path, monkeypatch):
    monkeypatch.setattr(models.tempfile, "gettempdir", lambda: str(tmp_path))
    source = models.get("compute_bound_cnn").data.source
    assert isinstance(source, Npz)
    made = Path(source.path)
    before = made.stat()
    models.get("compute_bound_cnn")
    assert made.stat() == before and [path.name for path in made.parent.iterdir()] == [made.name]
    with pytest.raises(SpecError, match="known: compute_bound_cnn, overhead_bound_net"):
        models.get("compute_bound_gpt")
