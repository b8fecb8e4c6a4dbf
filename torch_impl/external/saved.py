"""A live module as a file, from which another process makes the same one; twin of tf_impl's.

A file of safetensors: the tensors, and as text what each object's class and attributes are. No pickle: nothing in it is
code, and its classes and functions are imported by their names, as those of any model that is named.
"""

from __future__ import annotations

import enum
import functools
import importlib
import json
import sys
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from parity.common.base.errors import ExternalModelError
from parity.common.external.process.naming import found_as

_PLAIN = (type(None), bool, int, float, str)
_LISTS: dict[str, Any] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "size": torch.Size,
}
_DICTS: dict[str, Any] = {"dict": dict, "ordered": OrderedDict}


def save(model: nn.Module, path: Path) -> None:
    """Write a module; raises ExternalModelError that names the attribute which cannot be written."""
    writer = _Writer()
    structure = writer.of(model, "the model")
    save_file(writer.tensors, path, metadata={"structure": json.dumps(structure)})


def load(path: str) -> nn.Module:
    """Make the module that a file holds. Raises ExternalModelError where a class of it is not found."""
    with safe_open(path, "pt") as file:
        reader = _Reader({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118, it is no mapping
        model: nn.Module = reader.of(json.loads(file.metadata()["structure"]))
    return model


class _Writer:
    """tensors: by number. An object that stands in several places is written once."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self._known: dict[int, int] = {}
        self._held: list[Any] = []  # so that no other object gets the number of one that is gone

    def of(self, value: Any, where: str) -> Any:
        """JSON of a value."""
        if isinstance(value, _PLAIN) and type(value) in _PLAIN:
            return value
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, torch.dtype | torch.device):
            return {"torch": str(value).removeprefix("torch."), "as": type(value).__name__}
        if isinstance(value, enum.Enum):
            return {"enum": self._name(type(value), where), "name": value.name}
        if isinstance(value, type | FunctionType | BuiltinFunctionType):
            return {"name": self._name(value, where)}
        if id(value) in self._known:
            return {"again": self._known[id(value)]}
        number = self._known[id(value)] = len(self._held)
        self._held.append(value)
        return {"number": number, **self._new(value, where)}

    def _new(self, value: Any, where: str) -> dict[str, Any]:
        if isinstance(value, torch.Tensor | np.ndarray):
            return self._tensor(value)
        for kind, cls in _LISTS.items():
            if type(value) is cls:
                return {kind: [self.of(each, f"{where}[{place}]") for place, each in enumerate(value)]}
        for kind, cls in _DICTS.items():
            if type(value) is cls:
                return {
                    kind: [[self.of(k, where), self.of(each, f"{where}[{k!r}]")] for k, each in value.items()]
                }
        if isinstance(value, functools.partial):
            return {
                "partial": [self.of(part, where) for part in (value.func, value.args, dict(value.keywords))]
            }
        name = self._name(type(value), where)
        # Without attributes in Python, what an object holds is not seen.
        state = value.__getstate__() if type(value).__dictoffset__ else ()
        if not (state is None or isinstance(state, dict)) or isinstance(value, list | dict | tuple | set):
            raise ExternalModelError(f"{where} is of type {name}, which cannot be written; {_ADVICE}")
        # In `where` attributes are called as in code; a module's own tables of layers and tensors are not.
        return {
            "class": name,
            "state": [
                [key, self.of(each, f"{where}.{key}".removeprefix("the model."))]
                for key, each in (state or {}).items()
            ],
        }

    def _tensor(self, value: Any) -> dict[str, Any]:
        key = str(len(self.tensors))
        tensor = torch.as_tensor(value)
        self.tensors[key] = tensor.detach().cpu().contiguous().clone()
        kind = (
            "array"
            if isinstance(value, np.ndarray)
            else "parameter"
            if isinstance(value, nn.Parameter)
            else ""
        )
        return {"tensor": key, "as": kind, "trained": bool(tensor.requires_grad)}

    def _name(self, value: Any, where: str) -> str:
        module = getattr(value, "__module__", None) or "builtins"
        # Functions of torch that are built in, such as torch.clamp, have another owner than the module they are in.
        for each, name in (
            (module, value.__qualname__),
            ("torch.nn.functional", value.__name__),
            ("torch", value.__name__),
        ):
            if each != "__main__" and found_as(each, name, value):
                return f"{each}:{name}"
        there = getattr(sys.modules.get(module), value.__qualname__, None)
        if isinstance(there, type) and isinstance(value, type) and module != "__main__":
            raise ExternalModelError(
                f"{where} is or holds {module}.{value.__qualname__} as it was before that module was loaded again; make it anew"
            )
        raise ExternalModelError(
            f"{where} is or holds {module}.{value.__qualname__}, which another process cannot import; put it into a module, or {_ADVICE}"
        )


_ADVICE = "give the model by its name, 'package.module:attribute'"


class _Reader:
    """Of tensors by number."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self._tensors = tensors
        self._known: dict[int, Any] = {}

    def of(self, data: Any) -> Any:
        """The value of some JSON."""
        if not isinstance(data, dict):
            return data
        if "again" in data:
            return self._known[data["again"]]
        if "torch" in data:
            return torch.device(data["torch"]) if data["as"] == "device" else getattr(torch, data["torch"])
        if "enum" in data:
            return self._found(data["enum"])[data["name"]]
        if "name" in data:
            return self._found(data["name"])
        number = data["number"]
        if "class" in data:
            cls = self._found(data["class"])
            value = self._known[number] = cls.__new__(cls)  # before its state, which may hold it
            state = {key: self.of(each) for key, each in data["state"]}
            if hasattr(value, "__setstate__"):
                value.__setstate__(state)
            else:
                value.__dict__.update(state)
            return value
        if "list" in data:
            found: list[Any] = []
            self._known[number] = found
            found += [self.of(each) for each in data["list"]]
            return found
        if "dict" in data or "ordered" in data:
            kind = "dict" if "dict" in data else "ordered"
            table = self._known[number] = _DICTS[kind]()
            table.update((self.of(key), self.of(each)) for key, each in data[kind])
            return table
        self._known[number] = made = self._made(data)
        return made

    def _made(self, data: dict[str, Any]) -> Any:
        if "tensor" in data:
            tensor = self._tensors[data["tensor"]]
            if data["as"] == "array":
                return tensor.numpy()
            return (
                nn.Parameter(tensor, data["trained"])
                if data["as"]
                else tensor.requires_grad_(data["trained"])
            )
        if "partial" in data:
            function, arguments, named = (self.of(part) for part in data["partial"])
            return functools.partial(function, *arguments, **named)
        kind = next(each for each in _LISTS if each in data)
        return _LISTS[kind](self.of(each) for each in data[kind])

    def _found(self, name: str) -> Any:
        module, _, attribute = name.partition(":")
        try:
            found: Any = importlib.import_module(module)
            for part in attribute.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError) as error:
            raise ExternalModelError(f"{name} of a model that was given is not found here: {error}") from None
        return found
