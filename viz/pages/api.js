// The web API: the only place that data come from.

const PREFIX = "api/v1";

/** What went wrong, as a problem document (RFC 9457) or in the same words. */
export class Problem extends Error {
  constructor(title, detail) {
    super(detail);
    this.title = title;
  }
}

async function send(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("The server does not answer", "Check that it still runs, then try again.");
  }
  if (response.ok) return response.json();
  const problem = await response.json().catch(() => ({}));
  throw new Problem(problem.title ?? "It did not work", problem.detail ?? `the server answered ${response.status}`);
}

const post = (path, document) =>
  send(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(document) });

export const look = (what, options) => send(`${PREFIX}/${what}`, options);
export const ask = (document) => post(`${PREFIX}/queries`, document);
export const explain = (document) => post(`${PREFIX}/queries/explain`, document);
/** `keepalive` lets the request outlive the page that sends it. */
export const stop = (id) => send(`${PREFIX}/queries/${id}`, { method: "DELETE", keepalive: true });
export const resultAddress = (id, format) => `${PREFIX}/queries/${id}/result?f=${format}`;
export const jobAddress = (id) => `${PREFIX}/queries/${id}`;
/** The bare figure, without data. */
export const figure = (kind, words) => send(`figures/${kind}?${new URLSearchParams(words)}`);

/** Follow a query; returns what ends that. Each handler takes the event's data; `lost` takes nothing. */
export function follow(id, handlers) {
  const source = new EventSource(`${PREFIX}/queries/${id}/events`);
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

function bytes(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

// Typed arrays have the machine's byte order; every machine that runs a browser today is little-endian, as the API is.
const floats = (text) => new Float64Array(bytes(text).buffer);

/** `signal` lets the caller drop a request that is on its way. */
export async function frame(id, time, level, signal) {
  const body = await look(`queries/${id}/frame?time=${time}&level=${level}`, { signal });
  return { ...body, values: floats(body.values), computed: bytes(body.computed), estimate: floats(body.estimate) };
}

export async function series(id) {
  const body = await look(`queries/${id}/series`);
  return { ...body, values: floats(body.values) };
}
