"""The part of a recorder that has no framework: numbers in, lines of a record out, whatever comes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from parity.common.base.errors import RecordError
from parity.common.parity.result import judge
from parity.common.record import read_record
from parity.common.record.script import ALWAYS, RAREST, Pace, ScriptRecorder, check_unused
from parity.common.spec import ScriptInfo
from parity.common.state.canonical import State
from parity_tests.helpers.records import one_line


class Plain(ScriptRecorder):
    """A recorder of a loop in pure Python."""

    def __init__(self, out: Path, overwrite: bool = False, **given: int | None) -> None:
        script_info = ScriptInfo(kind="script", framework="python", precision="float64")
        facts = {"versions": {}, "devices": ["cpu"], "threads": {}}
        numbers = given.get("order"), given.get("every"), given.get("lag") or 0
        super().__init__(out, script_info, facts, *numbers, overwrite=overwrite)

    def _kept(self, value: float) -> float:
        return float(value)

    def _host(self, ids: list[int]) -> list[int]:
        return ids

    def _read(self, handle: list[float]) -> list[float]:
        return handle

    def step(self, loss: float | None, count: float, ids: list[int] | None = None) -> None:
        self.add(loss, count, ids)
        sums, received = self._added()
        self._end_step([sums[0][0] * count, count, 0.5, 1.0, 2.0, 3.0], received, 0.0)

    def _final_state(self) -> State:
        return {}


def test_numbers_are_read_later_and_none_is_lost(tmp_path: Path) -> None:
    recorder = Plain(tmp_path / "late", lag=3)
    for step in range(5):
        recorder.step(step, 2, [step, 7])
        assert len(read_record(tmp_path / "late").steps) == max(0, step - 2)
    recorder.finish()
    recorder.finish()
    record = read_record(tmp_path / "late")
    assert record.columns["loss_sum"].tolist() == [0, 2, 4, 6, 8]
    assert record.summary is not None and record.summary.steps == 5


def test_a_loss_with_an_axis_of_one_is_a_number(tmp_path: Path) -> None:
    recorder = Plain(tmp_path / "run")
    recorder.step(np.full((1, 1), 2.0), 2)
    recorder.finish()
    assert len(read_record(tmp_path / "run").steps) == 1


def test_many_ids_are_kept_as_digests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parity.common.record.samples.WHOLE_WORDS", 100)
    for name, swapped in (("a", -1), ("b", -1), ("c", 500)):
        recorder = Plain(tmp_path / name)
        for step in range(600):
            recorder.step(1.0, 2, [step, 1 if step == swapped else 2])
        recorder.finish()
    a, b, c = (read_record(tmp_path / name) for name in "abc")
    assert a.received.whole == 20 and len(a.received.blocks) == 3
    ids = {record.folder.name: judge([a, record]).comparisons[0].checks[0] for record in (b, c)}
    assert ids["b"].passed and not ids["c"].passed
    assert ids["c"].where == "steps 256 to 511"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((None, 2), "give the mean loss or loss_sum="),
        ((1.0, 0), "count=, how many samples"),
        ((np.ones(3), 3), r"the loss is one number, received one of shape \(3,\)"),
        ((1.0, 2, [[1], [2]]), r"ids are whole numbers, one a sample; received int64 of shape \(2, 1\)"),
        ((1.0, 2, [0.5]), "received float64"),
    ],
)
def test_what_does_not_fit_is_said(tmp_path: Path, given: tuple, words: str) -> None:
    recorder = Plain(tmp_path / "run")
    with pytest.raises(RecordError, match=words) as error:
        recorder.step(*given)
    assert one_line(error.value).startswith("step 0: ")
    recorder._abandon()


@pytest.mark.parametrize(("first", "second"), [(None, [1]), ([1], None)])
def test_ids_come_at_every_step_or_at_none(
    tmp_path: Path, first: list[int] | None, second: list[int] | None
) -> None:
    recorder = Plain(tmp_path / "run")
    recorder.step(1.0, 1, first)
    with pytest.raises(RecordError, match="ids must be given at every step or at none"):
        recorder.step(1.0, 1, second)
    recorder._abandon()
    assert len(read_record(tmp_path / "run").steps) == 1


def test_a_taken_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("")
    with pytest.raises(RecordError, match=r"already holds mine\.txt"):
        Plain(tmp_path)
    with pytest.raises(RecordError, match="no header"):
        Plain(tmp_path, overwrite=True)
    assert (tmp_path / "mine.txt").exists()


def test_a_script_that_is_run_again_replaces_its_record_where_asked(tmp_path: Path) -> None:
    def run(loss: float, overwrite: bool) -> None:
        recorder = Plain(tmp_path / "run", overwrite)
        recorder.step(loss, 1)
        recorder.finish()

    def recorded() -> list[float]:
        return read_record(tmp_path / "run").columns["loss_sum"].tolist()

    run(1.0, True)
    with pytest.raises(RecordError, match="or give overwrite=True to replace an earlier record"):
        run(2.0, False)
    assert recorded() == [1.0]
    run(3.0, True)
    assert recorded() == [3.0]
    (tmp_path / "run" / "thesis.tex").write_text("")
    with pytest.raises(
        RecordError, match=r"holds 'thesis\.tex', which is of no record, so overwrite=True leaves"
    ):
        run(4.0, True)
    assert recorded() == [3.0]


def test_a_callback_records_one_call(tmp_path: Path) -> None:
    check_unused(None, "fit")
    recorder = Plain(tmp_path / "run")
    with pytest.raises(RecordError, match="one call of fit, and this one has"):
        check_unused(recorder, "fit")
    recorder._abandon()


def test_a_full_disk_ends_the_recording_and_not_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recorder = Plain(tmp_path / "run")
    recorder.step(1.0, 1)

    class Full:
        def write(self, data: bytes) -> None:
            raise OSError(28, "No space left on device")

        def close(self) -> None: ...

    assert recorder._steps is not None
    recorder._steps.close()
    monkeypatch.setattr(recorder, "_steps", Full())
    for _ in range(3):
        recorder.step(1.0, 1)
    recorder.finish()
    assert capsys.readouterr().err.count("recording ends here") == 1
    assert recorder.count == 4, "other ranks go on counting, and tap by that"
    record = read_record(tmp_path / "run")
    assert len(record.steps) == 1 and record.summary is None


def test_norms_are_recorded_as_often_as_they_may_cost() -> None:
    cheap, dear, fixed = Pace(None), Pace(None), Pace(4)
    for _ in range(10):
        cheap.took(1.0, 0.001)
        dear.took(1.1, 0.1)
        fixed.took(1.1, 0.1)
    assert (cheap.every, dear.every, fixed.every) == (1, 32, 4)
    assert [step for step in range(40) if dear.wants(step)] == [*range(ALWAYS), 32]
    assert [step for step in range(12) if fixed.wants(step)] == [0, 4, 8]
    dear.took(1e9, 1e9 - 1)
    assert dear.every <= RAREST


@pytest.mark.parametrize("every", [0, -1, 1.5, RAREST + 1])
def test_how_often_is_a_whole_number(every: float) -> None:
    with pytest.raises(RecordError, match="a whole number from 1 to 1024"):
        Pace(every)  # type: ignore[arg-type]
