"""What others chose - names of folders, layers, tensors, hosts - writes nothing on a terminal but itself."""

from __future__ import annotations

import ast
import dataclasses
import io
import json
import re
import shutil
from argparse import _SubParsersAction
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from parity.common.api import models
from parity.common.base.plain import plain, print_document, print_error, print_line, without_controls
from parity.common.base.terminal import Terminal, styled
from parity.common.commands import main
from parity.common.diagnosis.result import TensorComparison
from parity.common.execution import session
from parity.common.parity.result import judge
from parity.common.report.html.comparison import write_html
from parity.common.report.html.diagnosis import Subject, write_diagnosis_html
from parity.common.report.terminal_diagnosis import print_diagnosis
from parity.common.scaling import experiment
from parity_tests.helpers import ROOT
from parity_tests.helpers.commands import PARSER, Cli
from parity_tests.helpers.records import DDP, MIRRORED, TORCH, Run, edit_json, tiny_spec
from parity_tests.test_report_diagnosis import synthetic
from parity_tests.test_script_recorder import Plain

FORGED = "✓ parity  everything agrees"
# Clears the screen, colours, closes and opens rich's tags, begins lines, turns the direction of writing, is no UTF-8.
MARKUP = "[/] [bold red]x[/red] :smile: [link=file:///x]y"
HOSTILE = f"evil\x1b[2J\x1b[31m{MARKUP}\r\n{FORGED}\n\u202e\x07\x9b1m\u2028\udcff".replace("/", "")
SPELLED = plain(HOSTILE)


def harmless(text: str) -> bool:
    """Whether text is lines of printable characters, none of them forged."""
    return all(line.isprintable() and not line.startswith(FORGED) for line in text.split("\n"))


def test_what_is_not_printable_is_spelled_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert not harmless(HOSTILE) and harmless(SPELLED) and FORGED in SPELLED
    assert plain("naïve ✓ 测试 [/]") == "naïve ✓ 测试 [/]" and plain("a\nb\x1b\udcff") == "a\\nb\\x1b\\udcff"
    print_line(HOSTILE)
    print_error(HOSTILE)
    assert capsys.readouterr() == (f"{SPELLED}\n", f"{SPELLED}\n")
    print_document(f"one: {HOSTILE[:9]}\ntwo\n")
    assert capsys.readouterr().out == f"one: {plain(HOSTILE[:9])}\ntwo\n"
    assert without_controls("a\x1b[31m\tb\nc\u202e\x9b") == "a[31m\tb\nc"


def test_a_terminal_takes_text_as_it_is() -> None:
    stream = io.StringIO()
    console = Terminal(file=stream, width=1000)
    table, tree = Table("one", HOSTILE, title=HOSTILE, box=None), Tree(HOSTILE)
    table.add_row(HOSTILE, styled(f"[green]✓[/green] {escape(HOSTILE)}"))
    tree.add(HOSTILE)
    console.print(table)
    console.print(tree)
    console.print(HOSTILE)
    console.tell(HOSTILE, "dim")
    console.say(f"[bold]{escape(HOSTILE)}[/bold]")
    text = stream.getvalue()
    assert harmless(text) and text.count(SPELLED) == 9, text


def test_in_a_notebook_lines_go_where_they_are_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    stream = io.StringIO()
    Terminal(file=stream).tell("one line")
    assert stream.getvalue() == "one line\n"


