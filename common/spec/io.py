"""Specs to and from files, and overrides from the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from parity.common.base.errors import SpecError
from parity.common.spec.base import Spec
from parity.common.spec.train import TrainSpec

# The largest recipe takes a sixteenth of it; of more, a parser would be at work for minutes.
_SIZE_LIMIT = 1024 * 1024


class _Loader(yaml.SafeLoader):
    """Safe YAML without references: a few lines of them can describe more than fits in memory."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "references (*name) are not read", event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """Of a key that is given twice, one value would be dropped without a word."""
        seen = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if not isinstance(key, yaml.ScalarNode):
                continue  # no key of anything, as is said later
            if (key.tag, key.value) in seen:
                problem = f"the key {key.value[:80]!r} is given twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)


# YAML 1.1 reads JSON's 1e-07 as text; YAML 1.2, and whoever writes it, means a number.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$"),
    list("-+.0123456789"),
)


def parse_yaml(text: str, where: str) -> Any:
    """Plain data from YAML or JSON; raises SpecError with one line that begins with `where`."""
    try:
        return yaml.load(text, Loader=_Loader)
    except RecursionError:
        raise SpecError(f"{where}: not YAML or JSON: nested too deeply") from None
    # PyYAML lets errors of its converters through: a 13th month, !!bool maybe, a number of 5,000 digits.
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError) as error:
        raise SpecError(f"{where}: not YAML or JSON: {' '.join(str(error).split())}") from None


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
    return TrainSpec.parse(data)


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object's contents, for `object_pairs_hook`; raises ValueError for a key that is given twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is given twice")
    return found


def dump_yaml(spec: Spec) -> str:
    """The spec as YAML, every field written out."""
    return yaml.safe_dump(spec.to_dict(), sort_keys=False)


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
        last = depth == len(path) - 1
        if isinstance(here, list):
            if not part.isdecimal() or int(part) >= len(here):
                raise SpecError(
                    f"--set {assignment!r}: {'.'.join(path[:depth])} has items 0 to {len(here) - 1}, received {part!r}"
                )
            key: Any = int(part)
        elif isinstance(here, dict):
            key = part
        else:
            raise SpecError(f"--set {assignment!r}: {'.'.join(path[:depth])} has no fields")
        if last:
            here[key] = value
        elif isinstance(here, dict):
            here = here.setdefault(key, {})
        else:
            here = here[key]
