"""The flags of the trainings (`python -m parity.tf_impl`, `parity.torch_impl`), made of the fields that they set."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from absl import flags
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


def spelled(arguments: Iterable[str], mark: str) -> list[str]:
    """Arguments with the words of each flag's name joined by `mark`, whether dashes or underscores joined them."""
    found = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if re.fullmatch(r"--\w[\w-]*", name):
            name = f"--{re.sub('[-_]', mark, name[2:])}"
        found.append(name + equals + value)
    return found


def check_flagfile(arguments: Sequence[str]) -> None:
    """Raise absl's Error for a --flagfile that is no file: of a device absl would wait for the end, which it may not have."""
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        name, equals, value = argument.partition("=")
        file = Path(value if equals else following)
        if name in ("--flagfile", "-flagfile") and not file.is_file():
            raise flags.Error(f"--flagfile {file}: no such file")


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
