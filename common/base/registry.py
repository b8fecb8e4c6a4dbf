"""What belongs to which class of specs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Made = TypeVar("Made")


class Registry(dict[type, Made]):
    """By class what has been registered for it, such as the function that builds its layer."""

    def register(self, *kinds: type) -> Callable[[Made], Made]:
        """Decorator: what belongs to these classes."""

        def take(made: Made) -> Made:
            self.update(dict.fromkeys(kinds, made))
            return made

        return take
