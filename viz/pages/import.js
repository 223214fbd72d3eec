// Import: files are dropped, what is in them is shown and corrected, and they are ingested; then what could not be read.

import * as api from "./api.js";
import { askToRemove } from "./dialog.js";
import { button, bytes, empty, h, instant, number, part, problemBox, table, visible } from "./dom.js";
import { Description } from "./import_description.js";
import { FeedForms } from "./import_feeds.js";
import { report } from "./import_report.js";
import { StationForms } from "./import_stations.js";
import { T } from "./text.js";

const AGAIN_MS = 400;
const DEPLOYMENT = "deployment.toml";
const DRAGS = ["dragover", "dragleave", "drop"];

export function open(root, frame) {
  return new Importing(root, frame);
}

class Importing {
  constructor(root, frame) {
    this.frame = frame;
    this.root = root;
    if (!frame.mayImport()) {
      root.append(empty(T.importing.off, T.importing.offAdvice));
      return;
    }
    this.input = h("input", { type: "file", multiple: true, id: "import-input", hidden: true, on: { change: () => this.take([...this.input.files]) } });
    this.status = h("p", { id: "import-status", role: "status" });
    this.list = h("ul", { class: "chips", id: "import-files" });
    this.zone = h("div", { class: "drop", id: "import-drop" },
      h("p", { class: "drop-title" }, T.importing.drop), button(T.importing.choose, () => this.input.click(), { id: "import-choose", class: "primary" }), this.input,
      h("p", { class: "quiet" }, T.importing.dropHint), this.list, this.status);
    this.forms = h("div", { id: "import-forms" });
    this.actions = h("div", { id: "import-actions", hidden: true });
    this.result = h("div", { id: "import-result" });
    this.past = h("div", { id: "import-past" });
    root.append(h("h2", { class: "unseen" }, T.importing.title), this.zone, this.result, this.forms, this.actions, this.past);
    this.onDrag = (event) => this.drag(event);
  }

  async show(params) {
    if (!this.zone) return;
    this.isShown = true;
    // A file that is dropped beside the zone would be opened in place of the page.
    for (const name of DRAGS) window.addEventListener(name, this.onDrag);
    const id = params.get("id");
    if (id !== (this.id ?? null) && id) await this.load(id);
    else if (this.isRunning) await this.follow();
    else if (!id && !this.id) await this.listPast();
  }

  hide() {
    this.isShown = false;
    clearTimeout(this.timer);
    for (const name of DRAGS) window.removeEventListener(name, this.onDrag);
  }

  async redraw() {
    await this.stations?.draw(true);
  }

  drag(event) {
    // Text that is dragged into a field is none of the page's business.
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    this.zone.classList.toggle("over", event.type === "dragover");
    if (event.type === "drop") this.take([...event.dataTransfer.files]);
  }

  // Files

  /** Send files, into a new import where there is none, and look at them. */
  take(files) {
    if (!files.length) return null;
    if (this.isRunning) {
      this.frame.say({ title: T.importing.busy, detail: T.importing.busyAdvice });
      return null;
    }
    return this.frame.attempt(async () => {
      if (!this.id) this.begin((await api.createImport()).id);
      const size = bytes(files.reduce((sum, file) => sum + file.size, 0));
      // One after the other: the server writes them as they come.
      for (const [done, file] of files.entries()) {
        this.say(T.importing.sending(number(done + 1), number(files.length), size));
        await api.sendFile(this.id, file.name, file);
      }
      this.input.value = "";
      await this.look();
    }).then((worked) => worked || this.say(""));
  }

  begin(id) {
    this.id = id;
    this.isRunning = false;
    this.answered = new Set();
    this.description = null;
    this.frame.note("import", new URLSearchParams({ id }));
  }

  say(words) {
    this.status.textContent = words;
  }

  async load(id) {
    this.begin(id);
    const state = await api.look(`imports/${id}`);
    this.drawFiles(state);
    if (state.state === "running") await this.follow();
    else {
      this.drawResult(state);
      if (state.files.length) await this.look();
    }
  }

  /** Ask how the files would be read, and draw the forms. */
  async look() {
    const state = await api.look(`imports/${this.id}`);
    this.drawFiles(state);
    this.past.replaceChildren();
    if (!state.files.length) {
      this.forms.replaceChildren();
      this.actions.hidden = true;
      this.say("");
      return;
    }
    this.say(T.importing.looking);
    this.runs = state.runs;
    this.draw(await api.look(`imports/${this.id}/proposal`));
    this.say("");
  }

  drawFiles({ files, described }) {
    const size = files.reduce((sum, file) => sum + file.size_bytes, 0);
    const names = [...files.map((file) => file.name), ...(described ? [DEPLOYMENT] : [])];
    this.zone.classList.toggle("filled", names.length > 0);
    const chip = (name) => h("li", {}, name, button("✕", () => this.frame.attempt(async () => {
      await api.removeFile(this.id, name);
      await this.look();
    }), { class: "icon", "aria-label": T.importing.removeFile(name), title: T.importing.removeFile(name) }));
    this.list.replaceChildren(...(files.length ? [h("li", { class: "total" }, T.importing.files(number(files.length), bytes(size)))] : []),
      ...files.slice(0, 50).map((file) => chip(file.name)),
      ...(names.length ? [h("li", { class: "plain" }, button(T.importing.another, () => this.forget(), { class: "link" }))] : []));
  }

  /** Leave the import as it is, and begin another one. */
  async forget() {
    clearTimeout(this.timer);
    this.id = null;
    this.isRunning = false;
    this.frame.note("import", new URLSearchParams());
    this.drawFiles({ files: [], described: false });
    this.forms.replaceChildren();
    this.result.replaceChildren();
    this.actions.hidden = true;
    await this.frame.attempt(() => this.listPast());
    part("import-choose").focus();
  }

