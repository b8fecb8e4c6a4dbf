"""`parity status`: follow the jobs of a submission to their verdict."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parity.common.base.errors import RunError
from parity.common.commands import add_command
from parity.common.planning.submission.status import REPORT, State, report_of, states_of
from parity.common.planning.submission.submit import read_submission

NOT_ENDED = 4
_FIRST_POLL_SECONDS, _POLL_SECONDS = 1.0, 15.0


def add(commands: Any) -> None:
    """Register the subcommand."""
    command = add_command(
        commands,
        "status",
        run,
        "what the jobs of 'parity submit' do, and their verdict once they have ended",
        "Exit codes: those of 'parity compare' or 'parity scale'; 2 also where a job failed; 4 some job has not"
        " ended.",
    )
    command.add_argument("out", type=Path, help="the folder of the submission")
    command.add_argument(
        "--wait", type=float, default=0, metavar="SECONDS", help="for the end, at most so long"
    )


def run(options: argparse.Namespace) -> int:
    """Print every job's state, then the verdict."""
    submission = read_submission(options.out)
    deadline, pause = time.monotonic() + options.wait, _FIRST_POLL_SECONDS
    states = states_of(submission, options.out)
    while not all(state.ended for state in states) and (left := deadline - time.monotonic()) > 0:
        # The controller serves all users of a cluster: it is asked less and less often.
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, _POLL_SECONDS)
        states = states_of(submission, options.out)
    for state in states:
        print(f"{state.name} {state.id} {state.word}{f': {state.about}' if state.about else ''}")
    return _conclude(states, options.out)


def _conclude(states: Sequence[State], folder: Path) -> int:
    # A divergent pair ends its report with a code that SLURM calls a failure.
    trained = [state for state in states[:-1] if state.ended]
    failed = next((state for state in trained if not state.succeeded), None)
    if failed is not None:
        raise RunError(f"{failed.name} (job {failed.id}) has not succeeded, so there is no verdict")
    if not all(state.ended for state in states):
        print("not all jobs have ended", file=sys.stderr)
        return NOT_ENDED
    if not (folder / REPORT).is_file():
        raise RunError(
            f"job {states[-1].id} wrote no {REPORT}; see {folder}/logs/{states[-1].name}-{states[-1].id}.log"
        )
    report = report_of(folder)
    print(f"verdict: {report['verdict']}; report: {folder / 'report.html'}")
    for comparison in report.get("comparisons", ()):
        print(f"  {comparison['candidate']} against {comparison['reference']}: {comparison['reason']}")
    return int(report["exit_code"])
