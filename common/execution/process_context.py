"""Where this process stands among those of its run, as its launcher's environment says."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from parity.common.base.errors import RunError
from parity.common.execution import slurm
from parity.common.spec import Placement

Environment = Mapping[str, str]
_PORT = 29500
_LOOPBACK = "127.0.0.1"
_FOLDER_SECONDS = 20


@dataclass(frozen=True)
class ProcessContext:
    """One process of a run.

    rank: among all processes. local_rank: among those of its node. node: among the nodes.
    rendezvous: a file to meet at, where one process started all others on its machine.
    address, port: where rank 0 listens, elsewhere.
    workers: "host:port" of every process in rank order, where the launcher says it of all.
    one_machine: known to have no process elsewhere, so that the loopback device will do.
    """

    rank: int
    local_rank: int
    processes: int
    node: int = 0
    rendezvous: str | None = None
    address: str | None = None
    port: int | None = None
    workers: tuple[str, ...] | None = None
    one_machine: bool = False

    @property
    def meeting_point(self) -> str:
        """The URL at which the processes find each other."""
        if self.rendezvous is not None:
            return f"file://{self.rendezvous}"
        return f"tcp://{self.address}:{self.port}"

    def variables(self) -> dict[str, str]:
        """What this place is called in the environment that torch's libraries read."""
        numbers = {"RANK": self.rank, "LOCAL_RANK": self.local_rank, "WORLD_SIZE": self.processes}
        found = {name: str(number) for name, number in numbers.items()}
        if self.address is not None:
            found |= {"MASTER_ADDR": self.address, "MASTER_PORT": str(self.port), "NODE_RANK": str(self.node)}
        return found


def starts_ranks(placement: Placement) -> bool:
    """Whether a training starts its processes itself; else each of them is started by a launcher."""
    return placement.launcher in ("local", "mp_spawn")


def process_context(placement: Placement, environment: Environment = os.environ) -> ProcessContext:
    """This process's place in a run.

    Raises:
        RunError: the environment lacks a variable, contradicts itself, or was made for another number
            of processes or nodes.
    """
    launcher = placement.launcher
    if starts_ranks(placement):
        return _local(placement, environment)
    if launcher == "torchrun" or (launcher == "kubernetes" and "TORCHELASTIC_RUN_ID" in environment):
        return _torchrun(placement, environment)
    if launcher == "srun":
        return _srun(placement, environment)
    # Between plain variables and an operator's there is no difference but who sets them.
    if placement.framework == "tensorflow" and "TF_CONFIG" in environment:
        return _tf_config(placement, environment)
    if launcher == "kubernetes" and "RANK" not in environment:
        return _indexed_job(placement, environment)
    return _plain(placement, environment)


def find_folder(folder: Path) -> None:
    """Wait for the folder that rank 0 has made, which storage over a network may show a little later.

    Raises RunError where it is not seen for a while.
    """
    deadline = time.monotonic() + _FOLDER_SECONDS
    while not folder.is_dir():
        if time.monotonic() > deadline:
            raise RunError(
                f"{folder}: rank 0 has made this folder, but {platform.node()} does not see it; --out must lie"
                " on storage that all nodes share"
            )
        time.sleep(0.1)


