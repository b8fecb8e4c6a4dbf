"""What an explanation may have tried: single layers, a step with a corrected tensor injected, another spec."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from parity.common.record.trace import FORCED, TRACE, Array, Trace, step_folder, write_replica
from parity.common.spec import Placement, TrainSpec
from parity.common.spec.instrumentation import Instrumentation, Replay
from parity.common.spec.layers import AnyLayer, Shape
from parity.common.state.canonical import State, load_state, save_state

if TYPE_CHECKING:
    from parity.common.execution.worker import Workers

Side = Literal["reference", "candidate"]


@dataclass(frozen=True)
class Variant:
    """One layer on one batch, by itself.

    tensors: those of the layer and of its children, `parameters/PATH/NAME` and `buffers/PATH/NAME`.
    dy: the gradient of the loss with respect to its output; None: no backward pass.
    """

    layer: AnyLayer
    path: str
    input_shape: Shape
    x: Array
    tensors: State = field(default_factory=dict)
    dy: Array | None = None
    ids: Array | None = None
    token_mask: Array | None = None
    training: bool = True
    step: int = 0
    seed: int = 0
    dtype: str = "float64"

    def described(self) -> dict[str, Any]:
        """All but the arrays, as JSON."""
        plain = {name: getattr(self, name) for name in ("path", "training", "seed", "step", "dtype")}
        return {"spec": self.layer.to_dict(), "input_shape": list(self.input_shape), **plain}

    def arrays(self) -> State:
        """The arrays by their names in a trial's file."""
        given = {"x": self.x, "dy": self.dy, "ids": self.ids, "token_mask": self.token_mask}
        found: State = {name: value for name, value in given.items() if value is not None}
        return found | {f"tensor/{name}": value for name, value in self.tensors.items()}


@dataclass(eq=False)
class Counterfactuals:
    """Replays on request. Each takes a second or more, so ask for what a signature has made likely.

    placements, contexts: of the reference and the candidate, as they were replayed. replay: the candidate's,
    which injected the steps found in its folder `injected`.
    """

    replayer: Workers
    folder: Path
    spec: TrainSpec
    placements: tuple[Placement, Placement]
    contexts: tuple[str | None, str | None]
    replay: Replay
    numbers: Iterator[int] = field(default_factory=itertools.count, init=False)

    def trial(self, variants: Sequence[Variant], side: Side = "reference") -> list[State | None]:
        """What each layer makes of its input: `y`, `dx`, `gradient/NAME`, `after/buffers/...`.

        In the framework of that side, without the context of its run. None for one that raised.
        """
        if not variants:
            return []
        folder = self._new_folder("trial")
        described = [variant.described() for variant in variants]
        (folder / "trials.json").write_text(json.dumps(described), encoding="utf-8")
        arrays = {
            f"{number}/{name}": value
            for number, variant in enumerate(variants)
            for name, value in variant.arrays().items()
        }
        save_state(folder / "trials.safetensors", arrays)
        self.replayer.trial(self.placements[side == "candidate"].framework, folder)
        found: list[State] = [{} for _ in variants]
        for name, value in load_state(folder / "results.safetensors").items():
            number, _, rest = name.partition("/")
            found[int(number)][rest] = value
        shutil.rmtree(folder)
        return [state or None for state in found]

    def corrected(self, step: int | None, injections: Sequence[State]) -> Trace:
        """The candidate's injected step (None: its evaluation) given exactly `injections`, one state a replica.

        Begins with the same state, after the same steps, as the injected step of the evidence.
        """
        folder = self._new_folder("corrected")
        inject = folder / "feed"
        inject.mkdir()
        assert self.replay.forced is not None
        given, here = Path(self.replay.forced), step_folder(inject, step)
        for path in sorted(given.glob("step_*")):
            # What was injected before may have left something behind in the process.
            if path.name < here.name:
                (inject / path.name).symlink_to(path.resolve(), target_is_directory=True)
        here.mkdir()
        save_state(here / "state.safetensors", load_state(step_folder(given, step) / "state.safetensors"))
        for replica, tensors in enumerate(injections):
            write_replica(here, replica, tensors)
        changes = {"states": (), "trace": (), "forced": str(inject), "evaluation": False}
        placement, replay = self.placements[1], Replay.parse({**self.replay.to_dict(), **changes})
        instrumentation = Instrumentation(replay=replay, context=self.contexts[1])
        record = self.replayer.train(self.spec, placement, folder / "run", instrumentation=instrumentation)
        trace = Trace.read(step_folder(record / FORCED, step), placement.replicas)
        shutil.rmtree(folder)
        return trace

    def as_trained(self, step: int, placement: Placement, side: Side) -> Trace:
        """A step of the candidate, or the reference, on another placement, from its own first state on.

        Raises:
            RunError: it failed.
        """
        folder = self._new_folder("as_trained")
        replay = Replay.parse({"stop": step + 1, "trace": (step,)})
        instrumentation = Instrumentation(replay=replay, context=self.contexts[side == "candidate"])
        record = self.replayer.train(self.spec, placement, folder / "run", instrumentation=instrumentation)
        trace = Trace.read(step_folder(record / TRACE, step), placement.replicas)
        shutil.rmtree(folder)
        return trace

    def _new_folder(self, what: str) -> Path:
        folder = self.folder / f"{what}_{next(self.numbers)}"
        folder.mkdir(parents=True)
        return folder
