"""Kubernetes objects that run a placement: a pod for each of its nodes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

import yaml

from parity.common.base.errors import SpecError
from parity.common.base.package import MODULES
from parity.common.execution.flags import flags_of
from parity.common.execution.operating_system import on_each_node
from parity.common.spec import Placement, RunConfig, TrainSpec, dump_yaml

Kind = Literal["pytorchjob", "tfjob", "job"]
KINDS: tuple[Kind, ...] = ("pytorchjob", "tfjob", "job")
FRAMEWORK_OF = {"pytorchjob": "torch", "tfjob": "tensorflow"}

# What the operators look for in a pod: the container's name and its port's.
_CONTAINER = {"pytorchjob": "pytorch", "tfjob": "tensorflow", "job": "training"}
_PORT_NAME = {"pytorchjob": "pytorchjob-port", "tfjob": "tfjob-port", "job": "rendezvous"}
_PORT = {"pytorchjob": 23456, "tfjob": 2222, "job": 29500}
# Where each says which pod this is.
_POD_INDEX = {"pytorchjob": "$(RANK)", "job": "$(JOB_COMPLETION_INDEX)"}
_SPEC_FOLDER = "/parity"
# Pods add their index to the name, and a host name has 63 characters at most.
_LONGEST_NAME = 52
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_QUANTITY = re.compile(r"\d+(\.\d+)?(m|[kMGTP]i?)?")


@dataclass(frozen=True)
class Request:
    """What is to run, and what its pods need.

    spec_flags: --recipe and --set flags; empty where the whole spec goes along as a file.
    claim: name of a PersistentVolumeClaim that all pods can write, mounted at `folder` for the record.
    """

    kind: Kind
    name: str
    spec: TrainSpec
    spec_flags: tuple[str, ...]
    config: RunConfig
    image: str
    cpus: str
    memory: str
    claim: str
    folder: str
    namespace: str | None = None

    @property
    def placement(self) -> Placement:
        return self.config.placement


def job_name(text: str) -> str:
    """A name that Kubernetes takes, made of a spec's."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:_LONGEST_NAME].strip("-")


def manifest(request: Request) -> str:
    """YAML documents for `kubectl apply -f -`.

    Raises:
        SpecError: the kind cannot run the placement, or a name or quantity is not one for Kubernetes.
    """
    _check(request)
    documents = [_config_map(request)] if not request.spec_flags else []
    if request.kind == "job":
        if request.placement.nodes > 1:
            documents.append(_headless_service(request))
        documents.append(_indexed_job(request))
    else:
        documents.append(_operator_job(request))
    return yaml.safe_dump_all(documents, sort_keys=False, width=110)


def _check(request: Request) -> None:
    placement, kind = request.placement, request.kind
    if placement.framework != FRAMEWORK_OF.get(kind, placement.framework):
        raise SpecError(
            f"--kind {kind} runs {FRAMEWORK_OF[kind]}, not {placement.label}; take job or the other"
        )
    if placement.launcher not in ("local", "kubernetes"):
        raise SpecError(f"{placement.label}: a manifest has a launcher of its own; leave launcher= out")
    if placement.nodes > 1 and placement.framework == "tensorflow" and placement.processes != placement.nodes:
        raise SpecError(
            f"{placement.label} is {placement.processes} processes on {placement.nodes} nodes, and a pod has one:"
            f" set nodes={placement.processes}, or replicas_per_worker to fill each pod's devices"
        )
    if not _NAME.fullmatch(request.name) or len(request.name) > _LONGEST_NAME:
        raise SpecError(
            f"--name {request.name!r}: expected small letters, digits and '-', a letter first, at most"
            f" {_LONGEST_NAME} characters"
        )
    for flag, value in (("--cpus", request.cpus), ("--memory", request.memory)):
        if not _QUANTITY.fullmatch(value):
            raise SpecError(f"{flag} {value!r}: expected a quantity such as 2, 500m or 4Gi")
    if not request.folder.startswith("/"):
        raise SpecError(f"--folder {request.folder!r}: expected an absolute path inside the container")


def _metadata(request: Request) -> dict[str, Any]:
    namespace = {} if request.namespace is None else {"namespace": request.namespace}
    return {"name": request.name, **namespace, "labels": _labels(request)}


def _labels(request: Request) -> dict[str, str]:
    return {"app.kubernetes.io/name": "parity", "app.kubernetes.io/instance": request.name}


def _config_map(request: Request) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(request),
        "data": {"spec.yaml": dump_yaml(request.spec)},
    }


