// The variogram of a question's stations: points with their pairs, the model fitted to them, and the one that it names.

import * as api from "./api.js";
import { choice, field, figure as short, h, number } from "./dom.js";
import { Figure, stretch } from "./figures.js";
import { MODELS } from "./forms.js";
import { lineColours } from "./pictures.js";
import { T } from "./text.js";
import { unitText } from "./units.js";

const DASHES = ["solid", "dashed"];
const SMALLEST = 5;
/** How much larger than the smallest the point with most pairs is [px]. */
const GROWS = 11;
/** Points up to which each is labelled with its pairs; more would run into one another. */
const MOST_LABELLED = 20;

/** How it is fitted: the model, the greatest distance, the number of points. `change` is called with what was chosen. */
export class FitForm {
  constructor(change) {
    this.model = choice("fit-model", ["", ...MODELS].map((name) => [name, name || T.variogram.asNamed]), change, "");
    this.cutoff = h("input", { id: "fit-cutoff", type: "number", min: 1, step: "any", on: { change } });
    this.bins = h("input", { id: "fit-bins", type: "number", min: 2, max: 100, value: "15", on: { change } });
    this.element = h("div", { class: "inline", id: "fit", hidden: true }, field(T.variogram.model, this.model), field(T.variogram.cutoff, this.cutoff, T.variogram.cutoffHint), field(T.variogram.bins, this.bins));
  }

  /** What the address and the API take; what is as by default is left out. */
  state() {
    const given = { model: this.model.value, cutoff_m: this.cutoff.value, bins: this.bins.value === "15" ? "" : this.bins.value };
    return Object.fromEntries(Object.entries(given).filter(([, value]) => value));
  }

  restore(params) {
    this.model.value = MODELS.includes(params.get("model")) ? params.get("model") : "";
    this.cutoff.value = params.get("cutoff_m") ?? "";
    this.bins.value = params.get("bins") ?? "15";
  }
}

/** What a pane shows of it, or why there is none, in words. */
export async function variogramContent(question, common, fit) {
  const key = JSON.stringify(fit);
  question.variograms ??= new Map();
  if (!question.variograms.has(key)) {
    try {
      question.variograms.set(key, await api.variogram(question.document, fit));
    } catch (problem) {
      if (problem.status !== 422) throw problem;
      return T.variogram.none(problem.message);
    }
  }
  const told = question.variograms.get(key);
  const units = `(${told.unit})²`;
  const { fitted, given, bins } = told;
  const pairs = bins.pairs.reduce((sum, count) => sum + count, 0);
  const words = [T.variogram.words(common.quantity, units, number(bins.pairs.length), number(pairs), number(told.cutoff_m, 0)), T.variogram.fitted(parameters(fitted, units), number(100 * Math.max(fitted.explained, 0), 0)),
    given && T.variogram.given(parameters(given, units)), ...fitted.reasons.map((reason) => T.variogram.doubt(reason))];
  const title = T.variogram.title(common.quantity);
  return { ...common, title, heading: title, units, scale: "sequential", variogram: told, words: words.filter(Boolean).join(" ") };
}

/** A model with its parameters and their units. */
function parameters(model, unit) {
  const units = unitText(unit);
  const range = model.effective_range_m === null ? T.variogram.noRange : T.variogram.range(number(model.effective_range_m, 0));
  return T.variogram.parameters(model.model, `${short(model.nugget)} ${units}`, model.sill === null ? T.variogram.noSill : T.variogram.sill(`${short(model.sill)} ${units}`), range);
}

/** The models as lines with names, for a legend: the fitted one first. */
export const models = ({ fitted, given }) => [{ name: T.variogram.fittedLine(fitted.model) }, ...(given ? [{ name: T.variogram.givenLine(given.model) }] : [])];

export async function drawVariogram(place, { bins, line_m, fitted, given }, { units, title }) {
  const figure = await Figure.open(place, "variogram", { title, variable: T.variogram.axis, units });
  const lines = [fitted, given].filter(Boolean);
  figure.find("models").data = { times: lines.map(() => line_m), values: lines.map((model) => model.at_line), colour: lineColours().slice(0, lines.length), dash: lines.map((_, at) => DASHES[at]) };
  const most = Math.max(...bins.pairs);
  const labelled = bins.pairs.length <= MOST_LABELLED;
  const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
  figure.find("bins").data = {
    x: bins.distance_m, y: bins.semivariance, pairs: bins.pairs,
    size: bins.pairs.map((count) => SMALLEST + GROWS * Math.sqrt(count / most)),
    label: bins.pairs.map((count) => (labelled ? compact.format(count) : "")),
  };
  stretch(figure.find("across"), 0, line_m[line_m.length - 1]);
  stretch(figure.find("upwards"), 0, 1.12 * Math.max(...bins.semivariance, ...lines.flatMap((model) => model.at_line)));
  return figure;
}

/** Points and models as columns and rows. */
export function variogramRows({ bins, fitted, given }, units) {
  const columns = [T.variogram.distance, `${T.variogram.axis} [${units}]`, T.variogram.pairs, `${T.variogram.fittedLine(fitted.model)} [${units}]`, ...(given ? [`${T.variogram.givenLine(given.model)} [${units}]`] : [])];
  return [columns, bins.distance_m.map((distance, at) => [distance, bins.semivariance[at], bins.pairs[at], fitted.at_bins[at], ...(given ? [given.at_bins[at]] : [])])];
}
