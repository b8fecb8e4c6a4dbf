"""`parity manifest`: Kubernetes objects that train a spec on a placement."""

from __future__ import annotations

import argparse
from typing import Any

import yaml

from parity.common.base.plain import print_document
from parity.common.commands import add_command, add_spec_flags, print_result
from parity.common.execution.checks import check_run
from parity.common.execution.operating_system import on_each_node
from parity.common.execution.training_cli import choose_spec
from parity.common.planning import kubernetes
from parity.common.spec import RunConfig

# Pods come up minutes apart where nodes must be made or images fetched.
_TIMEOUT_SECONDS = 900
# Flags that are fields of the request.
_AS_GIVEN = ("kind", "image", "memory", "claim", "folder", "namespace")


def add(commands: Any) -> None:
    """Register the subcommand."""
    notes = "A --spec file is sent along as a ConfigMap."
    examples = (
        "manifest digits_cnn --kind pytorchjob --placement torch:ddp:4,nodes=2 --image my/parity:1",
        "manifest digits_cnn --kind job --placement tf:mirrored:2 --image my/parity:1 | kubectl apply -f -",
    )
    command = add_command(commands, "manifest", run, notes, examples, result="the objects")
    flag = command.add_argument
    kinds = "of Kubeflow's training operator: pytorchjob or tfjob; job needs no operator"
    flag("--kind", choices=kubernetes.KINDS, required=True, help=kinds)
    add_spec_flags(command)
    flag(
        "--placement",
        required=True,
        metavar="FRAMEWORK:STRATEGY:REPLICAS[,FIELD=VALUE...]",
        help="nodes=N is the number of pods, e.g. torch:ddp:4,nodes=4,device=gpu",
    )
    flag("--image", required=True, help="an image with python and this toolkit installed")
    flag("--name", help="of the job [the spec's name]")
    flag("--namespace", help="[kubectl's]")
    flag("--cpus", help="of each pod [threads of its replicas]")
    flag("--memory", default="4Gi", help="of each pod [4Gi]")
    claim = "PersistentVolumeClaim that all pods can write [parity-records]"
    flag("--claim", default="parity-records", help=claim)
    flag("--folder", default="/records", help="where it is mounted [/records]")


def run(options: argparse.Namespace) -> int:
    """Print the objects."""
    spec = choose_spec(options.recipe, options.spec, options.set)
    config = RunConfig.from_text(options.placement, timeout_seconds=_TIMEOUT_SECONDS)
    check_run(spec.resolved(), *config.parts)
    placement = config.placement
    flags = [f"--recipe={options.recipe}", *(f"--set={text}" for text in options.set)]
    here = on_each_node(placement)
    request = kubernetes.Request(
        name=options.name or kubernetes.job_name(spec.name),
        spec=spec,
        spec_flags=tuple(flags) if options.recipe else (),
        config=config,
        cpus=options.cpus or str(here * placement.threads_per_replica),
        **{name: getattr(options, name) for name in _AS_GIVEN},
    )
    text = kubernetes.manifest(request)
    objects = [each for each in yaml.safe_load_all(text) if each]
    print_result(options, {"apiVersion": "v1", "kind": "List", "items": objects})
    print_document(text)
    return 0
