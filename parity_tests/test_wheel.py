"""The toolkit as a user has it: built, installed in an empty environment, beside packages of the user's own.

`scripts/wheel_check` runs this file alone. The toolkit comes from the wheel; the frameworks come from this environment,
so that they are not installed again.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from email.parser import Parser
from pathlib import Path

import numpy as np
import pytest
import tomllib
from packaging.requirements import Requirement

import parity
from parity_tests.helpers import ROOT
from parity_tests.test_distribution import DOCKERFILE, copied

PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
HERE = Path(sys.prefix) / "lib" / PYTHON / "site-packages"
# Names of Python's library and of packages that the toolkit imports: importing the user's instead must fail.
HIDING = ("numpy", "pydantic", "yaml", "rich", "absl", "safetensors", "random", "code")
RUN = ("--recipe", "digits_mlp", "--set", "steps=2")

OWN_COMMON = "WIDTH = 4\n"
KERAS = """
import keras
from common import WIDTH

def build():
    image = keras.Input((3,))
    return keras.Model(image, keras.layers.Dense(WIDTH, name="head")(image))
"""
TORCH = """
from torch import nn
from common import WIDTH

def build():
    return nn.Sequential(nn.Linear(3, WIDTH))

def narrow():
    return nn.Sequential(nn.Linear(3, WIDTH - 1))
"""
TORCH_SCRIPT = """
import numpy, torch
from parity.torch_impl.recorder import Recorder
from common import WIDTH

model = torch.nn.Linear(3, WIDTH).double()
with torch.no_grad():
    model.weight.fill_(0.5), model.bias.zero_()
optimizer = torch.optim.SGD(model.parameters(), 0.25)
with Recorder("torch_record", model, optimizer) as recorder:
    for step in range(2):
        optimizer.zero_grad()
        inputs = torch.arange(6.0, dtype=torch.float64).reshape(2, 3)
        loss = (model(inputs) ** 2).mean()
        loss.backward()
        optimizer.step()
        recorder.step(loss, count=2)
"""
KERAS_SCRIPT = """
import keras, numpy
from parity.tf_impl.recorder import RecorderCallback
from common import WIDTH

keras.config.set_floatx("float64")
inputs = keras.Input((3,))
head = keras.layers.Dense(WIDTH, kernel_initializer=keras.initializers.Constant(0.5))
model = keras.Model(inputs, head(inputs))
model.compile(keras.optimizers.SGD(0.25), "mean_squared_error")
x = numpy.tile(numpy.arange(6.0).reshape(2, 3), (2, 1))
model.fit(x, numpy.zeros((4, WIDTH)), batch_size=2, shuffle=False, verbose=0, callbacks=[RecorderCallback("keras_record")])
"""
TEST = """
import numpy
from common import WIDTH

PAIR = {"keras": "my_pkg.models:build", "inputs": numpy.ones((2, WIDTH - 1))}

def test_same(parity):
    parity.assert_same_forward(torch="my_pkg.port:build", **PAIR)

def test_other(parity):
    parity.assert_same_forward(torch="my_pkg.port:narrow", **PAIR)
"""
# Type-checked against the installed wheel: the second line is an error, the first is not.
TYPED = """
from pathlib import Path
from parity.common.record import read_record
host: str = read_record(Path("run")).header.host
wrong: int = read_record(Path("run")).header.host
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def call(
    *command: object, cwd: Path, timeout: int = 300, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command, with no path set by hand but what is given."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=timeout,
        env=kept | environment,
    )


def good(done: subprocess.CompletedProcess[str], code: int = 0) -> str:
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution, and the wheel that was made of it."""
    folder = tmp_path_factory.mktemp("built")
    copy_tree(folder / "tree")
    good(call(sys.executable, "-m", "build", "--outdir", folder, folder / "tree", cwd=folder))
    return folder


def copy_tree(tree: Path, only: Iterable[str] = (".",)) -> None:
    """Copy files and folders of the repository without what git ignores: an old build/ would put modules that are gone into the wheel."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *only]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        if os.path.lexists(ROOT / name):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)


