"""Whatever the world size, everything is said and written once: by rank 0, but for what is each rank's own."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from parity.common.record import read_record
from parity_tests.helpers import ROOT
from parity_tests.helpers.processes import cluster, free_port, outcomes, plain
from parity_tests.helpers.records import received_ids

__all__ = ["cluster"]

STEPS = 3
WITNESS = str(Path(__file__).parent / "witness")
WRITTEN = (".jsonl", ".json", ".safetensors", ".f64", ".ids")
# Lines on standard output: the effective batch, and what came out.
LINES = ("effective batch", f"{STEPS} steps")


def run(module: str, folder: Path, launcher: str, strategy: str, replicas: int, *more: str) -> list[str]:
    recipe = [
        "--recipe=digits_mlp",
        f"--set=steps={STEPS}",
        "--digests",
        "--tensorboard",
        f"--out={folder / 'run'}",
    ]
    how = [f"--launcher={launcher}", f"--strategy={strategy}", f"--replicas={replicas}", *more]
    return ["-m", module, *recipe, *how]


def witnessed(folder: Path) -> dict[str, str]:
    """The environment in which processes note what they write into `folder`/run."""
    (folder / "notes").mkdir()
    path = os.pathsep.join([WITNESS, str(ROOT)])
    return {"PYTHONPATH": path, "PARITY_WITNESS": f"{folder / 'run'}:{folder / 'notes'}"}


def writes(folder: Path) -> dict[str, Counter[str]]:
    """How often each rank opened or renamed each file of the record; 'none' is who starts the ranks."""
    return {
        path.name: Counter(
            line.removesuffix(".partial") for line in path.read_text().splitlines() if line.endswith(WRITTEN)
        )
        for path in (folder / "notes").iterdir()
    }


def own(rank: int) -> set[str]:
    """What a rank writes of itself: its replica's samples and digests, and its memory."""
    return {
        f"sample_ids/replica_{rank}.ids",
        f"fingerprints/replica_{rank}.jsonl",
        f"memory/rank_{rank}.json",
    }


ONCE = {
    *("header.json", "steps.f64", "summary.json"),
    *("initial.safetensors", "first_gradients.safetensors", "final.safetensors"),
}


def wrong(found: dict[str, Counter[str]], ranks: int) -> list[str]:
    """What was written by the wrong rank, twice, or not at all."""
    problems = []
    for rank in range(ranks):
        expected = own(rank) | (ONCE if rank == 0 else set())
        seen = found.get(str(rank), Counter())
        problems += [f"rank {rank} wrote {name}" for name in seen.keys() - expected]
        problems += [f"rank {rank} did not write {name}" for name in expected - seen.keys()]
        problems += [f"rank {rank} wrote {name} {count} times" for name, count in seen.items() if count > 1]
    return sorted(problems)


def check(folder: Path, out: str, ranks: int, logs: bool = False) -> None:
    assert wrong(writes(folder), ranks) == []
    lines = out.splitlines()
    assert len(lines) == len(LINES), out
    assert all(text in line for text, line in zip(LINES, lines, strict=True)), out
    record = folder / "run"
    assert len(read_record(record).steps) == STEPS
    assert [len(ids) for ids in received_ids(read_record(record))] == [STEPS] * ranks
    for name in (f"fingerprints/replica_{rank}.jsonl" for rank in range(ranks)):
        assert len((record / name).read_text().splitlines()) == STEPS, name
    assert len(list((record / "tensorboard").iterdir())) == 1
    assert not list(record.rglob("*.partial"))
    if logs:
        # What every rank would say, each would say into its own log.
        assert [path.read_text() for path in sorted((record / "logs").iterdir())] == [""] * ranks


@pytest.mark.exhaustive
def test_local(tmp_path: Path) -> None:
    command = [sys.executable, *run("torch_impl", tmp_path, "local", "ddp", 4)]
    ((code, out, err),) = outcomes([(command, witnessed(tmp_path))])
    assert (code, err) == (0, "")
    check(tmp_path, out, 4, logs=True)


@pytest.mark.exhaustive
def test_torchrun(tmp_path: Path) -> None:
    agent = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    command = [*agent, "--nproc-per-node=4", *run("torch_impl", tmp_path, "torchrun", "ddp", 4)]
    ((code, out, err),) = outcomes([(command, witnessed(tmp_path))])
    assert (code, err) == (0, "")
    check(tmp_path, out, 4)


@pytest.mark.exhaustive
def test_srun(cluster: list[str], tmp_path: Path) -> None:
    flags = ["srun", "-N2", "-n2", "--kill-on-bad-exit=1", sys.executable]
    command = [*cluster, *flags, *run("torch_impl", tmp_path, "srun", "ddp", 2, "--nodes=2")]
    ((code, out, err),) = outcomes([(command, witnessed(tmp_path))])
    assert (code, err) == (0, "")
    check(tmp_path, out, 2)


@pytest.mark.exhaustive
@pytest.mark.parametrize("launcher", ["environment", "local"])
def test_tensorflow_in_two_processes(tmp_path: Path, launcher: str) -> None:
    environment = witnessed(tmp_path)
    command = [sys.executable, *run("tf_impl", tmp_path, launcher, "multi_worker", 2)]
    port = free_port()
    starts = range(2) if launcher == "environment" else range(1)
    variables = [plain(rank, port) if launcher == "environment" else {} for rank in starts]
    done = outcomes([(command, {**environment, **of_rank}) for of_rank in variables])
    assert [(code, err) for code, _, err in done] == [(0, "")] * len(done)
    check(tmp_path, "".join(out for _, out, _ in done), 2, logs=launcher == "local")


@pytest.mark.parametrize(
    ("rank", "name", "count", "problem"),
    [
        ("1", "header.json", 1, "rank 1 wrote header.json"),
        ("1", "sample_ids/replica_0.ids", 1, "rank 1 wrote sample_ids/replica_0.ids"),
        ("0", "steps.f64", 1, "rank 0 wrote steps.f64 2 times"),
        ("0", "final.safetensors", -1, "rank 0 did not write final.safetensors"),
    ],
)
def test_what_is_written_twice_or_elsewhere_is_seen(rank: str, name: str, count: int, problem: str) -> None:
    right = {str(r): Counter(own(r) | (ONCE if r == 0 else set())) for r in range(2)}
    assert wrong(right, 2) == []
    changed = Counter(right[rank])
    changed[name] += count
    assert wrong({**right, rank: +changed}, 2) == [problem]


def test_a_process_that_writes_is_seen(tmp_path: Path) -> None:
    """The witness itself: each way in which our code writes a file."""
    (tmp_path / "run").mkdir()
    script = (
        "import os, pathlib; p = pathlib.Path(os.environ['PARITY_WITNESS'].split(':')[0]);"
        "(p / 'a.json').write_text(''); open(p / 'b.jsonl', 'x').close(); (p / 'a.json').read_text();"
        "os.replace(p / 'a.json', p / 'c.safetensors'); open(p / 'd.json', 'ab', buffering=0)"
    )
    done = outcomes([([sys.executable, "-c", script], {**witnessed(tmp_path), "RANK": "3"})])
    assert done[0][0] == 0, done
    assert writes(tmp_path) == {"3": Counter(("a.json", "b.jsonl", "c.safetensors", "d.json"))}
