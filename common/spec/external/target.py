"""Where a user's model, optimizer or loss is found: 'package.module:attribute'."""

from __future__ import annotations

import re
from typing import Any

from pydantic import Field

from parity.common.base.errors import ExternalModelError
from parity.common.spec.base import Spec

_FORM = re.compile(r"(?P<module>[A-Za-z_][\w.]*):(?P<attribute>[A-Za-z_][\w.]*)")


class Target(Spec):
    """A name that is imported, and only in its own framework's process."""

    module: str = Field(description="the module, as in an import")
    attribute: str = Field(description="what is taken from it")
    arguments: dict[str, Any] = Field(
        default={}, description="keyword arguments that it is called with, plain JSON values"
    )

    @classmethod
    def of(cls, text: str, arguments: dict[str, Any] | None = None) -> Target:
        """From 'package.module:attribute'; raises ExternalModelError where it has another form."""
        match = _FORM.fullmatch(text)
        if match is None:
            call = "; arguments are given by a function of yours that takes none" if "(" in text else ""
            raise ExternalModelError(
                f"a model is named package.module:attribute, such as my_pkg.models:build; received {text[:80]!r}{call}"
            )
        return cls(module=match["module"], attribute=match["attribute"], arguments=arguments or {})

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.module}:{self.attribute}" + (f"({given})" if given else "")
