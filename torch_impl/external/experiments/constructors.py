"""Edits of the code that a model was built by: which lines these are, and a live model as they would have built it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import FunctionType
from typing import Any

from parity.torch_impl.external.experiments.syntax import called, is_self, receiver

# What a module has besides what its code gives it.
_OF_TORCH = ("training", "_parameters", "_buffers", "_modules")
# Values in values that are compared.
_DEEPEST = 4


def constructing(tree: ast.AST, statement: ast.AST, function: ast.AST) -> list[int]:
    """Where statements begin that make what a statement of a method takes of `self`: what its line takes first, then the rest of its method.

    With those of each go before it in its function what gives it a name there, the functions of the file that it names, and the calls of its class.
    """
    owner = next(
        (each for each in ast.walk(tree) if isinstance(each, ast.ClassDef) and function in each.body), None
    )
    if owner is None:
        return []
    bases = {getattr(base, "id", "") for base in owner.bases}
    kin = [each for each in ast.walk(tree) if isinstance(each, ast.ClassDef) and each.name in bases]
    methods = [
        each
        for cls in (owner, *kin)
        for each in cls.body
        if isinstance(each, ast.FunctionDef) and each is not function
    ]
    functions = {each.name: each for each in getattr(tree, "body", ()) if isinstance(each, ast.FunctionDef)}
    calls = [each for each in _statements(tree) if any(called(node) == owner.name for node in _calls(each))]
    lines: dict[int, None] = {}
    for part in (statement, function):
        taken = {name for name in _taken(part) if name.startswith("self.")}
        for made in (each for method in methods for each in _traced(method, taken)):
            lines |= _with_functions(made, functions)
        for each in calls:
            lines |= _with_functions(each, functions)
    return [*lines]


def _with_functions(statement: ast.stmt, functions: Mapping[str, ast.FunctionDef]) -> dict[int, None]:
    """Where a statement begins, and those of the functions that it names, and of what these name."""
    lines, waiting = {statement.lineno: None}, [statement]
    for part in waiting:
        new = [functions[name] for name in sorted(_taken(part) & functions.keys())]
        waiting += [each for each in new if each not in waiting]
        lines |= dict.fromkeys(each.lineno for function in new for each in _statements(function))
    return lines


def _traced(method: ast.FunctionDef, wanted: set[str]) -> Iterator[ast.stmt]:
    """The statements of a method that make some names, the last first, and those that make what these are made of."""
    for each in sorted(_statements(method), key=lambda statement: -statement.lineno):
        if wanted & _made(each):
            yield each
            wanted = wanted | _taken(each.iter if isinstance(each, ast.For) else each)


def _taken(node: ast.AST) -> set[str]:
    """The names in code, also 'self.name'."""
    every = [*ast.walk(node)]
    names = {each.id for each in every if isinstance(each, ast.Name) and not is_self(each)}
    return names | {f"self.{e.attr}" for e in every if isinstance(e, ast.Attribute) and is_self(e.value)}


def _made(statement: ast.stmt) -> set[str]:
    """The names, also 'self.name', that a statement gives something, changes a part of, or hands over by name, as to register_buffer."""
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AugAssign | ast.AnnAssign | ast.For):
        targets = [statement.target]
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        named = [each.value for each in call.args[:1] if isinstance(each, ast.Constant)]
        return {*map(_root, _flat(receiver(call))), *(f"self.{name}" for name in named)}
    else:
        targets = []
    return {_root(each) for target in targets for each in _flat(target)}


def _flat(target: ast.expr | None) -> list[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List | ast.Starred):
        return [
            each
            for part in (target.elts if not isinstance(target, ast.Starred) else [target.value])
            for each in _flat(part)
        ]
    return [] if target is None else [target]


def _root(node: ast.expr) -> str:
    """Of a part of a tensor or the like the name of the whole."""
    while isinstance(node, ast.Subscript | ast.Attribute | ast.Call):
        if isinstance(node, ast.Attribute) and is_self(node.value):
            return f"self.{node.attr}"
        node = node.func if isinstance(node, ast.Call) else node.value
    return getattr(node, "id", "")


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return (each for each in ast.walk(node) if isinstance(each, ast.Call))


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """The statements of a function or file, without those that hold others but for loops."""
    return (
        each
        for each in ast.walk(node)
        if isinstance(each, ast.For) or (isinstance(each, ast.stmt) and not hasattr(each, "body"))
    )


class Constructed:
    """A live model as its code builds it otherwise, with the weights that it has.

    Raises ValueError where it would have other weights.
    """

    def __init__(self, model: Any, build: Callable[[], Any]) -> None:
        """build: the model anew, of the same random numbers each time; called at once, as the code is now."""
        self._model, self._build = model, build
        self._plain = build()
        # What was put elsewhere: a dictionary, and what it held.
        self._before: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def follow(self) -> None:
        """Have the model as its code builds it now."""
        self.restore()
        try:
            self._give(self._model, self._plain, self._build())
        except BaseException:
            self.restore()
            raise

    def restore(self) -> None:
        """Have the model as it was."""
        for held, before in reversed(self._before):
            held.clear()
            held.update(before)
        self._before.clear()

    def _give(self, live: Any, plain: Any, edited: Any) -> None:
        """Give a module what an edited one has otherwise than a plain one."""
        if {name: p.shape for name, p in _weights(plain)} != {name: p.shape for name, p in _weights(edited)}:
            raise ValueError("it would have other weights")
        for held, one, other in (
            (vars(live), vars(plain), vars(edited)),
            (live._buffers, plain._buffers, edited._buffers),
            (live._parameters, _frozen(plain), _frozen(edited)),
        ):
            names = [name for name in {**one, **other} if name not in _OF_TORCH]
            changed = [name for name in names if not _same(one.get(name), other.get(name), _DEEPEST)]
            if changed:
                self._before.append((held, dict(held)))
                held.update({name: other.get(name) for name in changed})
        self._give_modules(live._modules, plain._modules, edited._modules)

    def _give_modules(self, live: dict[str, Any], plain: dict[str, Any], edited: dict[str, Any]) -> None:
        left = dict(plain)
        given: dict[str, Any] = {}
        for name, module in edited.items():
            alike = [each for each in (name, *left) if each in left and _is_like(left[each], module)]
            if alike:
                given[name] = live[alike[0]]
                self._give(live[alike[0]], left.pop(alike[0]), module)
            elif any(_weights(module)):
                raise ValueError("it would have other weights")
            else:
                given[name] = module
        if [*given.items()] != [*live.items()]:
            self._before.append((live, dict(live)))
            live.clear()
            live.update(given)


def _weights(module: Any) -> list[tuple[str, Any]]:
    return [*module.named_parameters()]


def _frozen(module: Any) -> dict[str, Any]:
    return {
        name: each
        for name, each in module._parameters.items()
        if each is not None and not getattr(each, "requires_grad", True)
    }


def _is_like(one: Any, other: Any) -> bool:
    shapes = ([(name, each.shape) for name, each in _weights(module)] for module in (one, other))
    return type(one) is type(other) and next(shapes) == next(shapes)


def _same(one: Any, other: Any, deep: int) -> bool:
    """Whether two values that code has made are the same, as far as one can see."""
    if type(one) is not type(other):
        return False
    if hasattr(one, "shape") and hasattr(one, "dtype"):
        return bool(one.shape == other.shape and one.dtype == other.dtype and (one == other).all())
    if isinstance(one, FunctionType):
        cells = [[each.cell_contents for each in function.__closure__ or ()] for function in (one, other)]
        return (
            one.__code__ is other.__code__ and one.__defaults__ == other.__defaults__ and _same(*cells, deep)
        )
    if isinstance(one, int | float | complex | str | bytes | None):
        return bool(one == other)
    if isinstance(one, partial):
        return _same([one.func, one.args, one.keywords], [other.func, other.args, other.keywords], deep)
    if deep == 0 or hasattr(one, "_modules"):
        return True
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(_same(*pair, deep - 1) for pair in zip(one, other, strict=True))
    if isinstance(one, dict):
        return [*one] == [*other] and all(_same(one[key], other[key], deep - 1) for key in one)
    if isinstance(one, Mapping) or not hasattr(one, "__dict__") or isinstance(one, type):
        return True
    return _same(vars(one), vars(other), deep - 1)
