"""Cross-validations in JSON, with their arrays, to be read on another machine without loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.encoded_arrays import decode, encode
from hypergrid.core.parameters import bind
from hypergrid.interpolation.methods.registry import METHODS
from hypergrid.interpolation.points import Samples
from hypergrid.interpolation.validation.cross_validate import CrossValidation, assemble_validation

_DTYPE: Final = "<f8"


def write_validation(validation: CrossValidation) -> dict[str, Any]:
    """Convert a cross-validation to JSON: scores as `CrossValidation.to_json`, and all of its arrays."""
    samples = validation.samples
    arrays: dict[str, NDArray[np.float64]] = {
        "values": samples.values,
        "positions_m": samples.positions_m,
        "elevation_m": samples.elevation_m,
        "estimate": validation.estimate,
        **({} if validation.variance is None else {"variance": validation.variance}),
    }
    return validation.to_json() | {
        "names": list(samples.names),
        "arrays": {name: _write_array(array) for name, array in arrays.items()},
        "covariates": {name: _write_array(array) for name, array in samples.covariates.items()},
    }


def read_validation(document: Mapping[str, Any]) -> CrossValidation:
    """Read what `write_validation` returned; its scores are computed again from the same numbers."""
    arrays = {name: _read_array(array) for name, array in document["arrays"].items()}
    samples = Samples(
        arrays["values"],
        arrays["positions_m"],
        arrays["elevation_m"],
        tuple(document["names"]),
        document["unit"],
        {name: _read_array(array) for name, array in document["covariates"].items()},
    )
    validation = assemble_validation(
        samples,
        (arrays["estimate"], arrays.get("variance")),
        method=document["method"],
        given=tuple(_read_parameters(document, parameters) for parameters in document["parameters"]),
        by=document["by"],
        in_closed_form=document["in_closed_form"],
    )
    # Those of the samples that are sent are all used.
    return replace(validation, not_used=tuple(document["not_used"]))


def _read_parameters(document: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Read parameters as `CrossValidation.to_json` writes them: as those of a query."""
    method = METHODS[document["method"]]
    return method.parse(bind(method.name, method.parameters, parameters, variable_unit=document["unit"]))


def _write_array(array: NDArray[np.float64]) -> dict[str, Any]:
    return {"shape": list(array.shape), "float64": encode(array, _DTYPE)}


def _read_array(document: Mapping[str, Any]) -> NDArray[np.float64]:
    return decode(document["float64"], _DTYPE, document["shape"]).astype(np.float64)
