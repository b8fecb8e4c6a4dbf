"""What version 0.1 called the parts of a record and of a checkpoint. It is read, and never written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import model_validator

from parity.common.spec import Spec
from parity.common.spec.base import with_new_names
from parity.common.spec.run_config import divided

# Names within a record -> those that version 0.1 gave them.
_NAMES = {
    "sample_ids": "splits",
    "violations": "breaches",
    "fingerprints": "digests",
    "fingerprints.f64": "digests.f64",
}
_FIELDS = {"digest": "spec_hash", "data_digest": "data_hash"}
# Endings of the files with hashes of sample ids.
HASHES = ("hashes", "digests")


def stored(folder: Path, name: str) -> Path:
    """Return the path of what a record's folder holds under `name`, or held under it in version 0.1."""
    earlier = folder / _NAMES[name]
    return earlier if earlier.exists() and not (folder / name).exists() else folder / name


class WithOldNames(Spec):
    """A header or a manifest; in version 0.1 it has other names, and the run options inside the placement."""

    @model_validator(mode="before")
    @classmethod
    def _read_old_names(cls, data: Any) -> Any:
        data = with_new_names(data, _FIELDS)
        if isinstance(data, dict) and "run_options" not in data and isinstance(data.get("placement"), dict):
            parts = divided(data["placement"])
            return data | {name: part for name, part in parts.items() if name in cls.model_fields}
        return data
