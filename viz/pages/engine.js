// Engine: how it is in sentences, and below for developers: plans as graphs, what moves, caches, choices, snapshots.

import * as api from "./api.js";
import { bytes, choice, duration, empty, field, h, instant, number, table } from "./dom.js";
import { spread, stretch } from "./figures.js";
import { Poll } from "./follow.js";
import { drawGraph, drawTimeline } from "./graph.js";
import { drawLines, legend } from "./pictures.js";
import { Streams } from "./streams.js";
import { summarise } from "./summary.js";
import { T } from "./text.js";
import { longName } from "./variables.js";

const AGAIN_MS = 2000;
/** Signs of states, which are told by word and colour as well. */
const MARKS = { good: "✓", attention: "▲", bad: "✕" };
/** What the moving graphs show [s]. */
const SHOWN_S = 600;
/** Queries and snapshots at most, the newest: they are looked at every two seconds. */
const MOST_LISTED = 500;
const LEAST_MS = 60_000;
/** Moving graphs: title, unit, and a line each of what is told. */
const GRAPHS = {
  queue: ["", { waiting: (told) => told.engine.queries.queued, running: (told) => told.engine.queries.running, standing: (told) => told.standing?.queue }],
  rates: ["1/s", { hits: (told, was) => rate(told, was, hits), misses: (told, was) => rate(told, was, misses), evaluations: (told, was) => rate(told, was, (one) => one.standing?.evaluations) }],
  memory: ["MiB", { resident: (told) => told.engine.process.resident_bytes / 2 ** 20, results: (told) => told.engine.queries.result_bytes / 2 ** 20 }],
};

const summed = (told, name) => Object.values(told.engine.caches).reduce((sum, cache) => sum + cache[name], 0);
const hits = (told) => summed(told, "hits");
const misses = (told) => summed(told, "misses");
const rate = (told, was, count) => (was ? (count(told) - count(was)) / ((told.at - was.at) / 1000) : NaN);

export function open(root, frame) {
  return new Engine(root, frame);
}

class Engine {
  constructor(root, frame) {
    this.frame = frame;
    this.history = [];
    this.poll = new Poll(() => this.look(), AGAIN_MS);
    this.tiles = h("dl", { id: "tiles", class: "tiles" });
    this.graphs = Object.fromEntries(Object.keys(GRAPHS).map((name) => [name, h("div", { class: "picture small", role: "img", "aria-labelledby": `moving-${name}` })]));
    this.which = choice("plan-of", [], () => this.choosePlan(), "");
    this.graph = h("div", { id: "plan-graph" });
    this.choices = h("div", { id: "choices" });
    this.caches = h("div", { id: "caches" });
    this.snapshots = h("div", { id: "snapshots" });
    this.movingTable = h("div");
    this.streams = new Streams(move);
    this.summary = h("ul", { id: "engine-summary" });
    // What is folded is drawn when it is opened: it has no width before.
    const block = (id, title, ...inner) => h("details", { class: "block", on: { toggle: ({ target }) => target.open && frame.attempt(() => this.unfold()) } }, h("summary", { id: `${id}-summary` }, h("h3", {}, title)), ...inner);
    this.planPart = block("plan", T.engine.plan, field(T.engine.planOf, this.which), this.graph);
    this.movingPart = block("moving", T.engine.moving, h("div", { class: "three" }, Object.keys(GRAPHS).map((name) => h("figure", { class: "pane" }, this.graphs[name], legend(Object.keys(GRAPHS[name][1]).map((line) => ({ name: T.engine.lines[line] }))), h("figcaption", { id: `moving-${name}` }, T.engine.graphs[name])))),
      h("details", { class: "as-table" }, h("summary", {}, T.pane.table), this.movingTable));
    this.streamPart = block("stream", T.streams.title, this.streams.element);
    root.append(
      h("section", { "aria-labelledby": "summary-title" }, h("h2", { id: "summary-title" }, T.summary.title), this.summary),
      h("section", { class: "developers", "aria-labelledby": "developers-title" }, h("h2", { id: "developers-title" }, T.summary.details),
        block("now", T.engine.now, this.tiles), this.planPart, this.movingPart, this.streamPart,
        block("choices", T.engine.choices, this.choices), block("caches", T.engine.caches, this.caches), block("snapshots", T.engine.snapshots, this.snapshots)));
  }

  async show(params) {
    if (params.get("plan")) {
      this.wanted = params.get("plan");
      this.planPart.open = true;
    }
    await this.poll.start();
  }

  hide() {
    this.poll.stop();
  }

