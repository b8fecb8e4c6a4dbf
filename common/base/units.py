"""Amounts of memory as people write them: 80GB, 1.5GiB, 512 KiB."""

from __future__ import annotations

import re
from fractions import Fraction

from parity.common.base.errors import SpecError

_UNITS: dict[str, int] = {
    "B": 1,
    **{f"{letter}B": 1000**power for power, letter in enumerate("KMGT", start=1)},
    **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGT", start=1)},
}
_LARGEST = 2**60


def parse_size(text: str, flag: str = "size") -> int:
    """Bytes of '80GB' (10^9 each) or '40GiB' (2^30 each); a unit is required.

    Raises:
        SpecError: not a number and a unit, not above zero, no whole number of bytes, or absurdly large.
    """
    match = re.fullmatch(r"(\d{1,18}(?:\.\d{1,9})?) ?([A-Za-z]{1,3})", text)
    if match is None or match[2] not in _UNITS:
        raise SpecError(
            f"{flag} {text!r}: expected a number and one of {', '.join(_UNITS)}, e.g. 80GB or 40GiB"
        )
    size = Fraction(match[1]) * _UNITS[match[2]]
    if size.denominator > 1 or not 0 < size <= _LARGEST:
        raise SpecError(f"{flag} {text!r}: must be a whole number of bytes, from 1 to 2^60")
    return int(size)


def show_size(size: float) -> str:
    """Bytes for people, in units of 1024, with three digits: '1.50 GiB'."""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while abs(size) >= 1000 and len(units) > 1:
        size /= 1024
        units.pop(0)
    unit = units[0]
    if unit == "B":
        return f"{size:.0f} B"
    decimals = 2 if abs(size) < 10 else 1 if abs(size) < 100 else 0
    return f"{size:.{decimals}f} {unit}"


def parse_sizes(text: str, flag: str = "--sizes") -> tuple[int, ...]:
    """Return sizes in bytes.

    Args:
        text: '1KiB,1MiB', as listed; or '1KiB:16MiB:x4', from the first to the last, each 4 times the one before.
        flag: the flag that has this text, for the message.

    Raises:
        SpecError: the text is neither.
    """
    if ":" not in text:
        sizes = tuple(parse_size(part.strip(), flag) for part in text.split(","))
    else:
        match = re.fullmatch(r"([^:]+):([^:]+):x(\d{1,4})", text)
        if match is None or int(match[3]) < 2:
            raise SpecError(
                f"{flag} {text!r}: expected FIRST:LAST:xFACTOR, e.g. 1KiB:16MiB:x4, or a list 1KiB,1MiB"
            )
        first, last, factor = parse_size(match[1], flag), parse_size(match[2], flag), int(match[3])
        if first > last:
            raise SpecError(f"{flag} {text!r}: the first size is above the last")
        sizes = ()
        while first <= last:
            sizes, first = (*sizes, first), first * factor
    return sizes
