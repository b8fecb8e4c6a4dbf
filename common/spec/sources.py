"""Where samples come from: one spec a kind of source.

Inputs are in canonical layout (images HWC, pixels divided by 255), classes are int64 from 0. A path that
is not absolute is looked up below $PARITY_DATA where that is set, else below the working folder, so
that one spec serves machines that keep their data in different places.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, model_validator
from pydantic_core.core_schema import CoreSchema, no_info_before_validator_function

from parity.common.spec.base import NonNegativeInt, Number, PositiveInt, Spec

ClassOrInput = Literal["class", "input"]
_TARGET = "input: the model reconstructs what it is given"
_PERMUTE = "a keyed order of the samples before the first are taken for training; None: the source's own"


class SourceBase(Spec):
    """Fields that every finite source has."""

    permute_seed: NonNegativeInt | None = Field(default=None, description=_PERMUTE)


class FileSource(SourceBase):
    """A source in files that the user has.

    `sha256` pins them: the record's `data_hash`, or for a single file that file's own SHA-256.
    """

    path: str = Field(min_length=1, description="file or folder; relative to $PARITY_DATA where that is set")
    sha256: str | None = Field(
        default=None,
        pattern=r"^[0-9a-f]{64}$",
        description="pins the files: the record's data_hash, or a single file's own SHA-256",
    )


class Digits(SourceBase):
    """1797 handwritten digits of 8x8 pixels that scikit-learn ships, from 0 to 1."""

    kind: Literal["digits"] = "digits"
    target: ClassOrInput = Field(default="class", description=_TARGET)


class ShippedTable(SourceBase):
    """A table that scikit-learn ships: one row a sample. Most are sorted by class, hence the order.

    `standardise` subtracts the mean and divides by the standard deviation (over N) of the training
    samples, in float64; a column that does not vary is only centred.
    """

    kind: str
    permute_seed: NonNegativeInt | None = Field(default=0, description=_PERMUTE)
    standardise: bool = Field(
        default=True,
        description="subtract each column's mean and divide by its standard deviation, both of the training samples",
    )


class Iris(ShippedTable):
    """150 flowers: 4 columns, 3 classes."""

    kind: Literal["iris"] = "iris"


class Wine(ShippedTable):
    """178 wines: 13 columns, 3 classes."""

    kind: Literal["wine"] = "wine"


class BreastCancer(ShippedTable):
    """569 tumours: 30 columns, 2 classes."""

    kind: Literal["breast_cancer"] = "breast_cancer"


class Diabetes(ShippedTable):
    """442 patients: 10 columns, one number to predict, from 25 to 346."""

    kind: Literal["diabetes"] = "diabetes"


class MnistIdx(FileSource):
    """IDX files as MNIST, Fashion-MNIST, KMNIST and EMNIST come, plain or .gz; `path` is their folder.

    Evaluated on the test files. Names: TRAIN-images-idx3-ubyte, TRAIN-labels-idx1-ubyte, and so TEST.
    """

    kind: Literal["mnist_idx"] = "mnist_idx"
    train: str = Field(default="train", description="how the training files' names begin")
    test: str = Field(default="t10k", description="how the test files' names begin")
    target: ClassOrInput = Field(default="class", description=_TARGET)


class Cifar10(FileSource):
    """CIFAR-10, binary version; `path` is the folder of data_batch_1.bin to test_batch.bin.

    Evaluated on the test file.
    """

    kind: Literal["cifar10"] = "cifar10"
    target: ClassOrInput = Field(default="class", description=_TARGET)


class Cifar100(FileSource):
    """CIFAR-100, binary version; `path` is the folder of train.bin and test.bin. Evaluated on test.bin."""

    kind: Literal["cifar100"] = "cifar100"
    labels: Literal["fine", "coarse"] = Field(default="fine", description="fine: 100 classes; coarse: 20")
    target: ClassOrInput = Field(default="class", description=_TARGET)


class ImageFolder(FileSource):
    """A sub-folder a class, in sorted order, with pictures in any depth below it, in sorted order.

    A picture is scaled until it just covers `size` (Pillow's bilinear filter), cut to its centre, and
    decoded when it is asked for. Without `test_path` the samples after the training samples are evaluated.
    """

    kind: Literal["image_folder"] = "image_folder"
    permute_seed: NonNegativeInt | None = Field(default=0, description=_PERMUTE)
    test_path: str | None = Field(
        default=None,
        min_length=1,
        description="folder to evaluate on; null: the samples after the training samples",
    )
    size: tuple[PositiveInt, PositiveInt] = Field(description="height and width")
    channels: Literal[1, 3] = Field(default=3, description="1: grey; 3: RGB")
    target: ClassOrInput = Field(default="class", description=_TARGET)


class Npy(FileSource):
    """Memory-mapped .npy arrays: `path` the inputs, `targets_path` the targets, one row a sample."""

    kind: Literal["npy"] = "npy"
    targets_path: str | None = Field(default=None, min_length=1, description="None: the target is the input")
    test_path: str | None = Field(
        default=None,
        min_length=1,
        description="inputs to evaluate on; null: the samples after the training samples",
    )
    test_targets_path: str | None = Field(default=None, min_length=1, description="targets to evaluate on")
    divide_by: Number = Field(default=1.0, gt=0, description="of inputs that are numbers, e.g. 255")

    @model_validator(mode="after")
    def _complete(self) -> Npy:
        if self.test_path is None and self.test_targets_path is not None:
            raise ValueError("test_targets_path needs a test_path")
        if self.test_path is not None and (self.test_targets_path is None) != (self.targets_path is None):
            raise ValueError("test_targets_path must be given where targets_path is, and only there")
        return self


class Npz(FileSource):
    """Two arrays of an .npz file, one row a sample; memory-mapped where they are not compressed.

    Of several inputs the numbers of a sample are one row, array after array; targets are among them, then.
    """

    kind: Literal["npz"] = "npz"
    inputs: str | tuple[str, ...] = Field(
        default="x", description="name of the array, or of several, which are joined row by row"
    )
    targets: str | None = Field(default="y", description="None: the target is the input")
    test_path: str | None = Field(
        default=None,
        min_length=1,
        description="file to evaluate on; null: the samples after the training samples",
    )
    divide_by: Number = Field(default=1.0, gt=0, description="of inputs that are numbers, e.g. 255")

    @model_validator(mode="after")
    def _joined_are_all(self) -> Npz:
        if not isinstance(self.inputs, str) and (self.targets is not None or self.divide_by != 1):
            raise ValueError("several inputs are taken as they are: give targets: null, and no divide_by")
        return self


class TableFile(FileSource):
    """One row a sample. The chosen columns are held in memory: numbers as float64, categories as codes.

    `categorical` columns, and a target of classes, are coded 0, 1, ... in the sorted order of the values
    in all files (as numbers where all are whole numbers, else as text).
    """

    inputs: tuple[str, ...] = Field(min_length=1, description="columns, in this order")
    categorical: tuple[str, ...] = Field(default=(), description="those of the inputs that are categories")
    target: str | tuple[str, ...] = Field(description="a column, or several that are numbers")
    target_kind: Literal["classes", "values"] = Field(
        default="classes", description="classes: coded from 0; values: numbers"
    )
    test_path: str | None = Field(
        default=None,
        min_length=1,
        description="file to evaluate on; null: the samples after the training samples",
    )
    standardise: bool = Field(default=False, description="number columns, by the training samples; see iris")

    @model_validator(mode="after")
    def _columns_suit(self) -> TableFile:
        unknown = [name for name in self.categorical if name not in self.inputs]
        if unknown:
            raise ValueError(f"categorical names {unknown[0]!r}, which is not among inputs")
        if len(set(self.inputs)) < len(self.inputs):
            raise ValueError("inputs names a column twice")
        if self.target_kind == "classes" and not isinstance(self.target, str):
            raise ValueError("target names several columns; classes need one")
        return self


class Csv(TableFile):
    """A text table with a line of column names; quoted as RFC 4180 says."""

    kind: Literal["csv"] = "csv"
    delimiter: str = Field(
        default=",", min_length=1, max_length=1, description="the character between two columns"
    )


class Parquet(TableFile):
    """A Parquet file."""

    kind: Literal["parquet"] = "parquet"


class Tokens(FileSource):
    """A flat file of token ids: .npy, or raw little-endian integers of `dtype`. Memory-mapped.

    Sample i is tokens[i * stride : i * stride + length]; its target the same one place later.
    """

    kind: Literal["tokens"] = "tokens"
    dtype: Literal["uint16", "uint32"] = Field(
        default="uint16", description="of a raw file; .npy names its own"
    )
    length: PositiveInt = Field(description="tokens of a sample")
    stride: PositiveInt | None = Field(default=None, description="None: length")
    vocabulary: PositiveInt | None = Field(default=None, description="a token outside is an error")
    test_path: str | None = Field(
        default=None,
        min_length=1,
        description="file to evaluate on; null: the samples after the training samples",
    )


class Synthetic(Spec):
    """Samples made from their ids: as many as asked for, the same on every machine, with a rule to learn.

    Numbers lie between `low` and `high`. Each class has a pattern, and `noise` of a sample is uniform
    noise. `values` are a sparse linear function of the input, `masks` give each cell of four pixels a class
    and its colour. `categories` are the sizes of the category columns, which follow the number columns of
    a table.

    Tokens (`vocabulary` given): for `next`, each token but the share `noise` decides the one after it;
    a text of a class draws all but the share `noise` from the class's own words; a token's tag follows
    from it and its predecessor, but for the share `noise`. With `pad_id`, texts have lengths drawn evenly
    from `shortest` to the whole, the rest is padding with `pad_target`.
    """

    kind: Literal["synthetic"] = "synthetic"
    seed: NonNegativeInt = Field(default=0, description="another seed gives other samples and another rule")
    shape: tuple[PositiveInt, ...] = Field(min_length=1, description="of one input")
    target: Literal["classes", "values", "masks", "next", "tags", "input"] = Field(
        default="classes", description="what is to be learned"
    )
    classes: PositiveInt = Field(
        default=10, description="classes of a sample, of a pixel, or tags of a token"
    )
    values: PositiveInt = Field(default=1, description="numbers to predict")
    noise: Number = Field(
        default=0.25, ge=0, le=1, description="how far samples stray from the rule, from 0 to 1"
    )
    low: Number = Field(default=-1.0, description="smallest number of an input")
    high: Number = Field(default=1.0, description="largest number of an input")
    categories: tuple[PositiveInt, ...] = Field(
        default=(), description="sizes of the category columns of a table, which follow its number columns"
    )
    vocabulary: PositiveInt | None = Field(default=None, description="inputs are tokens below this")
    pad_id: NonNegativeInt | None = Field(
        default=None, description="the token that fills short texts; null: all texts have the full length"
    )
    shortest: PositiveInt = Field(default=1, description="smallest length of a text where there is a pad_id")
    pad_target: int = Field(default=0, strict=True, description="target of a token that is padding")

    token_targets: ClassVar[tuple[str, ...]] = ("classes", "next", "tags", "input")
    number_targets: ClassVar[tuple[str, ...]] = ("classes", "values", "masks", "input")

    @model_validator(mode="after")
    def _possible(self) -> Synthetic:
        known = self.number_targets if self.vocabulary is None else self.token_targets
        what = "numbers" if self.vocabulary is None else "tokens"
        if self.target not in known:
            raise ValueError(f"target of {what} must be one of {', '.join(known)}")
        if self.low >= self.high:
            raise ValueError(f"low must be below high, received {self.low} and {self.high}")
        if self.vocabulary is not None:
            self._tokens_possible(self.vocabulary)
        elif self.pad_id is not None:
            raise ValueError("pad_id needs a vocabulary")
        if self.target == "masks" and len(self.shape) != 3:
            raise ValueError("masks need a shape of (height, width, channels)")
        if self.categories and (len(self.shape) != 1 or len(self.categories) > self.shape[0]):
            raise ValueError("categories need a shape of (columns,) with a column for each")
        if self.categories and self.target not in ("classes", "values"):
            raise ValueError("categories need a target of classes or values")
        return self

    def _tokens_possible(self, vocabulary: int) -> None:
        if len(self.shape) != 1:
            raise ValueError("tokens need a shape of (tokens,)")
        if self.categories:
            raise ValueError("categories are columns of a table; tokens have a vocabulary")
        if self.pad_id is not None and self.pad_id >= vocabulary:
            raise ValueError(f"pad_id {self.pad_id} is not below the vocabulary of {vocabulary}")
        if self.shortest > self.shape[0]:
            raise ValueError(f"shortest {self.shortest} exceeds the {self.shape[0]} tokens")
        words = vocabulary - (self.pad_id is not None)
        if words < (self.classes if self.target in ("classes", "tags") else 1):
            raise ValueError(f"a vocabulary of {vocabulary} is too small for {self.classes} classes")


class _ByName:
    """`source: digits` means `source: {kind: digits}`."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_before_validator_function(cls._kind_of_name, handler(source))

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        shipped = ["digits", "iris", "wine", "breast_cancer", "diabetes"]
        return {"anyOf": [{"type": "string", "enum": shipped}, handler(core_schema)]}

    @staticmethod
    def _kind_of_name(value: Any) -> Any:
        return {"kind": value} if isinstance(value, str) else value


SourceSpec = Annotated[
    Annotated[
        Digits
        | Iris
        | Wine
        | BreastCancer
        | Diabetes
        | MnistIdx
        | Cifar10
        | Cifar100
        | ImageFolder
        | Npy
        | Npz
        | Csv
        | Parquet
        | Tokens
        | Synthetic,
        Field(discriminator="kind"),
    ],
    _ByName,
]
