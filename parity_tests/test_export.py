"""`parity export`: a training stopped in one framework and gone on with in the other is one training."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from parity.common.base.errors import ExternalModelError
from parity.common.execution.processes.channel import Channel
from parity.common.external import checkpoints as carried
from parity.common.external.checkpoints import CheckpointContents, End, convert_checkpoint, translated
from parity.common.spec.external.mapping import Mapping, Pair, Reasons, write_mapping
from parity_tests.helpers import ROOT
from parity_tests.helpers.commands import PARSER, Cli
from parity_tests.peers import Arrays, Peer

KERAS, TORCH = "parity_tests.external_models.carry_keras", "parity_tests.external_models.carry_torch"
PAGE = ROOT / "docs" / "how_to" / "export.md"
STEPS, BATCH = 5, 6
# Float64 through ten steps; the two frameworks sum a convolution in another order.
TOLERANCE = 1e-10


def mapping() -> Mapping:
    rules = {
        ("conv/kernel", "conv.weight"): "conv",
        ("conv/bias", "conv.bias"): "same",
        ("norm/gamma", "norm.weight"): "same",
        ("norm/beta", "norm.bias"): "same",
        ("norm/moving_mean", "norm.running_mean"): "same",
        ("norm/moving_variance", "norm.running_var"): "same",
        ("hidden/kernel", "hidden.weight"): "flatten(5,4,4)",
        ("hidden/bias", "hidden.bias"): "same",
        ("frozen/kernel", "frozen.weight"): "transpose",
        ("frozen/bias", "frozen.bias"): "same",
        ("head/kernel", "head.weight"): "transpose",
        ("head/bias", "head.bias"): "same",
    }
    return Mapping(
        keras=f"{KERAS}:build",
        torch=f"{TORCH}:Net",
        tensors=tuple(
            Pair(keras=(ours,), torch=(theirs,), rule=rule) for (ours, theirs), rule in rules.items()
        ),
        ignored=Reasons(torch={"norm.num_batches_tracked": "Keras does not count"}),
    )


class Sides:
    """One process of each framework, that trains, and that reads and writes checkpoints in place of new ones."""

    def __init__(self, folder: Path, peers: dict[str, Peer]) -> None:
        self.folder, self._peers = folder, peers
        draw = np.random.default_rng(8)
        self.x = draw.normal(size=(2 * STEPS, BATCH, 5, 4, 3))
        self.y = draw.normal(size=(2 * STEPS, BATCH, 2))
        shapes = {
            "conv/kernel": (3, 3, 3, 4), "conv/bias": (4,), "norm/gamma": (4,), "norm/beta": (4,),
            "norm/moving_mean": (4,), "hidden/kernel": (80, 6), "hidden/bias": (6,), "frozen/kernel": (6, 6),
            "frozen/bias": (6,), "head/kernel": (6, 2), "head/bias": (2,),
        }  # fmt: skip
        self.start = {name: 0.25 * draw.normal(size=shape) for name, shape in shapes.items()}
        self.start["norm/moving_variance"] = draw.uniform(0.5, 2, 4)
        self._straight: dict[tuple[str, str, int], Arrays] = {}

    def train(
        self, side: str, optimizer: str, steps: range, load: Path | None = None, save: Path | None = None
    ) -> Arrays:
        """Keras's names and layouts of the weights after training by stock code."""
        weights = {} if load else self.start
        if side == "torch" and weights:
            weights = mapping().to_torch(weights)
        facts = {"optimizer": optimizer, "load": load and str(load), "save": save and str(save)}
        arrays = {"x": self.x[steps.start : steps.stop], "y": self.y[steps.start : steps.stop]}
        if side == "torch":
            arrays["x"] = arrays["x"].transpose(0, 1, 4, 2, 3)
        done = self._peers["tensorflow" if side == "keras" else "torch"](
            "carry:train", facts, {**weights, **arrays}
        )
        return done if side == "keras" else mapping().to_keras(done)

    def half(self, side: str, optimizer: str, ending: str) -> Path:
        """A checkpoint after half of the steps."""
        path = self.folder / f"{side}_{optimizer}{ending}"
        if not path.exists():
            self.train(side, optimizer, range(STEPS), save=path)
        return path

    def straight(self, side: str, optimizer: str) -> Arrays:
        """All steps in one framework."""
        return self.train(side, optimizer, range(2 * STEPS))

    def make(self, framework: str, function: str, **facts: Any) -> Arrays:
        return self._peers[framework](f"carry:{function}", facts, {})

    def in_child(self, framework: str, action: str, job: dict[str, Any]) -> Any:
        """In place of a new process."""
        with tempfile.TemporaryDirectory() as folder:
            channel = Channel(Path(folder), "parent")
            facts = {"folder": folder, "line": channel.question(action, job).decode()}
            said = json.loads(bytes(self._peers[framework]("carry:answer", facts, {})["answer"]))
            if "error" in said:
                raise ExternalModelError(said["error"])
            return channel.unpack(said)


