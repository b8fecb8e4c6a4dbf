"""Launchers: what a process reads of its place, and runs started by each launcher for real."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from parity.common.base.errors import RunError
from parity.common.execution import slurm
from parity.common.execution.operating_system import on_each_node, pin_to_cores
from parity.common.execution.process_context import ProcessContext, find_folder, process_context
from parity.common.parity.budget import proof_budget
from parity.common.parity.compare import compare
from parity.common.record import read_record
from parity.common.spec import Placement
from parity_tests.helpers import ROOT
from parity_tests.helpers.matrix import small, torch
from parity_tests.helpers.processes import (
    RUN,
    cluster,
    free_port,
    outcomes,
    plain,
    runs,
    srun,
    together,
    torch_run,
    trained,
    wait_until,
)
from parity_tests.helpers.records import one_line
from parity_tests.helpers.run_cache import RunCache

__all__ = ["cluster"]

pytestmark = pytest.mark.waits
PLAIN = {"MASTER_ADDR": "10.0.0.7", "MASTER_PORT": "29501", "WORLD_SIZE": "4"}
TORCHRUN = {
    **PLAIN,
    "TORCHELASTIC_RUN_ID": "none",
    "RANK": "3",
    "LOCAL_RANK": "1",
    "GROUP_RANK": "1",
    "GROUP_WORLD_SIZE": "2",
}
SRUN = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NODELIST": "node[2,10]",
    "SLURM_PROCID": "3",
    "SLURM_NODEID": "1",
    "SLURM_LOCALID": "1",
}
HOSTS = ("w-0.svc:2222", "w-1.svc:2222", "w-2.svc:2222", "w-3.svc:2222")
JOB = {"JOB_COMPLETION_INDEX": "2", "PARITY_HOSTS": "gpt-{index}.gpt"}


def ddp(launcher: str, replicas: int = 4, **more: object) -> Placement:
    return torch("ddp", replicas, launcher=launcher, **more)


def workers(launcher: str, replicas: int = 4, **more: object) -> Placement:
    fields = {
        "framework": "tensorflow",
        "strategy": "multi_worker",
        "replicas": replicas,
        "launcher": launcher,
    }
    return Placement.parse({**fields, **more})


def tf_config(kind: str = "worker", index: int = 2, **cluster: tuple[str, ...]) -> dict[str, str]:
    task = {"type": kind, "index": index}
    return {"TF_CONFIG": json.dumps({"cluster": cluster or {"worker": HOSTS}, "task": task})}


@pytest.fixture(autouse=True)
def _scontrol(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """SLURM's own tool needs a cluster to ask; the test of the cluster has one."""
    if "cluster" not in request.fixturenames:
        known = {
            "node[2,10]": ["node2", "node10"],
            "node3": ["node3"],
            "node[1-3]": ["node1", "node2", "node3"],
        }
        monkeypatch.setattr(slurm, "host_names", known.__getitem__)


