"""Labels of a map, placed by the page's own script: none over another, a disc or an obstacle, extremes first."""

import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from viz.site import PAGES

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js, which runs scripts of the pages")
WIDE, HIGH = 1200, 660
OBSTACLE = {"left": 0, "right": 430, "top": 0, "bottom": 130}
LINE_PX, LETTER_PX = 16, 7.2


def place(folder: Path, discs: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return the labels of discs on a map of 12 by 6.6 degrees."""
    (folder / "labels.mjs").write_text((PAGES / "labels.js").read_text("utf-8"), "utf-8")
    plot = {
        "x_range": {"start": 0, "end": 12},
        "y_range": {"start": 0, "end": 6.6},
        "frame_width": WIDE,
        "frame_height": HIGH,
    }
    (folder / "run.mjs").write_text(
        "import { placeLabels } from './labels.mjs';"
        f"console.log(JSON.stringify(placeLabels({json.dumps(discs)}, {json.dumps(plot)}, [{json.dumps(OBSTACLE)}])));",
        "utf-8",
    )
    done = subprocess.run(["node", folder / "run.mjs"], capture_output=True, check=True, text=True)  # noqa: S607
    return dict(json.loads(done.stdout))


def discs(count: int, *, size: float, seed: int = 7) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        {
            "lon": rng.uniform(-1.0, 13.0), "lat": rng.uniform(0.0, 6.6), "size": size, "text": f"{at / 10:.1f}",
            "value": at / 10, "isShown": at % 9 > 0, "station": f"S{at}", "name": f"Station {at}",
        }
        for at in range(count)
    ]  # fmt: skip


def boxes(labels: dict[str, list[Any]]) -> list[tuple[float, float, float, float]]:
    """Return left, right, top and bottom of labels [px]."""
    made = []
    for x, y, text, right, down in zip(*(labels[name] for name in ("x", "y", "text", "right", "down")), strict=True):
        left, top, width = 100 * x + right, HIGH - 100 * y + down, LETTER_PX * len(text)
        left -= 0 if right > 0 else width if right < 0 else width / 2
        top -= 0 if down > 0 else LINE_PX if down < 0 else LINE_PX / 2
        made.append((left, left + width, top, top + LINE_PX))
    return made


def overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Tell whether two boxes overlap by more than rounding."""
    return all(min(one[at + 1], other[at + 1]) - max(one[at], other[at]) > 1e-6 for at in (0, 2))


@pytest.mark.parametrize(("count", "size"), [(6, 24), (60, 18), (250, 13), (2000, 9)])
def test_no_label_lies_over_another_a_disc_or_an_obstacle(count: int, size: float, tmp_path: Path) -> None:
    given = discs(count, size=size)
    labels = place(tmp_path, given)
    placed = boxes(labels)
    assert min(count, 6) / 2 <= len(placed) <= 250
    assert not any(overlap(one, other) for at, one in enumerate(placed) for other in placed[:at])
    assert not any(overlap(one, tuple(OBSTACLE.values())) for one in placed)
    assert all(0 <= left and right <= WIDE and 0 <= top and bottom <= HIGH for left, right, top, bottom in placed)
    if count <= 300:
        seen = [disc for disc in given if 0 < disc["lon"] < 12]
        rounds = [(100 * at["lon"], HIGH - 100 * at["lat"], size / 2) for at in seen]
        covered = [(x - r, x + r, y - r, y + r) for x, y, r in rounds]
        assert not any(overlap(one, disc) for one in placed for disc in covered)


def test_extremes_have_their_names_before_others(tmp_path: Path) -> None:
    given = [one for one in discs(40, size=9) if 2.0 < one["lon"] < 10 and 0.5 < one["lat"] < 5]
    labels = place(tmp_path, given)
    shown = sorted((one for one in given if one["isShown"]), key=lambda one: float(one["value"]))
    first, second = labels["text"][:2]
    assert first == f"{shown[0]['name']}  {shown[0]['text']}"
    assert second == f"{shown[-1]['name']}  {shown[-1]['text']}"
    crowded = place(tmp_path, discs(400, size=18))
    assert any(" " not in text for text in crowded["text"]), "where a name does not fit, the value alone may"
