"""slurm/'s scripts on a real cluster of two nodes: every one runs to its end, good or bad."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from parity.common.parity.budget import proof_budget
from parity.common.parity.compare import compare
from parity.common.record import RunRecord, parts_of, read_record
from parity_tests.helpers import ROOT
from parity_tests.helpers.matrix import small, torch
from parity_tests.helpers.processes import RUN, wait_until
from parity_tests.helpers.records import one_line
from parity_tests.helpers.run_cache import RunCache
from parity_tests.slurm_cluster import Cluster, slurm_cluster

pytestmark = [pytest.mark.slow, pytest.mark.waits]

TWO_NODES = ("--nodes=2", "--ntasks-per-node=1")
LONG = ("--recipe=digits_mlp", "--set=steps=1000000", "--set=global_batch_size=34")
# From the fault to the end of the job, beyond what a process waits for the others.
LIMIT_SECONDS = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as found:
        yield found


def script(name: str) -> str:
    return str(ROOT / "slurm" / name)


def is_the_local_curve(run_cache: RunCache, record: RunRecord) -> None:
    """The law: as one replica on this machine, to 1e-12 in float64."""
    reference = run_cache.record(small("digits_mlp", "steps=20"), torch("single", 1))
    comparison = compare(reference, record, proof_budget(reference))
    assert comparison.verdict == "parity", comparison.reason
    deviations = abs(record.loss - reference.loss) / abs(reference.loss)
    assert len(deviations) == 20 and deviations.max() < 1e-12


def test_pair(cluster: Cluster, run_cache: RunCache, tmp_path: Path) -> None:
    """Two trainings over two nodes, and a comparison that imports neither framework."""
    light = {"PYTHONPATH": str(cluster.files / "light")}
    without = subprocess.run(
        [sys.executable, "-c", "import torch"], env=light, capture_output=True, text=True
    )
    assert "a login node has no framework" in without.stderr, "the control: what would be seen"
    pythons = {name: tmp_path / f"{name}_python" for name in ("TF", "TORCH")}
    for path in pythons.values():
        path.write_text(f'#!/bin/sh\ntouch "{path}.used"\nexec "{sys.executable}" "$@"\n')
        path.chmod(0o755)
    out = tmp_path / "pair"
    elsewhere = {f"PARITY_{name}_PYTHON": str(path) for name, path in pythons.items()}
    done = cluster.run(script("pair.sh"), out, *TWO_NODES, "--", *RUN, **elsewhere)
    assert done.returncode == 0, done.stderr
    follow = cluster.run("parity", "status", out, "--wait=240")
    assert follow.returncode == 0, follow.stdout + follow.stderr
    assert follow.stdout.count("COMPLETED") == 3 and "verdict: parity" in follow.stdout
    assert all(Path(f"{path}.used").exists() for path in pythons.values())
    assert json.loads((out / "report.json").read_text())["exit_code"] == 0
    for name in ("0_tf_multi_worker", "1_torch_ddp"):
        record = read_record(out / "runs" / name)
        is_the_local_curve(run_cache, record)
        assert record.placement.launcher == "srun" and record.placement.nodes == 2
        assert record.header.host == "node2", "rank 0 is on the first node of the list, not of the alphabet"
    logs = {path.name.partition("_")[2] for path in (out / "logs").glob("*_rank*")}
    assert logs == {"rank0_node2.log", "rank1_node10.log"}
    again = cluster.run(script("pair.sh"), out, "--", *RUN)
    assert again.returncode == 2 and f"{out} exists; name a new folder" in one_line(again.stderr)


@pytest.mark.exhaustive
def test_a_float32_pair_measures_its_noise_floor(cluster: Cluster, tmp_path: Path) -> None:
    out = tmp_path / "pair"
    asked = (script("pair.sh"), out, *TWO_NODES, "--", *RUN, "--set=precision=float32")
    done = cluster.run(*asked, PARITY_PAIR="torch_ddp torch_fsdp")
    assert done.returncode == 0, done.stderr
    follow = cluster.run("parity", "status", out, "--wait=290")
    assert follow.returncode == 0 and "verdict: parity" in follow.stdout, follow.stdout + follow.stderr
    floor = Counter(read_record(folder).run_info.precision for folder in (out / "floor").iterdir())
    assert floor == {"float32": 8, "float64": 2}


@pytest.mark.parametrize(
    ("name", "options", "flags"),
    [
        ("tf_mirrored", ("--gpus-per-node=2", "--cpus-per-gpu=1"), ("--device=cpu",)),
        ("torch_fsdp", ("--gpus-per-node=2", "--cpus-per-gpu=1"), ("--device=cpu",)),
        ("torch_lightning", TWO_NODES, ()),
        pytest.param("torch_lightning", (), (), marks=pytest.mark.exhaustive),
        pytest.param("torch_fsdp", TWO_NODES, (), marks=pytest.mark.exhaustive),
        pytest.param("torch_ddp", (), (), marks=pytest.mark.exhaustive),
    ],
)
def test_script(
    cluster: Cluster,
    run_cache: RunCache,
    tmp_path: Path,
    name: str,
    options: tuple[str, ...],
    flags: tuple[str, ...],
) -> None:
    job = cluster.sbatch(*options, script(f"{name}.sbatch"), *RUN, *flags, "--out", str(tmp_path / "run"))
    assert cluster.wait(job) == "COMPLETED", cluster.log(job)
    record = read_record(tmp_path / "run")
    assert record.placement.replicas == 2
    assert f"record: {tmp_path / 'run'}" in cluster.log(job) and "20 steps, loss" in cluster.log(job)
    is_the_local_curve(run_cache, record)


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", [(), TWO_NODES])
def test_deepspeed(cluster: Cluster, run_cache: RunCache, tmp_path: Path, options: tuple[str, ...]) -> None:
    """It has no float64: the curve is that of the same training started here."""
    if find_spec("deepspeed") is None:
        pytest.skip("DeepSpeed is not installed")
    flags = (*RUN, "--set=precision=float32", "--out", str(tmp_path / "run"))
    job = cluster.sbatch(*options, script("torch_deepspeed.sbatch"), *flags)
    assert cluster.wait(job) == "COMPLETED", cluster.log(job)
    record = read_record(tmp_path / "run")
    local = run_cache.record(small("digits_mlp", "steps=20", "precision=float32"), torch("deepspeed", 2))
    assert record.loss.tolist() == pytest.approx(local.loss.tolist(), rel=1e-6)


@pytest.mark.exhaustive
def test_sweep(cluster: Cluster, tmp_path: Path) -> None:
    """A job array over numbers of replicas, and a job that collects; each element on the nodes that it needs."""
    out = tmp_path / "scale"
    asked = ("--nodes=2", "--tasks-per-node=1", "--rounds=1", "--placement=torch:ddp", f"--out={out}")
    done = cluster.run(script("scale.sh"), "1,2", *RUN, *asked, "--sbatch=--oversubscribe")
    assert done.returncode == 0, done.stderr
    follow = cluster.run("parity", "status", out, "--wait=240")
    assert follow.returncode == 3, follow.stdout + follow.stderr
    assert follow.stdout.count("COMPLETED") == 1 and "verdict: too noisy to conclude" in follow.stdout, (
        "one round"
    )
    records = [read_record(path) for path in sorted((out / "round_0").iterdir())]
    assert [(r.placement.replicas, r.placement.nodes) for r in records] == [(1, 1), (2, 2)]


@pytest.mark.exhaustive
def test_study(cluster: Cluster, tmp_path: Path) -> None:
    """A job array over seeds, and a job that analyses them; what an element has lost is trained by the next call."""
    out = tmp_path / "study"
    arms = ("--placement=torch:ddp,stock=dropout", "--placement=torch:manual")
    asked = (
        *RUN,
        "--study",
        *arms,
        "--seeds=4",
        "--margin=5%",
        "--tasks-per-node=2",
        f"--out={out}",
        "--sbatch=--oversubscribe",
    )
    done = cluster.run("parity", "submit", *asked)
    assert done.returncode == 0, done.stderr
    follow = cluster.run("parity", "status", out, "--wait=240")
    # Without a layer that drops, the arms are equal in every seed.
    assert follow.returncode == 0, follow.stdout + follow.stderr
    assert "verdict: equivalent" in follow.stdout and "equivalent: over 4 seeds" in follow.stdout
    assert sorted(path.name for path in (out / "seeds").iterdir()) == ["0000", "0001", "0002", "0003"]
    shutil.rmtree(out / "seeds" / "0002")
    again = cluster.run("parity", "study", "--out", out)
    assert again.returncode == 0 and "seed 2, torch manual x2" in again.stderr, again.stderr


def fails(cluster: Cluster, job: int, begun: float, *said: str) -> None:
    """The job ends within the limit, with one line that says all of it."""
    cluster.wait(job)
    assert time.monotonic() - begun < LIMIT_SECONDS
    (line,) = [
        line for line in cluster.log(job).splitlines() if "error: " in line and "slurmstepd" not in line
    ]
    for part in said:
        assert part in line, line


@pytest.mark.parametrize("after", ["0", pytest.param("20", marks=pytest.mark.exhaustive)])
def test_a_failing_rank_ends_all_jobs(cluster: Cluster, tmp_path: Path, after: str) -> None:
    """The others do not wait for it, and the comparison not for a training that will never have been."""
    out = tmp_path / "pair"
    # By then the other waits for it, and takes note of a signal only.
    done = cluster.run(script("pair.sh"), out, *TWO_NODES, "--", *RUN, FAULT="fail", FAULT_AFTER=after)
    assert done.returncode == 0, done.stderr
    follow = cluster.run("parity", "status", out, "--wait=120")
    assert follow.returncode == 2, follow.stdout
    assert follow.stdout.count("FAILED: rank 1 on node10 ended with code 3: it has no mind to (log:") == 2
    assert re.search(r"report \d+ CANCELLED: a job that it waited for did not succeed", follow.stdout)
    assert "has not succeeded, so there is no verdict" in one_line(follow.stderr)


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("torch_ddp", "parity.torch_impl"),
        pytest.param("tf_multi_worker", "parity.tf_impl", marks=pytest.mark.exhaustive),
    ],
)
def test_a_killed_rank_is_named(cluster: Cluster, tmp_path: Path, name: str, module: str) -> None:
    job = cluster.sbatch(*TWO_NODES, script(f"{name}.sbatch"), *LONG, "--out", str(tmp_path / "run"))
    cluster.wait_for_steps(job, tmp_path / "run")
    cluster.kill_rank(1, module)
    fails(cluster, job, time.monotonic(), "rank 1 on node10 was killed, by a person or for want of memory")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("torch_ddp", "1/2 clients joined"),
        pytest.param("tf_multi_worker", "waited 5 s for rank 1 at node10:", marks=pytest.mark.exhaustive),
    ],
)
def test_a_missing_peer_is_named(cluster: Cluster, tmp_path: Path, name: str, said: str) -> None:
    job = cluster.sbatch(
        *TWO_NODES,
        script(f"{name}.sbatch"),
        *RUN,
        "--out",
        str(tmp_path / "run"),
        FAULT="late",
        SECONDS_TO_WAIT="5",
    )
    fails(cluster, job, time.monotonic(), "rank 1 on node10 never came; rank 0 on node2", said)


STEPS = 2500


@pytest.mark.parametrize("name", ["torch_ddp", pytest.param("tf_multi_worker", marks=pytest.mark.exhaustive)])
def test_a_stopped_job_is_requeued_and_goes_on(
    cluster: Cluster, run_cache: RunCache, tmp_path: Path, name: str
) -> None:
    """The signal that SLURM sends before the time limit, sent earlier. The curve is that of a job never stopped."""
    out = tmp_path / "run"
    flags = (*RUN, f"--set=steps={STEPS}", "--out", str(out))
    job = cluster.sbatch(*TWO_NODES, script(f"{name}.sbatch"), *flags)
    cluster.wait_for_steps(job, out)
    cluster.run("scancel", "--batch", "--signal=USR1", str(job))
    cluster.start_again(job)
    assert cluster.wait(job) == "COMPLETED", cluster.log(job)
    first, later = parts_of(out)
    at = int(np.fromfile(later / "steps.f64")[0])
    assert 0 < at < STEPS and (out / "checkpoints" / f"step_{at:08d}").is_dir()
    log = cluster.log(job)
    assert f"its time limit is near, so it was stopped: {out} holds {at} of {STEPS} steps" in log
    assert f"The job is requeued, and {out} goes on from step_{at:08d}" in log
    assert f"going on from {out}/checkpoints/step_{at:08d}, step {at} of {STEPS}" in log
    logs = sorted(path.name for path in (tmp_path / "run.logs").glob(f"{job}.restart1.0_rank*"))
    assert [path.rpartition("_rank")[2] for path in logs] == ["0_node2.log", "1_node10.log"]
    record, straight = (
        read_record(out),
        run_cache.record(small("digits_mlp", f"steps={STEPS}"), torch("single", 1)),
    )
    assert record.steps.tolist() == list(range(STEPS)), "no step lost or doubled"
    assert (abs(record.loss - straight.loss) / abs(straight.loss)).max() < 1e-9
    # Submitted once more, it finds nothing left to do.
    if name == "torch_ddp":
        job = cluster.sbatch(*TWO_NODES, script(f"{name}.sbatch"), *flags)
        assert cluster.wait(job) == "COMPLETED", cluster.log(job)
        assert f"{out}: has trained all {STEPS} steps; nothing is left to do" in cluster.log(job)
        assert parts_of(out) == [first, later]


@pytest.mark.exhaustive
def test_a_time_limit_is_announced(cluster: Cluster, tmp_path: Path) -> None:
    """SLURM sends the signal itself; the record is whole. A job that is not to be requeued says how to go on."""
    limit, out = ("--time=1", "--signal=B:USR1@20", "--no-requeue"), tmp_path / "run"
    job = cluster.sbatch(*limit, script("torch_ddp.sbatch"), *LONG, "--out", str(out))
    assert cluster.wait(job) == "FAILED"
    (line,) = [line for line in cluster.log(job).splitlines() if "error: " in line]
    record = read_record(out)
    assert "its time limit is near, so it was stopped" in line
    assert f"{out} holds {len(record.steps)} of 1000000 steps, all of them whole" in line
    assert f"--no-requeue; submit it again with the same --out: {out} goes on from step_" in line


@pytest.mark.exhaustive
def test_a_person_asks_a_job_to_run_later_and_then_cancels_it(cluster: Cluster, tmp_path: Path) -> None:
    """USR1 to the ranks alone requeues as well; what is cancelled has saved, and does not come back."""
    out = tmp_path / "run"
    job = cluster.sbatch(*TWO_NODES, script("torch_ddp.sbatch"), *LONG, "--out", str(out))
    cluster.wait_for_steps(job, out)
    cluster.run("scancel", "--signal=USR1", str(job))
    cluster.start_again(job)
    assert "its ranks were asked to stop, so it was stopped" in cluster.log(job)
    wait_until("it did not go on", lambda: len(parts_of(out)) == 2)
    cluster.wait_for_steps(job, out / "resumed" / "001")
    before = {path.name for path in (out / "checkpoints").iterdir()}
    cluster.run("scancel", str(job))
    assert cluster.wait(job) == "CANCELLED", cluster.log(job)
    wait_until(
        "it did not save", lambda: {path.name for path in (out / "checkpoints").glob("step_*[0-9]")} - before
    )
    assert cluster.wait(job) == "CANCELLED" and len(parts_of(out)) == 2


@pytest.mark.exhaustive
def test_a_job_that_saves_nothing_is_not_requeued(cluster: Cluster, tmp_path: Path) -> None:
    """The control: what other people's loops train cannot go on."""
    out = tmp_path / "run"
    job = cluster.sbatch(*TWO_NODES, script("torch_lightning.sbatch"), *LONG, "--out", str(out))
    cluster.wait_for_steps(job, out)
    cluster.run("scancel", "--batch", "--signal=USR1", str(job))
    assert cluster.wait(job) == "FAILED"
    assert "It saves nothing to go on from: submit it again with another --out" in cluster.log(job)


