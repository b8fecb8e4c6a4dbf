"""Kubernetes objects that run a placement: what `kubernetes.yaml.j2` does not say by itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

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
    import jinja2

    _check(request)
    placement, kind = request.placement, request.kind
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.get_template("kubernetes.yaml.j2").render(
        request=request,
        nodes=placement.nodes,
        spec=dump_yaml(request.spec),
        spec_folder=_SPEC_FOLDER,
        container=_CONTAINER[kind],
        port_name=_PORT_NAME[kind],
        port=_PORT[kind],
        command=_command(request),
        arguments=_arguments(request),
        variables=_environment(request),
        gpus=on_each_node(placement) if placement.device == "gpu" else 0,
    )
    return yaml.safe_dump_all(yaml.safe_load_all(text), sort_keys=False, width=110)


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


def _command(request: Request) -> list[str]:
    placement, kind = request.placement, request.kind
    module = ["-m", MODULES[placement.framework]]
    # All of a run's processes in one pod, it starts by itself.
    if not placement.processes > placement.nodes > 1:
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
    flags = flags_of(config.placement, config.run_options)
    return [*spec, *flags, *more, f"--out={request.folder}/{request.name}"]


def _environment(request: Request) -> dict[str, str]:
    found = {"OMP_NUM_THREADS": str(request.placement.threads_per_replica)}
    if request.kind == "job" and request.placement.nodes > 1:
        found |= {"PARITY_HOSTS": _host(request, "{index}"), "MASTER_PORT": str(_PORT["job"])}
    return found


def _host(request: Request, index: str) -> str:
    return f"{request.name}-{index}.{request.name}"
