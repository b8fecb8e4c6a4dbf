"""Seeded corruptions: of bytes, of what JSON and YAML say, of the files in a folder."""

from __future__ import annotations

import json
import os
import random
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from parity.common.base.errors import SpecError
from parity.common.checkpoint.files import _seal
from parity.common.spec import TrainSpec
from parity.common.spec.io import dump_json, dump_yaml


def _flip(dice: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 8))):
        changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
    return bytes(changed)


def _truncate(dice: random.Random, data: bytes) -> bytes:
    return data[: dice.randrange(len(data))]


def _grow(dice: random.Random, data: bytes) -> bytes:
    return data + dice.randbytes(dice.choice((1, 7, 8, 72, 5000)))


def _zero(dice: random.Random, data: bytes) -> bytes:
    start = dice.randrange(len(data))
    size = min(dice.choice((1, 8, 512)), len(data) - start)
    return data[:start] + bytes(size) + data[start + size :]


def _cut_out(dice: random.Random, data: bytes) -> bytes:
    start = dice.randrange(len(data))
    return data[:start] + data[start + dice.choice((1, 8, 72)) :]


def _foreign(dice: random.Random, data: bytes) -> bytes:
    return dice.choice(
        (
            b"",
            b"\n",
            dice.randbytes(len(data)),
            b"\x89PNG\r\n\x1a\n" + dice.randbytes(200),
            b"\x80\x04\x95" + dice.randbytes(50) + b".",  # what a pickle begins with
            "\ufeff{}".encode("utf-16"),
            b"null",
            b"[]",
            b"{}",
            b"[" * 200_000,
            b'{"a":' * 50_000,
            ((1 << 62) - 1).to_bytes(8, "little") + b"{}",
            (100).to_bytes(8, "little")
            + b'{"step":{"dtype":"F64","shape":[1099511627776],"data_offsets":[0,0]}}',
        )
    )


BYTES = {
    "bits flipped": _flip,
    "cut short": _truncate,
    "grown": _grow,
    "zeros in it": _zero,
    "a piece cut out": _cut_out,
    "a foreign file": _foreign,
}

NASTY: list[Any] = [
    None,
    True,
    -1,
    0,
    0.5,
    2**31,
    2**63,
    10**18,
    10**400,
    -(10**400),
    1e308,
    5e-324,
    float("nan"),
    float("inf"),
    "",
    "a\nb\x1b[31m\x00",
    "\u202egnp.exe\u2028",
    "x" * 100_000,
    "../../etc/passwd",
    "NaN",
    "1e5",
    [],
    {},
    [[]],
    {"kind": "nope"},
    {"kind": "dense", "units": 10**12},
    {"a\nb": 1},
    [1] * 10_000,
    "<script>alert(1)</script>",
    "💥" * 50,
]


def _deep(depth: int) -> Any:
    value: Any = 1
    for number in range(depth):
        value = [value] if number % 2 else {"layers": value}
    return value


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in plain data, but for the whole."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from _places(item, (*path, key))


def changed_data(dice: random.Random, data: Any) -> tuple[str, Any]:
    """Plain data with one value gone, renamed, added or replaced; and what was done."""
    data = json.loads(json.dumps(data))
    *path, last = dice.choice(list(_places(data)))
    inner = data
    for key in path:
        inner = inner[key]
    where = ".".join(map(str, (*path, last)))
    deed = dice.choice(("replaced",) * 6 + ("removed", "renamed", "added", "nested", "moved"))
    if deed == "removed":
        del inner[last]
    elif deed == "renamed" and isinstance(inner, dict):
        inner[dice.choice((last + "s", last.upper(), "a\nb", "\x00", "__class__"))] = inner.pop(last)
    elif deed == "added" and isinstance(inner, dict):
        inner[dice.choice(("kind", "more", "__init__", "a\nb", "💥"))] = dice.choice(NASTY)
    elif deed == "nested":
        inner[last] = _deep(dice.choice((3, 100, 400)))
    elif deed == "moved":
        *_, other = dice.choice(list(_places(data)))
        inner[last] = other
    else:
        deed, old = "replaced", inner[last]
        near = [old * 2, -old, old + 1, old * 10**9] if isinstance(old, int | float) else [f"{old}s", [old]]
        inner[last] = dice.choice([dice.choice(NASTY), dice.choice(near)])
    return f"{where} {deed}", data


