// An editor of CQL: names are completed, and what is at fault is underlined and mended, by mouse and by keyboard.

import { button, h, visible } from "./dom.js";
import { complete } from "./cql_completion.js";
import { T } from "./text.js";

const PAUSE_MS = 300;
/** Options that are shown at a time, so that the list needs no scrolling of its own. */
const SHOWN = 9;

/** Characters [start, end) of a fault in a text, from its line and column, which count characters from 1. */
export function spanOf(text, { line, column, length }) {
  if (!line) return null;
  const lines = text.split("\n");
  const before = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
  const units = (count) => [...(lines[line - 1] ?? "")].slice(0, count).join("").length;
  const start = before + units(column - 1);
  return { start, end: Math.max(before + units(column - 1 + length), start) };
}

export class CqlEditor {
  /** `check` asks what is wrong with a text: null, or {line, column, length, problem, suggestion}; `on` holds `change` and `run`. */
  constructor(catalogue, check, on) {
    Object.assign(this, { catalogue, check, on });
    this.fault = null;
    this.turn = 0;
    this.options = [];
    this.at = 0;
    this.text = h("textarea", { id: "cql", rows: 9, spellcheck: "false", autocomplete: "off", autocapitalize: "off", wrap: "soft", "aria-autocomplete": "list", "aria-controls": "cql-options", "aria-describedby": "cql-told cql-hint" });
    this.mirror = h("pre", { class: "cql-mirror", "aria-hidden": "true" });
    this.list = h("ul", { id: "cql-options", role: "listbox", "aria-label": T.continuous.completions, class: "cql-options", hidden: true });
    this.told = h("p", { id: "cql-told", role: "status", class: "cql-told" });
    this.fix = button("", () => this.mend(), { id: "cql-mend", class: "small", hidden: true });
    this.element = h("div", { class: "field" }, h("label", { for: "cql" }, T.continuous.editor),
      h("div", { class: "cql-editor" }, this.mirror, this.text, this.list),
      h("div", { class: "cql-state" }, this.told, this.fix), h("p", { id: "cql-hint", class: "quiet hint" }, T.continuous.editorHint));
    this.listen();
  }

  listen() {
    const { text } = this;
    text.addEventListener("input", () => {
      this.changed();
      this.offer();
      this.on.change();
    });
    text.addEventListener("scroll", () => this.align());
    text.addEventListener("keydown", (event) => this.press(event));
    text.addEventListener("blur", () => this.close());
    // A click on what is underlined offers what may be meant.
    text.addEventListener("click", () => (this.isInFault() ? this.offerMending() : this.close()));
    this.list.addEventListener("mousedown", (event) => {
      const at = Number(event.target.closest("li")?.dataset.at ?? -1);
      // The text keeps the focus.
      event.preventDefault();
      if (at >= 0) this.take(at);
    });
  }

  get value() {
    return this.text.value;
  }

  set value(text) {
    this.text.value = text;
    this.close();
    this.changed();
  }

  changed() {
    this.fault = null;
    this.draw();
    clearTimeout(this.pause);
    this.pause = setTimeout(() => this.ask(), PAUSE_MS);
  }

  /** Ask whether the text is understood; a later text makes the answer void. */
  async ask() {
    clearTimeout(this.pause);
    const turn = (this.turn += 1);
    const text = this.value;
    const fault = text.trim() ? await this.check(text) : null;
    if (turn !== this.turn || text !== this.value) return;
    this.fault = fault && { ...fault, span: spanOf(text, fault) };
    this.draw();
  }

  /** Say what holds; of a fault what it is, and how to mend it. */
  say(words) {
    this.told.textContent = visible(words);
  }

  draw() {
    const { fault, value } = this;
    const span = fault?.span;
    const [start, end] = span ? [span.start, Math.max(span.end, span.start + 1)] : [value.length, value.length];
    this.mirror.replaceChildren(value.slice(0, start), ...(span ? [h("span", { class: "cql-fault" }, value.slice(start, end) || " ")] : []), `${value.slice(end)}\n`);
    this.told.classList.toggle("bad", Boolean(fault));
    this.text.toggleAttribute("aria-invalid", Boolean(fault));
    // The names that there are stand in the completions.
    const [problem] = (fault?.problem ?? "").split(" There are: ");
    if (fault) this.say(fault.line ? T.continuous.isFault(fault.line, fault.column, problem) : problem);
    this.fix.hidden = !fault?.suggestion || !span;
    if (!this.fix.hidden) this.fix.textContent = T.continuous.mend(value.slice(span.start, span.end), fault.suggestion);
    this.align();
  }

