"""The absl shell that both frameworks share: flags end here, the rest takes plain values."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from absl import app, flags

from common import recipes
from common.errors import MissingPackageError, ParityError, RunError, SpecError
from common.launch import progress, worker
from common.launch.place import place_of
from common.launch.worker import MODULES, require
from common.spec import STRATEGIES, Placement, TrainSpec, load_spec, override
from common.spec.placement import parse_assignments, parse_value
from common.spec.run import check_run, effective_batch
from common.spec.strategies import ENGINES, LAUNCHERS, OPTIONS, Framework

_PLACEMENT_FLAGS = (
    "strategy",
    "replicas",
    "engine",
    "launcher",
    "nodes",
    "device",
    "threads_per_replica",
    "pin",
    "sample_order_seed",
    "stop_at_step",
    "digests",
    "taps",
    "phase_repeats",
    "compile",
    "steps_per_call",
    "timeout_seconds",
)


def run(framework: Framework) -> None:
    """The `main` of `python -m tf_impl` and `python -m torch_impl`.

    The framework is imported only after the flags have been found good: --help and a typing error
    answer at once.
    """
    values = _define(framework)

    def main(arguments: list[str]) -> int:
        if len(arguments) > 1:
            raise app.UsageError(f"unexpected argument {arguments[1]!r}; every setting is a --flag")
        try:
            require(framework)
            if values.worker:
                worker.serve(MODULES[framework])
            elif values.describe:
                with quiet_stderr(Path(os.devnull)):
                    facts = importlib.import_module(f"{MODULES[framework]}.runtime").describe()
                print(json.dumps(facts))
            else:
                _train(framework, values)
        except ParityError as error:
            print(f"{MODULES[framework]}: error: {error}", file=sys.stderr)
            return error.exit_code
        return 0

    app.run(main)


def _define(framework: Framework) -> Any:
    strategies = STRATEGIES[framework]
    module = "tf_impl" if framework == "tensorflow" else "torch_impl"
    options = sorted({f"{name}" for kind in OPTIONS[framework].values() for name in kind.model_fields})
    flags.DEFINE_string(
        "recipe", None, f"What to train: {', '.join(recipes.RECIPES)}; most also as NAME:tiny."
    )
    flags.DEFINE_string("spec", None, "A TrainSpec file (YAML or JSON) instead of a recipe.")
    flags.DEFINE_multi_string(
        "set", [], "Override a field of the spec, e.g. --set optimizer.learning_rate=0.05. Repeatable."
    )
    flags.DEFINE_string("out", None, "Folder of the run record. Must be new or empty.")
    flags.DEFINE_enum("strategy", strategies[0], strategies, "How replicas share the work.")
    flags.DEFINE_integer("replicas", 1, "Copies of the model; the global batch is split over them.")
    flags.DEFINE_enum("device", "auto", ["auto", "cpu", "gpu"], "auto: GPUs where there are enough.")
    flags.DEFINE_multi_string(
        "option",
        [],
        f"What the strategy leaves to choose, e.g. --option {options[0]}=...: {', '.join(options)}.",
    )
    flags.DEFINE_enum("engine", "own", list(ENGINES[framework]), "Whose loop trains.")
    flags.DEFINE_enum("launcher", "local", LAUNCHERS[framework], "local starts what it needs itself.")
    flags.DEFINE_integer("nodes", 1, "Machines that the replicas are spread over evenly.")
    flags.DEFINE_string(
        "accumulation", "1", "Micro-batches a local batch is cut into; by epoch: '{0: 8, 5: 4, 10: 2}'."
    )
    flags.DEFINE_integer("timeout_seconds", 120, "A collective, or a start, that takes longer ends the run.")
    flags.DEFINE_bool("digests", False, "Record a digest of every replica's parameters after each step.")
    flags.DEFINE_bool("taps", False, "Record digests of every activation and gradient at every step.")
    flags.DEFINE_integer("phase_repeats", 0, "Time each phase of a step this often, after the last step.")
    flags.DEFINE_bool("compile", False, "Compile the step: torch.compile, or XLA for TensorFlow.")
    if framework == "tensorflow":
        flags.DEFINE_integer("steps_per_call", 1, "Steps that one call of the graph takes.")
    flags.DEFINE_integer("threads_per_replica", 1, "CPU threads a replica.")
    flags.DEFINE_bool("pin", False, "Bind each replica to its own cores.")
    flags.DEFINE_integer(
        "sample_order_seed", None, "Permute every global batch: a run that shows what rounding does."
    )
    flags.DEFINE_integer("stop_at_step", None, "End after this many steps; the schedule stands.")
    flags.DEFINE_bool("tensorboard", False, "Also write TensorBoard scalars into OUT/tensorboard.")
    flags.DEFINE_bool("worker", False, "Serve jobs from standard input (used by the parity command).")
    flags.DEFINE_bool("describe", False, "Print versions, devices and strategies as JSON.")
    # absl's --help lists the flags of the main module; these are its flags, defined elsewhere.
    for flag in flags.FLAGS.flags_by_module_dict()[__name__]:
        flags.FLAGS.register_key_flag_for_module(sys.argv[0], flag)
    sys.modules["__main__"].__doc__ = (
        f"Train a spec with {framework} and write a run record.\n\n"
        f"Example: python -m {module} --recipe digits_cnn --strategy {strategies[-1]} --replicas 2 --out runs/mine\n"
        "Compare records with: parity compare RUN_A RUN_B\n"
    )
    return flags.FLAGS


def _train(framework: Framework, values: Any) -> None:
    spec = choose_spec(values.recipe, values.spec, values["set"].value)
    if values.out is None:
        raise SpecError("--out is required: the folder for the run record")
    data = {name: values[name].value for name in _PLACEMENT_FLAGS if name in values}
    data |= {"framework": framework, "accumulation": parse_value(values.accumulation)}
    placement = Placement.with_fields(data, parse_assignments("--option", values.option))
    check_run(spec, placement)
    if values.tensorboard and importlib.util.find_spec("tensorboard") is None:
        raise MissingPackageError("--tensorboard needs tensorboard; run: pip install tensorboard")
    out = Path(values.out)
    talks = place_of(placement).rank == 0
    if talks:
        print(effective_batch(spec, placement))
    steps = placement.steps_of(spec.steps)
    with tempfile.TemporaryDirectory(prefix="parity-") as logs:
        log = Path(logs) / "framework.log"
        try:
            with progress.watch({placement.label: out}, steps, shown=talks), quiet_stderr(log):
                train = importlib.import_module(f"{MODULES[framework]}.train").train
                train(spec, placement, out, tensorboard=values.tensorboard)
        except ParityError:
            raise
        except KeyboardInterrupt:
            raise RunError(f"interrupted; what was trained until then is in {out}") from None
        except Exception:
            # Not foreseen: what the framework said belongs to it.
            sys.stderr.write(log.read_text(errors="replace"))
            raise
    if talks:
        print(progress.closing_line(out))


@contextmanager
def quiet_stderr(log: Path) -> Iterator[None]:
    """Send what C++ code writes to standard error into `log`; Python's sys.stderr still speaks."""
    saved = os.dup(2)
    python_stderr = sys.stderr
    try:
        with open(log, "ab", buffering=0) as file, os.fdopen(os.dup(2), "w", buffering=1) as terminal:
            sys.stderr = terminal
            os.dup2(file.fileno(), 2)
            yield
    finally:
        sys.stderr = python_stderr
        os.dup2(saved, 2)
        os.close(saved)


def choose_spec(recipe: str | None, spec_file: str | None, overrides: list[str]) -> TrainSpec:
    """The spec that was asked for, overrides applied. Raises SpecError with one line."""
    if (recipe is None) == (spec_file is None):
        raise SpecError("give either --recipe NAME or --spec FILE")
    spec = recipes.get(recipe) if recipe is not None else load_spec(Path(spec_file or ""))
    return override(spec, overrides)