@pytest.fixture(scope="module")
def empty(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that has the wheel and what it depends on, in the versions of this one; neither framework."""
    folder = tmp_path_factory.mktemp("empty") / "venv"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    good(call(sys.executable, "-m", "venv", "--without-pip", folder, cwd=built))
    frozen = good(call(*pip, "freeze", "--exclude-editable", cwd=built)).splitlines()
    limits = built / "constraints.txt"
    limits.write_text("\n".join(line for line in frozen if "==" in line and "+" not in line) + "\n")
    (wheel,) = built.glob("*.whl")
    good(
        call(
            *pip,
            "--python",
            folder / "bin" / "python",
            "install",
            "-q",
            "--no-compile",
            "-c",
            limits,
            wheel,
            cwd=built,
        )
    )
    return folder


@pytest.fixture(scope="module")
def full(empty: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `empty`, with the packages of this environment after the wheel's."""
    folder = tmp_path_factory.mktemp("full") / "venv"
    good(call(sys.executable, "-m", "venv", "--without-pip", folder, cwd=empty))
    shutil.copytree(packages(empty), packages(folder), dirs_exist_ok=True)
    # A path in such a file is only that: the links to this checkout that lie in there are not followed.
    (packages(folder) / "frameworks.pth").write_text(f"{HERE}\n")
    script = (empty / "bin" / "parity").read_text().replace(str(empty), str(folder))
    (folder / "bin" / "parity").write_text(script)
    (folder / "bin" / "parity").chmod(0o755)
    return folder


def packages(environment: Path) -> Path:
    return environment / "lib" / PYTHON / "site-packages"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's folder with a `common`, a `tf_impl` and modules named like packages that the toolkit needs."""
    folder = tmp_path / "project"
    for package, source in {"common": OWN_COMMON, "tf_impl": "", "torch_impl": "", "my_pkg": ""}.items():
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").write_text(source)
    for name in HIDING:
        (folder / f"{name}.py").write_text(f"raise ImportError('the {name} of the user')\n")
    (folder / "my_pkg" / "models.py").write_text(KERAS)
    (folder / "my_pkg" / "port.py").write_text(TORCH)
    return folder


def commands(environment: Path) -> list[list[str]]:
    return [[str(environment / "bin" / "parity")], [str(environment / "bin" / "python"), "-m", "parity"]]


def test_what_is_in_the_wheel(built: Path) -> None:
    (wheel,), (source,) = built.glob("*.whl"), built.glob("*.tar.gz")
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.partition("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"parity", "parity_pytest.py"}
    held = {name for name in names if not name.endswith(".py")}
    wanted = [
        *(ROOT / "slurm").iterdir(),
        *(ROOT / "common/report/html").glob("*.j*"),
        ROOT / "common/planning/kubernetes.yaml.j2",
        ROOT / "parity/py.typed",
    ]
    files = {path.relative_to(ROOT) for path in wanted}
    expected = {str(path if path.parts[0] == "parity" else "parity" / path) for path in files}
    assert expected == {name for name in held if ".dist-info/" not in name}
    modules = {
        p.relative_to(ROOT)
        for part in ("common", "tf_impl", "torch_impl")
        for p in (ROOT / part).rglob("*.py")
    }
    assert {f"parity/{path}" for path in modules} <= set(names)
    assert not [member.name for member in tarfile.open(source) if member.issym() or member.islnk()]


def wanted(lines: Iterable[str], marker: str = "") -> set[str]:
    """The requirements that have a marker, or none."""
    found = [
        requirement for requirement in map(Requirement, lines) if str(requirement.marker or "") == marker
    ]
    return {f"{each.name}{sorted(each.extras)}{each.specifier}" for each in found}


def test_wheel_and_source_say_what_they_need(built: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (wheel,), (source,) = built.glob("*.whl"), built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as of_wheel, tarfile.open(source) as of_source:
        name = next(name for name in of_wheel.namelist() if name.endswith(".dist-info/METADATA"))
        file = of_source.extractfile(f"{source.name.removesuffix('.tar.gz')}/PKG-INFO")
        assert file is not None
        texts = [of_wheel.read(name).decode(), file.read().decode()]
    for metadata in map(Parser().parsestr, texts):
        assert metadata["Version"] == parity.__version__
        assert set(metadata.get_all("Provides-Extra", [])) == project["optional-dependencies"].keys()
        needed = metadata.get_all("Requires-Dist", [])
        for extra, lines in {"": project["dependencies"], **project["optional-dependencies"]}.items():
            assert wanted(needed, f'extra == "{extra}"' if extra else "") == wanted(lines) != set(), extra


def test_what_the_dockerfile_copies_is_all_that_a_wheel_needs(built: Path, tmp_path: Path) -> None:
    copy_tree(tmp_path / "tree", copied(DOCKERFILE))
    good(
        call(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, tmp_path / "tree", cwd=tmp_path)
    )
    (wheel,), (made,) = built.glob("*.whl"), tmp_path.glob("*.whl")
    assert zipfile.ZipFile(made).namelist() == zipfile.ZipFile(wheel).namelist()


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("ending", "extra", "module"),
    [("*.tar.gz", "", None), ("*.whl", "[tf]", "tf_impl"), ("*.tar.gz", "[torch]", "torch_impl")],
)
def test_an_empty_environment_gets_what_an_extra_promises(
    built: Path, project: Path, tmp_path: Path, ending: str, extra: str, module: str | None
) -> None:
    """With pip alone, as a user does; nothing is taken from this environment."""
    good(call(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path))
    (given,) = built.glob(ending)
    pip = [tmp_path / "venv" / "bin" / "pip", "install", "-q", "--disable-pip-version-check"]
    good(call(*pip, f"{given}{extra}", cwd=tmp_path, timeout=1500))
    command, python = (tmp_path / "venv" / "bin" / name for name in ("parity", "python"))
    assert good(call(command, "--version", cwd=project)) == f"parity {parity.__version__}\n"
    for other in ("tf_impl", "torch_impl"):
        # Its samples are made, and need nothing that comes with [data].
        flags = ["--recipe", "lenet5:tiny", "--set", "steps=2", "--out", f"{other}_record"]
        done = call(python, "-m", f"parity.{other}", *flags, cwd=project)
        assert done.returncode == (0 if other == module else 2), done.stderr
        assert other == module or "pip install 'tf-torch-parity[" in done.stderr
    if module is not None:
        good(call(command, "share", f"{module}_record", "--to=csv", "--out=csv", cwd=project))


def test_it_is_the_wheel_that_is_tried(full: Path, project: Path) -> None:
    code = "import sys, parity; from importlib.metadata import version; print(parity.__file__, *sys.path, sep='\\n')"
    code += "; assert version('tf-torch-parity') == parity.__version__"
    file, *path = good(call(full / "bin" / "python", "-P", "-c", code, cwd=project)).splitlines()
    assert Path(file) == packages(full) / "parity" / "__init__.py"
    assert str(ROOT) not in path and str(HERE) in path


@pytest.mark.parametrize(
    "arguments",
    [
        "--version",
        "recipes",
        "show --schema",
        "show resnet50",
        "plan --recipe digits_mlp --steps 2",
        "submit --recipe digits_cnn --nodes 2 --dry-run",
        "manifest --kind pytorchjob --recipe digits_cnn --placement torch:ddp:4,nodes=2 --image IMAGE",
        "advise --recipe gpt2 --gpus 8 --gpu-memory 80GB",
        "lint --help",
    ],
)
def test_commands_that_need_no_framework(empty: Path, project: Path, arguments: str) -> None:
    outputs = [good(call(*command, *arguments.split(), cwd=project)) for command in commands(empty)]
    assert outputs[0] == outputs[1] != ""


@pytest.mark.exhaustive
def test_what_needs_a_framework_says_so(empty: Path, project: Path) -> None:
    for command in commands(empty):
        done = call(*command, "run", *RUN, cwd=project)
        assert done.returncode == 2 and "torch is not installed" in done.stderr


def test_both_trainers_and_their_comparison(full: Path, empty: Path, project: Path) -> None:
    python = full / "bin" / "python"
    for module, strategy in (("tf_impl", "mirrored"), ("torch_impl", "ddp")):
        flags = [*RUN, "--strategy", strategy, "--replicas=2", "--out", f"{module}_record"]
        good(call(python, "-m", f"parity.{module}", *flags, cwd=project))
    # As on a login node, which has neither framework.
    said = good(call(empty / "bin" / "parity", "compare", "torch_impl_record", "tf_impl_record", cwd=project))
    assert "✓ parity" in said
    good(call(empty / "bin" / "parity", "steps", "tf_impl_record", "--tail", "1", cwd=project))


def test_processes_that_a_command_starts(full: Path, project: Path) -> None:
    assert "✓ torch" in good(call(*commands(full)[0], "doctor", cwd=project))
    placements = ["--placement=torch:ddp:2", "--placement=tf:mirrored:2"]
    flags = [*RUN, "--timing-rounds=0", "--out=out", *placements]
    assert "✓ parity" in good(call(*commands(full)[1], "run", *flags, cwd=project))
    run = next(path.parent for path in project.glob("out/**/header.json"))
    exported = ["checkpoint", "export", run, "--to", "keras", "--out", "model.keras"]
    good(call(*commands(full)[1], *exported, cwd=project))
    assert (project / "model.keras").is_file()


def test_a_checkout_on_the_path_needs_no_installation(full: Path, project: Path) -> None:
    python, path = full / "bin" / "python", str(ROOT)
    code = "import parity; print(parity.__file__)"
    where = good(call(python, "-P", "-c", code, cwd=project, PYTHONPATH=path))
    assert where.strip() == str(ROOT / "parity" / "__init__.py")
    flags = [*RUN, "--strategy=ddp", "--replicas=2", "--out=out"]
    good(call(python, "-m", "parity.torch_impl", *flags, cwd=project, PYTHONPATH=path))


@pytest.mark.exhaustive
def test_models_of_the_user_import_the_users_own_common(full: Path, project: Path) -> None:
    sides = ["--keras", "my_pkg.models:build", "--torch", "my_pkg.port:build"]
    found = good(call(*commands(full)[0], "lint", *sides, "--input-shape=3", cwd=project))
    assert "kernel_initializer" in found and "2 of initial values only" in found
    assert found.endswith("my_pkg.models:build, my_pkg.port:build\n")
    np.savez(project / "data.npz", x=np.ones((64, 3)), y=np.ones((64, 4)))
    steps = [
        "--data=data.npz",
        "--loss=mean_squared_error",
        "--optimizer=sgd,learning_rate=0.1",
        "--steps=2",
        "--out=pair",
    ]
    assert "parity" in good(call(*commands(full)[1], "pair", *sides, *steps, cwd=project))


def test_recorders(full: Path, project: Path) -> None:
    """In scripts of a folder of their own, since torch and Keras, too, import the numpy that lies beside a script."""
    scripts = project / "scripts"
    scripts.mkdir()
    (scripts / "common.py").write_text(OWN_COMMON)
    for name, source in {"of_torch": TORCH_SCRIPT, "of_keras": KERAS_SCRIPT}.items():
        (scripts / f"{name}.py").write_text(source)
        good(call(full / "bin" / "python", scripts / f"{name}.py", cwd=project))
    for record in ("torch_record", "keras_record"):
        rows = good(call(*commands(full)[0], "steps", record, "--format=jsonl", cwd=project))
        assert [json.loads(row)["step"] for row in rows.splitlines()] == [0, 1]


def test_a_file_that_hides_a_package_from_a_recorder_is_named(full: Path, tmp_path: Path) -> None:
    (tmp_path / "pydantic.py").touch()
    (tmp_path / "script.py").write_text(
        "import numpy, torch\nfrom parity.torch_impl.recorder import Recorder\n"
    )
    done = call(full / "bin" / "python", "script.py", cwd=tmp_path)
    assert done.returncode == 1
    assert f"{tmp_path}/pydantic.py hides the package 'pydantic'" in done.stderr.splitlines()[-1]


def test_the_pytest_plugin(full: Path, project: Path) -> None:
    (project / "tests").mkdir()
    (project / "tests" / "test_port.py").write_text(TEST)
    (project / "conftest.py").write_text("import sys; sys.path.append('.')\n")
    pytest_of_wheel = [full / "bin" / "python", "-P", "-m", "pytest", "-q", "-p", "no:randomly"]
    done = call(
        *pytest_of_wheel, "--rootdir=.", "--confcutdir=.", "--import-mode=importlib", "tests", cwd=project
    )
    assert "1 failed, 1 passed" in done.stdout and "test_other" in done.stdout, done.stdout + done.stderr


def test_types_are_seen(full: Path, tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(TYPED)
    mypy = [sys.executable, "-m", "mypy", "--python-executable", full / "bin" / "python", "--cache-dir=cache"]
    lines = call(*mypy, "--follow-imports=silent", "user.py", cwd=tmp_path).stdout.splitlines()
    assert len(lines) == 2 and lines[0].startswith("user.py:5: error: Incompatible types"), lines


def test_what_these_tests_would_see(full: Path, project: Path) -> None:
    """Negative controls: a wheel without its scripts, and an entry that leaves the working folder on the path."""
    installed = packages(full) / "parity"
    python = full / "bin" / "python"
    moved = installed / "slurm"
    moved.rename(installed / "elsewhere")
    submitted = call(python, "-m", "parity", "submit", "--recipe", "digits_cnn", "--dry-run", cwd=project)
    (installed / "elsewhere").rename(moved)
    assert submitted.returncode != 0
    entry = installed / "__main__.py"
    kept = entry.read_text()
    entry.write_text(kept.replace("    leave_working_folder()\n", ""))
    hidden = call(python, "-m", "parity", "--version", cwd=project)
    entry.write_text(kept)
    assert hidden.returncode == 2 and "numpy.py hides" in hidden.stderr
    good(call(python, "-m", "parity", "--version", cwd=project))
