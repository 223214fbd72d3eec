// Standing: open alerts, where and when they are; queries that are kept up to date, and making them.

import * as api from "./api.js";
import { Alerts, titleOf } from "./alerts.js";
import { asContinuous } from "./cql_forms.js";
import { askToRemove } from "./dialog.js";
import { button, duration, empty, h, instant, number, redraw, table } from "./dom.js";
import { Poll } from "./follow.js";
import { StandingForm } from "./standing_form.js";
import { T } from "./text.js";
import { longName } from "./variables.js";

const AGAIN_MS = 2000;
const MUTE = "1h";
const MOST_READ = 1000;

export function open(root, frame) {
  return new Standing(root, frame);
}

class Standing {
  constructor(root, frame) {
    this.frame = frame;
    this.newest = null;
    this.poll = new Poll(() => this.look(), AGAIN_MS);
    this.summary = h("p", { id: "standing-summary", role: "status" });
    this.add = button(T.standing.add, () => this.openForm(null), { id: "new-standing", class: "primary", hidden: !frame.may("write") });
    this.list = h("div", { id: "standing-list" });
    this.fresh = h("div", { id: "freshness" });
    this.form = new StandingForm(frame, { saved: () => this.lookAgain(), closed: () => this.closeForm() });
    this.formPart = h("section", { id: "standing-form-part", "aria-labelledby": "create-title", hidden: true }, this.form.element);
    this.alerts = new Alerts(frame, () => this.lookAgain());
    root.append(h("div", { class: "standing-head" }, this.summary, this.add), this.formPart, this.alerts.element,
      h("section", { "aria-labelledby": "standing-title" }, h("h2", { id: "standing-title" }, T.standing.title), this.list),
      h("details", { class: "as-table" }, h("summary", {}, T.standing.freshness), this.fresh));
  }

  async show(params) {
    if (params.has("q") && params.get("q") !== this.taken) {
      this.taken = params.get("q");
      this.openForm(null);
      this.form.take(JSON.parse(this.taken));
    }
    this.frame.note("standing", params);
    await this.poll.start();
  }

  hide() {
    this.poll.stop();
  }

  openForm(entry, { focus = true } = {}) {
    this.formPart.hidden = false;
    this.add.hidden = true;
    this.form.edit(entry, focus);
  }

  closeForm() {
    this.formPart.hidden = true;
    this.add.hidden = !this.frame.may("write");
    this.add.focus();
  }

  /** Look once more after something was changed, whatever an earlier look is about to say. */
  async lookAgain() {
    await this.poll.looking?.catch(() => {});
    this.listed = null;
    await this.poll.now();
  }

  async look() {
    let entries;
    try {
      entries = await api.look("standing");
    } catch (problem) {
      if (problem.status !== 404) throw problem;
      this.poll.stop();
      this.list.replaceChildren(empty(T.standing.off, T.standing.offAdvice));
      this.add.hidden = true;
      return;
    }
    // At first the newest; afterwards those that have come since.
    const which = this.newest === null ? `newest=true&limit=${MOST_READ}` : `after=${this.newest}&limit=${MOST_READ}`;
    const [alerts, statistics, { newest }] = await Promise.all([api.look(`standing/alerts?${which}`), api.look("standing/statistics"), api.lookForNews()]);
    this.newest = alerts.length ? alerts[alerts.length - 1].number : (this.newest ?? 0);
    const open = entries.reduce((sum, entry) => sum + entry.standing.filter((episode) => !episode.acknowledged).length, 0);
    this.summary.textContent = T.standing.summary(number(entries.length), number(open), number(statistics.queue), duration(statistics.oldest_s), statistics.trouble);
    this.drawList(entries, statistics);
    this.drawFreshness(statistics);
    await this.alerts.update(entries, alerts, newest);
    // Who has none yet, and may make one, is shown how.
    if (!entries.length && !this.begun && this.frame.may("write") && this.formPart.hidden) this.openForm(null, { focus: false });
    this.begun = true;
  }

  drawList(entries, statistics) {
    const text = JSON.stringify([entries, statistics.failing]);
    if (text === this.listed) return;
    this.listed = text;
    if (!entries.length) {
      this.list.replaceChildren(empty(T.standing.none, T.standing.noneAdvice));
      return;
    }
    const rows = entries.map((entry) => {
      const act = (name, on) => button(T.standing.acts[name], () => this.act(on), { class: "small", "aria-label": T.standing.actOn(T.standing.acts[name], entry.name), data: { act: `${name}-${entry.name}` } });
      const change = (...what) => api.changeStanding(entry.name, ...what);
      const writes = this.frame.may("write");
      return [h("div", {}, h("strong", {}, titleOf(entry)), entry.title ? h("div", { class: "quiet" }, entry.name) : null), T.standing.classes[entry.class], number(entry.weight), entry.query.continuous ? T.standing.ofContinuous : longName(this.frame.known.variables, entry.query.variable), this.stateOf(entry, statistics),
        h("div", { class: "buttons small" },
          ...(writes ? [
            entry.paused ? act("resume", () => change("resume")) : act("pause", () => change("pause")),
            entry.muted_until ? act("unmute", () => change("mute", { until: null })) : act("mute", () => change("mute", { for: MUTE })),
            act("test", () => change("test")), ...(entry.query.continuous ? [] : [act("edit", () => this.openForm(entry))])] : []),
          ...(entry.query.continuous ? [act("open", () => this.frame.go("continuous"))] : [act("open", () => this.frame.go("explore", { q: JSON.stringify(entry.query) }))]),
          ...(this.frame.may("query") && !entry.query.continuous ? [act("continuous", () => this.frame.go("continuous", { text: asContinuous(entry.query, entry.condition, this.unitOf(entry)) }))] : []),
          writes ? act("remove", () => this.remove(entry.name)) : null)];
    });
    redraw(this.list, () => [table(T.standing.caption, [T.standing.name, T.standing.class, [T.standing.weight, "number"], T.standing.variable, T.standing.state, T.standing.does], rows)]);
  }

  unitOf(entry) {
    return this.frame.known.variables.find((variable) => variable.name === entry.query.variable)?.unit ?? "";
  }

  stateOf(entry, { failing }) {
    if (entry.paused) return T.standing.paused;
    if (failing.includes(entry.name)) return T.standing.failing;
    if (entry.muted_until) return T.standing.mutedUntil(instant(entry.muted_until.slice(0, 19)));
    return entry.standing.length ? T.standing.raised(number(entry.standing.length)) : T.standing.quiet;
  }

  async act(on) {
    await this.frame.attempt(async () => {
      await on();
      // The form of an edit keeps the focus that it has taken.
      await this.lookAgain();
    });
  }

  async remove(name) {
    if (await askToRemove(T.standing.sure(name))) await api.removeStanding(name);
  }

  drawFreshness({ freshness }) {
    const rows = Object.entries(freshness).map(([kind, one]) => [T.standing.classes[kind] ?? kind, number(one.evaluations), duration(one.median_s), duration(one.p99_s), duration(one.longest_s), number(one.expired)]);
    const text = JSON.stringify(rows);
    if (text === this.freshDrawn) return;
    this.freshDrawn = text;
    this.fresh.replaceChildren(rows.length ? table(T.standing.freshCaption, T.standing.freshColumns.map((name, place) => (place ? [name, "number"] : name)), rows) : h("p", { class: "quiet" }, T.standing.notYet));
  }

  async redraw() {
    await Promise.all([this.alerts.redraw(), this.form.redraw()]);
  }
}
