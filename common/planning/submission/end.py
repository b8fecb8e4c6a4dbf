"""How a job's step ended, in one line that names rank and host: what a batch script prints last.

Run by slurm/job.sh as `python -m parity.batch end`; needs no framework. The exit code is 75 if
the job is to run again.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from parity.common.base.errors import ParityError, StoppedError
from parity.common.base.plain import print_line
from parity.common.checkpoint import checkpoints_of
from parity.common.execution import slurm
from parity.common.execution.ranks import READY
from parity.common.record import read_record

# What a rank says whose peer has gone: it is a witness and not the cause.
_WITNESS = "the first rank to fail says why"
_ENDED = re.compile(r"^srun: error: (\S+): tasks? ([\d,-]+): (.+)$", re.MULTILINE)
_LOST_NODE = re.compile(
    r"^srun: error: (?:Node failure on|Task launch for \S+ failed on node) ([^\s:]+)", re.MULTILINE
)
_HINTS = {
    "Killed": "was killed, by a person or for want of memory (see --mem)",
    "Out Of Memory": "was killed for want of memory: ask for more with --mem, or for more replicas",
}


@dataclass(frozen=True)
class Step:
    """A step of a job.

    messages: all that srun itself said.
    hosts: in the order of the ranks, which fill the first before the second.
    ranks: how many.
    logs: of each rank, begun as PREFIX_rankN_HOST.log.
    unanswered: srun was ended since it waited for processes that did not end.
    """

    messages: str
    hosts: tuple[str, ...]
    ranks: int
    logs: Path
    prefix: str
    unanswered: bool = False

    def host(self, rank: int) -> str:
        """The host of a rank."""
        return self.hosts[rank * len(self.hosts) // self.ranks]

    def name(self, rank: int) -> str:
        """What a rank is called in messages."""
        return f"rank {rank} on {self.host(rank)}"

    def message(self, rank: int) -> str:
        """The last line that a rank wrote, and where that is; '' where SLURM alone has spoken since it began."""
        lines = [line.strip() for line in self._lines(rank) if not line.startswith(("slurmstepd", "srun:"))]
        last = next((line for line in reversed(lines) if line), "")
        return "" if READY in last else f"{last} (log: {self._log(rank)})"

    def arrived(self, rank: int) -> bool:
        """Whether a rank had started Python and its framework."""
        return any(READY in line for line in self._lines(rank))

    def ends(self) -> dict[int, str]:
        """How ranks ended, in the order in which srun heard of it; without those that ended well."""
        found: dict[int, str] = {}
        for _, tasks, how in _ENDED.findall(self.messages):
            for part in tasks.split(","):
                first, _, last = part.partition("-")
                found |= dict.fromkeys(range(int(first), int(last or first) + 1), how)
        return found

    def requested(self) -> bool:
        """Whether a rank has stopped as it was asked to, and not because srun ended it for another."""
        first = self.first()
        return first is not None and self.ends()[first] == f"Exited with exit code {StoppedError.exit_code}"

    def first(self) -> int | None:
        """The first rank to end for a reason of its own: none that srun ended, or that only tells of another's end."""
        by_itself = [rank for rank, how in self.ends().items() if how != "Terminated"]
        return next((rank for rank in by_itself if _WITNESS not in self.message(rank)), None)

    def lost(self) -> set[str]:
        """The hosts that did not answer any more."""
        found = set(_LOST_NODE.findall(self.messages))
        # Where a rank failed by itself, another that did not end in time is none: it waited for the first.
        if self.unanswered and self.first() is None:
            ends = self.ends()
            found |= {self.host(rank) for rank in range(self.ranks) if rank not in ends}
        return found

    def _lines(self, rank: int) -> list[str]:
        try:
            return self._log(rank).read_text(errors="replace").splitlines()
        except OSError:
            return []

    def _log(self, rank: int) -> Path:
        return self.logs / f"{self.prefix}_rank{rank}_{self.host(rank)}.log"