@pytest.fixture(scope="module")
def peers_of_sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    folder = tmp_path_factory.mktemp("sides")
    with ExitStack() as stack:
        names = ("tensorflow", "torch")
        yield Sides(folder, {n: stack.enter_context(Peer(n, folder / f"{n}.log")) for n in names})


@pytest.fixture
def sides(peers_of_sides: Sides, monkeypatch: pytest.MonkeyPatch) -> Sides:
    monkeypatch.setattr(carried, "_in_child", peers_of_sides.in_child)
    return peers_of_sides


@pytest.fixture
def yaml(tmp_path: Path) -> Path:
    path = tmp_path / "mapping.yaml"
    write_mapping(path, mapping())
    return path


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    return Cli(tmp_path, capsys)


def apart(ours: Arrays, theirs: Arrays) -> float:
    """The largest difference of a weight over the largest number in it; batch norm's buffers are not trained."""
    weights = [name for name in ours if "moving" not in name]
    assert len(weights) == 10 and ours.keys() == theirs.keys()
    return max(float(np.abs(ours[n] - theirs[n]).max() / np.abs(theirs[n]).max()) for n in weights)


def keras_end(path: Path, optimizer: str) -> End:
    return End(path, f"{KERAS}:build", f"{KERAS}:{optimizer}")


def torch_end(path: Path, optimizer: str) -> End:
    return End(path, f"{TORCH}:Net", f"{TORCH}:{optimizer}")


QUICK = ["adam", "sgd"]
OTHERS = ["adamw", "amsgrad", "nesterov", "plain", "rmsprop", "adagrad", "adadelta", "adamax"]
OPTIMIZERS = [*QUICK, *(pytest.param(name, marks=pytest.mark.exhaustive) for name in OTHERS)]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_from_keras_to_torch_is_one_training(
    sides: Sides, yaml: Path, tmp_path: Path, optimizer: str
) -> None:
    source = sides.half("keras", optimizer, ".keras")
    out = tmp_path / "port.pt"
    said = convert_checkpoint(yaml, End(source), torch_end(out, optimizer))
    assert said[-1].startswith(f"{out}: 12 tensors,") and "at step 5" in said[-1]
    went_on = sides.train("torch", optimizer, range(STEPS, 2 * STEPS), load=out)
    assert apart(went_on, sides.straight("keras", optimizer)) < TOLERANCE


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_from_torch_to_keras_is_one_training(
    sides: Sides, yaml: Path, tmp_path: Path, optimizer: str
) -> None:
    source = sides.half("torch", optimizer, ".pt")
    out = tmp_path / "back.keras"
    convert_checkpoint(yaml, torch_end(source, optimizer), keras_end(out, optimizer))
    went_on = sides.train("keras", optimizer, range(STEPS, 2 * STEPS), load=out)
    assert apart(went_on, sides.straight("torch", optimizer)) < TOLERANCE


@pytest.mark.parametrize("optimizer", QUICK)
def test_without_the_slots_it_is_another_training(
    sides: Sides, yaml: Path, tmp_path: Path, optimizer: str
) -> None:
    source = sides.half("keras", optimizer, ".keras")
    out = tmp_path / "port.pt"
    said = convert_checkpoint(yaml, End(source), End(out), weights_only=True)
    assert "no optimizer" in said[-1]
    went_on = sides.train("torch", optimizer, range(STEPS, 2 * STEPS), load=out)
    assert apart(went_on, sides.straight("keras", optimizer)) > 1e-4


