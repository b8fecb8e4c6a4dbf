"""Checkpoints as files: what is saved is what is read, what is damaged is named, and no kill leaves a run without."""

from __future__ import annotations

import ast
import errno
import inspect
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from parity.common.base.errors import CheckpointError, SpecError
from parity.common.checkpoint import (
    Checkpoint,
    CheckpointManager,
    check_fits,
    checkpoints_of,
    files,
    find,
    manager,
    read_checkpoint,
)
from parity.common.checkpoint.files import MANIFEST, STATE, StoredFile
from parity.common.execution.checks import check_run
from parity.common.reference import StepScalars
from parity.common.spec import Placement, RunOptions, TrainSpec
from parity.common.spec.run_options import Saving
from parity.common.state.canonical import State, initial_state, load_state, save_state
from parity_tests.helpers import ROOT
from parity_tests.helpers.matrix import config
from parity_tests.helpers.records import DDP, TORCH, edit_json, one_line, recipe_spec, tiny_spec

PLATEAU = "schedule={kind: reduce_on_plateau}"


def state_at(spec: TrainSpec, step: int) -> State:
    """A state of a step, unlike that of any other."""
    state = {name: value + step for name, value in initial_state(spec).items()}
    return {**state, "step": np.array(step, np.int64)}


class Trained:
    """A run as far as its checkpoints are concerned; `agree` says what all processes say."""

    def __init__(
        self,
        run: Path,
        first_step: int = 0,
        spec: TrainSpec | None = None,
        primary: bool = True,
        **saving: Any,
    ) -> None:
        self.spec = spec or tiny_spec()
        self.placement = DDP if self.spec.per_replica_statistics else TORCH
        options = RunOptions(save=Saving(**{"every_steps": 1, **saving}))
        self.asked: list[list[float]] = []
        self.answer: list[float] | None = None
        self.run, self.rates = run, StepScalars(self.spec)
        self.checkpoints = CheckpointManager(
            run, self.spec, self.placement, first_step, primary, self._agree, options
        )

    def _agree(self, values: Any) -> list[float]:
        self.asked.append(list(values))
        return list(values) if self.answer is None else self.answer

    def save(self, step: int, loss: float = 1.0) -> Trained:
        self.checkpoints.observe(loss * 8, 8.0)
        own = {}
        if self.spec.per_replica_statistics:
            state = state_at(self.spec, step)
            buffers = {name: value for name, value in state.items() if name.startswith("buffers/")}
            own = {
                replica: {name: value + replica for name, value in buffers.items()} for replica in range(2)
            }
        self.checkpoints.save(step, state_at(self.spec, step), self.rates.kept(), own)
        return self

    def __enter__(self) -> Trained:
        return self

    def __exit__(self, *_: object) -> None:
        self.checkpoints.close()


def saved(run: Path, *steps: int, spec: TrainSpec | None = None, **saving: Any) -> Path:
    """A run that has saved at some steps; returns the folder of the last."""
    with Trained(run, spec=spec, **{"keep_last": 9, **saving}) as trained:
        for step in steps:
            trained.save(step)
    return checkpoints_of(run)[-1]