def why(step: Step) -> str:
    """The cause of a step's failure, as far as what is left of it tells."""
    ends, lost = step.ends(), step.lost()
    if lost:
        gone = [rank for rank in range(step.ranks) if step.host(rank) in lost]
        names = ", ".join(map(step.name, gone))
        states = ", ".join(slurm.node_state(host) for host in step.hosts if host in lost)
        witnesses = (f"; {step.name(rank)}: {step.message(rank)}" for rank in ends if rank not in gone)
        witness = next(witnesses, "")
        return f"{names} did not answer any more; SLURM says: {states}{witness}"
    if not ends:
        last = (step.messages.strip().splitlines() or ["srun said nothing"])[-1]
        return f"the step did not run: {last}"
    first = step.first()
    rank = next(iter(ends)) if first is None else first
    absent = [other for other in range(step.ranks) if not step.arrived(other)]
    before = f"{', '.join(map(step.name, absent))} never came; " if absent and rank not in absent else ""
    how = ends[rank].replace("Exited with exit", "ended with").replace("Killed", "was killed")
    message = step.message(rank)
    return f"{before}{step.name(rank)} {f'{how}: {message}' if message else _HINTS.get(ends[rank], how)}"


def progress(out: Path) -> str:
    """What a record holds that its run did not finish."""
    try:
        record = read_record(out)
    except ParityError:
        return f"{out} holds no step yet"
    steps, wanted = len(record.steps), record.run_options.steps_of(record.spec.steps)
    return f"{out} holds {steps} of {wanted} steps, all of them whole"


def stopped(reason: str, out: Path, hosts: Sequence[str]) -> str:
    """What a job says that was stopped from outside."""
    states = map(slurm.node_state, hosts)
    dead = "".join(f"; {state}" for state in states if state.endswith("*") or " is down" in state)
    return f"{reason}{dead}, so it was stopped: {progress(out)}"


def runs_again(job: str | None, out: Path, saved_before: str, heals: bool) -> tuple[bool, str]:
    """Whether a job is to run again, and what there is to say of it.

    Args:
        job: its id; None: what it trains cannot go on.
        out: the record.
        saved_before: the name of the latest checkpoint when the step began; '' for none.
        heals: whether what ended the step may be over once the job runs again.
    """
    if job is None:
        return False, "it saves nothing to go on from: submit it again with another --out, and more --time"
    folders = checkpoints_of(out)
    latest = folders[-1].name if folders else ""
    if latest == saved_before:
        return False, "nothing new was saved, so the job was not requeued"
    from_there = f"{out} goes on from {latest}"
    again = f"submit it again with the same --out: {from_there}"
    if not heals:
        return False, again
    done = slurm.ask("scontrol", "show", "job", job)
    if "JobState=RUNNING" not in done.stdout.split():
        # It has been cancelled.
        return False, again
    if "Requeue=1" not in done.stdout.split():
        return False, f"the job was submitted with --no-requeue; {again}"
    return True, f"the job is requeued, and {from_there}"


def main(arguments: Sequence[str]) -> int:
    """Print the line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    flag = parser.add_argument
    flag("--logs", type=Path, required=True)
    flag("--prefix", required=True)
    flag("--out", type=Path, required=True)
    flag("--hosts", required=True, help="SLURM's list")
    flag("--nodes", type=int, required=True)
    flag("--tasks-per-node", type=int, required=True)
    flag("--code", type=int, required=True, help="of srun; 137: it had to be killed")
    flag("--stopped", help="why, where it was from outside")
    flag("--goes-on", action="store_true", help="from checkpoints, where it runs again")
    flag("--ends", action="store_true", help="SLURM itself ends the job, or starts it again")
    flag("--saved-before", default="", help="name of the latest checkpoint when the step began")
    options = parser.parse_args(arguments)
    job = os.environ["SLURM_JOB_ID"] if options.goes_on else None
    step = Step(
        (options.logs / f"{options.prefix}_srun.log").read_text(errors="replace"),
        tuple(slurm.host_names(options.hosts)[: options.nodes]),
        options.nodes * options.tasks_per_node,
        options.logs,
        options.prefix,
        options.code == 137,
    )
    reason = options.stopped or ("its ranks were asked to stop" if step.requested() else None)
    if reason:
        line, heals = stopped(reason, options.out, slurm.host_names(options.hosts)), not options.ends
    else:
        line, heals = why(step), bool(step.lost())
        if job is None or not heals:
            # What a rank did wrong it would do again.
            print_line(line)
            return 0
    requeue, more = runs_again(job, options.out, options.saved_before, heals)
    print_line(f"{line}. {more[0].upper()}{more[1:]}" if reason else f"{line}; {more}")
    return StoppedError.exit_code if requeue else 0
