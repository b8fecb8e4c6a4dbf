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

from parity.common import recipes
from parity.common.base.errors import MissingPackageError, ParityError, RunError, SpecError
from parity.common.base.package import MODULES
from parity.common.base.stop import listen
from parity.common.execution import progress, supervise
from parity.common.execution.checks import check_run, effective_batch
from parity.common.execution.process_context import process_context, starts_ranks
from parity.common.execution.processes.liveness import OUTER, report_stacks, silence_limit
from parity.common.execution.resume import (
    Start,
    attempt_of,
    begin_anew,
    decide,
    ended,
    follow,
    resume_run,
    run_to_resume,
)
from parity.common.execution.worker import require
from parity.common.record import run_of
from parity.common.spec import STRATEGIES, Placement, TrainSpec, load_spec, override
from parity.common.spec.placement import parse_assignments, parse_value
from parity.common.spec.strategies import ENGINES, LAUNCHERS, OPTIONS, Framework

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
    """The `main` of `python -m parity.tf_impl` and `python -m parity.torch_impl`.

    The framework is imported only after the flags have been found good: --help and a typing error
    answer at once.
    """
    values = _define(framework)

    def main(arguments: list[str]) -> int:
        if len(arguments) > 1:
            raise app.UsageError(f"unexpected argument {arguments[1]!r}; every setting is a --flag")
        report_stacks()
        try:
            require(framework)
            if values.describe:
                with quiet_stderr(Path(os.devnull)):
                    facts = importlib.import_module(f"{MODULES[framework]}.runtime").describe()
                print(json.dumps(facts))
            elif values.restarts:
                return _supervise(framework, values)
            else:
                _train(framework, values)
        except ParityError as error:
            print(f"{MODULES[framework]}: error: {error}", file=sys.stderr)
            return error.exit_code
        return 0

    app.run(main)


def _define(framework: Framework) -> Any:
    strategies = STRATEGIES[framework]
    module = MODULES[framework]
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
    flags.DEFINE_integer("save_every_steps", None, "Keep a checkpoint after each so many steps.")
    flags.DEFINE_float("save_every_minutes", None, "Keep a checkpoint when so many minutes have passed.")
    flags.DEFINE_integer("keep_last", 2, "Of all checkpoints the latest that stay.")
    flags.DEFINE_integer("keep_best", 0, "Besides, those with the lowest mean training loss.")
    if framework == "torch":
        flags.DEFINE_bool("save_sharded", False, "Each rank writes its own part of a checkpoint.")
    flags.DEFINE_string(
        "resume",
        None,
        "Go on from a checkpoint: its folder, or that of its run; 'auto': from OUT where that holds a run, else"
        " from the beginning. Without --recipe the spec is the run's; without --out it goes on in its folder.",
    )
    flags.DEFINE_integer(
        "restarts", 0, "Start the training again so often, from its latest checkpoint, when it dies."
    )
    flags.DEFINE_bool("tensorboard", False, "Also write TensorBoard scalars into OUT/tensorboard.")
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


def _supervise(framework: Framework, values: Any) -> int:
    """Train in a process of its own; returns the exit code of the last."""
    placement = _placement(framework, values)
    if not starts_ranks(placement):
        raise SpecError(
            f"--restarts starts processes on this machine, which launcher {placement.launcher} does; with torchrun"
            " take its --max-restarts, on SLURM the scripts requeue"
        )
    if placement.save is None or values.restarts < 0:
        raise SpecError(f"--restarts {values.restarts} goes on from checkpoints; add --save_every_steps N")
    if values.out is None and values.resume is None:
        raise SpecError("--out is required: the folder for the run record")
    run = run_to_resume(values.resume, None if values.out is None else Path(values.out))
    given = values.recipe is not None or values.spec is not None
    limit = silence_limit(placement.timeout_seconds) * OUTER
    return supervise.supervise(MODULES[framework], sys.argv[1:], run, values.restarts, given, limit)


def _placement(framework: Framework, values: Any) -> Placement:
    """What the flags say of the placement, but for where it begins."""
    data = {name: values[name].value for name in _PLACEMENT_FLAGS if name in values}
    data |= {"framework": framework, "accumulation": parse_value(values.accumulation)}
    data |= {"save": _saving(values)}
    return Placement.with_fields(data, parse_assignments("--option", values.option))


def _train(framework: Framework, values: Any) -> None:
    placement = _placement(framework, values)
    if placement.save is not None:
        listen()
    rank = process_context(placement).rank
    start = _start(values, placement, rank)
    if start.ended:
        print("\n".join(start.said), end="\n" if start.said else "")
        return
    spec, out = start.spec, start.part
    placement = placement.model_copy(update={"resume": start.checkpoint})
    check_run(spec, placement)
    if values.tensorboard and importlib.util.find_spec("tensorboard") is None:
        raise MissingPackageError("--tensorboard needs tensorboard; run: pip install tensorboard")
    talks = rank == 0
    if talks:
        print(effective_batch(spec, placement))
        for line in start.said:
            print(line)
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
        print(progress.closing_line(run_of(out)))


def _saving(values: Any) -> dict[str, Any] | None:
    """When to keep checkpoints; None: never."""
    steps, minutes = values.save_every_steps, values.save_every_minutes
    if steps is None and minutes is None:
        return None
    kept = {"keep_last": values.keep_last, "keep_best": values.keep_best}
    if "save_sharded" in values:
        kept["sharded"] = values.save_sharded
    return {"every_steps": steps, "every_minutes": minutes, **kept}


def _start(values: Any, placement: Placement, rank: int) -> Start:
    """Where a run begins: anew, or at a checkpoint. Of several processes the first decides, the others follow."""
    out = None if values.out is None else Path(values.out)
    auto, given = values.resume == "auto", values.recipe is not None or values.spec is not None
    spec = None
    if given or auto or values.resume is None:  # only a run that is named may say what it trains
        spec = choose_spec(values.recipe, values.spec, values["set"].value)
    if values.resume is None:
        if out is None:
            raise SpecError("--out is required: the folder for the run record")
        assert spec is not None
        return begin_anew(spec, out)
    if auto and out is None:
        raise SpecError("--resume auto goes on in --out; give that, or --resume RUN")

    def decision() -> Start:
        if spec is not None and out is not None and auto:
            return ended(spec, out, placement.stop_at_step) or begin_anew(spec, out, again=True)
        return resume_run(Path(values.resume), spec, out)

    if starts_ranks(placement) or placement.processes == 1:
        return decision()
    run, attempt = run_to_resume(values.resume, out), attempt_of(values.resume, placement.stop_at_step)
    if rank == 0:
        return decide(run, attempt, decision)
    anew = Start(spec, run) if auto and spec is not None else None
    return follow(run, attempt, anew, placement.timeout_seconds)


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
