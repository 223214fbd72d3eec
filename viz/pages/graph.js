// A plan as boxes and arrows, and snapshots on a line of time, as SVG with a table beside it.

import { bytes, duration, h, instant, number, table, visible } from "./dom.js";
import { T } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";
const BOX = { width: 250, height: 96, across: 70, down: 26 };
const LETTERS = 29;
const LINE = { width: 900, height: 70, margin: 14, apart: 6 };

function s(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.map((child) => (child instanceof Node ? child : visible(String(child)))));
  return element;
}

/** Text in lines of so many letters, at most `most` of them. */
function wrapped(text, most) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const last = lines[lines.length - 1];
    if (last && last.length + word.length >= LETTERS) lines.push(word);
    else lines[lines.length - 1] = last ? `${last} ${word}` : word;
  }
  if (lines.length > most) lines[most - 1] = `${lines[most - 1].slice(0, LETTERS - 2)} …`;
  return lines.slice(0, most);
}

/** Steps that were read and computed as a part of the one that reads them: readings, and what changes them one by one. */
function together(nodes) {
  const found = new Set();
  for (const node of [...nodes].reverse()) {
    if (node.measured_s === null && nodes.some((one) => one.sources.includes(node.token) && (one.measured_s !== null || found.has(one.token)))) found.add(node.token);
  }
  return found;
}

/** Column and row of each node: a node stands right of all that it reads. */
function places(nodes) {
  const found = new Map();
  const used = [];
  for (const node of nodes) {
    const column = node.sources.length ? Math.max(...node.sources.map((source) => found.get(source).column)) + 1 : 0;
    used[column] = (used[column] ?? 0) + 1;
    found.set(node.token, { column, row: used[column] - 1 });
  }
  return { found, columns: used.length, rows: Math.max(...used) };
}

