"""Random mutants of the trainers' numerical source, each trained and diagnosed: faults that nobody planned.

    python -m parity_tests.mutants draw mutants.jsonl --seed 1 --count 8
    python -m parity_tests.mutants write mutants.jsonl docs/evidence/faults.md

`draw` changes one expression or statement that a setup runs, trains with it, and diagnoses what diverges, until `count` of
each setup have been diagnosed. A mutant is in the code wherever that runs: in the training, in its ranks and in the trials
of layers, as a bug in the source would be. Nothing knows what is right to say of one: whoever reads the mutant writes
"right" or "wrong" into the fields `place` and `verdict` of its line, and of one that changes nothing why into `why`, before
`write` makes tables of them.
"""

from __future__ import annotations

import argparse
import ast
import gc
import importlib
import json
import os
import random
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from parity.common.base.errors import ParityError
from parity.common.diagnosis.isolate.first_step import first_outside
from parity.common.diagnosis.replays import diagnose
from parity.common.parity.budget import proof_budget
from parity_tests.faults.registry import MIRRORED_1, SINGLE, spec_of
from parity_tests.helpers import ROOT
from parity_tests.helpers.hooks import in_ranks
from parity_tests.helpers.matrix import tensorflow, torch
from parity_tests.helpers.run_cache import CachedReplayer, RunCache
from parity_tests.tables import mutants

# What computes; not what records, starts, loads or sends messages.
_PARTS = "losses step layers/[!r]* layers/re[cs]* optimizers/*"
FILES = [f"{part}.py" for part in _PARTS.split()]
_ADAMW = "optimizer={kind: adamw, learning_rate: 0.003, decay_mask: matrices, clip_global_norm: 0.5}"
_SGD = "optimizer={kind: sgd, learning_rate: 0.02, momentum: 0.9, nesterov: true, weight_decay: 0.001}"
_CNN = (_SGD, "loss.label_smoothing=0.1")
# What is trained, against one replica of the other framework.
SETUPS = {
    "torch_mlp": (spec_of("digits_mlp", (_ADAMW,)), torch("ddp", 2, accumulation=2)),
    "torch_cnn": (spec_of("digits_cnn", _CNN), torch("single", 1)),
    "torch_gpt": (spec_of("gpt2:tiny"), torch("single", 1)),
    "torch_lstm": (spec_of("lstm_classifier:tiny"), torch("single", 1)),
    "tensorflow_mlp": (spec_of("digits_mlp", (_ADAMW,)), tensorflow(2)),
    "tensorflow_cnn": (spec_of("digits_cnn", _CNN), tensorflow(2)),
    "tensorflow_bert": (spec_of("bert_base:tiny"), tensorflow(1)),
    "torch_vit": (spec_of("vit_base:tiny"), torch("fsdp2", 2)),
    "torch_unet": (spec_of("unet:tiny"), torch("single", 1)),
    "tensorflow_gru": (spec_of("gru_tagger:tiny"), tensorflow(2)),
}
_ROUNDS = 3  # mutants of a function at most
_FOLDER = "PARITY_MUTANTS"  # names where processes write which lines they ran

# What can be changed, and into what.
_SWAPS = "Add Sub, Mult Div, Pow Mult, FloorDiv Mult, Mod FloorDiv, Lt LtE, Gt GtE, Eq NotEq, And Or"
_OTHER: dict[type, Callable[[], Any]] = {}
for _one, _two in map(str.split, _SWAPS.split(", ")):
    _OTHER = {getattr(ast, _two): getattr(ast, _one)} | _OTHER | {getattr(ast, _one): getattr(ast, _two)}


def replacements(node: ast.AST) -> list[ast.AST]:
    """What may stand in place of a node: another operator, constant, argument or condition, or less."""
    match node:
        case ast.BinOp(left, op, right) if type(op) in _OTHER:
            return [ast.BinOp(left, _OTHER[type(op)](), right), left, right]
        case ast.Compare(left, [op], others) if type(op) in _OTHER:
            return [ast.Compare(left, [_OTHER[type(op)]()], others)]
        case ast.BoolOp(op, values):
            return [ast.BoolOp(_OTHER[type(op)](), values)]
        case ast.Constant(bool() as value):
            return [ast.Constant(not value)]
        case ast.Constant(int() | float() as value):
            return [ast.Constant(value + 1 if isinstance(value, int) else (value * 2 or 1.0))]
        case ast.UnaryOp(_, operand):
            return [operand]
        case ast.IfExp(test, body, orelse) | ast.If(test, body, orelse) if not _of_kinds(test):
            return [type(node)(ast.UnaryOp(ast.Not(), test), body, orelse)]
        case ast.Call(called, given, named) if _computes(called):
            swapped = [ast.Call(called, [given[1], given[0], *given[2:]], named)] if len(given) > 1 else []
            return swapped + [ast.Call(called, given, [n for n in named if n is not one]) for one in named]
        case ast.AugAssign():
            return [ast.Pass()]
        case ast.Expr(ast.Call(called)) if _computes(called):
            return [ast.Pass()]
    return []


