"""Experiments on the code of a live model: functions of the user's that run with an edit of one of their lines."""

from __future__ import annotations

import ast
import gc
import linecache
import resource
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from parity.common.diagnosis import limits
from parity.torch_impl.external.experiments.blocks import with_what_comes_back
from parity.torch_impl.external.experiments.constructors import Constructed, constructing
from parity.torch_impl.external.experiments.edits import Edit, Known, edits_of, edits_with
from parity.torch_impl.external.experiments.syntax import called, is_self

# Of a statement, what is shown of it.
_LONGEST_SHOWN = 160
# That code may take besides with an edit.
_MOST_BYTES = 4 * 2**30
# Of less that is edited, the whole statement is shown.
_SHORTEST_SHOWN = 12
# Functions and attributes of complex numbers.
_OF_COMPLEX = (
    *("conj", "complex", "polar", "view_as_complex", "view_as_real", "real", "imag", "mH"),
    *("fft", "ifft", "rfft", "irfft", "fft2", "ifft2", "rfft2", "irfft2", "stft", "istft"),
)
# Functions whose effects are none of a model.
_OUTSIDE = (
    *("open", "save", "savez", "dump", "write", "unlink", "rmtree", "makedirs", "mkdir", "rename"),
    *("system", "Popen", "check_call", "check_output"),
)
_Block = tuple[ast.AST, str, int]


