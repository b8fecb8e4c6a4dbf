"""Who may import whom, and that the two implementations are twins."""

from __future__ import annotations

import ast
import json
import pkgutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

import parity
import parity.common
from parity_tests.helpers import ROOT

FRAMEWORKS = {"tensorflow", "keras", "torch"}
# What a base installation does not have either.
EXTRAS = {"plotly", "sklearn", "tensorboard", "PIL", "pyarrow"}
# What it has, and what is loaded only where it is needed, so that commands start at once.
LAZY = {"jinja2", "scipy"}
# top-level module -> packages it must not name in an import statement, at any depth.
FORBIDDEN = {
    "common": {*FRAMEWORKS, "tf_impl", "torch_impl", "parity.tf_impl", "parity.torch_impl", "parity_tests"},
    "tf_impl": {"torch", "common", "tf_impl", "torch_impl", "parity.torch_impl", "parity_tests"},
    "torch_impl": {
        "tensorflow",
        "keras",
        "common",
        "tf_impl",
        "torch_impl",
        "parity.tf_impl",
        "parity_tests",
    },
}

IMPORT_ALL = """
import importlib, json, sys
blocked = set(json.loads(sys.argv[1]))
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Block())
for name in json.loads(sys.argv[2]):
    importlib.import_module(name)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def import_all(modules: list[str], blocked: set[str]) -> subprocess.CompletedProcess[str]:
    arguments = [json.dumps(sorted(blocked)), json.dumps(modules)]
    command = [sys.executable, "-W", "error", "-c", IMPORT_ALL, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=100)


def common_modules() -> list[str]:
    walked = pkgutil.walk_packages(parity.common.__path__, "parity.common.")
    return ["parity.common", *(module.name for module in walked)]


def test_common_imports_without_frameworks_and_without_extras() -> None:
    modules = common_modules()
    assert {
        "parity.common.commands.cli",
        "parity.common.parity.compare",
        "parity.common.report.html.comparison",
        "parity.common.execution.session",
    } <= set(modules)
    done = import_all(modules, FRAMEWORKS | EXTRAS)
    assert done.returncode == 0, done.stderr


def test_common_does_not_load_what_is_installed_either() -> None:
    done = import_all(common_modules(), set())
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout))
    assert "numpy" in loaded and not loaded & (
        FRAMEWORKS | EXTRAS | LAZY | {"common", "tf_impl", "torch_impl"}
    )


def test_a_blocked_import_is_seen() -> None:
    done = import_all(["parity.common.state.canonical"], {"safetensors"})
    assert done.returncode == 1 and "safetensors" in done.stderr


def imported(source: str) -> set[str]:
    """Packages of all import statements, those inside functions too: the top-level ones, and of ours the halves."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {_package(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(_package(node.module))
    return found


def _package(module: str) -> str:
    return ".".join(module.split(".")[: 2 if module.startswith("parity.") else 1])


@pytest.mark.parametrize("package", FORBIDDEN)
def test_imports_point_one_way(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert len(files) > 10
    found = {str(file.relative_to(ROOT)): imported(file.read_text()) & FORBIDDEN[package] for file in files}
    assert {name: names for name, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import torch", {"torch"}),
        ("import torch.nn as nn, os", {"torch", "os"}),
        ("from torch.nn import functional", {"torch"}),
        ("def f():\n    from keras import ops", {"keras"}),
        ("from . import torch", set()),
        ("torch = 'import torch'", set()),
        ("from parity.tf_impl.train import train", {"parity.tf_impl"}),
    ],
)
def test_imports_are_found(source: str, names: set[str]) -> None:
    assert imported(source) == names


# What a package of `common` may import stands before it; those of one line belong to one layer.
LAYERS = (
    ("base",),
    ("spec", "recipes"),
    ("data", "reference", "state"),
    ("record", "checkpoint"),
    ("execution",),
    ("scaling", "parity"),
    ("diagnosis",),
    ("external",),
    ("planning",),
    ("report", "assertions", "commands"),
)
# Imports that still point upward, by file: each is to go.
UPWARD: set[tuple[str, str]] = set()


