// What an import brought: counts, what could not be read with examples, and where to go on.

import * as api from "./api.js";
import { button, h, number, table } from "./dom.js";
import { T } from "./text.js";

const tiles = (words, counts) => h("dl", { class: "tiles" }, Object.entries(words).filter(([name]) => counts[name] !== undefined).map(([name, label]) => h("div", {}, h("dt", {}, label), h("dd", { data: { count: name } }, number(counts[name])))));

/** Reasons, with counts and examples; null where everything could be read. */
function rejects({ rejects: counts, reject_examples: examples }) {
  const kinds = Object.entries(counts);
  if (!kinds.length) return null;
  const all = kinds.reduce((sum, [, count]) => sum + count, 0);
  const where = ({ file, line, column }) => T.quality.where(file, line ? number(line) : "", column);
  const shown = (kind) => h("ul", { class: "examples" }, (examples[kind] ?? []).map((one) => h("li", {}, h("span", { class: "quiet" }, where(one)), h("br"), one.reason, one.text ? [h("br"), h("code", {}, one.text)] : null)));
  return table(T.importing.rejects(all), T.importing.rejectColumns, kinds.map(([kind, count]) => [kind, number(count), shown(kind)]));
}

export function report(id, { ingest, remap }, frame) {
  const warnings = [...new Set([...(remap?.warnings ?? []), ...ingest.warnings])];
  const isNew = ingest.files > 0;
  return h("section", { class: "report", "aria-labelledby": "report-title" },
    h("h2", { id: "report-title", tabindex: -1 }, T.importing.report),
    remap ? h("div", {}, h("p", {}, T.importing.remapped(remap.files)), tiles(T.importing.remapTiles, remap)) : null,
    isNew ? tiles(T.importing.tiles, ingest) : remap ? null : h("p", {}, T.importing.nothing),
    isNew ? rejects(ingest) : null,
    remap ? rejects(remap) : null,
    warnings.length ? h("details", { open: warnings.length < 4 }, h("summary", {}, T.importing.warnings), h("ul", {}, warnings.map((text) => h("li", {}, text)))) : null,
    h("div", { class: "buttons" }, button(T.importing.map, () => frame.go("explore", {}), { id: "import-explore", class: "primary" }),
      h("a", { href: api.deploymentAddress(id), download: "deployment.toml" }, T.importing.saveDeployment)),
    h("p", { class: "quiet" }, T.importing.command, " ", h("code", {}, T.importing.commandLine(id))));
}
