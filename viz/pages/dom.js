// Elements, numbers and files: what every page needs of the browser.

import { T } from "./text.js";

export const part = (id) => document.getElementById(id);

/** Characters that a browser obeys and does not show, as those that turn the direction of text (as `hypergrid.console`). */
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const escaped = (code) => (code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`);

/** A text of whoever sends data, with such characters as escapes: \u202e. */
export const visible = (text) => text.replace(UNSEEN, (found) => escaped(found.charCodeAt(0)));

const SPOKEN = ["aria-label", "title"];
const YEAR_S = 365.2425 * 86400;

/** Make an element; what it says is made visible. `on` holds listeners, `data` the dataset; true and false set and leave out an attribute. */
export function h(tag, given = {}, ...children) {
  const element = document.createElement(tag);
  const { on = {}, data = {}, ...attributes } = given;
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name === "value" || name === "checked" || name === "selected") element[name] = value;
    else element.setAttribute(name, value === true ? "" : SPOKEN.includes(name) ? visible(value) : value);
  }
  Object.assign(element.dataset, data);
  for (const [name, listener] of Object.entries(on)) element.addEventListener(name, listener);
  const shown = children.flat().filter((child) => child !== null && child !== undefined && child !== false);
  element.append(...shown.map((child) => (child instanceof Node ? child : visible(String(child)))));
  return element;
}

/** Draw a part again; the focus stays on what has the same `data-act`, also where `make` moves it into what it returns. */
export function redraw(part, make) {
  const held = document.activeElement?.dataset?.act;
  part.replaceChildren(...make());
  if (held) part.querySelector(`[data-act="${CSS.escape(held)}"]`)?.focus();
}

/** A control under its label. */
export function field(label, control, hint = "") {
  control.id ||= `field-${(field.count = (field.count ?? 0) + 1)}`;
  const told = hint ? h("p", { class: "quiet hint", id: `${control.id}-hint` }, hint) : null;
  if (told) control.setAttribute("aria-describedby", told.id);
  return h("div", { class: "field" }, h("label", { for: control.id }, label), control, told);
}

export const tick = (label, control) => h("label", { class: "tick" }, control, ` ${label}`);

/** A select of [value, text] pairs. */
export function choice(id, pairs, on, value) {
  const made = h("select", { id, on: { change: () => on(made.value) } }, pairs.map(([key, text]) => new Option(visible(text), key)));
  if (value !== undefined) made.value = value;
  return made;
}

export const button = (text, on, given = {}) => h("button", { type: "button", ...given, on: { click: on } }, text);

export function number(value, digits = 2) {
  if (value === null || value === undefined || Number.isNaN(value)) return T.missing;
  return value.toLocaleString("en", { maximumFractionDigits: digits, signDisplay: "negative" }).replace("-", "−");
}

/** A number with as many digits as its size needs. */
export const figure = (value) => number(value, Math.abs(value) >= 1000 ? 0 : Math.abs(value) >= 1 ? 2 : 4);

export function bytes(count) {
  if (count === null || count === undefined) return T.missing;
  const power = Math.min(Math.floor(Math.log2(Math.max(count, 1)) / 10), 3);
  return `${number(count / 1024 ** power, 1)} ${["B", "KiB", "MiB", "GiB"][power]}`;
}

/** A length of time in words, as 4 min or 3 h. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return T.missing;
  // Days are easy to imagine up to some hundreds.
  const units = [[YEAR_S, "years", 2 * YEAR_S], [86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const [size, unit] = units.find(([one, , least = one]) => Math.abs(seconds) >= least) ?? [1, "s"];
  return `${number(seconds / size, seconds / size < 10 ? 1 : 0)} ${unit}`;
}

/** An instant to the second or, at a whole minute, to that, in UTC. */
export const instant = (text) => (text ? `${text.replace("T", " ").replace(/\.0+(?=Z|$)/, "").replace(/(:\d\d):00(?=Z|$)/, "$1").replace("Z", "")} UTC` : T.missing);

/** A table with a caption; columns are texts, or [text, "number"] where numbers stand at the right. */
export function table(caption, columns, rows) {
  const heads = columns.map((one) => (Array.isArray(one) ? one : [one, ""]));
  const cell = (value, place) => h("td", { class: heads[place][1] || false }, value instanceof Node ? value : String(value ?? ""));
  return h("div", { class: "scrolled", tabindex: 0, role: "region", "aria-label": caption },
    h("table", {}, h("caption", {}, caption),
      h("thead", {}, h("tr", {}, heads.map(([text, kind]) => h("th", { scope: "col", class: kind || false }, text)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map(cell))))));
}

/** Rows of a long table that are drawn at first, and with each press of its button. */
const ROWS = 200;

/** A table of items that may be thousands: the first rows are drawn, more when they are asked for or looked for. */
export class LongTable {
  /** `cells` returns the cells of an item, `words` the text by which it is found. */
  constructor(caption, columns, cells, words) {
    Object.assign(this, { caption, columns, cells, words, items: [], rows: ROWS });
    this.find = h("input", { type: "search", on: { input: () => this.fill() } });
    this.finding = h("div", { class: "inline looks", hidden: true }, field(T.table.find, this.find));
    this.more = button(T.table.more(ROWS), () => this.showMore(), { class: "small" });
    this.told = h("p", { class: "quiet", role: "status" });
    this.body = h("div");
    this.element = h("div", {}, this.finding, this.body, this.told, this.more);
  }

  /** Draw items, in their order; what was looked for, and how many rows were shown, stay. */
  draw(items) {
    this.items = items;
    this.finding.hidden = items.length <= ROWS;
    this.fill();
  }

  fill() {
    const wanted = this.find.value.trim().toLowerCase();
    const found = wanted ? this.items.filter((item) => this.words(item).toLowerCase().includes(wanted)) : this.items;
    const shown = found.slice(0, this.rows);
    this.body.replaceChildren(table(this.caption, this.columns(), shown.map((item) => this.cells(item))));
    this.more.hidden = shown.length === found.length;
    this.told.textContent = this.more.hidden && !wanted ? "" : T.table.shown(number(shown.length), number(found.length));
  }

  showMore() {
    this.rows += ROWS;
    this.fill();
  }
}

/** Words where there is nothing to show: what is missing, and what to do. */
export const empty = (title, advice, ...more) => h("div", { class: "empty" }, h("p", {}, h("strong", {}, title)), h("p", {}, advice), ...more);

export function problemBox(problem) {
  return h("div", { class: "problem" },
    h("p", {}, problem.title ?? T.problems.page), h("p", {}, problem.message || problem.detail || ""));
}

/** Hand a file to the user. */
export function save(name, content, type) {
  const blob = content instanceof Blob ? content : new Blob([content], { type });
  const address = URL.createObjectURL(blob);
  h("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** CSV of rows, text quoted where it must be, and kept from being a formula of a spreadsheet. */
export function csv(columns, rows) {
  const cell = (value) => {
    if (typeof value === "number") return Number.isFinite(value) ? String(value) : "";
    const text = /^[=+\-@\t]/.test(value ?? "") ? `'${value}` : String(value ?? "");
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [columns, ...rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

/** Copy text; where the browser does not allow that, it can be selected in the box. */
export async function copy(text, box) {
  box.hidden = false;
  box.querySelector("pre").textContent = text;
  try {
    await navigator.clipboard.writeText(text);
    box.querySelector("p").textContent = T.copied;
  } catch {
    getSelection().selectAllChildren(box.querySelector("pre"));
    box.querySelector("p").textContent = T.notCopied;
  }
}
