"""Text on its way to a person: one line, whatever names it holds.

Names come from records, specs, mappings, folders and messages of others. An escape sequence among them could clear the
screen or colour a verdict, and a line break could forge a line of ours. So each call here prints one line, in which all
that is not printable is spelled out.
"""

from __future__ import annotations

import sys


def plain(text: object) -> str:
    """Return text in one line of printable characters; others are spelled as Python spells them, such as \\x1b and \\n."""
    said = str(text)
    if said.isprintable():
        return said
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "surrogatepass").decode()
        for each in said
    )


def without_controls(text: str) -> str:
    """Return text without what is not printable, but for line breaks and tabs: for a page, which may have several lines."""
    return "".join(each for each in text if each.isprintable() or each in "\n\t")


def print_line(line: object = "") -> None:
    """Print one line on standard output."""
    print(plain(line))


def print_error(line: object) -> None:
    """Print one line on standard error at once; nothing where there is none, or where it takes nothing."""
    if sys.stderr is None:
        return
    try:
        print(plain(line), file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass


def print_document(text: str) -> None:
    """Print text of several lines that we have written ourselves, such as YAML, which ends with its own line break."""
    print("\n".join(map(plain, text.split("\n"))), end="")
