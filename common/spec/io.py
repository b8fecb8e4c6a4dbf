"""Specs to and from files, and overrides from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from parity.common.base.errors import SpecError
from parity.common.base.yaml import dump_plain, parse_yaml
from parity.common.spec.base import Spec
from parity.common.spec.train import TrainSpec

# The largest recipe takes a sixteenth of it; of more, a parser would be at work for minutes.
_SIZE_LIMIT = 1024 * 1024


def read_text(path: Path, limit: int, what: str) -> str:
    """A text file of at most `limit` bytes. Raises SpecError with one line; `what` is what the file should be."""
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise SpecError(f"{path}: cannot be read: a device or a pipe, which may never end")
        if path.stat().st_size > limit:
            raise SpecError(f"{path}: larger than {limit} bytes; {what} is a small text file")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: not YAML or JSON: {error}") from None


def load_spec(path: Path) -> TrainSpec:
    """Read a TrainSpec from YAML or JSON (JSON is YAML). Raises SpecError with one line."""
    text = read_text(path, _SIZE_LIMIT, "a spec")
    data = parse_yaml(text, str(path))
    if not isinstance(data, dict):
        raise SpecError(f"{path}: a spec is a mapping, received {type(data).__name__}")
    try:
        return TrainSpec.parse(data)
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from None


def dump_yaml(spec: Spec) -> str:
    """The spec as YAML, every field written out."""
    return dump_plain(spec.to_dict())


def dump_json(spec: TrainSpec) -> str:
    """The spec as JSON, every field written out."""
    return json.dumps(spec.to_dict(), indent=2) + "\n"


def json_schema() -> str:
    """JSON Schema of a TrainSpec, for editors."""
    return json.dumps(TrainSpec.model_json_schema(), indent=2) + "\n"


def override(spec: TrainSpec, assignments: list[str]) -> TrainSpec:
    """Apply 'path.to.field=value' assignments; values are YAML, list items go by number.

    Fields that follow a convention and were not given stay with the convention, so
    'convention=torch' changes them all.

    Raises:
        SpecError: an assignment has no '=', names no field, or its value does not fit.
    """
    data = spec.given()
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals or not path:
            raise SpecError(f"--set {assignment!r}: expected path.to.field=value")
        value = parse_yaml(text, f"--set {assignment!r}")
        _assign(data, path.split("."), value, assignment)
    return TrainSpec.parse(data)


def _assign(data: Any, path: list[str], value: Any, assignment: str) -> None:
    here = data
    for depth, part in enumerate(path):
        key: Any = part
        if isinstance(here, list):
            if not part.isdecimal() or int(part) >= len(here):
                raise SpecError(
                    f"--set {assignment!r}: {'.'.join(path[:depth])} has items 0 to {len(here) - 1}, received {part!r}"
                )
            key = int(part)
        elif not isinstance(here, dict):
            raise SpecError(f"--set {assignment!r}: {'.'.join(path[:depth])} has no fields")
        if depth == len(path) - 1:
            here[key] = value
        else:
            here = here.setdefault(key, {}) if isinstance(here, dict) else here[key]