def test_a_file_is_the_same_after_both_ways(sides: Sides, yaml: Path, tmp_path: Path) -> None:
    """Weights, buffers, slots and step, to the last bit."""
    source = sides.half("keras", "adam", ".keras")
    convert_checkpoint(yaml, End(source), torch_end(tmp_path / "port.pt", "adam"))
    convert_checkpoint(
        yaml, torch_end(tmp_path / "port.pt", "adam"), keras_end(tmp_path / "back.weights.h5", "adam")
    )
    first, last = (
        carried._ask("read", keras_end(path, "adam"), {"weights_only": False})
        for path in (source, tmp_path / "back.weights.h5")
    )
    assert first["step"] == STEPS and (first["step"], first["kind"]) == (last["step"], last["kind"])
    assert first["learning_rate"] == last["learning_rate"] == 2**-7
    assert set(first["slots"]) == {"first_moment", "second_moment"}
    assert first["tensors"].keys() == last["tensors"].keys() and len(first["tensors"]) == 12
    for one, other in (
        (first["tensors"], last["tensors"]),
        *zip(first["slots"].values(), last["slots"].values(), strict=True),
    ):
        assert all(np.array_equal(value, other[name]) for name, value in one.items())
    assert len(first["slots"]["first_moment"]) == 8, "of all that is trained"


def test_weights_go_without_any_code_of_the_user(sides: Sides, yaml: Path, cli: Cli) -> None:
    source = sides.half("keras", "adam", ".keras")
    numbers = sum(value.size for value in sides.start.values())
    (cli.folder / "w.safetensors").write_text("an earlier one")
    export = ["export", "--mapping", yaml, "--from", source, "--to", "w.safetensors", "--weights-only"]
    assert "w.safetensors: already there" in cli.refused(*export)
    code, out, err = cli(*export, "--overwrite")
    assert (code, err) == (0, "") and out == f"w.safetensors: 12 tensors, {numbers} numbers; no optimizer\n"
    found = load_file(cli.folder / "w.safetensors")
    expected = sides.train("keras", "adam", range(0), load=source)
    assert all(np.array_equal(found[name], value) for name, value in mapping().to_torch(expected).items())


@pytest.mark.exhaustive
def test_models_that_have_no_weights_before_a_call_are_called_with_samples(cli: Cli) -> None:
    pairs = [
        Pair(keras=f"{name}/{ours}", torch=f"{name}.{theirs}", rule=rule)
        for name in ("hidden", "head")
        for ours, theirs, rule in (("kernel", "weight", "transpose"), ("bias", "bias", "same"))
    ]
    names = {"keras": f"{KERAS}:Called", "torch": f"{TORCH}:Called"}
    write_mapping(cli.folder / "called.yaml", Mapping(tensors=tuple(pairs), **names))
    random = np.random.default_rng(0)
    shapes = {"hidden.weight": (6, 4), "hidden.bias": (6,), "head.weight": (2, 6), "head.bias": (2,)}
    given = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    save_file(given, cli.folder / "a.safetensors")
    np.savez(cli.folder / "data.npz", x=random.normal(size=(3, 4)), y=np.zeros(3))
    models = [each for side, name in names.items() for each in (f"--{side}", name)]
    export = ["export", "--mapping", "called.yaml", "--weights-only", *models]
    there = ["--from", "a.safetensors", "--to", "k.weights.h5"]
    assert "no weights before it is called; give samples to call it with: --data" in cli.refused(
        *export, *there
    )
    back = ["--from", "k.weights.h5", "--to", "b.safetensors"]
    for files in (there, back):
        code, out, err = cli(*export, *files, "--data", "data.npz")
        assert (code, err) == (0, ""), out + err
    found = load_file(cli.folder / "b.safetensors")
    assert found.keys() == given.keys() and all(np.array_equal(found[name], given[name]) for name in given)


