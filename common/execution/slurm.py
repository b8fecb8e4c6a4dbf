"""What SLURM's own variables say about hosts and ports."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Mapping

from parity.common.base.errors import RunError

# Below the ports that Linux gives to outgoing connections; a job has sixteen to itself.
_FIRST_PORT = 12000
_PORTS = 20000
_PORTS_A_JOB = 16
_SECONDS = 30


def ask(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run one of SLURM's programs with further variables; raises RunError where it is missing or does not answer."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, env={**os.environ, **variables}
        )
    except FileNotFoundError:
        raise RunError(
            f"{command[0]} is not installed here: this is no machine of a SLURM cluster, or slurm-client is lacking"
        ) from None
    except subprocess.TimeoutExpired:
        raise RunError(
            f"{command[0]} did not answer within {_SECONDS} s; is SLURM's controller up?"
        ) from None


def node_state(host: str) -> str:
    """What SLURM knows of a node: 'node10 is down*', where * means that it does not answer."""
    try:
        done = ask("sinfo", "--noheader", "--Node", f"--nodes={host}", "--format=%N is %T")
    except RunError as error:
        return str(error)
    # A line for each partition that the node is in.
    return done.stdout.partition("\n")[0] or f"{host} is not known"


@functools.cache
def host_names(node_list: str) -> list[str]:
    """Return the names in 'node[2-3,10]', in SLURM's order, which is that of the tasks and not of the alphabet.

    Raises RunError where SLURM does not know them.
    """
    if "[" not in node_list and "," not in node_list:
        return [node_list]
    done = ask("scontrol", "show", "hostnames", node_list)
    if done.returncode != 0:
        said = " ".join(done.stderr.split()) or "nothing"
        raise RunError(f"scontrol show hostnames {node_list!r} ended with code {done.returncode}: {said}")
    return done.stdout.split()


def first_port(environment: Mapping[str, str]) -> int:
    """The first of this step's ports: those that srun --resv-ports set aside, else some of its job's own.

    Two jobs on one node must not meet at one port. Job ids follow each other, so jobs that run at the
    same time are given different ports unless there are more than a thousand of them. Raises RunError where the
    ids are no numbers.
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
