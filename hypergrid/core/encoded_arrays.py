"""Arrays in JSON: base64 of little-endian values in row-major order, so that no digit is lost."""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def encode(array: NDArray[np.generic], dtype: str) -> str:
    """Encode an array in row-major order, as base64 of `dtype`."""
    return base64.b64encode(np.ascontiguousarray(array, dtype).tobytes()).decode("ascii")


def decode(text: str, dtype: str, shape: Sequence[int]) -> NDArray[Any]:
    """Decode what `encode` returned, as a new array."""
    return np.frombuffer(base64.b64decode(text), dtype).reshape(shape).copy()
