// Feeds of an import as forms: what each column becomes, the zone of the clock, and how the first readings come out.

import { button, choice, duration, field, figure, h, number, visible } from "./dom.js";
import { converted, instantOf, inWords, zoneHere, zones } from "./import_preview.js";
import { T } from "./text.js";
import { unitText } from "./units.js";

const STATISTICS = ["sample", "mean", "total", "max", "min"];
const OTHER = "+";

/** An instant without its zone: as long as that is a question, it is what the clock showed. */
const clocked = (text) => (text ?? T.missing).slice(0, 16).replace("T", " ");

export class FeedForms {
  /** `changed` is called after each change; `reread` with a file, and what was answered of it. */
  constructor(description, proposal, { changed, reread }) {
    this.description = description;
    this.proposal = proposal;
    this.changed = changed;
    this.reread = reread;
    this.element = h("div", {}, ...this.unreadable(), ...description.document.feed.map((_, at) => this.feed(at)));
    this.show();
  }

  /** Draw again what follows from the answers: previews and marks. */
  show() {
    const { description } = this;
    for (const preview of this.element.querySelectorAll("[data-preview]")) preview.replaceChildren(...this.preview(Number(preview.dataset.preview)));
    for (const mark of this.element.querySelectorAll("[data-open-zone]")) mark.hidden = !description.isZoneOpen(Number(mark.dataset.openZone));
    description.feeds.forEach((feed, at) => {
      const assumed = feed.columns.filter((column) => description.isUnitOpen(at, column) && !column.candidates.length);
      const box = this.element.querySelector(`[data-open-units="${at}"]`);
      if (!box) return;
      box.hidden = !assumed.length;
      box.querySelector("p").textContent = visible(T.importing.unitsOpen(assumed.map((column) => column.name)));
      box.querySelector("button").textContent = T.importing.unitsRight(assumed.length);
      for (const column of feed.columns) {
        this.element.querySelector(`[data-unit="${at}:${CSS.escape(column.name)}"]`)?.classList.toggle("open", description.isUnitOpen(at, column));
      }
    });
  }

  edit(change) {
    change();
    this.show();
    this.changed();
  }

  feed(at) {
    const { description } = this;
    const feed = description.feeds[at];
    const entry = description.document.feed[at];
    const title = visible(T.importing.feed(feed.files.length ? feed.files : [entry.files ?? entry.name]));
    const about = feed.rows ? h("p", {}, T.importing.extent(number(feed.rows), number(feed.stations.length), clocked(feed.first), clocked(feed.last), feed.interval_s ? duration(feed.interval_s) : "")) : null;
    return h("section", { class: "feed", "aria-labelledby": `feed-${at}` },
      h("h3", { id: `feed-${at}` }, title),
      about,
      feed.why ? h("p", { class: "quiet" }, T.importing.feedWords(feed.format, feed.why), ...feed.notes.map((note) => ` ${note}.`)) : null,
      feed.first_rows.length ? h("div", { class: "preview", role: "group", "aria-label": T.importing.preview }, h("h4", {}, T.importing.preview), h("div", { data: { preview: at }, "aria-live": "polite" })) : null,
      feed.zone ? h("div", { class: "inline" }, this.zone(at, feed, entry), this.missing(at, feed, entry)) : null,
      this.units(at),
      feed.columns.length ? this.columns(at, feed, title) : null,
      feed.ignored?.length ? h("p", { class: "quiet" }, T.importing.left(feed.ignored.join(", "))) : null,
      this.problems(feed));
  }

  zone(at, feed, entry) {
    const key = `zone:${at}`;
    const listed = zones(entry.timezone, zoneHere());
    const select = choice(`zone-${at}`, listed.map((zone) => [zone, zone === zoneHere() && zone !== "UTC" ? T.importing.here(zone) : zone]), (zone) => this.edit(() => {
      entry.timezone = zone;
      this.description.answer(key);
    }), entry.timezone ?? "UTC");
    select.dataset.key = `feed[${at}].timezone`;
    select.disabled = feed.zone.is_fixed;
    const accept = button(T.importing.zoneRight(entry.timezone ?? "UTC"), () => {
      this.edit(() => this.description.answer(key));
      select.focus();
    }, { class: "small", id: `zone-right-${at}` });
    const open = h("div", { class: "question", data: { openZone: at }, hidden: true }, h("p", {}, T.importing.zoneOpen), accept);
    const why = feed.zone.is_fixed ? T.importing.zoneFixed : feed.zone.is_open ? "" : T.importing.zoneWhy(feed.zone.why);
    return h("div", { class: "zone" }, field(T.importing.zone, select, why), open);
  }

