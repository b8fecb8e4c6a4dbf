"""A scaling sweep as a job array: an element is all runs of one number of replicas.

Run by slurm/scale.sbatch as `python -m parity.batch sweep OUT INDEX`; needs no framework.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from parity.common.base.errors import ParityError, SpecError
from parity.common.base.package import MODULES
from parity.common.base.plain import print_error, print_line
from parity.common.execution import session
from parity.common.execution.flags import flags_of
from parity.common.planning.submission.submit import Size, sized
from parity.common.record.files import parse
from parity.common.scaling.experiment import Question, configurations
from parity.common.spec import RunConfig


def placements_of(texts: Sequence[str], counts: Sequence[int], size: Size, steps: int) -> list[RunConfig]:
    """Every strategy on every number of replicas, and one replica of each framework on its own.

    Raises:
        SpecError: a number does not fill whole nodes, or 1 is lacking.
    """
    if sorted(set(counts)) != sorted(counts) or min(counts) != 1 or len(counts) < 2:
        raise SpecError(f"--scale {','.join(map(str, counts))}: expected 1 and other numbers, each once")
    found = []
    for text in texts:
        for count in sorted(counts):
            nodes = -(-count // size.per_node)
            if count % nodes or nodes > size.nodes:
                raise SpecError(
                    f"--scale {count}: {size.nodes} node(s) of {size.per_node} devices hold no {count} replicas,"
                    " equally many on each"
                )
            alone = f"{text.partition(':')[0]}:single"
            part = Size(nodes, count // nodes, size.gpus)
            config, _ = sized(alone if count == 1 else text, part)
            found.append(config.having(stop_at_step=steps))
    return list(dict.fromkeys(found))


def element(folder: Path, index: int) -> Iterator[list[str]]:
    """Yield nodes, processes on each, record and flags of every run of one element, in the order of the rounds.

    Raises:
        SpecError: the sweep has no such element.
    """
    question = parse(Question, folder / session.QUESTION)
    counts = sorted({config.placement.replicas for config in question.placements})
    if not 0 <= index < len(counts):
        raise SpecError(f"element {index} of the array: there are {len(counts)}, of {counts} replicas")
    for _, jobs in session.rounds(configurations(question, folder), folder, question.rounds, question.rounds):
        for job in jobs:
            placement = job.config.placement
            if placement.replicas != counts[index]:
                continue
            tasks = 1 if placement.launcher == "local" else placement.processes // placement.nodes
            what = f"--spec={folder / 'spec.yaml'}", f"--set=global_batch_size={job.spec.global_batch_size}"
            flags = (*what, *flags_of(placement, job.config.run_options))
            where = str(placement.nodes), str(tasks), str(job.folder)
            yield [*where, "-m", MODULES[placement.framework], *flags]


def main(arguments: Sequence[str]) -> int:
    """Print a line for each run, in words of a shell; returns the exit code."""
    parser = argparse.ArgumentParser(prog="parity.batch sweep", description=__doc__)
    parser.add_argument("out", type=Path, help="the folder of the submission")
    parser.add_argument("index", type=int, help="of the array's element, from 0")
    options = parser.parse_args(arguments)
    try:
        for words in element(options.out, options.index):
            print_line(shlex.join(words))
    except ParityError as error:
        print_error(f"parity.batch sweep: error: {error}")
        return error.exit_code
    return 0
