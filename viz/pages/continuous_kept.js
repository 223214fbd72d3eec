// Kept continuous queries: a query is kept under a name, followed row by row as commits come, and removed.

import * as api from "./api.js";
import { ask, askToRemove } from "./dialog.js";
import { button, choice, empty, field, figure, h, instant, number, redraw, table, tick } from "./dom.js";
import { Poll } from "./follow.js";
import { T } from "./text.js";
import { unitText } from "./units.js";

const PAUSE_MS = 2000;
/** Rows that are shown, the newest. */
const MOST_ROWS = 200;
/** Columns of an answer before the select list, and behind it. */
const BEFORE = 3;
const BEHIND = 2;
const DAY_S = 86_400;

const short = (text) => instant(text?.slice(0, 19));

function shown(value, kind) {
  if (value === null) return T.missing;
  if (kind === "number") return figure(value);
  return kind === "time" ? short(value) : kind === "integer" ? number(value, 0) : String(value);
}

export class KeptQueries {
  /** `take` puts the text of a query into the editor; `text` gives what is in it, `understood` whether it is a query. */
  constructor(frame, { take, text, understood }) {
    Object.assign(this, { frame, take, text, understood });
    this.entries = [];
    this.followed = null;
    this.keep = button(T.continuous.keep, () => this.askForName(), { id: "cql-keep", hidden: !frame.may("write") });
    this.list = h("div", { id: "cql-kept-list" });
    this.rowsTitle = h("h3", { id: "cql-rows-title", tabindex: -1 });
    this.progress = h("p", { id: "cql-rows-state", class: "quiet", role: "status" });
    this.body = h("div", { id: "cql-rows-table" });
    this.rowsPart = h("section", { id: "cql-rows", "aria-labelledby": "cql-rows-title", hidden: true }, this.rowsTitle, this.progress, this.body);
    this.element = h("section", { id: "cql-kept", "aria-labelledby": "cql-kept-title", hidden: true },
      h("h2", { id: "cql-kept-title" }, T.continuous.kept), this.list, this.rowsPart);
    this.poll = new Poll(() => this.look(), PAUSE_MS);
  }

  async show() {
    await this.poll.start().catch(() => {});
    if (this.followed && !this.leaveRows) this.follow(this.followed);
  }

  hide() {
    this.poll.stop();
    this.close();
  }

  async look() {
    try {
      this.entries = await api.look("continuous");
    } catch (problem) {
      if (problem.status !== 404) throw problem;
      // A server that writes nothing keeps no queries.
      this.poll.stop();
      [this.element.hidden, this.keep.hidden] = [true, true];
      return;
    }
    this.element.hidden = false;
    this.draw();
  }

  draw() {
    const text = JSON.stringify(this.entries);
    if (text === this.drawn) return;
    this.drawn = text;
    if (!this.entries.length) {
      this.list.replaceChildren(empty(T.continuous.noneKept, T.continuous.noneKeptAdvice));
      return;
    }
    const opened = new Set([...this.list.querySelectorAll("details[open]")].map((part) => part.dataset.of));
    const rows = this.entries.map((entry) => {
      const act = (name, on) => button(T.continuous.keptActs[name], on, { class: "small", "aria-label": T.standing.actOn(T.continuous.keptActs[name], entry.name), data: { act: `${name}-${entry.name}` } });
      return [h("div", {}, h("strong", {}, entry.name), h("details", { class: "cql-text", open: opened.has(entry.name), data: { of: entry.name } },
        h("summary", { data: { act: `text-${entry.name}` } }, T.continuous.keptText), h("pre", { tabindex: 0, data: { act: `read-${entry.name}` } }, entry.text)),
        h("div", { class: "buttons small" }, act("rows", () => this.open(entry.name)), act("take", () => this.take(entry.text)),
          ...(this.frame.may("write") ? [act("howLong", () => this.changeKeep(entry)), act("remove", () => this.remove(entry))] : []))), this.stateOf(entry), this.alertOf(entry)];
    });
    redraw(this.list, () => [table(T.continuous.keptCaption, T.continuous.keptColumns, rows)]);
  }

  stateOf(entry) {
    if (entry.error) return h("span", { class: "bad" }, T.continuous.keptFails(entry.error));
    const until = entry.heartbeat ? T.continuous.keptUntil(short(entry.heartbeat)) : T.continuous.keptBegins;
    const late = entry.late_windows ? T.continuous.keptLate(number(entry.late_windows, 0)) : "";
    const from = entry.kept_from ? T.continuous.keptFrom(short(entry.kept_from)) : "";
    const tooLate = entry.too_late_windows ? T.continuous.keptTooLate(number(entry.too_late_windows, 0)) : "";
    return h("span", {}, [until, entry.complete ? "" : T.continuous.keptBehind, late, from, tooLate].filter(Boolean).join(" "));
  }

  alertOf(entry) {
    if (!entry.alerts.length) return h("span", { class: "quiet" }, T.continuous.noAlert);
    const open = entry.alerts.reduce((sum, alert) => sum + alert.standing.length, 0);
    return button(open ? T.standing.raised(number(open)) : T.continuous.noneOpen, () => this.frame.go("standing"), { class: "link", "aria-label": T.continuous.alertsOf(entry.name, open), data: { act: `alerts-${entry.name}` } });
  }

  // Keeping and removing