/** The plan as a graph, its words, and its table; `job` is the run that computes it, if one does. */
export function drawGraph(plan, job) {
  const { nodes } = plan;
  const { found, columns, rows } = places(nodes);
  const left = (column) => 4 + column * (BOX.width + BOX.across);
  const top = (row) => 4 + row * (BOX.height + BOX.down);
  const arrows = nodes.flatMap((node) => node.sources.map((source) => {
    const [from, to] = [found.get(source), found.get(node.token)];
    const [x1, y1, x2, y2] = [left(from.column) + BOX.width, top(from.row) + BOX.height / 2, left(to.column), top(to.row) + BOX.height / 2];
    const origin = nodes.find((one) => one.token === source);
    return s("g", {}, s("path", { class: "arrow", d: `M${x1} ${y1} C${x1 + 30} ${y1} ${x2 - 30} ${y2} ${x2 - 6} ${y2}`, "marker-end": "url(#arrow-head)" }),
      s("text", { class: "flow", x: (x1 + x2) / 2, y: (y1 + y2) / 2 - 6, "text-anchor": "middle" }, T.graph.cells(short(origin.cells))));
  }));
  const within = together(nodes);
  const unmeasured = (node) => (within.has(node.token) ? T.graph.together : job?.state === "done" ? T.graph.notKept : T.graph.notMeasured);
  const rateOf = (node) => (node.measured_s ? T.graph.rate(number(node.measured_cells / node.measured_s, 0)) : unmeasured(node));
  const longest = Math.max(...nodes.map((node) => node.measured_s ?? node.projected_s));
  const boxes = nodes.map((node) => {
    const { column, row } = found.get(node.token);
    const [x, y] = [left(column), top(row)];
    const share = longest ? (node.measured_s ?? node.projected_s) / longest : 0;
    const lines = wrapped(node.what, 2);
    return s("g", { class: `node ${node.kind}` },
      s("title", {}, `${node.what}: ${number(node.cells)} cells, ${node.unit}`),
      s("rect", { x, y, width: BOX.width, height: BOX.height, rx: 6 }),
      s("rect", { class: "share", x: x + 8, y: y + BOX.height - 9, width: Math.max(2, share * (BOX.width - 16)), height: 4, rx: 2 }),
      ...lines.map((line, at) => s("text", { class: "what", x: x + 10, y: y + 20 + 16 * at }, line)),
      s("text", { x: x + 10, y: y + 60 }, T.graph.size(short(node.cells), bytes(node.projected_bytes))),
      s("text", { x: x + 10, y: y + 78 }, rateOf(node)));
  });
  const [width, height] = [left(columns) - BOX.across + 8, top(rows) - BOX.down + 8];
  const head = s("defs", {}, s("marker", { id: "arrow-head", viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, s("path", { class: "head", d: "M0 0 L8 4 L0 8 Z" })));
  const words = T.graph.words(nodes.length, number(plan.cells), bytes(plan.projected_bytes), plan.strategy);
  const picture = s("svg", { class: "graph", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": words }, head, ...arrows, ...boxes);
  const running = job && job.fraction !== undefined ? h("p", { class: "quiet" }, T.graph.running(T.engine.states[job.state], number(100 * job.fraction, 0), number(job.cells / Math.max(job.seconds, 1e-3), 0))) : null;
  const rules = plan.rules.length ? h("ul", { class: "quiet" }, plan.rules.map((one) => h("li", {}, h("strong", {}, one.rule), `: ${one.why}`))) : h("p", { class: "quiet" }, T.graph.noRules);
  const columnsOf = T.graph.columns.map((name, place) => (place > 1 ? [name, "number"] : name));
  const cells = nodes.map((node, place) => [String(place), node.what, number(node.cells), bytes(node.projected_bytes), duration(node.projected_s), node.measured_s === null ? unmeasured(node) : duration(node.measured_s), node.density === null ? T.missing : `${number(100 * node.density, 0)} %`]);
  return [h("div", { class: "scrolled", tabindex: 0, role: "region", "aria-label": T.graph.region }, picture), h("p", { class: "quiet" }, words), ...(running ? [running] : []),
    h("details", { class: "as-table" }, h("summary", {}, T.graph.rules), rules), h("details", { class: "as-table" }, h("summary", {}, T.pane.table), table(words, columnsOf, cells))];
}

const short = (count) => new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(count);

/** When snapshots were committed. */
export function drawTimeline(snapshots) {
  const times = snapshots.map((one) => Date.parse(one.time));
  const [first, last] = [Math.min(...times), Math.max(...times)];
  const x = (time) => LINE.margin + (last > first ? (time - first) / (last - first) : 0.5) * (LINE.width - 2 * LINE.margin);
  // Dots that would hide one another are one: a network that commits each minute has more snapshots than the line has room for.
  const shared = Map.groupBy(snapshots.keys(), (at) => Math.round(x(times[at]) / LINE.apart));
  const dots = [...shared.values()].map(([at, ...others]) => s("circle", { cx: x(times[at]), cy: 26, r: 6 },
    s("title", {}, `${instant(snapshots[at].time.slice(0, 19))}: ${snapshots[at].message}${others.length ? T.graph.others(number(others.length)) : ""}`)));
  const ends = snapshots.length ? [[first, LINE.margin, "start"], ...(last > first ? [[last, LINE.width - LINE.margin, "end"]] : [])] : [];
  const words = T.graph.timeline(number(snapshots.length), ...(snapshots.length ? [first, last].map((time) => instant(new Date(time).toISOString().slice(0, 19))) : ["", ""]));
  return h("div", { class: "scrolled", tabindex: 0, role: "region", "aria-label": T.graph.line },
    s("svg", { class: "timeline", viewBox: `0 0 ${LINE.width} ${LINE.height}`, width: LINE.width, height: LINE.height, role: "img", "aria-label": words },
      s("line", { x1: LINE.margin, x2: LINE.width - LINE.margin, y1: 26, y2: 26 }), ...dots,
      ...ends.map(([time, at, anchor]) => s("text", { x: at, y: 56, "text-anchor": anchor }, instant(new Date(time).toISOString().slice(0, 19))))));
}
