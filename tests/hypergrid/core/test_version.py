"""What is missing because an extra was not installed is named with the extra."""

import pytest

from hypergrid.core.version import explain_missing


@pytest.mark.parametrize(
    ("module", "extras"),
    [
        ("pyspark.sql", "hypergrid-stations[ingest]"),
        ("paho.mqtt.client", "hypergrid-stations[ingest]"),
        ("sse_starlette", "hypergrid-stations[serve]"),
        ("prometheus_client", "hypergrid-stations[ingest] or hypergrid-stations[serve]"),
    ],
)
def test_the_extra_that_brings_a_module_is_named(module: str, extras: str) -> None:
    explained = explain_missing(ModuleNotFoundError(f"No module named {module!r}", name=module))
    assert explained == f"{module.partition('.')[0]} is not installed: install {extras}"


def test_a_module_that_comes_with_spark_is_named_as_spark() -> None:
    explained = explain_missing(ModuleNotFoundError("No module named 'py4j'", name="py4j"))
    assert explained == "pyspark is not installed: install hypergrid-stations[ingest]"


@pytest.mark.parametrize("module", ["numpy", "hypergrid.nothing", "", None])
def test_other_modules_are_of_no_extra(module: str | None) -> None:
    assert explain_missing(ModuleNotFoundError("No module", name=module)) is None
