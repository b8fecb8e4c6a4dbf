"""The absl shell that both frameworks share: flags end here, the rest takes plain values."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from absl import app, flags

from common import recipes
from common.errors import ParityError, SpecError
from common.launch import progress, worker
from common.spec import STRATEGIES, Placement, TrainSpec, load_spec, override
from common.spec.placement import Framework

Train = Callable[..., Path]


def run(framework: Framework, train: Train, configure: Callable[..., None], describe: Callable[[], Any]) -> None:
    """The `main` of `python -m tf_impl` and `python -m torch_impl`.

    Args:
        framework: whose flags these are.
        train: train(spec, placement, out_dir, tensorboard).
        configure: configure(placement, capacity), called once by a worker before its first run.
        describe: what this framework can do here, for `parity doctor`.
    """
    values = _define(framework)

    def main(arguments: list[str]) -> int:
        if len(arguments) > 1:
            raise app.UsageError(f"unexpected argument {arguments[1]!r}; every setting is a --flag")
        if values.describe:
            print(json.dumps(describe()))
            return 0
        if values.worker:
            worker.serve(train, configure)
            return 0
        try:
            return _train(framework, train, values)
        except ParityError as error:
            print(f"{framework}: error: {error}", file=sys.stderr)
            return error.exit_code

    app.run(main)


def _define(framework: Framework) -> Any:
    strategies = STRATEGIES[framework]
    module = "tf_impl" if framework == "tensorflow" else "torch_impl"
    launchers = ["local", "torchrun"] if framework == "torch" else ["local"]
    flags.DEFINE_string("recipe", None, f"What to train: {', '.join(recipes.RECIPES)}.")
    flags.DEFINE_string("spec", None, "A TrainSpec file (YAML or JSON) instead of a recipe.")
    flags.DEFINE_multi_string(
        "set", [], "Override a field of the spec, e.g. --set optimizer.learning_rate=0.05. Repeatable."
    )
    flags.DEFINE_string("out", None, "Folder of the run record. Must be new or empty.")
    flags.DEFINE_enum("strategy", strategies[0], strategies, "How replicas share the work.")
    flags.DEFINE_integer("replicas", 1, "Copies of the model; the global batch is split over them.")
    flags.DEFINE_enum("device", "auto", ["auto", "cpu", "gpu"], "auto: GPUs where there are enough.")
    flags.DEFINE_enum("launcher", "local", launchers, "local starts what it needs itself.")
    flags.DEFINE_integer("threads_per_replica", 1, "CPU threads a replica.")
    flags.DEFINE_bool("pin", False, "Bind each replica to its own cores.")
    flags.DEFINE_integer(
        "sample_order_seed", None, "Permute every global batch: a run that shows what rounding does."
    )
    flags.DEFINE_integer("stop_at_step", None, "End after this many steps; the schedule stands.")
    flags.DEFINE_bool("tensorboard", False, "Also write TensorBoard scalars into OUT/tensorboard.")
    flags.DEFINE_bool("worker", False, "Serve jobs from standard input (used by the parity command).")
    flags.DEFINE_bool("describe", False, "Print versions, devices and strategies as JSON.")
    flags.FLAGS.set_gnu_getopt(True)
    sys.modules["__main__"].__doc__ = (
        f"Train a spec with {framework} and write a run record.\n\n"
        f"Example: python -m {module} --recipe digits_cnn --strategy {strategies[-1]} --replicas 2 --out runs/mine\n"
        "Compare records with: parity compare RUN_A RUN_B\n"
    )
    return flags.FLAGS


def _train(framework: Framework, train: Train, values: Any) -> int:
    spec = choose_spec(values.recipe, values.spec, values["set"].value)
    if values.out is None:
        raise SpecError("--out is required: the folder for the run record")
    placement = Placement.parse(
        {
            "framework": framework,
            **{
                name: values[name].value
                for name in (
                    "strategy",
                    "replicas",
                    "device",
                    "launcher",
                    "threads_per_replica",
                    "pin",
                    "sample_order_seed",
                    "stop_at_step",
                )
            },
        }
    )
    out = Path(values.out)
    talks = os.environ.get("RANK", "0") == "0"
    steps = min(spec.steps, placement.stop_at_step or spec.steps)
    with progress.watch({placement.label: out}, steps, shown=talks):
        train(spec, placement, out, tensorboard=values.tensorboard)
    if talks:
        print(progress.closing_line(out))
    return 0


def choose_spec(recipe: str | None, spec_file: str | None, overrides: list[str]) -> TrainSpec:
    """The spec that was asked for, overrides applied. Raises SpecError with one line."""
    if (recipe is None) == (spec_file is None):
        raise SpecError("give either --recipe NAME or --spec FILE")
    spec = recipes.get(recipe) if recipe is not None else load_spec(Path(spec_file or ""))
    return override(spec, overrides)
