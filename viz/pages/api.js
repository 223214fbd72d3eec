// The web API: the only place that data come from.

import { T } from "./text.js";

const PREFIX = "api/v1";
const SESSION = `${PREFIX}/session`;

/** What went wrong, as a problem document (RFC 9457) or in the same words; `status` 0: the server did not answer. */
export class Problem extends Error {
  constructor(title, detail, status = -1) {
    super(detail);
    this.title = title;
    this.status = status;
  }
}

/** Called with each problem that concerns the whole page: no answer (0), login needed (401); and with null once it answers. */
let tell = () => {};
export const onTrouble = (listener) => {
  tell = listener;
};

/** Gives the promise that answers wait for which are drawn as they come, or null. */
let whenReady = () => null;
export const holdUntil = (wait) => {
  whenReady = wait;
};
const drawable = (answer) => answer.finally(() => whenReady());

async function send(path, options = {}, read = (response) => response.json()) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    const problem = new Problem(T.problems.gone, T.problems.goneAdvice, 0);
    tell(problem);
    throw problem;
  }
  if (response.ok) {
    tell(null);
    return response.status === 204 ? null : read(response);
  }
  const body = await response.json().catch(() => ({}));
  const problem = new Problem(body.title ?? T.problems.failed, body.detail ?? T.problems.status(response.status), response.status);
  problem.key = body.key ?? "";
  problem.body = body;
  // A key that opens nothing is told where it was typed.
  if (response.status === 401 && path !== SESSION) tell(problem);
  throw problem;
}

const write = (method, path, document = {}) =>
  send(path, { method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(document) });
const post = (path, document) => write("POST", path, document);

export const look = (what, options) => drawable(send(`${PREFIX}/${what}`, options));
export const text = (what) => drawable(send(`${PREFIX}/${what}`, {}, (response) => response.text()));
export const ask = (document, order) => post(`${PREFIX}/queries?order=${order}`, document);
export const explain = (document) => post(`${PREFIX}/queries/explain`, document);
export const variogram = (document, how) => post(`${PREFIX}/queries/variogram?${new URLSearchParams(how)}`, document);
/** A first query of the archive, or of a variable of it, and a query carried over to another variable: each {query, notes}. */
export const suggest = (variable) => look(variable ? `suggestion?${new URLSearchParams({ variable })}` : "suggestion");
export const adapt = (document, variable) => post(`${PREFIX}/suggestion?${new URLSearchParams({ variable })}`, document);
export const plan = (document) => post(`${PREFIX}/engine/plan`, document);
/** `keepalive` lets the request outlive the page that sends it. */
export const stop = (id) => send(`${PREFIX}/queries/${id}`, { method: "DELETE", keepalive: true });
/** Stations and readings that made a cell, by coordinates that lie in it. */
export const lineage = (id, cell) => look(`queries/${id}/lineage?${new URLSearchParams({ ...cell, limit: 500 })}`);

export const secondOpinion = (id, cells) => look(`queries/${id}/second-opinion?cells=${cells}`);
export const resultAddress = (id, format) => `${PREFIX}/queries/${id}/result?f=${format}`;
export const readingsAddress = (asked, format) => `${PREFIX}/series?${new URLSearchParams({ ...asked, f: format })}`;
export const jobAddress = (id) => `${PREFIX}/queries/${id}`;
export const rejectsAddress = `${PREFIX}/rejects?f=csv`;
/** The bare figure, without data. */
export const figure = (kind, words) => send(`figures/${kind}?${new URLSearchParams(words)}`);
/** Coast, borders and land in an extent, as columns of glyphs; it takes no key. */
export const coast = (extent, width) => send(`figures/coast?${new URLSearchParams({ ...extent, width })}`);
export const alive = () => drawable(send("health"));

export const logIn = (key) => post(SESSION, { key });
export const logOut = () => send(SESSION, { method: "DELETE" });

const backtestAddress = (id, what = "") => `${PREFIX}/continuous/backtest/${id}${what}`;
export const explainContinuous = (text) => post(`${PREFIX}/continuous/explain`, { text });
export const backtest = (document) => post(`${PREFIX}/continuous/backtest`, document);
export const stopBacktest = (id) => send(backtestAddress(id), { method: "DELETE", keepalive: true });
export const keepContinuous = (document) => post(`${PREFIX}/continuous`, document);
export const keepRows = (name, keep) => post(`${PREFIX}/continuous/${encodeURIComponent(name)}/keep`, { keep });
export const removeContinuous = (name) => send(`${PREFIX}/continuous/${encodeURIComponent(name)}`, { method: "DELETE" });
export const rowsAddress = (id, format) => backtestAddress(id, `/rows?f=${format}`);

const standing = (name, what = "") => `${PREFIX}/standing/${encodeURIComponent(name)}${what}`;
export const createStanding = (document) => post(`${PREFIX}/standing`, document);
export const changeStanding = (name, what, document) => post(standing(name, `/${what}`), document);
/** Acknowledge an alert, comment on it, or open it again. */
export const remark = (number, act, comment) => post(`${PREFIX}/standing/alerts/${number}/${act}`, comment ? { comment } : {});
export const previewStanding = (document) => post(`${PREFIX}/standing/preview`, document);
export const removeStanding = (name) => send(standing(name), { method: "DELETE" });

