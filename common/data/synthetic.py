"""Samples made from their ids. Integers and exact fractions only, so the same on every machine."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from parity.common.base import rng
from parity.common.data.samples import Array, Ids, Rows, Source
from parity.common.spec.layers.random import threshold
from parity.common.spec.sources import Synthetic

# A linear rule looks at so many entries of an input.
_TERMS = 8
# Patterns have so many cells along an axis of an image or of a sequence; a mask's cells so many pixels.
_PATTERN_CELLS = 4
_MASK_CELL = 4

Words = NDArray[np.uint32]


class SyntheticSource(Source):
    """See parity.common.spec.sources.Synthetic."""

    size = None

    def __init__(self, spec: Synthetic) -> None:
        self.spec = spec
        if spec.vocabulary is None:
            self._make = self._masks if spec.target == "masks" else self._numbers
            self._effects = [
                self._table("effect", column, size) for column, size in enumerate(spec.categories)
            ]
        else:
            self._make = self._tokens
            words = np.arange(spec.vocabulary, dtype=np.int64)
            words = words if spec.pad_id is None else np.delete(words, spec.pad_id)
            self._words = words[rng.permute(self._key("words"), np.arange(len(words)), len(words))]

    def rows(self, positions: Ids) -> Rows:
        return self._make(np.asarray(positions, np.int64))

    def _key(self, purpose: str, *context: int) -> rng.Key:
        return rng.derive_key(self.spec.seed, f"synthetic {purpose}", *context)

    def _draw(self, purpose: str, ids: Ids, count: int) -> Words:
        """`count` random 32-bit words for each sample: (samples, count)."""
        return rng.sample_words(self._key(purpose), 0, ids, count)

    def _whole(self, purpose: str, ids: Ids, count: int, below: int) -> Ids:
        """Whole numbers below a limit: (samples, count)."""
        return rng.below(self._draw(purpose, ids, count), below)

    def _happens(self, purpose: str, ids: Ids, count: int) -> NDArray[np.bool_]:
        """True for the share `noise`: (samples, count)."""
        return self._draw(purpose, ids, count) < np.uint64(threshold(self.spec.noise))

    def _uniform(self, purpose: str, ids: Ids, shape: tuple[int, ...]) -> Array:
        """Fractions in (0, 1) of 16 bits each: (samples, *shape)."""
        count = math.prod(shape)
        words = rng.sample_words(self._key(purpose), 0, ids, -(-count // 2))
        halves = words.astype("<u4").view("<u2").reshape(len(ids), words.shape[1] * 2)[:, :count]
        fractions: Array = ((halves + 0.5) / 2.0**16).reshape(len(ids), *shape)
        return fractions

    def _table(self, purpose: str, number: int, size: int) -> Array:
        """Weights from -1 to 1 for each of `size` things and each score: (size, scores)."""
        return 2 * rng.uniform(self._key(purpose, number), (size, self._scores)) - 1

    @property
    def _scores(self) -> int:
        return self.spec.classes if self.spec.target == "classes" else self.spec.values

    # Numbers.

    def _numbers(self, ids: Ids) -> Rows:
        spec = self.spec
        noise = self._uniform("noise", ids, spec.shape)
        if spec.categories:
            return self._columns(ids, noise)
        if spec.target == "values":
            return self._scaled(noise), self._linear(ids, noise)
        labels = self._whole("class", ids, 1, spec.classes)[:, 0]
        inputs = self._scaled((1 - spec.noise) * self._pattern(labels) + spec.noise * noise)
        return inputs, inputs.copy() if spec.target == "input" else labels

    def _scaled(self, fractions: Array) -> Array:
        spread: Array = self.spec.low + (self.spec.high - self.spec.low) * fractions
        return spread

    def _pattern(self, labels: Ids) -> Array:
        """The pattern of each label's class: (samples, *shape), of coarse cells where there are places."""
        *places, features = self.spec.shape
        cells = [min(side, _PATTERN_CELLS) for side in places]
        result = rng.uniform(self._key("pattern"), (self.spec.classes, *cells, features))[labels]
        for axis, (side, count) in enumerate(zip(places, cells, strict=True), start=1):
            result = result.take(np.arange(side) * count // side, axis)
        return result

    def _linear(self, ids: Ids, fractions: Array) -> Array:
        """A sparse linear function of the input, and noise: (samples, values)."""
        # Term by term, since a product of matrices may round differently in a batch of another size.
        flat = 2 * fractions.reshape(len(ids), math.prod(fractions.shape[1:])) - 1
        result = np.zeros((len(ids), self._scores))
        for term in range(min(_TERMS, flat.shape[1])):
            # One entry for each score, the same for all samples.
            words = rng.philox(self._key("entry", term), np.arange(self._scores, dtype=np.uint64))[:, 0]
            chosen = rng.below(words, flat.shape[1])
            result += flat[:, chosen] * self._table("weight", term, 1)
        return result + self.spec.noise * (2 * self._uniform("target noise", ids, (self._scores,)) - 1)

    def _columns(self, ids: Ids, fractions: Array) -> Rows:
        """Number columns, then category columns as codes; both decide the target."""
        spec = self.spec
        numbers = fractions.shape[1] - len(spec.categories)
        scores = self._linear(ids, fractions[:, :numbers])
        inputs = self._scaled(fractions)
        for column, (size, effect) in enumerate(zip(spec.categories, self._effects, strict=True)):
            codes = rng.below(self._draw(f"category {column}", ids, 1), size)[:, 0]
            inputs[:, numbers + column] = codes
            scores += effect[codes]
        return inputs, scores.argmax(1) if spec.target == "classes" else scores

    def _masks(self, ids: Ids) -> Rows:
        spec = self.spec
        height, width, channels = spec.shape
        rows, columns = (-(-side // _MASK_CELL) for side in (height, width))
        cells = self._whole("cell", ids, rows * columns, spec.classes).reshape(len(ids), rows, columns)
        masks = cells.take(np.arange(height) // _MASK_CELL, 1).take(np.arange(width) // _MASK_CELL, 2)
        colours = rng.uniform(self._key("colour"), (spec.classes, channels))
        noise = self._uniform("noise", ids, spec.shape)
        return self._scaled((1 - spec.noise) * colours[masks] + spec.noise * noise), masks

    # Tokens.

    def _tokens(self, ids: Ids) -> Rows:
        """Words are drawn as numbers from 0, which `_words` turns into tokens."""
        spec = self.spec
        (length,) = spec.shape
        words = len(self._words)
        # One more than the length, since the last token's successor is a target.
        tokens = self._whole("token", ids, length + 1, words)
        if spec.target == "classes":
            labels = self._whole("class", ids, 1, spec.classes)
            # Every classes-th word is one of the class's own.
            own = labels + spec.classes * rng.below(
                self._draw("own token", ids, length + 1), (words - labels + spec.classes - 1) // spec.classes
            )
            tokens = np.where(self._happens("foreign", ids, length + 1), tokens, own)
            targets = labels[:, 0]
        elif spec.target == "tags":
            before = np.concatenate([np.zeros((len(ids), 1), np.int64), tokens[:, : length - 1]], 1)
            targets = (tokens[:, :length] + before % 2) % spec.classes
            other = self._whole("other tag", ids, length, spec.classes)
            targets = np.where(self._happens("foreign", ids, length), other, targets)
        else:
            tokens = self._chains(ids, tokens, words)
            targets = self._words[tokens[:, 1:] if spec.target == "next" else tokens[:, :-1]]
        inputs = self._words[tokens[:, :length]]
        return self._padded(ids, inputs, targets)

    def _chains(self, ids: Ids, tokens: Ids, words: int) -> Ids:
        """Word w is followed by word w + 1, but where a new chain begins."""
        begins = self._happens("begins", ids, tokens.shape[1])
        begins[:, :1] = True
        places = np.arange(tokens.shape[1])
        begin = np.maximum.accumulate(np.where(begins, places, 0), 1)
        return (np.take_along_axis(tokens, begin, 1) + places - begin) % words

    def _padded(self, ids: Ids, inputs: Ids, targets: Ids) -> Rows:
        spec = self.spec
        if spec.pad_id is None:
            return inputs, targets
        (length,) = spec.shape
        lengths = spec.shortest + self._whole("length", ids, 1, length + 1 - spec.shortest)
        padding = np.arange(length) >= lengths
        inputs[padding] = spec.pad_id
        if targets.shape == inputs.shape:
            targets[padding] = spec.pad_id if spec.target == "input" else spec.pad_target
        return inputs, targets
