"""Records for the tools in which people look at their runs: TensorBoard, Weights & Biases, MLflow, spreadsheets.

Each library is imported only where it is asked for, and kept from the network and from what the user has set for it.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.common.base.errors import MissingPackageError, RecordError, how_to_install
from parity.common.base.files import replacing
from parity.common.parity.deviation import recorded_rows
from parity.common.record import RunRecord
from parity.common.record.files import write_json
from parity.common.record.scalars import EventWriter

PROJECT = "parity"
# What MLflow takes in one call, and in one value.
_METRICS, _PARAMS, _LONGEST = 1000, 100, 6000


@dataclass(frozen=True)
class Shared:
    """A record as it is given away.

    config: the header: spec, placement, versions, devices, host. times: seconds since 1970 at which each step ended.
    columns: float64 (steps,) by name. known: which of these numbers were recorded; a NaN may be one.
    """

    name: str
    config: dict[str, Any]
    steps: NDArray[np.int64]
    times: NDArray[np.float64]
    columns: dict[str, NDArray[np.float64]]
    known: dict[str, NDArray[np.bool_]]

    @property
    def file_name(self) -> str:
        """The name, for a file or a folder."""
        # The end, which tells runs of one name apart.
        return re.sub(r"[^A-Za-z0-9_.-]+", "_", self.name)[-120:].strip("._") or "run"

    def rows(self) -> Iterator[tuple[int, float, dict[str, float]]]:
        """(step, time, what was recorded of it by name) of every step."""
        lists = {name: column.tolist() for name, column in self.columns.items()}
        for row, (step, at) in enumerate(zip(self.steps.tolist(), self.times.tolist(), strict=True)):
            yield step, at, {name: values[row] for name, values in lists.items() if self.known[name][row]}


def shared(records: Sequence[RunRecord]) -> list[Shared]:
    """What is given away of each record: every column of numbers, the mean loss, and the evaluation at the last step.

    Names are the run's and its placement's; where several are alike, with a number.

    Raises:
        RecordError: a record holds no steps, or does not say when it began.
    """
    found: list[Shared] = []
    taken: set[str] = set()
    for record in records:
        if not len(record.steps):
            raise RecordError(f"{record.folder}: holds no steps yet")
        plain = f"{record.run_info.name} {record.label}"
        names = (plain if number == 1 else f"{plain} ({number})" for number in count(1))
        made = (_shared(record, name) for name in names)
        one = next(each for each in made if each.file_name not in taken)
        taken.add(one.file_name)
        found.append(one)
    return found


def _shared(record: RunRecord, name: str) -> Shared:
    columns = {"loss": record.loss, **{_key(n): c for n, c in record.columns.items() if n != "step"}}
    known = {_key(n): recorded_rows(n, record) for n in record.columns if n != "step"}
    known["loss"] = np.ones(len(record.steps), np.bool_)
    for key, value in _evaluation(record).items():
        columns[key] = np.full(len(record.steps), value)
        known[key] = np.arange(len(record.steps)) == len(record.steps) - 1
    config = {"folder": str(record.folder), "label": record.label, **record.header.to_dict()}
    for key in ("format", "schema_version", "columns"):
        del config[key]
    return Shared(name, config, record.steps, _times(record), columns, known)


def _key(name: str) -> str:
    """A column's name as all libraries take it."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)


def _evaluation(record: RunRecord) -> dict[str, float]:
    summary = record.summary
    if summary is None or not summary.eval_count:
        return {}
    total = summary.eval_loss_sum
    found = {"eval_loss": np.nan if total is None else total / summary.eval_count}
    if record.train_spec is None or record.train_spec.loss.classes:
        found["eval_accuracy"] = summary.eval_correct / summary.eval_count
    return found


def _times(record: RunRecord) -> NDArray[np.float64]:
    times = []
    for part in record.parts:
        try:
            started = datetime.fromisoformat(part.header.started).timestamp()
        except ValueError:
            raise RecordError(
                f"{part.folder}/header.json: started is {part.header.started[:40]!r}, which is no time"
            ) from None
        times.append(started + np.cumsum(np.nan_to_num(part.columns["seconds"])))
    return np.concatenate(times)


