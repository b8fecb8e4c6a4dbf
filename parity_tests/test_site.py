"""What the documentation shows is so: commands parse, Python compiles, fields have meanings, the site loads nothing."""

from __future__ import annotations

import ast
import functools
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import pytest
from pydantic import TypeAdapter

from parity.common.base.errors import ParityError
from parity.common.base.yaml import parse_yaml
from parity.common.execution.training_cli import choose_spec
from parity.common.spec import RunConfig, TrainSpec
from parity.common.spec.external.mapping import Mapping
from parity_tests.helpers import ROOT
from parity_tests.helpers.browser import FLAGS, installed
from parity_tests.helpers.processes import lacks

DOCS = ROOT / "docs"
SHOWN = [*DOCS.rglob("*.md"), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "slurm/README.md"))]
USER_PARTS = ("tutorials", "how_to", "reference", "explanation")
MOST_LINES = 300
_FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_ENDS = {"|", "||", "&&", ";", "&", ">", ">>", "<", "2>"}


@functools.cache
def hooks() -> ModuleType:
    """scripts/site_hooks.py, which is no package."""
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "scripts" / "site_hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Commands


def commands(text: str) -> Iterator[list[str]]:
    """The words of each command in the blocks of shell of a page."""
    for _, language, block in _FENCE.findall(text):
        if language not in ("", "sh", "bash", "console"):
            continue
        for line in block.replace("\\\n", " ").splitlines():
            prompt, shown = line.startswith("$ "), line.removeprefix("$ ").strip()
            if prompt or language != "console":
                yield from _split(shown)


