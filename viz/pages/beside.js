// What is asked beside a question: the same of another time, method, variable or snapshot, or a saved query.

import { gridStep } from "./builder.js";
import { extent } from "./pictures.js";
import { shifted, yearBefore } from "./see.js";

/** Steps whose numbers are of one variable only. */
const BOUNDS = ["valid_range", "limit"];

/** The same query mapped by another method, with the parameters that this one knows. */
function mappedBy(document, name, functions) {
  const copy = JSON.parse(JSON.stringify(document));
  const step = gridStep(copy);
  if (!step) return null;
  const known = functions.interpolate.find((row) => row.name === name)?.parameters.map((parameter) => parameter.name) ?? [];
  step.method = name;
  step.params = Object.fromEntries(Object.entries(step.params ?? {}).filter(([parameter]) => known.includes(parameter)));
  if (!Object.keys(step.params).length) delete step.params;
  return copy;
}

/** The query beside one, by what was chosen: "before", "variable:rain", …; null where there is none. */
export function besideOf(choice, document, { saved, functions }) {
  const [kind, name] = choice.split(/:(.*)/s);
  switch (kind) {
    case "before":
      return shifted(document, -1);
    case "year":
      return yearBefore(document);
    case "method":
      return mappedBy(document, name, functions);
    case "variable":
      return { ...document, variable: name, steps: (document.steps ?? []).filter((step) => !BOUNDS.includes(step.function)) };
    case "snapshot":
      return { ...document, snapshot: name };
    case "saved":
      return saved[name];
    default:
      return null;
  }
}

/** Whether two surfaces cover the same stretch, so that their pictures lie over each other. */
export function sameExtent(first, second) {
  if (first.kind !== "map" || second.kind !== "map" || String(first.dims) !== String(second.dims)) return false;
  const isNear = (edges, others) => edges.every((edge, at) => Math.abs(edge - others[at]) < 1e-3 * (edges[1] - edges[0]));
  const [edges, others] = [extent(first), extent(second)];
  return isNear(edges.column, others.column) && isNear(edges.row, others.row);
}