  async askForName() {
    if (!(await this.understood())) return;
    const name = h("input", { id: "cql-name", type: "text", required: true, maxlength: 63, autocomplete: "off", spellcheck: "false" });
    const alert = h("input", { id: "cql-alert", type: "checkbox", checked: true });
    const to = h("input", { id: "cql-to-whom", type: "text", autocomplete: "off", spellcheck: "false" });
    const whom = field(T.continuous.alertTo, to, T.continuous.alertToHint);
    alert.addEventListener("change", () => { whom.hidden = !alert.checked; });
    const keep = choice("cql-how-long", T.continuous.howLong, () => {});
    const made = await ask(T.continuous.keep, [field(T.continuous.keptName, name, T.continuous.keptNameHint), field(T.continuous.keepRows, keep, T.continuous.keepRowsHint), tick(T.continuous.withAlert, alert), whom], {
      submit: T.continuous.keepIt, wrong: name,
      act: () => {
        const others = to.value.split(/[\s,]+/).filter(Boolean);
        return api.keepContinuous({ name: name.value.trim(), text: this.text(), ...(keep.value ? { keep: keep.value } : {}), ...(alert.checked ? { alert: { to: ["events", ...others] } } : {}) });
      },
    });
    if (!made) return;
    await this.lookAgain();
    this.open(made.name);
  }

  async changeKeep(entry) {
    const days = entry.keep_s === null ? "" : `${entry.keep_s / DAY_S}days`;
    const listed = T.continuous.howLong.some(([value]) => value === days);
    const pairs = listed ? T.continuous.howLong : [...T.continuous.howLong, [days, T.continuous.forDays(number(entry.keep_s / DAY_S))]];
    const keep = choice("cql-how-long", pairs, () => {}, days);
    const made = await ask(T.continuous.keepRowsOf(entry.name), [field(T.continuous.keepRows, keep, T.continuous.keepRowsHint)], {
      submit: T.continuous.keepThem, act: () => api.keepRows(entry.name, keep.value || "always"),
    });
    if (made) await this.lookAgain();
  }

  async remove(entry) {
    await this.frame.attempt(async () => {
      if (!(await askToRemove(T.continuous.sure(entry.name)))) return;
      const isFollowed = this.followed === entry.name;
      if (isFollowed) {
        // What is on its way is waited for: nothing asks for rows that are gone.
        await this.following;
        if (this.followed === entry.name) this.close();
      }
      try {
        await api.removeContinuous(entry.name);
      } catch (problem) {
        if (isFollowed && !this.followed) {
          this.followed = entry.name;
          if (this.poll.isOn) this.follow(entry.name);
        }
        throw problem;
      }
      await this.lookAgain();
    });
  }

  async lookAgain() {
    await this.poll.looking?.catch(() => {});
    await this.poll.now();
  }

  // Rows as they come

  async open(name) {
    await this.follow(name);
    this.rowsTitle.focus();
  }

  follow(name) {
    this.leaveRows?.();
    this.followed = name;
    this.following = this.frame.attempt(async () => {
      const told = await api.look(`continuous/${encodeURIComponent(name)}/rows?newest=true&limit=${MOST_ROWS}`);
      if (this.followed !== name) return;
      this.columns = told.columns.slice(BEFORE, -BEHIND);
      this.rows = told.rows.map(([at, tau, sign, ...rest]) => ({ number: at, tau, sign, row: rest.slice(0, -BEHIND), corrects: rest[rest.length - BEHIND] }));
      this.rowsTitle.textContent = T.continuous.rowsOf(name);
      this.rowsPart.hidden = false;
      this.drawRows();
      const after = this.rows.length ? this.rows[this.rows.length - 1].number : 0;
      const add = (element) => {
        this.rows = [...this.rows, element].slice(-MOST_ROWS);
        this.planDraw();
      };
      this.leaveRows = api.listen(`continuous/${encodeURIComponent(name)}/events?after=${after}`, {
        row: add, correction: add,
        dropped: () => this.follow(name),
        progress: (state) => {
          this.progress.textContent = state.error ? T.continuous.keptFails(state.error) : T.continuous.live(state.heartbeat ? short(state.heartbeat) : T.missing);
          this.poll.wake();
        },
        removed: () => this.close(),
        lost: () => { this.progress.textContent = T.continuous.lost; },
      });
    });
    return this.following;
  }

  /** Many rows of a commit are drawn together. */
  planDraw() {
    this.planned ??= requestAnimationFrame(() => {
      this.planned = null;
      this.drawRows();
    });
  }

  drawRows() {
    if (!this.rows.length) {
      this.body.replaceChildren(h("p", { class: "quiet" }, T.continuous.noRows));
      return;
    }
    const heads = this.columns.map(({ name, unit, kind }) => [unit ? `${name} [${unitText(unit)}]` : name, kind === "number" || kind === "integer" ? "number" : ""]);
    const rows = [...this.rows].reverse().map(({ tau, sign, row, corrects }) => [
      tau ? short(tau).replace(" UTC", "") : T.continuous.fromStart,
      h("span", { class: corrects ? "cql-correction" : "" }, sign > 0 ? T.continuous.enters : T.continuous.leaves, corrects ? ` · ${T.continuous.correction}` : ""),
      ...row.map((value, at) => shown(value, this.columns[at].kind)),
    ]);
    this.body.replaceChildren(table(T.continuous.rowsCaption, [T.continuous.at, T.continuous.sign, ...heads.map(([name, kind]) => (kind ? [name, kind] : name))], rows));
  }

  close() {
    this.leaveRows?.();
    this.leaveRows = null;
    if (this.poll.isOn) {
      this.followed = null;
      this.rowsPart.hidden = true;
    }
  }
}
