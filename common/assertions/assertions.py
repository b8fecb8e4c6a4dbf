"""What a test asserts of a Keras model and its torch port: `same_forward`, `same_training`.

Framework-free, and pytest-free: the plugin is `parity_pytest.py`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as AnyMapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from parity.common.assertions import arguments
from parity.common.assertions.arguments import SAMPLES, Array, Inputs, Tolerance
from parity.common.base.errors import ExternalModelError, ParityError, RecordError
from parity.common.base.scratch import contents_of, keep_scratch, make_scratch, remove_scratch, scratch_folder
from parity.common.base.terminal import Terminal
from parity.common.diagnosis.result import Finding, TensorComparison
from parity.common.execution.session import holds_runs_or_logs
from parity.common.execution.worker import Workers
from parity.common.external.lint.lint import Difference
from parity.common.external.mapping.models import check_mapped, exact_constants, map_models
from parity.common.external.pairs import setup
from parity.common.external.pairs.bench import OUTPUT, Bench, LoadedPair
from parity.common.external.pairs.constants import settle_built_constants
from parity.common.external.pairs.diagnose import diagnose_pair
from parity.common.external.pairs.dropout import give_masks, settle_randomness
from parity.common.external.pairs.pair import MAPPING, WEIGHTS, Outcome, PairOptions, Processes, compare_pair
from parity.common.external.pairs.request import PairRequest
from parity.common.external.pairs.suspects import suspects_of
from parity.common.external.process.naming import SAVED
from parity.common.external.process.worker import ExternalWorker
from parity.common.report.files import finite, write_data
from parity.common.report.html.page import write_page
from parity.common.report.terminal import write_reports
from parity.common.spec.external.mapping import write_mapping
from parity.common.spec.external.target import Target
from parity.common.spec.strategies import Framework

REPORT = "report.html"
_PAIR, _DIAGNOSIS = "pair", "diagnosis_1.html"
# All that an assertion leaves in its folder.
_LEFT = (REPORT, "report.json", "report.xml", MAPPING, SAMPLES, *SAVED, _PAIR, _DIAGNOSIS, "diagnosis_1.json")
_SHOWN = 8
_QUIET = Terminal(quiet=True)
# Of a diagnosis, what a forward pass shows.
_STAGES = ("before", "forward", "evaluation")


class Assertions(AbstractContextManager["Assertions"]):
    """Asserts; its two framework processes stay for the next assertion. Use as a context manager, or close it."""

    def __init__(self) -> None:
        self._sides: dict[tuple[Framework, str], ExternalWorker] = {}
        self._workers: Workers | None = None
        self._logs = Path()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes."""
        while self._sides:
            self._sides.popitem()[1].close()
        self._end_training()

    def same_forward(
        self,
        keras: Any,
        torch: Any,
        inputs: Inputs,
        *,
        folder: Path,
        mapping: str | Path | None = None,
        tolerance: str = "exact",
        weights: Literal["keras", "torch"] = "keras",
        training: bool = False,
    ) -> None:
        """Assert that two models compute the same outputs from the same weights and inputs.

        Args:
            keras, torch: the models: 'package.module:attribute' of what builds each, imported in its own framework's process;
                or that function or class; or the model itself, which is written for that process.
            inputs: in Keras's layout, one row a sample: an array; several by the names of Keras's inputs, or in
                their order; or an .npz file of them.
            folder: for what a failure leaves: report.html, mapping.yaml, samples.npz. It is made then, and
                replaced.
            mapping: mapping.yaml; None: one is proposed and tried. It stays where it is, in `folder` too.
            tolerance: one of `arguments.TOLERANCES`.
            weights: whose initial weights both get.
            training: whether both are called in training.

        Raises:
            AssertionError: they do not; the text says where they part, and why.
            ParityError: they could not be compared, in one line.
        """
        chosen = arguments.tolerance_of(tolerance)
        arrays = arguments.named(inputs)
        _make_room(folder, mapping)
        with scratch_folder("assert-") as scratch:
            rest = {"precision": chosen.precision, "weights": weights, "without_dropout": False}
            asked = arguments.forward_asked(keras, torch, arrays, scratch / SAMPLES, **rest)
            ours, theirs = self._pair(asked, asked.precision)
            opened = setup.open_pair(asked, ours, theirs)
            found = map_models(opened, None if mapping is None else Path(mapping))
            write_mapping(scratch / MAPPING, found)
            with _kept_on_error(scratch, folder):  # the user completes the mapping
                check_mapped(found, opened.outlines, folder / MAPPING)
            if training:
                settle_randomness(asked, opened)
            canonical = setup.copy_weights(asked, opened, found)
            if asked.precision == "float64":
                opened, _ = settle_built_constants(asked, opened, found, canonical)
            if training:
                give_masks(asked, opened, found)
            bench = setup.bench_of(asked, opened, found)
            with _constants_of(chosen, opened):
                expected = bench.keras.forward(bench.inputs[0], training=training, taps=False)
                received = bench.torch.forward(bench.inputs[1], training=training, taps=False)
            seen = bench.outputs(expected, received)
            if not seen:
                raise ExternalModelError(
                    f"{asked.keras} and {asked.torch} give no tensors; nothing could be compared"
                )
            if all(one.deviation <= chosen.limit for one in seen):
                return
            text = _explained(asked, opened, bench, chosen, training, seen, scratch)
            with _kept_on_error(scratch, folder):
                raise AssertionError(f"{text}\n  report: {folder / REPORT}")

    def same_training(
        self,
        keras: Any,
        torch: Any,
        data: str | Path | AnyMapping[str, Array],
        loss: str | AnyMapping[str, str] | None = None,
        *,
        folder: Path,
        keras_loss: str | AnyMapping[str, str] | None = None,
        torch_loss: str | AnyMapping[str, str] | None = None,
        targets: Sequence[str] = (),
        sample_weights: str | None = None,
        optimizer: str | None = None,
        keras_optimizer: str | None = None,
        torch_optimizer: str | None = None,
        steps: int = 20,
        global_batch: int = 32,
        replicas: int = 1,
        mapping: str | Path | None = None,
        precision: Literal["float64", "float32"] = "float64",
        weights: Literal["keras", "torch"] = "keras",
        without_dropout: bool = False,
    ) -> None:
        """Assert that two models train the same: `parity pair`, with its words for arguments.

        Args:
            keras, torch: as `same_forward`.
            data: an .npz file, or arrays by name, one row a sample; the targets are called y, targets or labels.
            loss: of both, such as 'softmax_cross_entropy' or 'mse'; of several outputs by name.
            keras_loss, torch_loss: the users' own instead, 'package.module:attribute' each; of several by name.
            targets, sample_weights: names of arrays, where they are called otherwise.
            folder: as `same_forward`; also the runs that differ are left there.
            optimizer: of both, such as 'adam,learning_rate=1e-3' [sgd,learning_rate=0.01].
            keras_optimizer, torch_optimizer: the users' own instead, 'package.module:attribute' each.
            steps, global_batch: how many updates are made, and samples of each.
            replicas: with more than one, both are also trained on so many.
            mapping: as `same_forward`.
            precision: of the training.
            weights: as `same_forward`.
            without_dropout: whether rates of dropout are set to 0 on both sides.

        Raises:
            AssertionError: they do not; the text says when, where and why.
            ParityError: they could not be compared, in one line.
        """
        _make_room(folder, mapping, data)
        folder.mkdir(parents=True, exist_ok=True)
        text, kept = "", False
        try:
            asked = arguments.training_asked(
                keras,
                torch,
                arguments.written(data, folder),
                loss,
                folder,
                (optimizer, keras_optimizer, torch_optimizer),
                (keras_loss, torch_loss),
                targets,
                sample_weights,
                steps=steps,
                global_batch=global_batch,
                precision=precision,
                weights=weights,
                without_dropout=without_dropout,
            )
            way = PairOptions(
                None, replicas, "cpu", None if mapping is None else Path(mapping), 0, overwrite=False
            )
            ours, theirs = self._pair(asked, "float64")
            processes = Processes(ours, theirs, self._training_workers())
            text = _judged(asked, compare_pair(asked, way, folder / _PAIR, _QUIET, processes), folder)
            kept = bool(text)
        except ParityError:
            # A process that failed may be beyond use.
            self._end_training()
            pair = folder / _PAIR
            incomplete = (pair / MAPPING).exists() and not (pair / WEIGHTS).exists()
            kept = incomplete or holds_runs_or_logs(folder)
            raise
        finally:
            if not kept:
                _make_room(folder, mapping, data)
                _remove_empty(folder.parent)
        if text:
            raise AssertionError(text)

    def _training_workers(self) -> Workers:
        if self._workers is None:
            self._logs = make_scratch("assert-logs-")
            self._workers = Workers(self._logs)
        return self._workers

    def _end_training(self) -> None:
        if self._workers is not None:
            with self._workers as ended:
                self._workers = None
            (keep_scratch if ended.log_matters else remove_scratch)(self._logs)

    def _pair(self, asked: PairRequest, precision: str) -> tuple[ExternalWorker, ExternalWorker]:
        """Both models, built anew; side by side where their processes start."""
        return (self._side("tensorflow", asked.keras, precision), self._side("torch", asked.torch, precision))

    def _side(self, framework: Framework, target: Target, precision: str) -> ExternalWorker:
        key = framework, precision
        held = self._sides.get(key)
        if held is not None:
            try:
                held.hold(target)
                return held
            except ExternalModelError:
                # Its process is gone, or broken by the model before; if it is this model, a new one says so.
                held.close()
        self._sides[key] = ExternalWorker(framework, target, precision=precision)
        return self._sides[key]