def _headless_service(request: Request) -> dict[str, Any]:
    """Gives every pod a host name: NAME-INDEX.NAME."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(request),
        "spec": {
            "clusterIP": "None",
            "selector": _labels(request),
            # A pod must be found before it is ready: it becomes so by finding the others.
            "publishNotReadyAddresses": True,
            "ports": [{"name": _PORT_NAME["job"], "port": _PORT["job"]}],
        },
    }


def _indexed_job(request: Request) -> dict[str, Any]:
    pods = request.placement.nodes
    pod = _pod(request)
    pod["spec"] |= {"restartPolicy": "Never", "subdomain": request.name}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(request),
        "spec": {
            "completionMode": "Indexed",
            "completions": pods,
            "parallelism": pods,
            # Of several pods one would be started again by itself, and wait for the others.
            "backoffLimit": 0,
            "template": pod,
        },
    }


def _operator_job(request: Request) -> dict[str, Any]:
    """A PyTorchJob has a master and workers, a TFJob workers alone, of which the first leads."""
    pods = request.placement.nodes

    def replicas(count: int) -> dict[str, Any]:
        return {"replicas": count, "restartPolicy": "Never", "template": _pod(request)}

    if request.kind == "pytorchjob":
        kind, field = "PyTorchJob", "pytorchReplicaSpecs"
        specs = {"Master": replicas(1), **({"Worker": replicas(pods - 1)} if pods > 1 else {})}
    else:
        kind, field, specs = "TFJob", "tfReplicaSpecs", {"Worker": replicas(pods)}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": _metadata(request),
        "spec": {"runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": 0}, field: specs},
    }


def _pod(request: Request) -> dict[str, Any]:
    placement, kind = request.placement, request.kind
    resources: dict[str, Any] = {"cpu": request.cpus, "memory": request.memory}
    limits: dict[str, Any] = {"memory": request.memory}
    if placement.device == "gpu":
        limits["nvidia.com/gpu"] = on_each_node(placement)
    mounts: list[dict[str, Any]] = [
        {"name": "records", "mountPath": request.folder},
        {"name": "shm", "mountPath": "/dev/shm"},
    ]
    volumes: list[dict[str, Any]] = [
        {"name": "records", "persistentVolumeClaim": {"claimName": request.claim}},
        # Loader workers and NCCL share memory; the usual 64 MiB are too few.
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
    ]
    if not request.spec_flags:
        mounts.append({"name": "spec", "mountPath": _SPEC_FOLDER, "readOnly": True})
        volumes.append({"name": "spec", "configMap": {"name": request.name}})
    container = {
        "name": _CONTAINER[kind],
        "image": request.image,
        "command": _command(request),
        "args": _arguments(request),
        "env": _environment(request),
        "ports": [{"name": _PORT_NAME[kind], "containerPort": _PORT[kind]}],
        "resources": {"requests": resources, "limits": limits},
        "volumeMounts": mounts,
    }
    return {"metadata": {"labels": _labels(request)}, "spec": {"containers": [container], "volumes": volumes}}


def _by_torchrun(placement: Placement) -> bool:
    """Whether a pod holds several of a run's processes; all of them, it starts by itself."""
    return placement.processes > placement.nodes > 1


def _command(request: Request) -> list[str]:
    placement, kind = request.placement, request.kind
    module = ["-m", MODULES[placement.framework]]
    if not _by_torchrun(placement):
        return ["python", *module]
    address, port = (
        ("$(MASTER_ADDR)", "$(MASTER_PORT)") if kind == "pytorchjob" else (_host(request, "0"), _PORT[kind])
    )
    return [
        "python",
        "-m",
        "torch.distributed.run",
        f"--nnodes={placement.nodes}",
        f"--nproc-per-node={placement.processes // placement.nodes}",
        f"--node-rank={_POD_INDEX[kind]}",
        f"--master-addr={address}",
        f"--master-port={port}",
        *module,
    ]


def _arguments(request: Request) -> list[str]:
    spec = list(request.spec_flags) or [f"--spec={_SPEC_FOLDER}/spec.yaml"]
    launcher = "kubernetes" if request.placement.nodes > 1 else "local"
    config = request.config.having(launcher=launcher)
    # Applied again, what saves goes on.
    more = ["--resume=auto"] if config.run_options.save is not None else []
    return [
        *spec,
        *flags_of(config.placement, config.run_options),
        *more,
        f"--out={request.folder}/{request.name}",
    ]


def _environment(request: Request) -> list[dict[str, str]]:
    found = {"OMP_NUM_THREADS": str(request.placement.threads_per_replica)}
    if request.kind == "job" and request.placement.nodes > 1:
        found |= {"PARITY_HOSTS": _host(request, "{index}"), "MASTER_PORT": str(_PORT["job"])}
    return [{"name": name, "value": value} for name, value in found.items()]


def _host(request: Request, index: str) -> str:
    return f"{request.name}-{index}.{request.name}"