def packages_imported(source: str) -> set[str]:
    """Packages of `common` that a module imports from, inside functions and for type checkers too."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and f"{node.module}.".startswith("parity.common.")
        ):
            names = (
                [node.module.split(".")[2]] if node.module.count(".") > 1 else [a.name for a in node.names]
            )
            found |= set(names)
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[2] for a in node.names if a.name.startswith("parity.common.")}
    return found


def upward(files: dict[str, str]) -> set[tuple[str, str]]:
    """(file, package) of each import of a package that does not stand before the file's own."""
    order = [package for layer in LAYERS for package in layer]
    found = set()
    for name, source in files.items():
        own = name.split("/")[0]
        found |= {
            (name, other)
            for other in packages_imported(source) - {own}
            if order.index(other) > order.index(own)
        }
    return found


def test_layers_of_common_import_downward_only() -> None:
    files = files_of("common")
    assert {name.split("/")[0] for name in files} - {"__init__.py"} == {p for layer in LAYERS for p in layer}
    del files["__init__.py"]
    assert upward(files) == UPWARD


def test_an_import_of_a_higher_layer_is_found() -> None:
    source = "def f():\n    from parity.common.report.files import to_json"
    assert upward({"base/x.py": source}) == {("base/x.py", "report")}
    assert upward({"base/x.py": "from parity.common import recipes"}) == {("base/x.py", "recipes")}
    assert upward({"commands/x.py": source, "report/y.py": source}) == set()


# Twins. Names are 'file: function' and 'file: Class.method'; values are parameters in order.
Signatures = dict[str, tuple[str, ...]]
# Folders with a file for each thing that only one framework has.
OF_ONE_FRAMEWORK = ("strategy/", "engines/", "recorders/")
FIELDS = ("<fields>",)