  missing(at, feed, entry) {
    const input = h("input", { type: "text", autocomplete: "off", value: (entry.nodata ?? []).join(", "), data: { key: `feed[${at}].nodata` }, on: { change: () => this.edit(() => {
      entry.nodata = input.value.split(",").map((one) => one.trim()).filter(Boolean);
    }) } });
    const why = Object.entries(feed.missing).map(([code, reason]) => T.importing.code(code, reason));
    return field(T.importing.missing, input, [T.importing.missingHint, ...why].join(" "));
  }

  units(at) {
    return h("div", { class: "question", data: { openUnits: at }, hidden: true }, h("p"),
      button("", () => this.edit(() => {
        const { description } = this;
        for (const column of description.feeds[at].columns) if (!column.candidates.length && description.isUnitOpen(at, column)) description.answer(`unit:${at}:${column.name}`);
        this.element.querySelector(`#variable-${at}-0`)?.focus();
      }), { class: "small", id: `units-right-${at}` }));
  }

  columns(at, feed, title) {
    const heads = T.importing.columns;
    const rows = feed.columns.map((column, place) => this.column(at, column, place));
    return h("div", { class: "scrolled", tabindex: 0, role: "region", "aria-label": T.importing.columnsCaption(title) },
      h("table", { class: "columns" }, h("caption", {}, T.importing.columnsCaption(title)),
        h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))), h("tbody", {}, rows)));
  }

  column(at, column, place) {
    const row = h("tr");
    const draw = () => row.replaceChildren(
      h("th", { scope: "row" }, column.name),
      h("td", { class: "values" }, column.values.map(figure).join(", ") || T.missing, h("br"), column.low === null ? "" : h("span", { class: "quiet" }, `${figure(column.low)} … ${figure(column.high)}`)),
      h("td", {}, this.variable(at, column, place, draw)),
      h("td", { data: { unit: `${at}:${column.name}` } }, this.unit(at, column, draw)),
      h("td", {}, this.statistic(at, column)),
      h("td", { class: "why" }, column.why));
    draw();
    return row;
  }

  variable(at, column, place, draw) {
    const { description } = this;
    const label = T.importing.of(T.importing.variable, column.name);
    const named = [...description.variables.values()].map((one) => [one.name, `${one.long_name} [${T.importing.unitText(one.unit)}]`]);
    const select = choice(`variable-${at}-${place}`, [["", T.importing.leaveOut], [OTHER, T.importing.other], ...named], (name) => {
      if (name === OTHER) {
        cell.append(this.own(at, column, draw));
        cell.querySelector("input").focus();
        return;
      }
      this.edit(() => {
        description.setVariable(at, column.name, name);
        draw();
      });
      this.element.querySelector(`#variable-${at}-${place}`).focus();
    }, description.entry(at, column.name)?.variable ?? "");
    select.setAttribute("aria-label", label);
    select.dataset.key = `feed[${at}].columns.${column.name}.variable`;
    const cell = h("div", {}, select);
    return cell;
  }

  /** A variable that is not in the list: its name and its unit. */
  own(at, column, draw) {
    const name = h("input", { type: "text", autocomplete: "off", placeholder: T.importing.otherName, "aria-label": T.importing.of(T.importing.otherName, column.name) });
    const unit = h("input", { type: "text", autocomplete: "off", placeholder: T.importing.otherUnit, "aria-label": T.importing.of(T.importing.otherUnit, column.name) });
    const take = button(T.yes, () => name.value.trim() && this.edit(() => {
      this.description.setVariable(at, column.name, this.description.addVariable(name.value, unit.value).name);
      draw();
    }), { class: "small" });
    return h("div", { class: "own" }, name, unit, take);
  }

  unit(at, column, draw) {
    const { description } = this;
    const entry = description.entry(at, column.name);
    if (!entry) return "";
    const isQuestion = column.candidates.length > 0 && !entry.unit && !description.answered.has(`unit:${at}:${column.name}`);
    const listed = isQuestion ? column.candidates : Object.keys(description.conversionsOf(at, column.name));
    const shown = description.unitOf(at, column.name);
    if (!isQuestion && !listed.includes(shown)) listed.unshift(shown);
    const select = choice("", [...(isQuestion ? [["", T.importing.chooseUnit]] : []), ...listed.map((unit) => [unit, T.importing.unitText(unit)])], (unit) => unit && this.edit(() => {
      description.setUnit(at, column.name, unit);
      if (isQuestion) draw();
    }), isQuestion ? "" : shown);
    select.removeAttribute("id");
    select.setAttribute("aria-label", T.importing.of(T.importing.unit, column.name));
    select.dataset.key = `feed[${at}].columns.${column.name}.unit`;
    select.disabled = listed.length < 2;
    return [select, h("span", { class: "mark" }, T.importing.notStated)];
  }

  statistic(at, column) {
    const entry = this.description.entry(at, column.name);
    if (!entry) return "";
    const select = choice("", STATISTICS.map((one) => [one, T.importing.statistics[one]]), (statistic) => this.edit(() => (entry.statistic = statistic)), entry.statistic ?? this.description.document.feed[at].statistic ?? "sample");
    select.removeAttribute("id");
    select.setAttribute("aria-label", T.importing.of(T.importing.statistic, column.name));
    select.dataset.key = `feed[${at}].columns.${column.name}.statistic`;
    return select;
  }

  /** The first rows: clock, instant, and values in the units of their variables. */
  preview(at) {
    const { description } = this;
    const feed = description.feeds[at];
    const zone = feed.zone.is_fixed ? "UTC" : description.document.feed[at].timezone ?? "UTC";
    const missing = description.document.feed[at].nodata ?? [];
    return feed.first_rows.slice(0, 2).map(({ station, clock, values }) => {
      const parts = Object.entries(values).flatMap(([column, value]) => {
        const variable = description.variableOf(at, column);
        if (!variable) return [];
        const isMissing = value === null || missing.includes(String(value));
        const stored = isMissing ? null : converted(value, description.unitOf(at, column), description.conversionsOf(at, column));
        return [h("span", { class: "reading" }, `${variable.long_name} `, h("strong", {}, stored === null ? T.missing : `${figure(stored)} ${variable.unit === "unknown" ? "" : unitText(variable.unit)}`.trim()))];
      });
      const at_ms = instantOf(clock, zone);
      const time = feed.zone.is_fixed ? [h("strong", {}, T.importing.utc(inWords(at_ms)))] : [T.importing.clock(inWords(clock)), " = ", h("strong", {}, T.importing.utc(inWords(at_ms)))];
      return h("p", {}, h("span", { class: "when" }, ...time, `, ${T.importing.reads(station)}`), ...parts);
    });
  }

  problems(feed) {
    if (!feed.problems.length) return null;
    return h("div", { class: "rows-bad" }, h("h4", {}, T.importing.problems), h("ul", {}, feed.problems.map(({ kind, count, first }) => h("li", {}, T.importing.problem(number(count), kind, first)))), h("p", { class: "quiet" }, T.importing.kept));
  }

  // Files that cannot be read before something is answered

  unreadable() {
    const { unreadable, questions, ignored } = this.proposal;
    const files = [...new Set([...Object.keys(questions), ...Object.keys(unreadable)])];
    if (!files.length && !ignored.length) return [];
    return [h("section", { "aria-labelledby": "unreadable-title" }, h("h3", { id: "unreadable-title" }, T.importing.unreadable),
      ...files.map((file) => this.question(file, questions[file] ?? unreadable[file])),
      ignored.length ? h("p", { class: "quiet" }, T.importing.ignored(ignored.join(", "))) : null)];
  }

  question(file, words) {
    const forms = this.answers(words);
    return h("div", { class: "question" }, h("p", {}, h("strong", {}, file), `: ${forms?.words ?? words}`),
      forms && h("div", { class: "inline looks" }, forms.control, button(T.importing.readSo, () => {
        const answers = forms.read();
        if (answers) this.reread(file, answers);
      })));
  }

  /** What answers a question of a file, as keys of its feed; null where it has to be exported or repaired. */
  answers(words) {
    const quoted = (text) => [...text.matchAll(/'([^']*)'/g)].map((match) => match[1]);
    if (words.startsWith("ambiguous dates")) {
      const [example, ...patterns] = quoted(words);
      const select = choice("", patterns.map((pattern) => [pattern, `${pattern.replaceAll("%", "").replaceAll(/[dmyYHMSI]/g, (letter) => ({ d: "day", m: "month", y: "year", Y: "year", H: "hour", I: "hour", M: "min", S: "s" })[letter])}`]), () => {}, patterns[0]);
      select.removeAttribute("id");
      return { words: T.importing.ambiguous(example), control: field(T.importing.dates, select), read: () => ({ time_format: select.value }) };
    }
    if (words.startsWith("WHICH COLUMN")) {
      const columns = quoted(words.slice(0, words.indexOf("?")));
      const select = choice("", columns.map((name) => [name, name]), () => {}, columns[0]);
      select.removeAttribute("id");
      return { control: field(T.importing.timeColumn, select), read: () => ({ time_column: select.value }) };
    }
    if (words.startsWith("WHAT ARE")) {
      const input = h("input", { type: "text", autocomplete: "off" });
      const read = () => {
        const names = input.value.split(",").map((one) => one.trim()).filter(Boolean);
        return names.length > 1 && { header_lines: 0, names, time_column: names.find((name) => name.toLowerCase() === "time") ?? names[0] };
      };
      return { control: field(T.importing.names, input, T.importing.namesHint), read };
    }
    return null;
  }
}
