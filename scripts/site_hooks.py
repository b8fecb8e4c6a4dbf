"""Hooks of the documentation site: pages of the reference that are made from the code.

`pages()` gives them by their place in docs/: commands and flags from the parsers, fields of a spec from the classes,
recipes from their docstrings, the Python API from `parity.common.api.__all__`.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.util
import inspect
import re
import types
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from parity.common import recipes
from parity.common.base.yaml import dump_plain, parse_yaml
from parity.common.commands.main import parser_of
from parity.common.execution import flags
from parity.common.spec import Placement, RunOptions, TrainSpec, augment, losses, model, schedules, sources
from parity.common.spec import imported_loss as own_loss
from parity.common.spec.base import Spec
from parity.common.spec.capabilities import STRATEGIES
from parity.common.spec.data import DataSpec
from parity.common.spec.external.target import Target
from parity.common.spec.layers import LayerSpec, imported
from parity.common.spec.optimizers import OptimizerBase, WeightAverage
from parity.common.spec.optimizers.base import COMMON
from parity.common.spec.precision import LossScale
from parity.common.spec.run_options import Saving
from parity.common.spec.strategies import Options

API, API_PAGE = "parity.common.api", "reference/api.md"
# Bases whose fields are described once.
_SHARED = {losses.LossBase: "loss", OptimizerBase: "optimizer", schedules.ScheduleBase: "schedule"}
_MADE = "<!-- Made from the code by scripts/site_hooks.py. -->\n"
_LAYERS = {
    "core": "Dense, activations, shapes",
    "containers": "Containers",
    "convolution": "Convolutions",
    "pooling": "Pooling, padding, patches",
    "normalization": "Normalisation",
    "attention": "Attention",
    "embedding": "Tokens and positions",
    "recurrent": "Recurrent layers",
    "resizing": "Resizing",
    "random": "Dropout",
}


def on_config(config: Any) -> Any:
    """Put the generated pages into the navigation, where it says `reference/cli/*` and the like."""
    config.nav = _expanded(config.nav, pages())
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages."""
    from mkdocs.structure.files import File

    for place, text in pages().items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Put the table of commands where a page has `<!-- commands -->`.

    The search finds messages first, and the long tables of the evidence last.
    """
    for place, boost in (("evidence/", 0.2), ("how_to/troubleshooting", 4.0), ("reference/record", 2.0)):
        if page.file.src_uri.startswith(place):
            page.meta["search"] = {"boost": boost}
    known = [
        _row(f"[{name}](cli/{name.replace(' ', '_')}.md)", (parser.description or "").replace("\n", " "))
        for name, parser in commands().items()
    ]
    markdown = markdown.replace("<!-- commands -->", "\n".join(["| parity | to |", "| --- | --- |", *known]))
    # A block is named after its language: what is a file for those who walk through the page is its title here.
    return re.sub(r"^(```\w+) +(\S+)$", r'\1 title="\2"', markdown, flags=re.MULTILINE)


@functools.cache
def pages() -> dict[str, str]:
    """Markdown of every generated page, by its place below docs/."""
    return {
        place: f"{text.strip()}\n\n{_MADE}" for place, text in [*_commands(), *_specs(), _recipes(), *_api()]
    }


def _expanded(nav: Any, made: Iterable[str]) -> Any:
    """The navigation with `FOLDER/*` as the generated pages of that folder, and without the API where there is none."""
    if isinstance(nav, dict):
        return {title: _expanded(part, made) for title, part in nav.items()}
    if not isinstance(nav, list):
        return nav
    found = []
    for part in nav:
        if isinstance(part, str) and part.endswith("/*"):
            found += [place for place in made if place.startswith(part[:-1])]
        elif API_PAGE in made or part != {"Python API": API_PAGE}:
            found.append(_expanded(part, made))
    return found


def _api() -> Iterator[tuple[str, str]]:
    if importlib.util.find_spec(API) is None:
        return
    # Functions first, then classes.
    names = sorted(importlib.import_module(API).__all__, key=lambda name: (name[0].isupper(), name))
    text = "# Python API\n\nWhat a notebook or a script of your own can do after `import parity`. The commands do the same.\n\n"
    yield API_PAGE, text + "\n\n".join(f"::: {API}.{name}" for name in names)


# Commands


def commands() -> dict[str, argparse.ArgumentParser]:
    """The parsers by the words that call them: 'run', 'checkpoint list'."""
    return dict(_subcommands("", parser_of()))


def _subcommands(before: str, parser: Any) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                below = list(_subcommands(f"{before}{name} ", command))
                yield from below or [(before + name, command)]


def _commands() -> Iterator[tuple[str, str]]:
    for name, parser in commands().items():
        yield f"reference/cli/{name.replace(' ', '_')}.md", _command(name, parser)
    rows = ["| flag | of | values | default | meaning |", "| --- | --- | --- | --- | --- |"]
    sides = {side: dict(flags.fields(side)) for side in ("tensorflow", "torch")}
    for name in dict.fromkeys([*sides["tensorflow"], *sides["torch"]]):
        of = [side for side, known in sides.items() if name in known]
        field = sides[of[0]][name]
        words = dict.fromkeys(word for side in of for word in flags.choices_of(side, name, field))
        values = _or(words) if words else _type(field, None)
        both = "both" if len(of) == 2 else of[0]
        rows.append(
            _row(
                f"`--{name}`", both, values, _default(Placement, name, field), _text(field.description or "")
            )
        )
    yield (
        "reference/cli/trainers.md",
        (
            "# python -m parity.tf_impl, parity.torch_impl\n\n"
            "Train one spec in one framework and write one record. `--recipe`, `--spec` and `--set` say what is trained,"
            " `--out` where the record goes. `--option NAME=VALUE` sets an option of the strategy, `--resume FOLDER` or"
            " `--resume auto` goes on from a checkpoint, `--restarts N` starts a training that died again.\n\n"
            "```sh\npython -m parity.torch_impl --recipe digits_cnn --strategy ddp --replicas 2 --out runs/ddp\n```\n\n"
            + "\n".join(rows)
        ),
    )


def _command(name: str, parser: argparse.ArgumentParser) -> str:
    # The flags of absl, which every command takes (--flagfile, --verbosity), are left out.
    actions = [
        action
        for action in parser._actions
        if not type(action).__module__.startswith("absl")
        and action.help != argparse.SUPPRESS
        and action.dest != "help"
    ]
    own = ["/".join(action.option_strings) or action.dest for action in actions]
    usage = [f"parity {name}"]
    for action in actions:
        said = " ".join(part for part in (action.option_strings[:1] or [""])[:1]) or ""
        value = "" if action.nargs == 0 else _metavar(action)
        both = f"{said} {value}".strip()
        usage.append(both if action.required else f"[{both}]")
    rows = ["| argument | values | default | meaning |", "| --- | --- | --- | --- |"]
    for label, action in zip(own, actions, strict=True):
        values = (
            _or(action.choices) if action.choices else ("" if action.nargs == 0 else f"`{_metavar(action)}`")
        )
        usual = "required" if action.required else _plain(action.default)
        if action.default in (None, False, [], argparse.SUPPRESS) and not action.required:
            usual = ""
        rows.append(_row(f"`{label}`", values, usual, _expanded_help(parser, action)))
    text = f"# parity {name}\n\n{_text(parser.description or '')}\n\n```text\n{_wrapped(usage)}\n```\n\n"
    if parser.epilog:
        notes, _, shown = parser.epilog.partition("examples:\n")
        text += f"{_text(' '.join(notes.split()))}\n\n" if notes.strip() else ""
        text += f"```sh\n{inspect.cleandoc(shown)}\n```\n\n" if shown else ""
    return text + ("\n".join(rows) if actions else "It takes no arguments.")


def _expanded_help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    return _text(parser._get_formatter()._expand_help(action)) if action.help else ""


def _metavar(action: argparse.Action) -> str:
    if action.choices:
        return "{" + ",".join(map(str, action.choices)) + "}"
    given = action.metavar or action.dest.upper()
    value = given if isinstance(given, str) else " ".join(given)
    return f"{value} ..." if action.nargs in ("+", "*") else value


def _wrapped(parts: list[str], width: int = 100) -> str:
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + len(part) >= width:
            lines.append("   ")
        lines[-1] += f" {part}"
    return "\n".join(lines)


# Specs


def _specs() -> Iterator[tuple[str, str]]:
    found = {
        "train": ("Train spec", [TrainSpec, model.ModelSpec, LossScale]),
        "data": ("Data and sources", [DataSpec, *_kinds(sources)]),
        "augment": ("Augmentation", _kinds(augment)),
        **{f"layers_{module}": (f"Layers: {title}", _layers(module)) for module, title in _LAYERS.items()},
        "losses": ("Losses", [losses.LossBase, *_kinds(losses)]),
        "optimizers": ("Optimizers", [OptimizerBase, WeightAverage, *_optimizers()]),
        "schedules": ("Schedules", [schedules.ScheduleBase, schedules.Warmup, *_kinds(schedules)]),
        "placement": ("Placement", [Placement, *_options()]),
        "run_options": ("Run options", [RunOptions, Saving]),
        "imported": (
            "Imported models",
            [
                *(imported.Imported, imported.ExternalTensor, imported.Pair, imported.KeyedDropout),
                *(own_loss.ImportedLoss, own_loss.Term, own_loss.BatchArray, own_loss.ArrayForm, Target),
            ],
        ),
    }
    for name, (title, classes) in found.items():
        about = ABOUT.get(
            name,
            "Entries of `model.layers`. Each may also have a `name`, by which tensors are called; the default is"
            " its kind, with a number where there are several.",
        )
        yield f"reference/spec/{name}.md", f"# {title}\n\n{about}\n\n" + _sections(classes)


ABOUT = {
    "train": "What is trained. `parity show RECIPE --format yaml > my.yaml` writes a whole spec to begin with;"
    " `--set path.to.field=value` changes one field.",
    "data": "`data` says which samples are trained on and evaluated, in which order. More: [data](../../how_to/data.md).",
    "augment": "The entries of `data.augment`, in the order in which they are applied.",
    "losses": "`loss`: what is minimised. Each also has the fields `l1`, `l2` and `penalize`.",
    "optimizers": "`optimizer`: how parameters are updated. Every optimizer also has the fields of the first table.",
    "schedules": "`schedule`: the learning rate of each step, as a fraction of the optimizer's. Each also has"
    " `warmup` and `base_batch_size`.",
    "placement": "How a spec is run: `--placement framework:strategy:replicas[,field=value...]`, or as flags of"
    " [the trainers](../cli/trainers.md). Options of the strategy are given beside the fields.",
    "run_options": "What a run records, saves and times. The fields are flags of [the trainers](../cli/trainers.md);"
    " those of `save` begin with `save_`, but for `keep_last` and `keep_best`.",
    "imported": "The layer and the loss of a `pair.yaml`, which `parity pair` writes for two models of your own."
    " You need not write them by hand.",
}


def _kinds(module: Any) -> list[type[Spec]]:
    """The specs of a module that have a kind, in the order of its source."""
    return [
        value
        for value in vars(module).values()
        if inspect.isclass(value)
        and issubclass(value, Spec)
        and value.__module__ == module.__name__
        and "kind" in value.model_fields
        and get_origin(value.model_fields["kind"].annotation) is Literal
    ]


def _layers(module: str) -> list[type[Spec]]:
    return _kinds(importlib.import_module(f"parity.common.spec.layers.{module}"))


def _optimizers() -> list[type[Spec]]:
    folder = "parity.common.spec.optimizers"
    return [
        c
        for part in ("descent", "adam", "adaptive", "matrix")
        for c in _kinds(importlib.import_module(f"{folder}.{part}"))
    ]


def _options() -> list[type[Spec]]:
    rows = [row.options for strategies in STRATEGIES.values() for row in strategies.values()]
    return [kind for kind in dict.fromkeys(rows) if kind.model_fields and kind is not Options]


def _sections(classes: Iterable[type[Spec]]) -> str:
    """A heading, what it is and its fields, of each class; what several inherit is described before them."""
    classes = list(classes)
    parts: list[str] = []
    described: set[type] = set(classes)
    for kind in classes:
        for base in reversed(kind.__mro__[1:]):
            if base.__module__ == kind.__module__ and base.__dict__.get("__doc__") and base not in described:
                described.add(base)
                parts.append(_doc(base))
        parts.append(f"## {_heading(kind)}\n\n{_doc(kind)}")
        if names := [name for name in fields_of(kind) if not _is_shared(kind, name)]:
            parts.append(_table(kind, names))
    return "\n\n".join(parts)


def _heading(kind: type[Spec]) -> str:
    if kind in _SHARED:
        return f"Fields of every {_SHARED[kind]}"
    if issubclass(kind, Options):
        names = [n for rows in STRATEGIES.values() for n, row in rows.items() if row.options is kind]
        return "Options of " + _or(names)
    known = kind.model_fields.get("kind")
    return f"`{known.default}`" if known else kind.__name__


def _is_shared(kind: type[Spec], name: str) -> bool:
    """Whether all of its family have a field with the same values and the same default."""
    return any(
        issubclass(kind, base)
        and kind is not base
        and repr(kind.model_fields[name]) == repr(base.model_fields.get(name))
        and kind.conventions.get(name) == _conventions(base).get(name)
        for base in _SHARED
    )


def _conventions(kind: type[Spec]) -> Any:
    return COMMON if kind is OptimizerBase else kind.conventions


def fields_of(kind: type[Spec]) -> list[str]:
    """The fields that a user writes, besides the kind. Any layer may have a name; options are named beside fields."""
    hidden = {"kind", "options"} | ({"name"} if issubclass(kind, LayerSpec) else set())
    return [name for name in kind.model_fields if name not in hidden]


def _table(kind: type[Spec], names: Iterable[str]) -> str:
    rows = ["| field | values | default | meaning | example |", "| --- | --- | --- | --- | --- |"]
    for name in names:
        field = kind.model_fields[name]
        shown = f"`{name}: {_plain(example(kind, name))}`"
        rows.append(
            _row(
                f"`{name}`",
                _type(field, kind),
                _default(kind, name, field),
                _text(field.description or ""),
                shown,
            )
        )
    return "\n".join(rows)


def _default(kind: type[Spec], name: str, field: FieldInfo) -> str:
    if name in _conventions(kind):
        keras, torch = _conventions(kind)[name]
        both = keras == torch
        return f"`{_plain(keras)}`" if both else f"keras `{_plain(keras)}`, torch `{_plain(torch)}`"
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    return "none" if value is None else f"`{_plain(value)}`"


def example(kind: type[Spec], name: str) -> Any:
    """A value that the field takes: written here, of a recipe, or another one than its default."""
    for key in (*(f"{each.__name__}.{name}" for each in kind.__mro__), name):
        if key in _examples():
            return _examples()[key]
    for owner in kind.__mro__:
        if (owner, name) in _used():
            return _used()[owner, name]
    return _made_up(kind, name)


@functools.cache
def _examples() -> dict[str, Any]:
    text = Path(__file__).with_name("site_examples.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = parse_yaml(text, "site_examples.yaml")
    return found


def _made_up(kind: type[Spec], name: str) -> Any:
    """Another value than the default, by the type."""
    field = kind.model_fields[name]
    usual = None if field.is_required() else field.get_default(call_default_factory=True)
    if name in kind.conventions:
        usual = next(v for v in reversed(kind.conventions[name]) if v is not None)
    if isinstance(usual, bool):
        return not usual
    for part in _parts(field.annotation):
        words = [word for word in get_args(part) if word != usual] if get_origin(part) is Literal else []
        if words:
            return words[0]
    if isinstance(usual, int):
        return 2 * usual or 1
    if isinstance(usual, float):
        return usual / 2 or 0.1
    return usual if usual is not None else 1 if int in _parts(field.annotation) else 0.5


def _used(found: dict[tuple[type, str], Any] = {}) -> dict[tuple[type, str], Any]:  # noqa: B006
    """Short values that recipes give to fields, by the class that has the field."""
    if not found:
        for name in recipes.names():
            for spec in _inside(recipes.get(name)):
                for field in spec.model_fields_set - {"kind"}:
                    value = getattr(spec, field)
                    if value is not None and not isinstance(value, bool) and len(_plain(value)) <= 40:
                        found.setdefault((type(spec), field), value)
    return found


def _inside(value: Any) -> Iterator[Spec]:
    if isinstance(value, Spec):
        yield value
        for name in type(value).model_fields:
            yield from _inside(getattr(value, name))
    elif isinstance(value, tuple):
        for item in value:
            yield from _inside(item)


def _parts(annotation: Any) -> list[Any]:
    """The members of a union, without what annotates them."""
    while hasattr(annotation, "__metadata__"):
        annotation = annotation.__origin__
    if get_origin(annotation) in (Union, types.UnionType):
        return [part for member in get_args(annotation) for part in _parts(member)]
    return [annotation]


def _type(field: FieldInfo, kind: type[Spec] | None) -> str:
    limits = [
        f"{sign} {getattr(each, of):g}"
        for each in field.metadata
        for sort, of, sign in ((Gt, "gt", ">"), (Ge, "ge", "≥"), (Lt, "lt", "<"), (Le, "le", "≤"))
        if isinstance(each, sort)
    ]
    texts = dict.fromkeys(_said(part) for part in _parts(field.annotation))
    return ", ".join([" or ".join(texts), *limits])


def _said(part: Any) -> str:
    origin = get_origin(part)
    if origin is Literal:
        return _or(get_args(part))
    if origin is tuple:
        inner = dict.fromkeys(
            _said(each) for item in get_args(part) if item is not Ellipsis for each in _parts(item)
        )
        return "list of layers" if len(inner) > 3 else f"list of {' or '.join(inner)}"
    if inspect.isclass(part) and issubclass(part, Spec):
        known = part.model_fields.get("kind")
        return f"`{known.default}`" if known and known.default is not PydanticUndefined else part.__name__
    names = {
        int: "whole number",
        float: "number",
        str: "text",
        bool: "true or false",
        type(None): "null",
        dict: "mapping",
    }
    return names.get(
        origin or part, "layer" if "Layer" in str(part) else getattr(part, "__name__", str(part))
    )


# Text


def _plain(value: Any) -> str:
    """A value as YAML on one line."""
    if isinstance(value, Spec):
        value = value.given()
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(_plain, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_plain(item)}" for name, item in value.items()) + "}"
    if isinstance(value, float):
        return f"{value:g}" if "e" not in f"{value:g}" else repr(value)
    return str(value) if isinstance(value, str | PurePath) else dump_plain({"x": value})[3:].strip()


def _or(words: Iterable[Any]) -> str:
    return ", ".join(f"`{_plain(word)}`" for word in words)


def _row(*cells: str | None) -> str:
    return "| " + " | ".join((cell or "").replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _doc(kind: type) -> str:
    """The docstring of a spec's class: what begins with a name as a list, its rows those of the list of differences."""
    lines = []
    for line in inspect.cleandoc(kind.__dict__.get("__doc__") or "").splitlines():
        begins = lines and (not lines[-1] or lines[-1].endswith("."))
        if begins and (match := re.match(r"(\w+(?:, \w+)*): ", line)):
            line = f"\n- `{match[1]}`: {line[match.end() :]}"
        lines.append(line)
    text = _text("\n".join(lines))
    return re.sub(r"(\(|; )(?:DIFFERENCES )?(rows? \d+)", r"\1[\2](../differences.md)", text)


def _text(text: str) -> str:
    """A docstring as Markdown: its stars, angles and brackets are no markup; what is between backticks stays."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else re.sub(r"([*_<\[\\])", r"\\\1", p) for p in pieces)


def _recipes() -> tuple[str, str]:
    parts = [
        "# Recipes\n\nComplete specs to train as they are, or to begin with: `parity run --recipe NAME`, `parity show NAME`."
        " Most also come as `NAME:tiny`, which trains in seconds."
    ]
    parts += [f"## `{name}`\n\n{_doc_of(recipe)}" for name, recipe in recipes.RECIPES.items()]
    return "reference/recipes.md", "\n\n".join(parts)


def _doc_of(function: Any) -> str:
    return _text(inspect.getdoc(function) or "")
