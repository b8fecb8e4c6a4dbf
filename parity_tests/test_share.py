"""`parity share`: what a library reads back is what the record says, to the digit that its format keeps."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from parity.common.base.errors import how_to_install
from parity.common.commands.sharing import WRITERS
from parity.common.record import RunRecord, read_record
from parity.common.record.files import write_json
from parity.common.record.header import STEP_FIELDS, header_of, write_summary
from parity.common.record.scalars import EventWriter
from parity.common.report import share
from parity.common.spec import Placement, ScriptInfo
from parity_tests.helpers import ROOT
from parity_tests.helpers.commands import Cli
from parity_tests.helpers.processes import lacks
from parity_tests.helpers.records import (
    FACTS,
    MIRRORED,
    TORCH,
    Run,
    edit_json,
    one_line,
    read_events,
    tiny_spec,
)

Points = dict[str, list[list[float]]]  # name -> [step, value] of each point

# Reads a file of wandb's: blocks of 32 KiB with frames of a checksum, a length and which part of a record it is.
WANDB_READER = """
import json, struct, sys
from pathlib import Path
from wandb.proto.wandb_internal_pb2 import Record

def records(data):
    place, piece = 7, b""
    while place < len(data):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        size, part = struct.unpack("<HB", data[place + 4 : place + 7])
        piece += data[place + 7 : place + 7 + size]
        place += 7 + size
        if part in (1, 4):
            yield Record.FromString(piece)
            piece = b""

found = {}
for file in Path(sys.argv[1]).glob("wandb/offline-run-*/*.wandb"):
    points, config, name = {}, {}, None
    for record in records(file.read_bytes()):
        if record.WhichOneof("record_type") == "run":
            name = record.run.display_name
            config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
        for item in record.history.item:
            key = item.key or ".".join(item.nested_key)
            points.setdefault(key, []).append([record.history.step.num, float(json.loads(item.value_json))])
    found[name] = [points, config]
print(json.dumps(found))
"""
MLFLOW_READER = """
import json, sys
from pathlib import Path
from mlflow.tracking import MlflowClient

client = MlflowClient(tracking_uri=(Path(sys.argv[1]) / "mlruns").as_uri())
found = {}
for run in client.search_runs([client.get_experiment_by_name("parity").experiment_id]):
    points = {
        key: [[metric.step, metric.value] for metric in client.get_metric_history(run.info.run_id, key)]
        for key in run.data.metrics
    }
    config = json.loads(Path(run.info.artifact_uri.removeprefix("file://"), "config.json").read_text())
    assert run.data.params["placement.strategy"] == config["placement"]["strategy"]
    assert run.info.status == "FINISHED"
    found[run.info.run_name] = [points, config]