  async look() {
    const optional = (what) => api.look(what).catch((problem) => (problem.status === 404 ? null : Promise.reject(problem)));
    const [engine, jobs, standing, entries, snapshots, server] = await Promise.all([api.look("engine"), this.frame.may("query") ? api.look(`queries?limit=${MOST_LISTED}`) : [], optional("standing/statistics"), optional("standing"), api.look(`snapshots?limit=${MOST_LISTED}`), api.alive(), this.streams.look()]);
    // How stations are is measured by what has come: it changes with the snapshots, and is long where they are many.
    if (!this.health || snapshots[0]?.id !== this.healthOf) [this.health, this.healthOf] = [await api.look("stations/health"), snapshots[0]?.id];
    this.note({ at: Date.now(), engine, standing });
    this.drawSummary({ engine, standing, entries: entries ?? [], snapshots, health: this.health, troubles: server.troubles, stream: this.streams.now, now: Date.now() });
    this.drawTiles(engine, standing);
    this.offerPlans(jobs, entries ?? []);
    this.drawCaches(engine);
    this.drawChoices(standing);
    this.drawSnapshots(snapshots);
    await this.drawMoving();
  }

  /** Draw what was folded until now. */
  async unfold() {
    if (this.planPart.open && this.plans && !this.planned) await this.drawPlan("");
    if (this.history.length) await this.drawMoving();
    await this.streams.redraw();
  }

  drawSummary(told) {
    const sentences = summarise(told);
    const text = JSON.stringify(sentences);
    // What is selected stays selected while nothing changes.
    if (text === this.summed) return;
    this.summed = text;
    this.summary.replaceChildren(...sentences.map(({ topic, state, text: words }) => h("li", { class: state, data: { topic } }, h("span", { class: "mark" }, `${MARKS[state]} ${T.summary.states[state]}`), h("span", {}, words))));
  }

  /** Remember of what was told the numbers that are drawn, for as long as they are. */
  note(told) {
    const values = Object.fromEntries(Object.entries(GRAPHS).map(([name, [, lines]]) => [name, Object.fromEntries(Object.entries(lines).map(([line, pick]) => [line, pick(told, this.last) ?? NaN]))]));
    this.last = told;
    this.history.push({ at: told.at, values });
    this.history.splice(0, Math.max(0, this.history.length - (SHOWN_S * 1000) / AGAIN_MS));
  }