const board = (name) => `boards/${encodeURIComponent(name)}`;
export const lookAtBoard = (name) => look(board(name));
export const createBoard = (document) => post(`${PREFIX}/boards`, document);
export const changeBoard = (document) => write("PUT", `${PREFIX}/${board(document.name)}`, document);
export const removeBoard = (name) => send(`${PREFIX}/${board(name)}`, { method: "DELETE" });
/** A short link to an address of the pages, and the address of a link. */
export const createLink = (document) => post(`${PREFIX}/links`, document);
export const lookAtLink = (name) => look(`links/${encodeURIComponent(name)}`);
/** The newest snapshot, what changed since another one, and where the readings of each variable end. */
export const lookForNews = (since) => look(`snapshots/newest${since ? `?${new URLSearchParams({ since })}` : ""}`);
const importAddress = (id, what = "") => `${PREFIX}/imports/${id}${what}`;
export const deploymentAddress = (id) => importAddress(id, "/deployment");
export const createImport = () => post(`${PREFIX}/imports`);
export const changeImport = (id, what) => post(importAddress(id, `/${what}`));
export const removeImport = (id) => send(importAddress(id), { method: "DELETE" });
export const sendFile = (id, name, file) => send(importAddress(id, `/files/${encodeURIComponent(name)}`), { method: "PUT", headers: { "Content-Type": "application/octet-stream" }, body: file });
export const removeFile = (id, name) => send(importAddress(id, `/files/${encodeURIComponent(name)}`), { method: "DELETE" });
export const describeImport = (id, document) =>
  send(deploymentAddress(id), { method: "PUT", headers: { "Content-Type": "application/json" }, body: JSON.stringify(document) }, (response) => response.text());

/** Follow events; returns what ends that. Each handler takes the event's data; `lost` takes nothing. */
export function listen(path, handlers) {
  const source = new EventSource(`${PREFIX}/${path}`);
  for (const [name, handle] of Object.entries(handlers)) {
    if (name === "lost") continue;
    source.addEventListener(name, (event) => {
      // The browser's own trouble with the connection is an "error" too, without data.
      if (event.data !== undefined) handle(JSON.parse(event.data));
    });
  }
  source.onerror = (event) => {
    if (event.data === undefined && source.readyState === EventSource.CLOSED) handlers.lost();
  };
  return () => source.close();
}

export const follow = (id, handlers) => listen(`queries/${id}/events`, handlers);

/** A plain loop: `Uint8Array.from` with a function takes 25 ms for a map of 200 x 200 cells, ten times as long. */
function bytes(text) {
  const letters = atob(text);
  const found = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at += 1) found[at] = letters.charCodeAt(at);
  return found;
}

// Typed arrays have the machine's byte order; every machine that runs a browser today is little-endian, as the API is.
export const floats = (text) => new Float64Array(bytes(text).buffer);

/** One time cell of a map, or of its variance; `signal` lets the caller drop a request that is on its way. */
export async function frame(id, time, level, part, signal) {
  const path = `${PREFIX}/queries/${id}/frame?time=${time}&level=${level}&part=${part}&f=binary`;
  return frameOf(await send(path, { signal }, (response) => response.arrayBuffer()));
}

/** What the server packs: the length of a head, the head, and the arrays, which begin at multiples of their numbers' size. */
function frameOf(buffer) {
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const cells = head.shape[0] * head.shape[1];
  const estimate = new Float64Array(buffer, 8 + length, cells);
  const computed = new Uint8Array(buffer, 8 + length + estimate.byteLength, cells);
  const values = estimate.slice();
  for (let at = 0; at < cells; at += 1) if (!computed[at]) values[at] = NaN;
  return { ...head, values, computed, estimate };
}

export async function series(id) {
  const body = await look(`queries/${id}/series`);
  return { ...body, values: floats(body.values) };
}

/** One cell of a map over time. */
export async function cell(id, row, column, level) {
  const body = await look(`queries/${id}/cell?row=${row}&column=${column}&level=${level}`);
  return { ...body, values: floats(body.values), variance: body.variance && floats(body.variance) };
}

/** Relief and contours in an extent; its shape is null where the archive has no elevation layer. */
export async function ground(extent, width) {
  const body = await look(`ground?${new URLSearchParams({ ...extent, width })}`);
  return { ...body, shade: body.shade && bytes(body.shade) };
}

/** Rows of a CSV answer as objects by column. */
export const rows = async (what) => rowsOf(await text(what));

/** Rows of CSV as objects by column; text with commas stands in quotes. */
export function rowsOf(csv) {
  const [head, ...lines] = csv.trimEnd().split(/\r?\n/).map(split);
  return lines.map((line) => Object.fromEntries(head.map((name, place) => [name, line[place] ?? ""])));
}

function split(line) {
  if (!line.includes('"')) return line.split(",");
  return [...line.matchAll(/(?:^|,)(?:"((?:[^"]|"")*)"|([^,]*))/g)].map((found) => found[1]?.replaceAll('""', '"') ?? found[2]);
}
