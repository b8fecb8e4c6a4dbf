"""What the pages for users show, run: every command, and every piece of Python, in a folder that has what its reader has.

The tutorials are walked through elsewhere (test_port_page.py), the README in test_api.py, pytest.md in test_plugin.py.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from parity_tests.helpers import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(page for part in ("how_to", "explanation", "reference") for page in (DOCS / part).glob("*.md"))
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_OURS = re.compile(r"(^|[ ;])(parity (?!\u2713|\u2717)|python -m parity|torchrun|pytest)")

# What cannot run on one machine, or not as it stands there, and where it does run.
ELSEWHERE = {
    r" \.\.\.": "left out in part; test_site.py reads its flags, test_launchers.py starts its like",
    r"^(sbatch|srun|tail|slurm/cluster|GPUS=|git clone|conda|pip|scripts/setup|PARITY_TORCH=|export|#|\. )": (
        "sets up a machine or needs a cluster: test_slurm.py, test_launchers.py, test_wheel.py, CI"
    ),
    r"^parity (submit|status)(?!.*--dry-run)": "needs a cluster: test_slurm.py",
    r"^parity (compare|diagnose) runs/(keras|reference)": "of recorded scripts: test_recorder.py, test_followed.py",
    r"--device gpu|--ranks 8": "needs GPUs",
    r"^pytest -q -m parity": "its package is another's: test_plugin.py",
    r"\bIMAGE\b": "needs a cluster: test_manifest.py",
}

MODELS = """
import keras
from keras import layers

def build():
    inputs = keras.Input((12,))
    return keras.Model(inputs, layers.Dense(3, name="head")(layers.Dense(8, "relu", name="body")(inputs)))

def adam():
    return keras.optimizers.Adam(1e-3)