def _split(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # what a command has printed
        return
    found: list[str] = []
    for word in [*words, ";"]:
        if word in _ENDS:
            yield found
            found = []
        else:
            found.append(word)


def ours(words: list[str]) -> tuple[str, list[str]] | None:
    """What of ours a command starts ('parity', 'tf_impl', 'torch_impl'), and its arguments; a variable is 2."""
    words = ["2" if word.startswith("$") else word for word in words]
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    if words[:1] == ["parity"] or words[:3] == ["python", "-m", "parity"]:
        return "parity", words[1 if words[0] == "parity" else 3 :]
    for place, word in enumerate(words):
        if words[place - 1] == "-m" and word in ("parity.tf_impl", "parity.torch_impl"):
            return word.rpartition(".")[2], words[place + 1 :]
    return None


@functools.cache
def parser() -> Any:
    """That of `parity`, with all its commands."""
    return hooks().parser_of()


def problem(arguments: list[str]) -> str:
    """What `parity` would say of these arguments before it does anything; '' where nothing."""
    given = [word for word in arguments if word != "..."]
    try:
        options = parser().parse_args(given)
        recipe = getattr(options, "recipe", None)
        if recipe and getattr(options, "spec", None) is None:
            choose_spec(recipe, None, getattr(options, "set", []))
        for text in getattr(options, "placement", None) or []:
            if re.match(r"\w+:\w+:\d", text) and "stock=" not in text:
                RunConfig.from_text(text)
    except SystemExit as error:
        return "" if error.code == 0 or len(given) < len(arguments) else "see above"
    except ParityError as error:
        return str(error)
    return ""


_TRAINER = """
import json, sys
from parity.common.execution.training_cli import _config, _define
values = _define(sys.argv[1])
for arguments in json.load(sys.stdin):
    values.unparse_flags()
    try:
        values(["x", *(word for word in arguments if word != "...")])
        if "..." not in arguments:
            _config(sys.argv[1], values)
        print("")
    except Exception as error:
        print(" ".join(str(error).split()))
"""


def trainer_problems(framework: str, lines: list[list[str]]) -> list[str]:
    """As `problem`, of the arguments of a trainer; in a process of its own, since its flags are global."""
    done = subprocess.run(
        [sys.executable, "-c", _TRAINER, framework],
        input=json.dumps(lines),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split("\n")[: len(lines)]


def wrong(pages: dict[str, str]) -> list[str]:
    """The commands of pages that do not parse, with why."""
    found, trained = (
        [],
        {"tf_impl": list[tuple[str, list[str]]](), "torch_impl": list[tuple[str, list[str]]]()},
    )
    for name, text in pages.items():
        for words in commands(text):
            command = ours(words)
            if command is None:
                continue
            if command[0] in trained:
                # Their flags have underscores; dashes are taken, too.
                flags = [
                    re.sub(r"^--[^=]+", lambda found: "--" + found[0][2:].replace("-", "_"), word)
                    for word in command[1]
                ]
                trained[command[0]].append((name, flags))
            elif said := problem(command[1]):
                found.append(f"{name}: {' '.join(words)}: {said}")
    for module, lines in trained.items():
        framework = {"tf_impl": "tensorflow", "torch_impl": "torch"}[module]
        said = trainer_problems(framework, [arguments for _, arguments in lines]) if lines else []
        found += [f"{n}: {module} {' '.join(a)}: {s}" for (n, a), s in zip(lines, said, strict=True) if s]
    return found


def test_commands_of_pages_parse() -> None:
    pages = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in SHOWN}
    pages |= hooks().pages()
    assert wrong(pages) == []
    count = sum(ours(words) is not None for text in pages.values() for words in commands(text))
    assert count > 70


@pytest.mark.parametrize(
    "command",
    [
        "parity run --recipe digits_cn",
        "parity run --recipe digits_cnn --placements torch:ddp:2",
        "parity run --recipe digits_cnn \\\n  --placement torch:dpp:2",
        "X=1 parity compare a b --thresholds 1 | cat",
        "torchrun --nproc-per-node 2 -m parity.torch_impl --strategy ddpp --recipe digits_cnn",
        "python -m parity.tf_impl --recipe digits_cnn --epochs 3 ...",
    ],
)
def test_a_command_that_does_not_parse_is_found(command: str) -> None:
    console = f"```console\n$ {command}\nprinted\n```\n"
    assert len(wrong({"a page": f"```sh\n{command}\n```\n", "another": console})) == 2


# Python, YAML, messages


def snippets(text: str, language: str) -> Iterator[str]:
    for _, name, block in _FENCE.findall(text):
        if name == language:
            yield textwrap.dedent(block)


def uncompiled(text: str) -> list[str]:
    """The blocks of Python that do not compile."""
    found = []
    for block in snippets(text, "python"):
        try:
            compile(block, "page", "exec")
        except SyntaxError as error:
            found.append(f"{error}: {block[:80]}")
    return found


def test_python_of_pages_compiles() -> None:
    assert [said for page in SHOWN for said in uncompiled(page.read_text(encoding="utf-8"))] == []
    assert uncompiled("```python\ndef broken(:\n    pass\n```\n")


def test_yaml_of_pages_is_what_it_says() -> None:
    spec = next(snippets((DOCS / "reference" / "spec.md").read_text(), "yaml"))
    TrainSpec.parse(parse_yaml(spec, "page"))
    mapping = next(snippets((DOCS / "reference" / "mapping.md").read_text(), "yaml"))
    assert len(Mapping.parse(parse_yaml(mapping, "page")).tensors) == 3


def messages(page: str) -> Iterator[str]:
    """The fixed parts of the messages in the first column of the tables of a page."""
    for cell in re.findall(r"^\| (.*?`) \| ", page, re.MULTILINE):
        for message in re.findall(r"`([^`]*)`", cell):
            yield from (part for part in (p.strip(" ;:,") for p in message.split("...")) if part)


def texts() -> str:
    """All texts in our source, those with values in them in pieces."""
    found = [path.read_text() for path in (ROOT / "scripts").iterdir() if path.is_file() and not path.suffix]
    for folder in ("common", "tf_impl", "torch_impl"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(node.value)
    return "\n".join(found)


def test_messages_that_troubleshooting_lists_are_in_the_source() -> None:
    source, page = texts(), (DOCS / "how_to" / "troubleshooting.md").read_text()
    listed = list(messages(page))
    assert len(listed) > 80
    assert [part for part in listed if part not in source] == []
    assert list(messages("| `a: there is no such message ... said` | do |\n")) == [
        "a: there is no such message",
        "said",
    ]


# The reference


def tabled() -> list[tuple[Any, str]]:
    """(class, field) of every row that the reference has of a spec."""
    module, found = hooks(), list[tuple[Any, str]]()
    plain = module._table
    module._table = lambda kind, names: found.extend((kind, name) for name in names) or ""
    try:
        list(module._specs())
    finally:
        module._table = plain
    return found


def test_every_field_has_a_meaning_and_an_example_that_fits() -> None:
    rows = tabled()
    assert len(rows) > 400
    for kind, name in rows:
        field = kind.model_fields[name]
        assert field.description, f"{kind.__name__}.{name}: give Field a description"
        value = parse_yaml(hooks()._plain(hooks().example(kind, name)), "example")
        annotated = field.annotation
        for each in field.metadata:
            annotated = Annotated[annotated, each]
        TypeAdapter(annotated).validate_python(value)
        assert field.is_required() or value != field.get_default(), (
            f"{kind.__name__}.{name}: example is the default"
        )


def test_the_reference_has_every_field_of_a_spec() -> None:
    """By the JSON Schema, which knows all that a spec may hold."""
    shown = {(kind.__name__, name) for kind, name in tabled()}
    families = {base.__name__: base for base in hooks()._SHARED}
    for name, schema in TrainSpec.model_json_schema()["$defs"].items():
        for field in schema.get("properties", {}).keys() - {"kind", "name"}:
            inherited = any((family, field) in shown for family in families)
            assert (name, field) in shown or inherited, f"{name}.{field} is on no page of the reference"


# The pages


def test_pages_for_users_are_short() -> None:
    pages = {str(page.relative_to(DOCS)): page.read_text() for page in DOCS.rglob("*.md")} | hooks().pages()
    lengths = {name: text.count("\n") for name, text in pages.items() if name.startswith(USER_PARTS)}
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}
    assert len(lengths) > 70


def test_links_of_the_other_pages_lead_somewhere() -> None:
    """Those inside docs/ are held by the strict build."""
    gone = []
    for page in (*ROOT.glob("*.md"), ROOT / "slurm" / "README.md"):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            if not (page.parent / target).exists():
                gone.append(f"{page.name}: {target}")
    assert gone == []


def requested(html: str) -> list[str]:
    """What a page would request from elsewhere: everything but links that a reader follows."""
    tags = re.findall(r"<(?!a\b)\w+[^>]*?(?:src|href|srcset|data)=[\"']?(?:https?:)?//[^>]*>", html)
    return tags + re.findall(r"(?:url\(|@import )[\"']?(?:https?:)?//[^)]*", html)


def test_a_request_is_seen() -> None:
    assert requested('<script src="https://example.org/x.js"></script>')
    assert requested(
        "<style>@import '//example.org/x.css'; p { background: url(https://example.org/x.png) }</style>"
    )
    assert not requested('<a href="https://example.org">x</a> <link href="assets/x.css">')


@pytest.mark.slow
def test_the_site_builds_strictly_and_requests_nothing(tmp_path: Path) -> None:
    if importlib.util.find_spec("material") is None:
        lacks("mkdocs-material is not installed (scripts/setup docs)")
    done = build(tmp_path / "site", ROOT / "mkdocs.yml")
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    files = list((tmp_path / "site").rglob("*.html"))
    assert len(files) > 80
    for file in [*files, *(tmp_path / "site").rglob("*.css")]:
        html = file.read_text(encoding="utf-8")
        assert requested(html) == [] and "```" not in html, file
    assert "v = mu*v - lr*g" in (tmp_path / "site" / "reference" / "differences.html").read_text()
    assert "matching document" in rendered(tmp_path / "site" / "index.html", "?q=epsilon", tmp_path)


@pytest.mark.slow
def test_a_dead_link_fails_the_build(tmp_path: Path) -> None:
    if importlib.util.find_spec("material") is None:
        lacks("mkdocs-material is not installed (scripts/setup docs)")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Page\n\n[gone](gone.md)\n")
    config = (
        (ROOT / "mkdocs.yml")
        .read_text()
        .partition("\nnav:")[0]
        .replace("hooks:\n  - scripts/site_hooks.py\n", "")
    )
    (tmp_path / "mkdocs.yml").write_text(config)
    done = build(tmp_path / "site", tmp_path / "mkdocs.yml")
    assert done.returncode == 1
    assert "gone.md" in done.stderr


def build(target: Path, config: Path) -> subprocess.CompletedProcess[str]:
    """As scripts/site does."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(target)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)


def rendered(page: Path, query: str, folder: Path) -> str:
    """The page, opened from the disk, after a real browser has run its scripts."""
    browser = installed()
    if browser is None:
        pytest.skip("chromium is not installed (apt-get install -y chromium)")
    command = [
        browser,
        *FLAGS,
        "--dump-dom",
        "--virtual-time-budget=10000",
        f"--user-data-dir={folder / 'profile'}",
        page.as_uri() + query,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
