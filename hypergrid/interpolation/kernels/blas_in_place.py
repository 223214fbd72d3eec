"""Routines of BLAS and LAPACK on parts of an array, in place and without Python's lock.

numpy has no triangular ones, and what scipy wraps for Python holds the lock (a factor of 2,800 rows: 1.2 s in which no
other thread ran). These are the same routines, by the pointers that scipy offers to compiled code
(`scipy.linalg.cython_blas`). Arrays are in C order, or such parts of one that their rows are; of a lower triangle what
is above the diagonal is not looked at.
"""

import ctypes
from collections.abc import Callable
from types import ModuleType
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cython_blas, cython_lapack

Floats = NDArray[np.float64]
Routine = Callable[..., None]


def _routine(module: ModuleType, name: str) -> Routine:
    """Return a routine whose arguments are text or addresses, as scipy declares it."""
    capsule = module.__pyx_capi__[name]
    name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
    address_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    declared: bytes = name_of(capsule)
    given = declared.partition(b"(")[2].split(b",")
    kinds = [ctypes.c_char_p if each.strip().startswith(b"char") else ctypes.c_void_p for each in given]
    # CFUNCTYPE gives Python's lock away for the time of a call.
    return ctypes.CFUNCTYPE(None, *kinds)(address_of(capsule, declared))


_GEMM: Final = _routine(cython_blas, "dgemm")
_SYRK: Final = _routine(cython_blas, "dsyrk")
_TRSM: Final = _routine(cython_blas, "dtrsm")
_TRMM: Final = _routine(cython_blas, "dtrmm")
_POTRF: Final = _routine(cython_lapack, "dpotrf")
_TRTRI: Final = _routine(cython_lapack, "dtrtri")
_LAUUM: Final = _routine(cython_lapack, "dlauum")

# To BLAS rows are columns: each array is its transpose, a product is taken the other way round, and a lower triangle is
# an upper one.


def add_product(c: Floats, a: Floats, b: Floats, *, sign: float = 1.0) -> None:
    """Add `sign a b` to c; a and b may be transposes."""
    (a_held, a_turned), (b_held, b_turned) = _held(a), _held(b)
    _GEMM(
        b_turned, a_turned, _whole(c.shape[1]), _whole(c.shape[0]), _whole(a.shape[1]), _real(sign),
        b_held.ctypes.data, _stride(b_held), a_held.ctypes.data, _stride(a_held),
        _real(1.0), c.ctypes.data, _stride(c),
    )  # fmt: skip


def add_square(c: Floats, a: Floats, *, sign: float = 1.0) -> None:
    """Add `sign a a'` to the lower triangle of c; a may be a transpose."""
    held, turned = _held(a)
    _SYRK(
        b"U", b"N" if turned == b"T" else b"T", _whole(c.shape[0]), _whole(a.shape[1]), _real(sign),
        held.ctypes.data, _stride(held), _real(1.0), c.ctypes.data, _stride(c),
    )  # fmt: skip


def multiply_by(lower: Floats, x: Floats, *, side: Literal["left", "right"], transposed: bool = False) -> None:
    """Put the product of a lower triangle, on a side of it, and x in the place of x."""
    _triangular(_TRMM, lower, x, side, 1.0, transposed=transposed)


def divide_by(
    lower: Floats, x: Floats, *, side: Literal["left", "right"], transposed: bool = False, sign: float = 1.0
) -> None:
    """Put the product of the inverse of a lower triangle, on a side of it, and `sign x` in the place of x."""
    _triangular(_TRSM, lower, x, side, sign, transposed=transposed)


def decompose(lower: Floats) -> None:
    """Put the Cholesky factor of a symmetric matrix in the place of its lower triangle.

    Raises
    ------
    numpy.linalg.LinAlgError
        It is not positive definite.
    """
    _in_place(_POTRF, lower)


def invert(lower: Floats) -> None:
    """Put the inverse of a lower triangle in its place.

    Raises
    ------
    numpy.linalg.LinAlgError
        It has a zero on its diagonal.
    """
    _in_place(_TRTRI, lower, b"N")


def square(lower: Floats) -> None:
    """Put the lower triangle of `lower' lower` in the place of a lower triangle."""
    _in_place(_LAUUM, lower)


def _triangular(
    routine: Routine, lower: Floats, x: Floats, side: Literal["left", "right"], sign: float, *, transposed: bool
) -> None:
    routine(
        b"R" if side == "left" else b"L", b"U", b"T" if transposed else b"N", b"N",
        _whole(x.shape[1]), _whole(x.shape[0]), _real(sign),
        lower.ctypes.data, _stride(lower), x.ctypes.data, _stride(x),
    )  # fmt: skip


def _in_place(routine: Routine, lower: Floats, *options: bytes) -> None:
    info = ctypes.c_int(0)
    routine(b"U", *options, _whole(len(lower)), lower.ctypes.data, _stride(lower), ctypes.byref(info))
    if info.value:
        message = f"a factor needs a positive definite matrix; {len(lower)} rows are not from row {info.value} on"
        raise np.linalg.LinAlgError(message)


def _held(a: Floats) -> tuple[Floats, bytes]:
    """Return an array whose rows are in C order, and whether it is the transpose of the one that is meant."""
    is_row = a.strides[1] == a.itemsize or a.shape[1] == 1
    return (a, b"N") if is_row else (a.T, b"T")


def _stride(a: Floats) -> object:
    """Return how far apart rows are.

    Raises
    ------
    ValueError
        Rows are not in C order, or not of 64-bit numbers: BLAS would read and write elsewhere.
    """
    rows, columns = a.shape
    gap = a.strides[0] // a.itemsize if rows > 1 else columns
    if a.dtype != np.float64 or (columns > 1 and a.strides[1] != a.itemsize) or gap < columns:
        message = f"BLAS needs rows of float64 in C order; got {a.dtype} of shape {a.shape} with strides {a.strides}"
        raise ValueError(message)
    return _whole(max(gap, 1))


def _whole(number: int) -> object:
    return ctypes.byref(ctypes.c_int(number))


def _real(number: float) -> object:
    return ctypes.byref(ctypes.c_double(number))