"""
PORT = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(12, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.body(x).relu())

def adam(parameters):
    return torch.optim.Adam(parameters, 1e-3)
"""
CHAT = """
import keras
from keras import layers

def build():
    tokens, features = keras.Input((7,), dtype="int32", name="tokens"), keras.Input((4,), name="features")
    x = layers.Concatenate()([layers.Flatten()(layers.Embedding(20, 3, name="embed")(tokens)), features])
    outputs = {name: layers.Dense(size, name=name)(x) for name, size in (("intent", 5), ("urgency", 1))}
    return keras.Model({"tokens": tokens, "features": features}, outputs)
"""
CHAT_PORT = """
import torch
from torch import nn

class Chat(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.intent, self.urgency = nn.Embedding(20, 3), nn.Linear(25, 5), nn.Linear(25, 1)

    def forward(self, tokens, features):
        x = torch.cat([self.embed(tokens).flatten(1), features], -1)
        return {"intent": self.intent(x), "urgency": self.urgency(x)}
"""
SAMPLES = """
import numpy as np
random = np.random.default_rng(0)
for name in ("my", "samples"):
    np.savez(f"{name}.npz", x=random.normal(size=(128, 12)), y=random.integers(0, 3, 128))
words = dict(tokens=random.integers(0, 20, (128, 7)), features=random.normal(size=(128, 4)))
np.savez("chat.npz", **words, intent=random.integers(0, 5, 128), urgency=random.normal(size=(128, 1)))
"""
TRAINED = """
import numpy as np
from my_pkg.models import adam, build
model = build()
model.compile(adam(), "mse")
model.fit(np.ones((32, 12)), np.ones((32, 3)), verbose=0)
model.save("model.keras")
"""
# What the pieces of Python of a page stand in, by page: "" is what all of them begin with.
AROUND = {
    "recorders": ("", *[None] * 6),  # test_recorder.py
    "export": (
        "import torch",
        """
from my_pkg.port import Net, adam
model = Net()
optimizer = adam(model.parameters())
#HERE
""",
    ),
    "checkpoints": (
        "import torch",
        """
inputs = torch.zeros(2, 8, 8, 1)
#HERE
assert outputs.shape == (2, 10)
""",
        None,  # "and so on, layer by layer"
    ),
    "check": ("", "#HERE"),
    "ci": (
        "import os, shutil, subprocess, sys",
        """
os.mkdir("tests")
shutil.copy("samples.npz", "tests")
with open("tests/test_port.py", "w") as file:
    file.write('''#HERE''')
subprocess.run([sys.executable, "-m", "pytest", "-q", "-m", "parity"], check=True)
""",
    ),
    "diagnosis": ("", None),  # how a cause is listed
    "faq": (
        "import torch\nfrom torch import nn",
        """
#HERE
norm, x = KerasBatchNorm(3, eps=1e-3, momentum=0.01), torch.randn(4, 3, 5, 5)
assert torch.allclose(norm(x), nn.BatchNorm2d(3, eps=1e-3)(x))
assert torch.allclose(norm.running_var, 0.99 + 0.01 * x.var((0, 2, 3), unbiased=False))
""",
        """
#HERE
weight, m, v, due = nn.Parameter(torch.ones(1, dtype=torch.float64)), 0.0, 0.0, 1.0
optimizer = KerasAdam([weight], 1e-3, eps=1e-7)
for t, g in enumerate((1e-6, -3e-7, 2e-6), 1):
    weight.grad = torch.full_like(weight, g)
    optimizer.step()
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    due -= 1e-3 * (1 - 0.999**t) ** 0.5 / (1 - 0.9**t) * m / (v**0.5 + 1e-7)
    assert abs(weight.item() - due) < 1e-15
""",
        """
#HERE
def after(optimizer):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Embedding(5, 3), keras.layers.Flatten(), keras.layers.Dense(1)])
    x, y = tf.constant([[1, 1, 1, 2], [3, 2, 3, 4]]), tf.constant([[1.0], [2.0]])
    before = model.get_weights()[0][1]
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2)
    slope = tf.convert_to_tensor(tape.gradient(loss, model.trainable_variables)[0])[1]
    model.compile(optimizer, "mse", run_eagerly=True)
    model.fit(x, y, epochs=1, verbose=0)
    # Adam's first update is the sign of the gradient, as far as it squares what it is given.
    return float(tf.reduce_max(tf.abs((before - model.get_weights()[0][1]) / 0.01 - tf.sign(slope))))
assert after(DenseAdam(0.01)) < 1e-2 < after(keras.optimizers.Adam(0.01))
""",
        """
#HERE
optimizer, scheduler = warmed_up([nn.Parameter(torch.ones(1))])
assert abs(optimizer.param_groups[0]["lr"] - 1e-5) < 1e-18
""",
    ),
    "own_ddp_script": (
        "",
        """
import subprocess, sys
with open("train.py", "w") as file:
    file.write(r'''#HERE''')
subprocess.run([sys.executable, "train.py", "runs/single"], check=True)
""",
    ),
    "notebook": (
        "",
        "#HERE",
        """
#HERE
assert (found.verdict, found.exit_code, found.tables) == ("divergent", 1, ("findings", "tensors"))
assert list(findings["fix"]) == ["in torch: negative_slope=0.3"] and page.stat().st_size > 10_000
assert "negative_slope=0.3" in found._repr_html_() and found.mapping.tensors
""",
        *("#HERE\nassert found.verdict == 'divergent'",) * 2,
        "#HERE\nassert parity.check('runs/cell').exit_code == 0",
    ),
    "pytest": ("", None, None),  # test_plugin.py
    "two_environments": (
        "",
        *["#HERE"] * 2,
        """
#HERE
from parity import compare
assert compare("runs/keras", "runs/torch").verdict == "parity"
""",
        """
#HERE
from pathlib import Path
from parity.common.record import read_record
initial = read_record(Path("runs/keras")).state("initial")
assert torch.equal(model.head.weight.detach().T, torch.from_numpy(initial["tensors/head/kernel"]))
""",
    ),
    "record": (
        "",
        """
#HERE
write(Path("mine"), [1.0, 0.5], 8)
write(Path("other"), [1.0, 0.5], 8)
from parity import compare
assert compare("mine", "other").verdict == "parity"
""",
    ),
}
# Whose pieces of Python are cells of one session.
SESSIONS = ("notebook",)
# Whose YAML is a file, named in its first line.
FILES = ("two_environments",)
INSTEAD = {
    # Half an hour on a machine that does something else, too.
    r"^(parity scale .*--rounds) 7": r"\1 3",
    r"\bRUN\b": "runs/long",
    # Two hours on a processor that computes in bfloat16 by emulation.
    r"^(parity study --recipe) digits_cnn(.*) --seeds 20": r"\1 digits_mlp\2 --seeds 5",
}
# What its reader has: run one after another.
READER = (
    "parity pair --keras my_pkg.models:build --torch my_pkg.port:Net --data my.npz --steps 5 --out runs/pair",
    "cp runs/pair/mapping.yaml . && rm -r runs/pair",
    "python trained.py",
    *(
        f"python -m parity.torch_impl --recipe digits_mlp --set steps=30 --out {name}"
        for name in ("runs/a", "my_record", "reference")
    ),
    "python -m parity.torch_impl --recipe digits_mlp --set steps=30 --strategy ddp --replicas 2 --out candidate",
    "cp -r candidate other_record; cp -r candidate runs/b",
    "parity show digits_mlp --format yaml > my.yaml && cp my.yaml mine.yaml",
)
# What only one page's reader has.
BEFORE = {
    "checkpoints": "rm model.keras && python -m parity.torch_impl --recipe digits_cnn --out runs/straight",
    "scaling": "for version in 2.13 2.14; do parity scale digits_mlp --set steps=30 --placement torch:ddp --replicas 1,2 --rounds 3"
    " --out runs/torch-$version; [ $? -ne 2 ] || exit 1; done",
    "share": "parity run digits_mlp --set steps=30 --placement torch:single:1 --placement torch:ddp:2 --out runs/digits_cnn",
}


