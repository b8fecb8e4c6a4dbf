"""`parity manifest`: what it prints is what Kubernetes and the operators ask for, and it trains."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from parity.common.base.errors import ParityError
from parity.common.commands import manifest
from parity.common.execution.flags import flags_of
from parity.common.execution.process_context import process_context
from parity.common.record import read_record
from parity.common.spec import Placement, RunConfig, load_spec
from parity_tests.helpers.processes import RUN, free_port, outcomes, trained
from parity_tests.helpers.records import one_line
from parity_tests.helpers.run_cache import RunCache

IMAGE = "--image=registry.example/parity:1"


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the command and reads back its documents by kind."""

    def run(*arguments: str) -> dict[str, Any]:
        parser = argparse.ArgumentParser()
        manifest.add(parser.add_subparsers(required=True))
        options = parser.parse_args(["manifest", IMAGE, *arguments])
        assert options.command(options) == 0
        documents = list(yaml.safe_load_all(capsys.readouterr().out))
        return {document["kind"]: document for document in documents}

    return run


def asked(kind: str, placement: str, *more: str) -> list[str]:
    return [f"--kind={kind}", f"--placement={placement}", *RUN, *more]


def container(template: dict[str, Any]) -> dict[str, Any]:
    (only,) = template["spec"]["containers"]
    return only


def is_a_whole_pod(template: dict[str, Any]) -> None:
    """What any pod of ours must have, and nothing that refers to nowhere."""
    box = container(template)
    assert box["image"] == "registry.example/parity:1"
    assert all(isinstance(text, str) for text in (*box["command"], *box["args"]))
    assert all(isinstance(variable["value"], str) for variable in box["env"])
    assert {"cpu", "memory"} <= box["resources"]["requests"].keys()
    volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
    assert {mount["name"] for mount in box["volumeMounts"]} == volumes.keys()
    assert volumes["records"]["persistentVolumeClaim"]["claimName"]


def named(document: dict[str, Any], api: str) -> str:
    assert document["apiVersion"] == api
    name = document["metadata"]["name"]
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,50}[a-z0-9])?", name)
    return str(name)


def test_a_pytorchjob(printed) -> None:
    job = printed(*asked("pytorchjob", "torch:ddp:4,nodes=4,device=gpu"))["PyTorchJob"]
    assert named(job, "kubeflow.org/v1") == "digits-mlp"
    specs = job["spec"]["pytorchReplicaSpecs"]
    assert {name: spec["replicas"] for name, spec in specs.items()} == {"Master": 1, "Worker": 3}
    for spec in specs.values():
        assert spec["restartPolicy"] == "Never"
        is_a_whole_pod(spec["template"])
        box = container(spec["template"])
        # The operator looks for these two names, and gives up without a word where they are others.
        assert box["name"] == "pytorch" and box["ports"][0]["name"] == "pytorchjob-port"
        assert box["resources"]["limits"]["nvidia.com/gpu"] == 1
        assert box["command"] == ["python", "-m", "parity.torch_impl"]
        assert {"--launcher=kubernetes", "--nodes=4", "--device=gpu"} <= set(box["args"])