# Known differences between the twins, each with its reason. An entry that is no longer true fails.
LEDGER: dict[str, str] = {
    "stock.py: (file)": "a Keras file holds a whole model, made of stock layers; stock torch modules are the user's",
    "stock_sequences.py: (file)": "as stock.py: (file)",
    "model.py: local": "only torch shards a tensor",
    "model.py: CanonicalTensor": "torch stores kernels in its own layout, TensorFlow in the canonical one",
    "model.py: CanonicalTensor.live": "as CanonicalTensor",
    "model.py: CanonicalTensor.shard": "as CanonicalTensor",
    "model.py: CanonicalTensor.gather": "as CanonicalTensor",
    "model.py: CanonicalTensor.to_canonical": "as CanonicalTensor",
    "model.py: Model.native": "an imported torch module has names and layouts of its own; Keras's are the canonical ones",
    "model.py: Model.canonical": "as Model.native",
    "model.py: Model.canonical_gradients": "as Model.native",
    "model.py: Model.own_rules": "as Model.native",
    "layers/registry.py: native_layout": "torch stores kernels in its own layout, TensorFlow in the canonical one",
    "layers/registry.py: register": "torch's also takes the layout of each tensor; see native_layout",
    "layers/core.py: gelu": "TensorFlow's own loses precision in float64",
    "model.py: CanonicalTensor.whole": "as CanonicalTensor",
    "model.py: CanonicalTensor.part": "as CanonicalTensor",
    "model.py: CanonicalTensor.held": "as CanonicalTensor",
    "engines/__init__.py: build": "each framework's engines differ in what they take over: Keras the step",
    "engines/__init__.py: run": "as build: Lightning takes the loop",
    "engines/__init__.py: spawn": "as build: Lightning also starts ranks",
    "engines/__init__.py: starts_ranks": "as spawn",
    "engines/__init__.py: strategy_of": "as build: Fabric and Accelerate take the backward pass",
    "engines/__init__.py: versions": "only torch's engines are packages of their own",
    "optimizers/base.py: Optimizer.loaded": "DeepSpeed keeps its own copy of the weights",
    "step.py: Step.loss": "a torch engine calls the parts of a step; a TensorFlow step is one graph",
    "step.py: Step.micro_batches": "as Step.loss",
    "step.py: Step.finish": "as Step.loss",
    "step.py: Step.gradients": "as Step.loss",
    "step.py: Step.reduced": "as Step.loss",
    "data.py: joined": "steps_per_call is TensorFlow's alone",
    "sharded_checkpoint.py: (file)": "only torch's ranks hold parts that all of them write",
    "step.py: Steps": "as data.py: joined",
    "step.py: apart": "as data.py: joined",
    "runtime.py: launching_ahead": "PyTorch's calls return before they are done on GPUs, and only there",
    "probe.py: Probe.taken": "TensorFlow traces a step that is looked into for some seconds, torch traces none",
    "taps.py: StepTaps.activations": "a part of TensorFlow's graph; torch's hooks see a gradient as it arises",
    "taps.py: StepTaps.watched": "as StepTaps.activations",
    "taps.py: StepTaps.zeros": "as StepTaps.activations",
    "taps.py: StepTaps.values": "as StepTaps.activations",
    "strategy/base.py: Strategy.wholes": "only torch shards a tensor",
    "optimizers/base.py: Update": "TensorFlow updates tensor by tensor, torch all at once (foreach)",
    "optimizers/base.py: Update.decayed": "as Update: a list of tensors is computed where a rule asks for it",
    "context.py: Context": "only torch's layers may be computed again for the backward pass",
    "context.py: Context.again": "as Context",
    "model.py: CanonicalTensor.shape": "as CanonicalTensor",
    "model.py: CanonicalTensor.shards": "a torch rank may hold shards",
    "model.py: Shards": "a torch rank may hold shards",
    "model.py: Shards.part": "a torch rank may hold shards",
    "model.py: gather_all": "a torch rank may hold shards",
    "optimizers/base.py: Optimizer.layout": "slots of a torch rank may be divided otherwise than their parameters",
    "optimizers/base.py: changes_of": "shared by Optimizer and RuleOptimizer, which only torch has",
    "optimizers/base.py: average_into": "as changes_of",
    "optimizers/base.py: Optimizer.join": "torch updates all tensors at once, as one where it can",
    "optimizers/base.py: Optimizer.apart": "as Optimizer.join",
    "optimizers/base.py: Optimizer.weights": "as Optimizer.join",
    "step.py: added": "as Step.loss",
    "strategy/base.py: Strategy.begin_sum": "a torch rank goes on while a message is on its way",
    "strategy/base.py: Strategy.begin_sum_shards": "as Strategy.begin_sum",
    "strategy/base.py: Strategy.begin_norms": "as Strategy.begin_sum",
    "strategy/base.py: Strategy.begin_sum_with_gradients": "as Strategy.begin_sum",
    "strategy/base.py: Strategy.sums_with_gradients": "TensorFlow's replicas share a process or pack their messages",
    "optimizers/rule.py: (file)": "wrappers of torch want a torch.optim.Optimizer",
    "optimizers/zero.py: (file)": "ZeroRedundancyOptimizer is torch's",
    "strategy/base.py: Strategy.tensor_norms": "a torch rank may hold shards, so norms need a reduction",
    "strategy/base.py: Strategy.sum_shards": "a torch rank may hold shards",
    "strategy/base.py: Strategy.counts": "of what torch ranks share, some is whole on all of them",
    "strategy/base.py: Strategy.reshard": "FSDP keeps whole parameters after a forward pass alone",
    "strategy/base.py: Strategy.distribute": "one TensorFlow process holds all replicas' values, a torch rank its own",
    "strategy/base.py: Strategy.unpack": "one TensorFlow process holds all replicas' values, a torch rank its own",
    "strategy/base.py: Strategy.by_replica": "one torch process may hold several replicas' samples, or speak for none",
    "strategy/base.py: Strategy.wrap": "DDP and FSDP wrap a module; MirroredStrategy is a scope around building it",
    "strategy/base.py: Strategy.norms": "a torch rank may hold shards, so norms need a reduction",
    "strategy/base.py: Strategy.accumulating": "DDP and FSDP reduce gradients within the backward pass, unless told not to",
    "strategy/base.py: Strategy.backward": "a wrapper may want to run the backward pass itself",
    "strategy/base.py: Strategy.reduced": "a torch step sees gradients that a wrapper has already averaged",
    "strategy/base.py: Strategy.mesh_of": "torch's groups of ranks are meshes",
    "recorder.py: Recorder.step": "a TensorFlow loop without an optimizer of Keras's has its gradients at hand; in torch parameters have them",
    "recorder.py: Recorder.gradients": "a torch loop clips before its optimizer, Keras's optimizer clips itself",
    "recorder.py: Recorder.before_update": "only torch's optimizers take a closure",
    "recorder.py: RecorderCallback": "fit is Keras's; the callbacks of torch's libraries are in recorders/",
    "recorder.py: RecorderCallback.on_train_begin": "as RecorderCallback",
    "recorder.py: RecorderCallback.on_train_batch_end": "as RecorderCallback",
    "recorder.py: RecorderCallback.on_train_end": "as RecorderCallback",
}


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[str, ...]:
    given = function.args
    names = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    stars = [f"*{a.arg}" for a in (given.vararg,) if a] + [f"**{a.arg}" for a in (given.kwarg,) if a]
    return (*names, *stars)


