"""Lightning, Fabric, Accelerate and DeepSpeed: they really do their part, and the curve is the same.

That every one of them agrees over 50 steps, at all replica counts, is in test_strategies.py.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from parity.common import recipes
from parity.common.base.errors import RunError, SpecError
from parity.common.execution.checks import check_run
from parity.common.parity.budget import proof_budget
from parity.common.parity.compare import compare
from parity.common.parity.deviation import curve_deviation, state_deviations
from parity.common.record import RunRecord
from parity.common.spec import Placement, RunConfig, TrainSpec, override
from parity.common.spec.deepspeed import deepspeed_config
from parity.common.state.canonical import parameter_fingerprint, parameter_specs
from parity_tests.helpers import ROOT
from parity_tests.helpers.matrix import small
from parity_tests.helpers.run_cache import RunCache
from parity_tests.tables.strategies import DROPOUT

PACKAGES = {"lightning": "lightning", "fabric": "lightning", "accelerate": "accelerate"}
ADAMW = (
    "optimizer={kind: adamw, learning_rate: 0.003, clip_global_norm: 0.5, decay_mask: matrices,"
    " ema: {decay: 0.9, overwrite_every: 3}}"
)
# Epochs of 3 steps, so that a schedule of micro-batches has somewhere to change.
SHORT = ("data.train_samples=100", "global_batch_size=34", "steps=10")


def needs(package: str) -> pytest.MarkDecorator:
    there = importlib.util.find_spec(package) is not None
    return pytest.mark.skipif(not there, reason=f"{package} is not installed (extra '{package}')")


def engines(*names: str) -> list:
    return [pytest.param(name, marks=needs(PACKAGES.get(name, name))) for name in names]


def placed(text: str) -> RunConfig:
    return RunConfig.from_text(f"torch:{text}", digests=True)


def dropout(*more: str) -> TrainSpec:
    return small("digits_mlp", DROPOUT, ADAMW, *SHORT, *more)


def alike(record: RunRecord) -> bool:
    """Whether all replicas have had the same parameters after every step."""
    return len(record.fingerprints[0]) > 0 and all(
        len(set(row)) == 1 for row in zip(*record.fingerprints, strict=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize("engine", engines("lightning", "fabric", "accelerate"))
def test_an_engine_trains_the_same_and_accumulates_by_schedule(run_cache: RunCache, engine: str) -> None:
    """Dropout, clipping, decay by shape, an average of the weights; 3 micro-batches, then 1, then 2."""
    spec = dropout()
    reference = run_cache.record(spec, placed("single:1"))
    record = run_cache.record(spec, placed(f"ddp:2,engine={engine},accumulation={{0: 3, 1: 1, 2: 2}}"))
    compared = compare(reference, record, proof_budget(reference))
    assert compared.verdict == "parity", compared.reason
    assert alike(record)
    assert PACKAGES[engine] in record.header.versions
    # Nothing is said, by rank 0 or another.
    logs = [path.read_text() for path in sorted((record.folder / "logs").iterdir())]
    assert logs == ["", ""]


@pytest.mark.slow
@pytest.mark.parametrize("engine", engines("lightning", "fabric", "accelerate"))
def test_the_gradients_are_the_engines(run_cache: RunCache, engine: str) -> None:
    spec = dropout()
    reference = run_cache.record(spec, placed("single:1"))
    record = run_cache.record(
        spec, placed(f"single:1,engine={engine}"), fault=f"backward_of_{engine}_doubled"
    )
    compared = compare(reference, record, proof_budget(reference))
    assert compared.verdict == "divergent"
    deviations = state_deviations(reference.state("first_gradients"), record.state("first_gradients"))
    # Of the larger, which is twice as large.
    assert list(deviations.values()) == pytest.approx([0.5] * len(deviations))


@pytest.mark.exhaustive
@pytest.mark.parametrize("engine", engines("lightning", "fabric"))
def test_an_engine_shards(run_cache: RunCache, engine: str) -> None:
    spec = dropout()
    reference = run_cache.record(spec, placed("single:1"))
    record = run_cache.record(spec, placed(f"fsdp2:2,engine={engine},wrap=blocks,accumulation=2"))
    assert compare(reference, record, proof_budget(reference)).verdict == "parity"
    assert alike(record)
    for kind in ("parameters", "slots"):
        assert max(rank[kind] for rank in record.memory) < 0.55 * reference.memory[0][kind]


@pytest.mark.exhaustive
@needs("lightning")
def test_lightning_starts_the_ranks_itself(run_cache: RunCache) -> None:
    spec = dropout()
    reference = run_cache.record(spec, placed("single:1"))
    record = run_cache.record(spec, placed("ddp:2,engine=lightning,launcher=mp_spawn,accumulation=2"))
    assert compare(reference, record, proof_budget(reference)).verdict == "parity"
    assert alike(record)
    # One process of ours, from which Lightning started two.
    assert [path.name for path in (record.folder / "logs").iterdir()] == ["rank_0.log"]
    broken = override(recipes.get("resnet20:tiny"), ["data.source={kind: cifar10, path: /nowhere}"])
    with pytest.raises(RunError, match=r"rank \d of those that Lightning started ended: data: /nowhere"):
        run_cache.record(broken, placed("ddp:2,engine=lightning,launcher=mp_spawn"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("fsdp1:2,engine=lightning", "FSDPStrategy demands a GPU; take engine own, or strategy fsdp2"),
        ("fsdp2:2,engine=lightning,launcher=mp_spawn", "spawns ranks for ddp only; take launcher local"),
        ("deepspeed:2,optimizer=x", None),
    ],
)
def test_what_lightning_cannot_do_here_is_said(run_cache: RunCache, text: str, says: str | None) -> None:
    if says is None:
        with pytest.raises(SpecError, match="optimizer: not a field of a placement"):
            placed(text)
        return
    with pytest.raises((RunError, SpecError), match=says):
        run_cache.record(small("digits_mlp", "precision=float32", *SHORT), placed(text))


WITHOUT = """
import sys
from pathlib import Path
from parity.common.base.errors import MissingPackageError
from parity.common.spec import Placement
from parity_tests.helpers.matrix import small
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("lightning", "accelerate", "deepspeed"):
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Block())
from parity.torch_impl.train import train
for text in sys.argv[2:]:
    try:
        train(small("digits_mlp", "precision=float32"), Placement.from_text(text), Path(sys.argv[1]))
    except MissingPackageError as error:
        print(error)
