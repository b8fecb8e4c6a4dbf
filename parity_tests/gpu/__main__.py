"""What a machine's GPUs make of the toolkit, as the page docs/gpu.md: see scripts/gpu_check.

Exit codes: 0 no row failed, 1 one did, 2 the check could not begin.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from parity.common.base.errors import ParityError, SpecError, did_you_mean
from parity.common.base.plain import print_error
from parity_tests.gpu import law, measured, page, precisions, rows
from parity_tests.gpu.bench import Bench

# In the order of the page.
ROWS = (*law.ROWS, *precisions.ROWS, *measured.ROWS)


def chosen(only: Sequence[str] | None) -> list[rows.Row]:
    """The rows to make, in the order of the page; raises SpecError for a name that there is not."""
    names = [row.name for row in ROWS]
    for name in only or ():
        if name not in names:
            raise SpecError(f"--only {name}: known are {', '.join(names)}{did_you_mean(name, names)}")
    return [row for row in ROWS if only is None or row.name in only]


def check(bench: Bench, only: Sequence[str] | None, out: Path) -> int:
    """Make the rows and write the page; returns the exit code.

    Raises:
        ParityError: torch is missing or too old, a row is unknown, or there is no GPU where one is to be checked.
    """
    wanted, torch = chosen(only), bench.torch
    if bench.on_gpu and not bench.gpus:
        raise SpecError("torch sees no GPU here; install a build of torch for CUDA, or give --device cpu")
    return page.write(out, page.machine(torch), list(rows.outcomes(bench, wanted)), bench.on_gpu)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the flags, make the rows, write the page; returns the exit code."""
    parser = argparse.ArgumentParser(prog="gpu_check", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=["gpu", "cpu"], default="gpu", help="what is checked [gpu]")
    parser.add_argument("--out", type=Path, default=Path("docs/gpu.md"), help="the page [docs/gpu.md]")
    names = ", ".join(row.name for row in ROWS)
    parser.add_argument("--only", nargs="+", metavar="NAME", help=f"rows to make, of {names} [all]")
    options = parser.parse_args(arguments)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="parity-gpu-") as name,
            Bench(options.device, Path(name)) as bench,
        ):
            code = check(bench, options.only, options.out)
    except ParityError as error:
        print_error(f"gpu_check: error: {error}")
        return error.exit_code
    print_error(f"gpu_check: {'a row failed' if code else 'no row failed'}; page: {options.out}")
    return code


if __name__ == "__main__":
    sys.exit(main())
