// The page: asks, follows, shows, stops.

import * as api from "./api.js";
import * as pictures from "./pictures.js";

const part = (id) => document.getElementById(id);
const number = (value, digits = 2) => value.toLocaleString("en", { maximumFractionDigits: digits });

const FORMATS = [["netcdf", "NetCDF"], ["csv", "CSV"], ["png", "PNG"], ["zarr", "Zarr (zip)"]];

/** Sliders of a map, and what each of their places is in words; a slider without two places is not shown. */
const SLIDERS = {
  time: (surface) => surface.times,
  level: (surface) => (surface.z ?? []).map((height) => `${number(height)} m`),
};

let saved = {};
let stations = { features: [] };
/** What is asked now: id, surface, picture, range, table, frame; null before the first question. */
let question = null;

// Words

function showProblem(problem) {
  const title = document.createElement("p");
  title.textContent = problem.title ?? "Something went wrong on this page";
  const detail = document.createElement("p");
  detail.textContent = problem.message ?? problem.detail;
  part("problem").replaceChildren(title, detail);
  part("problem").hidden = false;
}

function say(text) {
  part("status").textContent = text;
}

function sayProgress(progress, word) {
  part("bar").value = progress.fraction;
  say(`${word}: ${number(100 * progress.fraction, 0)} % · ${number(progress.cells)} of ${number(progress.total)} cells · ${number(progress.seconds, 1)} s`);
}

function sayRange() {
  if (!question?.range) return;
  const [low, high] = question.range.map((value) => number(value));
  const why = question.state === "done" ? "the values of all time cells" : "the first estimate, and held while the picture sharpens; the final values set it at the end";
  part("range").textContent = `Colours span ${low} to ${high} ${question.surface.units}: ${why}.`;
}

function sayCaption(frame) {
  const { variable, units } = question.surface;
  const range = pictures.spread(frame.values);
  const values = range ? `computed values from ${number(range[0])} to ${number(range[1])} ${units}` : "no value computed yet";
  const height = frame.level_m === undefined ? "" : ` at ${number(frame.level_m)} m`;
  const rest = frame.computed.includes(0) ? " Paler cells are estimated from those around them." : "";
  part("caption").textContent =
    `Map of ${variable} [${units}] from ${frame.time} on${height}, ${frame.shape[1]} by ${frame.shape[0]} cells, ${number(100 * frame.fraction, 0)} % computed, ${values}.${rest} Circles are stations.`;
}

// Buttons

function setRunning(running) {
  const held = document.activeElement;
  part("run").disabled = running;
  part("stop").disabled = !running;
  // A button that is switched off while it has the focus would drop a keyboard user at the top of the page.
  if (running && held === part("run")) part("stop").focus();
  if (!running && held === part("stop")) part("run").focus();
}

/** The JSON of a query with a step a line. */
function written(document) {
  const line = (value) => JSON.stringify(value, null, 1).replace(/\n\s*/g, " ");
  const lines = Object.entries(document).map(([key, value]) => {
    const text = key === "steps" ? `[\n  ${value.map(line).join(",\n  ")}\n ]` : line(value);
    return `${JSON.stringify(key)}: ${text}`;
  });
  return `{\n ${lines.join(",\n ")}\n}`;
}

function readDocument() {
  try {
    return JSON.parse(part("document").value);
  } catch (error) {
    throw new api.Problem("The query is no JSON", `${error.message}; check quotes, commas and brackets.`);
  }
}

/** Do something that may fail, and tell the user if it does. */
async function attempt(action) {
  try {
    await action();
    return true;
  } catch (problem) {
    if (!(problem instanceof api.Problem)) console.error(problem);
    showProblem(problem);
    return false;
  }
}

// One question

async function run() {
  if (part("run").disabled) return;
  part("problem").hidden = true;
  setRunning(true);
  say("Asking …");
  const asked = await attempt(async () => {
    begin(await api.ask(readDocument()));
  });
  if (!asked) {
    say("Nothing runs.");
    setRunning(false);
  }
}