@contextmanager
def _kept_on_error(scratch: Path, folder: Path) -> Iterator[None]:
    """Around what may raise an error that points to a file in the folder: all that is in `scratch` moves there."""
    try:
        yield
    except BaseException:
        folder.mkdir(parents=True, exist_ok=True)
        for path in contents_of(scratch):
            shutil.move(path, folder / path.name)
        raise


def _make_room(folder: Path, *given: object) -> None:
    """Remove what an earlier failure has left, but for files that are `given` to the assertion.

    Raises:
        RecordError: anything else lies there; everything stays.
    """
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise RecordError(f"{folder}: is no folder of an assertion's, so it is left alone; give another one")
    foreign = sorted(
        path.name for path in folder.glob("*") if path.name.removesuffix(".partial") not in _LEFT
    )
    if foreign:
        raise RecordError(
            f"{folder}: holds {foreign[0]}, which no assertion has written, so it is left alone; give another folder"
        )
    kept = {Path(path).resolve() for path in given if isinstance(path, str | Path)}
    for path in sorted(folder.rglob("*"), reverse=True):  # what is in a folder before the folder
        if path.is_dir() and not path.is_symlink():
            _remove_empty(path)
        elif path.resolve() not in kept:
            path.unlink()
    _remove_empty(folder)


