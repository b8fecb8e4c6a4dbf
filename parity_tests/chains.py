"""Runs that go on elsewhere each time a rank of theirs is killed: python -m parity_tests.chains FOLDER [--seed N] [--count N].

A chain trains one spec through two to four placements, of either framework and of every strategy that trains float64. On
each but the last one rank, never the process that started it, is killed with SIGKILL, somewhere within a step: where ranks
wait for each other most of the time, that is in the middle of a collective. The run must end in time and name the rank.
The next placement goes on as `--resume auto` does. In the end the record must hold each step once, and be parity with a
run on one replica of PyTorch that was never stopped. Prints one line of JSON, an `Outcome`, for each chain.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from parity.common.base.errors import ParityError
from parity.common.base.package import MODULES
from parity.common.execution.flags import flags_of
from parity.common.execution.processes.child import command
from parity.common.parity.budget import proof_budget
from parity.common.parity.compare import compare
from parity.common.record import RunRecord, parts_of, read_record
from parity.common.record.header import steps_in
from parity.common.spec import RunConfig
from parity.common.spec.io import dump_yaml
from parity_tests.helpers import ROOT
from parity_tests.helpers.matrix import small
from parity_tests.helpers.processes import ranks_of, runs
from parity_tests.kills import Outcome
from parity_tests.tables.kills import ARROW

PLACEMENTS = (
    "torch:single:1",
    "torch:ddp:2",
    "torch:ddp:3",
    "torch:manual:2",
    "torch:zero_redundancy:2",
    "torch:fsdp1:2",
    "torch:fsdp2:2",
    "torch:tensor_parallel:1",
    "tensorflow:single:1",
    "tensorflow:mirrored:2",
    "tensorflow:multi_worker:2",
    "tensorflow:multi_worker:3",
)
STEPS = 300
TIMEOUT = 20
# Within so long a run must have ended whose rank was killed; on a machine that does other things, too.
_END_SECONDS, _TRAIN_SECONDS = 60.0, 240.0
# A step takes some milliseconds: the kill comes anywhere in it.
_WITHIN_A_STEP = 0.006


@dataclass(frozen=True)
class Leg:
    """A placement, and the kill that ends it: of which rank, once so many steps of the run are recorded; None: the last."""

    placement: str
    rank: int = 0
    at: int | None = None
    later: float = 0.0


@dataclass(frozen=True)
class Chain:
    number: int
    saving: str
    legs: tuple[Leg, ...]

    @property
    def label(self) -> str:
        return ARROW.join(RunConfig.from_text(leg.placement).label for leg in self.legs)


def draw(seed: int, count: int) -> list[Chain]:
    """So many chains; the same seed draws the same."""
    chains = []
    for number in range(count):
        rng = random.Random(f"chain {seed} {number}")
        places = rng.choices(PLACEMENTS, k=rng.choice((2, 2, 3, 4)))
        # One after another over the steps, with room to train between two of them.
        stops = sorted(rng.sample(range(20, STEPS - 60, 20), len(places) - 1))
        legs = [
            Leg(
                place,
                rng.randrange(_processes(place)),
                at + rng.randrange(10),
                rng.uniform(0, _WITHIN_A_STEP),
            )
            for place, at in zip(places, stops, strict=False)
        ]
        saving = f"save={{every_steps: {rng.choice((1, 3, 10))}, keep_last: {rng.choice((1, 2))}}}"
        chains.append(Chain(number, saving, (*legs, Leg(places[-1]))))
    return chains


def _processes(text: str) -> int:
    return RunConfig.from_text(text).placement.processes


class Chains:
    """Makes chains in a folder, each held against one straight run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        spec = small("digits_mlp", f"steps={STEPS}", "optimizer={kind: adam, learning_rate: 0.003}")
        self._spec = folder / "spec.yaml"
        self._spec.write_text(dump_yaml(spec))
        straight = folder / "straight"
        process = self._start("torch:single:1", straight, folder / "straight.log")
        assert process.wait(_TRAIN_SECONDS) == 0, (folder / "straight.log").read_text()
        self._straight = read_record(straight)

    def _start(self, text: str, run: Path, log: Path) -> subprocess.Popen[bytes]:
        placement, options, _ = RunConfig.from_text(text).parts
        flags = [f"--spec={self._spec}", f"--out={run}", f"--timeout_seconds={TIMEOUT}"]
        flags += ["--resume=auto"] if options.save is not None else []
        flags += flags_of(placement, options)
        with open(log, "ab") as file:
            return subprocess.Popen(
                command(MODULES[placement.framework], *flags),
                cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    def __call__(self, chain: Chain) -> Outcome:
        """Make a chain and look at what it has recorded."""
        folder, began = self._folder / f"chain_{chain.number}", time.monotonic()
        folder.mkdir()
        planned = [f"rank {leg.rank} at step {leg.at}" for leg in chain.legs[:-1]]
        outcome = Outcome(chain.number, chain.label, chain.saving, planned)
        for number, leg in enumerate(chain.legs):
            log = folder / f"leg_{number}.log"
            process = self._start(f"{leg.placement},{chain.saving}", folder / "run", log)
            try:
                if leg.at is None:
                    code = process.wait(_TRAIN_SECONDS)
                    outcome.problems += [f"did not end: code {code}: {_tail(log)}"] if code else []
                else:
                    outcome.hit.append(self._killed(process, folder / "run", leg, log, outcome.problems))
            except subprocess.TimeoutExpired:
                outcome.problems.append(f"hung on {leg.placement}: {_tail(log)}")
            finally:
                left = _session(process.pid)
                outcome.problems += [f"{_what(pid)} is left after leg {number}" for pid in left if runs(pid)]
                for pid in left:
                    os.kill(pid, signal.SIGKILL) if runs(pid) else None
                process.wait()
            if outcome.problems:
                break
        outcome.problems += [] if outcome.problems else problems_of(folder / "run", self._straight)
        outcome.resumed_at = [int(part.steps[0]) for part in _parts(folder / "run")][1:]
        outcome.seconds = round(time.monotonic() - began, 2)
        if not outcome.problems:
            shutil.rmtree(folder)
        return outcome

    def _killed(
        self, process: subprocess.Popen[bytes], run: Path, leg: Leg, log: Path, problems: list[str]
    ) -> str:
        """Kill the rank of a leg once its step is recorded, and see that the run ends and says so; what was hit."""
        assert leg.at is not None
        deadline = time.monotonic() + _TRAIN_SECONDS
        name = f"rank {leg.rank}"
        while recorded(run) < leg.at and process.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("training", _TRAIN_SECONDS)
            time.sleep(0.0005)
        alone = (
            RunConfig.from_text(leg.placement).placement.framework == "tensorflow"
            and "multi" not in leg.placement
        )
        victim = process.pid if alone else ranks_of(process.pid, run).get(name)
        if victim is None or process.poll() is not None:
            problems.append(f"{name} was not there to be killed: {_tail(log)}")
            return "nothing"
        time.sleep(leg.later)
        began = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        code = process.wait(_END_SECONDS)
        took = time.monotonic() - began
        expected = "" if alone else f"{name} was killed by signal 9"
        if code != (-signal.SIGKILL if alone else 2) or expected not in _tail(log):
            problems.append(f"{name} was killed; it ended with code {code} and said: {_tail(log)}")
        return f"{name} of {leg.placement} after {recorded(run)} steps, ended in {took:.1f} s"


def problems_of(run: Path, straight: RunRecord) -> list[str]:
    """In what a run that was killed and went on is not what it should be; nothing, if in nothing."""
    left = [f"{path.name} is left" for path in run.rglob("*.partial")]
    try:
        record = read_record(run)
        comparison = compare(straight, record, proof_budget(straight))
    except ParityError as error:
        return [*left, str(error)]
    if record.steps.tolist() != list(range(STEPS)):
        left.append(f"{len(record.steps)} steps, should be {STEPS}")
    return [*left, *([] if comparison.verdict == "parity" else [comparison.reason])]


def recorded(run: Path) -> int:
    """How many steps of a run are recorded, whichever of its parts took them."""
    return max((steps_in(part / "steps.f64") for part in parts_of(run)), default=0) if run.exists() else 0


def _parts(run: Path) -> Sequence[RunRecord]:
    try:
        return [part for part in read_record(run).parts if len(part.steps)]
    except ParityError:
        return []


def _what(pid: int) -> str:
    """A process and its command, for whoever has to find out why it is still there."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        words = ""
    return f"process {pid} ({words[:200].strip()})"


def _session(leader: int) -> list[int]:
    """The processes of a session that are left a moment after its leader has ended."""
    deadline = time.monotonic() + 5
    while True:
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if int((path / "stat").read_text().rpartition(")")[2].split()[3]) == leader and runs(
                    int(path.name)
                ):
                    found.append(int(path.name))
            except OSError:
                continue
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


def _tail(log: Path) -> str:
    return " ".join(log.read_text(errors="replace").split())[-400:]


def main(arguments: list[str], tell: Callable[[str], None] = lambda line: print(line, flush=True)) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="for the runs; made, and left with those that failed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of the chains to make")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    chains, failed = Chains(options.folder.resolve()), 0
    for chain in draw(options.seed, options.count):
        if options.only is None or chain.number in options.only:
            outcome = chains(chain)
            failed += bool(outcome.problems)
            tell(json.dumps(asdict(outcome)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