def test_a_model_that_is_compiled_brings_its_optimizer(sides: Sides, yaml: Path, tmp_path: Path) -> None:
    source = sides.half("torch", "adam", ".pt")
    convert_checkpoint(yaml, torch_end(source, "adam"), End(tmp_path / "k.weights.h5", f"{KERAS}:compiled"))
    held = carried._ask("read", End(tmp_path / "k.weights.h5", f"{KERAS}:compiled"), {"weights_only": False})
    assert (held["kind"], held["step"]) == ("adam", STEPS)


def test_the_file_itself_says_its_optimizer(sides: Sides) -> None:
    source = sides.half("keras", "adam", ".keras")
    held = carried._ask("read", End(source, f"{KERAS}:build"), {"weights_only": False})
    assert (held["kind"], held["step"]) == ("adam", STEPS)


def test_a_wrapped_state_dict_is_read(sides: Sides, yaml: Path, tmp_path: Path) -> None:
    arrays = sides.make("torch", "save", what="wrapped", save=str(tmp_path / "ddp.pt"))
    convert_checkpoint(yaml, End(tmp_path / "ddp.pt"), End(tmp_path / "k.weights.h5", f"{KERAS}:build"))
    held = carried._ask("read", End(tmp_path / "k.weights.h5", f"{KERAS}:build"), {"weights_only": False})
    expected = mapping().to_keras(arrays)
    assert all(np.array_equal(value, expected[name]) for name, value in held["tensors"].items())


def test_bfloat16_becomes_float32_without_loss(sides: Sides, yaml: Path, tmp_path: Path) -> None:
    arrays = sides.make("torch", "save", what="half", save=str(tmp_path / "half.pt"))
    held = carried._ask("read", End(tmp_path / "half.pt"), {"weights_only": False})
    assert {str(value.dtype) for value in held["tensors"].values()} == {"float32"}
    coarse = (arrays["conv.weight"].view(np.uint32) + 0x8000) & 0xFFFF0000
    assert np.allclose(held["tensors"]["conv.weight"], coarse.view(np.float32), rtol=2**-7, atol=0)


def test_another_learning_rate_is_carried_and_named(sides: Sides, yaml: Path, tmp_path: Path) -> None:
    source = sides.half("keras", "sgd", ".keras")
    out = tmp_path / "port.pt"
    said = convert_checkpoint(yaml, End(source), torch_end(out, "slower"))
    assert said[0] == f"learning rate 0.03125 carried; {TORCH}:slower itself has 0.015625"
    went_on = sides.train("torch", "slower", range(STEPS, 2 * STEPS), load=out)
    assert apart(went_on, sides.straight("keras", "sgd")) < TOLERANCE