def _of_kinds(test: ast.expr) -> bool:
    """Whether a condition asks what something is, not how large: its contrary only raises."""
    asked = (ast.Is, ast.IsNot, ast.In, ast.NotIn)
    return "isinstance" in ast.unparse(test) or any(isinstance(node, asked) for node in ast.walk(test))


def _computes(called: ast.expr) -> bool:
    """Whether a function is one of the frameworks', or a method that changes a tensor in place."""
    words = ast.unparse(called).split(".")
    return words[0] in ("torch", "F", "tf", "np", "math") or bool(re.fullmatch("[a-z]+_|assign.*", words[-1]))


class Change(NamedTuple):
    """One change of a file. name: of the function or method that it is in. apply: makes it in the file's tree."""

    name: str
    line: int
    text: str
    apply: Callable[[], None]


def changes(path: str) -> tuple[ast.Module, list[Change]]:
    """The tree of a file, and all that can be changed in its functions and methods, always in the same order."""
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    bodies = {"": tree.body} | {f"{c.name}.": c.body for c in tree.body if isinstance(c, ast.ClassDef)}
    functions = [(head, f) for head, body in bodies.items() for f in body if isinstance(f, ast.FunctionDef)]
    return tree, [
        Change(
            head + function.name,
            getattr(node, "lineno", 0),
            f"{_text(node)} -> {_text(other)}",
            partial(put, other),
        )
        for head, function in functions
        for node, put in _places(function)
        for other in replacements(node)
    ]


def _places(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, Callable[[ast.AST], None]]]:
    """All nodes in a function's body, each with what puts another in its place."""
    for holder in (function, *(node for statement in function.body for node in ast.walk(statement))):
        for name, value in ast.iter_fields(holder):
            if name in ("annotation", "returns", "exc", "args", "decorator_list") and holder is function:
                continue
            if isinstance(value, ast.expr) and name not in ("annotation", "exc"):
                yield value, partial(setattr, holder, name)
            for at, node in enumerate(value) if isinstance(value, list) else ():
                if isinstance(node, ast.expr | ast.stmt):
                    yield node, partial(value.__setitem__, at)


def _text(node: ast.AST) -> str:
    return " ".join(ast.unparse(ast.fix_missing_locations(node)).split("\n")[0].split())[:80]


changes_of = cache(lambda path: changes(path)[1])


# In the processes that train: the contexts `parity_tests.mutants:FILE__NUMBER`, and `covering`.

_CHANGED: dict[FunctionType, CodeType] = {}


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """Give a function here, and in ranks, the code of a mutant. It stays, for trials of layers, until the next one."""
    while _CHANGED:
        function, own = _CHANGED.popitem()
        function.__code__ = own
    file, _, number = name.rpartition("__")
    path = str(importlib.import_module("parity." + file.replace("__", ".")).__file__)
    tree, every = changes(path)
    change = every[int(number)]
    change.apply()
    new = next(
        code
        for code in _codes(compile(ast.fix_missing_locations(tree), path, "exec"))
        if code.co_qualname == change.name
    )
    gc.unfreeze()  # what is frozen is not listed
    for function in [f for f in gc.get_objects() if isinstance(f, FunctionType)]:
        if (function.__code__.co_filename, function.__code__.co_qualname) == (path, change.name):
            _CHANGED[function], function.__code__ = function.__code__, new
    if not _CHANGED:
        raise ValueError(f"no function {change.name} in {path}")
    with in_ranks("parity_tests.mutants:mutated", name):
        yield


def _codes(code: CodeType) -> Iterator[CodeType]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one
            yield from _codes(one)


@contextmanager
def covering() -> Iterator[None]:
    """Have the lines of the trainers written down that a training runs, here and in its ranks."""
    lines: set[tuple[str, int]] = set()

    def inside(frame: Any, event: str, argument: object) -> Any:
        lines.add((frame.f_code.co_filename.rpartition("parity/")[2], frame.f_lineno))
        return inside

    def enter(frame: Any, event: str, argument: object) -> Any:
        return inside(frame, event, argument) if "_impl/" in frame.f_code.co_filename else None

    sys.settrace(enter)
    threading.settrace(enter)
    try:
        with in_ranks("parity_tests.mutants:covering"):
            yield
    finally:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
        with tempfile.NamedTemporaryFile("w", dir=os.environ[_FOLDER], suffix=".json", delete=False) as file:
            json.dump(sorted(lines), file)


