"""When a run saves, what stays of it, and whether it has been asked to stop."""

from __future__ import annotations

import errno
import fcntl
import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO

from parity.common.base.errors import CheckpointError, ParityError, StoppedError
from parity.common.base.files import partial_of
from parity.common.base.plain import print_error
from parity.common.base.stop import Stop
from parity.common.checkpoint import files
from parity.common.checkpoint.shards import Shard, gather, shard_file, write_announced, write_shard
from parity.common.spec import Placement, RunOptions, TrainSpec
from parity.common.state.canonical import State

# About so often do the processes of a run ask each other whether one was asked to stop.
_LOOK_SECONDS = 1.0

LOCK = "lock"

# Of some numbers of each process their sums over all processes; all must call it.
Agree = Callable[[Sequence[float]], Sequence[float]]


class CheckpointManager(AbstractContextManager["CheckpointManager"]):
    """Saves the checkpoints of a run. Every process of it must ask `due` after every step.

    A context manager around the training: what is being saved when that ends, or fails, was a whole state.

    stopping: whether the run is to end after what is due now.
    """

    def __init__(
        self,
        run: Path,
        spec: TrainSpec,
        placement: Placement,
        first_step: int,
        primary: bool,
        agree: Agree,
        run_options: RunOptions = RunOptions(),
    ) -> None:
        """Args:
        run: the folder of the run; of one that goes on, that of all its parts.
        first_step: of this process's training.
        primary: whether this process writes the state.
        agree: how the processes reach the same answer.
        run_options: when to save, where to end.

        Raises:
            CheckpointError: another process trains into the folder, or nothing can be written there.
        """
        self._run, self._spec, self._placement, self._primary = run, spec, placement, primary
        self._saving, self._agree = run_options.save, agree
        self._last = self._look = first_step
        # A run that ends before its spec does is meant to go on.
        self._stops_at = run_options.stop_at_step if run_options.steps_of(spec.steps) < spec.steps else None
        self._begun = self._saved = time.monotonic()
        self._first = first_step
        self._writer: threading.Thread | None = None
        self._error: Exception | None = None
        self._loss_sum = self._count = 0.0
        self.stopping = False
        self._lock = lock(run) if primary and (self._saving or run_options.resume) else None
        if self._lock is not None:
            try:
                files.tidy(run, first_step)
            except OSError as error:
                self._lock.close()
                raise self._unwritable(error) from error
        # Last: where anything before it fails, nobody would let go of the signals.
        self._stop = Stop(watching=self._saving is not None)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:  # why it failed is what a person must hear
            with suppress(ParityError):
                self.close()

    def observe(self, loss_sum: float, count: float) -> None:
        """Take note of a step's loss sum and count."""
        self._loss_sum += loss_sum
        self._count += count

    def due(self, step: int) -> bool:
        """Whether to save now, before `step`; the same answer in every process."""
        saving = self._saving
        if saving is None:
            return False
        by_count = (
            saving.every_steps is not None and step // saving.every_steps > self._last // saving.every_steps
        )
        by_clock = step >= self._look and self._stop_requested(step)
        return by_count or by_clock or self.stopping or step == self._stops_at

    def _stop_requested(self, step: int) -> bool:
        """Ask all processes; sets `stopping`; whether so much time has passed."""
        now = time.monotonic()
        minutes = self._saving.every_minutes if self._saving is not None else None
        over = self._primary and minutes is not None and now - self._saved >= 60 * minutes
        trained = max(1, step - self._first)
        # Only one process's clock may say when to ask again.
        ahead = trained * _LOOK_SECONDS / max(now - self._begun, 1e-3) if self._primary else 0.0
        stop, passed, ahead = self._agree([float(self._stop.requested()), float(over), ahead])
        self._look = step + max(1, int(ahead))
        self.stopping = stop > 0
        return passed > 0

    def save(
        self,
        step: int,
        state: State | Shard,
        rates: Mapping[str, float | None],
        own: Mapping[int, State] = MappingProxyType({}),
    ) -> None:
        """Write the state before `step`; with `in_background` while the training goes on.

        Args:
            state: the whole, or, where the ranks are to write it together, this one's part of it.
            own: by replica its buffers, where each has its own: of those that this process speaks for.

        Raises:
            CheckpointError: this, or the one before it, could not be written.
        """
        self.wait_until_written()
        self._last, self._saved = step, time.monotonic()
        loss = self._loss_sum / self._count if self._count else None
        loss = loss if loss is not None and math.isfinite(loss) else None
        self._loss_sum = self._count = 0.0
        if not (self._primary or own or isinstance(state, Shard)):
            return
        assert self._saving is not None
        given = (step, state, own, dict(rates), loss)
        if not self._saving.in_background or self.stopping:
            self._write(*given)
            self.wait_until_written()
            return
        self._writer = threading.Thread(target=self._write, args=given, name="checkpoint")
        self._writer.start()

    def wait_until_written(self) -> None:
        """Wait for what is still being written; raises CheckpointError where it could not be."""
        if self._writer is not None:
            self._writer.join()
            self._writer = None
        error, self._error = self._error, None
        if error is not None:
            raise self._unwritable(error) from error

    def _unwritable(self, error: Exception) -> CheckpointError:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        kept = files.checkpoints_of(self._run)
        before = f"; the last whole one is {kept[-1].name}" if kept else ""
        return CheckpointError(
            f"{self._run / files.FOLDER}: cannot be written: {' '.join(why.split()) or type(error).__name__}{before}"
        )

    def close(self) -> None:
        """The training is over."""
        try:
            self.wait_until_written()
        finally:
            self._stop.close()
            if self._lock is not None:
                self._lock.close()

    def stopped(self) -> StoppedError:
        """What a run says that has saved and stops."""
        return StoppedError(
            f"stopped before step {self._last} as asked; saved in {files.folder_of(self._run, self._last)}; go on with"
            f" --resume {self._run}"
        )

    def _write(
        self,
        step: int,
        state: State | Shard,
        own: Mapping[int, State],
        rates: Mapping[str, float | None],
        loss: float | None,
    ) -> None:
        """Write this process's part, and as the primary one, once the others have theirs, what makes it a checkpoint."""
        folder, placement = files.folder_of(self._run, step), self._placement
        partial = partial_of(folder)
        try:
            partial.mkdir(parents=True, exist_ok=True)
            for replica, buffers in own.items():
                write_announced(partial / files.replica_file(replica), buffers)
            # Where one replica has buffers of its own, each has.
            names = [files.replica_file(replica) for replica in range(placement.replicas) if own]
            if isinstance(state, Shard):
                write_shard(partial, state)
                names += map(shard_file, range(state.ranks))
            elif self._primary:
                write_announced(partial / files.STATE, state)
                names.append(files.STATE)
            if not self._primary:
                return
            written = gather(partial, names, placement.timeout_seconds)
            files.complete(folder, self._spec, placement, step, rates, loss, written)
            self._thin()
        except Exception as error:
            self._error = error
            # On a full disk the next attempt needs the room.
            with suppress(OSError):
                if self._primary:
                    files.remove(partial_of(folder))

    def _thin(self) -> None:
        """Remove what is neither among the last nor among the best."""
        assert self._saving is not None
        folders = files.checkpoints_of(self._run)
        kept = set(folders[-self._saving.keep_last :])
        if self._saving.keep_best:
            losses = {folder: _loss_of(folder) for folder in folders}
            kept |= set(sorted(folders, key=lambda folder: losses[folder])[: self._saving.keep_best])
        for folder in folders:
            if folder not in kept:
                # Under another name first: what is killed here leaves no half of one.
                gone = partial_of(folder)
                files.remove(gone)
                folder.rename(gone)
                files.remove(gone)


# What the system says of storage that has no locks.
_NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)


def lock(run: Path) -> IO[bytes]:
    """Keep others from training into a run; the system lets go of it when this process ends, however it does.

    Raises:
        CheckpointError: another process holds it, or it cannot be made or locked. Storage without locks is named on
            standard error instead.
    """
    try:
        run.mkdir(parents=True, exist_ok=True)
        # A link might have a file made, or held, anywhere; of a pipe only opening it to read and write returns.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        file = open(os.open(run / LOCK, flags, 0o644), "r+b", buffering=0)
    except OSError as error:
        raise CheckpointError(f"{run / LOCK}: cannot be made: {error.strerror or error}") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise CheckpointError(
            f"{run}: another process is training into it; wait for it, or give another --out"
        ) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            file.close()
            raise CheckpointError(f"{run / LOCK}: cannot be locked: {error.strerror or error}") from None
        print_error(
            f"{run}: this storage has no locks ({error.strerror}), so nothing keeps another process from training"
            " into it"
        )
    return file


def _loss_of(folder: Path) -> float:
    try:
        loss = files.read_manifest(folder).loss
    except ParityError:
        return math.inf
    return math.inf if loss is None else loss