@pytest.mark.parametrize(
    ("name", "how", "seconds", "said"),
    [
        pytest.param(
            "torch_ddp",
            "cut",
            "20",
            "rank 0 on node2: .*waited 20 s in a collective for another rank",
            marks=pytest.mark.exhaustive,
        ),
        # As slurm/env.sh has it.
        pytest.param("torch_ddp", "kill", "45", "rank 1 on node10 ", marks=pytest.mark.exhaustive),
        pytest.param(
            "tf_multi_worker", "cut", "45", "rank 0 on node2 lost rank 1", marks=pytest.mark.exhaustive
        ),
    ],
)
def test_a_dead_node_is_named(tmp_path: Path, name: str, how: str, seconds: str, said: str) -> None:
    """SLURM itself notices after five minutes (SlurmdTimeout); the job does not wait for that."""
    with slurm_cluster(tmp_path) as cluster:
        job = cluster.sbatch(
            *TWO_NODES,
            script(f"{name}.sbatch"),
            *LONG,
            "--out",
            str(tmp_path / "run"),
            SECONDS_TO_WAIT=seconds,
        )
        cluster.wait_for_steps(job, tmp_path / "run")
        cluster.control(how, "node10")
        begun = time.monotonic()
        while "error: " not in cluster.log(job):
            assert time.monotonic() - begun < LIMIT_SECONDS, cluster.log(job)
            time.sleep(0.2)
        line = cluster.log(job).splitlines()[-1]
        assert "rank 1 on node10 " in line and re.search(said, line), line
        if how == "cut":
            assert "did not answer any more; SLURM says: node10 is " in line


