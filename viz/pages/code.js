// A query as Python and as a command line.

/** A JSON value as Python writes it. */
function python(value) {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([key, one]) => `${JSON.stringify(key)}: ${python(one)}`).join(", ")}}`;
  return JSON.stringify(value);
}

/** Parameters; a name that is none in Python, which anybody may have put into a link, stays text. */
const named = (given) =>
  Object.entries(given ?? {}).map(([name, value]) => (/^[a-z]\w*$/i.test(name) ? `${name}=${python(value)}` : `**${python({ [name]: value })}`));

function call(step) {
  const { op, function: name, method, params, grid, with: others, ...cells } = step;
  const parts = [JSON.stringify(name ?? method), ...(others ?? []).map((other) => query(other))];
  if (grid) parts.push(`grid=${python(grid)}`);
  return `.${String(op).replace(/\W/g, "")}(${[...parts, ...named(cells), ...named(params)].join(", ")})`;
}

/** The query as Python, a step a line where it stands alone. */
function query(document, newline = "") {
  const { variable, steps = [], clip, accept_flags: flags, select, variance } = document;
  const calls = [];
  if (select) calls.push(`.select(${named(select).join(", ")})`);
  if (flags) calls.push(`.accept_flags(${flags.map(python).join(", ")})`);
  calls.push(...steps.map(call));
  if (clip) calls.push(`.clip(${named(clip).join(", ")})`);
  if (variance) calls.push(`.with_variance(${named(variance === true ? {} : variance).join(", ")})`);
  return `archive[${JSON.stringify(variable)}]${calls.map((one) => newline + one).join("")}`;
}

export function asPython(document) {
  const options = [document.snapshot && `snapshot=${python(document.snapshot)}`, document.as_of && `as_of=${python(document.as_of)}`].filter(Boolean);
  return [
    "import hypergrid as hg",
    "",
    `archive = hg.open("archive"${options.map((one) => `, ${one}`).join("")})`,
    "surface = (",
    `    ${query(document, "\n    ")}`,
    ")",
    "dataset = surface.compute()",
    "",
  ].join("\n");
}

/** A command line that asks, and waits for the answer as NetCDF. */
export function asCurl(document, origin) {
  const body = JSON.stringify(document).replaceAll("'", "'\\''");
  return [
    `id=$(curl -sS -H 'Content-Type: application/json' -d '${body}' ${origin}api/v1/queries |`,
    `  python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])')`,
    `curl -sSN ${origin}api/v1/queries/$id/events > /dev/null  # ends when the query does`,
    `curl -sS -o surface.nc ${origin}api/v1/queries/$id/result?f=netcdf`,
    "",
  ].join("\n");
}

/** The JSON of a query with a step a line. */
export function written(document) {
  const line = (value) => JSON.stringify(value, null, 1).replace(/\n\s*/g, " ");
  const lines = Object.entries(document).map(([key, value]) => {
    const text = key === "steps" && Array.isArray(value) && value.length ? `[\n  ${value.map(line).join(",\n  ")}\n ]` : line(value);
    return `${JSON.stringify(key)}: ${text}`;
  });
  return `{\n ${lines.join(",\n ")}\n}`;
}
