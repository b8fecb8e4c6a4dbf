"""Hooks around a few parts, and contexts of started processes, in one call."""

from __future__ import annotations

from typing import Any

from parity.common.execution.hooks import Hook, Hooks, within


def hooked(**hooks: Hook) -> Any:
    """`within` of one Hooks, by its fields."""
    return within(Hooks(**hooks))


def in_ranks(function: str, *arguments: Any) -> Any:
    """A context manager: processes that trainings inside it start enter `module:function(*arguments)`."""
    return within(contexts=((function, arguments),))