def _twice(dice: random.Random, text: str) -> str:
    """A key that is there twice, with another value."""
    lines = text.splitlines()
    at = dice.choice([n for n, line in enumerate(lines) if ": " in line])
    key, _, value = lines[at].partition(": ")
    comma = value.endswith(",")
    return "\n".join([*lines[:at], f"{key}: {dice.choice(('1', '2.5', 'null'))}{',' * comma}", *lines[at:]])


YAML_ENDINGS = [
    "\na: &a [1, 1]\nb: &b [*a, *a]\nc: [*b, *b]\n",
    "\nmore: !!python/object/apply:os.system ['true']\n",
    "\nmore: !!python/name:os.system\n",
    "\nmore: !!binary c29tZQ==\n",
    "\nseed: !!timestamp 2001-13-45\n",
    "\nseed: !!int maybe\n",
    "\nseed: !!bool maybe\n",
    "\nseed: !!float 0x\n",
    "\nmore: !!set {a, b}\n",
    "\nmore: !!omap [a: 1]\n",
    "\n? [a, b]\n: 1\n",
    "\n? {a: b}\n: 1\n",
    "\n<<: {name: other}\n",
    "\n<<: [1, 2]\n",
    "\n<<: *nothing\n",
    "\n---\nname: second\n",
    "\n...\n",
    "\n%YAML 9.9\n---\n",
    "\n\tseed: 1\n",
    "\nseed: 1:30:00\n",
    "\nseed: 0o17\n",
    "\nseed: " + "9" * 5000 + "\n",
    "\nsteps: .nan\n",
    "\nsteps: .inf\n",
    "\nsteps: 1e999\n",
    "\nmore: " + "[" * 3000 + "\n",
    "\nmore: " + "[" * 3000 + "]" * 3000 + "\n",
    "\nmore: " + "{a: " * 3000 + "\n",
    "\n" + " " * 50 + "more: 1\n",
    "\nmore: 'unclosed\n",
    '\nmore: "\\U0011FFFF"\n',
    "\nmore: " + "x" * 200_000 + "\n",
    "\n" + "".join(f"key{n}: 1\n" for n in range(20_000)),
    "\nname: \x07\n",
    "\nname: \u2028\n",
    "\n" * 100_000,
    "\n- 1\n",
    "\n!<tag:evil> more: 1\n",
    "\nmore: |\n" + "  text\n" * 1000,
    "\n" + "#" * 2_000_000,
]


def spoiled_spec(dice: random.Random, spec: TrainSpec, as_json: bool) -> tuple[str, bytes]:
    """A spec as text, with something done to the text or to what it says."""
    return spoiled_text(dice, dump_json(spec) if as_json else dump_yaml(spec), spec.to_dict(), as_json)


def spoiled_mapping(dice: random.Random, text: str) -> tuple[str, bytes]:
    """A mapping.yaml with something done to the text or to what it says."""
    data = yaml.safe_load(text)
    if dice.random() < 0.3:
        pair = dice.choice(data["tensors"])
        pair["rule"] = dice.choice(RULES)
        return f"rule {pair['rule'][:40]}", yaml.safe_dump(data).encode()
    return spoiled_text(dice, text, data, False)


RULES = [
    "", "same ", "transpose(0)", "constant(0; 999999999999)", "constant(nan; 3)", "constant(0; 3 99999 99999 99999)", "constant(1..2; 3)", "constant(1e999; 3)",
    "flatten(99999999999, 2, 2)", "flatten(-1, 2)", "flatten(0, 0, 0)", "i h k -> (h k", "a a -> a", "-> i", "i -> i j",
    "(" * 5000, "i " * 5000 + "-> i", "n i h k -> (n h k) i; h=0", "n i h k -> (n h k) i; h=-4", "gru", "gru_bias",
    "x" * 9999, "__import__('os')", "i j -> j i; i=1e9", "conv2d; groups=0", "conv2d; groups=7",
]  # fmt: skip


def spoiled_text(dice: random.Random, text: str, data: Any, as_json: bool) -> tuple[str, bytes]:
    """Text of JSON or YAML, and what it says, with something done to either."""
    way = dice.choice(("data", "data", "data", "ending", "twice", "bytes"))
    if way == "data":
        what, data = changed_data(dice, data)
        if as_json or what.endswith(" nested"):
            return what, json.dumps(data, indent=2).encode()
        return what, yaml.safe_dump(data, sort_keys=False, allow_unicode=dice.random() < 0.5).encode()
    if way == "ending":
        at = dice.randrange(len(YAML_ENDINGS))
        return f"ending {at}", (text + YAML_ENDINGS[at]).encode()
    if way == "twice":
        return "a key twice", _twice(dice, text).encode()
    name = dice.choice(list(BYTES))
    return name, BYTES[name](dice, text.encode())


