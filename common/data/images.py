"""Images in IDX files, in CIFAR's binary files and in folders."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from parity.common.base.errors import MissingPackageError, SpecError, how_to_install
from parity.common.data.files import located, present
from parity.common.data.samples import Array, Dataset, Ids, Rows, Source, Stored
from parity.common.spec import sources as spec

# IDX.

_MNIST = "the files of MNIST are at yann.lecun.com/exdb/mnist, put them into this folder"
_IDX_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def files_of_idx(source: spec.MnistIdx) -> dict[str, Path]:
    folder = present(located(source.path), _MNIST, folder=True)
    found = {}
    for part in (source.train, source.test):
        for what in ("images-idx3-ubyte", "labels-idx1-ubyte"):
            path = folder / f"{part}-{what}"
            zipped = folder / f"{path.name}.gz"
            path = path if path.exists() or not zipped.exists() else zipped
            found[path.name] = present(path, f"{_MNIST}, plain or as .gz")
    return found


def open_idx(source: spec.MnistIdx) -> Dataset:
    """Open the files of MNIST or its like.

    Raises:
        SpecError: a file is missing or damaged, or images and labels do not fit each other.
    """
    arrays = [(path, read_idx(path)) for path in files_of_idx(source).values()]
    parts = []
    for (path, images), (labels_path, labels) in (arrays[:2], arrays[2:]):
        if images.ndim != 3 or labels.ndim != 1 or images.dtype != np.uint8 or labels.dtype.kind not in "iu":
            raise SpecError(
                f"data: {path} holds {images.dtype} of shape {images.shape} and {labels_path.name}"
                f" {labels.shape}; expected bytes of (samples, height, width) and (samples,)"
            )
        if len(images) != len(labels):
            raise SpecError(f"data: {path} has {len(images)} images, {labels_path.name} {len(labels)} labels")
        parts.append(Stored(images[..., None], None if source.target == "input" else labels, 255.0))
    return Dataset(parts[0], parts[1])


def read_idx(path: Path) -> Array:
    """Return the array of an IDX file, of the shape and dtype that it states; mapped where it is not compressed.

    Format: two zero bytes, the type, the number of axes, their sizes, the values; all big-endian.

    Raises:
        SpecError: the file is no whole IDX file.
    """
    zipped = path.suffix == ".gz"
    try:
        with gzip.open(path) if zipped else open(path, "rb") as file:
            head = file.read(4)
            if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _IDX_TYPES:
                raise SpecError(f"data: {path} is no IDX file: it begins with {head.hex() or 'nothing'}")
            dtype = np.dtype(_IDX_TYPES[head[2]])
            axes = file.read(4 * head[3])
            shape = tuple(np.frombuffer(axes, ">u4").astype(int).tolist()) if len(axes) == 4 * head[3] else ()
            if len(shape) != head[3]:
                raise SpecError(f"data: {path} is cut short: its header has {4 + len(axes)} bytes")
            size = math.prod(shape) * dtype.itemsize
            # One byte more than there should be is enough to know; the rest may be anything.
            content = file.read(size + 1) if zipped else b""
        found = len(content) if zipped else path.stat().st_size - 4 - len(axes)
    except (OSError, EOFError, zlib.error) as error:
        raise SpecError(f"data: {path} cannot be read: {' '.join(str(error).split())}") from None
    if found != size:
        state = "is cut short" if found < size else "has more than its header says"
        raise SpecError(f"data: {path} {state}: shape {shape} is {size} bytes, it has {found}")
    if zipped or not size:
        return np.frombuffer(content, dtype).reshape(shape)
    return np.memmap(path, dtype, "r", 4 + len(axes), shape)


# CIFAR.

_CIFAR = "take the 'binary version' from www.cs.toronto.edu/~kriz/cifar.html and give its folder"
_CIFAR_PIXELS = 3 * 32 * 32


def files_of_cifar(source: spec.Cifar10 | spec.Cifar100) -> dict[str, Path]:
    """Return the binary files of CIFAR-10 or CIFAR-100 by name.

    Raises:
        SpecError: a file is missing, or the folder has the Python version, whose pickles are not read.
    """
    folder = present(located(source.path), _CIFAR, folder=True)
    names = [f"data_batch_{n}.bin" for n in range(1, 6)] + ["test_batch.bin"]
    if isinstance(source, spec.Cifar100):
        names = ["train.bin", "test.bin"]
    for name in names:
        python = folder / name.removesuffix(".bin")
        if not (folder / name).exists() and python.is_file():
            raise SpecError(
                f"data: {python} is of CIFAR's Python version: pickles, which run code when read; {_CIFAR}"
            )
    return {name: present(folder / name, _CIFAR) for name in names}


def open_cifar(source: spec.Cifar10 | spec.Cifar100) -> Dataset:
    *train, test = files_of_cifar(source).values()
    return Dataset(CifarRecords(source, train), CifarRecords(source, [test]))


class CifarRecords(Source):
    """Records of one or two label bytes and 3072 pixel bytes: red, green, blue planes, row by row."""

    def __init__(self, source: spec.Cifar10 | spec.Cifar100, paths: list[Path]) -> None:
        labels = source.labels if isinstance(source, spec.Cifar100) else None
        self._labels = 1 if labels is None else 2
        self._label = int(labels == "fine")
        self._classes = {None: 10, "coarse": 20, "fine": 100}[labels]
        self._reconstruct = source.target == "input"
        width = self._labels + _CIFAR_PIXELS
        self._parts = []
        self._paths = paths
        for path in paths:
            size = path.stat().st_size
            if not size or size % width:
                raise SpecError(f"data: {path} has {size} bytes, which are no records of {width}; cut short?")
            self._parts.append(np.memmap(path, np.uint8, "r", 0, (size // width, width)))
        self._ends = np.cumsum([len(part) for part in self._parts])
        self.size = int(self._ends[-1])

    def rows(self, positions: Ids) -> Rows:
        records = np.empty((len(positions), self._labels + _CIFAR_PIXELS), np.uint8)
        which = np.searchsorted(self._ends, positions, "right")
        for number, part in enumerate(self._parts):
            here = which == number
            records[here] = part[positions[here] - (self._ends[number] - len(part))]
        labels = records[:, self._label].astype(np.int64)
        if (labels >= self._classes).any():
            wrong = int(which[labels >= self._classes][0])
            raise SpecError(f"data: {self._paths[wrong]}: label {labels.max()} of {self._classes}; damaged?")
        pixels = records[:, self._labels :].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1) / 255.0
        pixels = np.ascontiguousarray(pixels)
        return pixels, pixels.copy() if self._reconstruct else labels


# Folders.

_SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".pgm", ".gif", ".webp", ".tif", ".tiff"}
_FORMATS = ("JPEG", "PNG", "BMP", "PPM", "GIF", "WEBP", "TIFF")
_LAYOUT = "expected a folder with a sub-folder of pictures for each class"


def files_of_folder(source: spec.ImageFolder) -> dict[str, Path]:
    return {
        prefix + str(picture.relative_to(folder)): picture
        for prefix, folder in zip(("", "test/"), _folders(source), strict=False)
        for name in _classes(folder)
        for picture in _pictures(folder / name)
    }


def open_folder(source: spec.ImageFolder) -> Dataset:
    """Open a folder with a subfolder of images for each class.

    Raises:
        SpecError: the folder is missing or empty, or the test folder has a class that it does not have.
    """
    _pillow()
    folders = _folders(source)
    classes = _classes(folders[0])
    for folder in folders[1:]:
        if unknown := sorted(set(_classes(folder)) - set(classes)):
            raise SpecError(f"data: {folder / unknown[0]} is a class that {folders[0]} does not have")
    return Dataset(*(PictureFolder(source, folder, classes) for folder in folders))


def first_size(folder: Path) -> tuple[int, int]:
    """Return height and width of the first picture of a folder with a sub-folder a class; raises SpecError as `open_folder`."""
    picture = _pictures(folder / _classes(folder)[0])[0]
    try:
        with _pillow().open(picture) as image:
            return image.height, image.width
    except OSError as error:
        raise SpecError(f"data: {picture} is no picture: {error}") from None


def _folders(source: spec.ImageFolder) -> list[Path]:
    """That of the samples, and that of the test samples where there is one."""
    return [
        present(located(p), _LAYOUT, folder=True) for p in (source.path, source.test_path) if p is not None
    ]


def _classes(folder: Path) -> list[str]:
    classes = sorted(path.name for path in folder.iterdir() if path.is_dir() and path.name[0] != ".")
    if not classes:
        raise SpecError(f"data: {folder} has no sub-folders; {_LAYOUT}")
    return classes


def _pictures(folder: Path) -> list[Path]:
    found = [path for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES and path.is_file()]
    # By their parts, so that the order is that of the names on every system.
    found.sort(key=lambda path: path.relative_to(folder).parts)
    if not found:
        raise SpecError(f"data: {folder} holds no pictures ({', '.join(sorted(_SUFFIXES))})")
    return found


def _pillow() -> Any:
    try:
        import PIL.Image
    except ImportError:
        raise MissingPackageError(f"image folders need Pillow; {how_to_install('data')}") from None
    return PIL.Image


class PictureFolder(Source):
    """Pictures decoded when asked for; see parity.common.spec.sources.ImageFolder."""

    def __init__(self, source: spec.ImageFolder, folder: Path, classes: list[str]) -> None:
        self._source = source
        self._paths: list[Path] = []
        labels: list[int] = []
        for label, name in enumerate(classes):
            if (folder / name).is_dir():
                found = _pictures(folder / name)
                self._paths += found
                labels += [label] * len(found)
        self._labels = np.array(labels, np.int64)
        self.size = len(self._paths)

    def rows(self, positions: Ids) -> Rows:
        shape = (*self._source.size, self._source.channels)
        pixels = np.empty((len(positions), *shape), np.uint8)
        for row, position in enumerate(positions.tolist()):
            pixels[row] = self._decode(self._paths[position]).reshape(shape)
        inputs = pixels / 255.0
        return inputs, inputs.copy() if self._source.target == "input" else self._labels[positions]

    def _decode(self, path: Path) -> Array:
        image = _pillow()
        height, width = self._source.size
        try:
            with image.open(path, formats=_FORMATS) as file:
                picture = file.convert("RGB" if self._source.channels == 3 else "L")
        except (OSError, ValueError, SyntaxError, image.DecompressionBombError) as error:
            raise SpecError(
                f"data: {path} is no picture, or it is cut short: {' '.join(str(error).split())}"
            ) from None
        scale = max(height / picture.height, width / picture.width)
        if (picture.width, picture.height) != (width, height):
            sides = (max(width, round(picture.width * scale)), max(height, round(picture.height * scale)))
            picture = picture.resize(sides, image.Resampling.BILINEAR)
            left, top = (sides[0] - width) // 2, (sides[1] - height) // 2
            picture = picture.crop((left, top, left + width, top + height))
        return np.asarray(picture, np.uint8)
