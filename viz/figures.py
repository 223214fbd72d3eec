"""Empty Bokeh figures: axes, palettes, colour bars and named sources for the page to fill.

Sources and models that the page looks up by name: `surface` (the image), `veil` (over estimated cells), `hatch` (over
uncertain ones), `stations`, `picked` (the chosen cell), `box` (the chosen region), `lines`, `bands` around them,
`points` on them, `bars`, `bins` and `models` of a variogram, `brush` (over cells that are not chosen), `colours` (the
colour mapper), `bar` (the colour bar), `labels` of stations, `across` and `upwards` (ranges), `heading` (above) and
`source` (below). A map has `hull` (around the stations) and `beyond` (over cells outside of it), and each has its
ground: `sea`, `land`, `relief`, `contours`, `heights` (labels of contours), `coast`, `borders`; and `ruler`, its width
in metres, which the scale bar measures.
"""

import math
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from bokeh.embed import json_item
from bokeh.models import (
    BasicTicker,
    BasicTickFormatter,
    BoxSelectTool,
    ColumnDataSource,
    DatetimeTickFormatter,
    FixedTicker,
    HoverTool,
    LassoSelectTool,
    LinearColorMapper,
    Range1d,
)
from bokeh.models.annotations import ColorBar, ScaleBar, Title
from bokeh.models.annotations.dimensional import MetricLength
from bokeh.models.renderers import GlyphRenderer
from bokeh.palettes import Cividis256, Inferno256, Magma256, Plasma256, RdBu11, Viridis256, interp_palette
from bokeh.plotting import figure

from hypergrid.core.units import unit_symbol
from hypergrid.layers.ground import FLAT, METRES_PER_DEGREE

Theme = Literal["light", "dark"]
Scale = Literal["sequential", "cividis", "inferno", "plasma", "uncertainty", "diverging", "cyclic"]

_TALLEST: Final = 640
_LOWEST: Final = 160
_HEIGHT: Final = 420
"""Height of a figure that fills no room [px]."""
_REGION: Final = 260
"""Height of the map on which a region is chosen [px]."""
_BESIDES: Final = 155
"""Width of a map's axis labels and colour bar [px]."""
# Stations at the edge must be visible.
_MARGIN: Final = 0.08
"""Margin around a map's cells, as a share of their extent."""
_RIM: Final = (102, 90)
"""Width and height of what surrounds the frame of a map that fills a room: tools, ticks, heading, source [px]."""
_HEADING: Final = (720, 17)
"""Width below which a map's heading takes two lines, and height of the second one [px]."""
_BAR: Final = 240
"""Greatest length of a colour bar within a map [px]."""
_NARROW: Final = (500, 52)
"""Width below which the colour bar of a map that fills a room stands below it, where it covers nothing, and its height
[px]."""

# Matplotlib's twilight (BSD): perceptually uniform in both directions, so that 359 degrees look like 1; a frame
# separates its nearly white ends from the background.
_TWILIGHT: Final = (
    "#e2d9e2", "#c4ced4", "#95b5c7", "#7297c1", "#6276ba", "#5e51ad", "#592a8f", "#45135c", "#2f1436",
    "#4a1342", "#741e4f", "#983550", "#b25652", "#c27c63", "#cca389", "#d8c7be", "#e2d9e2",
)  # fmt: skip

PALETTES: Final[dict[Scale, tuple[str, ...]]] = {
    "sequential": tuple(Viridis256),
    # Perceptually uniform, too, to choose from.
    "cividis": tuple(Cividis256),
    "inferno": tuple(Inferno256),
    "plasma": tuple(Plasma256),
    # Unlike those of values, so that an error is not read as one.
    "uncertainty": tuple(reversed(Magma256)),
    # Blue is low and red is high; colour-blind readers can distinguish ColorBrewer's red and blue.
    "diverging": tuple(interp_palette(RdBu11, 255)),
    "cyclic": tuple(interp_palette(_TWILIGHT, 256)),
}
"""Colours by kind of field: values in a choice of colours, their uncertainty, differences from zero, directions."""
_TOOLS: Final = "pan,wheel_zoom,box_zoom,reset"
_OVERVIEW_BESIDES: Final = (56, 34)
"""Width and height of the axis labels of the overview [px]."""
_LENGTHS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
"""Lengths of a scale bar, in m or km."""


