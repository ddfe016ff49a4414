"""A column of images: files by their paths, or the bytes of such files; each becomes pixels of one size.

Pixels lie as [channels, height, width], from 0 to 1, standardised per channel by some of the train rows. What is no
image is named by its row to the owner of the table; nothing of its content is repeated.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from colonnade.data.ids import Array
from colonnade.on_demand import on_demand

if TYPE_CHECKING:
    from PIL import Image
else:
    Image = on_demand("PIL.Image")

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
MOST_PIXELS = 1 << 26
"""Of one image as it lies: a few bytes can ask for gigabytes."""
FITTED_ROWS = 1000
"""Train rows whose pixels the mean and the deviation are taken from."""
_MODES = {1: "L", 3: "RGB"}


@dataclass(frozen=True, eq=False)
class Pixels:
    """Some rows' images."""

    values: Array  # uint8 [rows, height, width, channels]
    gaps: Array  # which rows have none
    wrong: Array  # which have something else


def pixels_in(cells: Sequence[Any], folder: Path, size: tuple[int, int], channels: int) -> Pixels:
    """Of cells that hold the bytes of an image file, or its path, relative to the folder; None or "" for a gap."""
    values = np.zeros((len(cells), *size, channels), np.uint8)
    gaps, wrong = np.zeros(len(cells), np.bool_), np.zeros(len(cells), np.bool_)
    for row, cell in enumerate(cells):
        if not cell:
            gaps[row] = True
            continue
        found = _decoded(cell, folder, size, channels)
        if found is None:
            wrong[row] = True
        else:
            values[row] = found
    return Pixels(values, gaps, wrong)


def _decoded(cell: Any, folder: Path, size: tuple[int, int], channels: int) -> Array | None:
    source = io.BytesIO(cell) if isinstance(cell, bytes) else folder / str(cell)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of strange metadata; what matters raises
            with Image.open(source, formats=FORMATS) as image:
                if image.width * image.height > MOST_PIXELS:
                    return None
                sized = image.convert(_MODES[channels]).resize((size[1], size[0]), Image.Resampling.BILINEAR)
                return np.asarray(sized, np.uint8).reshape(*size, channels)
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError):  # all of which Pillow raises
        return None


@dataclass(frozen=True)
class ImageEncoder:
    """Pixels of one size, standardised per channel; an image that is missing is 0 throughout, which is the mean."""

    KIND: ClassVar[str] = "image"

    height: int
    width: int
    channels: int
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def fit(cls, train: Pixels, size: tuple[int, int], channels: int, standardise: bool) -> ImageEncoder:
        there = train.values[~(train.gaps | train.wrong)]
        if not standardise or not len(there):
            return cls(*size, channels, (0.0,) * channels, (1.0,) * channels)
        parts = [there[..., channel] / 255 for channel in range(channels)]
        mean, deviation = (tuple(float(of(part)) for part in parts) for of in (np.mean, np.std))
        return cls(*size, channels, mean, tuple(one or 1.0 for one in deviation))

    @property
    def size(self) -> tuple[int, int]:
        return self.height, self.width

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of one row."""
        return self.channels, self.height, self.width

    def names(self, column: str) -> tuple[str, ...]:
        sides = range(self.height), range(self.width)
        return tuple(f"{column} {c},{y},{x}" for c in range(self.channels) for y in sides[0] for x in sides[1])

    def encode(self, values: Pixels, out: Array) -> None:
        there = np.flatnonzero(~(values.gaps | values.wrong))
        pixels = values.values[there] / np.float32(255)
        pixels -= np.array(self.mean, np.float32)
        pixels /= np.array(self.deviation, np.float32)
        out[there] = pixels.transpose(0, 3, 1, 2).reshape(len(there), out.shape[1])