PLACES = {
    "local, before the ranks": (ddp("local"), {}, ProcessContext(0, 0, 1, one_machine=True)),
    "local, a rank": (
        ddp("local"),
        {"RANK": "2", "LOCAL_RANK": "2", "WORLD_SIZE": "4", "PARITY_RENDEZVOUS": "/tmp/x/r"},
        ProcessContext(2, 2, 4, rendezvous="/tmp/x/r", one_machine=True),
    ),
    "local, somebody else's rank": (ddp("local"), {"RANK": "2"}, ProcessContext(0, 0, 1, one_machine=True)),
    "torchrun": (ddp("torchrun", nodes=2), TORCHRUN, ProcessContext(3, 1, 4, 1, None, "10.0.0.7", 29501)),
    "torchrun, one node": (
        ddp("torchrun"),
        {**TORCHRUN, "LOCAL_RANK": "3", "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1"},
        ProcessContext(3, 3, 4, 0, None, "10.0.0.7", 29501, one_machine=True),
    ),
    "environment": (
        ddp("environment", nodes=2),
        {**PLAIN, "RANK": "2"},
        ProcessContext(2, 0, 4, 1, None, "10.0.0.7", 29501),
    ),
    "environment by node": (
        ddp("environment", nodes=2),
        {**PLAIN, "NODE_RANK": "1", "LOCAL_RANK": "1"},
        ProcessContext(3, 1, 4, 1, None, "10.0.0.7", 29501),
    ),
    "environment, a node a process": (
        ddp("environment", nodes=4),
        {**PLAIN, "NODE_RANK": "3"},
        ProcessContext(3, 0, 4, 3, None, "10.0.0.7", 29501),
    ),
    "environment, alone": (
        ddp("environment", 1),
        {},
        ProcessContext(0, 0, 1, 0, None, "127.0.0.1", 29500, one_machine=True),
    ),
    "environment, TensorFlow on one machine": (
        workers("environment", 2),
        {"MASTER_ADDR": "localhost", "MASTER_PORT": "29501", "WORLD_SIZE": "2", "RANK": "1"},
        ProcessContext(
            1, 1, 2, 0, None, "localhost", 29501, ("localhost:29501", "localhost:29502"), one_machine=True
        ),
    ),
    "environment, TF_CONFIG": (
        workers("environment", nodes=2),
        tf_config(),
        ProcessContext(2, 0, 4, 1, None, "w-0.svc", 2222, HOSTS),
    ),
    "srun": (
        ddp("srun", nodes=2),
        SRUN,
        ProcessContext(
            3, 1, 4, 1, None, "node2", 12112, ("node2:12112", "node2:12113", "node10:12112", "node10:12113")
        ),
    ),
    "srun, one node": (
        ddp("srun"),
        {**SRUN, "SLURM_STEP_NODELIST": "node3", "SLURM_NODEID": "0", "SLURM_LOCALID": "3"},
        ProcessContext(
            *(3, 3, 4, 0, None, "127.0.0.1", 12112),
            tuple(f"127.0.0.1:{port}" for port in range(12112, 12116)),
            one_machine=True,
        ),
    ),
    "PyTorchJob": (
        ddp("kubernetes", nodes=4),
        {**PLAIN, "RANK": "3", "PET_NPROC_PER_NODE": "1"},
        ProcessContext(3, 0, 4, 3, None, "10.0.0.7", 29501),
    ),
    "PyTorchJob, several in a pod": (
        ddp("kubernetes", nodes=2),
        TORCHRUN,
        ProcessContext(3, 1, 4, 1, None, "10.0.0.7", 29501),
    ),
    "TFJob": (
        workers("kubernetes", nodes=4),
        tf_config(),
        ProcessContext(2, 0, 4, 2, None, "w-0.svc", 2222, HOSTS),
    ),
    "TFJob with a chief": (
        workers("kubernetes", nodes=4),
        tf_config(chief=HOSTS[:1], worker=HOSTS[1:]),
        ProcessContext(3, 0, 4, 3, None, "w-0.svc", 2222, HOSTS),
    ),
    "Job": (
        ddp("kubernetes", nodes=3, replicas=3),
        JOB,
        ProcessContext(
            2, 0, 3, 2, None, "gpt-0.gpt", 29500, ("gpt-0.gpt:29500", "gpt-1.gpt:29500", "gpt-2.gpt:29500")
        ),
    ),
}


@pytest.mark.parametrize("case", PLACES)
def test_a_process_finds_its_place(case: str) -> None:
    placement, environment, expected = PLACES[case]
    assert process_context(placement, environment) == expected


