"""Placement: how a spec is run. It must not change the loss curve beyond rounding."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import index
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from parity.common.base.errors import SpecError, did_you_mean
from parity.common.base.yaml import parse_yaml
from parity.common.spec.base import NonNegativeInt, PositiveInt, Spec
from parity.common.spec.capabilities import ENGINES, STRATEGIES, asked_by, lacks, refusal, unlisted
from parity.common.spec.run_options import RunOptions
from parity.common.spec.strategies import Framework, Options

# What a placement's text begins with; options are named beside its fields.
_HEAD = ("framework", "strategy", "replicas", "options")
# ((first epoch, micro-batches), ...)
Accumulation = tuple[tuple[int, int], ...]

# Of more, a machine would be at work for minutes before it could say that it has them not.
MOST_REPLICAS, MOST_THREADS, MOST_TOGETHER, MOST_MICRO_BATCHES = 1 << 16, 1 << 12, 1 << 16, 1 << 16


def _accumulation(value: Any) -> Any:
    """8, or {0: 8, 5: 4}, as pairs of (first epoch, micro-batches)."""
    if isinstance(value, bool):
        raise ValueError("must be a number of micro-batches, or {epoch: micro-batches}")
    if isinstance(value, int):
        value = {0: value}
    try:
        pairs = [
            (int(epoch), index(count))
            for epoch, count in (value.items() if isinstance(value, dict) else value)
        ]
    except (TypeError, ValueError, OverflowError):
        raise ValueError("must be a number of micro-batches, or {epoch: micro-batches}") from None
    if isinstance(value, dict):
        pairs.sort()
    epochs, counts = [epoch for epoch, _ in pairs], [count for _, count in pairs]
    if not epochs or epochs[0] != 0 or sorted(set(epochs)) != epochs or min(counts) < 1:
        raise ValueError("must say at least 1 micro-batch from epoch 0 on, later epochs in order")
    if max(counts) > MOST_MICRO_BATCHES:
        raise ValueError(f"must be at most {MOST_MICRO_BATCHES} micro-batches")
    return tuple(pairs)


class Placement(Spec):
    """Framework, strategy, replicas and everything else that only time and memory may depend on."""

    framework: Framework = Field(description="whose trainer runs")
    strategy: str = Field(description="how replicas share the work")
    replicas: PositiveInt = Field(
        default=1, le=MOST_REPLICAS, description="copies of the model; the global batch is split over them"
    )
    options: SerializeAsAny[Options] = Field(
        default=Options(), description="what the strategy leaves to choose"
    )
    engine: Literal["own", "keras", "lightning", "fabric", "accelerate"] = Field(
        default="own", description="whose loop trains"
    )
    launcher: Literal["local", "mp_spawn", "torchrun", "environment", "srun", "kubernetes"] = Field(
        default="local", description="what starts the processes; local: the run itself"
    )
    nodes: PositiveInt = Field(
        default=1, le=MOST_REPLICAS, description="machines that the replicas are spread over evenly"
    )
    accumulation: Annotated[Accumulation, BeforeValidator(_accumulation)] = Field(
        default=((0, 1),), description="micro-batches a local batch is cut into; by epoch: {0: 8, 5: 4}"
    )
    device: Literal["auto", "cpu", "gpu"] = Field(
        default="auto", description="auto: GPUs where there are enough"
    )
    threads_per_replica: PositiveInt = Field(
        default=1, le=MOST_THREADS, description="CPU threads of each replica"
    )
    pin: bool = Field(default=False, description="bind each replica's threads to their own cores")
    sample_order_seed: NonNegativeInt | None = Field(
        default=None, description="permute every global batch: the same samples summed in another order"
    )
    compile: bool = Field(default=False, description="torch.compile, or XLA for TensorFlow")
    steps_per_call: PositiveInt = Field(
        default=1, le=MOST_TOGETHER, description="steps that one call of the graph takes (TensorFlow)"
    )
    loader_workers: NonNegativeInt = Field(
        default=0,
        le=MOST_THREADS,
        description="processes or threads per replica that prepare batches; 0: none besides its own",
    )
    prefetch_batches: PositiveInt = Field(
        default=2, le=MOST_TOGETHER, description="batches that each loader worker prepares ahead"
    )
    timeout_seconds: PositiveInt = Field(
        default=120, le=10_000_000, description="a collective, or a start, that takes longer ends the run"
    )

    @model_validator(mode="before")
    @classmethod
    def _typed_options(cls, data: Any) -> Any:
        """Options as their strategy's own class; they cannot be told from their fields alone."""
        if not isinstance(data, dict):
            return data
        kind = _options_of(data)
        given = data.get("options", {})
        if kind is None:
            # The message about the strategy says more than one about options it might have had.
            return {name: value for name, value in data.items() if name != "options"}
        if type(given) is kind:
            return data
        if isinstance(given, Options):
            given = given.to_dict() if type(given) is not Options else {}
        try:
            return {**data, "options": kind.parse(given)}
        except SpecError as error:
            raise SpecError(f"options of {data['strategy']}: {error}") from None

    @model_validator(mode="after")
    def _possible(self) -> Placement:
        # What no spec and no run options could make possible.
        always = (
            "mp_spawn",
            "replicas",
            *(name for name in type(self).model_fields if lacks(self.framework, name)),
        )
        asked = {name: value for name, value in asked_by(self).items() if name in always}
        why = unlisted(self.framework, self.strategy, self.engine, self.launcher) or refusal(self, asked)
        if why is not None:
            raise ValueError(why)
        for size, name in ((self.replicas_per_process, "replicas_per_worker"), (self.nodes, "nodes")):
            if self.replicas % size:
                raise ValueError(f"{self.replicas} replicas cannot be divided by {size} ({name})")
        shard_group = getattr(self.options, "shard_group", None)
        if shard_group is not None and self.replicas % shard_group:
            raise ValueError(f"{self.replicas} replicas cannot be divided by shard_group {shard_group}")
        if self.processes % self.nodes:
            raise ValueError(f"{self.processes} process(es) cannot be spread evenly over {self.nodes} nodes")
        return self

    @property
    def ranks_per_replica(self) -> int:
        """Processes that share one replica; more than one is model parallelism."""
        ranks: int = getattr(self.options, "ranks", 1)
        return ranks

    @property
    def replicas_per_process(self) -> int:
        """Replicas that one process holds."""
        if not self.options.process_per_replica:
            return self.replicas
        held: int = getattr(self.options, "replicas_per_worker", 1)
        return held

    @property
    def processes(self) -> int:
        """How many processes train together, over all nodes."""
        return self.replicas // self.replicas_per_process * self.ranks_per_replica

    def micro_batches(self, epoch: int) -> int:
        """How many micro-batches a local batch of this epoch is cut into."""
        return next(count for first, count in reversed(self.accumulation) if first <= epoch)

    @property
    def engine_owns_loop(self) -> bool:
        """Whether the engine runs the training loop itself, in place of ours."""
        return ENGINES[self.framework][self.engine].owns_loop

    @property
    def accumulates(self) -> bool:
        """Whether any epoch cuts its local batches."""
        return any(count > 1 for _, count in self.accumulation)

    @property
    def label(self) -> str:
        """Short name for tables: 'torch ddp x2', and whatever is not as usual: 'static_graph=true'."""
        chosen = super().chosen()
        named = self.options.chosen() | {
            name: chosen[name]
            for name in ("engine", "launcher", "compile", "steps_per_call")
            if name in chosen
        }
        if self.accumulates:
            plain = len(self.accumulation) == 1
            pairs = (f"{epoch}to{count}" for epoch, count in self.accumulation)
            named["accumulation"] = self.accumulation[0][1] if plain else "+".join(pairs)
        more = "".join(f" {name}={said(value).rpartition('/')[2]}" for name, value in named.items())
        return f"{self.framework} {self.strategy} x{self.replicas}{more}"

    def chosen(self) -> dict[str, Any]:
        """The fields that differ from their defaults, but for framework, strategy, replicas and options."""
        found = {name: value for name, value in sorted(super().chosen().items()) if name not in _HEAD}
        if "accumulation" in found:
            # One number where it stays the same.
            plain = len(self.accumulation) == 1
            found["accumulation"] = self.accumulation[0][1] if plain else dict(self.accumulation)
        return found

    def text(self, leave_out: Collection[str] = ()) -> str:
        """What `from_text` makes this placement of, but for the fields left out."""
        fields = {**self.options.chosen(), **self.chosen()}
        more = "".join(f",{name}={said(value)}" for name, value in fields.items() if name not in leave_out)
        return f"{self.framework}:{self.strategy}:{self.replicas}{more}"

    @classmethod
    def from_text(cls, text: str, **usual: Any) -> Placement:
        """A placement from 'torch:ddp:2', or with more: 'torch:ddp:2,static_graph=true,accumulation=4'.

        Raises:
            SpecError: with one line, for a field that neither a placement nor the strategy has too.
        """
        with naming_placement(text):
            head, fields = parse_text(text)
            return cls.with_fields({**usual, **head}, fields)

    @staticmethod
    def split_text(text: str, instead: str) -> tuple[str, str]:
        """('torch:fsdp2', ',wrap=blocks') of a text without a number of replicas.

        Raises:
            SpecError: it is not one; `instead` says what gives the number.
        """
        match = re.fullmatch(r"(\w+:\w+)((?:,.*)?)", text)
        if match is None:
            raise SpecError(
                f"--placement {text!r}: expected framework:strategy[,field=value...] without a number of replicas,"
                f" e.g. torch:ddp; {instead}"
            )
        head, more = match.groups()
        return head, more

    @classmethod
    def with_fields(cls, data: dict[str, Any], fields: dict[str, Any]) -> Placement:
        """Return a placement from plain data and further fields, of the placement or of the options of its strategy.

        Raises:
            SpecError: neither has such a field, or a value does not fit.
        """
        own = cls.model_fields.keys() - {"options"}
        options = {name: value for name, value in fields.items() if name not in own}
        kind = _options_of(data)
        if kind is not None and not options.keys() <= kind.model_fields.keys():
            name = min(options.keys() - kind.model_fields.keys())
            known = ", ".join(sorted(kind.model_fields)) or "none"
            near = did_you_mean(name, [*own, *RunOptions.model_fields, *kind.model_fields])
            raise SpecError(
                f"{name}: not a field of a placement; options of {data['strategy']} are: {known}{near}"
            )
        given = {name: value for name, value in fields.items() if name in own}
        return cls.parse({**data, **given, **({"options": options} if options else {})})


