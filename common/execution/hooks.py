"""Seams of a training: functions around its named parts, and contexts that its processes run in.

A hook stands in for one part, of a run, of a model or of a step (`Hooks`). It is called as
`hook(owner, part, *arguments)`: with the object that the part belongs to, the part itself, and what the part is
called with; it returns what the part would return. Hooks in force when an object is built are put around its
parts once (`attach`), so a training without hooks pays nothing for them.

What is built under hooks and contexts, such as a traced graph, goes with them (`Scope`).
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from typing import Any, TypeVar

Hook = Callable[..., Any]
Made = TypeVar("Made")
# "package.module:function" of a context manager, and the arguments to call it with.
Context = tuple[str, tuple[Any, ...]]
_KEPT = 2


@dataclass(frozen=True)
class Hooks:
    """Functions around the parts of a training; None leaves a part as it is.

    Of a run: `load` sets the state that it begins with, `batches` yields its (number, batch), `scalars` gives
    those of a step. Functions: `optimizer` builds the optimizer, `layer` one layer of the model, `rule` gives the
    changes of weights by one rule.
    Of a step, in its order: `take` is all of it; `context` opens a pass, `forward` and `loss` make it, all within
    `local_gradients`; then `reduce` (`sum_over_replicas`, `divide` with `penalized`, `finite`), `clip`, `update`,
    `read_out`. `evaluate` is one batch in inference mode, with `context`, `forward`, `loss` and `penalized`.
    """

    load: Hook | None = None
    batches: Hook | None = None
    scalars: Hook | None = None
    optimizer: Hook | None = None
    layer: Hook | None = None
    rule: Hook | None = None
    take: Hook | None = None
    context: Hook | None = None
    forward: Hook | None = None
    loss: Hook | None = None
    local_gradients: Hook | None = None
    reduce: Hook | None = None
    sum_over_replicas: Hook | None = None
    divide: Hook | None = None
    penalized: Hook | None = None
    finite: Hook | None = None
    clip: Hook | None = None
    update: Hook | None = None
    read_out: Hook | None = None
    evaluate: Hook | None = None

    def given(self) -> dict[str, Hook]:
        """The hooks that are not None, by the name of their part."""
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: hook for name, hook in values if hook is not None}


class Scope:
    """What is in force while trainings run, and what they have built to use again.

    hooks: from the innermost to the outermost. contexts: what processes that a training starts are to enter.
    """

    def __init__(self, hooks: tuple[Hooks, ...] = (), contexts: tuple[Context, ...] = ()) -> None:
        self.hooks, self.contexts = hooks, contexts
        self._made: dict[Hashable, Any] = {}

    def cached(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What `make` made for this key under this scope; the few most recent are kept."""
        made: Made = self._made.pop(key) if key in self._made else make()
        self._made[key] = made
        while len(self._made) > _KEPT:
            del self._made[next(iter(self._made))]
        return made


_scopes = [Scope()]


def scope() -> Scope:
    """The scope in force."""
    return _scopes[-1]


@contextmanager
def within(*hooks: Hooks, contexts: tuple[Context, ...] = ()) -> Iterator[None]:
    """Within it these hooks and contexts are in force too, in a scope that ends with it."""
    outer = scope()
    _scopes.append(Scope(outer.hooks + hooks, outer.contexts + contexts))
    try:
        yield
    finally:
        _scopes.pop()


@contextmanager
def entered(name: str | None) -> Iterator[None]:
    """Run inside the context manager "module:function"; None: inside none.

    Where it yields Hooks, these are in force, and ranks that a training starts enter it as well.
    """
    if name is None:
        yield
        return
    with _resolved(name)() as given:
        hooks = (given,) if isinstance(given, Hooks) else ()
        with within(*hooks, contexts=((name, ()),) if hooks else ()):
            yield


def rank_function(function: str, *arguments: Any) -> tuple[str, tuple[Any, ...]]:
    """What a started process is to run for `function`: that, inside the contexts that are in force here."""
    contexts = scope().contexts
    if not contexts:
        return function, arguments
    return f"{__name__}:run_inside", (contexts, function, *arguments)


def run_inside(contexts: tuple[Context, ...], function: str, *arguments: Any) -> None:
    """Enter contexts in this process, and run a function there."""
    with ExitStack() as stack:
        for name, given in contexts:
            value = stack.enter_context(_resolved(name)(*given))
            if isinstance(value, Hooks):
                stack.enter_context(within(value))
        _resolved(function)(*arguments)


def attach(owner: object) -> None:
    """Put the hooks in force around the parts of an object that has just been built."""
    for hooks in scope().hooks:
        _put_around(owner, hooks)


@contextmanager
def attached(owner: object, hooks: Hooks) -> Iterator[None]:
    """Within it the parts of an object also run through these hooks, outside all others."""
    before = {name: vars(owner)[name] for name in hooks.given() if name in vars(owner)}
    _put_around(owner, hooks)
    try:
        yield
    finally:
        for name in hooks.given():
            vars(owner).pop(name, None)
        vars(owner).update(before)


def around(name: str, function: Callable[..., Made]) -> Callable[..., Made]:
    """A function that is a part by itself (its owner is None), with the hooks in force around it."""
    for hooks in scope().hooks:
        if name in hooks.given():
            function = functools.partial(hooks.given()[name], None, function)
    return function


def _put_around(owner: object, hooks: Hooks) -> None:
    for name, hook in hooks.given().items():
        # A part is a method: a step also holds an `optimizer`, which is none.
        if hasattr(type(owner), name):
            setattr(owner, name, functools.partial(hook, owner, getattr(owner, name)))


def _resolved(name: str) -> Any:
    """The function "module:function"; a user's modules may lie in the working folder."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)