class _Source:
    """A file of the user's code, as it was imported, and the functions that run it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.tree = ast.parse("".join(linecache.getlines(path)))
        # The lines at which backward passes give what leaves out the gradient that comes back to them.
        inside = ((whole, part) for whole in ast.walk(self.tree) for part in ast.iter_child_nodes(whole))
        self.incomplete = [part.lineno for whole, part in inside if with_what_comes_back(whole, part)]
        self._functions: dict[tuple[str, int], list[FunctionType]] = {}
        # By the edits in force the code of each function: as it is written, and with those that were compiled last.
        self._compiled: dict[tuple[tuple[str, int], ...], dict[tuple[str, int], CodeType]] = {}
        for each in gc.get_objects():
            if type(each) is FunctionType and each.__code__.co_filename == path:
                self._functions.setdefault(_key(each.__code__), []).append(each)

    def run(self, in_force: Mapping[tuple[str, int], Edit]) -> None:
        """Have all functions run the tree with edits; raises what compiling it does, or ValueError, and leaves them as they were."""
        key = tuple(in_force)
        made = self._compiled.get(key)
        if made is None:
            made = self._compile(in_force.values())
            self._compiled = {known: self._compiled[known] for known in self._compiled if not known} | {
                key: made
            }
        before = [(each, each.__code__) for several in self._functions.values() for each in several]
        try:
            for function, _ in before:
                code = made.get(_key(function.__code__))
                if code is not None:
                    function.__code__ = code
        except ValueError:  # it takes other variables from around it
            for function, code in before:
                function.__code__ = code
            raise

    def _compile(self, edits: Collection[Edit]) -> dict[tuple[str, int], CodeType]:
        for edit in edits:
            edit.make()
            ast.fix_missing_locations(edit.holder)
        try:
            return {_key(code): code for code in _codes(compile(self.tree, self._path, "exec"))}
        finally:
            for edit in reversed([*edits]):
                edit.undo()

    def statement(self, line: int) -> tuple[_Block, ast.AST] | None:
        """Where the innermost statement of a line stands, and the function that it is in; None where there is no such."""
        found, function, node = None, None, self.tree
        while node is not None:
            inner = None
            for field, value in ast.iter_fields(node):
                for place, each in enumerate(value) if isinstance(value, list) else ():
                    if isinstance(each, ast.stmt | ast.ExceptHandler) and each.lineno <= line <= (
                        each.end_lineno or 0
                    ):
                        inner, found = each, (node, field, place)
            if isinstance(inner, ast.FunctionDef):
                function = inner
            node = inner
        return None if found is None or function is None else (found, function)


class CodeEdits:
    """The edits of a user's code that can be tried, by line, 'model.py:12', and number; and those that are in force.

    model: that runs the code. build: it anew, of the same random numbers each time.
    """

    def __init__(self, model: Any, build: Callable[[], Any]) -> None:
        self._model, self._build = model, build
        self._constructed: Constructed | None = None
        # Lines that the model was built by.
        self._constructing: set[str] = set()
        self._in_force: dict[tuple[str, int], None] = {}
        # Those with which a pass has ended.
        self._known_to_end: frozenset[tuple[str, int]] = frozenset()
        self._sources: dict[str, _Source] = {}
        self._edits: dict[str, list[Edit]] = {}
        # The numbers and functions that lines were tried with.
        self._added: set[tuple[str, tuple[float | str, ...]]] = set()
        # In words, what `of` gives.
        self._shown: dict[str, list[tuple[str, str, str]]] = {}

    def of(
        self,
        lines: Sequence[str],
        others: Sequence[str],
        numbers: Sequence[float] = (),
        functions: Sequence[str] = (),
    ) -> dict[str, list[tuple[str, str, str]]]:
        """The edits of some lines, then of others: kind, what stands there, and what does then.

        others: the loops and blocks that these are 'within', what their modules are 'built_by', and the 'rest' of their functions.
        numbers: that may stand where another one does. functions: that a value may be given to.
        """
        every = dict.fromkeys(lines)
        found = {"within": self._around, "built_by": self._built_by, "rest": self._rest}
        for each in others:
            for line in lines:
                every |= dict.fromkeys(found[each](line))
        for line in every:
            edits = self._of_line(line)
            added = (*numbers, *functions)
            if (
                edits
                and added
                and (line, added) not in self._added
                and (found_at := self._statement_at(line))
            ):
                self._added.add((line, added))
                edits += edits_with(*found_at[1], numbers, functions)
            shown = self._shown.setdefault(line, [])
            shown += [_shown(each) for each in edits[len(shown) :]]
        return {line: [*self._shown[line]] for line in every}

    def now(self, line: str) -> tuple[str, str]:
        """The statement at a line as it is written, and as it runs with the edits in force."""
        edits = [self._of_line(each)[number] for each, number in self._in_force if each == line]
        before = _text(edits[0].statement)
        for edit in edits:
            edit.make()
        try:
            return before, _text(edits[0].statement)
        finally:
            for edit in reversed(edits):
                edit.undo()

    def set(self, line: str, number: int, on: bool) -> None:
        """Have an edit of a line in force or not; raises ValueError where code cannot run so."""
        before = dict(self._in_force)
        self._in_force.pop((line, number), None)
        if on:
            self._in_force[line, number] = None
        try:
            self._run(_file(line))
            self._construct()
        except Exception as error:
            self._in_force = before
            self._run(_file(line))
            self._construct()
            raise ValueError(f"{line} cannot run with this edit: {error}") from error

    def _construct(self) -> None:
        """Have the model as its code builds it now."""
        if self._constructed is None:
            return
        self._constructed.restore()
        if self._constructing & {line for line, _ in self._in_force}:
            with _limited():
                self._constructed.follow()

    @contextmanager
    def bounded(self) -> Iterator[None]:
        """Within, code that runs with edits is ended with an error once it takes too long or too much memory, as a loop that hands on to itself.

        Once it has ended by itself, it takes what it takes.
        """
        tried = frozenset(self._in_force)
        if not tried or tried == self._known_to_end:
            yield
            return
        with _limited():
            yield
            self._known_to_end = tried

    def clear(self) -> None:
        """Have all code run as it is written, and forget it: it may be imported anew."""
        names = {_file(line) for line, _ in self._in_force}
        self._in_force.clear()
        self._known_to_end = frozenset()
        self._construct()
        self._constructed = None
        for name in names:
            self._run(name)
        self._sources.clear()
        self._edits.clear()
        self._added.clear()
        self._shown.clear()

    def _run(self, name: str) -> None:
        """Have the functions of a file run with the edits in force."""
        source = self._source(name)
        if source is None:
            return
        source.run({(line, n): self._of_line(line)[n] for line, n in self._in_force if _file(line) == name})

    def _source(self, name: str) -> _Source | None:
        if name not in self._sources:
            files = {str(getattr(module, "__file__", None)) for module in [*sys.modules.values()]}
            paths = sorted(path for path in files if Path(path).name == name)
            if len(paths) != 1:
                return None
            self._sources[name] = _Source(paths[0])
        return self._sources[name]

    def _place_of(self, line: str) -> tuple[_Source | None, int]:
        """The source of a line, and its number in it."""
        return self._source(_file(line)), int(line.rpartition(":")[2])

    def _statement_at(self, line: str) -> tuple[_Source, _Block, ast.stmt, ast.AST] | None:
        """The source of a line, where its innermost statement stands, this, and the function that it is in; None where it is in none."""
        source, number = self._place_of(line)
        found = None if source is None else source.statement(number)
        if source is None or found is None:
            return None
        (holder, field, place), function = found
        return source, found[0], getattr(holder, field)[place], function

    def _of_line(self, line: str) -> list[Edit]:
        if line not in self._edits:
            self._edits[line] = []
            if found := self._statement_at(line):
                _, block, statement, function = found
                if not _stays(statement):
                    if due := with_what_comes_back(function, statement):
                        own = statement.value
                        due = ast.copy_location(due, own)
                        self._edits[line].append(
                            Edit("incoming", statement, "value", None, own, due, statement)
                        )
                    self._edits[line] += edits_of(*block, _known(function, self._place_of(line)[1]))
        return self._edits[line]

    def _around(self, line: str) -> Iterator[str]:
        """The lines at which loops and blocks begin that a line is in."""
        source, number = self._place_of(line)
        for each in () if source is None else ast.walk(source.tree):
            begun = isinstance(each, ast.For | ast.If | ast.With) and each.lineno < number
            if begun and number <= (each.end_lineno or 0):
                yield f"{_file(line)}:{each.lineno}"

    def _built_by(self, line: str) -> Iterator[str]:
        """The lines that make what a line takes of its module; none where the model cannot be built once more."""
        found = self._statement_at(line)
        if found is None:
            return
        source, _, statement, function = found
        numbers = constructing(source.tree, statement, function)
        if numbers and self._constructed is None:
            try:
                with _limited():
                    self._constructed = Constructed(self._model, self._build)
            except Exception:  # whatever the user's code raises
                return
        lines = [f"{_file(line)}:{each}" for each in numbers]
        self._constructing |= {*lines}
        yield from lines

    def _rest(self, line: str) -> Iterator[str]:
        """The lines of the file's backward passes that leave out what comes back to them; the other lines of a function at which statements begin,
        the nearest first.
        """
        found = self._statement_at(line)
        if found is None:
            return
        source, _, statement, function = found
        yield from (f"{_file(line)}:{each}" for each in source.incomplete)
        lines = {
            each.lineno for each in ast.walk(function) if isinstance(each, ast.stmt) and each is not function
        }
        own = statement.lineno
        for other in sorted(lines - {own}, key=lambda each: abs(each - own)):
            yield f"{_file(line)}:{other}"


@contextmanager
def _limited() -> Iterator[None]:
    """Within, what takes too long or too much memory is ended with an error."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    kept = resource.getrlimit(resource.RLIMIT_AS)
    most = pages * resource.getpagesize() + _MOST_BYTES
    most = most if kept[0] == resource.RLIM_INFINITY else min(most, kept[0])
    before = signal.signal(signal.SIGPROF, _too_long)
    resource.setrlimit(resource.RLIMIT_AS, (most, kept[1]))
    timer = signal.setitimer(signal.ITIMER_PROF, limits.LONGEST_EDITED)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        resource.setrlimit(resource.RLIMIT_AS, kept)
        signal.signal(signal.SIGPROF, before)
        signal.setitimer(signal.ITIMER_PROF, *timer)