def _local(placement: Placement, environment: Environment) -> ProcessContext:
    """The variables that `run_ranks` sets; without them this is the process that starts the ranks."""
    if placement.nodes > 1:
        raise RunError(
            f"launcher {placement.launcher} starts processes on this machine only; for {placement.nodes} nodes"
            " take another --launcher"
        )
    if "PARITY_RENDEZVOUS" in environment:
        rank, processes = _number(environment, "RANK"), _number(environment, "WORLD_SIZE")
        _same(placement, processes, f"WORLD_SIZE is {processes}")
        return ProcessContext(
            rank, rank, processes, rendezvous=environment["PARITY_RENDEZVOUS"], one_machine=True
        )
    for name, mark, count in (
        ("torchrun", "TORCHELASTIC_RUN_ID", "WORLD_SIZE"),
        ("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ):
        if mark in environment and environment.get(count, "1") != "1":
            raise RunError(
                f"{name} started this process as one of {environment[count]}, and each would start"
                f" {placement.processes} more; add --launcher {name}"
            )
    return ProcessContext(0, 0, 1, one_machine=True)


def _torchrun(placement: Placement, environment: Environment) -> ProcessContext:
    if "TORCHELASTIC_RUN_ID" not in environment:
        raise RunError(
            "launcher torchrun: torchrun did not start this process (TORCHELASTIC_RUN_ID is not set); run:"
            f" torchrun --standalone --nproc-per-node {placement.processes} -m parity.torch_impl --launcher torchrun ..."
        )
    processes = _number(environment, "WORLD_SIZE")
    _same(placement, processes, f"WORLD_SIZE is {processes}")
    # The number of torchrun agents, of which each usually has a machine to itself.
    _same_nodes(placement, _number(environment, "GROUP_WORLD_SIZE"), "GROUP_WORLD_SIZE")
    return ProcessContext(
        _number(environment, "RANK", below=processes),
        _number(environment, "LOCAL_RANK"),
        processes,
        _number(environment, "GROUP_RANK"),
        address=_text(environment, "MASTER_ADDR"),
        port=_number(environment, "MASTER_PORT"),
        one_machine=placement.nodes == 1,
    )


def _plain(placement: Placement, environment: Environment) -> ProcessContext:
    """MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK; or NODE_RANK and LOCAL_RANK instead of RANK."""
    processes = placement.processes
    per_node = processes // placement.nodes
    if "WORLD_SIZE" in environment or processes > 1:
        _same(placement, _number(environment, "WORLD_SIZE"), f"WORLD_SIZE is {environment['WORLD_SIZE']}")
    if "PET_NPROC_PER_NODE" in environment and environment["PET_NPROC_PER_NODE"] not in ("1", "auto"):
        raise RunError(
            f"this pod is to hold {environment['PET_NPROC_PER_NODE']} processes (PET_NPROC_PER_NODE); start them"
            " with: torchrun -m parity.torch_impl --launcher torchrun ..."
        )
    for name in ("LOCAL_WORLD_SIZE", "NPROC_PER_NODE"):
        if name in environment and _number(environment, name) != per_node:
            raise RunError(
                f"{name} is {environment[name]}, but {placement.label} on {placement.nodes} node(s) has"
                f" {per_node} processes a node; correct it or --nodes"
            )
    if "RANK" in environment:
        rank = _number(environment, "RANK", below=processes)
    elif "NODE_RANK" in environment and (per_node == 1 or "LOCAL_RANK" in environment):
        local = _number(environment, "LOCAL_RANK", below=per_node) if per_node > 1 else 0
        rank = _number(environment, "NODE_RANK", below=placement.nodes) * per_node + local
    elif processes == 1:
        rank = 0
    else:
        lacking = "RANK or LOCAL_RANK" if "NODE_RANK" in environment else "RANK"
        raise RunError(
            f"launcher {placement.launcher}: {lacking} is not set; give each of the {processes} processes"
            f" its own, RANK from 0 to {processes - 1}"
        )
    node, local = divmod(rank, per_node)
    for name, number in (("NODE_RANK", node), ("LOCAL_RANK", local)):
        if name in environment and _number(environment, name) != number:
            raise RunError(
                f"{name} is {environment[name]}, but rank {rank} of {processes} on {placement.nodes} node(s) has"
                f" {number}; ranks count through node 0 first, then node 1"
            )
    if processes == 1:
        environment = {"MASTER_ADDR": _LOOPBACK, "MASTER_PORT": str(_PORT), **environment}
    address, port = _text(environment, "MASTER_ADDR"), _number(environment, "MASTER_PORT")
    workers = None
    if placement.framework == "tensorflow" and processes > 1:
        if placement.nodes > 1:
            raise RunError(
                f"launcher {placement.launcher}: MASTER_ADDR names one host, TensorFlow's workers must know all;"
                " set TF_CONFIG"
            )
        workers = tuple(f"{address}:{port + other}" for other in range(processes))
    alone = address in (_LOOPBACK, "localhost", "::1")
    return ProcessContext(rank, local, processes, node, None, address, port, workers, one_machine=alone)


def _tf_config(placement: Placement, environment: Environment) -> ProcessContext:
    """TensorFlow's own variable: the addresses of all workers, and which one this is."""
    form = '{"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}'
    try:
        config = json.loads(environment["TF_CONFIG"])
        cluster = {str(kind): [str(host) for host in hosts] for kind, hosts in config["cluster"].items()}
        kind, index = str(config["task"]["type"]), int(config["task"]["index"])
    except (ValueError, TypeError, KeyError, AttributeError):
        raise RunError(f"TF_CONFIG is {environment['TF_CONFIG'][:200]!r}; expected {form}") from None
    foreign = {*cluster, kind} - {"chief", "worker"}
    if foreign:
        raise RunError(f"TF_CONFIG has a {min(foreign)!r}; every process here is a worker, or the chief")
    chiefs = cluster.get("chief", [])
    workers = (*chiefs, *cluster.get("worker", []))
    if not 0 <= index < len(cluster.get(kind, [])):
        raise RunError(
            f"TF_CONFIG: this is {kind} {index}, but there are {len(cluster.get(kind, []))} of them"
        )
    rank = index + (len(chiefs) if kind == "worker" else 0)
    _same(placement, len(workers), f"TF_CONFIG names {len(workers)} workers")
    doubled = {worker for worker in workers if workers.count(worker) > 1}
    if doubled:
        raise RunError(f"TF_CONFIG names {min(doubled)} twice; every worker needs an address of its own")
    node, local_rank = divmod(rank, len(workers) // placement.nodes)
    address, _, port = workers[0].rpartition(":")
    if not address or not port.isdecimal():
        raise RunError(f"TF_CONFIG has the address {workers[0]!r}, expected host:port")
    return ProcessContext(rank, local_rank, len(workers), node, None, address, int(port), workers)


def _indexed_job(placement: Placement, environment: Environment) -> ProcessContext:
    """A Kubernetes Job with indexed completion: a pod a node, found through a headless service."""
    pods = placement.nodes
    if "JOB_COMPLETION_INDEX" not in environment:
        raise RunError(
            "launcher kubernetes: none of RANK (PyTorchJob), TF_CONFIG (TFJob) and JOB_COMPLETION_INDEX (a Job"
            " with completionMode Indexed) is set; 'parity manifest' writes what sets them"
        )
    if placement.processes != pods:
        raise RunError(
            f"{placement.label} is {placement.processes} processes, but a pod has one each: set nodes to"
            f" {placement.processes}, or start several in a pod with torchrun"
        )
    index = _number(environment, "JOB_COMPLETION_INDEX", below=pods)
    pattern = _text(environment, "PARITY_HOSTS")
    port = _number(environment, "MASTER_PORT") if "MASTER_PORT" in environment else _PORT
    if pattern.count("{index}") != 1:
        raise RunError(
            f"PARITY_HOSTS is {pattern!r}; expected a host name with {{index}} in it, as job-{{index}}.job"
        )
    hosts = [pattern.replace("{index}", str(pod)) for pod in range(pods)]
    workers = tuple(f"{host}:{port}" for host in hosts)
    return ProcessContext(index, 0, pods, index, None, hosts[0], port, workers)


def _srun(placement: Placement, environment: Environment) -> ProcessContext:
    if "SLURM_STEP_ID" not in environment and "SLURM_STEPID" not in environment:
        raise RunError(
            "launcher srun: srun did not start this process (SLURM_STEP_ID is not set); run:"
            f" srun -n {placement.processes} python -m ... --launcher srun"
        )
    name = "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in environment else "SLURM_NTASKS"
    processes = _number(environment, name)
    _same(placement, processes, f"{name} is {processes}")
    hosts = slurm.host_names(_text(environment, "SLURM_STEP_NODELIST"))
    _same_nodes(placement, len(hosts), "SLURM_STEP_NODELIST")
    per_node = processes // placement.nodes
    rank = _number(environment, "SLURM_PROCID", below=processes)
    node, local_rank = divmod(rank, per_node)
    found = _number(environment, "SLURM_NODEID"), _number(environment, "SLURM_LOCALID")
    if found != (node, local_rank):
        raise RunError(
            f"srun put rank {rank} on node {found[0]} as its task {found[1]}, expected node {node}, task"
            f" {local_rank}: add --distribution=block --ntasks-per-node={per_node}"
        )
    if len(hosts) == 1:
        hosts = [_LOOPBACK]
    port = slurm.first_port(environment)
    workers = tuple(f"{hosts[other // per_node]}:{port + other % per_node}" for other in range(processes))
    alone = hosts[0] == _LOOPBACK
    return ProcessContext(rank, local_rank, processes, node, None, hosts[0], port, workers, one_machine=alone)


def _same(placement: Placement, processes: int, found: str) -> None:
    if processes != placement.processes:
        raise RunError(
            f"{placement.label} is {placement.processes} processes, but {found}; make --replicas and the"
            " launcher agree"
        )


def _same_nodes(placement: Placement, nodes: int, name: str) -> None:
    if nodes != placement.nodes:
        raise RunError(
            f"{placement.label} is spread over {placement.nodes} node(s), but the launcher uses {nodes} ({name});"
            f" pass --nodes {nodes}"
        )


def _text(environment: Environment, name: str) -> str:
    value = environment.get(name, "")
    if not value:
        raise RunError(f"{name} is not set; each process of a run needs it from its launcher")
    return value


def _number(environment: Environment, name: str, below: int | None = None) -> int:
    value = _text(environment, name)
    if not value.isdecimal():
        raise RunError(f"{name} is {value!r}, expected a whole number")
    if below is not None and int(value) >= below:
        raise RunError(f"{name} is {value}, but there are {below}: expected 0 to {below - 1}")
    return int(value)
