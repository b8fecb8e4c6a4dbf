"""Being asked to stop: by a signal, or by the process that started this one."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

# SIGHUP: the terminal, or the session of ssh, has been closed.
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
# Whether one came to `listen`.
_heard = threading.Event()


def listen() -> None:
    """From now on, until this process ends, a signal that asks it to stop is only taken note of.

    For a process that will train and save: one that comes while it still imports, or once it has stopped, must
    not end it with another exit code.
    """
    if threading.current_thread() is threading.main_thread():
        for number in _not_ignored():
            signal.signal(number, lambda *_: _heard.set())


@contextmanager
def handling(handler: Callable[[int, Any], None]) -> Iterator[None]:
    """Within it, a signal that asks this process to stop calls `handler`; in another thread than the first, none does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in _not_ignored()}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextmanager
def interrupting() -> Iterator[None]:
    """Within it, a signal that asks this process to stop interrupts it as Ctrl-C does: what has nothing to save must not fall silent.

    What is forked from it is ended by such a signal.
    """
    own = os.getpid()

    def interrupted(number: int, _: object) -> None:
        if os.getpid() == own:
            raise KeyboardInterrupt
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    with handling(interrupted):
        yield


def _not_ignored() -> list[signal.Signals]:
    """Those of SIGNALS that this process was not started to ignore, as nohup has it ignore SIGHUP."""
    return [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]


class Stop:
    """Watches whether this process is asked to save and stop, from here until `close`.

    The signals of SIGNALS ask for it. Ranks that `run_ranks` has started hear it from the process that did:
    its own SIGTERM must still end them.
    """

    def __init__(self, watching: bool) -> None:
        rendezvous = os.environ.get("PARITY_RENDEZVOUS")
        self._file = None if rendezvous is None else stop_file(rendezvous)
        self._heard = threading.Event()
        self._handling = ExitStack()
        if watching and self._file is None:
            self._handling.enter_context(handling(lambda *_: self._heard.set()))

    def requested(self) -> bool:
        """Whether it was asked for."""
        heard = self._heard.is_set() or _heard.is_set()
        return heard or (self._file is not None and self._file.exists())

    def close(self) -> None:
        """Stop watching."""
        self._handling.close()


def stop_file(rendezvous: str) -> Path:
    """By this file ranks on one machine are asked to stop."""
    return Path(f"{rendezvous}.stop")


@contextmanager
def passing_on(rendezvous: str) -> Iterator[None]:
    """Within it, a signal that asks this process to stop asks its ranks."""
    with handling(lambda *_: stop_file(rendezvous).touch()):
        if _heard.is_set():
            stop_file(rendezvous).touch()
        yield