REFUSED = {
    "local on two nodes": (
        ddp("local", nodes=2),
        {},
        "launcher local starts processes on this machine only; for 2",
    ),
    "local under torchrun": (
        ddp("local"),
        TORCHRUN,
        "torchrun started this process as one of 4, .* --launcher torchrun",
    ),
    "local under srun": (ddp("local"), SRUN, "srun started this process as one of 4, .* --launcher srun"),
    "not under torchrun": (
        ddp("torchrun"),
        PLAIN,
        r"torchrun did not start this process .*--nproc-per-node 4",
    ),
    "torchrun with other replicas": (
        ddp("torchrun", 2),
        TORCHRUN,
        r"torch ddp x2 launcher=torchrun is 2 processes, but WORLD_SIZE is 4; make --replicas",
    ),
    "torchrun on more nodes": (
        ddp("torchrun"),
        TORCHRUN,
        r"over 1 node\(s\), but the launcher uses 2 \(GROUP_WORLD_SIZE\); pass --nodes 2",
    ),
    "no WORLD_SIZE": (ddp("environment"), {"RANK": "0"}, "WORLD_SIZE is not set"),
    "other WORLD_SIZE": (
        ddp("environment", 3),
        {**PLAIN, "RANK": "0"},
        "is 3 processes, but WORLD_SIZE is 4",
    ),
    "no RANK": (
        ddp("environment"),
        PLAIN,
        "RANK is not set; give each of the 4 processes its own, RANK from 0 to 3",
    ),
    "no LOCAL_RANK": (
        ddp("environment", nodes=2),
        {**PLAIN, "NODE_RANK": "1"},
        "RANK or LOCAL_RANK is not set",
    ),
    "RANK too high": (
        ddp("environment"),
        {**PLAIN, "RANK": "4"},
        "RANK is 4, but there are 4: expected 0 to 3",
    ),
    "RANK no number": (ddp("environment"), {**PLAIN, "RANK": "-1"}, "RANK is '-1', expected a whole number"),
    "no MASTER_PORT": (
        ddp("environment"),
        {"WORLD_SIZE": "4", "RANK": "0", "MASTER_ADDR": "a"},
        "MASTER_PORT is not set",
    ),
    "no MASTER_ADDR": (
        ddp("environment"),
        {"WORLD_SIZE": "4", "RANK": "0", "MASTER_PORT": "1"},
        "MASTER_ADDR is not set",
    ),
    "contradictory NODE_RANK": (
        ddp("environment", nodes=2),
        {**PLAIN, "RANK": "3", "NODE_RANK": "0"},
        r"NODE_RANK is 0, but rank 3 of 4 on 2 node\(s\) has 1; ranks count",
    ),
    "contradictory LOCAL_RANK": (
        ddp("environment", nodes=2),
        {**PLAIN, "RANK": "3", "LOCAL_RANK": "0"},
        r"LOCAL_RANK is 0, but rank 3 of 4 on 2 node\(s\) has 1",
    ),
    "contradictory count a node": (
        ddp("environment", nodes=2),
        {**PLAIN, "RANK": "3", "LOCAL_WORLD_SIZE": "4"},
        r"LOCAL_WORLD_SIZE is 4, but torch ddp x4 launcher=environment on 2 node\(s\) has 2 processes a node",
    ),
    "TensorFlow on two nodes knows one": (
        workers("environment", nodes=2),
        {**PLAIN, "RANK": "0"},
        "TensorFlow's workers must know all; set TF_CONFIG",
    ),
    "TF_CONFIG no JSON": (
        workers("environment"),
        {"TF_CONFIG": "{"},
        r"TF_CONFIG is '{'; expected {\"cluster\"",
    ),
    "TF_CONFIG of others": (
        workers("environment"),
        tf_config(worker=HOSTS, ps=HOSTS),
        "TF_CONFIG has a 'ps'; every process here is a worker",
    ),
    "TF_CONFIG without this one": (
        workers("environment"),
        tf_config(index=4),
        "this is worker 4, but there are 4",
    ),
    "TF_CONFIG for fewer": (
        workers("environment", 8),
        tf_config(),
        "is 8 processes, but TF_CONFIG names 4 workers",
    ),
    "TF_CONFIG twice the same": (
        workers("environment"),
        tf_config(worker=(*HOSTS[:3], HOSTS[0])),
        "TF_CONFIG names w-0.svc:2222 twice",
    ),
    "TF_CONFIG without port": (
        workers("environment"),
        tf_config(worker=("a", "b", "c", "d")),
        "TF_CONFIG has the address 'a', expected host:port",
    ),
    "not under srun": (ddp("srun"), {"SLURM_JOB_ID": "7"}, r"srun did not start this process .*: srun -n 4"),
    "srun with other tasks": (
        ddp("srun", 2, nodes=2),
        SRUN,
        "is 2 processes, but SLURM_STEP_NUM_TASKS is 4; make --replicas",
    ),
    "srun on more nodes": (ddp("srun"), SRUN, r"the launcher uses 2 \(SLURM_STEP_NODELIST\); pass --nodes 2"),
    "srun in another order": (
        ddp("srun", nodes=2),
        {**SRUN, "SLURM_PROCID": "1", "SLURM_LOCALID": "0"},
        "srun put rank 1 on node 1 as its task 0, expected node 0, task 1: add --distribution=block",
    ),
    "no operator": (ddp("kubernetes", nodes=4), {}, r"none of RANK \(PyTorchJob\), TF_CONFIG \(TFJob\) and"),
    "a pod that is to hold more": (
        ddp("kubernetes", nodes=2),
        {**PLAIN, "RANK": "0", "PET_NPROC_PER_NODE": "2"},
        "this pod is to hold 2 processes",
    ),
    "a Job with more than a process a pod": (
        ddp("kubernetes", nodes=2),
        JOB,
        "is 4 processes, but a pod has one each",
    ),
    "a Job without names": (
        ddp("kubernetes", 3, nodes=3),
        {"JOB_COMPLETION_INDEX": "0"},
        "PARITY_HOSTS is not set",
    ),
    "a Job with the same name for all": (
        ddp("kubernetes", 3, nodes=3),
        {**JOB, "PARITY_HOSTS": "gpt"},
        "PARITY_HOSTS is 'gpt'; expected a host name with {index}",
    ),
    "a Job with more pods": (
        ddp("kubernetes", 2, nodes=2),
        JOB,
        "JOB_COMPLETION_INDEX is 2, but there are 2: expected 0 to 1",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_environment_is_refused_in_one_line(case: str) -> None:
    placement, environment, message = REFUSED[case]
    with pytest.raises(RunError, match=message) as caught:
        process_context(placement, environment)
    one_line(caught.value)


def test_jobs_of_slurm_have_ports_of_their_own() -> None:
    ports = [slurm.first_port({"SLURM_JOB_ID": str(job), "SLURM_STEP_ID": "0"}) for job in range(1000)]
    assert len({port + task for port in ports for task in range(16)}) == 16 * 1000
    steps = [slurm.first_port({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": str(step)}) for step in range(100)]
    assert len(set(steps)) == 100
    # Linux gives the ports from 32768 on to outgoing connections.
    assert min(ports + steps) > 1024 and max(ports + steps) + 16 <= 32768
    assert slurm.first_port({"SLURM_STEP_RESV_PORTS": "15000-15003", "SLURM_JOB_ID": "7"}) == 15000
    with pytest.raises(RunError, match="SLURM_JOB_ID is 'x'"):
        slurm.first_port({"SLURM_JOB_ID": "x"})


def test_a_missing_folder_is_said_to_be_not_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find_folder(tmp_path)
    monkeypatch.setattr("parity.common.execution.process_context._FOLDER_SECONDS", 0.2)
    with pytest.raises(
        RunError, match=r"rank 0 has made this folder, but .* --out must lie on storage that all"
    ):
        find_folder(tmp_path / "elsewhere")


def test_cores_are_counted_on_one_node(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[object] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {4, 5})
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cores: taken.append(cores))
    assert on_each_node(ddp("torchrun", nodes=2)) == 2
    assert pin_to_cores(ddp("torchrun", nodes=2, pin=True), range(1, 2)) and taken == [[5]]
    assert not pin_to_cores(ddp("torchrun", pin=True), range(1, 2)), "four replicas have no two cores"


@pytest.mark.slow
def test_plain_environment(run_cache: RunCache, tmp_path: Path) -> None:
    command, port = torch_run("environment", f"--out={tmp_path / 'run'}"), free_port()
    done = outcomes([(command, plain(rank, port)) for rank in range(2)])
    assert [(code, err) for code, _, err in done] == [(0, "")] * 2
    trained(run_cache, tmp_path / "run", done[0][1] + done[1][1])


@pytest.mark.slow
def test_mp_spawn(run_cache: RunCache) -> None:
    spec = small("digits_mlp", "steps=20")
    reference = run_cache.record(spec, torch("single", 1))
    comparison = compare(reference, run_cache.record(spec, ddp("mp_spawn", 2)), proof_budget(reference))
    assert comparison.verdict == "parity", comparison.reason


@pytest.mark.slow
def test_a_peer_that_never_comes_ends_the_wait(tmp_path: Path) -> None:
    port = free_port()
    flags = (f"--out={tmp_path / 'run'}", "--timeout_seconds=2")
    lonely = [(torch_run("environment", *flags), plain(0, port))]
    other = [(torch_run("environment", *flags), plain(1, free_port()))]
    first, second = outcomes(lonely + other)
    assert first[0] == second[0] == 2
    assert f"rank 0 of 2, met at tcp://127.0.0.1:{port}: Timed out" in one_line(first[2])
    assert "1/2 clients joined" in first[2]
    assert "rank 1 of 2, met at tcp://127.0.0.1:" in one_line(second[2])


def test_a_rank_that_fails_is_not_waited_for(tmp_path: Path) -> None:
    """Rank 0 finds its folder taken; rank 1, already in the group, ends at once and in one line."""
    (tmp_path / "taken").touch()
    command, port = torch_run("environment", f"--out={tmp_path}", "--timeout_seconds=100"), free_port()
    done = outcomes([(command, plain(rank, port)) for rank in range(2)])
    assert [code for code, _, _ in done] == [2, 2]
    assert "already holds taken" in one_line(done[0][2])
    assert re.search("Connection (closed|reset) by peer", one_line(done[1][2]))
    assert done[1][2].rstrip().endswith("the first rank to fail says why")


@pytest.mark.slow
def test_torchrun_over_two_nodes(run_cache: RunCache, tmp_path: Path) -> None:
    endpoint = f"--rdzv-endpoint=127.0.0.1:{free_port()}"
    agent = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", endpoint]
    agent += ["--rdzv-backend=c10d", "--rdzv-id=parity", "--local-addr=127.0.0.1", "-m"]
    command = [*agent, *torch_run("torchrun", "--nodes=2", f"--out={tmp_path / 'run'}")[2:]]
    done = outcomes([(command, {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})] * 2)
    assert [code for code, _, _ in done] == [0, 0], done
    trained(run_cache, tmp_path / "run", done[0][1] + done[1][1])


@pytest.mark.exhaustive
def test_torchrun_over_two_nodes_that_know_their_ranks(run_cache: RunCache, tmp_path: Path) -> None:
    agent = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
    agent += ["--master-addr=127.0.0.1", f"--master-port={free_port()}"]
    run = torch_run("torchrun", "--nodes=2", f"--out={tmp_path / 'run'}")[2:]
    done = outcomes([([*agent, f"--node-rank={node}", "-m", *run], {}) for node in range(2)])
    assert [code for code, _, _ in done] == [0, 0], done
    trained(run_cache, tmp_path / "run", done[0][1] + done[1][1])


@pytest.mark.slow
def test_srun(cluster: list[str], run_cache: RunCache, tmp_path: Path) -> None:
    run = torch_run("srun", "--nodes=2", f"--out={tmp_path / 'run'}")
    code, out, err = srun(cluster, 2, *run)
    assert (code, err) == (0, "")
    trained(run_cache, tmp_path / "run", out)
    assert read_record(tmp_path / "run").header.host == "node2", "rank 0 is on the first node"
    code, out, err = srun(cluster, 4, *run, f"--out={tmp_path / 'other'}")
    assert code != 0 and "is 2 processes, but SLURM_STEP_NUM_TASKS is 4" in err and "Traceback" not in err


@pytest.mark.exhaustive
def test_srun_with_tensorflow(cluster: list[str], run_cache: RunCache, tmp_path: Path) -> None:
    flags = [
        "--launcher=srun",
        "--strategy=multi_worker",
        "--replicas=2",
        "--nodes=2",
        f"--out={tmp_path / 'run'}",
    ]
    code, out, err = srun(cluster, 2, sys.executable, "-m", "tf_impl", *RUN, *flags)
    assert (code, err) == (0, "")
    trained(run_cache, tmp_path / "run", out)


def descendants(pid: int) -> set[int]:
    """Processes that a process has started, and those that these have."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            pass  # it has ended meanwhile
    found: set[int] = set()
    while more := {child for child, parent in parents.items() if parent in found | {pid}} - found:
        found |= more
    return found


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["local", pytest.param("mp_spawn", marks=pytest.mark.exhaustive)])
def test_a_killed_training_leaves_no_rank_and_no_loader_worker(tmp_path: Path, launcher: str) -> None:
    script = f"""
if __name__ == "__main__":
    import pathlib
    from parity.common.spec import Placement
    from parity_tests.helpers.matrix import small
    from parity.torch_impl.train import train
    text = "torch:ddp:2,launcher={launcher},loader_workers=1"
    train(small("digits_mlp", "steps=1000000"), Placement.from_text(text), pathlib.Path({str(tmp_path / "run")!r}))
"""
    (tmp_path / "main.py").write_text(script)
    environment = {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    with together([([sys.executable, str(tmp_path / "main.py")], environment)]) as (training,):
        steps = tmp_path / "run" / "steps.f64"
        wait_until("the training did not start", lambda: steps.exists() and steps.stat().st_size)
        family = descendants(training.pid)
        assert len(family) >= 4, "two ranks, each with a loader worker"
        training.kill()
        wait_until(f"some of {family} outlived the training", lambda: not any(map(runs, family)))
