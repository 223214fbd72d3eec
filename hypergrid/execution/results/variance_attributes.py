"""What a variance is of, as attributes of the array."""

from hypergrid.core.units import to_cf
from hypergrid.interpolation import Variogram
from hypergrid.perspective import Aggregate, Interpolate, Perspective
from hypergrid.perspective.build.uncertainty_spec import split_aggregates


def variance_attributes(surface: Perspective, correlation: str) -> dict[str, str]:
    """Return the attributes of a surface's variance: of what value, over what, and by which correlation in time.

    Parameters
    ----------
    surface
        What was computed.
    correlation
        Which correlation between slices was used; empty where none was needed.
    """
    below, aggregates = split_aggregates(surface)
    operator = below.operator
    given = operator.arguments if isinstance(operator, Interpolate) else {}
    model = given.get("variogram")
    is_block = given.get("support") == "block"
    is_noise = isinstance(model, Variogram) and model.nugget_is == "measurement error" and model.nugget > 0
    noise_free = is_noise and (is_block or given.get("variance_of") == "noise-free")
    value = "noise-free value" if noise_free else "observable value"
    steps = [item.operator for item in aggregates if isinstance(item.operator, Aggregate)]
    over = [f"{step.function} over {', '.join(step.dimensions)}" for step in steps]
    of = f"the {', then '.join(over)}, of the {value}" if over else f"the {value}"
    attributes = {
        "long_name": f"kriging variance of {of}",
        "units": f"({to_cf(surface.unit)})2",
        "variance_of": value,
        "support": "mean of a cell" if is_block else "point at a cell's centre",
    }
    if correlation:
        attributes["temporal_correlation"] = correlation
    return attributes