@dataclass(frozen=True)
class ThemeColours:
    """Colours of a theme."""

    ground: str
    panel: str
    ink: str
    grid: str
    veil: str
    """Overlay of cells that are only estimated."""
    beyond: str
    """Overlay of cells beyond the stations; fainter, as it may cover half of a map."""
    sea: str
    land: str
    """Ground of maps, on which both slopes towards the light and away from it are seen."""
    contour: str
    """Contours under values; over them they are ink on a halo of the ground."""
    shadow: str
    light: str
    """Slopes of the relief away from the light and towards it, where they are steepest."""


LOOKS: Final[dict[Theme, ThemeColours]] = {
    "light": ThemeColours(
        ground="#ffffff", panel="#f3f5f7", ink="#1d2733", grid="#d5dbe1", veil="#ffffff70", beyond="#ffffff4c",
        sea="#d3e1ec", land="#f3f5f7", contour="#7d6a4c", shadow="#2b3a4c90", light="#ffffffd0",
    ),
    "dark": ThemeColours(
        ground="#171d24", panel="#10151a", ink="#e4e9ee", grid="#37424d", veil="#10151a80", beyond="#10151a58",
        sea="#0b2236", land="#2a333c", contour="#a8926a", shadow="#000000b0", light="#c8dcf050",
    ),
}  # fmt: skip

HALO: Final = "b0"
"""Opacity of the halo around lines over values, in hexadecimal."""


@dataclass(frozen=True)
class MapExtent:
    """Extent of a map: outer edges of its cells [degree or m]."""

    west: float
    east: float
    south: float
    north: float
    geographic: bool
    """Whether the edges are degrees of longitude and latitude."""

    def __post_init__(self) -> None:
        edges = (self.west, self.east, self.south, self.north)
        if not all(map(math.isfinite, edges)) or self.east <= self.west or self.north <= self.south:
            raise ValueError(f"a map needs finite edges, west < east and south < north; got {edges}")

    def widen(self, ratio: float) -> "MapExtent":
        """Extend the map on two sides to another ratio of height to width."""
        factor = self.height_by_width / ratio
        across, upwards = (max(factor, 1) - 1) / 2, (max(1 / factor, 1) - 1) / 2
        width, height = self.east - self.west, self.north - self.south
        return MapExtent(
            self.west - across * width, self.east + across * width, self.south - upwards * height,
            self.north + upwards * height, self.geographic,
        )  # fmt: skip

    @property
    def height_by_width(self) -> float:
        """Ratio of height to width on the ground, with longitudes scaled by cos(latitude)."""
        shrink = math.cos(math.radians((self.south + self.north) / 2)) if self.geographic else 1.0
        # Bounded, as the cosine vanishes at the poles.
        return (self.north - self.south) / ((self.east - self.west) * max(shrink, 0.05))


@dataclass(frozen=True)
class Words:
    """Text of a figure."""

    title: str
    variable: str
    units: str

    @property
    def label(self) -> str:
        return f"{self.variable} [{unit_symbol(self.units)}]"


