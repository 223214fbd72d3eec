// The frame of all pages: which one is shown, what the archive holds, theme, login, and whether the server answers.

import * as api from "./api.js";
import { button, choice, empty, field, h, number, part, problemBox } from "./dom.js";
import { askForKey, may, mayImport, whoAsks } from "./login.js";
import { whenReleased } from "./press.js";
import { T } from "./text.js";
import { choose, chosen, onTheme } from "./theme.js";

/** Versions of the archive at most that can be chosen, the newest; a link may name others. */
const MOST_VERSIONS = 200;
/** The pages, each loaded when it is first shown: the first picture waits for no other. */
const PAGES = {
  overview: () => import("./overview.js"),
  explore: () => import("./explore.js"),
  boards: () => import("./boards.js"),
  stations: () => import("./stations.js"),
  standing: () => import("./standing.js"),
  continuous: () => import("./continuous.js"),
  engine: () => import("./engine.js"),
  import: () => import("./import.js"),
};
/** Short links lead to other addresses. */
const LINK = "link";
/** Whether this is a picture or a board in a frame of another page: without header and controls. */
const isEmbedded = new URLSearchParams(location.search).get("embed") === "1";
/** Scopes that a page needs beyond reading. */
const NEEDS = { standing: "operate", continuous: "query", engine: "operate", import: "write" };
const AGAIN_MS = 2000;
const PAUSE_MS = 200;

/** Pages that were opened, by name; the shown one. */
const opened = {};
/** Units of what the pages show, in words, by name. */
const unitTexts = {};
/** Opened pages to be drawn again when they are shown: out of sight they have no size. */
const stale = new Set();
let shown = null;
/** The part of the address that is shown. */
let current = "";
let trouble = null;

/** What the address says: the page, and what it shows. */
function address() {
  const [name, query = ""] = location.hash.slice(1).split(/\?(.*)/s);
  const params = new URLSearchParams(query);
  if (name === LINK) return { name, params };
  // In a frame of another page nothing is shown but boards, and what Explore and Stations show as a board of one panel.
  if (isEmbedded && name !== "boards") return { name: "boards", params: new URLSearchParams({ page: name, of: query }) };
  return { name: name in PAGES ? name : "overview", params };
}

const hash = (name, params) => `#${name}${params && String(params) ? `?${params}` : ""}`;

/** Pages that are made with the saved queries, and the request for these. */
const OFFER_SAVED = ["engine"];
let saved = Promise.resolve({});

/** What every page may ask of the frame. */
const frame = {
  known: { variables: [], stations: { features: [] }, snapshots: [], functions: {}, saved: {} },
  /** Note what reproduces a page, in the address and in its link. */
  note(name, params) {
    part(`link-${name}`).href = hash(name, params);
    // After a click on a link the address is already the next one, before `hashchange` shows it.
    if (shown !== name || location.hash !== current) return;
    history.replaceState(null, "", hash(name, params));
    current = location.hash;
  },
  /** Go to a page. */
  go(name, params) {
    location.hash = hash(name, new URLSearchParams(params));
  },
  /** Note the units of what a page shows; they stand in the status line while the page is shown. */
  units(name, text) {
    unitTexts[name] = text;
    if (shown === name) part("units").textContent = text;
  },
  say: showProblem,
  /** Whether what needs a scope would be answered. */
  may,
  mayImport,
  /** Do something that may fail, and tell the user if it does; return whether it worked. */
  async attempt(action) {
    try {
      await action();
      return true;
    } catch (problem) {
      if (!(problem instanceof api.Problem)) console.error(problem);
      showProblem(problem);
      return false;
    }
  },
  reload: load,
  /** The saved queries, for a page that does not wait for them. */
  saved: () => saved,
  isEmbedded,
  /** Ask again what there is, once that has changed: the other pages begin again when they are shown. */
  async renew() {
    for (const name of Object.keys(opened).filter((other) => other !== shown)) {
      opened[name].leave?.();
      delete opened[name];
      delete unitTexts[name];
      stale.delete(name);
    }
    await load();
  },
};

function showProblem(problem) {
  if (!problem) {
    part("notice").replaceChildren();
    return;
  }
  const box = problemBox(problem);
  box.append(button("✕", () => showProblem(null), { class: "icon", "aria-label": T.frame.dismiss, title: T.frame.dismiss }));
  part("notice").replaceChildren(box);
}

