// Stations of an import: their positions as numbers, and by clicks on a map.

import { button, h, number, visible } from "./dom.js";
import { clear } from "./figures.js";
import { openRegion, stationColumns } from "./pictures.js";
import { T } from "./text.js";

/** Rows of the table at most; those without a position are first. */
const MOST_ROWS = 200;
const AXES = [["lon", -180, 360], ["lat", -90, 90], ["elevation_m", -10_000, 100_000]];
const ROUND = 6;

export class StationForms {
  /** `others` are the stations of the archive (GeoJSON), which the map shows as well. */
  constructor(description, others, changed) {
    this.description = description;
    this.others = others;
    this.changed = changed;
    this.status = h("p", { class: "quiet", role: "status" });
    this.map = h("div", { class: "region", id: "import-map", role: "img", "aria-label": T.importing.mapAlt });
    this.body = h("tbody");
    const isPlaced = (known) => Number.isFinite(description.positionOf(known).lon);
    this.known = [...description.stations].sort((one, other) => isPlaced(one) - isPlaced(other) || one.id.localeCompare(other.id, "en", { numeric: true }));
    this.picked = this.next();
    const shown = this.known.slice(0, MOST_ROWS);
    this.rows = new Map(shown.map((known) => [known.id, this.row(known)]));
    this.body.append(...[...this.rows.values()].map((row) => row.element));
    this.element = h("section", { "aria-labelledby": "import-stations-title" },
      h("h2", { id: "import-stations-title" }, T.importing.stations), h("p", { class: "quiet" }, T.importing.stationsHint),
      h("div", { class: "halves" },
        h("div", {}, h("div", { class: "scrolled", tabindex: 0, role: "region", "aria-label": T.importing.stationsCaption },
          h("table", {}, h("caption", {}, T.importing.stationsCaption), h("thead", {}, h("tr", {}, T.importing.stationColumns.map((head) => h("th", { scope: "col" }, head)))), this.body)),
        shown.length < this.known.length ? h("p", { class: "quiet" }, T.importing.shown(number(shown.length), number(this.known.length))) : null),
        h("div", {}, this.status, this.map)));
  }

  /** The first station without a position. */
  next() {
    return this.known.find((known) => {
      const { lon, lat } = this.description.positionOf(known);
      return !Number.isFinite(lon) || !Number.isFinite(lat);
    })?.id ?? null;
  }

  row(known) {
    const place = this.description.document.station?.findIndex((one) => String(one.id) === known.id) ?? -1;
    const inputs = Object.fromEntries(AXES.map(([axis, min, max]) => [axis, h("input", {
      type: "number", step: "any", min, max, autocomplete: "off", "aria-label": T.importing.of(T.importing.axis[axis], known.id),
      data: { key: `station[${place}].${axis}` }, on: { change: () => this.typed(known, inputs) },
    })]));
    const origin = h("td");
    const pick = button(known.id, () => {
      this.picked = known.id;
      this.say();
    }, { class: "link", "aria-label": T.importing.pick(known.id), data: { pick: known.id } });
    const element = h("tr", {}, h("th", { scope: "row" }, pick), ...AXES.map(([axis]) => h("td", {}, inputs[axis])), origin);
    const fill = () => {
      const position = this.description.positionOf(known);
      for (const [axis] of AXES) if (inputs[axis] !== document.activeElement) inputs[axis].value = position[axis] ?? "";
      origin.textContent = T.importing.origins[position.from];
    };
    fill();
    return { element, fill };
  }

  typed(known, inputs) {
    const values = Object.fromEntries(AXES.map(([axis]) => [axis, inputs[axis].value === "" ? NaN : Number(inputs[axis].value)]));
    this.place(known.id, values);
  }

  place(id, values) {
    this.description.place(id, values);
    this.rows.get(id)?.fill();
    this.picked = this.next();
    this.changed();
    this.draw().catch(() => {});
  }

  /** A click on the map: the chosen station is there. */
  clicked({ lon, lat }) {
    if (!this.picked) return;
    const round = (value) => Number(value.toFixed(ROUND));
    this.place(this.picked, { lon: round(lon), lat: round(lat) });
  }

  say() {
    this.status.textContent = visible(this.picked ? T.importing.place(this.picked) : T.importing.placed);
    for (const [id, { element }] of this.rows) element.classList.toggle("picked", id === this.picked);
  }

  /** Stations with a position: those of the import, or else those of the archive. */
  features() {
    const own = this.known.map((known) => ({ known, ...this.description.positionOf(known) })).filter(({ lon, lat }) => Number.isFinite(lon) && Number.isFinite(lat));
    const features = own.map(({ known, lon, lat, elevation_m: elevation }) => ({ id: known.id, geometry: { coordinates: [lon, lat] }, properties: { name: known.name, elevation_m: elevation } }));
    // Those of the archive say where the others may be, as long as nothing else does.
    return { features: features.length ? features : this.others.features.filter((feature) => feature.geometry) };
  }

  /** Whether a map that is there shows all stations. */
  isInside({ x_range: across, y_range: upwards }, { features }) {
    return features.every(({ geometry: { coordinates: [lon, lat] } }) => lon > across.start && lon < across.end && lat > upwards.start && lat < upwards.end);
  }

  /** Draw the map; with a station more it may have to reach further, and `anew` makes another one. */
  async draw(anew = false) {
    this.say();
    const stations = this.features();
    if (!stations.features.length) {
      clear(this.map, h("p", { class: "quiet" }, T.importing.noMap));
      return;
    }
    const { figure } = this.map;
    if (figure && !anew && this.isInside(figure.plot, stations)) figure.find("stations").data = stationColumns(stations);
    else await openRegion(this.map, stations, { title: "", onPoint: (point) => this.clicked(point), wide: true });
  }
}