function begin(job) {
  pictures.clear();
  part("caption").textContent = "The first picture comes with the first block.";
  for (const id of ["map-controls", "series-controls", "downloads"]) part(id).hidden = true;
  part("range").textContent = "";
  const mine = { id: job.id, state: job.state, surface: null, picture: null, range: null, table: null, frame: null, busy: null };
  mine.stopping = new AbortController();
  question = mine;
  sayProgress(job, "Waiting");
  const ended = (word, progress) => {
    mine.leave();
    mine.state = word;
    if (progress) sayProgress(progress, word === "done" ? "Done" : "Stopped");
    setRunning(false);
  };
  mine.leave = api.follow(job.id, {
    plan: (plan) => attempt(() => showPlan(mine, plan)),
    progress: (progress) => {
      mine.state = "running";
      sayProgress(progress, "Computing");
      // The first one says that the run began, before there is anything to see.
      if (progress.cells > 0 && !mine.busy) attempt(() => sharpen(mine));
    },
    done: (body) => {
      ended("done", body);
      // Stopped too late: there is a last picture after all.
      mine.stopping = new AbortController();
      attempt(() => finish(mine, body));
    },
    cancelled: (body) => {
      ended("cancelled", body);
      for (const name of Object.keys(SLIDERS)) part(name).disabled = true;
    },
    error: (problem) => {
      ended("failed");
      say("Failed.");
      showProblem(problem);
    },
    lost: () => {
      ended("lost");
      say("Lost.");
      showProblem({ title: "The server does not answer", detail: "Check that it still runs, then run the query again." });
    },
  });
}

function showPlan(mine, plan) {
  mine.surface = plan.surface;
  part("plan").textContent = `${number(plan.cells)} cells, at most ${number(plan.projected_bytes / 1e6, 1)} MB\n\n${plan.explanation}`;
  if (plan.surface.kind !== "map") return;
  for (const name of Object.keys(SLIDERS)) {
    const count = SLIDERS[name](plan.surface).length;
    Object.assign(part(name), { max: Math.max(count - 1, 0), value: 0, disabled: false });
    part(`${name}-part`).hidden = count < 2;
    if (count) showChoice(name, plan.surface);
  }
}

function showChoice(name, surface) {
  part(`${name}-text`).textContent = SLIDERS[name](surface)[Number(part(name).value)];
}

/** Fetch and draw the chosen time cell, and level, as it stands; one at a time, so that a slow line is not flooded. */
async function sharpen(mine) {
  if (mine.surface?.kind !== "map" || mine.stopping.signal.aborted) return;
  mine.busy = (async () => {
    const frame = await api.frame(mine.id, Number(part("time").value), Number(part("level").value), mine.stopping.signal);
    if (question !== mine) return;
    mine.frame = frame;
    await showFrame(mine);
  })();
  try {
    await mine.busy;
  } catch (error) {
    // A stopped query has no further pictures; the one that was on its way is no problem of anybody's.
    if (!mine.stopping.signal.aborted) throw error;
  } finally {
    mine.busy = null;
  }
}

async function showFrame(mine) {
  mine.picture ??= await pictures.MapPicture.open(mine.surface, stations);
  mine.range ??= pictures.spread(mine.frame.estimate);
  if (mine.range) mine.picture.range = mine.range;
  mine.picture.draw(mine.frame, part("only-computed").checked);
  part("map-controls").hidden = false;
  sayRange();
  sayCaption(mine.frame);
}

async function finish(mine, body) {
  // A frame that was asked for before the end may still be on its way, and must not come last.
  await mine.busy?.catch(() => {});
  if (question !== mine) return;
  showDownloads(mine.id);
  if (mine.surface.kind === "map") {
    mine.range = body.value_range ?? mine.range;
    await sharpen(mine);
    return;
  }
  mine.table = await api.series(mine.id);
  const byDay = pictures.hasDays(mine.table);
  part("series-controls").hidden = !byDay;
  chooseDrawing(byDay && mine.table.times.length >= 72 ? "day_by_hour" : "lines");
  await drawTable(mine);
}