// What the server is like

api.holdUntil(whenReleased);
api.onTrouble((problem) => {
  const kind = problem ? (problem.status === 401 ? "login" : "gone") : "";
  if (kind === trouble || (trouble === "login" && !kind)) return;
  trouble = kind;
  sayConnection();
  if (kind === "login") {
    // A session that ended; or somebody without a key, who may read, but no more.
    whoAsks(sessions).catch(() => {});
    needLogin();
  }
  if (kind === "gone") waitForServer();
});

function sayConnection() {
  part("connection").textContent = T.frame.connection[trouble || "ok"];
  part("connection").className = trouble ? "bad" : "";
}

async function waitForServer() {
  while (trouble === "gone") {
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    await api.alive().catch(() => {});
  }
  showProblem(null);
  if (!frame.known.variables.length) await load();
}

/** Nobody is logged in: say so, and offer the form; it can be closed, and called again from the head of the page. */
function needLogin() {
  if (!frame.known.variables.length) part("no-data").replaceChildren(empty(T.login.needed, T.login.advice, button(T.login.logIn, askToLogIn)));
  askToLogIn();
}

const askToLogIn = () => askForKey(loggedIn);

async function loggedIn() {
  trouble = "";
  sayConnection();
  showProblem(null);
  await load();
}

/** Leave nothing in sight: the page begins anew. */
async function logOut() {
  leave();
  if (await frame.attempt(api.logOut)) location.reload();
}

const sessions = { logIn: askToLogIn, logOut };

// Which page

