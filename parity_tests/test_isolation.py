"""Who may import whom, and that the two implementations are twins."""

from __future__ import annotations

import ast
import functools
import json
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import parity
import parity.common
from parity_tests.helpers import ROOT

FRAMEWORKS = {"tensorflow", "keras", "torch"}
# What a base installation does not have either.
EXTRAS = {"plotly", "sklearn", "tensorboard", "wandb", "mlflow", "PIL", "pyarrow"}
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
        "parity.common.commands.main",
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


@functools.cache
def parsed(source: str) -> ast.Module:
    return ast.parse(source)


def imported(source: str) -> set[str]:
    """Packages of all import statements, those inside functions too: the top-level ones, and of ours the halves."""
    found = set()
    for node in ast.walk(parsed(source)):
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
    ("scaling", "parity", "study"),
    ("diagnosis",),
    ("external",),
    ("planning",),
    ("report", "assertions", "api", "commands"),
)
# Imports that still point upward, by file: each is to go.
UPWARD: set[tuple[str, str]] = set()


def packages_imported(source: str) -> set[str]:
    """Packages of `common` that a module imports from, inside functions and for type checkers too."""
    found = set()
    for node in ast.walk(parsed(source)):
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
# What one side has alone stands in these folders, which hold nothing that both have.
OF_ONE_FRAMEWORK = {
    "strategy/": "a class for each strategy; base.py is what both share",
    "engines/": "an engine for each trainer of others",
    "recorders/": "callbacks of the trainers of others: Keras's fit; Lightning, Transformers and Accelerate",
    "graphs/": "TensorFlow traces a step as a graph, which is called with plain tensors, also several at once",
    "legacy/": "models of Keras 2 are made again in Keras 3; torch has modules of one kind",
    "stock/": "a Keras file holds a whole model, made of stock layers; stock torch modules are the user's",
    "sharding/": "a torch rank may hold parts of tensors",
    "native/": "torch has names and layouts of its own; Keras's are the canonical ones",
    "external/experiments/": "torch's functions are called otherwise, its code is edited, its gradients put on other ways; Keras's are the reference",
    "wrapped/": "torch's wrappers want optimizers of their kind, and tensors as few pieces",
}
FIELDS = ("<fields>",)
# Of the public names and methods of twin files, with their parameters, so many must be equal.
EQUAL_SHARE = 0.95

# Known differences between the twins, each with its reason. An entry that is no longer true fails.
LEDGER: dict[str, str] = {
    "external/built_lines.py: (file)": "torch builds no graph before it runs",
    "external/dropped.py: (file)": "torch's dropout is a function, called anywhere; Keras has layers for it",
    "external/outline.py: penalty_of": "torch's tensors have no regularizers",
    "external/widening.py: wide": "torch has a mode in which calls are changed; in TensorFlow functions are, by who calls them",
    "engines/__init__.py: engine_of": "torch has several engines besides its own loop, TensorFlow has one",
    "layers/core.py: gelu": "TensorFlow's own loses precision in float64",
    "layers/registry.py: register": "torch's also takes the native layout of each tensor",
    "optimizers/base.py: Update": "TensorFlow updates tensor by tensor, torch all at once (foreach)",
    "optimizers/base.py: Update.decayed": "as Update: a list of tensors is computed where a rule asks for it",
    "recorder.py: Recorder.step": "a TensorFlow loop without an optimizer of Keras's has its gradients at hand; in torch parameters have them",
    "recorder.py: Recorder.gradients": "a torch loop clips before its optimizer, Keras's optimizer clips itself",
    "recorder.py: Recorder.before_update": "only torch's optimizers take a closure",
    "recorder.py: Recorder.__init__": "a torch recorder is told whether its ranks train together; a TensorFlow strategy says so",
    "step.py: Step.finish": "a torch engine with a loop of its own makes the passes; TensorFlow's makes the whole step",
}


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[str, ...]:
    given = function.args
    names = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    stars = [f"*{a.arg}" for a in (given.vararg,) if a] + [f"**{a.arg}" for a in (given.kwarg,) if a]
    return (*names, *stars)