def __getattr__(name: str) -> Callable[[], Any]:
    if "_impl__" not in name:
        raise AttributeError(name)
    return partial(mutated, name)


class Bench:
    """Trains and diagnoses mutants in a folder; use as a context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._stack, self._starts = folder, ExitStack(), 0
        os.environ[_FOLDER] = str(folder)

    def __enter__(self) -> Bench:
        """Start new workers: what a mutant ended, or left behind, ends with the old ones."""
        self._stack.close()
        self._starts += 1
        own = self.folder / f"own_{self._starts}"
        own.mkdir()
        self.cache = RunCache(self.folder / "shared", own, self._stack)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def drawn(self, setup: str, draw: random.Random) -> Iterator[str]:
        """Names of mutants that the setup runs: of each function one, in any order, and again."""
        for path in self.folder.glob("*.json"):  # of the setup before
            path.unlink()
        self.cache.record(*SETUPS[setup], "parity_tests.mutants:covering")
        ran = {tuple(line) for path in self.folder.glob("*.json") for line in json.loads(path.read_text())}
        package = "tf_impl" if setup.startswith("tensorflow") else "torch_impl"
        choices: dict[tuple[str, str], list[str]] = {}
        for path in sorted(p for pattern in FILES for p in (ROOT / package).glob(pattern)):
            file = str(path.relative_to(ROOT))
            for number, change in enumerate(changes_of(str(path))):
                if (file, change.line) in ran:
                    name = f"{file.removesuffix('.py').replace('/', '__')}__{number}"
                    choices.setdefault((file, change.name), []).append(name)
        for _ in range(_ROUNDS):
            for key in draw.sample(sorted(choices), len(choices)):
                yield choices[key].pop(draw.randrange(len(choices[key])))
            choices = {key: names for key, names in choices.items() if names}

    def tried(self, setup: str, mutant: str) -> dict[str, Any]:
        """Train a mutant, and diagnose it where it diverges: the outcome, what was said, and in which words."""
        file, _, number = mutant.rpartition("__")
        path = file.replace("__", "/") + ".py"
        change, context = changes_of(str(ROOT / path))[int(number)], f"parity_tests.mutants:{mutant}"
        said = {"setup": setup, "mutant": mutant}
        said |= {"where": f"{path}:{change.line} {change.name}", "text": change.text}
        spec, placement = SETUPS[setup]
        try:
            reference = self.cache.record(spec, MIRRORED_1 if placement.framework == "torch" else SINGLE)
            candidate = self.cache.record(spec, placement, context)
            if first_outside(reference, candidate, proof_budget(reference)) is None:
                return {**said, "outcome": "survivor"}
            out, replayer = self.folder / f"diagnosis_{mutant}", CachedReplayer(self.cache)
            diagnosis = diagnose(reference, candidate, replayer, out, contexts=(None, context))
        except ParityError as error:
            if not self.cache.worker(placement.framework).running:
                self.__enter__()
            return {**said, "outcome": "error", "notes": [str(error)[:300]]}
        findings = [
            {"step": f.step, "stage": f.stage, "tensor": f.name}
            | (asdict(f.explanation) if f.explanation else {})
            for f in diagnosis.findings
        ]
        judged = {"place": "", "verdict": ""}
        return {
            **said,
            "outcome": diagnosis.verdict,
            "findings": findings,
            "notes": diagnosis.notes,
            **judged,
        }


def draw(out: Path, seed: int, count: int, setups: list[str]) -> None:
    """Append a line for each mutant drawn to a file, until so many of each setup have been diagnosed."""
    with tempfile.TemporaryDirectory() as folder, Bench(Path(folder)) as bench, out.open("a") as file:
        for setup in setups:
            bench.__enter__()  # no process has a mutant of the other framework any more
            diagnosed = 0
            for mutant in bench.drawn(setup, random.Random(f"{seed}:{setup}")):
                said = {"seed": seed, **bench.tried(setup, mutant)}
                print(json.dumps(said), file=file, flush=True)
                diagnosed += said["outcome"] not in ("error", "survivor")
                if diagnosed == count:
                    break


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("command", choices=("draw", "write"))
    parser.add_argument("drawn", type=Path, help="a file with a line for each mutant")
    parser.add_argument("page", type=Path, nargs="?")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=8, help="diagnosed mutants of each setup")
    parser.add_argument("--setup", action="append", choices=SETUPS, help="default: all")
    options = parser.parse_args()
    if options.command == "write":
        mutants.write(options.drawn, options.page)
    else:
        draw(options.drawn, options.seed, options.count, options.setup or list(SETUPS))


if __name__ == "__main__":
    main()