@pytest.mark.exhaustive
def test_a_job_whose_node_dies_is_requeued(tmp_path: Path) -> None:
    """Once it has saved; a rank that is killed on a node that lives would be killed again, and its job is not."""
    out = tmp_path / "run"
    with slurm_cluster(tmp_path) as cluster:
        flags = (*TWO_NODES, script("torch_ddp.sbatch"), *LONG, "--save_every_steps=20", "--out", str(out))
        job = cluster.sbatch(*flags, SECONDS_TO_WAIT="20")
        wait_until("nothing was saved", lambda: any((out / "checkpoints").glob("step_*[0-9]")))
        cluster.kill_rank(1, "parity.torch_impl")
        assert cluster.wait(job) == "FAILED" and "was killed, by a person" in cluster.log(job)
        begun = len(parts_of(out))
        job = cluster.sbatch(*flags, SECONDS_TO_WAIT="20")
        wait_until(
            "it did not go on", lambda: len(parts_of(out)) > begun and any(parts_of(out)[-1].glob("steps.*"))
        )
        held = {path.name for path in (out / "checkpoints").glob("step_*[0-9]")}
        wait_until(
            "nothing was saved", lambda: {p.name for p in (out / "checkpoints").glob("step_*[0-9]")} - held
        )
        cluster.control("kill", "node10")
        wait_until("it was not requeued", lambda: "the job is requeued" in cluster.log(job))
        (line,) = [line for line in cluster.log(job).splitlines() if "the job is requeued" in line]
        assert "rank 1 on node10 did not answer any more" in line and f"and {out} goes on from step_" in line
        wait_until(
            "SLURM does not know",
            lambda: "Restarts=1" in cluster.run("scontrol", "show", "job", str(job)).stdout,
        )
        cluster.run("scancel", str(job))


