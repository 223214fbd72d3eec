// The plan of a continuous query: operators as boxes from the streams to the result, its windows, what was assumed.

import { bytes, h, number, table, visible } from "./dom.js";
import { T } from "./text.js";
import { unitText } from "./units.js";

const SVG = "http://www.w3.org/2000/svg";
const BOX = { width: 196, height: 60, across: 40, down: 16 };
const LETTERS = 30;
const LINES = 2;

function s(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.map((child) => (child instanceof Node ? child : visible(String(child)))));
  return element;
}

/** Text in lines of so many letters; long words are cut, as a list of columns is one. */
function wrapped(text) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const last = lines[lines.length - 1];
    if (last && last.length + word.length >= LETTERS) lines.push(word);
    else lines[lines.length - 1] = last ? `${last} ${word}` : word;
  }
  const cut = lines.map((line) => (line.length > LETTERS ? `${line.slice(0, LETTERS - 1)}…` : line));
  if (cut.length > LINES) cut[LINES - 1] = `${cut[LINES - 1].slice(0, LETTERS - 2)} …`;
  return cut.slice(0, LINES);
}

/** Column and row of each operator: one stands right of all that it reads, beside the middle of them. */
export function placeNodes({ nodes, edges }) {
  const sources = new Map(nodes.map((node) => [node.id, [...new Set(edges.filter((edge) => edge.to === node.id).map((edge) => edge.from))]]));
  const column = new Map();
  const depth = (id) => {
    if (!column.has(id)) column.set(id, Math.max(-1, ...sources.get(id).map(depth)) + 1);
    return column.get(id);
  };
  const row = new Map();
  let rows = 0;
  const settle = (id) => {
    if (row.has(id)) return row.get(id);
    const below = sources.get(id).map(settle);
    row.set(id, below.length ? below.reduce((sum, one) => sum + one, 0) / below.length : rows++);
    return row.get(id);
  };
  for (const node of nodes) depth(node.id);
  for (const node of nodes) settle(node.id);
  // Two of one column keep apart.
  const groups = Map.groupBy(nodes, (node) => column.get(node.id));
  for (const group of groups.values()) {
    group.sort((one, other) => row.get(one.id) - row.get(other.id));
    for (let at = 1; at < group.length; at += 1) row.set(group[at].id, Math.max(row.get(group[at].id), row.get(group[at - 1].id) + 1));
  }
  return { column, row, columns: Math.max(...column.values()) + 1, rows: Math.max(...row.values()) + 1 };
}

/** What a box says: its operator's text without the name that stands above, of inputs the name alone. */
function wordsOf(node) {
  if (["stream", "relation"].includes(node.operator)) return node.text.replace(/^\w+ /, "").replace(/\(.*$/, "");
  return node.interval ?? node.text.replace(new RegExp(`^${node.operator} `), "");
}

function drawPlan(plan) {
  const { column, row, columns, rows } = placeNodes(plan);
  const left = (node) => 4 + column.get(node) * (BOX.width + BOX.across);
  const top = (node) => 4 + row.get(node) * (BOX.height + BOX.down);
  const pairs = new Map(plan.edges.map((edge) => [`${edge.from} ${edge.to}`, edge]));
  const arrows = [...pairs.values()].map(({ from, to }) => {
    const [x1, y1, x2, y2] = [left(from) + BOX.width, top(from) + BOX.height / 2, left(to), top(to) + BOX.height / 2];
    return s("path", { class: "arrow", d: `M${x1} ${y1} C${x1 + 24} ${y1} ${x2 - 24} ${y2} ${x2 - 6} ${y2}`, "marker-end": "url(#cql-head)" });
  });
  const boxes = plan.nodes.map((node) => s("g", { class: `node ${node.operator.replace(" ", "-")}` },
    s("title", {}, `${node.text}: ${node.attributes.map((one) => one.name).join(", ")}`),
    s("rect", { x: left(node.id), y: top(node.id), width: BOX.width, height: BOX.height, rx: 6 }),
    s("text", { class: "what", x: left(node.id) + 10, y: top(node.id) + 19 }, node.operator),
    ...wrapped(wordsOf(node)).map((line, at) => s("text", { class: "small", x: left(node.id) + 10, y: top(node.id) + 36 + 14 * at }, line))));
  const head = s("defs", {}, s("marker", { id: "cql-head", viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, s("path", { class: "head", d: "M0 0 L8 4 L0 8 Z" })));
  const [width, height] = [8 + columns * (BOX.width + BOX.across) - BOX.across, 8 + rows * (BOX.height + BOX.down) - BOX.down];
  return (words) => s("svg", { class: "graph cql-graph", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": words }, head, ...arrows, ...boxes);
}

const sentences = (title, lines) => (lines.length ? h("div", {}, h("h3", {}, title), h("ul", { class: "examples" }, lines.map((line) => h("li", {}, line)))) : null);

/** How a query is computed: its graph, its windows, its defaults, warnings and rewrites. */
export function describePlan(told) {
  const { nodes, edges } = told.plan;
  const words = (told.unlimited ? T.continuous.planUnlimited : T.continuous.plan)(number(nodes.length), bytes(told.projected_bytes));
  const names = new Map(nodes.map((node) => [node.id, node]));
  const reads = (node) => [...new Set(edges.filter((edge) => edge.to === node.id).map((edge) => names.get(edge.from).operator))].join(", ") || T.missing;
  const windows = told.windows.map((one) => [one.window, one.interval, one.rows === null ? T.missing : number(one.rows, 0), one.projected_bytes === null ? T.missing : bytes(one.projected_bytes), one.note]);
  return [h("div", { class: "scrolled", tabindex: 0, role: "region", "aria-label": T.continuous.planRegion }, drawPlan(told.plan)(words)), h("p", { class: "quiet" }, words),
    h("div", { class: "three" }, sentences(T.continuous.warned, told.warnings), sentences(T.continuous.assumed, told.defaults), sentences(T.continuous.rewritten, told.rewrites)),
    ...(windows.length ? [h("h3", {}, T.continuous.windows), table(T.continuous.windowsCaption, T.continuous.windowColumns, windows)] : []),
    h("details", { class: "as-table" }, h("summary", {}, T.continuous.planTable), table(words, T.continuous.planColumns, nodes.map((node) => [node.operator, node.text, node.attributes.map((one) => (one.unit ? `${one.name} [${unitText(one.unit)}]` : one.name)).join(", "), reads(node)])))];
}
