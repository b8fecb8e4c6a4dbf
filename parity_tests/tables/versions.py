"""The tests with older frameworks, as the Markdown page docs/evidence/versions.md.

python -m parity_tests.tables.versions FOLDER SET...    # makes FOLDER/SET and runs the tests there, some 20 minutes a set
python -m parity_tests.tables.versions FOLDER           # writes the page of what was run
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from parity.common.parity.budget import proof_budget
from parity.common.parity.compare import compare
from parity.common.record import read_record
from parity_tests.helpers import ROOT

SETS = {
    "oldest": ("torch==2.4.1", "tensorflow==2.16.2", "keras==3.3.3"),
    "middle": ("torch==2.8.0", "tensorflow==2.19.1", "keras==3.9.2"),
    "newest": ("torch==2.13.0", "tensorflow==2.21.0", "keras==3.15.1"),
}
# What they have in common; the published models and the engines of others are not among it.
_BESIDE = ("pyarrow<21", "numpy<2.4", "scikit-learn", "plotly", "tensorboard", "pillow")
_TESTS = (
    "build",
    "tf_keras",
    "hypothesis",
    "jsonschema",
    "pytest",
    "pytest-randomly",
    "pytest-timeout",
    "pytest-xdist",
)
_LAW = "the law: 18 specs, 200 steps in float64, every pair of placements within 1e-12"
# Feature -> the files of its tests.
FEATURES = {
    _LAW: r"test_parity_matrix",
    "trainers: strategies, ranks, sharding, failures": r"test_(strategies|runs|ranks|rank_zero|sharded|stop|supervise|launchers|collectives|compile|processes|hooks|phases|taps|clean)",
    "layers, losses, optimizers and schedules as the frameworks' own": r"test_(layers|losses|optimizers|schedules|stock_modes|conventions|reference)",
    "lower precisions": r"test_precision",
    "checkpoints, resume, inference": r"test_(checkpoint|resume|inference|state)",
    "`pair`": r"test_(pair_|pair\b|ports|port_page|external|imported|graphs|mapping_verification|zoo|two_env)",
    "`lint`, `map`": r"test_(lint|mapping)",
    "`export`": r"test_export",
    "recorders, followed runs, `check`": r"test_(recorder|followed|script)",
    "`compare`, `diagnose`, faults": r"test_(compare|diagnos|causes|fault|planted|mutants|invariants|replay)",
    "pytest plugin, Python API": r"test_(plugin|api)",
}
_ELSE = "what needs no framework, and the rest"
_MODULES, _RECIPES = ("tf_impl", "torch_impl"), ("digits_mlp", "digits_cnn", "digits_transformer")
_BETWEEN = """200 steps in float64 on one device, each set against the {last}: the verdict, and the largest deviation of the loss at any step and of the final state.

"""
_MEANING = """
## What is otherwise with older versions

- FSDP2 on a CPU begins with torch 2.7, float8 there and `torch.optim.Muon` later: refused by name.
- Keras before 3.6 has no `ops.dot_product_attention` (stock mixed precision is refused), and its attention takes its scale through float32:
  1e-8 off ours in float64. `parity pair` keeps it exact.
- Stock `fit` over several replicas (`engine=keras`) divides its loss otherwise up to Keras 3.9: `parity run` calls it divergent. Take `engine=own`.
- Penalties on activities are not divided by the batch up to Keras 3.9: `pair` compares what the installed Keras does.
- Some tests compare with a stock class, a message or a tolerance that the older version does not have.
"""
_HEAD = """# Versions of the frameworks

Written by `python -m parity_tests.tables.versions FOLDER oldest middle newest`; do not edit. Each set is installed in an environment of its
own, in which the default tests are run, and the law on all of its 18 specs. A cell: how many tests passed, of how many. On {machine}.

"""


def install(folder: Path, name: str) -> Path:
    """The Python of a set's environment, which is made if it is not there."""
    python = folder / name / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder / name], check=True)
        install = [python, "-m", "pip", "install", "--quiet", "--no-compile"]
        subprocess.run([*install, *SETS[name]], check=True)
        subprocess.run([*install, *SETS[name], *_BESIDE, *_TESTS, "-e", ROOT], check=True)
    return python


