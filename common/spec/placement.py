"""Placement: how a spec is run. It must not change the loss curve beyond rounding."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from common.spec.base import NonNegativeInt, PositiveInt, Spec

Framework = Literal["tensorflow", "torch"]

STRATEGIES: dict[str, tuple[str, ...]] = {
    "tensorflow": ("mirrored",),
    "torch": ("single", "ddp", "fsdp2"),
}


class Placement(Spec):
    """Framework, strategy, replicas and everything else that only time and memory may depend on."""

    framework: Framework
    strategy: Literal["mirrored", "single", "ddp", "fsdp2"]
    replicas: PositiveInt = 1
    device: Literal["auto", "cpu", "gpu"] = "auto"
    launcher: Literal["local", "torchrun"] = "local"
    threads_per_replica: PositiveInt = 1
    pin: bool = Field(False, description="bind each replica's threads to their own cores")
    sample_order_seed: NonNegativeInt | None = Field(
        None, description="permute every global batch: the same samples summed in another order"
    )
    stop_at_step: PositiveInt | None = Field(None, description="end early; the spec's schedule stands")
    recording: Literal["full", "off"] = Field("full", description="off: only timings, for benchmarks")
    loader_workers: NonNegativeInt = Field(0, description="that prepare batches, a replica; 0: none besides")
    prefetch_batches: PositiveInt = Field(2, description="that each loader worker prepares ahead")
    timeout_seconds: PositiveInt = Field(120, description="a collective that takes longer ends the run")

    @model_validator(mode="after")
    def _possible(self) -> Placement:
        allowed = STRATEGIES[self.framework]
        if self.strategy not in allowed:
            raise ValueError(f"strategy of {self.framework} must be one of {', '.join(allowed)}")
        if self.strategy == "single" and self.replicas != 1:
            raise ValueError("strategy 'single' has one replica; take ddp or fsdp2 for more")
        if self.framework == "tensorflow" and self.launcher != "local":
            raise ValueError("launcher 'torchrun' starts torch ranks; tensorflow uses 'local'")
        return self

    def steps_of(self, spec_steps: int) -> int:
        """How many of a spec's steps this run takes."""
        return min(spec_steps, self.stop_at_step or spec_steps)

    @property
    def label(self) -> str:
        """Short name for tables: 'torch ddp x2'."""
        return f"{self.framework} {self.strategy} x{self.replicas}"
