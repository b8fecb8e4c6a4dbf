"""The flags of the trainings (`python -m parity.tf_impl`, `parity.torch_impl`), made of the fields that they set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from parity.common.base.errors import SpecError
from parity.common.spec import Placement, RunConfig, RunOptions
from parity.common.spec.capabilities import ENGINES, STRATEGIES, lacks, launchers_of
from parity.common.spec.placement import said
from parity.common.spec.run_options import Saving
from parity.common.spec.strategies import Framework

# What has no flag of the same name: the module says the framework, --option sets options; the others are `Saving`'s,
# and what `--resume` is resolved to.
_ELSEWHERE = ("framework", "options", "save", "resume")


def fields(framework: Framework) -> Iterator[tuple[str, FieldInfo]]:
    """(flag, field) of all that the flags of a framework set, but for a strategy's options."""
    for kind in (Placement, RunOptions, Saving):
        for name, field in kind.model_fields.items():
            if name not in _ELSEWHERE and not lacks(framework, name):
                yield _flag(name) if kind is Saving else name, field


def _flag(name: str) -> str:
    return name if name.startswith("keep") else f"save_{name}"


def choices_of(framework: Framework, name: str, field: FieldInfo) -> tuple[str, ...]:
    """The words that a flag may have; none where it may have others."""
    known: dict[str, Iterable[str]] = {
        "strategy": STRATEGIES[framework],
        "engine": ENGINES[framework],
        "launcher": launchers_of(framework),
    }
    if name in known:
        return tuple(known[name])
    return get_args(field.annotation) if get_origin(field.annotation) is Literal else ()


def type_of(field: FieldInfo) -> Any:
    """Return the type of a field's values: int of `int | None`, and of `Annotated[int, ...]`; else what is annotated."""
    found = field.annotation
    for each in get_args(found):
        if each is not type(None) and type(None) in get_args(found):
            found = each
    return get_args(found)[0] if get_origin(found) is Annotated else found


def config_of(framework: Framework, values: dict[str, Any], options: dict[str, Any]) -> RunConfig:
    """What flags say: values by flag, and a strategy's options; raises SpecError with one line."""
    save = {name: values.pop(_flag(name)) for name in Saving.model_fields if _flag(name) in values}
    if "every_steps" in save or "every_minutes" in save:
        values["save"] = save
    return RunConfig.with_fields({**values, "framework": framework}, options)


def flags_of(placement: Placement, run_options: RunOptions = RunOptions()) -> list[str]:
    """The flags that make this placement with these run options, those at their defaults left out.

    Where a run goes on is no part of it: that is found when it begins (--resume).

    Raises:
        SpecError: a way of saving that no flag sets.
    """
    values = {"strategy": placement.strategy, "replicas": placement.replicas, **placement.chosen()}
    values |= run_options.chosen()
    values.pop("resume", None)
    saving: Saving | None = values.pop("save", None)
    if saving is not None:
        if saving.every_steps is None and saving.every_minutes is None:
            raise SpecError(
                f"save={saving.given()} of {placement.label} has no flag; give every_steps or every_minutes"
            )
        values |= {_flag(name): value for name, value in saving.chosen().items()}
    flags = [f"--{name}={said(value)}" for name, value in values.items()]
    return flags + [f"--option={name}={said(value)}" for name, value in placement.options.chosen().items()]