def run(folder: Path, name: str) -> None:
    """Run a set's tests; what they said lies in FOLDER/SET.*.xml, their output beside it."""
    python = install(folder, name)
    # Nothing is a failure because a program is not installed here.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("PARITY_TEST_ALL", None)
    common = [python, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider"]
    law = ["-m", "", "parity_tests/test_parity_matrix.py", "-k", "test_float64_is_proof"]
    rest = ["--dist=loadfile", "--no-loadscope-reorder", "--deselect", "parity_tests/test_parity_matrix.py"]
    for part, arguments in (("rest", rest), ("law", law)):
        result = folder / f"{name}.{part}.xml"
        with open(result.with_suffix(".log"), "w") as log:
            subprocess.run(
                [*common, *arguments, f"--junitxml={result}"],
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=log,
            )
    train(folder, name, python)
    facts = "import json, torch, tensorflow, keras, numpy, sys; print(json.dumps([sys.version.split()[0]] + [m.__version__ for m in (torch, tensorflow, keras, numpy)]))"
    said = subprocess.run([python, "-c", facts], capture_output=True, text=True, check=True).stdout
    (folder / f"{name}.json").write_text(said)


def train(folder: Path, name: str, python: Path) -> None:
    """Train the recipes on digits in each framework of a set: the records lie in FOLDER/records."""
    for module, recipe in itertools.product(_MODULES, _RECIPES):
        out = folder / "records" / f"{name}-{module}-{recipe}"
        shutil.rmtree(out, ignore_errors=True)
        call = [python, "-m", f"parity.{module}", f"--recipe={recipe}", f"--out={out}"]
        subprocess.run(
            call, check=True, cwd=folder, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )


def between(folder: Path, sets: Sequence[str]) -> Iterator[str]:
    """Rows of how far each set's trainings are from the last set's."""
    for module, recipe in itertools.product(_MODULES, _RECIPES):
        records = [folder / "records" / f"{name}-{module}-{recipe}" for name in sets]
        reference = read_record(records[-1])
        cells = []
        for path in records[:-1]:
            found = compare(reference, read_record(path), proof_budget(reference))
            far = {check.name: check.deviation for check in found.checks}
            cells.append(f"{found.verdict}: {far['loss curve']:.1e}, {far['final state']:.1e}")
        yield f"| {recipe} | {'TensorFlow' if module == 'tf_impl' else 'PyTorch'} | {' | '.join(cells)} |\n"


def outcomes(folder: Path, name: str) -> Iterator[tuple[str, str, str | None]]:
    """(feature, test, first line of why it failed or None) of a set's tests; those that were skipped are left out."""
    for part in ("law", "rest"):
        for case in ElementTree.parse(folder / f"{name}.{part}.xml").iter("testcase"):
            if case.find("skipped") is not None:
                continue
            place = f"{case.get('classname')}.{case.get('name')}"
            if part == "rest" and feature_of(place) == _LAW:
                continue  # one of its cases is among the default tests
            wrong = case.find("failure") if case.find("failure") is not None else case.find("error")
            said = None if wrong is None else f"{wrong.get('message')}\n{wrong.text or ''}"
            yield feature_of(place), place, None if said is None else _why(said)


def feature_of(place: str) -> str:
    """The feature that a test is of."""
    file = place.partition("parity_tests.")[2].partition(".")[0]
    return next((name for name, pattern in FEATURES.items() if re.match(pattern, file)), _ELSE)


def _why(message: str) -> str:
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    # pytest marks what was raised, a traceback of another process among it.
    raised = [line.removeprefix("E ").strip() for line in lines if line.startswith("E ")] or lines
    found = [
        line for line in raised if re.search(r"\w+Error: (?!.*Traceback)|^parity: error: ", line)
    ] or raised
    text = re.sub(r"/\S*/|0x\w+|\x1b\[\d*m|\(log: .*", "", found[-1])
    return re.sub(r"^(\w+\.)+", "", text)[:180].strip()


def page(folder: Path) -> str:
    """The page of the sets that were run."""
    sets = [name for name in SETS if (folder / f"{name}.json").exists()]
    versions = [json.loads((folder / f"{name}.json").read_text()) for name in sets]
    machine = f"{len(os.sched_getaffinity(0))} cores without a GPU"
    lines = [_HEAD.format(machine=machine)]
    lines.append("| | " + " | ".join(sets) + " |\n| --- |" + " --- |" * len(sets) + "\n")
    for row, label in enumerate(("Python", "PyTorch", "TensorFlow", "Keras", "NumPy")):
        lines.append(f"| {label} | " + " | ".join(each[row] for each in versions) + " |\n")
    found = [list(outcomes(folder, name)) for name in sets]
    for feature in (*FEATURES, _ELSE):
        cells = []
        for tests in found:
            own = [why for name, _, why in tests if name == feature]
            good = own.count(None)
            cells.append(f"all {good}" if good == len(own) else f"{good} of {len(own)}")
        lines.append(f"| {feature} | " + " | ".join(cells) + " |\n")
    if len(sets) > 1:
        heads = "".join(f" {name} |" for name in sets[:-1])
        lines.append(
            f"\n## Between versions\n\n{_BETWEEN.format(last=sets[-1])}| recipe | framework |{heads}\n"
        )
        lines += ["| --- | --- |" + " --- |" * len(sets[:-1]) + "\n", *between(folder, sets)]
    lines.append(_MEANING)
    for name, tests in zip(sets, found, strict=True):
        reasons = Counter(why for _, _, why in tests if why is not None)
        if reasons:
            lines.append(
                f"\n## What failed with the {name}\n\n| tests | first | why |\n| --- | --- | --- |\n"
            )
        for why, count in reasons.most_common():
            first = next(place for _, place, said in tests if said == why).rpartition("parity_tests.")[2]
            lines.append(f"| {count} | `{first[:100]}` | `{why.replace('|', '/').replace('`', '')}` |\n")
    return "".join(lines)


if __name__ == "__main__":
    where = Path(sys.argv[1]).resolve()
    where.mkdir(parents=True, exist_ok=True)
    for each in sys.argv[2:]:
        run(where, each)
    (ROOT / "docs" / "evidence" / "versions.md").write_text(page(where))
