// When a standing query raises an alert: the fields of its condition, and a number that is proposed.

import { choice, field, h } from "./dom.js";
import { loose } from "./forms.js";
import { T } from "./text.js";

/** Ways of saying when: the condition's kind, and the fields that it needs. */
const WAYS = {
  above: ["threshold", ["level", "clear"]],
  below: ["threshold", ["level", "clear"]],
  rise: ["rate", ["level", "per", "clear"]],
  fall: ["rate", ["level", "per", "clear"]],
  missing: ["missing", ["after"]],
  dead: ["dead", []],
  silent: ["silent", ["after"]],
  none: ["", []],
};
/** Ways that look at what arrives: they compute no surface, so that their queries have no steps. */
const LISTENING = ["dead", "silent"];
const [PER, AFTER] = ["1h", "1h"];

/** What goes down as far as something goes up: the number, or its text, with the other sign. */
const turned = (value) => (typeof value === "number" ? -value : value.startsWith("-") ? value.slice(1) : `-${value}`);

/** A number near `value` with few digits, for values that spread over `span`. */
function rounded(value, span) {
  const unit = 10 ** Math.floor(Math.log10(span > 0 ? span / 4 : Math.abs(value) || 1));
  return Number((Math.round(value / unit) * unit).toPrecision(6));
}

/** A rate's number is a change, whose unit has no time. */
const unitOf = (unit) => unit.split(" per ")[0];

export class ConditionFields {
  /** `on` is called when another way was chosen. */
  constructor(on) {
    this.choice = choice("condition", Object.keys(WAYS).map((way) => [way, T.standing.conditions[way]]), () => {
      this.isTyped = false;
      this.fill();
      on();
    }, "above");
    this.fields = h("div", { id: "condition-fields", class: "inline" });
    this.listening = h("p", { id: "listening", class: "quiet hint", role: "status", hidden: true });
    /** Over which time a rate's change is taken; it stands with the details of the form. */
    this.over = h("input", { id: "condition-over", type: "text", autocomplete: "off" });
    this.element = h("div", {}, h("div", { class: "inline when" }, field(T.standing.condition, this.choice), this.fields), this.listening);
    this.element.addEventListener("input", ({ target }) => {
      if (target.id === "condition-level") this.isTyped = true;
    });
    this.fill();
  }

  get way() {
    return this.choice.value;
  }

  /** Choose a way, with empty fields. */
  choose(way) {
    this.choice.value = way;
    this.fill();
  }

  /** Whether what arrives is looked at. */
  get isListening() {
    return LISTENING.includes(this.way);
  }

  fill() {
    const hints = { clear: T.standing.clearHint, per: T.standing.perHint, after: T.standing.afterHint };
    const first = { per: PER, after: AFTER };
    this.fields.replaceChildren(...WAYS[this.way][1].map((name) => field(name === "level" ? T.standing.level : T.standing[name],
      h("input", { type: "text", id: `condition-${name}`, value: first[name] ?? "", autocomplete: "off", inputmode: name === "level" || name === "clear" ? "decimal" : false }), hints[name] ?? "")));
    this.listening.hidden = !this.isListening;
    this.listening.textContent = this.way === "dead" ? `${T.standing.learned} ${T.standing.listening}` : T.standing.listening;
  }

  input(name) {
    return this.fields.querySelector(`#condition-${name}`);
  }

  value(name) {
    return this.input(name)?.value.trim() ?? "";
  }

  /** Begin anew, as nothing was typed yet. */
  clear() {
    this.isTyped = false;
    this.over.value = "";
    this.choose("above");
  }

  /** The number belongs to a variable that is no longer chosen. */
  forgetLevel() {
    this.isTyped = false;
    if (this.value("level")) this.input("level").value = "";
  }

  /** Show a condition as it stands. */
  write(condition) {
    this.isTyped = true;
    const falls = condition.below !== undefined;
    this.choose({ threshold: falls ? "below" : "above", rate: falls ? "fall" : "rise" }[condition.kind] ?? (condition.kind || "none"));
    const set = (name, value) => {
      if (value !== undefined && this.input(name)) this.input(name).value = String(value);
    };
    // A fall is told as how far values go down.
    const asTold = (value) => (this.way === "fall" && value !== undefined ? turned(value) : value);
    set("level", asTold(falls ? condition.below : condition.above));
    set("clear", asTold(condition.clear));
    for (const name of ["per", "after"]) set(name, condition[name]);
    this.over.value = condition.kind === "rate" ? (condition.over ?? "step") : "";
  }

  /** The condition as it stands; undefined where there is none, or no number yet. */
  read() {
    const { way } = this;
    const [kind, names] = WAYS[way];
    if (!kind || (names.includes("level") && this.value("level") === "")) return undefined;
    const made = { kind };
    const number = (name) => {
      const given = loose(this.value(name));
      return way === "fall" ? turned(given) : given;
    };
    if (names.includes("level")) made[["above", "rise"].includes(way) ? "above" : "below"] = number("level");
    if (this.value("clear")) made.clear = number("clear");
    for (const name of ["per", "after"]) if (this.value(name)) made[name] = this.value(name);
    if (kind === "rate") {
      const over = this.over.value.trim() || made.per;
      if (over && over !== "step") made.over = over;
    }
    return made;
  }

  /** Write the unit beside the number, and a number of the recent values where none was typed; return whether it did. */
  propose({ unit, recent, series }) {
    const { way } = this;
    const label = this.fields.querySelector("label[for=condition-level]");
    if (label) label.textContent = unit ? T.standing.levelIn(unitOf(unit)) : T.standing.level;
    if (!label || this.isTyped || this.value("level") || !recent || !series) return false;
    const span = recent.high - recent.low;
    const level = { above: recent.high, below: recent.low, rise: recent.rise, fall: recent.fall === null ? null : -recent.fall }[way];
    if (level === null || level === undefined) return false;
    this.input("level").value = String(rounded(level, way === "rise" || way === "fall" ? Math.abs(level) : span));
    return true;
  }
}
