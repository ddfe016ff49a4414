"""Pictures of three-dimensional shapes from all around: what parties that look at one object from different sides see.

A shape is a grid of cells that are full or empty, [across, along, up]. It is turned about the upright axis in equal
steps. A picture holds, for every pixel, how near the first full cell behind it is: 255 at the front, 1 at the back, 0
where one sees through.
"""

from math import cos, pi, sin, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

VIEWS = 12


def views(shapes: NDArray[Any], count: int = VIEWS) -> NDArray[np.uint8]:
    """Pictures of cubes [n, side, side, side] from `count` angles: [n, count, side, side], the top of a shape above.

    Everything is smaller by √2, so that no corner is cut off when a cube is turned by 45 degrees.

    >>> pole = np.zeros((1, 5, 5, 5))
    >>> pole[0, 2, 0, :] = 1
    >>> views(pole, count=4)[0, 0, 1].tolist()  # in the middle, and at the front
    [0, 0, 255, 0, 0]
    >>> views(pole, count=4)[0, 2, 1].tolist()  # from behind
    [0, 0, 1, 0, 0]
    """
    number, side = shapes.shape[:2]
    shape, cell = np.nonzero(np.asarray(shapes).reshape(number, -1))
    pictures = np.zeros((count, number * side * side), np.uint8)
    for place in range(count):
        pixel, nearness = _looking(side, 2 * pi * place / count)
        np.maximum.at(pictures[place], shape * side * side + pixel[cell], nearness[cell])
    return np.ascontiguousarray(pictures.reshape(count, number, side, side).swapaxes(0, 1))


def _looking(side: int, angle: float) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """For each cell the pixel that it is seen in, and how near it is."""
    middle = (side - 1) / 2
    across, along, up = (axis.ravel() - middle for axis in np.indices((side, side, side)))
    right = (across * cos(angle) + along * sin(angle)) / sqrt(2)
    depth = (along * cos(angle) - across * sin(angle)) / sqrt(2)
    column, row = (np.rint(place + middle).astype(np.int64) for place in (right, -up / sqrt(2)))
    nearness = 1 + 254 * (depth.max() - depth) / (depth.max() - depth.min())
    return row * side + column, np.rint(nearness).astype(np.uint8)
