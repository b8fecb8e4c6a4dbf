"""Starting processes as launchers do, and a SLURM cluster to start them in."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from parity.common.parity.budget import proof_budget
from parity.common.parity.compare import compare
from parity.common.record import read_record
from parity_tests.helpers import ROOT
from parity_tests.helpers.matrix import small, torch
from parity_tests.helpers.records import without_progress
from parity_tests.helpers.run_cache import RunCache

SCRIPT = ROOT / "slurm" / "cluster"
NODES = ("node2", "node10")
RUN = ["--recipe=digits_mlp", "--set=steps=20", "--set=global_batch_size=34"]
SECONDS = 240


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        return port


@contextmanager
def together(commands: list[tuple[list[str], dict[str, str]]]) -> Iterator[list[subprocess.Popen]]:
    """Processes side by side, ended with the test."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "PET_"))}
    started = [
        subprocess.Popen(
            command,
            env={**inherited, "OMP_NUM_THREADS": "1", **environment},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for command, environment in commands
    ]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def outcomes(commands: list[tuple[list[str], dict[str, str]]]) -> list[tuple[int, str, str]]:
    """Of commands that run at once their exit code, output and errors, without lines of progress."""
    with together(commands) as started:
        texts = [process.communicate(timeout=SECONDS) for process in started]
        return [
            (process.returncode, out, without_progress(err))
            for process, (out, err) in zip(started, texts, strict=True)
        ]


def trained(run_cache: RunCache, folder: Path, out: str) -> None:
    """The record is that of the same training on one replica, and one process has said so, once."""
    reference = run_cache.record(small("digits_mlp", "steps=20"), torch("single", 1))
    record = read_record(folder)
    comparison = compare(reference, record, proof_budget(reference))
    assert comparison.verdict == "parity", comparison.reason
    assert out.count("20 steps") == 1 and out.count("effective batch 34") == 1


def plain(rank: int, port: int, processes: int = 2) -> dict[str, str]:
    numbers = {"MASTER_PORT": port, "WORLD_SIZE": processes, "RANK": rank}
    return {"MASTER_ADDR": "127.0.0.1", **{name: str(number) for name, number in numbers.items()}}


def torch_run(launcher: str, *more: str) -> list[str]:
    flags = [f"--launcher={launcher}", "--strategy=ddp", "--replicas=2", *more]
    return [sys.executable, "-m", "torch_impl", *RUN, *flags]


def lacks(what: str) -> None:
    """Skip a test for what this machine lacks; a failure where all must be there, as in CI."""
    if os.environ.get("PARITY_TEST_ALL"):
        pytest.fail(f"{what}, and PARITY_TEST_ALL is set")
    pytest.skip(what, allow_module_level=True)


@contextmanager
def brought_up(**variables: str) -> Iterator[Path]:
    """The folder of a SLURM cluster whose hosts sort badly, for as long as the body runs."""
    lacking = [name for name in ("slurmctld", "slurmd", "srun", "munged") if shutil.which(name) is None]
    lacking = [name for name in lacking if not Path("/usr/sbin", name).exists()]
    if lacking or os.geteuid() != 0:
        lacks(f"needs root and SLURM (not found: {', '.join(lacking) or 'root'}); see slurm/cluster install")
    # A socket's path is short.
    folder = Path(f"/tmp/parity-slurm-{os.getpid()}-{len(list(Path('/tmp').glob('parity-slurm-*')))}")
    up = subprocess.run(
        [SCRIPT, "up", folder, *NODES],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **variables},
    )
    try:
        if up.returncode != 0 and "no namespaces" in up.stderr:
            lacks(up.stderr.strip())
        assert up.returncode == 0, up.stderr
        yield folder
    finally:
        subprocess.run([SCRIPT, "down", folder], capture_output=True, timeout=60)
    assert not folder.exists()


@pytest.fixture
def cluster() -> Iterator[list[str]]:
    """The command that runs another on the login node of a SLURM cluster."""
    with brought_up() as folder:
        yield [str(SCRIPT), "run", str(folder)]


def srun(cluster: list[str], tasks: int, *command: str) -> tuple[int, str, str]:
    flags = ["srun", "-N2", f"-n{tasks}", "--kill-on-bad-exit=1"]
    ((code, out, err),) = outcomes([([*cluster, *flags, *command], {})])
    return code, out, err


def runs(pid: int) -> bool:
    """Whether a process still does anything; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ranks_of(session: int, run: Path) -> dict[str, int]:
    """Process ids of the ranks of a run, by 'rank 0', among the processes of a session: those that write its logs."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if int((path / "stat").read_text().rpartition(")")[2].split()[3]) != session:
                continue
            output, line = Path(os.readlink(path / "fd" / "1")), (path / "cmdline").read_bytes()
        except OSError:
            continue
        # One that TensorFlow waits with for the others writes there as well.
        if output.name.startswith("rank_") and run in output.parents and b"watchdog" not in line:
            found[output.stem.replace("_", " ")] = int(path.name)
    return found


def wait_until(otherwise: str, true: Callable[[], object]) -> None:
    """Wait for something to come true; a test that waits in vain fails with `otherwise`."""
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.02)