FRAGMENTS = [
    "torch", "tf", "tensorflow", "pytorch", "jax", ":", "::", "ddp", "fsdp2", "mirrored", "1", "2", "0", "-1",
    "9" * 9, "9" * 40, "1.5", ",", "=", "wrap=blocks", "accumulation=4", "accumulation={0:8,5:4}",
    "accumulation={0:", "accumulation=[[0,1]]", "accumulation={a: b}", "accumulation={0: 1.5}", "static_graph=true",
    "timeout_seconds=1e999", "timeout_seconds=.nan", "options={}", "replicas=3", "framework=torch", "resume=/",
    "save={every_steps: 0}", "save={every_steps: 2}", "save={every_minutes: .inf}", "replay={stop: -1}", "device=*a",
    "device=&a b", "device=!!python/name:os", "device=" + "x" * 5000, "pin=maybe", "seed=1", "nodes=2", "\n", "\x00",
    "\u2028", "💥", "taps=yes", "digests=2001-13-45", "digests=2001-01-01", "prefetch_batches=0x", "launcher=[" * 50,
    "device=" + "[" * 5000, "sample_order_seed=" + "9" * 5000, "{", "}", "accumulation={0:1,0:2}", "a" * 3000,
]  # fmt: skip
PLACEMENTS = [
    "torch:ddp:2",
    "tf:mirrored:2",
    "torch:fsdp2:4,wrap=blocks",
    "tensorflow:mirrored:2,accumulation={0:8,5:4}",
]


def spoiled_placement(dice: random.Random) -> str:
    """The text of a placement with fragments of others in it."""
    text = dice.choice(PLACEMENTS)
    for _ in range(dice.choice((1, 1, 2, 3))):
        at = dice.choice((dice.randrange(len(text) + 1), len(text)))
        fragment = dice.choice(FRAGMENTS)
        joint = "," if "=" in fragment and at == len(text) else ""
        cut = dice.choice((0, 0, 1, 3))
        text = text[:at] + joint + fragment + text[at + cut :]
    return text


WORDS = [
    "", "-", "--", "0", "-1", "9" * 40, "1e9", "nan", "None", "true", "a=b", "=", "\x00", "\x1b[2J", "[/]", "é\udcff",
    "../../..", "/dev/null", "/dev/full", "-h", "--help", "--version", "--flagfile=/etc/hostname", "--verbosity=x", "--set",
    "seed=1", "steps=0", "model.layers.0.units=-1", "optimizer={kind: adam", "a.b.c=1", "torch:ddp:2", "tf:mirrored:0",
]  # fmt: skip
# Commands that need no framework, with what they are usually given; {} is a record, a run or nothing.
COMMANDS = [
    ["compare", "{}", "{}", "--checks"],
    ["compare", "--baseline", "{}", "{}", "--threshold", "0.1"],
    ["steps", "{}", "--first-step", "1", "--tail", "3", "--format", "csv"],
    ["report", "{}"],
    ["plan", "--recipe", "digits_mlp", "--replicas", "2", "--steps", "1", "--first-step", "3", "--json"],
    ["show", "digits_mlp", "--set", "steps=3", "--format", "yaml"],
    ["advise", "--recipe", "digits_mlp", "--gpus", "2", "--gpu-memory", "8GB", "--nodes", "1", "--headroom", "0.1"],
    ["submit", "--recipe", "digits_mlp", "--nodes", "2", "--tasks-per-node", "1", "--dry-run", "--placement", "torch:ddp"],
    ["manifest", "--recipe", "digits_mlp", "--placement", "torch:ddp:2", "--kind", "job", "--image", "x"],
    ["checkpoint", "verify", "{}"],
    ["checkpoint", "list", "{}"],
    ["status", "{}"],
    ["run", "--recipe", "digits_mlp", "--replicas", "0", "--placement", "torch:single:1"],
    ["scale", "--recipe", "digits_mlp", "--replicas", "0", "--rounds", "1", "--mode", "weak"],
    ["collectives", "--ranks", "0", "--sizes", "1KiB", "--operations", "all_reduce"],
]  # fmt: skip


def spoiled_flags(dice: random.Random, folders: list[Path]) -> list[str]:
    """A command line with words left out, exchanged, doubled or replaced by others."""
    words = [str(dice.choice(folders)) if word == "{}" else word for word in dice.choice(COMMANDS)]
    for _ in range(dice.choice((0, 1, 1, 2, 3))):
        at = dice.randrange(1, len(words) + 1)
        word = dice.choice([dice.choice(WORDS), dice.choice(words), dice.choice(dice.choice(COMMANDS))])
        deed = dice.choice(("inserted", "replaced", "removed", "joined"))
        if deed == "inserted" or at == len(words):
            words.insert(at, word)
        elif deed == "replaced":
            words[at] = word
        elif deed == "removed":
            del words[at]
        else:
            words[at] = f"{words[at]}={word}"
    return words