function chooseDrawing(value) {
  document.querySelector(`input[name=drawing][value=${value}]`).checked = true;
}

async function drawTable(mine) {
  const drawing = document.querySelector("input[name=drawing]:checked").value;
  const draw = drawing === "lines" ? pictures.drawLines : pictures.drawDayByHour;
  part("caption").textContent = await draw(mine.table);
}

function showDownloads(id) {
  const title = document.createElement("span");
  title.textContent = "Download";
  const links = FORMATS.map(([format, name]) => link(api.resultAddress(id, format), name, ""));
  part("downloads").replaceChildren(title, ...links, link(api.jobAddress(id), "Query (JSON)", `query-${id.slice(0, 8)}.json`));
  part("downloads").hidden = false;
}

function link(address, text, name) {
  return Object.assign(document.createElement("a"), { href: address, textContent: text, download: name });
}

/** Draw again what is shown, in another width or theme. */
async function redraw() {
  const mine = question;
  if (mine?.table) await drawTable(mine);
  if (mine?.picture && mine.frame) {
    mine.picture = null;
    await showFrame(mine);
  }
}

// What the user does

part("run").addEventListener("click", run);
part("document").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    run();
  }
});
part("stop").addEventListener("click", () => {
  // Before the server hears of it: a picture that is on its way would be answered with a refusal.
  question.stopping.abort();
  attempt(() => api.stop(question.id));
});
part("explain").addEventListener("click", () => {
  part("problem").hidden = true;
  attempt(async () => {
    const outline = await api.explain(readDocument());
    part("plan").textContent = `${number(outline.cells)} cells, at most ${number(outline.projected_bytes / 1e6, 1)} MB\n\n${outline.explanation}`;
    part("plan-part").open = true;
  });
});
part("saved").addEventListener("change", () => {
  part("document").value = written(saved[part("saved").value]);
});
for (const name of Object.keys(SLIDERS)) {
  part(name).addEventListener("input", () => {
    showChoice(name, question.surface);
    if (!question.busy) attempt(() => sharpen(question));
  });
  // The last place of a slider that moved while a frame was on its way.
  part(name).addEventListener("change", () =>
    attempt(async () => {
      await question.busy?.catch(() => {});
      await sharpen(question);
    }),
  );
}
part("only-computed").addEventListener("change", () => question?.frame && attempt(() => showFrame(question)));
for (const choice of document.querySelectorAll("input[name=drawing]")) {
  choice.addEventListener("change", () => attempt(() => drawTable(question)));
}
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => attempt(redraw));
let pause = 0;
let width = window.innerWidth;
window.addEventListener("resize", () => {
  clearTimeout(pause);
  pause = setTimeout(() => {
    // A phone's address bar that slides away is a resize, too.
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    attempt(redraw);
  }, 200);
});
// Nobody waits for the answer of a page that is gone; others who asked the same keep theirs.
// Two events: following a link tells only the first in time to send something, closing a tab only the second.
for (const leaving of ["beforeunload", "pagehide"]) {
  window.addEventListener(leaving, () => {
    if (!part("stop").disabled && question) api.stop(question.id).catch(() => {});
  });
}

// Apart from one another: a page without a list of stations can still ask.
await Promise.all([
  attempt(async () => {
    saved = await api.look("saved");
    const names = Object.keys(saved);
    part("saved").replaceChildren(...names.map((name) => new Option(name, name)));
    if (names.length) part("document").value = written(saved[names[0]]);
  }),
  attempt(async () => {
    stations = await api.look("stations");
  }),
  attempt(async () => {
    const variables = await api.look("variables");
    part("archive").textContent = variables.map((one) => `${one.name} [${one.unit}]`).join(" · ");
  }),
]);
if (stations.features.length) part("archive").textContent = `${stations.features.length} stations · ${part("archive").textContent}`;
document.body.dataset.ready = "yes";
