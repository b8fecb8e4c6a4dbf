"""A console for people: text is shown as it is, and only what is called markup is read as markup."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from rich.console import Console
from rich.text import Text

from parity.common.base.plain import plain


class Terminal(Console):
    """rich's console without its traps: names in square brackets, emoji codes, escape sequences, line breaks, notebooks.

    In a notebook rich shows each line as an output of its own, whatever file it is given.

    Cells of tables and labels of trees are text as well; what is to be styled in them is made by `styled`.
    """

    _silent: ClassVar[bool] = False

    def __init__(self, **options: Any) -> None:
        options = {"quiet": Terminal._silent, **options}
        super().__init__(emoji=False, markup=False, highlight=False, force_jupyter=False, **options)

    @classmethod
    @contextmanager
    def silenced(cls) -> Iterator[None]:
        """Within it, consoles that are made show nothing."""
        before, Terminal._silent = Terminal._silent, True
        try:
            yield
        finally:
            Terminal._silent = before

    def render_str(self, text: str, **options: Any) -> Text:
        """Text as it is, in one line; all that is printed as a string comes through here."""
        return super().render_str(plain(text), **options)

    def say(self, line: str) -> None:
        """Print one line of rich's markup, however long it is; names in it are escaped (`rich.markup.escape`)."""
        self.print(styled(line), soft_wrap=True)

    def html(self) -> str:
        """What was printed, where `record=True`, in the colours of the page that it is put into; names are escaped."""
        frame = '<pre style="white-space:pre;overflow-x:auto;font-family:monospace"><code>{code}</code></pre>'
        return self.export_html(inline_styles=True, code_format=frame)

    def tell(self, text: str, style: str = "") -> None:
        """Print one line of text as it is, however long it is."""
        self.print(Text(plain(text), style), soft_wrap=True)


def styled(line: str) -> Text:
    """One line of rich's markup, in which names are escaped, for a cell or a label."""
    return Text.from_markup(plain(line), emoji=False)
