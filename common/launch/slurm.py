"""What SLURM's own variables say about hosts and ports."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Mapping

from common.errors import RunError

# Below the ports that Linux gives to outgoing connections; a job has sixteen to itself.
_FIRST_PORT = 12000
_PORTS = 20000
_PORTS_A_JOB = 16
_SECONDS = 30


@functools.cache
def host_names(node_list: str) -> list[str]:
    """The names in 'node[2-3,10]', in SLURM's order, which is that of the tasks and not of the alphabet."""
    if "[" not in node_list and "," not in node_list:
        return [node_list]
    try:
        done = subprocess.run(
            ["scontrol", "show", "hostnames", node_list], capture_output=True, text=True, timeout=_SECONDS
        )
    except FileNotFoundError:
        raise RunError(
            f"scontrol is not installed here, which says what hosts {node_list!r} are; install slurm-client"
        ) from None
    except subprocess.TimeoutExpired:
        raise RunError(f"scontrol did not answer within {_SECONDS} s what hosts {node_list!r} are") from None
    if done.returncode != 0:
        said = " ".join(done.stderr.split()) or "nothing"
        raise RunError(f"scontrol show hostnames {node_list!r} ended with code {done.returncode}: {said}")
    return done.stdout.split()


def first_port(environment: Mapping[str, str]) -> int:
    """The first of this step's ports: those that srun --resv-ports set aside, else some of its job's own.

    Two jobs on one node must not meet at one port. Job ids follow each other, so jobs that run at the
    same time are given different ports unless there are more than a thousand of them.
    """
    reserved = environment.get("SLURM_STEP_RESV_PORTS", "").partition("-")[0]
    if reserved.isdecimal():
        return int(reserved)
    job, step = (environment.get(name, "0") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
    if not (job.isdecimal() and step.isdecimal()):
        raise RunError(f"SLURM_JOB_ID is {job!r} and SLURM_STEP_ID {step!r}, expected whole numbers")
    # Steps of one job that run at the same time are few: they are told apart by a number far off.
    slot = int(job) + 509 * int(step)
    return _FIRST_PORT + slot * _PORTS_A_JOB % _PORTS