def pieces(page: Path) -> Iterator[str]:
    """What a page shows, as commands of bash, in its order."""
    first, *around = AROUND.get(page.stem, ("",))
    session: list[str] = []
    for language, block in _FENCE.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            outer = around.pop(0)
            if outer is not None:
                code = first + outer.replace("#HERE", block)
                session.append(code)
                if page.stem not in SESSIONS:
                    yield f"python - <<'END'\n{code}\nEND\n"
        elif language == "yaml" and page.stem in FILES:
            yield f"cat > {block.partition(chr(10))[0].removeprefix('# ')} <<'END'\n{block}END\n"
        elif language == "ipython":
            magic, _, written = block.partition("\n")
            yield f"cat > {magic.removeprefix('%%writefile ')} <<'END'\n{written}END\n"
        elif language in ("", "sh", "console"):
            yield from (line for line in lines(language, block) if not elsewhere(line))
    if page.stem in SESSIONS:
        yield "python - <<'END'\n{}\nEND\n".format("\n".join(session))
    assert not around, f"{page}: has {len(around)} blocks of Python fewer than are listed here"


def lines(language: str, block: str) -> list[str]:
    """The commands of a block, each on a line."""
    shown = [line.strip() for line in block.replace("\\\n", " ").splitlines()]
    if language == "console":
        shown = [line.removeprefix("$ ") for line in shown if line.startswith("$ ")]
    for pattern, instead in INSTEAD.items():
        shown = [re.sub(pattern, instead, line) for line in shown]
    return [line for line in shown if _OURS.search(line)]


def elsewhere(line: str) -> bool:
    return any(re.search(pattern, line) for pattern in ELSEWHERE)


def environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}:."}


def run(command: str, folder: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1500,
    )
    # 3: speedups that this machine is too noisy for.
    inconclusive = re.match("parity (scale|run|study|report|compare --baseline)", command) is not None
    due = {0, 3} if inconclusive else {0}
    if command == "parity check runs/mine":
        due = {1}  # of the script with a mistake
    assert done.returncode in due, f"$ {command}\n{done.stdout[-3000:]}"


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reader")
    files = {"my_pkg/models": MODELS, "my_pkg/port": PORT, "trained": TRAINED, "samples": SAMPLES}
    files |= {"chat/keras_side": CHAT, "chat/torch_side": CHAT_PORT}
    for name, text in files.items():
        (folder / f"{name}.py").parent.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(text)
    for command in ("python samples.py", *READER):
        run(command, folder)
    return folder


SHOWN = [page for page in PAGES if any(pieces(page))]


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("page", SHOWN, ids=lambda page: page.stem)
def test_what_a_page_shows_runs(page: Path, reader: Path, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    shutil.copytree(reader, folder)
    for command in (BEFORE.get(page.stem, "true"), *pieces(page)):
        run(command, folder)


def test_what_runs_elsewhere_is_little() -> None:
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    assert sum(len(list(pieces(page))) for page in PAGES) > 35
    for pattern in ELSEWHERE:
        assert any(re.search(pattern, line) for text in texts for line in text.splitlines()), pattern


def test_a_command_that_fails_is_seen(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="no_recipe"):
        run("parity show no_recipe", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("```sh\nparity show x \\\n  --json\npip install torch\n```\n")
    assert list(pieces(page)) == ["parity show x    --json"]