  drawTiles({ queries, process }, standing) {
    const tiles = [
      [T.engine.tiles.running, number(queries.running)], [T.engine.tiles.queue, `${number(queries.queued)} / ${number(queries.capacity)}`],
      [T.engine.tiles.done, number(queries.done)], [T.engine.tiles.failed, number(queries.failed)], [T.engine.tiles.cancelled, number(queries.cancelled)], [T.engine.tiles.shared, number(queries.shared)],
      [T.engine.tiles.memory, bytes(process.resident_bytes)], [T.engine.tiles.cpu, duration(process.cpu_s)], [T.engine.tiles.up, duration(process.up_s)],
      ...(standing ? [[T.engine.tiles.standing, number(standing.queries)], [T.engine.tiles.oldest, duration(standing.oldest_s)]] : []),
    ];
    this.tiles.replaceChildren(...tiles.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
  }

  // Plans

  offerPlans(jobs, entries) {
    const words = (document) => `${longName(this.frame.known.variables, document.variable)}${(document.steps ?? []).map((step) => ` › ${step.function ?? step.method}`).join("")}`;
    const seen = new Set();
    const asked = jobs.filter((job) => job.state === "running" || !(seen.has(job.token) || !seen.add(job.token))).slice(0, 20);
    const plans = [
      ...asked.map((job) => [`job:${job.id}`, T.engine.job(T.engine.states[job.state], words(job.query)), job.query, job]),
      ...entries.map((one) => [`standing:${one.name}`, T.engine.standing(one.name, words(one.query)), one.query, null]),
      ...Object.entries(this.frame.known.saved).map(([name, query]) => [`saved:${name}`, T.engine.saved(name), query, null]),
    ];
    const text = JSON.stringify(plans.map(([key, name]) => [key, name]));
    this.plans = new Map(plans.map(([key, , query, job]) => [key, { query, job }]));
    if (text !== this.offered) {
      this.offered = text;
      const chosen = this.wanted ?? this.which.value;
      this.which.replaceChildren(...plans.map(([key, name]) => new Option(name, key)));
      this.which.value = this.plans.has(chosen) ? chosen : (plans[0]?.[0] ?? "");
    }
    const running = this.plans.get(this.which.value)?.job;
    const progress = running ? `${running.state}${running.fraction}` : "";
    if (this.planPart.open && this.planned !== this.which.value + progress) this.frame.attempt(() => this.drawPlan(progress));
  }

  choosePlan() {
    this.wanted = this.which.value;
    this.frame.note("engine", new URLSearchParams({ plan: this.wanted }));
    this.frame.attempt(() => this.drawPlan(""));
  }

  async drawPlan(progress) {
    const key = this.which.value;
    this.planned = key + progress;
    const chosen = this.plans.get(key);
    if (!chosen) {
      this.graph.replaceChildren(empty(T.engine.noPlans, T.engine.noPlansAdvice));
      return;
    }
    if (!this.frame.may("query")) {
      this.graph.replaceChildren(empty(T.engine.noPlanHere, T.engine.noPlanHereAdvice));
      return;
    }
    const plan = await api.plan({ ...chosen.query, snapshot: chosen.query.snapshot ?? null });
    if (key !== this.which.value) return;
    this.graph.replaceChildren(...drawGraph(plan, chosen.job));
  }

  // Movement

  async drawMoving() {
    const { history } = this;
    const times = history.map((one) => one.at);
    for (const [name, [unit, lines]] of Object.entries(GRAPHS)) {
      const drawn = Object.keys(lines).map((line) => ({ name: T.engine.lines[line], times, values: history.map((one) => one.values[name][line]) }));
      const place = this.graphs[name];
      if (place.clientWidth && (!place.figure || place.clientWidth !== place.widthDrawn)) {
        place.widthDrawn = place.clientWidth;
        move(await drawLines(place, drawn, { variable: T.engine.titles[name], units: unit || T.engine.number, title: T.engine.titles[name] }), drawn);
      } else if (place.figure) move(place.figure, drawn);
    }
    const { values } = history[history.length - 1];
    const rows = Object.entries(GRAPHS).flatMap(([name, [unit, lines]]) => Object.keys(lines).map((line) => [T.engine.titles[name], T.engine.lines[line], number(values[name][line]), unit]));
    this.movingTable.replaceChildren(table(T.engine.nowCaption, T.engine.nowColumns, rows));
  }

  drawCaches({ caches, queries }) {
    const rows = Object.entries(caches).map(([name, one]) => [T.engine.cacheNames[name] ?? name, number(one.hits), number(one.misses), one.hits + one.misses ? `${number((100 * one.hits) / (one.hits + one.misses), 0)} %` : T.missing, number(one.entries), bytes(one.held_bytes), bytes(one.allowed_bytes)]);
    rows.push([T.engine.cacheNames.answers, number(queries.shared), "", "", number(queries.results), bytes(queries.result_bytes), bytes(queries.result_bytes_limit)]);
    this.caches.replaceChildren(table(T.engine.cachesCaption, T.engine.cacheColumns.map((name, place) => (place ? [name, "number"] : name)), rows));
  }

  drawChoices(standing) {
    if (!standing) {
      this.choices.replaceChildren(empty(T.standing.off, T.standing.offAdvice));
      return;
    }
    const { strategy, sharing } = standing;
    const rows = [
      [T.engine.choice.strategy, strategy.name], [T.engine.choice.waiting, number(strategy.waiting)], [T.engine.choice.chosen, number(strategy.chosen)], [T.engine.choice.preempted, number(strategy.preempted)],
      [T.engine.choice.postponed, number(standing.postponed)], [T.engine.choice.rescued, number(strategy.rescued)], [T.engine.choice.late, number(strategy.late)], [T.engine.choice.turns, number(standing.fair_turns)],
      [T.engine.choice.steps, T.engine.of(number(sharing.steps), number(sharing.steps_apart))], [T.engine.choice.ran, T.engine.of(number(standing.steps_run), number(standing.steps_asked))], [T.engine.choice.saved, duration(standing.saved_s)],
      [T.engine.choice.share, `${number(100 * standing.scheduling_share, 1)} %`], [T.engine.choice.overloaded, standing.overloaded ? T.yes : T.no],
    ];
    this.choices.replaceChildren(table(T.engine.choicesCaption, [T.engine.what, [T.engine.value, "number"]], rows));
  }

  drawSnapshots(snapshots) {
    const text = snapshots.map((one) => one.id).join();
    if (text === this.snapshotsDrawn) return;
    this.snapshotsDrawn = text;
    const rows = snapshots.slice(0, 50).map((one) => [instant(one.time.slice(0, 19)), one.message, h("code", {}, one.id)]);
    this.snapshots.replaceChildren(drawTimeline(snapshots), table(T.engine.snapshotsCaption(number(snapshots.length), snapshots.length === MOST_LISTED), T.engine.snapshotColumns, rows));
  }

  async redraw() {
    for (const place of Object.values(this.graphs)) place.widthDrawn = 0;
    if (this.history.length) await this.drawMoving();
    await this.streams.redraw();
  }
}

/** New values for lines that are drawn already: nothing flickers. */
function move(figure, lines) {
  const source = figure.find("lines");
  source.data = { ...source.data, times: lines.map((line) => line.times), values: lines.map((line) => line.values) };
  const across = spread(lines[0].times);
  if (across) stretch(figure.find("across"), Math.min(across[0], across[1] - LEAST_MS), across[1]);
  const upwards = spread(lines.flatMap((line) => line.values));
  if (upwards) stretch(figure.find("upwards"), 0, 1.1 * upwards[1] || 1);
}
