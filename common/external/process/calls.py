"""The calls of one traced forward pass, as either framework's hooks report them."""

from __future__ import annotations

from dataclasses import dataclass, field

from parity.common.spec.external.outline import LayerInfo, OperationInfo, Setting, Shape


@dataclass
class Call:
    """count: how often. inputs, outputs: shapes of the first call. place: layers first called before it."""

    place: int
    count: int = 0
    inputs: tuple[Shape, ...] = ()
    outputs: tuple[Shape, ...] = ()


@dataclass
class Calls:
    """A trace under way.

    closed: paths of layers of a known kind, whose insides are nobody's business. listed: paths of the layers that
    the outline lists. leaves: those of them that hold no other layers. Functions are counted for the innermost
    layer, so that one that consists of a single known function can be taken for it.
    """

    listed: frozenset[str]
    closed: frozenset[str]
    leaves: frozenset[str]
    calls: dict[str, Call] = field(default_factory=dict)
    operations: list[OperationInfo] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    functions: dict[str, int] = field(default_factory=dict)
    _stack: list[str] = field(default_factory=list)
    _inside: int = 0

    @property
    def hidden(self) -> bool:
        """Whether what is called now belongs to a layer of a known kind."""
        return bool(self._inside)

    def enter(self, path: str) -> None:
        """A layer or model begins."""
        if not self._inside and path in self.listed:
            self.calls.setdefault(path, Call(len(self.calls)))
            self.order.append(path)
        self._stack.append(path)
        self._inside += path in self.closed

    def leave(self, path: str, inputs: tuple[Shape, ...], outputs: tuple[Shape, ...]) -> None:
        """It ends, and has been given and has returned tensors of these shapes."""
        self._stack.pop()
        self._inside -= path in self.closed
        if self._inside or path not in self.listed:
            return
        call = self.calls[path]
        if not call.count:
            call.inputs, call.outputs = inputs, outputs
        call.count += 1

    def function(self) -> None:
        """Something was computed by a function."""
        if self._stack and not self._inside:
            self.functions[self._stack[-1]] = self.functions.get(self._stack[-1], 0) + 1

    def operation(
        self,
        name: str,
        type_: str,
        kind: str,
        settings: dict[str, Setting],
        inputs: tuple[Shape, ...],
        outputs: tuple[Shape, ...],
    ) -> None:
        """A function of a known kind was called, outside of layers of a known kind."""
        owner = self._stack[-1] if self._stack else ""
        taken = {info.path for info in self.operations}
        first = path = f"{owner}/{name}" if owner else name
        number = 2
        while path in taken:
            path, number = f"{first}~{number}", number + 1
        info = OperationInfo(
            path=path,
            kind=kind,
            type=type_,
            settings=settings,
            calls=1,
            inputs=inputs,
            outputs=outputs,
            owner=owner,
        )
        self.operations.append(info)
        self.order.append(path)

    def placed(self, layers: list[LayerInfo]) -> tuple[LayerInfo, ...]:
        """The layers in order of first call with their calls; those that were not called at the end.

        A layer without kind, all of which was one known function, takes that function's kind and settings.
        """
        result = []
        for layer in layers:
            call = self.calls.get(layer.path)
            update: dict[str, object] = {}
            if call is not None:
                update = {"calls": call.count, "inputs": call.inputs, "outputs": call.outputs}
                own = [] if layer.kind else self._whole(layer.path, call.count)
                if own:
                    update |= {"kind": own[0].kind, "settings": own[0].settings}
            result.append(layer.model_copy(update=update))
        # The functions inside of a layer are a part of what it is, whether that is known or not.
        inner = {info.path for info in self.operations if info.owner in self.leaves}
        self.operations = [info for info in self.operations if info.path not in inner]
        self.order = [path for path in self.order if path not in inner]
        last = len(self.calls)
        return tuple(sorted(result, key=lambda info: self.calls.get(info.path, Call(last)).place))

    def _whole(self, path: str, count: int) -> list[OperationInfo]:
        """The operations of a layer that is nothing but one known function; else none."""
        own = [info for info in self.operations if info.owner == path]
        same = all((info.kind, info.settings) == (own[0].kind, own[0].settings) for info in own)
        return own if len(own) == count == self.functions.get(path, 0) and same else []
