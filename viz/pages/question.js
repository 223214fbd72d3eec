// One question: asked, followed, stopped.

import * as api from "./api.js";

/** Steps after which a value is a difference from something. */
const DIFFERENCES = ["difference", "anomaly", "standardised_anomaly"];

/** What colours are of: values, differences from nothing, directions. */
export function scaleOf(document, units) {
  const merged = [...(document.steps ?? [])].reverse().find((step) => step.op === "merge");
  if (merged && DIFFERENCES.includes(merged.function)) return "diverging";
  return units === "degree" ? "cyclic" : "sequential";
}

/**
 * Ask, and follow the answer.
 *
 * `on` holds `plan`, `progress` and `end`, each called with the question; `state` is queued, running, done, cancelled,
 * failed or lost, `problem` is what went wrong.
 */
export async function pose(document, order, on) {
  const job = await api.ask(document, order);
  const question = {
    id: job.id,
    state: job.state,
    document: job.query,
    snapshot: job.snapshot,
    progress: job,
    plan: null,
    surface: null,
    range: null,
    problem: null,
    notes: [],
    stopping: new AbortController(),
    /** Whether all is computed, and every value is missing. */
    get isEmpty() {
      return this.state === "done" && !this.range;
    },
    get ended() {
      return !["queued", "running"].includes(this.state);
    },
    /** Before the server hears of it: a picture that is on its way would be answered with a refusal. */
    stop() {
      this.stopping.abort();
      return api.stop(this.id);
    },
  };
  const end = (state, body = {}) => {
    leave();
    question.state = state;
    if (body.fraction !== undefined) question.progress = body;
    if (state === "done") {
      question.notes = body.notes;
      question.surface.title = body.title;
      // Stopped too late: there is a last picture after all.
      question.stopping = new AbortController();
      question.range = body.value_range;
    }
    on.end(question);
  };
  const leave = api.follow(job.id, {
    plan: (plan) => {
      question.plan = plan;
      question.surface = plan.surface;
      question.scale = scaleOf(question.document, plan.surface.units);
      on.plan(question);
    },
    progress: (progress) => {
      question.state = "running";
      question.progress = progress;
      on.progress(question);
    },
    done: (body) => end("done", body),
    cancelled: (body) => end("cancelled", body),
    error: (problem) => {
      question.problem = problem;
      end("failed");
    },
    lost: () => end("lost"),
  });
  return question;
}
