"""The one exception family that a person sees: one line, what was received, what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

# What pyproject.toml calls the toolkit.
DISTRIBUTION = "tf-torch-parity"


class ParityError(Exception):
    """Base of every expected failure. Shown as one line without a traceback."""

    exit_code = 2


class SpecError(ParityError):
    """A spec, a placement or an override that is not valid."""


class RecordError(ParityError):
    """A run record that is missing, truncated, foreign, or would be overwritten."""


class NotComparableError(ParityError):
    """Two records that must not be compared: different specs, unequal step sets, nothing in common."""


class RunError(ParityError):
    """A training run that could not start or did not finish; ends with the child's own last lines."""


class CheckpointError(ParityError):
    """A checkpoint that is missing, damaged, foreign or of another spec, or that cannot be written."""


class ExternalModelError(ParityError):
    """A user's model, script or mapping that cannot be used as it is; says what was tried."""


class StoppedError(ParityError):
    """A run that was asked to stop, has saved, and can go on. Its exit code is sysexits.h's EX_TEMPFAIL."""

    exit_code = 75


class MissingPackageError(ParityError):
    """A framework or an optional library is not installed."""


def check_printable(names: Iterable[str], where: object, kind: type[ParityError]) -> None:
    """Raise `kind` for a name that would write more on a terminal than itself: a second line, or an escape sequence."""
    for name in names:
        if not name.isprintable():
            raise kind(
                f"{where}: the name {name[:80]!a} has control characters; the file is damaged or foreign"
            )


def check_least(least: int, **counts: int | None) -> None:
    """Raise SpecError, which names the flag, unless these numbers are at least `least`; None is one that is not given."""
    for name, value in counts.items():
        if value is not None and value < least:
            raise SpecError(f"--{name.replace('_', '-')} must be at least {least}, received {value}")


def did_you_mean(given: object, known: Iterable[str], called: Mapping[str, str] = {}) -> str:
    """Return "; did you mean 'x'?" with the known name most like a given one; '' where none is like it.

    Args:
        given: what was typed, as optim.Adam, too.
        known: what there is.
        called: other names of what there is, such as those of the frameworks: name -> ours.
    """
    import difflib  # slow, and seldom needed

    ours = list(known)
    names = {_squeezed(other): name for other, name in called.items() if name in ours}
    names |= {_squeezed(name): name for name in ours}
    word = _squeezed(str(given)[:80].rpartition(".")[2])
    near = [name for name in names if sorted(name) == sorted(word)] or difflib.get_close_matches(
        word, names, 1
    )
    near = near or [name for name in names if len(word) > 2 and word in name]
    return f"; did you mean {names[near[0]]!r}?" if near else ""


def _squeezed(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())


def how_to_install(extra: str) -> str:
    """The command that adds an extra to the toolkit, to end a message with.

    By its name only where it is installed: pip then adds the extra to what is there. Otherwise pip would download
    whatever a registry has under this name.
    """
    from importlib import metadata  # slow, and seldom needed

    try:
        metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return f"in the toolkit's folder run: pip install '.[{extra}]'"
    return f"run: pip install '{DISTRIBUTION}[{extra}]'"
