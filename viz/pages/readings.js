// Readings of a station as they came, as a picture over time with the flagged ones marked.

import * as api from "./api.js";
import { number, visible } from "./dom.js";
import { T } from "./text.js";

/** Colour and shape of a reading's flag; good ones and those that nobody judged are the line. */
const FLAGS = { 3: ["#E69F00", "triangle"], 4: ["#D55E00", "x"], 9: ["#9aa5b1", "square"] };

/** Readings of a station and a variable, from an instant on where one is given: each row with its time, number and flag. */
export async function readReadings(station, variable, start) {
  const given = { station, variable, ...(start ? { start } : {}), f: "csv" };
  const rows = await api.rows(`series?${new URLSearchParams(given)}`);
  return rows.map((row) => ({ ...row, at: Date.parse(row.end ?? row.time), number: row.value === "" ? NaN : Number(row.value), flag: Number(row.flag ?? 2) }));
}

/** What a pane shows of readings: `named` holds station, variable, quantity (its long name), units and snapshot. */
export function readingsContent(readings, { station, variable, quantity, units, snapshot }) {
  const kinds = new Map();
  for (const reading of readings) {
    const key = [quantity, reading.height_m && `${reading.height_m} m`, reading.statistic, reading.replicate].filter(Boolean).join(", ");
    if (!kinds.has(key)) kinds.set(key, []);
    kinds.get(key).push(reading);
  }
  const lines = [...kinds].map(([kind, all]) => {
    const good = all.filter((reading) => !(reading.flag in FLAGS));
    return { name: kind, times: good.map((reading) => reading.at), values: good.map((reading) => reading.number) };
  });
  const flagged = readings.filter((reading) => reading.flag in FLAGS && Number.isFinite(reading.number));
  const points = flagged.map((reading) => ({ time: reading.at, value: reading.number, colour: FLAGS[reading.flag][0], marker: FLAGS[reading.flag][1], what: [T.flags[reading.flag], reading.failed_tests].filter(Boolean).join(": ") }));
  const title = visible(T.stations.plot(quantity, station));
  return {
    view: "lines", surface: { variable, source: T.stations.source(snapshot) }, quantity, title, heading: title, units, scale: "sequential",
    lines, points, words: T.stations.words(number(readings.length), quantity, units, number(flagged.length)),
  };
}