def public(file: str, source: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Public functions, classes, their constructors, methods and fields, with those of a base class in `common`."""
    if file == "private_names.py":
        return  # what one framework hides, the other need not have
    tree = parsed(source)
    # A function of the module that looks its names up is no name of its own.
    for node in tree.body:
        name = getattr(node, "name", "_")
        for made in registered(node):
            yield f"{file}: {made}", FIELDS
        # What makes a layer is found by its spec alone: a class on one side may be a function on the other.
        if name.startswith("_") or (registered(node) and file.startswith("layers/")):
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{file}: {name}", parameters(node)
        # A layer class is the framework's own; the others are ours.
        elif isinstance(node, ast.ClassDef) and not file.startswith("layers/"):
            fields = [part.target for part in node.body if isinstance(part, ast.AnnAssign)]
            yield f"{file}: {name}", (*FIELDS, *(ast.unparse(field) for field in fields))
            own = dict(methods(node))
            for base in node.bases:
                own = {**inherited(tree, ast.unparse(base)), **own}
            for method, given in own.items():
                yield f"{file}: {name}.{method}", given


def registered(node: ast.stmt) -> list[str]:
    """The specs whose layer, or whose rule, a class or a function is."""
    decorators = [call for call in getattr(node, "decorator_list", ()) if isinstance(call, ast.Call)]
    calls = [call for call in decorators if ast.unparse(call.func) == "register"]
    return [f"register {ast.unparse(kind)}" for call in calls for kind in call.args]


def methods(node: ast.ClassDef) -> Iterator[tuple[str, tuple[str, ...]]]:
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and (part.name == "__init__" or not part.name.startswith("_")):
            yield part.name, parameters(part)


def inherited(tree: ast.Module, base: str) -> Signatures:
    """The methods of a class that a module imports from `common`."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and base in {alias.name for alias in node.names}:
            if not (node.module or "").startswith("parity.common."):
                continue
            path = (ROOT / Path(*str(node.module).split(".")[1:])).with_suffix(".py")
            if path.exists():
                found = parsed(path.read_text()).body
                return next(
                    (dict(methods(x)) for x in found if isinstance(x, ast.ClassDef) and x.name == base), {}
                )
    return {}


def signatures(files: dict[str, str]) -> Signatures:
    return {name: value for file, source in files.items() for name, value in public(file, source)}


def of_both(ours: dict[str, str], theirs: dict[str, str]) -> tuple[Signatures, Signatures]:
    """The signatures of the files that both sides have."""
    both = set(ours) & set(theirs)
    a, b = (signatures({file: side[file] for file in both}) for side in (ours, theirs))
    return a, b


def differences(ours: dict[str, str], theirs: dict[str, str]) -> dict[str, str]:
    """What is not the same on both sides, by name."""
    alone = tuple(OF_ONE_FRAMEWORK)
    one_sided = {file for file in set(ours) ^ set(theirs) if not file.startswith(alone)}
    found = {f"{file}: (file)": "only on one side" for file in one_sided}
    a, b = of_both(ours, theirs)
    for name in {*a, *b}:
        if a.get(name) != b.get(name):
            found[name] = f"{a.get(name, 'absent')} and {b.get(name, 'absent')}"
    return found


def equal_share(ours: dict[str, str], theirs: dict[str, str]) -> float:
    """Of the names in files of both sides, and of the files that only one has, the part that is equal."""
    a, b = of_both(ours, theirs)
    found = differences(ours, theirs)
    files = sum(name.endswith(": (file)") for name in found)
    return 1 - len(found) / (len({*a, *b}) + files)


def verdict(found: dict[str, str], ledger: dict[str, str]) -> list[str]:
    """Differences that the ledger does not name, and entries that are no longer true."""
    unnamed = [f"{name}: {what}" for name, what in found.items() if name not in ledger]
    stale = [f"{name}: the same now, remove it from the ledger" for name in ledger if name not in found]
    return sorted(unnamed + stale)


def files_of(package: str) -> dict[str, str]:
    folder = ROOT / package
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.py")}


def test_what_a_framework_hides_is_imported_in_one_module() -> None:
    hidden = re.compile(
        r"(?:from|import) (?:keras\.src|tensorflow\.python|torch(?:\.\w+)*\._\w+|torch\.distributed\.tensor )"
    )
    sides = {side: files_of(side) for side in ("tf_impl", "torch_impl")}
    found = {
        f"{side}/{file}"
        for side, files in sides.items()
        for file, text in files.items()
        if hidden.search(text)
    }
    assert found == {"tf_impl/private_names.py", "torch_impl/private_names.py"}


def test_the_twins_are_twins() -> None:
    found = differences(files_of("tf_impl"), files_of("torch_impl"))
    assert verdict(found, LEDGER) == []
    assert "train.py: train" in signatures(files_of("tf_impl"))


def test_names_of_the_twins_are_equal_in_this_share() -> None:
    sides = files_of("tf_impl"), files_of("torch_impl")
    assert len(of_both(*sides)[0]) > 200
    assert equal_share(*sides) >= EQUAL_SHARE


def test_the_share_counts_names_parameters_and_files() -> None:
    sides = {"a.py": TWIN}, {"a.py": TWIN.replace("def close(self)", "def close(self, now)")}
    assert equal_share(sides[0], sides[0]) == 1
    assert equal_share(*sides) == 1 - 1 / 3
    assert equal_share(sides[0], {**sides[0], "b.py": TWIN}) == 1 - 1 / 4
    constructor = "    def __init__(self, x): ..."
    assert equal_share({"a.py": TWIN + constructor}, sides[0]) == 1 - 1 / 4


def test_folders_of_one_framework_are_listed_and_there() -> None:
    sides = [{path.split("/")[0] + "/" for path in files_of(side)} for side in ("tf_impl", "torch_impl")]
    inner = [{f"{path.rpartition('/')[0]}/" for path in files_of(side)} for side in ("tf_impl", "torch_impl")]
    assert set(OF_ONE_FRAMEWORK) <= sides[0] | sides[1] | inner[0] ^ inner[1]
    shared = {"layers/", "optimizers/", "external/"}
    assert {name for name in sides[0] ^ sides[1] if not name.endswith(".py/")} <= set(OF_ONE_FRAMEWORK)
    assert shared <= sides[0] & sides[1]


def test_methods_of_a_base_class_in_common_are_methods_of_both() -> None:
    source = "from parity.common.execution.run import Run\nclass Training(Run):\n"
    one, other = source + "    def load(self, state): ...", source + "    def close(self): ..."
    assert differences({"a.py": one}, {"a.py": other}) == {}
    wrong = source + "    def close(self, now): ..."
    assert set(differences({"a.py": one}, {"a.py": wrong})) == {"a.py: Training.close"}


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