@contextmanager
def naming_placement(text: str) -> Iterator[None]:
    """Within it, a SpecError begins with the placement as it was typed; raises that SpecError."""
    try:
        yield
    except SpecError as error:
        if str(error).startswith("--placement"):
            raise
        raise SpecError(f"--placement {text[:200]!r}: {error}") from None


def parse_text(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return framework, strategy and replicas, and the further fields, of 'torch:ddp:2,static_graph=true'.

    Raises:
        SpecError: the text has another form.
    """
    match = re.fullmatch(r"(\w+):(\w+):(\d{1,9})((?:,[^=,]+=(?:\{[^{}]*\}|[^,{}]*))*)", text)
    if match is None:
        raise SpecError(
            f"--placement {text[:200]!r}: expected framework:strategy:replicas[,field=value...],"
            " e.g. torch:ddp:2 or torch:fsdp2:4,wrap=blocks"
        )
    framework, strategy, replicas, more = match.groups()
    framework = {"tf": "tensorflow", "pytorch": "torch"}.get(framework, framework)
    pairs = re.findall(r",([^=,]+=(?:\{[^{}]*\}|[^,{}]*))", more)
    head = {"framework": framework, "strategy": strategy, "replicas": int(replicas)}
    return head, parse_assignments("--placement", pairs)


def _options_of(data: Mapping[str, Any]) -> type[Options] | None:
    """The class of a strategy's options; None for a strategy that there is not."""
    strategies = next((rows for name, rows in STRATEGIES.items() if name == data.get("framework")), {})
    row = strategies.get(str(data.get("strategy")))
    return None if row is None else row.options


def parse_assignments(flag: str, assignments: Sequence[str]) -> dict[str, Any]:
    """Return {'wrap': 'blocks'} of ['wrap=blocks'].

    Raises:
        SpecError: a text has no '='.
    """
    found = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise SpecError(f"{flag} {assignment!r}: expected NAME=VALUE")
        found[name.strip().replace("-", "_")] = parse_value(value)
    return found


def parse_value(text: str) -> Any:
    """The number, truth value, mapping or word that a flag's text stands for."""
    if text.startswith("{"):
        # YAML takes {0:8} for a word without a value.
        text = re.sub(r":(?=\S)", ": ", text)
    try:
        return parse_yaml(text, "")
    except SpecError:
        return text


def said(value: Any) -> str:
    """The text that `parse_value` takes for this value."""
    return str(value).lower() if isinstance(value, bool) else str(value)
