"""A throw-away SLURM cluster for tests: two nodes whose names sort badly, with GPUs that are /dev/null."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from parity_tests.helpers import ROOT
from parity_tests.helpers.processes import SCRIPT, brought_up

SECONDS = 300
# Stands before python on each rank: rank 1 fails, or hangs, where a test asks for it.
PYTHON = f"""#!/bin/bash
if [ -n "$SLURM_STEP_NODELIST" ] && [ "$SLURM_PROCID" = 1 ]; then
  case $FAULT in fail) sleep ${{FAULT_AFTER:-0}}; echo 'it has no mind to'; exit 3 ;; late) exec sleep 1000 ;; esac
fi
exec {sys.executable} "$@"
"""
# The job that compares must need neither framework.
ENV = """srun=(srun)
python=("{folder}/python")
timeout_seconds=${{SECONDS_TO_WAIT:-60}}
export OMP_NUM_THREADS=1
if [ "$SLURM_JOB_NAME" = report ]; then export PYTHONPATH={folder}/light; fi
"""


# What another job, or a site's own hook, may have left in the environment of every job.
STALE = {
    "TF_CONFIG": '{"cluster": {"worker": ["other:1", "another:2"]}, "task": {"type": "worker", "index": 1}}',
    "MASTER_ADDR": "other",
    "MASTER_PORT": "1",
    "RANK": "7",
    "LOCAL_RANK": "7",
    "WORLD_SIZE": "9",
}


class Cluster:
    """What a test asks of the cluster."""

    def __init__(self, folder: Path, files: Path) -> None:
        self.folder, self.files = folder, files
        (files / "python").write_text(PYTHON)
        (files / "python").chmod(0o755)
        (files / "env.sh").write_text(ENV.format(folder=files))
        (files / "light").mkdir()
        for framework in ("tensorflow", "torch"):
            text = "raise ImportError('a login node has no framework')\n"
            (files / "light" / f"{framework}.py").write_text(text)

    def run(self, *command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """A command on the login node."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        own = {"PATH": path, "PARITY_ENV": str(self.files / "env.sh"), "PARITY_SLURM": str(ROOT / "slurm")}
        return subprocess.run(
            [SCRIPT, "run", self.folder, *command],
            env={**inherited, **STALE, **own, **variables},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )

    def sbatch(self, *arguments: str, **variables: str) -> int:
        """Submit; the job's own output goes to `log`."""
        done = self.run("sbatch", "--parsable", f"--output={self.files}/%j.log", *arguments, **variables)
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    def log(self, job: int) -> str:
        return (self.files / f"{job}.log").read_text()

    def wait(self, job: int) -> str:
        """The state in which a job ends."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            form = "--format=%T"
            states = self.run("squeue", "--noheader", "--states=all", f"--jobs={job}", form).stdout.split()
            if states and not {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "REQUEUED"} & set(states):
                return states[0]
            time.sleep(0.2)
        raise AssertionError(f"job {job} did not end: {states}\n{self.log(job)}")

    def start_again(self, job: int) -> None:
        """Once a job is requeued, do not let it wait for the two minutes that SLURM would."""
        deadline = time.monotonic() + SECONDS
        while "BeginTime" not in self.run("squeue", "--noheader", f"--jobs={job}", "--format=%r").stdout:
            assert time.monotonic() < deadline, self.log(job)
            time.sleep(0.2)
        # A node does not take the credential of a job that it ended in the same second.
        time.sleep(2)
        self.run("scontrol", "update", f"JobId={job}", "StartTime=now")

    def wait_for_steps(self, job: int, record: Path) -> None:
        """Until a training has written its first steps."""
        deadline = time.monotonic() + SECONDS
        while not any(path.stat().st_size for path in record.glob("steps.*")):
            assert time.monotonic() < deadline, self.log(job)
            time.sleep(0.1)

    def kill_rank(self, rank: int, module: str) -> None:
        """End one rank of the job that runs, as the kernel does where memory is short."""
        ours = {f"SLURM_PROCID={rank}".encode(), f"SLURM_CONF={self.folder}/slurm.conf".encode()}
        killed = 0
        for process in Path("/proc").glob("[0-9]*"):
            try:
                variables = set((process / "environ").read_bytes().split(b"\0"))
                if ours <= variables and module.encode() in (process / "cmdline").read_bytes().split(b"\0"):
                    os.kill(int(process.name), signal.SIGKILL)
                    killed += 1
            except OSError:
                pass  # it has ended meanwhile
        assert killed

    def control(self, what: str, node: str) -> None:
        """slurm/cluster kill or cut."""
        subprocess.run([SCRIPT, what, self.folder, node], check=True, capture_output=True, timeout=60)


@contextmanager
def slurm_cluster(files: Path) -> Iterator[Cluster]:
    """A cluster for as long as the body runs; the test is skipped where there can be none."""
    with brought_up(GPUS="2") as folder:
        yield Cluster(folder, files)
