"""`parity manifest` against the published schemas: Kubernetes's, and those of Kubeflow's training operator.

Both publish them as OpenAPI, from which their Python clients are made: a class for each object, with the names
and types of its fields, whose constructor refuses what lacks a required one.
"""

from __future__ import annotations

import argparse
import copy
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from parity.common import recipes
from parity.common.commands import manifest
from parity.common.spec import dump_yaml
from parity_tests.helpers.processes import lacks

if find_spec("kubeflow") is None:
    lacks("needs kubeflow-training, which holds the schemas")

PLAIN: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "bool": (bool,), "object": (object,)}
KINDS = {
    "PyTorchJob": "KubeflowOrgV1PyTorchJob",
    "TFJob": "KubeflowOrgV1TFJob",
    "Job": "V1Job",
    "Service": "V1Service",
    "ConfigMap": "V1ConfigMap",
}
ASKED = {
    "pytorchjob": ("torch:ddp:4,nodes=4,device=gpu", "torch:fsdp2:8,nodes=2,wrap=blocks", "torch:ddp:2"),
    "tfjob": ("tf:multi_worker:4,nodes=2,replicas_per_worker=2", "tf:mirrored:2"),
    "job": ("torch:ddp:3,nodes=3", "torch:ddp:4", "tf:multi_worker:2,nodes=2"),
}


def made(data: Any, kind: str, where: str) -> Any:
    """The client's object for plain data; ValueError or AssertionError where the schema does not allow it."""
    from kubeflow.training import models as kubeflow
    from kubernetes.client import models as kubernetes

    if match := re.fullmatch(r"list\[(.+)\]", kind):
        assert isinstance(data, list), where
        return [made(item, match[1], f"{where}[{n}]") for n, item in enumerate(data)]
    if match := re.fullmatch(r"dict\(str, (.+)\)", kind):
        assert isinstance(data, dict) and all(isinstance(key, str) for key in data), where
        return {key: made(item, match[1], f"{where}.{key}") for key, item in data.items()}
    if kind in PLAIN:
        # A quantity may be a number too.
        allowed = (*PLAIN[kind], *((int,) if ".resources." in where else ()))
        assert isinstance(data, allowed) and isinstance(data, bool) <= (kind in ("bool", "object")), where
        return data
    cls = getattr(kubeflow, kind, None) or getattr(kubernetes, kind)
    fields = {name: field for field, name in cls.attribute_map.items()}
    assert isinstance(data, dict) and data.keys() <= fields.keys(), (
        f"{where}: {sorted(data.keys() - fields.keys())}"
    )
    return cls(
        **{
            fields[key]: made(item, cls.openapi_types[fields[key]], f"{where}.{key}")
            for key, item in data.items()
        }
    )


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[..., list[dict[str, Any]]]:
    def run(*arguments: str) -> list[dict[str, Any]]:
        parser = argparse.ArgumentParser()
        manifest.add(parser.add_subparsers(required=True))
        options = parser.parse_args(["manifest", "--image=registry.example/parity:1", *arguments])
        assert options.command(options) == 0
        return list(yaml.safe_load_all(capsys.readouterr().out))

    return run


@pytest.mark.parametrize(
    ("kind", "placement"), [(kind, text) for kind, texts in ASKED.items() for text in texts]
)
def test_a_manifest_is_as_the_schema_says(printed, kind: str, placement: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(dump_yaml(recipes.get("digits_mlp")))
    for spec in ("--recipe=digits_mlp", f"--spec={tmp_path / 'mine.yaml'}"):
        for document in printed(f"--kind={kind}", f"--placement={placement}", spec, "--namespace=team"):
            made(document, KINDS[document["kind"]], document["kind"])


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("pytorchjob", ("spec", "pytorchReplicaSpec"), {}),
        ("pytorchjob", ("spec", "pytorchReplicaSpecs", "Worker", "replicas"), "3"),
        ("pytorchjob", ("spec", "pytorchReplicaSpecs"), None),
        ("job", ("spec", "completionmode"), "Indexed"),
        ("job", ("spec", "template", "spec", "containers", 0, "name"), None),
        ("job", ("spec", "template", "spec", "containers", 0, "env", 0, "value"), 1),
    ],
)
def test_what_the_schema_does_not_allow_is_seen(printed, kind: str, path: tuple, value: object) -> None:
    """The control: a field misspelt, of another type, or lacking."""
    document = copy.deepcopy(
        printed(f"--kind={kind}", "--placement=torch:ddp:4,nodes=4", "--recipe=digits_mlp")[-1]
    )
    *parents, last = path
    inner = document
    for name in parents:
        inner = inner[name]
    inner[last] = value
    if value is None:
        del inner[last]
    with pytest.raises((AssertionError, ValueError)):
        made(document, KINDS[document["kind"]], document["kind"])
