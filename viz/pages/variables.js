// Variables as people read them; their names stay in queries, links and files.

import { unitText } from "./units.js";

/** What a variable is called; `known` are those of the archive. */
export function longName(known, name) {
  const found = known.find((one) => one.name === name);
  const long = found?.long_name || name;
  // Two that are called alike are told apart by their names.
  return known.some((other) => other.name !== name && other.long_name === long) ? `${long} (${name})` : long;
}

/** Pairs of a select: each variable with its unit. */
export const variableChoices = (known) => known.map(({ name, unit }) => [name, `${longName(known, name)} [${unitText(unit)}]`]);