async function show() {
  const { name, params } = address();
  current = location.hash;
  if (name === LINK) {
    await frame.attempt(() => openLink(params));
    return;
  }
  const before = shown;
  shown = name;
  for (const other of Object.keys(PAGES)) {
    part(`page-${other}`).hidden = other !== name;
    const link = part(`link-${other}`);
    if (other === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  // On a phone the links are wider than the window.
  const [links, link] = [part("pages"), part(`link-${name}`)];
  links.scrollLeft = link.offsetLeft - links.offsetLeft - (links.clientWidth - link.offsetWidth) / 2;
  document.title = T.frame.title(T.pages[name]);
  part("units").textContent = unitTexts[name] ?? T.frame.noUnits;
  if (before && before !== name) {
    showProblem(null);
    opened[before]?.hide?.();
  }
  part("no-data").hidden = name === "import";
  if (!frame.known.variables.length && name !== "import") return;
  if (name in NEEDS && !may(NEEDS[name])) {
    delete opened[name];
    part(`page-${name}`).replaceChildren(empty(T.frame.notShown, T.frame.notShownAdvice(NEEDS[name])));
    return;
  }
  await frame.attempt(async () => {
    if (!opened[name]) {
      const page = await PAGES[name]();
      if (OFFER_SAVED.includes(name)) frame.known.saved = await saved;
      // Another page may be shown meanwhile, or this one a second time.
      if (shown !== name) return;
      if (!opened[name]) part(`page-${name}`).replaceChildren();
      opened[name] ??= page.open(part(`page-${name}`), frame);
    }
    if (stale.delete(name)) await frame.attempt(async () => opened[name].redraw?.());
    // What takes its time may end after the page was left.
    if (shown === name) await opened[name].show(params);
  });
}

/** Go where a short link leads. */
async function openLink(params) {
  const link = await api.lookAtLink(params.get("name") ?? "");
  location.replace(`#${link.address}`);
}

/** Ask who asks and what there is, and open the page; without readings say how to get some. */
async function load() {
  const isLetIn = await whoAsks(sessions).catch((problem) => {
    if (problem.status > 0) showProblem(problem);
    return null;
  });
  if (!isLetIn) {
    if (isLetIn === false) {
      trouble = "login";
      sayConnection();
      needLogin();
    }
    document.body.dataset.ready = "no";
    return;
  }
  // To find those that can be answered takes as long as all the rest, and not every page offers them.
  saved = api.look("saved?answerable=true");
  saved.catch(() => {});
  const { name, params } = address();
  if (!opened[name]) PAGES[name]?.().then((page) => page.expect?.(params), () => {});
  const known = await Promise.all(["variables", "stations", `snapshots?limit=${MOST_VERSIONS}`, "functions", "publication"].map((what) => api.look(what).catch((problem) => problem)));
  const failed = known.find((one) => one instanceof Error);
  // A page without a list of stations could still ask, but it is the same server that answers all.
  if (failed) {
    if (failed.status > 0 && failed.status !== 401) showProblem(failed);
    document.body.dataset.ready = "no";
    return;
  }
  [frame.known.variables, frame.known.stations, frame.known.snapshots, frame.known.functions, frame.known.publication] = known;
  const { variables, stations: { features }, snapshots } = frame.known;
  part("link-import").hidden = !mayImport();
  part("archive").textContent = variables.length ? T.frame.archive(number(features.length), number(variables.length), snapshots[0]?.time) : T.frame.emptyArchive;
  part("publication").replaceChildren(...attribution(frame.known.publication));
  part("no-data").replaceChildren(...(variables.length ? [] : [empty(T.frame.noData, T.frame.noDataAdvice, mayImport() ? h("p", {}, h("a", { href: hash("import") }, T.importing.offer)) : null, h("pre", { tabindex: 0 }, T.frame.noDataCommand), button(T.frame.lookAgain, load))]));
  await show();
  document.body.dataset.ready = "yes";
}

// Whose data they are: institution, licence and contact, as far as the network states them.
function attribution({ institution, creator_name: creator, publisher_name: publisher, license, creator_email: email }) {
  const linked = (text) => (/^https?:/.test(text) ? h("a", { href: text, rel: "license" }, text) : text);
  const parts = [institution ?? creator ?? publisher, license && linked(license), email && h("a", { href: `mailto:${email}` }, email)].filter(Boolean);
  return parts.length ? [T.frame.data, ...parts.flatMap((part) => [" ", part, ","])].slice(0, -1) : [];
}

function build() {
  if (isEmbedded) document.documentElement.dataset.embed = "";
  part("pages").append(...Object.keys(PAGES).map((name) => h("a", { id: `link-${name}`, href: hash(name), hidden: name === "import" }, T.pages[name])));
  const { guide } = part("tools").dataset;
  part("tools").append(...(guide ? [h("a", { id: "guide", href: guide, target: "_blank", rel: "noopener" }, T.frame.guide)] : []), h("div", { id: "session" }), field(T.frame.theme, choice("theme", Object.entries(T.frame.themes), choose, chosen())));
  part("main").append(h("div", { id: "no-data" }), ...Object.keys(PAGES).map((name) => h("section", { id: `page-${name}`, class: "page", "aria-label": T.pages[name], hidden: true })));
  const clock = h("span", { id: "clock" });
  part("status-line").append(h("span", { id: "units" }, T.frame.noUnits), clock, h("span", { id: "archive" }), h("span", { id: "publication" }), h("span", { id: "connection", role: "status" }, T.frame.connection.ok));
  const tell = () => (clock.textContent = T.frame.clock(new Date().toISOString().slice(0, 19).replace("T", " ")));
  tell();
  setInterval(tell, 1000);
  part("skip").addEventListener("click", (event) => {
    // The address belongs to the pages.
    event.preventDefault();
    part("main").focus();
  });
}

build();
window.addEventListener("hashchange", show);
/** Draw what is shown again, and the other pages once they are shown. */
function redraw() {
  for (const name of Object.keys(opened)) if (name !== shown) stale.add(name);
  if (shown) frame.attempt(async () => opened[shown]?.redraw?.());
}
onTheme(redraw);
let pause = 0;
let width = window.innerWidth;
window.addEventListener("resize", () => {
  clearTimeout(pause);
  pause = setTimeout(() => {
    // A phone's address bar that slides away is a resize, too.
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    redraw();
  }, PAUSE_MS);
});
// Nobody waits for the answer of a page that is gone; others who asked the same keep theirs.
// Two events: following a link tells only the first in time to send something, closing a tab only the second.
function leave() {
  for (const page of Object.values(opened)) page.leave?.();
}
for (const leaving of ["beforeunload", "pagehide"]) window.addEventListener(leaving, leave);
await load();
