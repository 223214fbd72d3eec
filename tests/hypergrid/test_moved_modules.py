import importlib
import sys
from typing import Any

import pytest

from hypergrid.core.moved_modules import MOVED
from hypergrid.topology import Grid, Points
from hypergrid.wo_join import Pipeline, WoJoin

FORMER = [(kind, name) for kind in (Grid, Points, Pipeline, WoJoin) for name in kind.former_names]


@pytest.mark.parametrize("former", sorted(MOVED))
def test_a_former_path_gives_the_module_with_a_warning(former: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, former, raising=False)
    with pytest.warns(DeprecationWarning, match=f"{former} moved to {MOVED[former]}"):
        module = importlib.import_module(former)
    assert module is importlib.import_module(MOVED[former])


def test_scripts_import_the_join_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "hypergrid.streams", raising=False)
    with pytest.warns(DeprecationWarning, match="moved to hypergrid.wo_join"):
        from hypergrid.streams import WoJoin  # noqa: PLC0415 - the import is what is tested
    assert len(WoJoin(2).push([0, 1], [1, 1], [0.0, 0.0])) == 1


@pytest.mark.parametrize(
    ("former", "name"), [("Known", "KnownParameters"), ("Late", "LateTuples"), ("Statistics", "JoinStatistics")]
)
def test_a_former_name_gives_the_class_with_a_warning(former: str, name: str) -> None:
    module = importlib.import_module("hypergrid.wo_join")
    with pytest.warns(DeprecationWarning, match=name):
        assert getattr(module, former) is getattr(module, name)


def test_other_paths_are_unknown() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("hypergrid.nowhere")


def test_former_names_of_attributes_give_the_new_ones_with_a_warning() -> None:
    join: Any = WoJoin(2)
    with pytest.warns(DeprecationWarning, match=r"WoJoin\.least_rows is list_min_rows now"):
        assert join.least_rows() == join.list_min_rows()
    for kind, name in FORMER:
        assert hasattr(kind, kind.former_names[name]), f"{kind.__name__}.{name}"
    with pytest.raises(AttributeError, match="no attribute 'leest_rows'"):
        join.leest_rows()
