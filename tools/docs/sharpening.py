"""Draws a map that sharpens, as an animation: ``python -m tools.docs.sharpening station_data/pictures/sharpening.gif``.

A mean temperature of a night of the sample network on 69 x 69 cells. Computed cells are in full colour, the others are
estimated from them and pale.
"""

import io
import sys
import tempfile
from pathlib import Path
from typing import Final

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

import hypergrid as hg
from tools.docs.blocks import make_demo

Floats = NDArray[np.float64]

SHARES: Final = (0.004, 0.008, 0.015, 0.03, 0.05, 0.08, 0.12, 0.17, 0.23, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Shares of the cells at which a frame is drawn."""
FRAME_MS: Final = 260
LAST_MS: Final = 2500
PALE: Final = 0.75
"""Opacity of estimated cells."""
GRID: Final = hg.grid(lon="7:10:37", lat="45:52:01", step=1.0 / 10_800.0, shape=(69, 69))


def main(target: Path) -> None:
    """Compute the map block by block, and write its frames to an animated GIF."""
    mpl.use("Agg")
    with tempfile.TemporaryDirectory() as folder:
        archive = hg.open(make_demo(Path(folder)))
        model = hg.variogram("exponential", psill=1.2, range_m=250, nugget=0.05)
        kriged = archive["air_temperature"].aggregate("mean", time="10min").interpolate(
            "ordinary_kriging", grid=GRID, variogram=model, neighbours=20
        )  # fmt: skip
        night = kriged.aggregate("mean", time="all").clip(time=("2007-10-02T00:00", "2007-10-02T06:00"))
        kept, left = [], list(SHARES)
        for refinement in night.refine():
            if left and refinement.fraction >= left[0]:
                left = [share for share in left if share > refinement.fraction]
                frame = refinement.frame(0)
                kept.append((refinement.fraction, frame.estimate.copy(), frame.values.copy()))
        places = [(station.position.lon, station.position.lat) for station in archive.stations.values()]
    whole = kept[-1][1]
    limits = (float(np.nanmin(whole)), float(np.nanmax(whole)))
    frames = [draw(fraction, estimate, values, limits, places) for fraction, estimate, values in kept]
    # One palette for all frames, so that colours do not flicker.
    strip = Image.new("RGB", (frames[0].width, frames[0].height * len(frames)))
    for number, frame in enumerate(frames):
        strip.paste(frame, (0, number * frame.height))
    palette = strip.quantize(colors=192)
    pictures = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    lasting = [FRAME_MS] * (len(pictures) - 1) + [LAST_MS]
    pictures[0].save(target, save_all=True, append_images=pictures[1:], duration=lasting, loop=0, optimize=True)
    print(f"{target}: {len(pictures)} frames, {target.stat().st_size:,} bytes")


def draw(
    fraction: float, estimate: Floats, values: Floats, limits: tuple[float, float], places: list[tuple[float, float]]
) -> Image.Image:
    """Draw one frame: estimates pale, computed cells over them, stations as rings."""
    west, south, step = 7.0 + 637.0 / 3600.0, 45.0 + 3121.0 / 3600.0, 1.0 / 10_800.0
    extent = (west, west + 69 * step, south, south + 69 * step)
    figure = Figure(figsize=(5.6, 5.4), dpi=96, layout="constrained")
    axes = figure.add_subplot()
    low, high = limits
    options = {"origin": "lower", "extent": extent, "vmin": low, "vmax": high, "cmap": "viridis", "aspect": 1.44}
    axes.imshow(estimate, alpha=PALE, **options)
    drawn = axes.imshow(values, **options)
    axes.plot(*zip(*places, strict=True), "o", mfc="none", mec="white", ms=5)
    axes.set_xlim(extent[:2])
    axes.set_ylim(extent[2:])
    axes.set_axis_off()
    figure.colorbar(drawn, ax=axes, label="air temperature [degC]", shrink=0.8)
    axes.set_title(f"{fraction:4.0%} of {values.size:,} cells computed", loc="left", fontsize=11)
    memory = io.BytesIO()
    figure.savefig(memory, format="png")
    return Image.open(memory).convert("RGB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