  // Forms

  draw(proposal) {
    this.description = new Description(proposal, this.answered);
    const changed = () => this.drawActions();
    this.feeds = new FeedForms(this.description, proposal, { changed, reread: (file, answers) => this.reread(file, answers) });
    this.stations = this.description.stations.length ? new StationForms(this.description, this.frame.known.stations, changed) : null;
    this.forms.replaceChildren(this.feeds.element, ...(this.stations ? [this.stations.element] : []));
    this.stations?.draw().catch(() => {});
    this.drawActions();
  }

  /** Read a file as its question was answered: kept with what is known of the others, and looked at again. */
  reread(file, answers) {
    return this.frame.attempt(async () => {
      this.description.addFeed(file, answers);
      await api.describeImport(this.id, this.description.finished());
      // Feeds have moved, and answers are kept by their places.
      this.answered.clear();
      await this.look();
    });
  }

  /** What is missing, and the button that waits for it. */
  drawActions() {
    const { description } = this;
    const open = description.open();
    this.actions.hidden = !description.document.feed.length;
    const words = ({ kind, feed, column }) => (kind === "zone" ? T.importing.todoZone(T.importing.feed(description.feeds[feed].files)) : T.importing.todoUnit(column));
    const target = ({ kind, feed, column }) => (kind === "zone" ? part(`zone-${feed}`) : this.forms.querySelector(`[data-unit="${feed}:${CSS.escape(column)}"] select`));
    const focused = document.activeElement?.id === "import-run";
    this.actions.replaceChildren(h("p", { id: "import-todo", class: open.length ? "todo" : "good" }, this.runs && !open.length ? T.importing.againHint : T.importing.todo(open.length)),
      ...(open.length ? [h("ul", { class: "todo-list" }, open.slice(0, 6).map((one) => h("li", {}, button(words(one), () => target(one)?.focus(), { class: "link" }))))] : []),
      h("div", { class: "buttons" }, button(this.runs ? T.importing.again : T.importing.run, () => this.run(), { id: "import-run", class: "primary", disabled: open.length > 0 })));
    if (focused) part("import-run").focus();
  }

  /** Keep the description, and ingest. */
  run() {
    return this.frame.attempt(async () => {
      this.frame.say(null);
      for (const marked of this.forms.querySelectorAll("[aria-invalid]")) marked.removeAttribute("aria-invalid");
      try {
        await api.describeImport(this.id, this.description.finished());
      } catch (problem) {
        const control = problem.key && this.forms.querySelector(`[data-key="${CSS.escape(problem.key)}"]`);
        if (control) {
          control.setAttribute("aria-invalid", "true");
          control.focus();
        }
        throw problem;
      }
      await api.changeImport(this.id, "run");
      await this.follow();
    });
  }

  // The run

  /** Show how far the run is, until it ends or the page is left. */
  async follow() {
    clearTimeout(this.timer);
    const { id } = this;
    this.isRunning = true;
    if (!this.isShown) return;
    const state = await api.look(`imports/${id}`);
    if (!this.isShown || id !== this.id) return;
    this.drawFiles(state);
    if (state.state !== "running") {
      this.isRunning = false;
      this.drawResult(state);
      this.runs = state.runs;
      await this.frame.renew();
      // The forms stay as they were filled in, for what has to be corrected.
      if (this.description) this.drawActions();
      else await this.look();
      this.result.querySelector("h2")?.focus();
      return;
    }
    const { stage = "", fraction = 0, warnings = [] } = state.progress;
    const share = h("progress", { value: fraction, max: 1, "aria-label": T.importing.report });
    const words = h("p", { role: "status" }, T.importing.running(T.importing.stages[stage] ?? stage, Math.round(100 * fraction)));
    if (!this.result.querySelector("progress")) {
      this.result.replaceChildren(h("div", { class: "run-state" }, share, words, button(T.importing.stop, () => this.frame.attempt(() => api.changeImport(this.id, "stop")), { id: "import-stop" })), h("p", { class: "quiet", id: "import-warning" }));
      this.actions.hidden = true;
      this.forms.inert = true;
    } else {
      this.result.querySelector("progress").value = fraction;
      this.result.querySelector("[role=status]").textContent = words.textContent;
    }
    part("import-warning").textContent = visible(warnings.at(-1) ?? "");
    this.timer = setTimeout(() => id === this.id && this.frame.attempt(() => this.follow()), AGAIN_MS);
  }

  drawResult(state) {
    this.forms.inert = false;
    if (state.state === "interrupted") this.result.replaceChildren(h("p", { class: "problem" }, T.importing.interrupted));
    else if (state.error) this.result.replaceChildren(problemBox({ title: T.importing.failed, detail: state.error }));
    else if (state.report) this.result.replaceChildren(report(this.id, state.report, this.frame));
    else this.result.replaceChildren();
  }

  // Earlier imports

  async listPast() {
    const listed = await api.look("imports");
    const when = (one) => instant(one.created);
    const acts = (one) => h("div", { class: "buttons small" },
      button(T.importing.open, () => this.frame.attempt(() => this.load(one.id)), { "aria-label": T.importing.openOf(when(one)) }),
      button(T.importing.remove, () => this.frame.attempt(async () => {
        if (!(await askToRemove(T.importing.sure))) return;
        await api.removeImport(one.id);
        await this.listPast();
      }), { "aria-label": T.importing.removeOf(when(one)) }));
    this.past.replaceChildren(...(listed.length
      ? [h("h2", {}, T.importing.earlier), table(T.importing.earlier, T.importing.earlierColumns, listed.map((one) => [when(one), one.owner, number(one.files.length), T.importing.states[one.state], acts(one)]))]
      : []));
  }
}
