"""As a user would: faults in the source of a copied port, and the terminal's report alone leads to each."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from parity_tests.helpers import ROOT
from parity_tests.test_report_html import Page

PORT = ("parity", "common", "tf_impl", "torch_impl")
PLACEMENTS = ("tensorflow:mirrored:1", "torch:ddp:2")
SMALL = ("steps=3", "data.eval_samples=32")


@dataclass(frozen=True)
class Planted:
    """A fault in the text of a file, and what the report must say: stage, first tensor (a pattern), cause."""

    file: str
    right: str
    wrong: str
    stage: str
    tensor: str
    cause: str


EPSILON = Planted(
    "torch_impl/layers/normalization.py",
    "self.gamma, self.beta, self.spec.epsilon)",
    "self.gamma, self.beta, 1e-5)",
    "forward",
    "forward/block_1/attend/layer_norm",
    "setting:epsilon",
)
DIVISOR = Planted(
    "torch_impl/step.py",
    "strategy.averages_over / divisor",
    "1 / divisor",
    "reduced gradients",
    "gradient/*",
    "divided_by_world_size",
)
DECAY = Planted(
    "torch_impl/optimizers/adam.py",
    "torch._foreach_mul_(second, spec.beta_2)\n    torch._foreach_addcmul_(second, gradients, gradients, 1 - spec.beta_2)",
    "torch._foreach_mul_(second, 0.99)\n    torch._foreach_addcmul_(second, gradients, gradients, 1 - 0.99)",
    "optimizer slots",
    "after/slots/second_moment/*",
    "setting:beta_2",
)


def planted(folder: Path, *faults: Planted) -> Path:
    """A copy of the port with faults in it."""
    for package in PORT:
        shutil.copytree(
            ROOT / package, folder / package, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    for fault in faults:
        path = folder / fault.file
        text = path.read_text(encoding="utf-8")
        assert text.count(fault.right) == 1, f"{fault.file} has changed: plant the fault elsewhere"
        path.write_text(text.replace(fault.right, fault.wrong), encoding="utf-8")
    return folder


def reported(port: Path) -> tuple[int, str]:
    """Exit code and standard output of a run that diagnoses itself."""
    chosen = [word for text in PLACEMENTS for word in ("--placement", text)]
    chosen += [word for text in SMALL for word in ("--set", text)]
    command = [
        sys.executable,
        "-m",
        "parity",
        "run",
        "--recipe",
        "digits_transformer",
        *chosen,
    ]
    command += ["--timing-rounds", "0", "--diagnose", "--out", "out"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=port, env=environment, capture_output=True, text=True, timeout=580)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


def findings(text: str) -> list[dict[str, str]]:
    """What the report's last part says of each defect."""
    found = []
    for block in re.split(r"\n  \d+\. ", text.split("\nWhy\n")[1])[0:]:
        if block := block.strip():
            facts = dict(re.findall(r"^     (\w+(?: \w+)?) +(.*)$", block, re.MULTILINE))
            found.append(facts | {"title": block.splitlines()[0]})
    return found


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_the_report_alone_leads_to_three_faults_at_once(tmp_path: Path) -> None:
    faults = (EPSILON, DIVISOR, DECAY)
    code, text = reported(planted(tmp_path, *faults))
    assert code == 1
    told = findings(text)
    assert len(told) == len(faults), text
    for fault, said in zip(faults, told, strict=True):
        where = re.match(r"step 0, ([^:]+): (\S+):", said["where"])
        assert where is not None, said
        assert where[1] == fault.stage
        assert fnmatchcase(where[2], fault.tensor)
        assert said["cause"].split(",")[0] == fault.cause, said
        assert said["title"].endswith("confirmed"), said
        assert said["fix"] and said["evidence"]
    assert "report: out/diagnosis_1.html" in text
    data = json.loads((tmp_path / "out" / "diagnosis_1.json").read_text())
    assert {seen["replica"] for seen in data["steps"][0]["forced"] if seen["stage"] == "forward"} == {
        None,
        0,
        1,
    }
    assert Page(tmp_path / "out" / "report.html").attribute("href") == ["diagnosis_1.html"]