REFUSED = {
    "no such file": (["--from", "none.keras", "--to", "o.pt"], "none.keras: no such file"),
    "both of one": (["--from", "{keras}", "--to", "o.keras"], "are both of tensorflow"),
    "unknown ending": (["--from", "{keras}", "--to", "o.bin"], "o.bin: a checkpoint ends in .keras or"),
    "there already": (["--from", "{keras}", "--to", "mapping.yaml.pt"], "already there; give a new file"),
    "no folder": (["--from", "{keras}", "--to", "no/o.pt"], "its folder is not there"),
    "no torch optimizer": (["--from", "{keras}", "--to", "o.pt"], "--torch-optimizer, and the model with --torch"),
    "no torch model": (
        ["--from", "{keras}", "--to", "o.pt", "--torch-optimizer", f"{TORCH}:adam"],
        f"name it with --torch (the mapping was made for {TORCH}:Net)",
    ),
    "no keras model": (["--from", "{torch}", "--to", "o.keras"], "name the Keras model with --keras"),
    "another kind": (
        ["--from", "{keras}", "--to", "o.pt", "--torch", f"{TORCH}:Net", "--torch-optimizer", f"{TORCH}:sgd"],
        f"the checkpoint is of adam, --torch-optimizer {TORCH}:sgd gives a SGD",
    ),
    "another kind of Keras": (
        ["--from", "{torch}", "--to", "o.keras", "--torch", f"{TORCH}:Net", "--torch-optimizer", f"{TORCH}:adam",
         "--keras", f"{KERAS}:build", "--keras-optimizer", f"{KERAS}:sgd"],
        f"the checkpoint is of adam, {KERAS}:sgd gives a SGD",
    ),
    "a kind that none carries": (
        ["--from", "{keras}", "--to", "o.pt", "--torch", f"{TORCH}:Net", "--torch-optimizer", f"{TORCH}:nadam"],
        "slots of torch.optim.nadam.NAdam cannot be carried",
    ),
    "a kind of Keras that none carries": (
        ["--from", "{torch}", "--to", "o.keras", "--torch", f"{TORCH}:Net", "--torch-optimizer", f"{TORCH}:adam",
         "--keras", f"{KERAS}:build", "--keras-optimizer", f"{KERAS}:nadam"],
        "Nadam cannot be carried; those of SGD, RMSprop",
    ),
    "an average": (
        ["--from", "{torch}", "--to", "o.keras", "--torch", f"{TORCH}:Net", "--torch-optimizer", f"{TORCH}:adam",
         "--keras", f"{KERAS}:build", "--keras-optimizer", f"{KERAS}:averaged"],
        "Adam has use_ema, whose slots have no counterpart in torch",
    ),
    "other settings": (
        ["--from", "{keras}", "--to", "o.pt", "--torch", f"{TORCH}:Net", "--torch-optimizer", f"{TORCH}:amsgrad"],
        "Adam has slots largest_second_moment, and the other framework's optimizer has none",
    ),
    "another optimizer than the file's": (
        ["--from", "{keras}", "--to", "o.pt", "--keras", f"{KERAS}:build", "--keras-optimizer", f"{KERAS}:sgd",
         "--torch", f"{TORCH}:Net", "--torch-optimizer", f"{TORCH}:sgd"],
        f"was saved with the optimizer Adam, {KERAS}:sgd gives a SGD",
    ),
    "another model": (
        ["--from", "{keras}", "--to", "o.pt", "--keras", f"{KERAS}:wider", "--weights-only"],
        "does not fit the --keras model: ",
    ),
    "another torch model": (
        ["--from", "{keras}", "--to", "o.pt", "--torch", f"{TORCH}:Other", "--weights-only"],
        "the --torch model has no tensor 'conv.weight'",
    ),
    "no such target": (
        ["--from", "{keras}", "--to", "o.pt", "--keras", f"{KERAS}:biuld"],
        "has no 'biuld'; closest are build",
    ),
    "an optimizer where there is none": (
        ["--from", "{torch}", "--to", "o.keras", "--keras", f"{KERAS}:build", "--keras-optimizer", f"{KERAS}:adam",
         "--weights-only"],
        "there is no optimizer to carry; leave out --keras-optimizer",
    ),
    "tensors alone": (
        ["--from", "{keras}", "--to", "o.safetensors", "--torch", f"{TORCH}:Net", "--torch-optimizer",
         f"{TORCH}:adam"],
        "a .safetensors file holds tensors alone",
    ),
    "not all that Keras trains": (
        ["--from", "{keras}", "--to", "o.pt", "--torch", f"{TORCH}:Net", "--torch-optimizer", f"{TORCH}:partial"],
        f"Keras trains norm.weight, which {TORCH}:partial is not given",
    ),
    "dampening": (
        ["--from", "{dampened}", "--to", "o.keras", "--torch", f"{TORCH}:Net", "--torch-optimizer",
         f"{TORCH}:dampened", "--keras", f"{KERAS}:build", "--keras-optimizer", f"{KERAS}:sgd"],
        "the optimizer has dampening, which Keras has not",
    ),
    "several rates": (
        ["--from", "{grouped}", "--to", "o.keras", "--torch", f"{TORCH}:Net", "--torch-optimizer",
         f"{TORCH}:grouped", "--keras", f"{KERAS}:build", "--keras-optimizer", f"{KERAS}:sgd"],
        "groups with learning rates 0.03125, 0.5",
    ),
    "another grouping": (
        ["--from", "{torch}", "--to", "o.keras", "--torch", f"{TORCH}:Net", "--torch-optimizer",
         f"{TORCH}:grouped", "--keras", f"{KERAS}:build", "--keras-optimizer", f"{KERAS}:sgd"],
        "its optimizer has groups of",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_carried_is_one_line(sides: Sides, yaml: Path, cli: Cli, case: str) -> None:
    arguments, words = REFUSED[case]
    (cli.folder / "mapping.yaml.pt").write_text("theirs")
    files: dict[str, Path] = {}
    for name, side, optimizer in (
        ("keras", "keras", "adam"),
        ("torch", "torch", "adam"),
        ("dampened", "torch", "dampened"),
        ("grouped", "torch", "grouped"),
    ):
        if any(f"{{{name}}}" in text for text in arguments):
            files[name] = sides.half(side, optimizer, ".keras" if side == "keras" else ".pt")
    assert words in cli.refused("export", "--mapping", yaml, *(text.format(**files) for text in arguments))


def broken(sides: Sides, folder: Path, what: str) -> Path:
    """A file that is no checkpoint, or a damaged one."""
    kind, _, how = what.partition(" ")
    path = folder / {"keras": "f.keras", "h5": "f.weights.h5", "pt": "f.pt", "safe": "f.safetensors"}[kind]
    if how == "empty":
        path.write_bytes(b"")
    elif how == "text":
        path.write_text("hello " * 1000)
    elif how == "a folder":
        path.mkdir()
    elif how == "other zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("config.json", json.dumps({}))
    elif how == "code":
        sides.make("tensorflow", "lambda_model", save=str(path))
    elif how == "cut":
        source = {"keras": ("keras", ".keras"), "h5": ("keras", ".weights.h5"), "pt": ("torch", ".pt")}[kind]
        content = sides.half(source[0], "adam", source[1]).read_bytes()
        path.write_bytes(content[: len(content) * 2 // 3])
    else:
        sides.make("torch", "save", what=how, save=str(path))
    return path


BROKEN = {
    "keras empty": "not a whole model of Keras 3",
    "keras text": "not a whole model of Keras 3",
    "keras cut": "not a whole model of Keras 3",
    "keras other zip": "not a whole model of Keras 3",
    "keras a folder": "no such file",
    "keras code": "Keras does not open it by itself",
    "h5 empty": "not a whole weights of Keras 3",
    "h5 text": "not a whole weights of Keras 3",
    "h5 cut": "not a whole weights of Keras 3",
    "pt empty": "not a whole file of torch.save",
    "pt text": "not a",
    "pt cut": "not a whole file of torch.save",
    "pt module": "not one of tensors alone",
    "pt nested": "'conv.weight' is a dict; a state_dict holds tensors by name",
    "pt odd": "what it calls the optimizer is no optimizer's state_dict",
    "safe empty": "not a whole safetensors file",
    "safe text": "not a whole safetensors file",
}


@pytest.mark.parametrize("what", BROKEN)
def test_damaged_and_foreign_files_are_one_line(sides: Sides, yaml: Path, cli: Cli, what: str) -> None:
    path = broken(sides, cli.folder, what)
    to_torch = what.startswith(("keras", "h5"))
    ends = ["--from", path, "--to", "o.pt" if to_torch else "o.keras"]
    target = [] if what.startswith("keras") else ["--keras", f"{KERAS}:build"]
    assert BROKEN[what] in cli.refused("export", "--mapping", yaml, *ends, *target)


def test_the_two_exports_name_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    for words, other in (
        (["export"], "parity checkpoint export"),
        (["checkpoint", "export"], "`parity export`"),
    ):
        with pytest.raises(SystemExit):
            PARSER.parse_args([*words, "--help"])
        assert other in " ".join(capsys.readouterr().out.split())


def test_unmapped_tensors_are_named_and_doubtful_ones_said(sides: Sides, tmp_path: Path) -> None:
    source = sides.half("keras", "adam", ".keras")
    whole = mapping()
    left = whole.model_dump() | {"tensors": whole.tensors[:-1], "unmapped": {"keras": ["head/bias"]}}
    write_mapping(tmp_path / "left.yaml", Mapping.model_validate(left))
    with pytest.raises(ExternalModelError, match=r"no counterpart is known of head/bias \(keras\)"):
        convert_checkpoint(tmp_path / "left.yaml", End(source), End(tmp_path / "o.pt"), weights_only=True)
    doubtful = whole.tensors[0].model_copy(update={"doubt": "square"})
    write_mapping(
        tmp_path / "doubt.yaml", whole.model_copy(update={"tensors": (doubtful, *whole.tensors[1:])})
    )
    said = convert_checkpoint(tmp_path / "doubt.yaml", End(source), End(tmp_path / "o.pt"), weights_only=True)
    assert said[0] == "1 of 12 lines of the mapping are doubtful, first conv/kernel <-> conv.weight: square"


def joined() -> Mapping:
    return Mapping(
        keras="k:b",
        torch="t:N",
        tensors=(
            Pair(keras=("q", "k", "v"), torch=("in",), rule="n d h k -> (n h k) d; h=2"),
            Pair(keras=("bias",), torch=("b_ih", "b_hh"), rule="two_biases"),
        ),
    )


def test_slots_go_the_way_of_their_tensors() -> None:
    draw = np.random.default_rng(0)
    slot = {name: draw.normal(size=(4, 2, 3)) for name in "qkv"}
    held = CheckpointContents({**slot, "bias": np.ones(3)}, {"first_moment": slot}, "adam", 7, 0.5)
    moved = translated(held, joined(), "tensorflow")
    assert np.array_equal(moved.slots["first_moment"]["in"], moved.tensors["in"])
    assert (moved.kind, moved.step, moved.learning_rate) == ("adam", 7, 0.5)
    back = translated(moved, joined(), "torch")
    assert all(np.array_equal(back.slots["first_moment"][name], value) for name, value in slot.items())


def test_slots_of_what_is_not_one_to_one_are_refused() -> None:
    tensors = {**{name: np.ones((4, 2, 3)) for name in "qkv"}, "bias": np.ones(3)}
    held = CheckpointContents(tensors, {"first_moment": {"bias": np.ones(3)}}, "adam", 7)
    with pytest.raises(
        ExternalModelError, match=r"slots of bias <-> b_ih, b_hh cannot be carried: .*--weights-only"
    ):
        translated(held, joined(), "tensorflow")
    partly = CheckpointContents(tensors, {"first_moment": {"q": tensors["q"]}}, "adam", 7)
    with pytest.raises(ExternalModelError, match="has slots of q, but none of k"):
        translated(partly, joined(), "tensorflow")


@pytest.mark.exhaustive
def test_the_page_runs_as_it_is_written(peers_of_sides: Sides, yaml: Path, cli: Cli) -> None:
    """By processes of their own, from a folder with a package of the user's."""
    models = Path(__file__).parent / "external_models"
    (cli.folder / "my_pkg").mkdir()
    shutil.copy(models / "carry_keras.py", cli.folder / "my_pkg" / "models.py")
    shutil.copy(models / "carry_torch.py", cli.folder / "my_pkg" / "port.py")
    shutil.copy(peers_of_sides.half("keras", "adam", ".keras"), cli.folder / "model.keras")
    lines = re.findall(r"^\$ parity (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(lines) == 3
    for line in lines:
        code, out, err = cli(*shlex.split(line))
        assert (code, err) == (0, ""), line
        assert ("at step 5, slots: first_moment, second_moment" in out) == ("--weights-only" not in line)
    went_on = peers_of_sides.train("keras", "adam", range(STEPS, 2 * STEPS), load=cli.folder / "back.keras")
    assert apart(went_on, peers_of_sides.straight("keras", "adam")) < TOLERANCE
    (cli.folder / "cut.pt").write_bytes(b"cut")
    ends = ["--from", "cut.pt", "--to", "o.keras", "--keras", "my_pkg.models:build"]
    assert "cut.pt: not a" in cli.refused("export", "--mapping", yaml, *ends)
