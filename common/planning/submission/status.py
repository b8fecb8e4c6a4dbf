"""What became of submitted jobs: as SLURM says, and where it has forgotten them, as their files do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parity.common.base.errors import RunError
from parity.common.execution import slurm
from parity.common.planning.submission.submit import Submission, Submitted
from parity.common.record import parts_of
from parity.common.record.files import read_json

REPORT = "report.json"
_WAITS = ("PENDING", "CONFIGURING", "REQUEUED", "SUSPENDED", "REQUEUE_HOLD", "SPECIAL_EXIT")
_RUNS = ("RUNNING", "STAGE_OUT", "SIGNALING", "RESIZING", "STOPPED")


@dataclass(frozen=True)
class State:
    """Of one job, or of the worst element of an array. `about`: its nodes, why it waits, or how it failed."""

    name: str
    id: int
    word: str
    about: str = ""

    @property
    def ended(self) -> bool:
        return self.word not in (*_WAITS, *_RUNS)

    @property
    def succeeded(self) -> bool:
        return self.word == "COMPLETED"


def states_of(submission: Submission, folder: Path) -> list[State]:
    """The state of every job, in the order in which they were submitted.

    Raises:
        RunError: SLURM is not there, or does not answer.
    """
    ids = ",".join(str(job.id) for job in submission.jobs)
    known = _squeue(ids)
    if any(job.id not in known for job in submission.jobs):
        known = _sacct(ids) | known
    return [_state(job, known.get(job.id, []), folder) for job in submission.jobs]


# (state, reason, nodes) of each element of each job.
Element = tuple[str, str, str]
Found = dict[int, list[Element]]


def _squeue(ids: str) -> Found:
    """What the controller still knows."""
    form = "--format=%F|%T|%r|%N"
    done = slurm.ask("squeue", "--noheader", "--array", "--states=all", f"--jobs={ids}", form)
    if done.returncode != 0 and "Invalid job id" not in done.stderr:
        raise RunError(f"squeue: {' '.join(done.stderr.split()) or 'it printed nothing'}")
    return _by_job(line.split("|", 3) for line in done.stdout.splitlines())


def _sacct(ids: str) -> Found:
    """What the accounting database knows; nothing where there is none."""
    flags = ("--allocations", "--noheader", "--parsable2", "--format=JobID,State,Reason,NodeList")
    try:
        done = slurm.ask("sacct", f"--jobs={ids}", *flags)
    except RunError:
        return {}
    return _by_job(line.split("|", 3) for line in done.stdout.splitlines() if done.returncode == 0)


def _by_job(rows: Any) -> Found:
    found: Found = {}
    for job, state, reason, nodes in rows:
        # 'CANCELLED by 1000', and '12_3' for an element.
        found.setdefault(int(job.partition("_")[0]), []).append((state.split()[0], reason, nodes))
    return found


def _state(job: Submitted, elements: Sequence[Element], folder: Path) -> State:
    # SLURM counts a job whose nodes are still being cleaned up as COMPLETING, whatever it came to.
    elements = [element for element in elements if element[0] != "COMPLETING"]
    if not elements:
        return _from_files(job, folder)
    order = {"COMPLETED": 0, **dict.fromkeys(_RUNS, 2), **dict.fromkeys(_WAITS, 3)}
    word, reason, nodes = max(elements, key=lambda element: order.get(element[0], 1))
    if word in _RUNS:
        about = f"on {nodes}"
    elif word in _WAITS:
        about = f"for {reason}"
    elif word == "COMPLETED":
        about = ""
    else:
        about = _how(job, folder) or _by_slurm(job, word, reason, nodes, folder)
    return State(job.name, job.id, word, about)


def _by_slurm(job: Submitted, word: str, reason: str, nodes: str, folder: Path) -> str:
    """Why a job ended that had no time to say so itself."""
    if word == "NODE_FAIL":
        try:
            states = {host: slurm.node_state(host) for host in slurm.host_names(nodes)}
        except RunError:
            return nodes
        down = {host: state for host, state in states.items() if "down" in state} or states
        names = sorted(path.stem for path in (folder / "logs").glob(f"{job.id}.*_rank*.log"))
        # Once more for each time that the job was requeued.
        ranks = dict.fromkeys((rank, host) for _, rank, host in (name.split("_", 2) for name in names))
        lost = ", ".join(f"{rank.replace('rank', 'rank ')} on {host}" for rank, host in ranks if host in down)
        return f"{lost + ' ended with the node; ' if lost else ''}SLURM says: {', '.join(down.values())}"
    if reason == "DependencyNeverSatisfied" or (word == "CANCELLED" and not nodes):
        return "a job that it waited for did not succeed"
    return "" if reason in ("None", "NonZeroExitCode") else reason


def _from_files(job: Submitted, folder: Path) -> State:
    if reason := _how(job, folder):
        return State(job.name, job.id, "FAILED", reason)
    whole = parts_of(folder / job.record)[-1] / "summary.json" if job.record else folder / REPORT
    if whole.is_file():
        return State(job.name, job.id, "COMPLETED")
    return State(job.name, job.id, "UNKNOWN", "SLURM knows it no more, and it left no record")


def _how(job: Submitted, folder: Path) -> str:
    """What the job itself said of its failure."""
    logs = folder / "logs"
    ends = [logs / f"{job.id}.end", *sorted(logs.glob(f"{job.id}_*.end"))]
    return "; ".join(path.read_text().strip() for path in ends if path.is_file())


def report_of(folder: Path) -> dict[str, Any]:
    """The report that the last job wrote; RecordError where it is damaged."""
    report: dict[str, Any] = read_json(folder / REPORT)
    return report