print(json.dumps(found))
"""


@pytest.fixture
def parity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    monkeypatch.chdir(tmp_path)
    return Cli(tmp_path, capsys)


@pytest.fixture
def records(tmp_path: Path) -> list[RunRecord]:
    """A run; one of the same name that has come to infinity and NaN; a script that does not tell all."""
    run = Run.of(tiny_spec(), MIRRORED)
    wild = run.copy()
    wild.column("gradient_norm")[2:4] = np.inf, np.nan
    wild.column("loss_sum")[4:] = 1e300, np.nan
    wild.evaluation = (np.nan, *run.evaluation[1:])
    return [run.write(tmp_path / "run"), wild.write(tmp_path / "wild"), write_script(tmp_path / "script")]


def write_script(folder: Path) -> RunRecord:
    """Of three steps: the learning rate is known at two of them, norms and times at none."""
    folder.mkdir()
    info = ScriptInfo(kind="script", framework="jax", settings={"a/b..[é]": 1})
    placement = Placement.from_text("torch:single:1")
    write_json(folder / "header.json", header_of(info, placement, FACTS).to_dict())
    rows = np.full((3, 1 + len(STEP_FIELDS)), np.nan)
    rows[:, :3], rows[1:, 3] = [[7, 1, 2], [8, 0.1, 3], [9, 1 / 3, 1]], (0.5, 0.25)
    rows.astype("<f8").tofile(folder / "steps.f64")
    write_summary(folder, 3, 5.0, (0.3, 3.0, 1))
    return read_record(folder)


def expected(record: RunRecord) -> Points:
    """The points of a record, from the numbers in its own files."""
    columns = {"loss": record.loss, **record.columns}
    del columns["step"]
    script = record.train_spec is None
    points = {
        name: [
            [step, value]
            for step, value in zip(record.steps.tolist(), column.tolist(), strict=True)
            if not (script and np.isnan(value))
        ]
        for name, column in columns.items()
    }
    summary, last = record.summary, int(record.steps[-1])
    assert summary is not None
    loss = np.nan if summary.eval_loss_sum is None else summary.eval_loss_sum / summary.eval_count
    points |= {
        "eval_loss": [[last, loss]],
        "eval_accuracy": [[last, summary.eval_correct / summary.eval_count]],
    }
    return {name: found for name, found in points.items() if found}


def same(found: Points, wanted: Points) -> None:
    assert found.keys() == wanted.keys()
    for name, points in wanted.items():
        np.testing.assert_array_equal(np.array(found[name]), np.array(points), name)


def in_float32(points: Points) -> Points:
    with np.errstate(over="ignore"):
        return {n: [[step, float(np.float32(value))] for step, value in found] for n, found in points.items()}


NAMES = ["tiny tensorflow mirrored x2", "tiny tensorflow mirrored x2 (2)", "script script (jax script x1)"]


def test_csv_keeps_every_digit_and_leaves_empty_what_was_not_recorded(
    parity: Cli, records: list[RunRecord]
) -> None:
    code, out, err = parity("share", "run", "wild", "script", "--to", "csv", "--out", "new")
    assert (code, err) == (0, "") and [line.partition(":")[0] for line in out.splitlines()] == [
        *NAMES,
        "open",
    ]
    runs = share.shared(records)
    assert {path.name for path in Path("new").iterdir()} == {
        f"{run.file_name}.{ending}" for run in runs for ending in ("csv", "json")
    }
    for run, record in zip(runs, records, strict=True):
        with open(Path("new", f"{run.file_name}.csv"), newline="") as file:
            rows = list(csv.DictReader(file))
        points = {
            name: [[int(row["step"]), float(row[name])] for row in rows if row[name] != ""]
            for name in rows[0].keys() - {"step"}
        }
        same({name: found for name, found in points.items() if found}, expected(record))
        config = json.loads(Path("new", f"{run.file_name}.json").read_text())
        header = json.loads((record.folder / "header.json").read_text())
        assert {
            name: config[name] for name in ("spec", "placement", "versions", "host")
        }.items() <= header.items()


def test_tensorboard_reads_float32(parity: Cli, records: list[RunRecord]) -> None:
    assert parity("share", "run", "wild", "script", "--to", "tensorboard", "--out", "new")[0] == 0
    for run, record in zip(share.shared(records), records, strict=True):
        read = read_events(Path("new", run.file_name))
        points = {tag: [[e.step, e.value] for e in read.Scalars(tag)] for tag in read.Tags()["scalars"]}
        same(points, in_float32(expected(record)))
        assert [e.wall_time for e in read.Scalars("loss")] == run.times.tolist()
        text = read.Tensors("config")[0].tensor_proto.string_val[0].decode()
        assert json.loads(text.removeprefix("```json\n").removesuffix("\n```"))["host"] == record.header.host
    assert not {"tensorflow", "torch"} & sys.modules.keys()


def test_a_digit_that_float32_does_not_keep_is_seen(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path)
    writer.step(3, {"loss": 0.1})
    writer.close()
    (event,) = read_events(tmp_path).Scalars("loss")
    assert event.step == 3 and event.value == float(np.float32(0.1)) != 0.1
    with pytest.raises(AssertionError):
        same({"loss": [[3, event.value]]}, {"loss": [[3, 0.1]]})


class Calls:
    """A proxy that answers nothing and counts who asks it."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self.environment = dict.fromkeys(
            ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"),
            f"http://127.0.0.1:{listening.getsockname()[1]}",
        )

    def count(self) -> int:
        self._listening.settimeout(0)
        for found in range(100):
            try:
                self._listening.accept()[0].close()
            except BlockingIOError:
                return found
        return 100


@pytest.fixture
def proxy() -> Iterator[Calls]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield Calls(listening)


def test_the_proxy_sees_a_call(proxy: Calls) -> None:
    code = "import urllib.request; urllib.request.urlopen('http://example.invalid', timeout=0.2)"
    environment = {**os.environ, **proxy.environment}
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment).returncode
    assert proxy.count() == 1