def _file(line: str) -> str:
    """The file of a line, 'model.py' of 'model.py:12'."""
    return line.rpartition(":")[0]


def _too_long(*_: object) -> None:
    raise TimeoutError(f"with an edit the code runs longer than {limits.LONGEST_EDITED:.0f} s")


def _key(code: CodeType) -> tuple[str, int]:
    return code.co_name, code.co_firstlineno


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _stays(statement: ast.stmt) -> bool:
    """Whether a statement is left as it is: a loop that may not end then, and what writes files or starts programs."""
    return isinstance(statement, ast.While) or any(called(e) in _OUTSIDE for e in ast.walk(statement))


def _known(function: ast.AST, line: int) -> Known:
    """What is known in a function at a line, what was assigned last first."""
    names: dict[str, int] = {}
    values: dict[str, ast.expr] = {}
    layers: dict[str, ast.expr] = {}
    called = {id(each.func) for each in ast.walk(function) if isinstance(each, ast.Call)}
    for each in ast.walk(function):
        if isinstance(each, ast.arg) and each.arg != "self":
            names.setdefault(each.arg, each.lineno)
        elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store) and each.lineno <= line:
            names[each.id] = max(each.lineno, names.get(each.id, 0))
        elif isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Load) and is_self(each.value):
            (layers if id(each) in called else values)[each.attr] = each
    near = sorted(names, key=lambda name: -names[name])
    return Known(
        [*(ast.Name(name, ast.Load()) for name in near), *values.values()],
        [*layers.values()],
        any(isinstance(each, ast.Attribute) and each.attr in _OF_COMPLEX for each in ast.walk(function)),
    )


def _shown(edit: Edit) -> tuple[str, str, str]:
    if isinstance(edit.old, list):
        both = [
            [each for each in one if each not in other]
            for one, other in ((edit.old, edit.new), (edit.new, edit.old))
        ]
        if not any(both):  # in another order
            moved = [pair for pair in zip(edit.old, edit.new, strict=True) if pair[0] is not pair[1]]
            both = [[pair[side] for pair in moved] for side in (0, 1)]
        before, after = ("; ".join(map(_text, side)) for side in both)
        return edit.kind, before, after
    if len(_text(edit.old)) >= _SHORTEST_SHOWN:
        return edit.kind, _text(edit.old), _text(edit.new)
    before = _text(edit.statement)
    edit.make()
    try:
        return edit.kind, before, _text(edit.statement)
    finally:
        edit.undo()


def _text(node: Any) -> str:
    text = (
        "" if isinstance(node, ast.Pass) else " ".join(ast.unparse(ast.fix_missing_locations(node)).split())
    )
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
