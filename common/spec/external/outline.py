"""What a built model of either framework consists of, as plain data: layers, settings, tensors.

Written in the framework's own process (`{tf,torch}_impl/external/outline.py`), read everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from parity.common.spec.base import NonNegativeInt, Spec

Setting = bool | int | float | str | None | tuple[int, ...]
Settings = dict[str, Setting]
Shape = tuple[int | None, ...]


class TensorInfo(Spec):
    """A weight or a buffer.

    name: Keras: the variable's path, without the model's own name where all begin with it; torch: that of the
        state_dict. layer: path of the layer that owns it. role: its canonical name in that layer ('kernel',
        'bias', 'gamma', 'moving_mean', ..., as our layer specs call them), else the attribute.
    tied_to: the name of the tensor that it is the same object as; that one comes first.
    penalty: the factors of its absolute values and of its squares in the loss (Keras: the regularizer of a variable);
        None: there is none, or one of another form.
    constraint: what it is brought to after each update (Keras: the constraint of a variable), '' for nothing.
    """

    name: str
    layer: str
    role: str
    shape: tuple[NonNegativeInt, ...]
    dtype: str
    trainable: bool
    buffer: bool = False
    tied_to: str | None = None
    penalty: tuple[float, float] | None = None
    constraint: str = ""


class LayerInfo(Spec):
    """A layer that computes something by itself, or owns tensors; in the order of its first call.

    kind: as our layer specs call it ('dense', 'conv2d', 'batch_norm', ...; see `settings.py`), '' where it is none
        that we know. type: the class's own qualified name. settings: by canonical name, in canonical meaning
        (momentum as Keras means it, and so on). calls: how often one forward pass called it. inputs, outputs: shapes
        of its first call, with the batch. overridden: the class derives from the one that `kind` names and
        computes in a way of its own. attribute: what the code of a subclassed Keras model calls it ('blocks.0.query',
        where its path has 'block/dense'), '' where no attribute holds it; torch's paths are such names.
    """

    path: str
    kind: str
    type: str
    settings: Settings = {}
    calls: NonNegativeInt = 0
    inputs: tuple[Shape, ...] = ()
    outputs: tuple[Shape, ...] = ()
    overridden: bool = False
    attribute: str = ""


class OperationInfo(LayerInfo):
    """What computes and is no layer of its own: a function that a pass called, or a Keras layer's `activation`.

    path: its owner's path and the function's name. owner: path of the innermost layer or model that it was called
    in. It has no tap of its own.
    """

    owner: str


class OptimizerInfo(Spec):
    """A user's optimizer.

    kind: as our optimizer specs call it, '' where it is of a class of one's own. base: the kind that such a class derives
    from or looks like; it need not do what its settings say. settings: in canonical names and meanings. undecayed: names of
    the trained tensors without the weight decay that others have. numbers: further positive ones that a class of one's
    own holds, a limit of clipping for instance. code: where the functions of such a torch class begin, 'model.py:12'.
    """

    kind: str
    type: str
    base: str = ""
    numbers: tuple[float, ...] = ()
    settings: Settings = {}
    undecayed: tuple[str, ...] = ()
    code: tuple[str, ...] = ()


class Outline(Spec):
    """A model of one framework.

    inputs, outputs: of the traced pass: name -> shape with the batch. loss_terms: what it gives beside them for
    its loss alone, in a pair whose other model gives nothing of the kind. output_names: of the layers that give them, where
    a functional Keras model gives a list. stochastic: layers that draw random
    numbers in training, with a rate that is not zero. unused: tensors that the traced pass did not touch, but for
    torch's num_batches_tracked, which only training touches. used: the others, in the order of their first use. operations: those outside of layers of a known kind.
    order: path of a layer or operation for each of their calls. Without a traced pass, layers stand in the order
    of their definition with no calls, and inputs, outputs, unused and order are empty, and the only operations
    are `activation` arguments. trained_by: what a Keras model is trained by other than a cross-entropy of classes: a method of its own,
    or the loss that it is compiled with. optimizers: of a script with several, in its order, and then no `optimizer`. rebuilt: a line that says so where it was built again in another version of the framework. compiled: the optimizer of its `compile`, which is not what it is trained by here.
    """

    framework: Literal["tensorflow", "torch"]
    target: str
    type: str
    versions: dict[str, str]
    layers: tuple[LayerInfo, ...]
    tensors: tuple[TensorInfo, ...]
    operations: tuple[OperationInfo, ...] = ()
    order: tuple[str, ...] = ()
    inputs: dict[str, Shape] = {}
    outputs: dict[str, Shape] = {}
    loss_terms: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    stochastic: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    used: tuple[str, ...] = ()
    optimizer: OptimizerInfo | None = None
    optimizers: tuple[OptimizerInfo, ...] = ()
    trained_by: str = ""
    rebuilt: str = ""
    compiled: OptimizerInfo | None = None
    seconds: Annotated[float, Field(ge=0)] = 0.0


def positive(*holders: Mapping[str, Any]) -> tuple[float, ...]:
    """The positive numbers that objects hold as attributes or items, each once."""
    values = (value for holder in holders for value in holder.values())
    found = {float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool) and v > 0}
    return tuple(sorted(found))
