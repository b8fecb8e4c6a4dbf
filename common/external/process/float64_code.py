"""A user's code as one would write it for float64: imported with that wherever it says float32.

Code for float32 makes tables with `np.float32`, `astype("float32")`, `tf.cast(x, tf.float32)`. Each side rounds in other steps, which no
comparison in float64 can tell from a small mistake; with float64 in these places neither rounds.
"""

from __future__ import annotations

import ast
import io
import linecache
import sys
import sysconfig
import tokenize
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

# By what code says, what it says for float64.
_WIDER = {"float32": "float64", "complex64": "complex128", "FloatTensor": "DoubleTensor"}
# Of torch, whose other names these are.
_WIDER_OF_TORCH = {"float": "float64", "cfloat": "complex128"}
# They read what was written as float32.
_READERS = ("frombuffer", "fromfile", "fromstring", "memmap", "decode_raw")
_INSTALLED = tuple(
    {str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "purelib", "platlib")}
)


def wider(source: str) -> str:
    """Python code with float64 for float32, in names and strings that say just that; as it is where it cannot be read."""
    if not any(name in source for name in (*_WIDER, "torch.float", "torch.cfloat")):
        return source
    try:
        kept = _read_by(ast.parse(source))
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (SyntaxError, tokenize.TokenError):
        return source
    lines = source.splitlines(keepends=True)
    for place, token in reversed([*enumerate(tokens)]):
        row, start = token.start
        of_torch = [each.string for each in tokens[max(0, place - 2) : place]] == ["torch", "."]
        names = _WIDER | _WIDER_OF_TORCH if of_torch else _WIDER
        said = token.string.strip("\"'") if token.type == tokenize.STRING else token.string
        if token.type not in (tokenize.NAME, tokenize.STRING) or said not in names:
            continue
        if any(first <= token.start and token.end <= last for first, last in kept):
            continue
        line, due = lines[row - 1], token.string.replace(said, names[said])
        lines[row - 1] = line[:start] + due + line[token.end[1] :]
    return "".join(lines)


def _read_by(tree: ast.AST) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """From where to where calls are that read files or bytes."""
    return [
        ((node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0))
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in _READERS
    ]


class _Loader(SourceFileLoader):
    """Neither reads nor writes bytecode; what asks for the source, as AutoGraph does, is given what was compiled."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        source = wider(self.get_source(fullname) or "")
        linecache.cache[path] = len(source), None, source.splitlines(keepends=True), path
        # As text: of bytes an encoding that the file declares would be taken for theirs.
        return self.source_to_code(source, path)


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or type(spec.loader) is not SourceFileLoader or not _is_users(fullname, spec.origin):
            return None
        spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def _is_users(name: str, file: str | None) -> bool:
    ours = name.partition(".")[0] in ("parity", "__main__")
    return bool(file) and not ours and not str(Path(str(file)).resolve()).startswith(_INSTALLED)


class _Code:
    """How a process imports a user's modules: those that were named, and what they import beside them."""

    def __init__(self) -> None:
        self._finder = _Finder()
        self._named: set[str] = set()

    @property
    def is_wide(self) -> bool:
        """Whether it is imported with float64."""
        return self._finder in sys.meta_path

    def remember(self, module: str) -> None:
        """A module is to be imported that the user has named."""
        self._named.add(module)

    def switch(self, on: bool) -> None:
        """From now on import with float64, or as it is written; what was imported otherwise is imported again."""
        if on == self.is_wide:
            return
        for name in [name for name, module in sys.modules.items() if self._is_beside(name, module)]:
            linecache.cache.pop(str(getattr(sys.modules[name], "__file__", None)), None)
            del sys.modules[name]
        if on:
            sys.meta_path.insert(0, self._finder)
        else:
            sys.meta_path.remove(self._finder)

    def _is_beside(self, name: str, module: Any) -> bool:
        """Whether a module is one that was named, of its package, or in its folder; a package may have no file."""
        file = getattr(module, "__file__", None)
        within = name.partition(".")[0] in {named.partition(".")[0] for named in self._named}
        if file is None or not _is_users(name, file):
            return file is None and within
        files = (getattr(sys.modules.get(named), "__file__", None) for named in self._named)
        return within or Path(file).parent in {Path(each).parent for each in files if each}


CODE = _Code()