print(Path(sys.argv[1]).exists())
"""


@pytest.mark.slow
def test_a_missing_package_is_named_before_anything_starts(tmp_path: Path) -> None:
    texts = [f"torch:ddp:2,engine={engine}" for engine in PACKAGES] + ["torch:deepspeed:2"]
    command = [sys.executable, "-W", "error", "-c", WITHOUT, str(tmp_path / "out"), *texts]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=100)
    assert done.returncode == 0, done.stderr
    *said, written = done.stdout.splitlines()
    assert written == "False" and len(said) == 4
    for line, package in zip(said, [*PACKAGES.values(), "deepspeed"], strict=True):
        assert f"needs {package}, which is not installed" in line and f"[{package}]'" in line


def float32(*more: str) -> TrainSpec:
    return dropout("precision=float32", *more)


@pytest.mark.slow
@needs("deepspeed")
@pytest.mark.parametrize(
    "options",
    [
        "stage=1,accumulation=3",
        pytest.param("stage=2,offload_optimizer=true", marks=pytest.mark.exhaustive),
        "stage=3",
        pytest.param("stage=3,offload_optimizer=true,offload_parameters=true", marks=pytest.mark.exhaustive),
    ],
)
def test_deepspeed_trains_as_ddp_does(run_cache: RunCache, options: str) -> None:
    """Two ranks' gradients add up in one order only, so nothing but the update's kernels may differ."""
    spec = float32()
    reference = run_cache.record(spec, placed("ddp:2"))
    record = run_cache.record(spec, placed(f"deepspeed:2,{options}"))
    assert alike(record)
    for curve in ("loss_sum", "gradient_norm", "parameter_norm", "update_norm"):
        assert curve_deviation(reference.columns[curve], record.columns[curve]).max() < 1e-6
    for which in ("initial", "first_gradients", "final"):
        assert max(state_deviations(reference.state(which), record.state(which)).values()) < 1e-5
    # The state is read from master weights, the digests from what the passes compute with.
    final = record.state("final")
    computed_with = parameter_fingerprint(
        final[name] for name, p in parameter_specs(spec).items() if p.trainable
    )
    assert {column[-1] for column in record.fingerprints} == {computed_with}


@pytest.mark.slow
@needs("deepspeed")
def test_the_gradients_are_deepspeeds(run_cache: RunCache) -> None:
    reference = run_cache.record(float32(), placed("ddp:2"))
    record = run_cache.record(float32(), placed("deepspeed:2"), fault="backward_of_deepspeed_doubled")
    deviations = state_deviations(reference.state("first_gradients"), record.state("first_gradients"))
    assert list(deviations.values()) == pytest.approx([0.5] * len(deviations), abs=1e-5)


@pytest.mark.slow
@needs("deepspeed")
def test_each_stage_divides_what_it_says(run_cache: RunCache, tmp_path: Path) -> None:
    kinds = ("parameters", "slots", "master_weights")

    def most(spec: TrainSpec, text: str) -> list[int]:
        memory = run_cache.record(spec, placed(text)).memory
        return [max(rank[kind] for rank in memory) for kind in kinds]

    def near(*sizes: float) -> list[object]:
        return [pytest.approx(size, rel=0.01) for size in sizes]

    whole, slots, apart = most(float32(), "ddp:2")
    assert apart == 0
    assert most(float32(), "deepspeed:2,stage=1,accumulation=3") == near(whole, slots / 2, whole / 2)
    short = float32("steps=2")
    assert most(short, "deepspeed:4,stage=3") == near(whole / 4, slots / 4, whole / 4)
    # DeepSpeed can be told to keep small parameters whole; then they are seen.
    persistent = tmp_path / "persistent.json"
    persistent.write_text('{"zero_optimization": {"stage3_param_persistence_threshold": 1000000}}')
    assert most(short, f"deepspeed:2,stage=3,config={persistent}")[0] > whole


@pytest.mark.parametrize(
    ("assignments", "says"),
    [
        (("precision=float64",), "precision float64: not possible, DeepSpeed keeps its master weights"),
        (("precision=float16_mixed",), "precision float16_mixed: scales no loss, DeepSpeed has its own way"),
        (("precision=float8_mixed",), "precision float8_mixed: not possible"),
    ],
)
def test_what_deepspeed_cannot_train_is_said(assignments: tuple[str, ...], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        check_run(small("digits_mlp", *assignments).resolved(), placed("deepspeed:2").placement)


def test_the_generated_configuration_leaves_nothing_open() -> None:
    config = deepspeed_config(
        float32().resolved(), placed("deepspeed:4,stage=3,offload_optimizer=true,accumulation=2").placement
    )
    assert "auto" not in json.dumps(config)
    # 34 over 4 replicas is 9, 9, 9, 7; the larger half of 9 is 5.
    assert config["train_micro_batch_size_per_gpu"] == 5
    assert config["gradient_accumulation_steps"] == 2
    assert config["gradient_clipping"] == 0.0
    zero = config["zero_optimization"]
    assert zero["stage"] == 3 and zero["offload_optimizer"]["device"] == "cpu" and "offload_param" not in zero


USERS = {
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": 17,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.003, "betas": [0.9, 0.999], "eps": "auto"}},
    "gradient_clipping": 0.5,
    "bf16": {"enabled": "auto"},
    "zero_optimization": {"stage": 2, "reduce_bucket_size": 1234, "overlap_comm": "auto"},
}


def written(tmp_path: Path, change: dict) -> Placement:
    path = tmp_path / "user.json"
    path.write_text(json.dumps({**USERS, **change}))
    return placed(f"deepspeed:2,config={path}").placement


def test_the_users_own_configuration_is_taken(tmp_path: Path) -> None:
    config = deepspeed_config(float32().resolved(), written(tmp_path, {"wall_clock_breakdown": True}))
    assert config["zero_optimization"]["reduce_bucket_size"] == 1234
    assert config["wall_clock_breakdown"] is True
    # The rule and the clipping are ours; what was 'auto' is resolved.
    assert "optimizer" not in config and config["gradient_clipping"] == 0.0
    assert "auto" not in json.dumps(config)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"train_batch_size": 32}, "train_batch_size is 32, but 34 by the spec"),
        ({"train_micro_batch_size_per_gpu": 8}, "is 8, but 17 by the spec and placement"),
        ({"gradient_accumulation_steps": 4}, "gradient_accumulation_steps is 4, but 1 by"),
        ({"zero_optimization": {"stage": 3}}, "zero_optimization.stage is 3, but 2 by the placement"),
        (
            {"zero_optimization": {"offload_optimizer": {"device": "cpu"}}},
            "offload_optimizer.device is 'cpu', but 'none' by the placement",
        ),
        ({"gradient_clipping": 1.0}, "gradient_clipping is 1.0, but 0.5 by the spec"),
        ({"fp16": {"enabled": True}}, "fp16.enabled is True, but False by the spec's precision float32"),
        ({"optimizer": {"type": "Adam"}}, "optimizer.type is 'adam', but 'adamw' by the spec"),
        ({"optimizer": {"params": {"lr": 0.1}}}, "optimizer.params.lr is 0.1, but 0.003 by the spec"),
        ({"optimizer": {"params": {"betas": [0.8, 0.9]}}}, "betas is .0.8, 0.9., but .0.9, 0.999. by"),
        ({"scheduler": {"type": "WarmupLR"}}, "scheduler.type is 'WarmupLR', but None by the spec"),
        ({"communication_data_type": "fp16"}, "communication_data_type is 'fp16', but 'fp32' by the law"),
        ({"zero_optimization": 2}, "zero_optimization must be an object, received 2"),
    ],
)
def test_a_contradiction_names_both_values(tmp_path: Path, change: dict, says: str) -> None:
    with pytest.raises(SpecError, match=says):
        deepspeed_config(float32().resolved(), written(tmp_path, change))


@pytest.mark.parametrize(
    ("text", "says"), [("{", "not JSON"), ("[1]", "one JSON object"), (None, "cannot be read")]
)
def test_a_file_that_is_no_configuration_is_named(tmp_path: Path, text: str | None, says: str) -> None:
    path = tmp_path / "broken.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SpecError, match=f"broken.json.*{says}"):
        deepspeed_config(float32().resolved(), placed(f"deepspeed:2,config={path}").placement)


def test_parameters_can_be_offloaded_at_stage_3_only() -> None:
    with pytest.raises(SpecError, match="offload_parameters needs stage 3"):
        placed("deepspeed:2,stage=2,offload_parameters=true")
