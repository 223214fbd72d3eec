"""BLAS and LAPACK routines on parts of an array, in place and without the GIL.

The routines are reached through the function pointers that scipy exports to compiled code (`scipy.linalg.cython_blas`).
Arrays, or views of them, have rows in C order; the part above the diagonal of a lower triangle is ignored.
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
    """Look up a routine whose arguments are characters or addresses, as scipy declares it."""
    capsule = module.__pyx_capi__[name]
    name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
    address_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    declared: bytes = name_of(capsule)
    given = declared.partition(b"(")[2].split(b",")
    kinds = [ctypes.c_char_p if each.strip().startswith(b"char") else ctypes.c_void_p for each in given]
    # CFUNCTYPE releases the GIL during a call.
    return ctypes.CFUNCTYPE(None, *kinds)(address_of(capsule, declared))


# numpy has no triangular routines, and scipy's Python wrappers hold the GIL: for a factor of 2,800 rows no other thread
# ran for 1.2 s.
_GEMM: Final = _routine(cython_blas, "dgemm")
_SYRK: Final = _routine(cython_blas, "dsyrk")
_TRSM: Final = _routine(cython_blas, "dtrsm")
_TRMM: Final = _routine(cython_blas, "dtrmm")
_POTRF: Final = _routine(cython_lapack, "dpotrf")
_TRTRI: Final = _routine(cython_lapack, "dtrtri")
_LAUUM: Final = _routine(cython_lapack, "dlauum")

# BLAS is column-major: it sees each array as its transpose, so products swap their operands and a lower triangle is an
# upper one.


def add_product(c: Floats, a: Floats, b: Floats, *, sign: float = 1.0) -> None:
    """Add `sign a b` to c; a and b may be transposed."""
    (a_held, a_turned), (b_held, b_turned) = _held(a), _held(b)
    _GEMM(
        b_turned, a_turned, _whole(c.shape[1]), _whole(c.shape[0]), _whole(a.shape[1]), _real(sign),
        b_held.ctypes.data, _stride(b_held), a_held.ctypes.data, _stride(a_held),
        _real(1.0), c.ctypes.data, _stride(c),
    )  # fmt: skip


def add_square(c: Floats, a: Floats, *, sign: float = 1.0) -> None:
    """Add `sign a a'` to the lower triangle of c; a may be transposed."""
    held, turned = _held(a)
    _SYRK(
        b"U", b"N" if turned == b"T" else b"T", _whole(c.shape[0]), _whole(a.shape[1]), _real(sign),
        held.ctypes.data, _stride(held), _real(1.0), c.ctypes.data, _stride(c),
    )  # fmt: skip


def multiply_by(lower: Floats, x: Floats, *, side: Literal["left", "right"], transposed: bool = False) -> None:
    """Multiply x in place by a lower triangle, on the given side."""
    _triangular(_TRMM, lower, x, side, 1.0, transposed=transposed)


def divide_by(
    lower: Floats, x: Floats, *, side: Literal["left", "right"], transposed: bool = False, sign: float = 1.0
) -> None:
    """Replace x by `sign x` times a lower triangle's inverse, on the given side."""
    _triangular(_TRSM, lower, x, side, sign, transposed=transposed)


def decompose(lower: Floats) -> None:
    """Overwrite the lower triangle of a symmetric matrix with its Cholesky factor.

    Raises
    ------
    numpy.linalg.LinAlgError
        The matrix is not positive definite.
    """
    _in_place(_POTRF, lower)


def invert(lower: Floats) -> None:
    """Invert a lower triangle in place.

    Raises
    ------
    numpy.linalg.LinAlgError
        The diagonal has a zero.
    """
    _in_place(_TRTRI, lower, b"N")


def square(lower: Floats) -> None:
    """Overwrite a lower triangle with the lower triangle of `lower' lower`."""
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
        raise np.linalg.LinAlgError(
            f"a factor needs a positive definite matrix; {len(lower)} rows are not from row {info.value} on"
        )


def _held(a: Floats) -> tuple[Floats, bytes]:
    """Return a view with rows in C order, and BLAS's transposition flag for it."""
    is_row = a.strides[1] == a.itemsize or a.shape[1] == 1
    return (a, b"N") if is_row else (a.T, b"T")


def _stride(a: Floats) -> object:
    """Return the row stride as a BLAS argument.

    Raises
    ------
    ValueError
        Rows are not in C order or not float64.
    """
    rows, columns = a.shape
    gap = a.strides[0] // a.itemsize if rows > 1 else columns
    # Otherwise BLAS would read and write out of place.
    if a.dtype != np.float64 or (columns > 1 and a.strides[1] != a.itemsize) or gap < columns:
        raise ValueError(
            f"BLAS needs rows of float64 in C order; got {a.dtype} of shape {a.shape} with strides {a.strides}"
        )
    return _whole(max(gap, 1))


def _whole(number: int) -> object:
    return ctypes.byref(ctypes.c_int(number))


def _real(number: float) -> object:
    return ctypes.byref(ctypes.c_double(number))