def test_a_pytorchjob_with_several_processes_in_a_pod(printed) -> None:
    job = printed(*asked("pytorchjob", "torch:fsdp2:8,nodes=2,wrap=blocks,threads_per_replica=2"))[
        "PyTorchJob"
    ]
    box = container(job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"])
    assert box["command"][:3] == ["python", "-m", "torch.distributed.run"]
    assert {"--nnodes=2", "--nproc-per-node=4", "--node-rank=$(RANK)"} <= set(box["command"])
    assert box["resources"]["requests"]["cpu"] == "8"
    assert "--option=wrap=blocks" in box["args"]


def test_a_tfjob(printed) -> None:
    job = printed(*asked("tfjob", "tf:multi_worker:4,nodes=2,replicas_per_worker=2", "--namespace=team"))[
        "TFJob"
    ]
    named(job, "kubeflow.org/v1")
    assert job["metadata"]["namespace"] == "team"
    (worker,) = job["spec"]["tfReplicaSpecs"].values()
    assert worker["replicas"] == 2 and worker["restartPolicy"] == "Never"
    is_a_whole_pod(worker["template"])
    box = container(worker["template"])
    assert box["name"] == "tensorflow" and box["ports"][0]["name"] == "tfjob-port"
    assert box["command"] == ["python", "-m", "parity.tf_impl"]


def test_an_indexed_job(printed) -> None:
    documents = printed(*asked("job", "torch:ddp:3,nodes=3", "--name=mine"))
    job, service = documents["Job"], documents["Service"]
    assert named(job, "batch/v1") == named(service, "v1") == "mine"
    assert job["spec"]["completionMode"] == "Indexed"
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == 3
    pod = job["spec"]["template"]
    is_a_whole_pod(pod)
    assert pod["spec"]["restartPolicy"] == "Never"
    # A headless service that selects the pods, under the name that they give as their subdomain.
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"] is True
    assert pod["spec"]["subdomain"] == "mine"
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    variables = {variable["name"]: variable["value"] for variable in container(pod)["env"]}
    placement = Placement.from_text("torch:ddp:3,nodes=3,launcher=kubernetes")
    place = process_context(placement, {**variables, "JOB_COMPLETION_INDEX": "1"})
    assert place.address == "mine-0.mine" and place.port == service["spec"]["ports"][0]["port"]
    assert place.workers is not None and place.workers[1].startswith("mine-1.mine:")


def test_one_pod_starts_its_processes_itself(printed) -> None:
    documents = printed(*asked("job", "torch:ddp:4"))
    assert documents.keys() == {"Job"}
    arguments = container(documents["Job"]["spec"]["template"])["args"]
    assert not any(argument.startswith(("--launcher", "--nodes")) for argument in arguments)


def test_a_spec_file_goes_along(printed, tmp_path: Path) -> None:
    from parity.common import recipes
    from parity.common.spec import dump_yaml

    spec = recipes.get("digits_mlp")
    (tmp_path / "mine.yaml").write_text(dump_yaml(spec))
    documents = printed("--kind=job", "--placement=torch:ddp:2,nodes=2", f"--spec={tmp_path / 'mine.yaml'}")
    pod = documents["Job"]["spec"]["template"]
    is_a_whole_pod(pod)
    (tmp_path / "read.yaml").write_text(documents["ConfigMap"]["data"]["spec.yaml"])
    assert load_spec(tmp_path / "read.yaml").resolved() == spec.resolved()
    assert "--spec=/parity/spec.yaml" in container(pod)["args"]
    (mount,) = (m for m in container(pod)["volumeMounts"] if m["mountPath"] == "/parity")
    (volume,) = (v for v in pod["spec"]["volumes"] if v["name"] == mount["name"])
    assert volume["configMap"]["name"] == documents["ConfigMap"]["metadata"]["name"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (asked("tfjob", "torch:ddp:2,nodes=2"), "--kind tfjob runs tensorflow, not torch ddp x2"),
        (asked("pytorchjob", "tf:multi_worker:2,nodes=2"), "--kind pytorchjob runs torch, not tensorflow"),
        (
            asked("job", "tf:multi_worker:4,nodes=2"),
            "is 4 processes on 2 nodes, and a pod has one: set nodes=4",
        ),
        (asked("job", "torch:ddp:2,launcher=srun"), "a manifest has a launcher of its own"),
        (asked("job", "torch:ddp:2,nodes=2", "--name=My_Job"), "--name 'My_Job': expected small letters"),
        (asked("job", "torch:ddp:2,nodes=2", f"--name={'x' * 60}"), "at most 52 characters"),
        (asked("job", "torch:ddp:2,nodes=2", "--memory=lots"), "--memory 'lots': expected a quantity"),
        (asked("job", "torch:ddp:2,nodes=2", "--folder=here"), "--folder 'here': expected an absolute path"),
        (asked("job", "torch:ddp:2,save={keep_last: 3}"), "of torch ddp x2 has no flag"),
        (asked("job", "torch:ddp:3,nodes=2"), "3 replicas cannot be divided by 2"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(printed, arguments: list[str], message: str) -> None:
    with pytest.raises(ParityError) as caught:
        printed(*arguments)
    assert message in one_line(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "torch:ddp:4,accumulation={0: 8, 5: 4},static_graph=true,nodes=2,launcher=torchrun,digests=true",
        "torch:fsdp2:4,wrap=blocks,reshard=false,shard_group=2,pin=true,threads_per_replica=2,device=cpu",
        "torch:ddp:2,engine=accelerate,stop_at_step=3,sample_order_seed=1,timeout_seconds=7",
        "tf:mirrored:2,cross_device=hierarchical_copy,accumulation=2",
    ],
)
def test_flags_say_the_whole_placement(text: str) -> None:
    config = RunConfig.from_text(text)
    placement, found = config.placement, flags_of(config.placement, config.run_options)
    flags = dict(flag.removeprefix("--").split("=", 1) for flag in found if "--option" not in flag)
    options = [flag.removeprefix("--option=") for flag in found if "--option" in flag]
    more = ",".join(
        options + [f"{name}={value}" for name, value in flags.items() if name not in ("strategy", "replicas")]
    )
    again = f"{placement.framework}:{flags['strategy']}:{flags['replicas']}" + (f",{more}" if more else "")
    assert RunConfig.from_text(again) == config


def started(
    template: dict[str, Any], folder: Path, environment: dict[str, str]
) -> tuple[list[str], dict[str, str]]:
    """A container's command as a kubelet starts it, but for the interpreter and where the claim is mounted."""
    box = container(template)
    known = {variable["name"]: variable["value"] for variable in box["env"]} | environment
    texts = [sys.executable, *box["command"][1:], *box["args"]]
    expanded = [re.sub(r"\$\((\w+)\)", lambda match: known[match[1]], text) for text in texts]
    return [text.replace("=/records/", f"={folder}/") for text in expanded], known


@pytest.mark.slow
def test_a_pytorchjob_trains(printed, run_cache: RunCache, tmp_path: Path) -> None:
    specs = printed(*asked("pytorchjob", "torch:ddp:2,nodes=2"))["PyTorchJob"]["spec"]["pytorchReplicaSpecs"]
    port = str(free_port())
    pods = []
    for rank, role in enumerate(("Master", "Worker")):
        # What the operator sets, with this machine in place of the master's pod.
        variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "RANK": str(rank)}
        variables |= {"PET_" + name: variables[name] for name in ("MASTER_ADDR", "MASTER_PORT")}
        variables |= {"PET_NNODES": "2", "PET_NODE_RANK": str(rank), "PET_NPROC_PER_NODE": "1"}
        pods.append(started(specs[role]["template"], tmp_path, variables))
    done = outcomes(pods)
    assert [(code, err) for code, _, err in done] == [(0, "")] * 2
    trained(run_cache, tmp_path / "digits-mlp", done[0][1] + done[1][1])
    assert read_record(tmp_path / "digits-mlp").placement.timeout_seconds == 900


@pytest.mark.exhaustive
def test_a_pytorchjob_with_several_processes_in_a_pod_trains(
    printed, run_cache: RunCache, tmp_path: Path
) -> None:
    specs = printed(*asked("pytorchjob", "torch:ddp:4,nodes=2"))["PyTorchJob"]["spec"]["pytorchReplicaSpecs"]
    port = str(free_port())
    pods = []
    for rank, role in enumerate(("Master", "Worker")):
        variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "4", "RANK": str(rank)}
        pods.append(started(specs[role]["template"], tmp_path, variables | {"PET_NPROC_PER_NODE": "2"}))
    done = outcomes(pods)
    assert [code for code, _, _ in done] == [0, 0], done
    trained(run_cache, tmp_path / "digits-mlp", done[0][1] + done[1][1])


