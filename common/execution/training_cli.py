"""The command line of a training, for both frameworks: flags end here, the rest takes plain values."""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from absl import app, flags
from pydantic.fields import FieldInfo

from parity.common import recipes
from parity.common.base.command_line import check_flagfile, spelled
from parity.common.base.ending import exit_code_of
from parity.common.base.errors import MissingPackageError, ParityError, RunError, SpecError, how_to_install
from parity.common.base.package import MODULES
from parity.common.base.plain import print_error, print_line
from parity.common.base.scratch import scratch_folder
from parity.common.base.stop import interrupting, listen
from parity.common.checkpoint.files import checkpoints_of, step_of
from parity.common.execution import progress, resume, supervise
from parity.common.execution.checks import check_run, effective_batch
from parity.common.execution.flags import choices_of, config_of, fields, type_of
from parity.common.execution.interpreters import require
from parity.common.execution.process_context import process_context, starts_ranks
from parity.common.execution.processes.liveness import OUTER, report_stacks, silence_limit
from parity.common.record import run_of
from parity.common.record.header import steps_in
from parity.common.spec import RunConfig, TrainSpec, load_spec, override
from parity.common.spec.capabilities import STRATEGIES
from parity.common.spec.placement import parse_assignments, parse_value
from parity.common.spec.strategies import Framework

_DEFINE: dict[Any, Any] = {bool: flags.DEFINE_bool, int: flags.DEFINE_integer, float: flags.DEFINE_float}


def run(framework: Framework) -> None:
    """The `main` of `python -m parity.tf_impl` and `python -m parity.torch_impl`.

    The framework is imported only after the flags have been found good: --help and a typing error
    answer at once.
    """
    values = _define(framework)

    module = MODULES[framework]

    def train(arguments: list[str]) -> int:
        for word in arguments[1:]:
            if values.recipe not in (None, word):
                raise SpecError(
                    f"two recipes are given, {values.recipe!r} and {word!r}; every other setting is a --flag"
                )
            values.recipe = word
        report_stacks()
        require(framework, sys.executable)
        if values.describe:
            with quiet_stderr(Path(os.devnull)):
                facts = importlib.import_module(f"{module}.runtime").describe()
            print_line(json.dumps(facts))
        elif values.restarts:
            return _supervise(framework, values)
        else:
            _train(framework, values)
        return 0

    def main(arguments: list[str]) -> int:
        # A rank that torchrun or srun has started is searched for by its traceback.
        started_by_others = any(name in os.environ for name in ("TORCHELASTIC_RUN_ID", "SLURM_PROCID"))
        return exit_code_of(module, lambda: train(arguments), keep_traceback=started_by_others)

    def parsed(arguments: list[str]) -> list[str]:
        try:
            check_flagfile(arguments)
            return list(flags.FLAGS(arguments))
        except flags.Error as error:
            print_error(f"{module}: error: {error}; --help lists all flags")
            sys.exit(ParityError.exit_code)
        except SystemExit:
            sys.exit(0)  # absl ends its --help with 1, the code of a divergence

    # Flags are taken with dashes, too, as the parity command has them.
    app.run(main, [sys.argv[0], *spelled(sys.argv[1:], "_")], flags_parser=parsed)


def _define(framework: Framework) -> Any:
    strategies = STRATEGIES[framework].values()
    module = MODULES[framework]
    options = sorted({name for row in strategies for name in row.options.model_fields})
    flags.DEFINE_string(
        "recipe", None, f"What to train: {', '.join(recipes.RECIPES)}; most also as NAME:tiny."
    )
    flags.DEFINE_string("spec", None, "A TrainSpec file (YAML or JSON) instead of a recipe.")
    flags.DEFINE_multi_string(
        "set", [], "Override a field of the spec, e.g. --set optimizer.learning_rate=0.05. Repeatable."
    )
    flags.DEFINE_string("out", None, "Folder of the run record. Must be new or empty.")
    for name, field in fields(framework):
        _define_field(framework, name, field)
    flags.DEFINE_multi_string(
        "option",
        [],
        f"What the strategy leaves to choose, e.g. --option {options[0]}=...: {', '.join(options)}.",
    )
    flags.DEFINE_string(
        "resume",
        None,
        "Go on from a checkpoint: its folder, or that of its run; 'auto': from OUT where that holds a run, else"
        " from the beginning. Without --recipe the spec is the run's; without --out it goes on in its folder.",
    )
    flags.DEFINE_integer(
        "restarts", 0, "Start the training again so often, from its latest checkpoint, when it dies."
    )
    flags.DEFINE_bool("describe", False, "Print versions, devices and strategies as JSON.")
    # absl's --help lists the flags of the main module; these are its flags, defined elsewhere.
    for flag in flags.FLAGS.flags_by_module_dict()[__name__]:
        flags.FLAGS.register_key_flag_for_module(sys.argv[0], flag)
    sys.modules["__main__"].__doc__ = (
        f"Train a spec with {framework} and write a run record.\n\n"
        f"Example: python -m {module} --recipe digits_cnn --strategy {list(STRATEGIES[framework])[-1]} --replicas 2 --out runs/mine\n"
        "Compare records with: parity compare RUN_A RUN_B\n"
    )
    return flags.FLAGS


def _define_field(framework: Framework, name: str, field: FieldInfo) -> None:
    choices, kind, text = choices_of(framework, name, field), type_of(field), field.description
    if choices:
        usual = choices[0] if field.is_required() else field.default
        flags.DEFINE_enum(name, usual, choices, text)
    elif kind in _DEFINE:
        _DEFINE[kind](name, field.default, text)
    else:
        flags.DEFINE_string(name, None, text)


