"""Instrumentation: what a diagnosis adds to a run in order to observe it."""

from __future__ import annotations

from pydantic import Field, model_validator

from parity.common.spec.base import NonNegativeInt, Spec


class Replay(Spec):
    """What `parity diagnose` has a trainer do: train some steps as always, and keep what is seen in them.

    Steps `first_step` to `stop` - 1 are trained, one after another. Then each step that `forced` has
    inputs for is taken once more, by itself: it begins with the state found there, and wherever a tensor
    is named there it goes on with that one, once its own has been kept (`common/record/trace.py`).
    """

    first_step: NonNegativeInt = Field(default=0, description="the first step that is trained")
    stop: NonNegativeInt = Field(description="the first step that is not trained; first_step: none is")
    begin: str | None = Field(
        default=None,
        description="file of the canonical state before first_step; none: the spec's initial one",
    )
    history: str | None = Field(
        default=None,
        description="record whose steps before first_step the schedule is told; needed where it feeds back",
    )
    states: tuple[NonNegativeInt, ...] = Field(default=(), description="steps before which the state is kept")
    trace: tuple[NonNegativeInt, ...] = Field(
        default=(), description="trained steps whose tensors are kept, whole"
    )
    forced: str | None = Field(default=None, description="folder of steps to take once more, and what with")
    evaluation: bool = Field(default=False, description="keep the tensors of the first batch evaluated, too")

    @model_validator(mode="after")
    def _ordered(self) -> Replay:
        if self.stop < self.first_step:
            raise ValueError(f"stop {self.stop} comes before first_step {self.first_step}")
        if any(not self.first_step <= step < self.stop for step in self.trace):
            raise ValueError(f"trace {self.trace} has steps outside {self.first_step}..{self.stop - 1}")
        if any(not self.first_step <= step <= self.stop for step in self.states):
            raise ValueError(f"states {self.states} has steps outside {self.first_step}..{self.stop}")
        if self.first_step and self.begin is None:
            raise ValueError(f"first_step {self.first_step} needs the state before it: begin")
        return self


class Instrumentation(Spec):
    """What is done to a run in order to observe it, or to reproduce a fault in it."""

    replay: Replay | None = Field(default=None, description="train a part of a run once more and trace it")
    context: str | None = Field(
        default=None, description='"module:function" of a context manager that the run is made inside'
    )