def _judged(asked: PairRequest, outcome: Outcome, folder: Path) -> str:
    """Why two trainings are not the same, for a person, with a page of it; '' where they are."""
    result, found = outcome.result, outcome.diagnosis
    divergent = found is not None and found.verdict != "parity"
    if not divergent and (result is None or result.verdict == "parity"):
        return ""
    lines = [f"{asked.keras} and {asked.torch} do not train the same"]
    if result is not None:
        lines += [
            f"  {c.candidate} against {c.reference}: {c.reason}"
            for c in result.comparisons
            if c.verdict != "parity"
        ]
    if found is not None:
        lines += [f"  {found.when.evidence}"] if found.when else []
        lines += [line for finding in found.findings[:_SHOWN] for line in told_of(finding, ())]
        seen = [one for step in found.steps for one in step.as_trained]
        write_failure(folder / (REPORT if result is None else _DIAGNOSIS), [*lines, *found.notes], seen, None)
    shown = str(folder / REPORT) if result is None else write_reports(result, folder)
    return "\n".join([*lines, f"  report: {shown}"])


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):  # it is not empty, or not there
        folder.rmdir()


def _explained(
    asked: PairRequest,
    opened: LoadedPair,
    bench: Bench,
    chosen: Tolerance,
    training: bool,
    seen: list[TensorComparison],
    scratch: Path,
) -> str:
    """Where and why, for a person; and a page of it."""
    worst = max(seen, key=lambda one: one.deviation)
    lines = [
        f"{asked.keras} and {asked.torch} do not compute the same",
        f"  {place_of(worst)}: off by {worst.deviation:.2g}{where_of(worst)}, allowed {chosen.limit:g} ({chosen.reason})",
    ]
    with _constants_of(chosen, opened):
        ours = bench.keras.forward(bench.inputs[0], training=training)
        theirs = bench.torch.forward(bench.inputs[1], training=training)
    layers = bench.passes(ours, theirs, training)
    first = next((one for one in layers if one.deviation > chosen.limit), None)
    if first is not None:
        partner = next((p.torch for p in bench.points if f"forward/{p.name}" == first.name), None)
        named = f"{place_of(first)} ({partner} in torch)" if partner else place_of(first)
        lines.append(f"  first at {named}: off by {first.deviation:.2g}{where_of(first)}")
    lines += _causes(asked, opened, bench, training)
    write_failure(scratch / REPORT, lines, layers, chosen.limit)
    return "\n".join(lines)