@pytest.mark.parametrize(
    ("options", "name", "message"),
    [
        (
            ("--nodes=2", "--gpus-per-node=2", "--ntasks-per-node=1"),
            "torch_ddp",
            "1 CPUs on a node for 2 processes; add --cpus-per-gpu or --cpus-per-task",
        ),
        (
            ("--nodes=2", "--ntasks=3"),
            "torch_ddp",
            "3 tasks on 2 nodes: add --ntasks-per-node, so that all nodes are alike",
        ),
        (TWO_NODES, "tf_mirrored", "one process cannot use 2 nodes; submit with --nodes=1"),
        (TWO_NODES, "torch_ddp", "already holds mine; choose a new folder or remove this one"),
    ],
)
def test_a_wrong_job_ends_in_one_line(
    cluster: Cluster, tmp_path: Path, options: tuple[str, ...], name: str, message: str
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").touch()
    job = cluster.sbatch(*options, script(f"{name}.sbatch"), *RUN, "--out", str(tmp_path / "run"))
    fails(cluster, job, time.monotonic(), message)


@pytest.mark.exhaustive
def test_the_node_of_the_batch_script_dies(tmp_path: Path) -> None:
    """Nothing is left of the job that could speak: SLURM must notice, and `parity status` says what it did."""
    out = tmp_path / "out"
    with slurm_cluster(tmp_path) as cluster:
        with open(cluster.folder / "slurm.conf", "a") as file:
            file.write("SlurmdTimeout=15\n")
        cluster.run("scontrol", "reconfigure")
        # Requeued, it would wait for the node.
        done = cluster.run("parity", "submit", *LONG, "--nodes=2", "--sbatch=--no-requeue", f"--out={out}")
        assert done.returncode == 0, done.stderr
        deadline = time.monotonic() + LIMIT_SECONDS
        while not any(out.glob("runs/0_torch_ddp/steps.*")) and time.monotonic() < deadline:
            time.sleep(0.2)
        cluster.control("kill", "node2")
        begun = time.monotonic()
        follow = cluster.run("parity", "status", out, "--wait=120")
    assert follow.returncode == 2 and time.monotonic() - begun < LIMIT_SECONDS
    assert "NODE_FAIL: rank 0 on node2 ended with the node; SLURM says: node2 is down*" in follow.stdout


def test_a_submission_is_refused_in_one_line(cluster: Cluster, tmp_path: Path) -> None:
    out = tmp_path / "run"
    asked = ("parity", "submit", *RUN, f"--out={out}")
    refused = cluster.run(*asked, "--partition=nosuch")
    assert refused.returncode == 2 and "invalid partition specified: nosuch" in one_line(refused.stderr)
    assert not out.exists()
    refused = cluster.run(*asked, "--sbatch=--mem=1T")
    assert refused.returncode == 2 and "SLURM does not accept the job 0_torch_ddp:" in one_line(
        refused.stderr
    )
    out.mkdir()
    (out / "mine").touch()
    refused = cluster.run(*asked)
    assert refused.returncode == 2 and "already holds mine" in one_line(refused.stderr)
