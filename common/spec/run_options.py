"""Run options: what a run records, saves and times. None of it changes what is trained."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Strict

from parity.common.spec.base import NonNegativeInt, PositiveInt, Spec


class Saving(Spec):
    """When a run saves what it would go on from. Neither number given: only when it is asked to stop."""

    every_steps: PositiveInt | None = Field(default=None, description="save after every N steps")
    every_minutes: Annotated[float, Strict(), Field(gt=0)] | None = Field(
        default=None, description="save after every N minutes"
    )
    keep_last: PositiveInt = Field(default=2, description="keep the N most recent checkpoints")
    keep_best: NonNegativeInt = Field(
        default=0, description="besides, keep N with the lowest mean training loss since the one before"
    )
    in_background: bool = Field(default=True, description="write while the next steps train")
    sharded: bool = Field(
        default=False,
        description="every rank writes its own part, for states too large to be gathered (torch)",
    )


class RunOptions(Spec):
    """What a run records, when it ends, what it saves and where it resumes."""

    stop_at_step: PositiveInt | None = Field(
        default=None, description="end after this many steps; the schedule stays that of the spec"
    )
    recording: Literal["full", "curve", "off"] = Field(
        default="full",
        description="curve: losses, timings and the evaluation, without states; off: only timings, for benchmarks",
    )
    digests: bool = Field(
        default=False, description="record a digest of every replica's parameters after each step"
    )
    taps: bool = Field(
        default=False, description="record digests of every activation and gradient of every step"
    )
    phase_repeats: NonNegativeInt = Field(
        default=0, description="how many times to time each phase of a step, after the last step"
    )
    tensorboard: bool = Field(
        default=False, description="also write TensorBoard scalars into OUT/tensorboard"
    )
    save: Saving | None = Field(default=None, description="when to keep a checkpoint; none: never")
    resume: str | None = Field(default=None, description="folder of the checkpoint to resume from")

    @property
    def keeps_states(self) -> bool:
        """Whether a run keeps its initial and its final state, and the gradients of its first update."""
        return self.recording != "curve"

    def steps_of(self, spec_steps: int) -> int:
        """How many of a spec's steps this run takes."""
        return min(spec_steps, self.stop_at_step or spec_steps)