def _constants_of(chosen: Tolerance, opened: LoadedPair) -> AbstractContextManager[object]:
    """In float64 constants that a framework takes through float32 are exact, as in `parity pair`: they are no fault of a port."""
    return exact_constants(opened) if chosen.precision == "float64" else nullcontext()


def _causes(asked: PairRequest, opened: LoadedPair, bench: Bench, training: bool) -> list[str]:
    """By experiment on the live models; the settings that differ where none can be made."""
    suspects = suspects_of(bench.outlines, bench.mapping)
    lines = []
    findings: Sequence[Finding] = ()
    try:
        if not training:
            # It looks at training, too; there nothing may draw random numbers.
            settle_randomness(replace(asked, without_dropout=True), opened)
        bench.losses = setup.any_losses(bench)
        findings = diagnose_pair(bench, suspects).findings
    except ParityError as error:
        lines.append(f"  no experiment could be made: {error}")
    told = [finding for finding in findings if finding.stage in _STAGES]
    for finding in told[:_SHOWN]:
        lines += told_of(finding, suspects)
    settings = [f"  setting: {each.text}; {each.fix}" for each in suspects if each.changes == "forward"]
    return lines if told else [*lines, *settings[:_SHOWN]]


def told_of(finding: Finding, suspects: Sequence[Difference]) -> list[str]:
    """Why, in lines; of what no experiment explained, the settings there that differ."""
    why, place = finding.explanation, finding.name.partition("/")[2]
    if why is not None:
        return [f"  cause: {why.text}", f"    {why.confidence}: {why.evidence}", f"    fix: {why.fix}"]
    mine = [each for each in suspects if each.keras == place and each.changes == "forward"]
    return [f"  cause, not tried: {each.text}; {each.fix}" for each in mine] or [
        f"  cause of {place}: none that is known"
    ]


def place_of(one: TensorComparison) -> str:
    """Where a tensor is, without the stage of the step."""
    name = one.name.partition("/")[2]
    return f"the {name}" if name == OUTPUT else name


def where_of(one: TensorComparison) -> str:
    """' (row of sample 3)', or nothing."""
    return f" ({one.where})" if one.where else ""


def write_failure(
    path: Path, lines: list[str], tensors: Sequence[TensorComparison], limit: float | None
) -> None:
    """Write an HTML page without scripts, and the same as JSON beside it.

    Args:
        path: of the page.
        lines: what it says.
        tensors: in their order.
        limit: of the deviation of all; None: each has its own.

    Raises:
        RecordError: a file cannot be written.
    """
    words = {
        "headline": {"verdict": "divergent", "title": "Not the same", "why": lines[0]},
        "lines": lines,
        "tensors": [(one, one.deviation <= (limit or one.allowed)) for one in tensors],
        "limit": f"allowed {limit:g}" if limit else "relative to its largest element",
    }
    write_page(path, "failure.html.j2", words, {}, None)
    data = {"text": lines, "limit": limit, "tensors": [asdict(one) for one in tensors]}
    write_data(finite(data), path.with_suffix(".json"))