def _supervise(framework: Framework, values: Any) -> int:
    """Train in a process of its own; returns the exit code of the last."""
    config = _config(framework, values)
    placement = config.placement
    if not starts_ranks(placement):
        raise SpecError(
            f"--restarts starts processes on this machine, which launcher {placement.launcher} does; with torchrun"
            " take its --max-restarts, on SLURM the scripts requeue"
        )
    if config.run_options.save is None or values.restarts < 0:
        raise SpecError(f"--restarts {values.restarts} goes on from checkpoints; add --save_every_steps N")
    if values.out is None and values.resume is None:
        raise SpecError("--out is required: the folder for the run record")
    run = resume.run_to_resume(values.resume, None if values.out is None else Path(values.out))
    given = values.recipe is not None or values.spec is not None
    limit = silence_limit(placement.timeout_seconds) * OUTER
    return supervise.supervise(MODULES[framework], sys.argv[1:], run, values.restarts, given, limit)


def _config(framework: Framework, values: Any) -> RunConfig:
    """What the flags say of a run, but for where it begins."""
    given = {name: values[name].value for name, _ in fields(framework) if values[name].value is not None}
    if "accumulation" in given:
        given["accumulation"] = parse_value(given["accumulation"])
    return config_of(framework, given, parse_assignments("--option", values.option))


def _train(framework: Framework, values: Any) -> None:
    placement, run_options, _ = (config := _config(framework, values)).parts
    if run_options.save is not None:
        listen()
    rank = process_context(placement).rank
    start = _start(values, config, rank)
    if start.ended:
        for line in start.said:
            print_line(line)
        return
    spec, out = start.spec, start.part
    run_options = run_options.model_copy(update={"resume": start.checkpoint})
    check_run(spec, placement, run_options)
    if run_options.tensorboard and importlib.util.find_spec("tensorboard") is None:
        raise MissingPackageError(f"--tensorboard needs tensorboard; {how_to_install('tensorboard')}")
    talks = rank == 0
    if talks:
        for line in (effective_batch(spec, placement), *start.said):
            print_line(line)
    steps = run_options.steps_of(spec.steps)
    # One of several that others have started, and that waits in a collective, would not hear it.
    silent = run_options.save is None and (starts_ranks(placement) or placement.processes == 1)
    with scratch_folder() as scratch, interrupting() if silent else nullcontext():
        log = scratch / "framework.log"
        try:
            with progress.watch({placement.label: out}, steps, shown=talks), quiet_stderr(log):
                train = importlib.import_module(f"{MODULES[framework]}.train").train
                train(spec, placement, out, run_options)
        except ParityError:
            raise
        except KeyboardInterrupt:
            logging.disable()  # a framework that is half imported has things to say when Python ends
            raise RunError(f"interrupted; {_left_by(run_of(out), out)}") from None
        except Exception:
            # Not foreseen: what the framework said belongs to it.
            for line in log.read_text(errors="replace").splitlines():
                print_error(line)
            raise
    if talks:
        print_line(progress.closing_line(run_of(out)))


def _left_by(run: Path, part: Path) -> str:
    """What a training that was interrupted in a part of a run leaves, and how to go on."""
    if not steps_in(part / "steps.f64"):
        return "nothing was trained"
    saved = checkpoints_of(run)
    how = f"; go on from step {step_of(saved[-1])} with --resume {run}" if saved else ""
    return f"what was trained until then is in {part}{how}"


def _start(values: Any, config: RunConfig, rank: int) -> resume.Start:
    """Where a run begins: anew, or at a checkpoint. Of several processes the first decides, the others follow."""
    placement, stop = config.placement, config.run_options.stop_at_step
    out = None if values.out is None else Path(values.out)
    auto, given = values.resume == "auto", values.recipe is not None or values.spec is not None
    spec = None
    if given or auto or values.resume is None:  # only a run that is named may say what it trains
        spec = choose_spec(values.recipe, values.spec, values["set"].value)
    if values.resume is None:
        if out is None:
            raise SpecError("--out is required: the folder for the run record")
        assert spec is not None
        return resume.Start(spec, out)
    if auto and out is None:
        raise SpecError("--resume auto goes on in --out; give that, or --resume RUN")

    def decision() -> resume.Start:
        if spec is not None and out is not None and auto:
            return resume.ended(spec, out, stop) or resume.begin_or_resume(spec, out)
        return resume.resume_run(Path(values.resume), spec, out)

    if starts_ranks(placement) or placement.processes == 1:
        return decision()
    run, attempt = resume.run_to_resume(values.resume, out), resume.attempt_of(values.resume, stop)
    if rank == 0:
        return resume.decide(run, attempt, decision)
    anew = resume.Start(spec, run) if auto and spec is not None else None
    return resume.follow(run, attempt, anew, placement.timeout_seconds)


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
    if recipe is None and spec_file is None:
        raise SpecError(
            "nothing to train is named; begin with the recipe digits_mlp, which takes seconds ('parity recipes' lists all),"
            " or give a spec of your own with --spec FILE"
        )
    if recipe is not None and spec_file is not None:
        raise SpecError(f"recipe {recipe!r} and spec file {spec_file!r} are both given; leave one out")
    spec = recipes.get(recipe) if recipe is not None else load_spec(Path(spec_file or ""))
    return override(spec, overrides)
