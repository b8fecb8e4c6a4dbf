"""A rank that fails ends its run within the time that docs/how_to/launchers.md states, and is named."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from parity.common.base.errors import RunError
from parity.common.execution.ranks import run_ranks
from parity.common.spec import Instrumentation, Placement, RunOptions
from parity_tests.bodies.bounds import FAILS_AT, WARM
from parity_tests.helpers import ROOT
from parity_tests.helpers.matrix import small
from parity_tests.test_strategies_tensorflow import PRELOAD

TIMEOUT = 8
_ROW = re.compile(
    r"\| (?P<what>[^|]+) \| (?:`timeout_seconds`(?: \+ (?P<more>\d+) s)?|(?P<alone>\d+) s)[^|]* \|"
)
KILLED = "a rank is killed, or raises"
MEMORY = "a rank runs out of memory"
STOPPED = "a rank of PyTorch is stopped (SIGSTOP)"
HANGS = "a rank of either framework hangs"
WORKER_STOPPED = "a worker of TensorFlow is stopped (SIGSTOP)"
CASES = [
    pytest.param("torch:ddp:2", "SIGSTOP", STOPPED, "rank 1 is stopped (SIGSTOP): rank 0 ", marks=pytest.mark.slow),
    pytest.param("torch:fsdp2:2", "SIGSTOP", STOPPED, "rank 1 is stopped (SIGSTOP): ", marks=pytest.mark.exhaustive),
    pytest.param("torch:ddp:2", "hangs", HANGS, "rank 1 is stuck: rank 0 ", marks=pytest.mark.exhaustive),
    pytest.param("torch:ddp:2", "SIGKILL", KILLED, "rank 1 was killed by signal 9: ", marks=pytest.mark.exhaustive),
    pytest.param("torch:ddp:2", "memory", MEMORY, "rank 1 ended with code 1: ", marks=pytest.mark.slow),
    pytest.param("tf:multi_worker:2", "memory", MEMORY, "rank 1 ", marks=pytest.mark.exhaustive),
    pytest.param("tf:multi_worker:2", "SIGKILL", KILLED, "rank 1 was killed by signal 9: ", marks=pytest.mark.exhaustive),
    pytest.param("tf:multi_worker:2", "hangs", HANGS, "rank 1 is stuck: rank 0 ", marks=pytest.mark.slow),
    pytest.param("tf:multi_worker:2", "SIGSTOP", WORKER_STOPPED, "rank 1 is stopped (SIGSTOP): ", marks=pytest.mark.exhaustive),
]  # fmt: skip


def bounds() -> dict[str, float]:
    """The table of docs/how_to/launchers.md: seconds by what fails, with a `timeout_seconds` of TIMEOUT."""
    text = (
        (ROOT / "docs" / "how_to" / "launchers.md").read_text().partition("## How long a failure can last")[2]
    )
    rows = _ROW.finditer(text)
    return {row["what"]: float(row["alone"] or TIMEOUT + int(row["more"] or 0)) for row in rows}


@pytest.mark.waits
@pytest.mark.parametrize(("text", "how", "what", "said"), CASES)
def test_a_rank_that_fails_ends_the_run_in_time(
    tmp_path: Path, text: str, how: str, what: str, said: str
) -> None:
    placement = Placement.from_text(f"{text},timeout_seconds={TIMEOUT}")
    side = "torch" if placement.framework == "torch" else "tf"
    preload = ["torch", "parity.torch_impl.train", "sklearn.datasets"] if side == "torch" else PRELOAD
    spec = small("digits_mlp", "steps=100000", "precision=float32").resolved()
    arguments = (side, how, spec, placement, tmp_path, RunOptions(), Instrumentation())
    with pytest.raises(RunError) as caught:
        run_ranks("parity_tests.bodies.bounds:rank_one_fails", arguments, 2, tmp_path / "logs", preload, 120)
    took = time.monotonic() - float((tmp_path / "failed").read_text())
    message = str(caught.value)
    assert message.startswith(said) and "\n" not in message, message
    assert re.search(rf"; last recorded step: ({FAILS_AT - 2}|{FAILS_AT - 1})$", message), message
    assert took <= bounds()[what], (took, message)
    # Nor has anything been waited for by a thread of its own.
    for rank in range(2):
        counts = [int((tmp_path / f"threads_{rank}_{step}").read_text()) for step in (WARM, FAILS_AT)]
        assert counts[1] <= counts[0] + 2, counts


def test_each_bound_is_stated() -> None:
    found = bounds()
    assert {case.values[2] for case in CASES} <= found.keys()
    assert found[KILLED] < TIMEOUT and found[STOPPED] == TIMEOUT + 5
