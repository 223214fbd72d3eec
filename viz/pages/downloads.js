// Files of an answer, and of the readings that it was made of.

import * as api from "./api.js";
import { h } from "./dom.js";
import { T } from "./text.js";

const FORMATS = ["package", "netcdf", "csv", "png", "zarr", "geotiff", "covjson", "parquet"];
const OF_READINGS = ["netcdf", "csv"];

/** What asks for readings of the variable, the time and the stations of a query, with all their flags. */
function readingsAsked({ variable, clip, select, as_of }, snapshot) {
  const [start, stop] = clip?.time ?? [];
  const given = { variable, start, stop, station: [select?.station ?? []].flat().join(","), as_of, snapshot };
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value));
}

/** Links to all files of a question that is done. */
export function downloadLinks({ id, document, snapshot }) {
  const anchor = (address, text, given = {}) => h("a", { href: address, download: "", ...given }, text);
  const asked = readingsAsked(document, snapshot);
  return [
    h("span", {}, T.answer.download), ...FORMATS.map((format) => anchor(api.resultAddress(id, format), T.formats[format])), anchor(api.jobAddress(id), T.formats.query, { download: `query-${id.slice(0, 8)}.json` }),
    h("span", {}, T.answer.readings), ...OF_READINGS.map((format) => anchor(api.readingsAddress(asked, format), T.formats[format], { "aria-label": T.answer.readingsAs(T.formats[format]) })),
  ];
}
