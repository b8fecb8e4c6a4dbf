"""What wrong command lines are answered: the exact line, with what was typed and what was probably meant."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest

from parity.common.api import models, records
from parity.common.commands import main
from parity.common.execution import session
from parity_tests.helpers.records import MIRRORED, TORCH, Run, tiny_spec

# A command line -> the line on standard error, without 'parity: error: ' (or 'parity COMMAND: error: ', which then begins it).
LINES = {
    "pla digits_mlp": "unknown command 'pla'; did you mean 'plan'? see parity --help",
    "checkpoint lst": "parity checkpoint: error: unknown action 'lst'; did you mean 'list'? see parity checkpoint --help",
    "--json plan": "--json: flags come after the command; see parity --help",
    "pair --lr 0.1": "parity pair: error: unknown flag --lr; did you mean '--optimizer'? see parity pair --help",
    "pair --batch-size 8": "parity pair: error: unknown flag --batch-size; did you mean '--global-batch'? see parity pair --help",
    "plan --replcas 3 digits_mlp": "parity plan: error: unknown flag --replcas; did you mean '--replicas'? see parity plan --help",
    "plan --digests digits_mlp": "parity plan: error: --digests belongs to parity run; see parity plan --help",
    "plan digits_mlp --engine lightning": "parity plan: error: --engine belongs to python -m parity.tf_impl and parity.torch_impl; see parity plan --help",
    "run digits_mlp --engine lightning": "parity run: error: --engine is part of a placement: --placement FRAMEWORK:STRATEGY:REPLICAS,engine=VALUE; see parity run --help",
    "run digits_mlp --strategy ddp": "parity run: error: --strategy is part of a placement: --placement FRAMEWORK:STRATEGY:REPLICAS; see parity run --help",
    "run digits_mlp --first-step 3": "parity run: error: --first-step belongs to parity plan and parity steps; see parity run --help",
    "compare a b --placement torch:ddp:2": "parity compare: error: --placement belongs to parity pair, parity run, parity study and 3 more; see parity compare --help",
    "steps a b": "parity steps: error: unexpected argument 'b'; see parity steps --help",
    "steps done/runs/00_x --tail 0": "--tail must be at least 1, received 0",
    "steps done/runs/00_x --format tsv": "parity steps: error: --format 'tsv': one of csv, jsonl, table; did you mean 'csv'? see parity steps --help",
    "steps done": "done: not a run record: a folder with several; give one of them: done/runs/00_x, done/runs/01_x",
    "steps done/runs/0_x": "done/runs/0_x: not a run record: there is no such folder; did you mean '01_x'?",
    "steps done/runs/00_x/header.json": "done/runs/00_x/header.json: not a run record: it is a file; give the folder of the run",
    "steps done/runs/00_x --first-step 9": "done/runs/00_x: has the steps 0 to 5, received 9 to 5",
    "compare done/runs/00_x done": "done: not a run record: a folder with several; give one of them: done/runs/00_x, done/runs/01_x",
    "compare done/runs/00_x done/runs/01_z": "done/runs/01_z: not a run record: there is no such folder; did you mean '01_x'?",
    "compare done/runs/00_x": "parity compare: error: the following arguments are required: candidates; see parity compare --help",
    "compare done/runs/00_x done/runs/00_x": "done/runs/00_x: compared with itself; name two different records",
    "compare --baseline done/runs/00_x done/runs/01_x --checks": "--checks belongs to comparisons of runs; leave it out with --baseline",
    "report done/runs/00_x": "done/runs/00_x: the record of one run; 'parity compare' compares it with another",
    "report don": "don: there is no such folder; did you mean 'done'?",
    "run": "nothing to train is named; begin with the recipe digits_mlp, which takes seconds ('parity recipes' lists all), or give a spec of your own with --spec FILE",
    "run digits_mpl": "unknown recipe 'digits_mpl'; 'parity recipes' lists all; did you mean 'digits_mlp'?",
    "run resnet": "unknown recipe 'resnet'; 'parity recipes' lists all; did you mean 'resnet50'?",
    "run cnn": "unknown recipe 'cnn'; 'parity recipes' lists all; did you mean 'digits_cnn'?",
    "run digits_mlp digits_cnn": "parity run: error: two recipes are given, 'digits_mlp' and 'digits_cnn'; see parity run --help",
    "run digits_mlp --spec spec.yaml": "recipe 'digits_mlp' and spec file 'spec.yaml' are both given; leave one out",
    "run --spec spec.yaml": "spec.yaml: modle: unknown key; did you mean 'model'? (and 3 more mistakes)",
    "run --spec spek.yaml": "spek.yaml: cannot be read: No such file or directory",
    "run digits_mlp --replicas two": "parity run: error: --replicas 'two': expected a whole number; see parity run --help",
    "run digits_mlp --replicas 0": "--replicas must be at least 1, received 0",
    "run digits_mlp --timing-rounds -1": "--timing-rounds must be at least 0, received -1",
    "run digits_mlp --device cuda": "parity run: error: --device 'cuda': one of auto, cpu, gpu; see parity run --help",
    "run digits_mlp --placement torch": "--placement 'torch': expected framework:strategy:replicas[,field=value...], e.g. torch:ddp:2 or torch:fsdp2:4,wrap=blocks",
    "run digits_mlp --placement torch:dpp:2": "--placement 'torch:dpp:2': strategy of torch must be one of single, ddp, fsdp2, fsdp1, manual, zero_redundancy, deepspeed, tensor_parallel, data_parallel, received 'dpp'; did you mean 'ddp'?",
    "run digits_mlp --placement tf:ddp:2": "--placement 'tf:ddp:2': strategy of tensorflow must be one of mirrored, single, multi_worker, received 'ddp', which torch has",
    "run digits_mlp --placement jax:pmap:2": "--placement 'jax:pmap:2': framework: expected one of tensorflow, torch, received 'jax'",
    "run digits_mlp --placement torch:ddp:2,acumulation=3": "--placement 'torch:ddp:2,acumulation=3': acumulation: not a field of a placement; options of ddp are: bucket_mb, checkpoint, find_unused_parameters, gradient_as_bucket_view, static_graph; did you mean 'accumulation'?",
    "run digits_mlp --placement torch:fsdp2:2,wrap=block": "--placement 'torch:fsdp2:2,wrap=block': options of fsdp2: wrap: expected one of root, blocks, received 'block'; did you mean 'blocks'?",
    "run digits_mlp --placement torch:ddp:2,engine=lightening": "--placement 'torch:ddp:2,engine=lightening': engine: expected one of own, keras, lightning, fabric, accelerate, received 'lightening'; did you mean 'lightning'?",
    "run digits_mlp --placement torch:single:2": "--placement 'torch:single:2': torch single x2: strategy 'single' has one replica; for more take ddp, fsdp2 or fsdp1",
    "run digits_mlp --placement torch:single:1": "a comparison needs two placements or more; give --placement again",
    "run digits_mlp --set steps": "--set 'steps': expected path.to.field=value",
    "run digits_mlp --set steps=ten": "steps: Input should be a valid integer, received 'ten'",
    "run digits_mlp --set steps=0": "steps: Input should be greater than 0, received 0",
    "run digits_mlp --set epochs=3": "epochs: unknown key; did you mean 'steps'?",
    "run digits_mlp --set batch_size=8": "batch_size: unknown key; did you mean 'global_batch_size'?",
    "run digits_mlp --set precision=bf16": "precision: expected one of float64, float32, bfloat16_mixed, float16_mixed, float8_mixed, received 'bf16'; did you mean 'bfloat16_mixed'?",
    "run digits_mlp --set convention=pytorch": "convention: expected one of keras, torch, received 'pytorch'; did you mean 'torch'?",
    "run digits_mlp --set optimizer.lr=0.1": "optimizer.lr: unknown key; did you mean 'learning_rate'?",
    "run digits_mlp --set optimizer.kind=Adan": "optimizer: unknown kind 'Adan': one of sgd, adam, adamw, rmsprop, adagrad, adadelta, adamax, nadam, lion, adafactor, muon, lamb; did you mean 'adam'?",
    "run digits_mlp --set optimizer=adam": "optimizer: needs fields, such as optimizer.kind=..., received 'adam'",
    "run digits_mlp --set loss.kind=CrossEntropyLoss": "loss: unknown kind 'CrossEntropyLoss': one of softmax_cross_entropy, binary_cross_entropy, mean_squared_error, mean_absolute_error, huber, kl_divergence, imported; did you mean 'softmax_cross_entropy'?",
    "run digits_mlp --set loss.kind=MSELoss": "loss: unknown kind 'MSELoss': one of softmax_cross_entropy, binary_cross_entropy, mean_squared_error, mean_absolute_error, huber, kl_divergence, imported; did you mean 'mean_squared_error'?",
    "run digits_mlp --set schedule.kind=cosine": "schedule: unknown kind 'cosine': one of constant, warmup_cosine, step, piecewise, exponential, polynomial, linear, cosine_restarts, one_cycle, inverse_sqrt, reduce_on_plateau; did you mean 'warmup_cosine'?",
    "run digits_mlp --set data.tail=dropped": "data.tail: expected one of keep, drop, received 'dropped'; did you mean 'drop'?",
    "run digits_mlp --set data.source.kind=cifar": "data.source: unknown kind 'cifar': the documentation's page Vocabulary lists all 15; did you mean 'cifar10'?",
    "run digits_mlp --set model.layers.0.kind=Linear": "model.layers.0: unknown kind 'Linear': the documentation's page Vocabulary lists all 49; did you mean 'dense'?",
    "run digits_mlp --set model.layers.1.unit=3": "model.layers.1.unit: unknown key; did you mean 'units'?",
    "run digits_mlp --set model.layers.9.units=3": "--set 'model.layers.9.units=3': model.layers has items 0 to 3, received '9'",
    "run digits_mlp --set global_batch_size=5000 --set data.tail=drop": "global_batch_size 5000 exceeds data.train_samples 1437 and data.tail is 'drop', so no batch would remain",
    "pair --keras a:b --torch a:b --data my.npz --loss CrossEntropyLos": "--loss: unknown kind 'CrossEntropyLos': one of softmax_cross_entropy, binary_cross_entropy, mean_squared_error, mean_absolute_error, huber, kl_divergence; did you mean 'softmax_cross_entropy'?",
    "pair --keras a:b --torch a:b --data my.npz --loss mse,weigth=2": "--loss: weigth: unknown key; 'parity show --schema' lists the known ones; did you mean 'weight'?",
    "pair --keras a:b --torch a:b --data my.npz --optimizer Adan": "--optimizer: unknown kind 'Adan': one of sgd, adam, adamw, rmsprop, adagrad, adadelta, adamax, nadam, lion, adafactor, muon, lamb; did you mean 'adam'?",
    "pair --keras a:b --torch a:b --data my.npz --optimizer adam": "--optimizer: learning_rate: this field is required; add it behind a comma: adam,learning_rate=...",
    "pair --keras a:b --torch a:b --data my.npz --optimizer adam,learn_rate=1": "--optimizer: learn_rate: unknown key; did you mean 'learning_rate'?",
    "pair --keras a:b --torch a:b --data my.npz --keras-optimizer a:b": "--keras-optimizer is given alone; give --torch-optimizer, too",
    "pair --keras a.b --torch a:b --data my.npz": "a model is named package.module:attribute, such as my_pkg.models:build; received 'a.b'",
    "pair --keras a:b(2) --torch a:b --data my.npz": "a model is named package.module:attribute, such as my_pkg.models:build; received 'a:b(2)'; arguments are given by a function of yours that takes none",
    "pair --keras a:b --torch a:b --data my.npz --targets z": "--data my.npz: has no array 'z'; it has x, y",
    "pair --keras a:b --torch a:b --data mi.npz": "--data mi.npz: there is no such file; give an .npz file with one row a sample",
    "pair --keras a:b --data my.npz": "parity pair: error: the following arguments are required: --torch; see parity pair --help",
    "lint --keras a:b --torch a:b --input-shape 3x3": "--input-shape is like 32,32,3 or tokens=128:int; received '3x3'",
    "map --keras a:b --torch a:b": "parity map: error: one of the arguments --input-shape --data is required; see parity map --help",
    "study digits_mlp --metric los": "--metric los: expected one of final_loss, score, loss_area, curve, steps_to_target, seconds_to_target; did you mean 'final_loss'?",
    "study digits_mlp --placement torch:ddp:2,stock=mixed_bf16 --placement torch:single:1": "--placement 'torch:ddp:2,stock=mixed_bf16': stock.0: expected one of mixed_bfloat16, mixed_float16, dropout, shuffling, nondeterministic, received 'mixed_bf16'; did you mean 'mixed_bfloat16'?",
    "study": "nothing to train is named; begin with the recipe digits_mlp, which takes seconds ('parity recipes' lists all), or give a spec of your own with --spec FILE",
    "collectives --operations allreduce": "--operations: unknown 'allreduce'; known: broadcast, reduce, all_reduce, scatter, gather, all_gather, reduce_scatter, barrier; did you mean 'all_reduce'?",
    "collectives --ranks 0": "--ranks must be from 1 to 1024, received 0",
    "advise gpt2 --gpus 8 --gpu-memory 80": "--gpu-memory '80': expected a number and one of B, KB, MB, GB, TB, KiB, MiB, GiB, TiB, e.g. 80GB or 40GiB",
    "advise gpt2 --gpus 8 --gpu-memory 80GB --precision bf16": "parity advise: error: --precision 'bf16': one of float64, float32, bfloat16_mixed, float16_mixed, float8_mixed; see parity advise --help",
    "advise gpt2 --gpus 8 --gpu-memory 80GB --nodes 3": "--nodes 3 does not divide --gpus 8",
    "scale digits_mlp --replicas 2,4": "--replicas 2,4: expected 1, against which speedups are taken, and at least one more count, each once",
    "scale digits_mlp --placement torch:ddp:2": "--placement 'torch:ddp:2': expected framework:strategy[,field=value...] without a number of replicas, e.g. torch:ddp; --replicas gives the numbers",
    "submit digits_mlp --nodes 0": "--nodes must be at least 1, received 0",
    "manifest digits_mlp --kind pytorch --placement torch:ddp:2 --image x": "parity manifest: error: --kind 'pytorch': one of pytorchjob, tfjob, job; did you mean 'pytorchjob'? see parity manifest --help",
    "diagnose done/runs/00_x done/runs/01_x --keep": "--keep needs --out, the folder to keep the replays in",
    "diagnose done/runs/00_x done/runs/01_x --context-a patches": "--context-a 'patches': expected MODULE:FUNCTION, e.g. my_package.patches:half_the_rate",
    "checkpoint export done/runs/00_x --to onnx --out x.onnx": "parity checkpoint export: error: --to 'onnx': one of dcp, keras, safetensors, state_dict; see parity checkpoint export --help",
    "run digits_cnn:tiny": "recipe 'digits_cnn' has no tiny variant; it trains in seconds as it is",
    "run digits_mlp --digest --placements torch:ddp:2": "parity run: error: unknown flag --placements; did you mean '--placement'? see parity run --help",
    "run digits_mlp --lr 0.1": "parity run: error: --lr is a field of the spec: --set optimizer.learning_rate=VALUE; see parity run --help",
    "run digits_mlp --steps 10": "parity run: error: --steps is a field of the spec: --set steps=VALUE; see parity run --help",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two records in a session, and samples."""
    monkeypatch.chdir(tmp_path)
    # What is tested here ends before a framework is needed.
    for module in (session, models, records):
        monkeypatch.setattr(module, "require", lambda framework: None)
    run = Run.of(tiny_spec(), TORCH)
    for number, placement in enumerate((TORCH, MIRRORED)):
        run.copy(placement).write(tmp_path / "done" / "runs" / f"{number:02d}_x")
    np.savez(tmp_path / "my.npz", x=np.zeros((4, 2)), y=np.zeros(4))
    (tmp_path / "spec.yaml").write_text("name: mine\nmodle: {}\n")
    return tmp_path


@pytest.mark.parametrize("line", LINES)
def test_a_wrong_command_line_is_answered_so(
    folder: Path, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    try:
        code = main.dispatch(main.parse(["parity", *shlex.split(line)]))
    except SystemExit as end:
        code = end.code
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.removeprefix("parity: error: ") == f"{LINES[line]}\n"


def test_the_table_is_long_and_its_lines_are_for_people() -> None:
    assert len(LINES) >= 60
    for line, said in LINES.items():
        assert "{" not in said and len(said) < 400, line