def corrupt_folder(dice: random.Random, root: Path, other: Path) -> str:
    """Do something to a file under `root`, `other` being a folder alike; says what and to which."""
    names = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    name = dice.choice(names)
    path = root / name
    whole = ["deleted", "swapped", "of another", "a folder", "a loop", "a pipe", "endless", "twice"]
    weights = [3, 3, 3, 1, 1, 1, 2, 1]
    if dice.random() < 0.3:
        deed = dice.choices(whole, weights)[0]
        _do(deed, dice, path, root, root / dice.choice(names), other / name)
        return f"{name}: {deed}"
    if path.suffix == ".json" and dice.random() < 0.7:
        text = path.read_text()
        if dice.random() < 0.15:
            path.write_text(_twice(dice, text))
            return f"{name}: a key twice"
        what, data = changed_data(dice, json.loads(text))
        if dice.random() < 0.4 and _forged(data):
            what = f"{what}, forged"
        path.write_text(json.dumps(data))
        return f"{name}: {what}"
    data = path.read_bytes()
    if path.suffix == ".safetensors" and dice.random() < 0.4:
        what, data = changed_tensors(dice, data)
        path.write_bytes(data)
        return f"{name}: {what}"
    deed = dice.choice(list(BYTES))
    path.write_bytes(BYTES[deed](dice, data) if data else b"x")
    return f"{name}: {deed}"


def changed_tensors(dice: random.Random, data: bytes) -> tuple[str, bytes]:
    """A safetensors file whose header says something else of one tensor; and what was done."""
    (length,) = struct.unpack("<Q", data[:8])
    header, rest = json.loads(data[8 : 8 + length]), data[8 + length :]
    name = dice.choice([key for key in header if key != "__metadata__"])
    entry, (start, stop) = header[name], header[name]["data_offsets"]
    deeds = {
        "type": {
            "dtype": dice.choice(
                ("F8_E4M3", "F8_E5M2", "BF16", "F16", "F32", "I8", "U64", "BOOL", "F4", "", None)
            )
        },
        "shape": {"shape": dice.choice(([], [0], [-1], [1 << 62], [2] * 70, [1.5], None, [len(rest)]))},
        "offsets": {
            "data_offsets": dice.choice(
                ([0, 0], [stop, start], [0, len(rest) + 8], [-8, 0], [1 << 62] * 2, [])
            )
        },
    }
    deed = dice.choice([*deeds, "name", "twice", "metadata"])
    if deed in deeds:
        header[name] = {**entry, **deeds[deed]}
    elif deed == "name":
        header[dice.choice(("a\nb", "\x1b[2J", "", "../x", "__metadata__", f"{name}/more"))] = header.pop(
            name
        )
    elif deed == "metadata":
        header["__metadata__"] = dice.choice(({}, {"a": 1}, [], "x", {"a": {"b": "c"}}))
    text = json.dumps(header)
    if deed == "twice":
        text = f"{text[:-1]}, {json.dumps(name)}: {json.dumps(entry)}}}"
    said = text.encode()
    return f"{deed} of {name} in the header", struct.pack("<Q", len(said)) + said + rest


def _forged(data: dict[str, Any]) -> bool:
    """Put right what says that a header or a manifest was changed, as someone would who means to deceive."""
    if "spec_hash" not in data:
        return False
    with suppress(SpecError):
        data["spec_hash"] = TrainSpec.parse(data.get("spec")).content_hash()
    if "seal" in data:
        with suppress(RecursionError):
            data["seal"] = _seal(data)
    return True


def _do(deed: str, dice: random.Random, path: Path, root: Path, second: Path, alike: Path) -> None:
    data = path.read_bytes()
    if deed == "swapped":
        path.write_bytes(second.read_bytes())
        second.write_bytes(data)
    elif deed == "of another" and alike.is_file():
        path.write_bytes(alike.read_bytes())
    elif deed == "endless":
        os.truncate(path, dice.choice((1 << 33, 1 << 40)))
    elif deed == "twice":
        path.write_bytes(data * 2)
    else:
        path.unlink()
        if deed == "a folder":
            path.mkdir()
        elif deed == "a loop":
            path.symlink_to(path)
        elif deed == "a pipe":
            os.mkfifo(path)