def write_csv(runs: Sequence[Shared], folder: Path) -> str:
    """NAME.csv, a row a step with every digit, empty where nothing was recorded; NAME.json: the config."""
    for run in runs:
        with replacing(folder / f"{run.file_name}.csv") as path, open(path, "w", newline="") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(["step", *run.columns])
            for step, _, values in run.rows():
                table.writerow([step, *(repr(values[n]) if n in values else "" for n in run.columns)])
        write_json(folder / f"{run.file_name}.json", run.config)
    return f"in {folder}: a .csv and a .json a run"


def write_tensorboard(runs: Sequence[Shared], folder: Path) -> str:
    """A folder of events a run; scalars are float32 there."""
    for run in runs:
        writer = EventWriter(folder / run.file_name)
        began = float(run.times[0])
        writer.text("config", f"```json\n{json.dumps(run.config, indent=2)}\n```", began)
        for step, at, values in run.rows():
            writer.step(step, values, at)
        writer.close()
    return f"tensorboard --logdir {folder}"


def write_wandb(runs: Sequence[Shared], folder: Path) -> str:
    """An offline run each, for `wandb sync`. The service that wandb starts for it has ended when this returns."""
    given = {"WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "true"}
    with _environment("WANDB_", given):
        wandb = importlib.import_module("wandb")
        settings = wandb.Settings(
            console="off", disable_code=True, disable_git=True, x_disable_meta=True, x_disable_stats=True
        )
        try:
            for run in runs:
                options = {"name": run.name, "config": run.config, "dir": str(folder), "settings": settings}
                opened = wandb.init(project=PROJECT, mode="offline", **options)
                for step, at, values in run.rows():
                    opened.log({"_timestamp": at, **values}, step=step)
                opened.finish()
        finally:
            wandb.teardown()
    return f"wandb sync {folder}/wandb/offline-run-*"


def write_mlflow(runs: Sequence[Shared], folder: Path) -> str:
    """A run each in an experiment of a file store, which MLflow opens where MLFLOW_ALLOW_FILE_STORE says so."""
    with _environment("MLFLOW_", {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}):
        entities = importlib.import_module("mlflow.entities")
        metric, param = entities.Metric, entities.Param
        client = importlib.import_module("mlflow.tracking").MlflowClient(
            tracking_uri=(folder.resolve() / "mlruns").as_uri()
        )
        experiment = client.create_experiment(PROJECT)
        for run in runs:
            began, ended = (int(run.times[row] * 1000) for row in (0, -1))
            opened = client.create_run(experiment, start_time=began, run_name=run.name).info.run_id
            params = [param(key, value[:_LONGEST]) for key, value in _flat(run.config)]
            for start in range(0, len(params), _PARAMS):
                client.log_batch(opened, params=params[start : start + _PARAMS])
            metrics = [
                metric(name, value, int(at * 1000), step)
                for step, at, values in run.rows()
                for name, value in values.items()
            ]
            for start in range(0, len(metrics), _METRICS):
                client.log_batch(opened, metrics=metrics[start : start + _METRICS])
            client.log_dict(opened, run.config, "config.json")
            client.set_terminated(opened, end_time=ended)
    return f"MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri {folder}/mlruns"


def _flat(config: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """('placement.replicas', '2') of nested facts; a list in one piece."""
    for name, value in config.items():
        key = prefix + _key(name)
        if isinstance(value, dict):
            yield from _flat(value, f"{key}.")
        else:
            yield key, value if isinstance(value, str) else json.dumps(value)


@contextmanager
def _environment(prefix: str, given: dict[str, str]) -> Iterator[None]:
    """Within it, of the variables that begin with `prefix` those given alone."""
    kept = dict(os.environ)
    for name in kept:
        if name.startswith(prefix):
            del os.environ[name]
    os.environ.update(given)
    try:
        yield
    finally:
        for name in given:
            os.environ.pop(name, None)
        os.environ.update({name: value for name, value in kept.items() if name.startswith(prefix)})


# Each writes runs into a new folder, and gives the line that says how they are opened.
WRITERS: dict[str, Callable[[Sequence[Shared], Path], str]] = {
    "csv": write_csv,
    "mlflow": write_mlflow,
    "tensorboard": write_tensorboard,
    "wandb": write_wandb,
}


def check_installed(kind: str) -> None:
    """Raise MissingPackageError where the library that a writer of WRITERS needs is not installed."""
    if importlib.util.find_spec(kind) is None:
        raise MissingPackageError(f"--to {kind} needs {kind}, which is not installed; {how_to_install(kind)}")