def public(file: str, source: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Public functions, classes, their methods and their fields."""
    for node in ast.parse(source).body:
        name = getattr(node, "name", "_")
        if name.startswith("_"):
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{file}: {name}", parameters(node)
        # A layer class is the framework's own; the others are ours.
        elif isinstance(node, ast.ClassDef) and not file.startswith("layers/"):
            fields = [part.target for part in node.body if isinstance(part, ast.AnnAssign)]
            yield f"{file}: {name}", (*FIELDS, *(ast.unparse(field) for field in fields))
            for part in node.body:
                if isinstance(part, ast.FunctionDef) and not part.name.startswith("_"):
                    yield f"{file}: {name}.{part.name}", parameters(part)


def signatures(files: dict[str, str]) -> Signatures:
    return {name: value for file, source in files.items() for name, value in public(file, source)}


def differences(ours: dict[str, str], theirs: dict[str, str]) -> dict[str, str]:
    """What is not the same on both sides, by name."""
    one_sided = {file for file in set(ours) ^ set(theirs) if not file.startswith(OF_ONE_FRAMEWORK)}
    found = {f"{file}: (file)": "only on one side" for file in one_sided}
    both = set(ours) & set(theirs)
    a, b = (signatures({file: side[file] for file in both}) for side in (ours, theirs))
    for name in {*a, *b}:
        if a.get(name) != b.get(name):
            found[name] = f"{a.get(name, 'absent')} and {b.get(name, 'absent')}"
    return found


def verdict(found: dict[str, str], ledger: dict[str, str]) -> list[str]:
    """Differences that the ledger does not name, and entries that are no longer true."""
    unnamed = [f"{name}: {what}" for name, what in found.items() if name not in ledger]
    stale = [f"{name}: the same now, remove it from the ledger" for name in ledger if name not in found]
    return sorted(unnamed + stale)


def files_of(package: str) -> dict[str, str]:
    folder = ROOT / package
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.py")}


def test_the_twins_are_twins() -> None:
    found = differences(files_of("tf_impl"), files_of("torch_impl"))
    assert verdict(found, LEDGER) == []
    assert "train.py: train" in signatures(files_of("tf_impl"))


def test_the_ledger_excuses_what_it_names_and_nothing_else() -> None:
    found = {"a.py: f": "x and y"}
    assert verdict(found, {"a.py: f": "why"}) == []
    assert verdict(found, {}) == ["a.py: f: x and y"]
    assert verdict({}, {"a.py: f": "why"}) == ["a.py: f: the same now, remove it from the ledger"]
    assert all(reason.strip() for reason in LEDGER.values())


TWIN = """
def step(batch, scalars, *, recording=False): ...
def _own(x): ...
class Result:
    numbers: int
    def close(self): ...
    def _own(self): ...
"""


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("batch, scalars", "scalars, batch", {"a.py: step"}),
        ("scalars", "numbers", {"a.py: step"}),
        (", *, recording=False", "", {"a.py: step"}),
        ("def step", "def stepp", {"a.py: step", "a.py: stepp"}),
        ("numbers: int", "number: int", {"a.py: Result"}),
        ("def close(self)", "def close(self, now)", {"a.py: Result.close"}),
        ("def close", "def shut", {"a.py: Result.close", "a.py: Result.shut"}),
        ("class Result", "class _Result", {"a.py: Result", "a.py: Result.close"}),
        ("def _own(x)", "def _mine(y)", set()),
        ("recording=False", "recording=True", set()),
        ("numbers: int", "numbers: float", set()),
    ],
)
def test_a_difference_between_twins_is_found(old: str, new: str, found: set[str]) -> None:
    assert old in TWIN
    assert set(differences({"a.py": TWIN}, {"a.py": TWIN.replace(old, new)})) == found


def test_a_file_on_one_side_only_is_found() -> None:
    assert set(differences({"a.py": TWIN}, {"a.py": TWIN, "b.py": ""})) == {"b.py: (file)"}
    assert differences({"a.py": TWIN}, {"a.py": TWIN, "strategy/b.py": ""}) == {}
    classes = TWIN.replace("Result", "Other")
    assert differences({"layers/core.py": TWIN}, {"layers/core.py": classes}) == {}, (
        "layer classes may differ"
    )