def marked(marker: str) -> list[str]:
    """Processes that have a variable in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with ignored():
            if marker.encode() in path.read_bytes():
                found.append((path.parent / "cmdline").read_text().replace("\0", " "))
    return found


@contextmanager
def ignored() -> Iterator[None]:
    """Of a process that has ended, or that is another user's."""
    try:
        yield
    except OSError:
        pass


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "reader"), [("wandb", WANDB_READER), ("mlflow", MLFLOW_READER)])
def test_trackers_read_every_digit_without_network_and_leave_no_process(
    records: list[RunRecord], tmp_path: Path, proxy: Calls, kind: str, reader: str
) -> None:
    if importlib.util.find_spec(kind) is None:
        lacks(f"needs {kind}")
    marker = f"PARITY_TEST_SHARE={tmp_path}"
    environment = {name: value for name, value in os.environ.items() if name != "CI"}  # some are shy in CI
    environment |= {**proxy.environment, "PYTHONPATH": str(ROOT), "PARITY_TEST_SHARE": str(tmp_path)}
    # What a user has set for runs of their own is not for these.
    environment |= {"WANDB_RUN_ID": "mine", "WANDB_MODE": "online", "MLFLOW_RUN_ID": "mine"}
    command = [sys.executable, "-m", "parity", "share", "run", "wild", "script", "--to", kind, "--out", "new"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=200)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.splitlines()[-1].startswith("open: ")
    assert marked(marker) == []
    assert {path.name for path in tmp_path.iterdir()} == {"run", "wild", "script", "new"}
    environment |= {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}
    read = subprocess.run(
        [sys.executable, "-c", reader, tmp_path / "new"], capture_output=True, text=True, env=environment
    )
    assert read.returncode == 0, read.stderr
    found = json.loads(read.stdout)
    assert found.keys() == set(NAMES)
    for name, record in zip(NAMES, records, strict=True):
        points, config = found[name]
        same({key: each for key, each in points.items() if not key.startswith("_")}, expected(record))
        assert config["placement"] == json.loads(json.dumps(record.placement.to_dict()))
        assert config["versions"] == record.header.versions
    assert proxy.count() == 0


def test_a_run_that_went_on_is_one_and_of_version_0_1_too(parity: Cli) -> None:
    with tarfile.open(ROOT / "parity_tests" / "records_0_1.tar.xz") as archive:
        archive.extractall(filter="data")
    assert parity("share", "resumed", "script", "--to", "csv", "--out", "new")[0] == 0
    (run,) = share.shared([read_record(Path("resumed"))])
    assert run.steps.tolist() == [0, 1, 2, 3] and "from step 2" in run.name
    assert len(run.times) == 4 and (np.diff(run.times) > 0).all()


def test_a_session_is_all_its_runs(parity: Cli) -> None:
    run = Run.of(tiny_spec(), TORCH)
    run.write(Path("session/runs/00_a"))
    run.copy(MIRRORED).write(Path("session/runs/01_b"))
    out = parity("share", "session", "--to", "csv", "--out", "new")[1]
    assert out.startswith("tiny torch single x1: 6 steps") and "\ntiny tensorflow mirrored x2: " in out


def test_what_is_refused(parity: Cli, records: list[RunRecord], monkeypatch: pytest.MonkeyPatch) -> None:
    flags = ("--to", "csv", "--out", "new")
    assert "not a run record" in parity.refused("share", "nowhere", *flags)
    assert "already holds" in parity.refused("share", "run", "--to", "csv", "--out", "wild")
    Path("script/steps.f64").write_bytes(b"")
    Path("script/summary.json").unlink()
    assert "holds no steps" in parity.refused("share", "run", "script", *flags)
    edit_json(Path("wild/header.json"), started="yesterday")
    assert "'yesterday', which is no time" in parity.refused("share", "wild", *flags)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for kind in WRITERS.keys() - {"csv"}:
        error = parity.refused("share", "run", "--to", kind, "--out", "new")
        assert f"--to {kind} needs {kind}" in one_line(error) and how_to_install(kind) in error


def test_variables_are_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_RUN_ID", "mine")
    before = dict(os.environ)
    with share._environment("WANDB_", {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}):
        assert os.environ["WANDB_MODE"] == "offline" and "WANDB_RUN_ID" not in os.environ
    assert dict(os.environ) == before


def test_names_of_any_length_and_kind_are_told_apart(records: list[RunRecord]) -> None:
    runs = share.shared([records[0]] * 12)
    assert len({run.file_name for run in runs}) == 12
    long = share.Shared("/../" + "é" + "e" * 300 + " (7)", {}, runs[0].steps, runs[0].times, {}, {})
    assert len(long.file_name) <= 120 and long.file_name.endswith("e_7") and "/" not in long.file_name