@pytest.mark.exhaustive
def test_an_indexed_job_trains(printed, run_cache: RunCache, tmp_path: Path) -> None:
    pod = printed(*asked("job", "torch:ddp:2,nodes=2"))["Job"]["spec"]["template"]
    # Each pod has an address of its own in place of its host name: 127.0.0.10 and 127.0.0.11.
    here = {"PARITY_HOSTS": "127.0.0.1{index}", "MASTER_PORT": str(free_port())}
    done = outcomes([started(pod, tmp_path, {**here, "JOB_COMPLETION_INDEX": str(i)}) for i in range(2)])
    assert [(code, err) for code, _, err in done] == [(0, "")] * 2
    trained(run_cache, tmp_path / "digits-mlp", done[0][1] + done[1][1])


@pytest.mark.exhaustive
def test_a_tfjob_trains(printed, run_cache: RunCache, tmp_path: Path) -> None:
    worker = printed(*asked("tfjob", "tf:multi_worker:2,nodes=2"))["TFJob"]["spec"]["tfReplicaSpecs"][
        "Worker"
    ]
    hosts = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    pods = []
    for index in range(2):
        config = {
            "cluster": {"worker": hosts},
            "task": {"type": "worker", "index": index},
            "environment": "cloud",
        }
        pods.append(started(worker["template"], tmp_path, {"TF_CONFIG": json.dumps(config)}))
    done = outcomes(pods)
    assert [(code, err) for code, _, err in done] == [(0, "")] * 2
    trained(run_cache, tmp_path / "digits-mlp", done[0][1] + done[1][1])