def names(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def steps(run: Path) -> list[int]:
    return [files.step_of(folder) for folder in checkpoints_of(run)]


def test_what_is_saved_is_what_is_read(tmp_path: Path) -> None:
    spec = tiny_spec(PLATEAU)
    with Trained(tmp_path, spec=spec) as trained:
        trained.rates.observe(0, 3.0, 7.0)
        trained.save(5, loss=0.125)
    found, damaged = find(tmp_path)
    assert (found.step, found.spec, damaged) == (5, spec, [])
    assert found.manifest.loss == 0.125 and found.manifest.placement == trained.placement
    kept = trained.rates.kept()
    assert found.manifest.rates == kept and kept["plateau_best"] is None and kept["updates"] == 1
    state = found.state()
    assert state.keys() == state_at(spec, 5).keys()
    assert all(np.array_equal(state[name], value) for name, value in state_at(spec, 5).items())
    assert found.buffers(0) == {}
    # And not that of a neighbour.
    assert any(not np.array_equal(state[name], value) for name, value in state_at(spec, 6).items())


def test_buffers_of_a_replica_are_its_own(tmp_path: Path) -> None:
    saved(
        tmp_path,
        4,
        spec=recipe_spec("digits_cnn", "model.layers.1={kind: batch_norm, statistics: per_replica}"),
    )
    found, _ = find(tmp_path)
    assert names(tmp_path) == ["step_00000004"] and len(found.manifest.files) == 3
    for name, value in found.state().items():
        assert (name in found.buffers(1)) == name.startswith("buffers/")
        if name.startswith("buffers/"):
            assert np.array_equal(found.buffers(1)[name], value + 1)
            assert np.array_equal(found.buffers(0)[name], value)
    here = found.manifest.placement
    check_fits(found, found.spec, 9, here)
    for other, word in (
        (here.model_copy(update={"replicas": 4}), "replicas 2, not 4"),
        (Placement.parse({**here.to_dict(), "accumulation": 2}), "accumulation {0: 1}, not {0: 2}"),
    ):
        with pytest.raises(CheckpointError, match=word):
            check_fits(found, found.spec, 9, other)


def _seal_anew(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change what a manifest says, as someone would who means to deceive: with a seal that is right."""
    made = json.loads((folder / MANIFEST).read_text())
    change(made)
    made["seal"] = files._seal(made)
    (folder / MANIFEST).write_text(json.dumps(made))


def _put(**fields: Any) -> Callable[[Path], object]:
    return lambda folder: _seal_anew(folder, lambda made: made.update(fields))


def _state(change: Callable[[State], object]) -> Callable[[Path], object]:
    """Another state, whose size and SHA-256 the manifest gives."""

    def changed(folder: Path) -> None:
        state = load_state(folder / STATE)
        change(state)
        save_state(folder / STATE, state)
        _own_file(folder)

    return changed


def _own_file(folder: Path, name: str = STATE) -> None:
    stored = files._stored(folder / name).to_dict()
    _seal_anew(folder, lambda made: made["files"].update({name: stored}))


def _header(text: str, length: int | None = None) -> Callable[[Path], object]:
    def written(folder: Path) -> None:
        head = text.encode()
        (folder / STATE).write_bytes((length or len(head)).to_bytes(8, "little") + head)
        _own_file(folder)

    return written


def _link(name: str) -> Callable[[Path], object]:
    def linked(folder: Path) -> None:
        (folder / name).rename(folder.parent / "elsewhere")
        (folder / name).symlink_to(folder.parent / "elsewhere")

    return linked


def _raw(old: str, new: str) -> Callable[[Path], object]:
    def replaced(folder: Path) -> None:
        text = (folder / MANIFEST).read_text()
        assert old in text
        (folder / MANIFEST).write_text(text.replace(old, new, 1))

    return replaced


def _foreign_replica(folder: Path) -> None:
    save_file({"parameters/dense_1/kernel": np.zeros((4, 4))}, folder / "replica_0.safetensors")
    _own_file(folder, "replica_0.safetensors")


def _pipe(folder: Path) -> None:
    (folder / STATE).unlink()
    os.mkfifo(folder / STATE)


KERNEL = "parameters/dense_1/kernel"
_FILE = {"bytes": 3, "sha256": "0" * 64}
# What is done to a checkpoint, and words of what is then said.
DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "no manifest": (lambda f: (f / MANIFEST).unlink(), "no manifest.json"),
    "a manifest that is a link": (_link(MANIFEST), "no manifest.json"),
    "half a manifest": (lambda f: os.truncate(f / MANIFEST, 400), "not JSON"),
    "an endless manifest": (lambda f: os.truncate(f / MANIFEST, 1 << 33), "larger than"),
    "nesting": (lambda f: (f / MANIFEST).write_text("[" * 100_000), "not JSON"),
    "a list": (lambda f: (f / MANIFEST).write_text("[]"), "not a JSON object"),
    "not text": (lambda f: (f / MANIFEST).write_bytes(b"\xff\xfe\0\0"), "not JSON"),
    "another format": (lambda f: edit_json(f / MANIFEST, schema_version=99), "another format"),
    "a format of many lines": (lambda f: edit_json(f / MANIFEST, format="a\nb"), "another format"),
    "a number changed": (lambda f: edit_json(f / MANIFEST, loss=0.5), "seal"),
    "a rate changed": (_raw('"updates": 0.0', '"updates": 1.0'), "seal"),
    "a key twice": (_raw('"step": 5', '"step": 5, "step": 5'), "not JSON"),
    "no seal": (_raw('"seal"', '"sealed"'), "seal"),
    "a loss that is no number": (_put(loss=float("nan")), "loss: Input should be a finite number"),
    "an infinite rate": (_put(rates={"updates": float("inf")}), "finite"),
    "a step below 0": (_put(step=-5), "step: Input should be greater than or equal to 0"),
    "a step of text": (_put(step="5"), "step: Input should be a valid integer"),
    "a step of another": (_put(step=6), "is not of step 6"),
    "rates of text": (_put(rates={"updates": "1"}), "rates"),
    "no rates": (_put(rates={}), "its rates lack"),
    "a foreign rate": (
        _put(rates={**StepScalars(tiny_spec()).kept(), "a\nb": 1.0}),
        "rates has control characters: 'a\\nb'",
    ),
    "a rate without a number": (_put(rates=dict.fromkeys(StepScalars(tiny_spec()).kept())), "hold no number"),
    "an unknown field": (_put(more=1), "more: unknown key"),
    "another spec": (_put(spec=tiny_spec("seed=9").to_dict()), "spec_hash is not that of the spec"),
    "no state named": (_put(files={}), f"names no {STATE}"),
    "no state": (lambda f: (f / STATE).unlink(), "missing, or no plain file"),
    "a state that is a link": (_link(STATE), "missing, or no plain file"),
    "a state that is a pipe": (_pipe, "missing, or no plain file"),
    "half a state": (lambda f: os.truncate(f / STATE, 1000), "holds 1000 bytes, should hold"),
    "an endless state": (
        lambda f: (
            os.truncate(f / STATE, 1 << 40),
            _seal_anew(f, lambda m: m["files"][STATE].update(bytes=1 << 40)),
        ),
        "at most",
    ),
    "a state with a bit flipped": (lambda f: _flip(f / STATE, -1), "SHA-256"),
    "a file elsewhere": (
        _put(files={STATE: _FILE, "../x.safetensors": _FILE}),
        "is not the name of a file beside it",
    ),
    "a name of two lines": (
        _put(files={"a\nb.safetensors": _FILE, STATE: _FILE}),
        "files has control characters: 'a\\nb.safetensors'",
    ),
    "a name that ends": (
        _put(files={"a\0.safetensors": _FILE, STATE: _FILE}),
        "files has control characters: 'a\\x00.safetensors'",
    ),
    "a size below 0": (_put(files={STATE: {**_FILE, "bytes": -1}}), "greater than or equal to 0"),
    "a tensor less": (_state(lambda s: s.pop(KERNEL)), f"lacks {KERNEL}"),
    "a tensor more": (_state(lambda s: s.update({"more": np.zeros(1)})), "holds an unknown tensor 'more'"),
    "a name with a control character": (
        _state(lambda s: s.update({"a\nb": np.zeros(1)})),
        "the name 'a\\nb' has control characters",
    ),
    "a tensor transposed": (
        _state(lambda s: s.update({KERNEL: np.zeros((2, 8))})),
        "of shape (2, 8), should be",
    ),
    "a tensor of another type": (
        _state(lambda s: s.update({KERNEL: np.zeros((4, 4), np.float32)})),
        "float32 of",
    ),
    "a step that is no number": (_state(lambda s: s.update(step=np.array(np.nan))), "is not of step 5"),
    "no step": (_state(lambda s: s.pop("step")), "is not of step 5"),
    "a header of 2**62 bytes": (_header("{}", 1 << 62), "not a whole safetensors file"),
    "no tensors": (_header("{}"), "lacks"),
    "offsets outside": (
        _header('{"step": {"dtype": "I64", "shape": [], "data_offsets": [0, 8]}}'),
        "not a whole",
    ),
    "a foreign type": (
        _header('{"step": {"dtype": "F8_E4M3", "shape": [0], "data_offsets": [0, 0]}}'),
        "not a whole",
    ),
    "a replica that has no buffers": (_foreign_replica, "replica_0.safetensors: holds an unknown tensor"),
}


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with the checkpoints of steps 3 and 5."""
    run = tmp_path_factory.mktemp("whole") / "run"
    saved(run, 3, 5)
    return run


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_named_in_one_line_and_passed_over(whole: Path, tmp_path: Path, damage: str) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    folder = checkpoints_of(run)[-1]
    assert read_checkpoint(folder).step == 5
    change, words = DAMAGE[damage]
    change(folder)
    with pytest.raises(CheckpointError) as error:
        read_checkpoint(folder)
    text = one_line(error.value)
    assert (
        words in text and str(folder) in text and text.isprintable() and len(text) < 500 + len(str(folder))
    ), text
    found, damaged = find(run)
    assert found.step == 3 and damaged == [text]


def test_a_seal_put_right_passes(whole: Path, tmp_path: Path) -> None:
    """The controls of the table above: what the helpers do is not itself what is refused."""
    folder = tmp_path / "step_00000005"
    shutil.copytree(checkpoints_of(whole)[-1], folder)
    _put(loss=0.25)(folder)
    _state(lambda state: state.update({KERNEL: np.ones((4, 4))}))(folder)
    assert read_checkpoint(folder).manifest.loss == 0.25
    assert read_checkpoint(folder).manifest.files[STATE] == StoredFile.parse(
        files._stored(folder / STATE).to_dict()
    )


def test_where_nothing_is_whole_that_is_said(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no checkpoint; train with --save_every_steps"):
        find(tmp_path)
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    for folder in checkpoints_of(run):
        os.truncate(folder / MANIFEST, 10)
    with pytest.raises(
        CheckpointError, match=r"none of its 2 checkpoints is whole; the latest: .*step_00000005"
    ) as error:
        find(run)
    one_line(error.value)
    with pytest.raises(CheckpointError, match=r"step_00000005/manifest.json: not JSON"):
        find(checkpoints_of(run)[-1])
    with pytest.raises(CheckpointError, match=r"no manifest.json"):
        find(run / "checkpoints" / "step_00000077")
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        find(Path("a\0b"))


def test_a_checkpoint_fits_its_own_run_only(whole: Path) -> None:
    found, _ = find(whole)
    spec = tiny_spec()
    check_fits(found, spec, 5)
    with pytest.raises(
        CheckpointError, match=r"of another spec: optimizer\.momentum is 0\.9 there, 0\.5 here"
    ):
        check_fits(found, tiny_spec("optimizer.momentum=0.5"), 6)
    with pytest.raises(CheckpointError, match="is of step 5, the run ends before step 4"):
        check_fits(found, spec, 4)


@pytest.mark.parametrize(
    ("keep", "losses", "left"),
    [
        ({"keep_last": 1}, [3, 2, 1], [3]),
        ({"keep_last": 2}, [1, 2, 3], [2, 3]),
        ({"keep_last": 1, "keep_best": 1}, [1, 2, 3], [1, 3]),
        ({"keep_last": 1, "keep_best": 2}, [2, 1, 4, 3], [1, 2, 4]),
        # A loss that is no number is nobody's best.
        ({"keep_last": 1, "keep_best": 1}, [np.nan, 2, 3], [2, 3]),
        ({"keep_last": 1, "keep_best": 1}, [np.inf, np.nan, 5], [3]),
    ],
)
def test_the_last_and_the_best_are_kept(
    tmp_path: Path, keep: Mapping[str, int], losses: list[float], left: list[int]
) -> None:
    with Trained(tmp_path, **keep) as trained:
        for step, loss in enumerate(losses, 1):
            trained.save(step, loss)
    assert steps(tmp_path) == left and len(names(tmp_path)) == len(left)
    for folder in checkpoints_of(tmp_path):
        read_checkpoint(folder)


def test_it_saves_after_so_many_steps_however_they_are_called(tmp_path: Path) -> None:
    with Trained(tmp_path, first_step=7, every_steps=5, keep_last=9) as trained:
        trained.answer = [0.0, 0.0, 1.0]
        due = []
        for step in (8, 9, 10, 13, 16, 19, 20, 34):
            if trained.checkpoints.due(step):
                due.append(step)
                trained.save(step)
    # 13 is the first after 10; 16 passes 15; 34 passes 25 and 30.
    assert due == [10, 16, 20, 34] and steps(tmp_path) == due
    assert trained.asked


def test_what_one_process_hears_all_do(tmp_path: Path) -> None:
    with Trained(tmp_path, every_steps=None, every_minutes=1e-9) as primary:
        assert primary.checkpoints.due(1) and not primary.checkpoints.stopping
        with Trained(tmp_path, primary=False, every_steps=None, every_minutes=1e-9) as other:
            # By its own clock it would be time too, but the first one's counts; nor is it the one that locks.
            assert not other.checkpoints.due(1) and other.asked[0] == [0.0, 0.0, 0.0]
            other.answer = [0.0, 1.0, 3.0]
            assert other.checkpoints.due(2)
            assert not other.checkpoints.due(3) and not other.checkpoints.due(4) and len(other.asked) == 2
            other.answer = [1.0, 0.0, 1.0]
            assert other.checkpoints.due(5) and other.checkpoints.stopping
            # Only the primary writes.
            other.save(5)
        assert steps(tmp_path) == []
        primary.answer = [1.0, 0.0, 1.0]
        while not primary.checkpoints.stopping:
            primary.checkpoints.due(10**6 + len(primary.asked))
        primary.save(9)
        assert steps(tmp_path) == [9]
        assert "stopped before step 9 as asked" in one_line(primary.checkpoints.stopped())


def test_without_saving_nothing_is_asked_or_written(tmp_path: Path) -> None:
    asked: list[Any] = []
    kept = CheckpointManager(
        tmp_path, tiny_spec(), TORCH, 0, True, lambda values: asked.append(values) or values
    )
    assert not kept.due(1) and not asked and not list(tmp_path.iterdir())
    kept.close()


def test_its_clock_never_jumps() -> None:
    """A wall clock is set forward and back; only the monotonic one is read."""
    read = {
        node.attr
        for node in ast.walk(ast.parse(inspect.getsource(manager)))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "time"
    }
    assert read == {"monotonic"}


def test_a_run_that_goes_on_finds_its_folder_as_if_it_had_never_been_killed(tmp_path: Path) -> None:
    run, outside = tmp_path / "run", tmp_path / "outside"
    saved(run, 3, 5, 7)
    outside.mkdir()
    (outside / "file").write_text("mine")
    folder = run / "checkpoints"
    (folder / "step_00000009.partial").mkdir()
    (folder / "step_00000009.partial" / STATE).write_text("half")
    (folder / "step_00000008.partial").symlink_to(outside)
    with Trained(run, first_step=5, keep_last=1) as trained:
        # What is of later steps is no part of the run any more; it is not lost either.
        assert names(run) == ["step_00000003", "step_00000005", "step_00000007.left"]
        assert find(run)[0].step == 5
        trained.save(6)
        trained.checkpoints.wait_until_written()
        assert steps(run) == [6]
    assert read_checkpoint(folder / "step_00000007.left").step == 7
    assert (outside / "file").read_text() == "mine"
    # The same again, and nothing stands in the way.
    with Trained(run, first_step=6) as trained:
        trained.save(7)
    Trained(run, first_step=6).checkpoints.close()
    assert names(run) == ["step_00000006", "step_00000007.left"]


def test_a_checkpoint_is_never_written_over(whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    before = (run / "checkpoints" / "step_00000005" / MANIFEST).read_bytes()
    with (
        Trained(run, first_step=5, in_background=False) as trained,
        pytest.raises(CheckpointError, match="already"),
    ):
        trained.save(5)
    assert (run / "checkpoints" / "step_00000005" / MANIFEST).read_bytes() == before
    assert names(run) == ["step_00000003", "step_00000005"]


def test_two_runs_do_not_train_into_one_folder(tmp_path: Path) -> None:
    with Trained(tmp_path):
        with pytest.raises(CheckpointError, match="another process is training into it") as error:
            Trained(tmp_path)
        one_line(error.value)
    Trained(tmp_path).checkpoints.close()


def test_a_lock_that_fails_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Storage without locks is named; any other failure ends the run."""

    def failing(number: int) -> None:
        def flock(*_: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(manager.fcntl, "flock", flock)

    failing(errno.EIO)
    with pytest.raises(CheckpointError, match="cannot be locked: Input/output error"):
        manager.lock(tmp_path)
    failing(errno.ENOSYS)
    manager.lock(tmp_path).close()
    said = one_line(capsys.readouterr().err)
    assert "this storage has no locks" in said and str(tmp_path) in said


def test_a_killed_process_holds_no_lock(tmp_path: Path) -> None:
    code = "import sys, time; from pathlib import Path; from parity.common.checkpoint.manager import lock\n"
    code += "held = lock(Path(sys.argv[1])); print('held', flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code, tmp_path], cwd=ROOT, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        with pytest.raises(CheckpointError, match="another process"):
            manager.lock(tmp_path)
        holder.kill()
    manager.lock(tmp_path).close()


def _lock_is_a_folder(run: Path) -> None:
    (run / "lock").mkdir(parents=True)


def _lock_is_a_link(run: Path) -> None:
    run.mkdir()
    (run / "lock").symlink_to(run.parent / "elsewhere")


def _run_is_a_file(run: Path) -> None:
    run.write_text("")


def _checkpoints_is_a_file(run: Path) -> None:
    run.mkdir()
    (run / "checkpoints").write_text("")


def _read_only(run: Path) -> None:
    run.mkdir(mode=0o500)


# Root may write into a folder that is read-only, so that one cannot be tried as root.
UNWRITABLE = [_lock_is_a_folder, _lock_is_a_link, _run_is_a_file, _checkpoints_is_a_file]
UNWRITABLE += [] if os.geteuid() == 0 else [_read_only]


@pytest.mark.parametrize("spoil", UNWRITABLE)
def test_what_cannot_be_written_is_said_in_one_line(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    run = tmp_path / "run"
    spoil(run)
    with pytest.raises(CheckpointError) as error, Trained(run, in_background=False) as trained:
        trained.save(1)
    text = one_line(error.value)
    assert ("cannot be made" in text or "cannot be written" in text) and str(run) in text, text
    assert not (tmp_path / "elsewhere").exists()


def test_what_fails_in_the_background_is_said_at_the_next_chance(tmp_path: Path) -> None:
    spec = tiny_spec(PLATEAU)
    with Trained(tmp_path, spec=spec, keep_last=9) as trained:
        trained.save(1)
        trained.checkpoints.wait_until_written()
        trained.rates.restore({**trained.rates.kept(), "plateau_sum": float("nan")})
        trained.save(2)
        with pytest.raises(
            CheckpointError, match=r"cannot be written: rates.plateau_sum.*the last whole one is step_0"
        ) as error:
            trained.save(3)
        one_line(error.value)
    assert names(tmp_path) == ["step_00000001"]


def _crashes(*arguments: object) -> Any:
    command = [sys.executable, "-m", "parity_tests.crashes", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    seen = _crashes("full", tmp_path)
    for room in ("0", "1000", "2000"):
        said, *there = seen[room]
        assert "cannot be written" in said and "File too large" in said and "step_00000003" in said, said
        assert there == ["step_00000003", "step_00000007"]
    assert seen["100000"] == ["saved", "step_00000003", "step_00000005", "step_00000007"]


@pytest.mark.parametrize("stride", [23, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_a_kill_before_any_line_leaves_a_whole_checkpoint(tmp_path: Path, stride: int) -> None:
    seen = _crashes("kills", tmp_path, stride)
    assert seen.pop("damaged") == seen.pop("left over") == 0
    assert seen.pop("tried") >= 400 // stride
    # Each is seen: kills that came before the first was done, after it, and after the second.
    assert set(seen) == {f"step {step}, its own state" for step in (5, 7, 9)}


TF = Placement(framework="tensorflow", strategy="mirrored")


@pytest.mark.parametrize(
    ("placement", "fields", "words"),
    [
        (TF, {"engine": "keras"}, "cannot be saved: engine 'keras' owns the loop; take engine own"),
        (TORCH, {"engine": "lightning"}, "cannot be saved: engine 'lightning' owns the loop"),
        (
            TORCH,
            {"engine": "lightning", "save": None, "resume": "/run"},
            "cannot be resumed: engine 'lightning'",
        ),
        (
            DDP,
            {"engine": "accelerate", "accumulation": ((0, 1), (1, 2)), "resume": "/run"},
            "counts its steps from 0",
        ),
        (DDP, {"replay": {"stop": 3}}, "cannot be saved: a replay begins where it is told"),
        (TF, {}, None),
        (DDP, {"engine": "accelerate", "accumulation": 2, "resume": "/run"}, None),
        (DDP, {"engine": "accelerate", "accumulation": ((0, 1), (1, 2))}, None),
        (TORCH, {"engine": "lightning", "save": None}, None),
    ],
)
def test_what_cannot_be_saved_is_told_before_it_trains(
    placement: Placement, fields: Mapping[str, Any], words: str | None
) -> None:
    spec = tiny_spec()
    run = config(placement, **{"save": {"every_steps": 2}, **fields})
    if words is None:
        check_run(spec, *run.parts)
        return
    with pytest.raises(SpecError) as error:
        check_run(spec, *run.parts)
    assert words in one_line(error.value)


def test_a_checkpoint_says_what_it_holds(whole: Path) -> None:
    found, _ = find(whole)
    assert isinstance(found, Checkpoint) and found.folder.name == "step_00000005"
    assert found.manifest.parity and found.manifest.written.endswith("+00:00")
