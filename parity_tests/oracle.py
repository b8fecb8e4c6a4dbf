"""What two records must be called, decided from the numbers in their files alone.

Python's library and NumPy read them here, and nothing of ours: the comparison and this can only agree if both are right.
"""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from pathlib import Path
from typing import Any, Literal

import numpy as np

# equal: the verdict must be parity. apart: it must not be. near: either may be right.
Relation = Literal["equal", "near", "apart"]
# As docs/explanation/method.md states them for float64, relative; all else must be the same.
LOSS, NORMS, FINAL = 1e-12, {"gradient_norm": 1e-10, "parameter_norm": 1e-12, "update_norm": 1e-10}, 1e-10
FIRST_GRADIENTS, EVALUATION = 1e-12, 1e-10
# Below float64 rounding decides, as far as a noise floor shows: this is far beyond any floor of records that are made here.
GROSS = 1e-3
_ROUNDING = 1e-9
# The candidate may be off the reference to either side.
_TWICE = 2.0
_TYPES = {f"{kind}{8 * size}": f"<{kind.lower()}{size}" for kind in "IU" for size in (1, 2, 4, 8)}
_TYPES |= {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BOOL": "?"}


def relation(reference: Path, candidate: Path, precision: str = "float64") -> Relation:
    """How two finished records of one training stand to each other; raises what reading a damaged file raises."""
    ours, theirs = numbers(reference), numbers(candidate)
    broken = [any((folder / "violations").glob("*.jsonl")) for folder in (reference, candidate)]
    if ours.keys() != theirs.keys() or any(broken):
        return "apart"
    # Losses are divided by what was received.
    if not all(np.allclose(each["count"], each["received"], _ROUNDING, 0) for each in (ours, theirs)):
        return "apart"
    found: Relation = "equal"
    if not np.array_equal(ours["count"], ours["received"]):
        found = "near"
    for name, value in ours.items():
        one, other = np.asarray(value), np.asarray(theirs[name])
        if one.dtype.kind in "US" or name == "order":
            if not np.array_equal(one, other):
                # Which replica received what is up to the plan; the samples of each step are compared besides.
                if name != "order":
                    return "apart"
                found = "near"
            continue
        if name == "eval_correct" and precision != "float64":
            continue  # rounding decides which class is a little likelier
        limit = _limit(name) if precision == "float64" else GROSS if _limit(name) else 0.0
        if one.shape != other.shape or not (np.isfinite(one).all() and np.isfinite(other).all()):
            return "apart"
        a, b = one.astype(np.float64), other.astype(np.float64)
        size = np.maximum(np.abs(a), np.abs(b))
        if name.partition("/")[0] in ("first_gradients", "final"):
            size = np.full(size.shape, size.max(initial=0.0))
        if (np.abs(a - b) > _TWICE * limit * size).any():
            return "apart"
        if one.tobytes() != other.tobytes():
            found = "near"
    return found


def _limit(name: str) -> float:
    kind = name.partition("/")[0]
    known = {"loss_sum": LOSS, **NORMS, "first_gradients": FIRST_GRADIENTS, "final": FINAL}
    return {**known, "eval_loss_sum": EVALUATION}.get(kind, 0.0)


def numbers(folder: Path) -> dict[str, Any]:
    """All of a record that is judged, by name."""
    header = json.loads((folder / "header.json").read_text())
    columns = header["columns"]
    rows = np.fromfile(folder / "steps.f64", "<f8")
    rows = rows[: len(rows) // len(columns) * len(columns)].reshape(-1, len(columns))
    judged = ("step", "loss_sum", "count", "learning_rate", *NORMS)
    found: dict[str, Any] = {name: rows[:, columns.index(name)] for name in judged}
    summary = json.loads((folder / "summary.json").read_text())
    for name, usual in (("eval_loss_sum", None), ("eval_count", 0.0), ("eval_correct", 0)):
        value = summary.get(name, usual)
        found[name] = np.array(np.nan if value is None else value, np.float64)
    found |= {name: np.array(str(header.get(name))) for name in ("spec_hash", "data_hash")}
    found["ids"], found["order"], found["received"] = _samples(folder, len(rows))
    for which in ("initial", "first_gradients", "final"):
        tensors = safetensors(folder / f"{which}.safetensors")
        found |= {f"{which}/{name}": value for name, value in tensors.items()}
    return found


def _samples(folder: Path, steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The sample ids of all steps, sorted within each; as the replicas have them, one after another; and how many."""
    by_step: defaultdict[int, dict[int, np.ndarray]] = defaultdict(dict)
    for path in sorted((folder / "sample_ids").glob("*.ids")):
        words = np.fromfile(path, "<i8")
        at = 0
        while at + 3 <= len(words):
            step, replica, count = words[at : at + 3]
            by_step[int(step)][int(replica)] = words[at + 3 : at + 3 + count]
            at += 3 + max(int(count), 0)
    rows = [[by_step[step][replica] for replica in sorted(by_step[step])] for step in range(steps)]
    whole = [np.concatenate(row) if row else np.empty(0, np.int64) for row in rows]
    marked = [np.append(np.sort(each), -1 - step) for step, each in enumerate(whole)]
    empty = [np.empty(0, np.int64)]
    return (
        np.concatenate(empty + marked),
        np.concatenate(empty + whole),
        np.array([len(each) for each in whole]),
    )


def safetensors(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a file, read by what the format's description says."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        start, stop = entry["data_offsets"]
        kind = np.dtype(_TYPES[entry["dtype"]])
        found[name] = np.frombuffer(data[8 + length + start : 8 + length + stop], kind).reshape(
            entry["shape"]
        )
    return found