def poisoned(value: Any) -> Any:
    """A diagnosis whose names and texts all carry something hostile."""
    if isinstance(value, TensorComparison):
        return dataclasses.replace(value, name=f"{value.name}{HOSTILE}", where=HOSTILE)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = {f.name: poisoned(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
        texts = {
            "reference",
            "candidate",
            "evidence",
            "searched",
            "cause",
            "culprit",
            "fix",
            "paste",
        } & changed.keys()
        return dataclasses.replace(value, **changed | dict.fromkeys(texts, HOSTILE))
    return tuple(map(poisoned, value)) if isinstance(value, tuple) else value


def test_a_diagnosis_of_hostile_names(tmp_path: Path) -> None:
    stream, page = io.StringIO(), tmp_path / "page.html"
    found = dataclasses.replace(poisoned(synthetic()), notes=(HOSTILE,), settings=(HOSTILE,))
    print_diagnosis(found, Terminal(file=stream), HOSTILE)
    assert harmless(stream.getvalue()) and SPELLED in stream.getvalue()
    subject = Subject((HOSTILE, HOSTILE), [(HOSTILE, [HOSTILE, HOSTILE])], HOSTILE)
    write_diagnosis_html(found, subject, page)
    assert [line for line in shown(page) if not line.isprintable()] == []


def shown(page: Path) -> Iterator[str]:
    """The lines of a page, with the data of its figures but without its scripts, plotly's among them."""
    text = page.read_text(encoding="utf-8", errors="surrogatepass")
    text = re.sub(r"<script(?! type)[^>]*>.*?</script>", "", text, flags=re.DOTALL)
    return (line.expandtabs() for line in text.split("\n"))


# Every command, with what it may be given of others.


@pytest.fixture
def parity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    monkeypatch.chdir(tmp_path)
    for module in (session, models, experiment):
        monkeypatch.setattr(module, "require", lambda framework: None)
    return Cli(tmp_path, capsys)


def _specs(folder: Path, base: Path) -> None:
    """A spec under a hostile name, one that has hostile names, and one that is damaged."""
    good = json.loads((base / "header.json").read_text())["spec"]
    (folder / f"{HOSTILE}.json").write_text(json.dumps(good))
    source = {"kind": "npz", "path": f"{HOSTILE}.npz"}
    (folder / "names.json").write_text(json.dumps({**good, "data": {**good["data"], "source": source}}))
    (folder / "keys.json").write_text(json.dumps({**good, HOSTILE: HOSTILE}))
    (folder / "marked.json").write_text(json.dumps({**good, "loss": {"kind": MARKUP}}))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Records, sessions, mappings and specs with hostile names, in a folder of such a name."""
    folder = tmp_path / HOSTILE
    run = Run.of(tiny_spec(), TORCH)
    base = run.write(folder / "a").folder
    run.copy(MIRRORED).write(folder / HOSTILE)
    spoiled = run.copy(DDP)
    spoiled.column("loss_sum")[2] *= 1.1
    spoiled.write(folder / "runs" / f"1_{HOSTILE}")
    shutil.copytree(base, folder / "runs" / f"0_{HOSTILE}")
    marked = shutil.copytree(base, folder / "marked")
    header = json.loads((marked / "header.json").read_text())
    facts = {"host": MARKUP, "devices": [MARKUP], "git_revision": MARKUP, "started": MARKUP}
    edit_json(marked / "header.json", **facts, versions={**header["versions"], MARKUP: MARKUP})
    for number in range(2):
        script = Plain(folder / f"script_{HOSTILE}_{number}")
        for step in range(3):
            script.step(step + number / 2, 2.0, [step])
        script.finish()
    mapping = "keras: {0}\ntorch: {0}\ntensors:\n- keras: [{0}]\n  torch: [{0}]\n  rule: {0}\n"
    (folder / "mapping.yaml").write_text(mapping.format(json.dumps(HOSTILE)))
    (folder / "marked.yaml").write_text(mapping.format(json.dumps(MARKUP)))
    (folder / "spoiled" / HOSTILE).mkdir(parents=True)
    _specs(folder, base)
    return folder


Case = Callable[[Path], Sequence[object]]


def of_specs(*command: object) -> list[Case]:
    """A command on each of the specs."""
    return [
        lambda folder, name=name: [command[0], "--spec", folder / name, *command[1:]]
        for name in (f"{HOSTILE}.json", "names.json", "keys.json", "marked.json", f"absent_{HOSTILE}")
    ]


TARGETS = ["--keras", HOSTILE, "--torch", f"{MARKUP}:x"]
CASES: dict[str, list[Case]] = {
    "run": [*of_specs("run", "--replicas", 0), lambda f: ["run", "--recipe", HOSTILE]],
    "compare": [
        lambda f: ["compare", f / "a", f / HOSTILE, f / "marked", "--checks", "--out", f / "report"],
        lambda f: ["compare", *sorted(f.glob("runs/*"))],
        lambda f: ["compare", *sorted(f.glob("script_*")), "--checks"],
        lambda f: ["compare", f / "a", f / "spoiled" / HOSTILE],
        lambda f: ["compare", f / "a", f / "a"],
        lambda f: ["compare", *sorted(f.glob("script_*")), "--mapping", f / "mapping.yaml"],
        lambda f: ["compare", "--baseline", f / "a", f / HOSTILE],
    ],
    "report": [lambda f: ["report", f], lambda f: ["report", f / "spoiled", "--checks"]],
    "plan": of_specs("plan"),
    "recipes": [lambda f: ["recipes"]],
    "show": [*of_specs("show"), *of_specs("show", "--format", "yaml"), lambda f: ["show", HOSTILE]],
    "doctor": [],  # shows what is installed
    "pair": [lambda f: ["pair", *TARGETS, "--data", f / "names.json"]],
    "lint": [lambda f: ["lint", *TARGETS]],
    "map": [lambda f: ["map", *TARGETS, "--data", f / "names.json", "--mapping", f / "mapping.yaml"]],
    "diagnose": [
        lambda f: ["diagnose", *sorted(f.glob("script_*")), "--out", f / "why"],
        lambda f: ["diagnose", f / "a", f / "spoiled" / HOSTILE],
        lambda f: ["diagnose", *sorted(f.glob("script_*")), "--mapping", f / "mapping.yaml"],
        lambda f: ["diagnose", *sorted(f.glob("script_*")), "--mapping", f / "marked.yaml"],
    ],
    "scale": of_specs("scale", "--rounds", 0),
    "steps": [
        lambda f: ["steps", f / HOSTILE],
        lambda f: ["steps", f / "spoiled" / HOSTILE],
    ],
    "check": [
        lambda f: ["check", f / HOSTILE],
        lambda f: ["check", f / "spoiled" / HOSTILE],
    ],
    "share": [
        lambda f: ["share", f / HOSTILE, f / "marked", "--to", "csv", "--out", f / "tables"],
        lambda f: ["share", f / "spoiled" / HOSTILE, "--to", "csv", "--out", f / "more"],
    ],
    "table": [
        lambda f: ["table", f / "a", f / HOSTILE, f / "marked"],
        lambda f: ["table", f / "a", f / HOSTILE, "--format", "latex", "--hardware", HOSTILE],
        lambda f: ["table", f / HOSTILE],
    ],
    "checkpoint": [
        lambda f: ["checkpoint", "list", f / HOSTILE],
        lambda f: ["checkpoint", "verify", f / HOSTILE],
        lambda f: ["checkpoint", "export", f / HOSTILE, "--to", "state_dict", "--out", f / f"{HOSTILE}.pt"],
    ],
    "export": [
        lambda f: [
            "export",
            "--mapping",
            f / "mapping.yaml",
            "--from",
            f / "a.pt",
            "--to",
            f / "b.weights.h5",
        ],
        lambda f: ["export", "--mapping", f / "marked.yaml", "--from", f / HOSTILE, "--to", f / "b.pt"],
    ],
    "study": [
        *of_specs("study", "--seeds", 1),
        lambda f: ["study", "--records", f / HOSTILE, "--records", f / "a", "--report"],
    ],
    "collectives": [lambda f: ["collectives", "--operations", HOSTILE]],
    "advise": of_specs("advise", "--gpus", 2, "--gpu-memory", "80GB"),
    "submit": of_specs("submit", "--dry-run"),
    "completion": [lambda f: ["completion", "bash"]],
    "status": [lambda f: ["status", f], lambda f: ["status", f / HOSTILE]],
    "manifest": of_specs("manifest", "--placement", "torch:ddp:2", "--image", "x", "--kind", "job"),
}


def test_every_command_is_tried() -> None:
    (commands,) = (a for a in PARSER._actions if isinstance(a, _SubParsersAction))
    assert set(commands.choices) == set(CASES)


def test_no_command_is_deceived_by_hostile_names(parity: Cli, files: Path) -> None:
    said = 0
    for command, cases in CASES.items():
        for number, case in enumerate(cases):
            code, out, err = parity(*case(files))
            assert code in (0, 1, 2, 3, 4) and "not foreseen" not in err, (command, number, err)
            assert harmless(out) and harmless(err), (command, number, out, err)
            assert out or err, (command, number)
            said += SPELLED in out + err
    assert said > 20, "the names are shown"
    assert [line for line in shown(files / "report" / "report.html") if not line.isprintable()] == []


def test_arguments_that_are_not_known_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main.parse(["parity", "steps", "a", HOSTILE])
    said = capsys.readouterr().err
    assert harmless(said) and said.startswith("parity steps: error: unexpected argument 'evil")


def test_a_page_drops_control_characters(files: Path, tmp_path: Path) -> None:
    from parity.common.record import read_record

    result = judge([read_record(path) for path in sorted(files.glob("script_*"))])
    write_html(result, tmp_path / "page.html")
    assert "evil" in (tmp_path / "page.html").read_text()
    assert [line for line in shown(tmp_path / "page.html") if not line.isprintable()] == []


# One layer: nothing prints past it.

PAST = {  # what runs where nothing of ours can be imported
    "parity/import_path.py",
    "tf_impl/strategy/watchdog.py",
    "common/base/plain.py",
    "common/base/terminal.py",
}


def printing(source: str) -> list[int]:
    """The lines of code that write to a terminal by themselves."""
    found: list[int] = []
    if re.search(r"\bprint\(|Console|sys\.std", source) is None:
        return found
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in ("print", "Console", "rich.print") or name.startswith(
                ("sys.stdout.w", "sys.stderr.w")
            ):
                found.append(node.lineno)
        if isinstance(node, ast.ImportFrom) and node.module == "rich.console":
            found.append(node.lineno)
    return found


def test_nothing_prints_past_the_layer() -> None:
    files = [p for name in ("common", "tf_impl", "torch_impl", "parity") for p in (ROOT / name).rglob("*.py")]
    named = {str(path.relative_to(ROOT)): path for path in files}
    assert len(named) > 400 and named.keys() >= PAST
    past = {name: lines for name, path in named.items() if (lines := printing(path.read_text()))}
    assert past.keys() == PAST, past


def test_what_prints_past_it_would_be_found() -> None:
    source = "from rich.console import Console\nprint(1)\nsys.stderr.write('x')\nself.print(2)\nConsole().print(3)\n"
    assert printing(source) == [1, 2, 3, 5]