  align() {
    this.mirror.scrollTop = this.text.scrollTop;
    this.mirror.scrollLeft = this.text.scrollLeft;
  }

  /** Put what may be meant in place of what is at fault. */
  mend() {
    const { fault } = this;
    if (!fault?.suggestion || !fault.span) return;
    this.put(fault.span.start, fault.span.end, fault.suggestion);
    this.ask();
  }

  /** Replace characters as typing does, so that the browser can take it back. */
  put(start, end, text) {
    this.text.focus();
    this.text.setSelectionRange(start, end);
    // Unlike a change of the value this keeps the browser's own undo.
    if (!document.execCommand("insertText", false, text)) {
      this.text.setRangeText(text, start, end, "end");
      this.changed();
      this.on.change();
    }
    this.close();
  }

  isInFault() {
    const { fault, text } = this;
    return Boolean(fault?.suggestion && fault.span && text.selectionStart >= fault.span.start && text.selectionEnd <= fault.span.end);
  }

  // Completion

  press(event) {
    const { key } = event;
    if (key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      this.close();
      this.on.run();
    } else if (key === "Enter" && event.altKey) {
      event.preventDefault();
      this.mend();
    } else if (key === " " && event.ctrlKey) {
      event.preventDefault();
      if (this.isInFault()) this.offerMending();
      else this.offer(true);
    } else if (!this.list.hidden && ["ArrowDown", "ArrowUp", "Enter", "Escape"].includes(key) && !event.shiftKey) {
      event.preventDefault();
      if (key === "Escape") this.close();
      else if (key === "Enter") this.take(this.at);
      else this.choose((this.at + (key === "ArrowDown" ? 1 : this.options.length - 1)) % this.options.length);
    } else if (["ArrowLeft", "ArrowRight", "Home", "End", "PageUp", "PageDown"].includes(key)) this.close();
  }

  offer(wanted = false) {
    const caret = this.text.selectionStart;
    const { start, options } = complete(this.value, caret, this.catalogue, { wanted });
    this.open(start, caret, options);
  }

  offerMending() {
    const { span, suggestion } = this.fault;
    this.open(span.start, span.end, [{ text: suggestion, kind: null, unit: T.continuous.mendOption(this.value.slice(span.start, span.end)) }]);
  }

  /** Show options for characters [start, end) below them. */
  open(start, end, options) {
    Object.assign(this, { options, start, end });
    if (!options.length) {
      this.close();
      return;
    }
    this.list.hidden = false;
    this.choose(0);
    const { left, top } = this.placeOf(start);
    const room = this.list.parentElement.clientWidth - this.list.offsetWidth;
    this.list.style.left = `${Math.max(0, Math.min(left, room))}px`;
    this.list.style.top = `${top}px`;
  }

  /** Where a character stands in the editor, its lower edge. */
  placeOf(position) {
    const mark = h("span");
    const kept = [...this.mirror.childNodes];
    this.mirror.replaceChildren(this.value.slice(0, position), mark, this.value.slice(position), "\n");
    this.align();
    const [own, whole] = [mark.getBoundingClientRect(), this.mirror.parentElement.getBoundingClientRect()];
    this.mirror.replaceChildren(...kept);
    this.align();
    return { left: own.left - whole.left, top: Math.min(own.bottom - whole.top + 6, this.text.offsetHeight) };
  }

  /** Choose an option; of many those around it are shown. */
  choose(at) {
    this.at = at;
    const { length } = this.options;
    const first = Math.max(0, Math.min(at - Math.floor(SHOWN / 2), length - SHOWN));
    this.list.replaceChildren(...this.options.slice(first, first + SHOWN).map((one, place) => {
      const number = first + place;
      const words = [one.kind && T.continuous.kinds[one.kind], one.of, one.unit].filter(Boolean).join(" · ");
      return h("li", { id: `cql-option-${number}`, role: "option", "aria-selected": String(number === at), "aria-posinset": number + 1, "aria-setsize": length, data: { at: number } }, h("span", { class: "what" }, one.text), h("span", { class: "quiet" }, words));
    }));
    this.text.setAttribute("aria-activedescendant", `cql-option-${at}`);
  }

  take(at) {
    const { start, end, options } = this;
    const wasFault = options[at].kind === null;
    this.put(start, end, options[at].text);
    if (wasFault) this.ask();
  }

  close() {
    this.list.hidden = true;
    this.options = [];
    this.text.removeAttribute("aria-activedescendant");
  }
}
