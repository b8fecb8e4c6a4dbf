"""YAML as everything here reads and writes it: files, `--set`, `--placement`, `--optimizer`.

What a plain word stands for, as in the core schema of YAML 1.2 (which reads every JSON document), and 1_000 besides:

    null, Null, NULL, ~, nothing at all             None
    true, True, TRUE, false, False, FALSE           a truth value; yes, no, on and off are text
    12, -3, 007 (seven), 1_000, 0x1F, 0o17          a whole number; 1:30 is text
    1.5, .5, 1., 1e-3, 1E+6, .inf, -.inf, .nan      a number
    anything else, 2020-01-31 and << too            text

A key stands once in a mapping. There are no references (&name, *name) and no tags that make Python objects.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from parity.common.base.errors import SpecError

_TAG = "tag:yaml.org,2002:"
_FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$|[-+]?\.(inf|Inf|INF)$|\.(nan|NaN|NAN)$"
)
# In this order, by the characters that such a word begins with.
_RESOLVERS = (
    ("null", re.compile(r"(~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    ("bool", re.compile(r"(true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    ("int", re.compile(r"([-+]?[0-9]+(_[0-9]+)*|0o[0-7]+|0x[0-9a-fA-F]+)$"), list("-+0123456789")),
    ("float", _FLOAT, list("-+.0123456789")),
)


# By libyaml, where PyYAML was built with it: five times as fast.
_Stock: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Stock):  # type: ignore[misc]
    """Safe YAML."""

    yaml_implicit_resolvers: dict[str, Any] = {}

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """Refuse a key that is given twice: one of its values would be dropped without a word."""
        seen = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if not isinstance(key, yaml.ScalarNode):
                continue  # refused where it is read: no field has such a name
            if (key.tag, key.value) in seen:
                problem = f"the key {key.value[:80]!r} is given twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """Quotes what YAML 1.1 takes for something else than text, as PyYAML does, and what 1.2 does."""


def _integer(loader: _Loader, node: Any) -> int:
    text = str(loader.construct_scalar(node))
    return int(text, 0 if text.startswith(("0x", "0o")) else 10)


for _name, _pattern, _first in _RESOLVERS:
    _Loader.add_implicit_resolver(_TAG + _name, _pattern, _first)
    _Dumper.add_implicit_resolver(_TAG + _name, _pattern, _first)
_Loader.add_constructor(f"{_TAG}int", _integer)


def parse_yaml(text: str, where: str) -> Any:
    """Return the plain data that YAML or JSON text stands for.

    Args:
        text: a file's, or what a flag was given.
        where: the file or flag, for the message.

    Raises:
        SpecError: in one line that begins with `where`.
    """
    try:
        if "*" in text:
            _refuse_references(text)
        return yaml.load(text, Loader=_Loader)
    except RecursionError:
        raise SpecError(f"{where}: not YAML or JSON: nested too deeply") from None
    # PyYAML lets errors of its converters through: !!timestamp of a 13th month, !!bool maybe, 5,000 digits.
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError) as error:
        if "nesting depth" in str(error):  # libyaml's limit
            raise SpecError(f"{where}: not YAML or JSON: nested too deeply") from None
        raise SpecError(f"{where}: not YAML or JSON: {' '.join(str(error).split())}") from None


def _refuse_references(text: str) -> None:
    """A few lines of them can describe more than fits in memory."""
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            mark: Any = event.start_mark
            raise yaml.composer.ComposerError(None, None, "references (*name) are not read", mark)


def dump_plain(data: Any, **options: Any) -> str:
    """Return plain data as YAML that `parse_yaml`, and a reader of YAML 1.1, take for the same data.

    Args:
        data: mappings, lists, text, numbers, truth values and None.
        options: of `yaml.dump`, such as `default_flow_style`.
    """
    text: str = yaml.dump(data, Dumper=_Dumper, sort_keys=False, **options)
    return text