def map_figure(
    extent: MapExtent, words: Words, *, theme: Theme, width: int, height: int = 0, scale: Scale = "sequential"
) -> dict[str, Any]:
    """Draw a map of cells with a graticule and stations, as a Bokeh `json_item`.

    Parameters
    ----------
    extent, words
        Extent and text.
    theme
        Light or dark.
    width
        Available width of the whole figure [px].
    height
        Height of a room that the figure fills, showing the ground around the cells [px]; 0: as high as the cells need.
    scale
        Kind of field, for the palette.
    """
    look = LOOKS[theme]
    if height:
        filled = width, height - sum(more for narrow, more in (_HEADING, _NARROW) if width < narrow)
        room, frame_height = (max(_LOWEST, size - rim) for size, rim in zip(filled, _RIM, strict=True))
        plot = _ground(extent.widen(frame_height / room), words, look, room=room, tools=_TOOLS, height=frame_height)
        plot.toolbar_location = "right"
        for axis in (plot.xaxis, plot.yaxis):
            axis.axis_label_text_font_size, axis.axis_label_standoff = "11px", 0
    else:
        plot = _ground(extent, words, look, room=width - _BESIDES, tools=_TOOLS)
    # The graticule is drawn over the cells.
    plot.grid.level, plot.grid.grid_line_alpha = "overlay", 0.35
    bounds = {
        "x": [extent.west],
        "y": [extent.south],
        "dw": [extent.east - extent.west],
        "dh": [extent.north - extent.south],
    }
    surface = _image(plot, bounds, _colours(PALETTES[scale]), "surface")
    veil = LinearColorMapper(palette=[look.veil], low=0, high=1, nan_color="#00000000")
    _image(plot, bounds, veil, "veil")
    hatch = LinearColorMapper(palette=[f"{look.ground}d0"], low=0, high=1, nan_color="#00000000")
    _image(plot, bounds, hatch, "hatch")
    _hull(plot, look)
    _brush(plot, bounds, look)
    _outlines(plot, look, over=True)
    plot.scatter(
        "x", "y", source=ColumnDataSource({"x": [], "y": []}, name="picked"), size=18, marker="cross",
        line_color="#ffffff", line_width=4,
    )  # fmt: skip
    plot.scatter(
        "x", "y", source=ColumnDataSource({"x": [], "y": []}, name="picked_inside"), size=16, marker="cross",
        line_color="#d4145a", line_width=2,
    )  # fmt: skip
    stations = _stations(plot, extent)
    plot.add_tools(
        _station_hover(stations),
        HoverTool(renderers=[surface], tooltips=[(words.variable, f"@image{{0.000}} {unit_symbol(words.units)}")]),
    )
    if height and width < _NARROW[0]:
        _colour_bar(plot, surface, words, look, "below", length=width - _RIM[0] - 40)
    elif height:
        _colour_bar(plot, surface, words, look, "center", length=min(_BAR, 2 * width // 5))
    else:
        _colour_bar(plot, surface, words, look)
    return _item(plot)


def region_figure(extent: MapExtent, words: Words, *, theme: Theme, width: int) -> dict[str, Any]:
    """Draw the stations as a Bokeh `json_item` in which dragging selects a region."""
    look = LOOKS[theme]
    drag = BoxSelectTool(description="Drag to choose a region")
    plot = _ground(extent.widen(_REGION / (width - 80)), words, look, room=width - 80, tools="pan,wheel_zoom,reset")
    plot.add_tools(drag)
    plot.toolbar.active_drag = drag
    _outlines(plot, look, over=False)
    box: dict[str, Any] = {"left": [], "right": [], "bottom": [], "top": []}
    plot.quad(
        *box, source=ColumnDataSource(box, name="box"), fill_color="#3b8bba", fill_alpha=0.2, line_color="#3b8bba",
        line_width=2,
    )  # fmt: skip
    # Keep stations outside the region unchanged.
    plot.add_tools(_station_hover(_stations(plot, extent, nonselection_fill_alpha=1.0, nonselection_line_alpha=1.0)))
    return _item(plot)


def overview_figure(
    extent: MapExtent, *, theme: Theme, size: tuple[int, int], scale: Scale = "sequential"
) -> dict[str, Any]:
    """Draw a map that fills its place, with stations coloured by value, as a Bokeh `json_item`.

    Parameters
    ----------
    extent
        Extent of the stations; the map is wider on two sides, in true proportions.
    theme
        Light or dark.
    size
        Width and height of the whole figure [px].
    scale
        Kind of the values, for the palette.
    """
    look = LOOKS[theme]
    width, height = (max(_LOWEST, whole - besides) for whole, besides in zip(size, _OVERVIEW_BESIDES, strict=True))
    words = Words("", "", "")
    plot = _ground(extent.widen(height / width), words, look, room=width, tools=_TOOLS, height=height)
    plot.xaxis.axis_label = plot.yaxis.axis_label = None
    plot.toolbar_location, plot.toolbar_inner, plot.toolbar.autohide = "right", True, True
    # Within a figure its tools stand on white otherwise, also in the dark.
    plot.toolbar.stylesheets = [f":host(.bk-inner) {{ background-color: {look.ground}; }}"]
    plot.min_border = 0
    plot.grid.grid_line_alpha = 0.6
    _outlines(plot, look, over=False)
    colours = _colours(PALETTES[scale])
    names = ("lon", "lat", "value", "station", "name", "text", "time", "state", "edge", "marker", "size", "rim")
    # Bokeh's type hints lack the mapper.
    style: dict[str, Any] = {"fill_color": {"field": "value", "transform": colours}}
    stations = plot.scatter(
        "lon", "lat", source=ColumnDataSource({name: [] for name in names}, name="stations"), size="size",
        marker="marker", line_color="edge", line_width="rim", **style,
    )  # fmt: skip
    labels = ("x", "y", "text", "right", "down", "align", "baseline")
    _keep_look(
        plot.text(
            "x", "y", "text", source=ColumnDataSource({name: [] for name in labels}, name="labels"), x_offset="right",
            y_offset="down", text_align="align", text_baseline="baseline", text_font_size="12px", text_color=look.ink,
            text_font_style="bold", **_make_plate(look.ground, 0.75),
        )
    )  # fmt: skip
    plot.scatter(
        "x", "y", source=ColumnDataSource({"x": [], "y": []}, name="picked"), size=32, fill_color=None,
        line_color="#d4145a", line_width=3,
    )  # fmt: skip
    lines = [("", "@station @name"), ("value", "@text"), ("time", "@time"), ("state", "@state")]
    plot.add_tools(HoverTool(renderers=[stations], tooltips=lines))
    bar = ColorBar(
        color_mapper=colours, name="bar", orientation="horizontal", location="bottom_right", width=min(220, width // 2),
        height=10, margin=6, padding=14, title="–", background_fill_color=look.ground, background_fill_alpha=0.8,
        title_text_color=look.ink, title_text_font_style="normal", title_text_font_size="12px",
        major_label_text_color=look.ink,
    )  # fmt: skip
    plot.add_layout(bar)
    return _item(plot)


def lines_figure(words: Words, *, theme: Theme, width: int, height: int = 0, choosing: bool = False) -> dict[str, Any]:
    """Draw lines over time, one per series, with bands and points, as a Bokeh `json_item`.

    `choosing` adds the tools that select points of the lines.
    """
    look = LOOKS[theme]
    plot = _plot(
        words,
        look,
        ("time [UTC]", words.label),
        width=width,
        height=height or _HEIGHT,
        x_axis_type="datetime",
        x_range=Range1d(name="across"),
        y_range=Range1d(name="upwards"),
    )
    # Bokeh's type hints lack the hover properties.
    style: dict[str, Any] = {"line_color": "colour", "line_width": 1.5, "hover_line_width": 4}
    plot.patches(
        "times", "values", source=ColumnDataSource({"times": [], "values": [], "colour": []}, name="bands"),
        fill_color="colour", fill_alpha=0.25, line_color=None,
    )  # fmt: skip
    lines = plot.multi_line(
        "times",
        "values",
        source=ColumnDataSource({"times": [], "values": [], "station": [], "colour": []}, name="lines"),
        **style,
    )
    plot.add_tools(
        HoverTool(
            renderers=[lines],
            tooltips=[("station", "@station"), ("time", "$data_x{%F %H:%M}"), (words.variable, "$data_y{0.00}")],
            formatters={"$data_x": "datetime"},
        )
    )
    plot.scatter(
        "time", "value", source=ColumnDataSource({"time": [], "value": []}, name="brush"), size=11, fill_color=None,
        line_color="#d4145a", line_width=2,
    )  # fmt: skip
    if choosing:
        _add_selection(plot)
    names = ("time", "value", "colour", "marker", "what")
    points = plot.scatter(
        "time", "value", source=ColumnDataSource({name: [] for name in names}, name="points"), size=8, marker="marker",
        fill_color="colour", line_color="colour", line_width=2,
    )  # fmt: skip
    plot.add_tools(
        HoverTool(
            renderers=[points],
            tooltips=[("", "@what"), ("time", "@time{%F %H:%M}"), (words.variable, "@value{0.00}")],
            formatters={"@time": "datetime"},
        )
    )
    return _item(plot)


def histogram_figure(words: Words, *, theme: Theme, width: int, height: int = 0) -> dict[str, Any]:
    """Draw a histogram of cell values as a Bokeh `json_item`."""
    look = LOOKS[theme]
    plot = _plot(
        words, look, (words.label, "cells"), width=width, height=height or _HEIGHT, x_range=Range1d(name="across"),
        y_range=Range1d(name="upwards"),
    )  # fmt: skip
    bars: dict[str, Any] = {"left": [], "right": [], "bottom": [], "top": []}
    drawn = plot.quad(
        *bars, source=ColumnDataSource(bars, name="bars"), fill_color="#3b8bba", line_color=look.ground
    )  # fmt: skip
    plot.add_tools(
        HoverTool(
            renderers=[drawn], tooltips=[(words.label, "@left{0.00} to @right{0.00}"), ("cells", "@top{0,0}")]
        )  # fmt: skip
    )
    return _item(plot)


def variogram_figure(words: Words, *, theme: Theme, width: int, height: int = 0) -> dict[str, Any]:
    """Draw an empirical variogram with fitted models, as a Bokeh `json_item`.

    Its sources are `bins` (x, y, size, pairs, label) and `models`, one line each; `words` label the y axis.
    """
    look = LOOKS[theme]
    plot = _plot(
        words, look, ("distance [m]", words.label), width=width, height=height or _HEIGHT,
        x_range=Range1d(name="across"), y_range=Range1d(name="upwards"),
    )  # fmt: skip
    names = ("times", "values", "colour", "dash")
    plot.multi_line(
        "times", "values", source=ColumnDataSource({name: [] for name in names}, name="models"), line_color="colour",
        line_dash="dash", line_width=2.5,
    )  # fmt: skip
    columns = ("x", "y", "size", "pairs", "label")
    source = ColumnDataSource({name: [] for name in columns}, name="bins")
    bins = plot.scatter(
        "x", "y", source=source, size="size", fill_color=look.ground, line_color=look.ink, line_width=1.5
    )  # fmt: skip
    plot.text(
        "x", "y", "label", source=source, x_offset=0, y_offset=11, text_align="center", text_baseline="top",
        text_font_size="11px", text_color=look.ink,
    )  # fmt: skip
    plot.add_tools(
        HoverTool(
            renderers=[bins],
            tooltips=[("distance", "@x{0} m"), (words.label, "@y{0.0000}"), ("pairs", "@pairs{0,0}")],
        )
    )
    return _item(plot)


def day_by_hour_figure(
    words: Words, *, theme: Theme, width: int, height: int = 0, scale: Scale = "sequential"
) -> dict[str, Any]:
    """Draw a heat map of day by hour, one column per day, as `json_item`."""
    look = LOOKS[theme]
    plot = _plot(
        words,
        look,
        ("day [UTC]", "hour of day [UTC]"),
        width=width,
        height=height or _HEIGHT,
        x_axis_type="datetime",
        x_range=Range1d(name="across"),
        y_range=Range1d(start=0, end=24),
    )
    plot.grid.visible = False
    plot.xaxis.formatter = DatetimeTickFormatter(days="%d %b", months="%b %Y")
    plot.yaxis.ticker = FixedTicker(ticks=list(range(0, 25, 6)))
    bounds = {"x": [0.0], "y": [0.0], "dw": [1.0], "dh": [24.0]}
    surface = _image(plot, bounds, _colours(tuple(Cividis256) if scale == "sequential" else PALETTES[scale]), "surface")
    _brush(plot, bounds, look)
    plot.add_tools(
        HoverTool(
            renderers=[surface],
            tooltips=[
                ("day", "$x{%F}"),
                ("hour", "$y{0.0}"),
                (words.variable, f"@image{{0.00}} {unit_symbol(words.units)}"),
            ],
            formatters={"$x": "datetime"},
        )
    )
    _colour_bar(plot, surface, words, look)
    return _item(plot)


def _ground(
    extent: MapExtent, words: Words, look: ThemeColours, *, room: int, tools: str, height: int | None = None
) -> figure:
    """Draw an empty map in true proportions, at most `room` pixels wide between its axes, above its ground.

    With a `height` [px] it is exactly as large, and the extent has that ratio.
    """
    ratio = extent.height_by_width
    frame_width = room if height else max(_LOWEST, min(room, round(_TALLEST / ratio)))
    margin_x, margin_y = _MARGIN * (extent.east - extent.west), _MARGIN * (extent.north - extent.south)
    plot = _plot(
        words,
        look,
        ("lon [degree]", "lat [degree]") if extent.geographic else ("x [m]", "y [m]"),
        tools=tools,
        frame_width=frame_width,
        frame_height=height or max(_LOWEST, min(_TALLEST, round(frame_width * ratio))),
        x_range=_stretch(extent.west - margin_x, extent.east + margin_x),
        y_range=_stretch(extent.south - margin_y, extent.north + margin_y),
    )
    plot.background_fill_color = look.land
    for axis in (plot.xaxis, plot.yaxis):
        axis.formatter = BasicTickFormatter(use_scientific=False)
        axis.ticker = BasicTicker(desired_num_ticks=5 if frame_width > 300 else 3)
    edges: dict[str, Any] = {"left": [], "right": [], "bottom": [], "top": []}
    areas: dict[str, dict[str, Any]] = {"sea": edges, "land": {"xs": [], "ys": []}}
    sources = {name: ColumnDataSource(columns, name=name) for name, columns in areas.items()}
    fill: dict[str, Any] = {"line_color": None, "level": "image"}
    _keep_look(plot.quad(*edges, source=sources["sea"], fill_color=look.sea, **fill))
    _keep_look(plot.multi_polygons("xs", "ys", source=sources["land"], fill_color=look.land, **fill))
    bounds = {"x": [extent.west], "y": [extent.south], "dw": [1.0], "dh": [1.0]}
    shades = LinearColorMapper(palette=make_relief_palette(look), low=-0.5, high=255.5, nan_color="#00000000")
    _image(plot, bounds, shades, "relief").level = "image"
    _scale_bar(plot, extent, look)
    return plot


def _stretch(start: float, end: float) -> Range1d:
    """Return the stretch of an axis that is shown at first, and which pages know once it was moved."""
    return Range1d(start=start, end=end, reset_start=start, reset_end=end)


def make_relief_palette(look: ThemeColours) -> list[str]:
    """Return the colours of brightnesses 0 to 255 as `hypergrid.layers.ground` gives them.

    Level ground, and missing elevations (0), are transparent, so that what is below keeps its colour.
    """
    palette = ["#00000000"]
    for brightness in range(255):
        away = (FLAT - brightness / 254) / FLAT
        towards = (brightness / 254 - FLAT) / (1 - FLAT)
        colour, share = (look.shadow, away) if away > 0 else (look.light, towards)
        palette.append(f"{colour[:7]}{round(int(colour[7:], 16) * share):02x}")
    return palette


def _hull(plot: figure, look: ThemeColours) -> None:
    """Add a veil over cells beyond the stations, and the outline of their convex hull, both empty."""
    beyond = ColumnDataSource({"xs": [], "ys": []}, name="beyond")
    _keep_look(plot.multi_polygons("xs", "ys", source=beyond, fill_color=look.beyond, line_color=None))
    outline = ColumnDataSource({"xs": [], "ys": []}, name="hull")
    for colour, width, dash in ((f"{look.ground}{HALO}", 3.2, "solid"), (look.ink, 1.2, "dashed")):
        _keep_look(plot.multi_line("xs", "ys", source=outline, line_color=colour, line_width=width, line_dash=dash))


def _outlines(plot: figure, look: ThemeColours, *, over: bool) -> None:
    """Add contours, coast and borders, empty; `over` values they are ink on a halo, else in the background."""
    lines = (("contours", "solid", "width"), ("borders", "dashed", 1.2), ("coast", "solid", 1.4))
    for name, dash, width in lines:
        columns = ("xs", "ys", "level", "width", "halo") if name == "contours" else ("xs", "ys")
        source = ColumnDataSource({column: [] for column in columns}, name=name)
        # Bokeh's type hints lack lines by column.
        style: dict[str, Any] = {"line_width": width, "line_dash": dash, "line_join": "round"}
        if over:
            halo: dict[str, Any] = {"line_width": "halo" if name == "contours" else 3.2, "line_join": "round"}
            _keep_look(plot.multi_line("xs", "ys", source=source, line_color=f"{look.ground}{HALO}", **halo))
        colour = look.ink if over or name != "contours" else look.contour
        alpha = 0.9 if over else 0.55 if name == "contours" else 0.75
        _keep_look(plot.multi_line("xs", "ys", source=source, line_color=colour, line_alpha=alpha, **style))
    heights = ColumnDataSource({name: [] for name in ("x", "y", "text", "angle")}, name="heights")
    _keep_look(
        plot.text(
            "x", "y", "text", angle="angle", source=heights, text_align="center", text_baseline="middle",
            text_font_size="10px", text_color=look.ink if over else look.contour,
            **_make_plate(look.ground if over else look.land, 0.7),
        )
    )  # fmt: skip


def _make_plate(colour: str, alpha: float) -> dict[str, Any]:
    """Return the style of a plate below text; Bokeh's type hints lack it."""
    return {"background_fill_color": colour, "background_fill_alpha": alpha, "padding": 1, "border_radius": 3}


def _keep_look(glyph: GlyphRenderer) -> None:
    """Make a glyph look equal whether or not something is selected on its figure."""
    glyph.selection_glyph = glyph.nonselection_glyph = glyph.muted_glyph = None


def _scale_bar(plot: figure, extent: MapExtent, look: ThemeColours) -> None:
    """Add a scale bar, which measures the range `ruler`: the width of the map along its middle [m]."""
    width = (1.0 + 2.0 * _MARGIN) * (extent.east - extent.west)
    if extent.geographic:
        width *= METRES_PER_DEGREE * math.cos(math.radians((extent.south + extent.north) / 2))
    plot.add_layout(
        ScaleBar(
            range=Range1d(start=0, end=width, name="ruler"), unit="m", location="bottom_left", bar_length=0.12,
            dimensional=MetricLength(include=["m", "km"], ticks=list(_LENGTHS)), margin=6, padding=5,
            background_fill_color=look.ground, background_fill_alpha=0.75, border_line_color=None,
            bar_line_color=look.ink, label_text_color=look.ink, label_text_font_size="11px",
        )
    )  # fmt: skip


def _stations(plot: figure, extent: MapExtent, **style: Any) -> GlyphRenderer:  # noqa: ANN401 - passed on to Bokeh
    columns = ("lon", "lat", "x", "y", "station", "name", "elevation", "state", "colour", "marker", "size", "rim")
    return plot.scatter(
        "lon" if extent.geographic else "x",
        "lat" if extent.geographic else "y",
        source=ColumnDataSource({name: [] for name in columns}, name="stations"),
        size="size",
        marker="marker",
        fill_color="colour",
        line_color="#111111",
        line_width="rim",
        **style,
    )


def _station_hover(stations: GlyphRenderer) -> HoverTool:
    return HoverTool(
        renderers=[stations],
        tooltips=[
            ("station", "@station @name"),
            ("elevation", "@elevation m"),
            ("lon, lat", "@lon, @lat"),
            ("state", "@state"),
        ],
    )


def _plot(
    words: Words,
    look: ThemeColours,
    labels: tuple[str, str],
    *,
    tools: str = _TOOLS,
    **options: Any,  # noqa: ANN401 - passed on to Bokeh
) -> figure:
    plot = figure(
        title=Title(text=words.title, text_color=look.ink, name="heading"),
        tools=tools,
        toolbar_location="above",
        # In a row with a heading its tools would have no room.
        toolbar_sticky=False,
        background_fill_color=look.panel,
        border_fill_color=look.ground,
        outline_line_color=look.grid,
        # The canvas is opaque in the theme's background, so that a saved picture is readable.
        output_backend="canvas",
        **options,
    )
    plot.xaxis.axis_label, plot.yaxis.axis_label = labels
    # Empty, it takes no room.
    source = Title(text="", text_color=look.ink, text_font_size="10px", text_font_style="normal", align="right")
    source.name = "source"
    plot.add_layout(source, "below")
    plot.toolbar.logo = None
    plot.grid.grid_line_color = look.grid
    for axis in (*plot.xaxis, *plot.yaxis):
        axis.axis_label_text_color = axis.major_label_text_color = look.ink
        axis.axis_line_color = axis.major_tick_line_color = axis.minor_tick_line_color = look.ink
        axis.axis_label_text_font_style = "normal"
    return plot


def _image(plot: figure, bounds: dict[str, list[float]], colours: LinearColorMapper, name: str) -> GlyphRenderer:
    source = ColumnDataSource({"image": [np.full((1, 1), np.nan)], **bounds}, name=name)
    # Bokeh's type hints lack the mapper.
    style: dict[str, Any] = {"color_mapper": colours}
    return plot.image("image", "x", "y", "dw", "dh", source=source, **style)


def _brush(plot: figure, bounds: dict[str, list[float]], look: ThemeColours) -> None:
    """Add an overlay for cells that are not selected, and the selection tools."""
    pale = LinearColorMapper(palette=[f"{look.ground}c8"], low=0, high=1, nan_color="#00000000")
    _image(plot, bounds, pale, "brush")
    _add_selection(plot)


def _add_selection(plot: figure) -> None:
    # Without glyphs: the page finds what was selected, as it knows the cells.
    for tool, what in ((BoxSelectTool, "in a box"), (LassoSelectTool, "around")):
        plot.add_tools(tool(renderers=[], description=f"Choose cells {what}"))


def _colours(palette: tuple[str, ...]) -> LinearColorMapper:
    return LinearColorMapper(palette=list(palette), low=0, high=1, nan_color="#00000000", name="colours")


def _colour_bar(
    plot: figure,
    surface: GlyphRenderer,
    words: Words,
    look: ThemeColours,
    location: Literal["right", "below", "center"] = "right",
    *,
    length: int = 0,
) -> None:
    """Add the colours with their values: beside or below the frame, or in its lower right corner, `length` px long."""
    lying: dict[str, Any] = {
        "orientation": "horizontal", "width": length, "height": 10, "background_fill_color": look.ground,
        "title_text_font_size": "11px",
    }  # fmt: skip
    styles: dict[str, dict[str, Any]] = {
        "right": {"width": 16, "background_fill_color": None},
        "below": {**lying, "margin": 0, "padding": 2},
        "center": {
            **lying, "location": "bottom_right", "margin": 12, "padding": 6, "background_fill_alpha": 0.85,
        },
    }  # fmt: skip
    bar = ColorBar(
        color_mapper=surface.glyph.color_mapper,
        title=words.label,
        title_text_color=look.ink,
        title_text_font_style="normal",
        major_label_text_color=look.ink,
        **styles[location],
    )
    plot.add_layout(bar, location)


def _item(plot: figure) -> dict[str, Any]:
    return dict(json_item(plot))
