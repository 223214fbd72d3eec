// Boards: panels that follow the newest data, arranged, shared, and shown on a wall.

import * as api from "./api.js";
import { dragPanels, fillWindow } from "./arranging.js";
import { askForText, askToRemove } from "./dialog.js";
import { button, choice, duration, empty, field, h, instant, visible } from "./dom.js";
import { Follower, Poll } from "./follow.js";
import { PanelView } from "./panel.js";
import { panelOf } from "./panels.js";
import { Share } from "./share.js";
import { T } from "./text.js";

/** Panels that ask at a time: a browser has six connections to a server, and events hold one each. */
const AT_ONCE = 3;
const TOLD_MS = 1000;
/** How often it is looked whether somebody else changed the board [ms]. */
const BOARD_MS = 15_000;

export function open(root, frame) {
  return new Boards(root, frame);
}

class Boards {
  constructor(root, frame) {
    Object.assign(this, { root, frame, board: null, views: [], running: 0, queue: [] });
    this.follower = new Follower({ news: (news, since) => this.onNews(news, since), trouble: (problem) => this.onTrouble(problem) });
    this.poll = new Poll(() => this.lookAgain(), BOARD_MS);
    this.title = h("h2", { id: "board-title", tabindex: -1 });
    this.newest = h("p", { id: "board-newest", class: "quiet" });
    this.clock = h("p", { id: "board-clock" });
    this.grid = h("div", { id: "board-grid", class: "board" });
    this.hint = h("p", { class: "quiet", hidden: true }, T.boards.arrangeHint);
    this.share = new Share(frame, { page: "boards", mayPin: false });
    this.bar = h("div", { id: "board-bar" });
    this.leaveButton = button("✕", () => this.leaveWall(), { id: "wall-leave", class: "icon", "aria-label": T.boards.leaveWall, title: T.boards.leaveWall });
    root.append(h("div", { id: "board-head" }, this.title, this.newest, this.clock, this.bar, this.leaveButton), this.hint, this.grid);
    document.addEventListener("fullscreenchange", () => {
      if (!document.fullscreenElement && this.isFull) this.leaveWall();
    });
    window.addEventListener("resize", () => {
      if (this.isWall || frame.isEmbedded) requestAnimationFrame(() => this.fitAll());
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.isWall) this.leaveWall();
    });
    dragPanels(this.grid, { views: () => (this.isArranged ? this.views : []), place: (view, to) => this.place(view, to), end: () => this.keep() });
  }

  // What is shown

  async show(params) {
    this.follower.start();
    clearInterval(this.timer);
    this.timer = setInterval(() => this.tell(), TOLD_MS);
    this.poll.start().catch(() => {});
    const isSingle = params.has("page");
    this.boards = isSingle ? [] : await this.list();
    if (!this.boards) return;
    this.only = params.get("panel") ?? "";
    const board = isSingle ? this.single(params) : this.boards.find((one) => one.name === params.get("board")) ?? this.boards[0] ?? null;
    const wanted = params.get("board");
    if (wanted && board?.name !== wanted) this.frame.say(new api.Problem(T.boards.unknown(wanted), T.boards.unknownAdvice));
    this.setWall(params.get("wall") === "1");
    this.showBoard(board);
    this.note();
  }

  /** All boards; null where the server keeps none. */
  async list() {
    try {
      return await api.look("boards");
    } catch (problem) {
      if (problem.status !== 404) throw problem;
      this.grid.replaceChildren(empty(T.boards.off, T.boards.offAdvice));
      return null;
    }
  }

  /** A board of one panel that is kept nowhere: what an address of Explore or Stations shows. */
  single(params) {
    const panel = panelOf(params.get("page"), new URLSearchParams(params.get("of")));
    return { name: "", title: "", version: 0, panels: panel ? [panel] : [] };
  }

  showBoard(board) {
    const isSame = board && this.board && board.name === this.board.name && board.version === this.board.version && this.shownOnly === this.only;
    if (!isSame || !board?.name) {
      this.isArranged = false;
      this.grid.classList.remove("arranged");
      this.hint.hidden = true;
      this.clear();
      this.board = board;
      this.shownOnly = this.only;
      this.build();
    }
    this.buildBar();
    this.fitWall();
  }

  clear() {
    for (const view of this.views) view.remove();
    this.views = [];
    this.queue = [];
    this.grid.replaceChildren();
  }

  build() {
    const { board } = this;
    this.title.textContent = visible(board?.title ?? "");
    this.title.hidden = !board?.title;
    this.grid.setAttribute("aria-label", T.boards.panels(board?.title ?? ""));
    this.grid.setAttribute("role", "group");
    if (!board) {
      this.grid.replaceChildren(empty(T.boards.none, T.boards.noneAdvice));
      return;
    }
    const shown = board.panels.filter((panel) => !this.only || panel.id === this.only);
    if (!shown.length) {
      this.grid.replaceChildren(this.only ? empty(T.boards.unknownPanel, "") : empty(T.boards.empty, T.boards.emptyAdvice));
      return;
    }
    const mayArrange = this.mayWrite && board.name && !this.only;
    for (const panel of shown) this.add(panel, mayArrange);
  }

  add(panel, mayArrange) {
    const on = { move: (view, by) => this.move(view, by), resize: (view) => this.resize(view), rename: (view, title) => this.rename(view, title), embed: (view) => this.embed(view), remove: (view) => this.remove(view) };
    const view = new PanelView(panel, this.frame, (act) => this.turn(act), mayArrange ? on : null);
    view.element.addEventListener("keydown", (event) => this.onKey(event, view));
    this.views.push(view);
    this.grid.append(view.element);
    if (this.follower.news) view.follow(this.follower.news, Date.now());
  }

  get mayWrite() {
    return this.frame.may("write") && !this.frame.isEmbedded;
  }

  buildBar() {
    const { board, boards } = this;
    const held = document.activeElement?.id;
    const chosen = boards.length ? field(T.boards.board, choice("board-choice", boards.map((one) => [one.name, one.title]), (name) => this.frame.go("boards", { board: name }), board?.name)) : null;
    const changes = this.mayWrite ? [
      button(T.boards.create, () => this.frame.attempt(() => this.create()), { id: "board-create" }),
      board ? button(this.isArranged ? T.boards.arranged : T.boards.arrange, () => this.arrange(!this.isArranged), { id: "board-arrange", "aria-pressed": String(Boolean(this.isArranged)) }) : null,
      board ? button(T.boards.rename, () => this.frame.attempt(() => this.renameBoard()), { id: "board-rename" }) : null,
      board ? button(T.boards.remove, () => this.frame.attempt(() => this.removeBoard()), { id: "board-remove" }) : null,
    ] : [];
    const wall = board ? button(T.boards.wall, () => this.enterWall(), { id: "board-wall", class: "primary" }) : null;
    this.bar.replaceChildren(...[chosen, h("div", { class: "buttons small" }, wall, changes), board ? this.share.element : null].filter(Boolean));
    this.share.address = () => `boards?${this.address()}`;
    this.share.title = () => board?.title ?? "";
    if (held) document.getElementById(held)?.focus();
  }

  address() {
    return new URLSearchParams({ board: this.board?.name ?? "", ...(this.only ? { panel: this.only } : {}) });
  }

  note() {
    if (!this.board?.name) return;
    const params = this.address();
    if (this.isWall) params.set("wall", "1");
    this.frame.note("boards", params);
  }

  // Following

  onNews(news, since) {
    for (const view of this.views) if (view.isConcerned(news)) view.follow(news, since);
    this.tell();
  }

  onTrouble(problem) {
    if (problem) this.goneAt ??= Date.now();
    else this.goneAt = null;
    this.tell();
  }

  /** Run what asks the server, a few at a time, in the order in which they came. */
  turn(act) {
    return new Promise((resolve, reject) => {
      this.queue.push(() => act().then(resolve, reject));
      this.serve();
    });
  }

  serve() {
    while (this.running < AT_ONCE && this.queue.length) {
      this.running += 1;
      this.queue.shift()().finally(() => {
        this.running -= 1;
        this.serve();
      });
    }
  }

  /** Ages and the clock, each second; nothing is asked. */
  tell() {
    for (const view of this.views) view.tellAge();
    this.clock.textContent = T.boards.clock(new Date().toISOString().slice(11, 19));
    const names = new Set(this.views.flatMap((view) => [...view.variables]));
    const times = [...names].map((name) => Date.parse(this.follower.news?.newest[name] ?? "")).filter(Number.isFinite);
    this.newest.classList.toggle("bad", Boolean(this.goneAt));
    if (this.goneAt) this.newest.textContent = T.boards.gone(duration(Math.max(1, (Date.now() - this.goneAt) / 1000)));
    else if (!times.length) this.newest.textContent = this.follower.news && names.size ? T.boards.noData : "";
    else {
      const newest = Math.max(...times);
      const age = Date.now() - newest;
      this.newest.textContent = T.boards.newest(instant(new Date(newest).toISOString()), age > 0 ? duration(age / 1000) : "");
    }
  }

  /** Show the board as it is, where somebody else changed it. */
  async lookAgain() {
    if (!this.board?.name || this.isArranged) return;
    const board = await api.lookAtBoard(this.board.name);
    if (board.name === this.board?.name && board.version !== this.board.version && !this.isArranged) this.showBoard(board);
  }

  // Changes

  /** Store a change of the board, made of it as it is; where somebody else changed it meanwhile, show that. */
  async store(changed) {
    const { name } = this.board;
    try {
      const board = await api.changeBoard({ name, version: this.board.version, changed: this.board.changed, title: changed.title ?? this.board.title, panels: changed.panels ?? this.board.panels });
      this.board = board;
      this.boards = this.boards.map((one) => (one.name === name ? board : one));
    } catch (problem) {
      if (problem.status !== 409) throw problem;
      this.showBoard(await api.lookAtBoard(name));
      throw new api.Problem(T.boards.changedMeanwhile, T.boards.changedAdvice, 409);
    }
  }

  /** Store the panels as they stand on the page; one change after the other. */
  keep() {
    const act = () => this.frame.attempt(() => this.store({ panels: this.views.map((view) => view.panel) }));
    this.keeping = (this.keeping ?? Promise.resolve()).then(act);
    return this.keeping;
  }

  arrange(isArranged) {
    this.isArranged = isArranged;
    this.grid.classList.toggle("arranged", isArranged);
    this.hint.hidden = !isArranged;
    for (const view of this.views) {
      view.element.draggable = isArranged;
      view.element.toggleAttribute("tabindex", isArranged);
      if (isArranged) view.element.tabIndex = 0;
    }
    this.buildBar();
    this.fitAll();
  }

  onKey(event, view) {
    const by = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    if (!by || !event.altKey || !this.isArranged) return;
    event.preventDefault();
    this.move(view, by);
  }

  /** Move a panel by so many places. */
  move(view, by) {
    const held = document.activeElement;
    const from = this.views.indexOf(view);
    this.place(view, Math.max(0, Math.min(from + by, this.views.length - 1)));
    // An element that is moved in the page loses the focus.
    held?.focus();
    this.keep();
  }

  place(view, to) {
    this.views.splice(this.views.indexOf(view), 1);
    this.views.splice(to, 0, view);
    const next = this.views[to + 1];
    if (next) this.grid.insertBefore(view.element, next.element);
    else this.grid.append(view.element);
  }

  resize(view) {
    view.panel = { ...view.panel, columns: view.panel.columns === 2 ? 1 : 2 };
    view.element.dataset.columns = String(view.panel.columns);
    view.label();
    this.frame.attempt(() => view.redraw());
    this.keep();
  }

  rename(view, title) {
    view.panel = { ...view.panel, title };
    if (title) view.name = title;
    view.label();
    this.keep();
  }

  /** The line that embeds one panel. */
  embed(view) {
    const address = `boards?${new URLSearchParams({ board: this.board.name, panel: view.panel.id })}`;
    this.frame.attempt(() => this.share.embed({ address, title: view.name }));
  }

  async remove(view) {
    const at = this.views.indexOf(view);
    this.views.splice(at, 1);
    view.remove();
    const next = this.views[Math.min(at, this.views.length - 1)];
    (next?.buttons.remove ?? this.title).focus();
    await this.keep();
    if (!this.views.length) this.build();
  }

  async create() {
    const title = await askForText(T.boards.createTitle, "");
    if (!title) return;
    const { name } = await api.createBoard({ title });
    this.frame.go("boards", { board: name });
  }

  async renameBoard() {
    const title = await askForText(T.boards.renameTitle, this.board.title);
    if (!title || title === this.board.title) return;
    await this.store({ title });
    this.title.textContent = visible(title);
    this.buildBar();
  }

  async removeBoard() {
    if (!(await askToRemove(T.boards.sure(this.board.title)))) return;
    await api.removeBoard(this.board.name);
    this.arrange(false);
    this.board = null;
    this.frame.go("boards");
    await this.show(new URLSearchParams());
  }

  // The wall

  async enterWall() {
    this.arrange(false);
    this.setWall(true);
    this.note();
    // Where a browser does not allow it, the board fills the window.
    this.isFull = await document.documentElement.requestFullscreen?.().then(() => true, () => false);
    // So that the screen of a wall does not go dark, where a browser can see to that.
    this.lamp = await navigator.wakeLock?.request("screen").catch(() => null);
    this.fitAll();
  }

  leaveWall() {
    this.isFull = false;
    this.lamp?.release().catch(() => {});
    if (document.fullscreenElement) document.exitFullscreen().catch(() => {});
    this.setWall(false);
    this.note();
    document.getElementById("board-wall")?.focus();
    this.fitAll();
  }

  setWall(isWall) {
    this.isWall = isWall;
    document.documentElement.toggleAttribute("data-wall", isWall);
    // On a wall its title is that of the page, whose header is away.
    this.title.setAttribute("role", "heading");
    this.title.setAttribute("aria-level", isWall ? "1" : "2");
    this.fitWall();
  }

  /** On a wall, and in a frame of another page, the panels fill the window. */
  fitWall() {
    fillWindow(this.grid, this.views, this.isWall || this.frame.isEmbedded);
  }

  fitAll() {
    this.fitWall();
    for (const view of this.views) if (view.pane) view.fit();
  }

  // What the frame asks of a page

  async redraw() {
    this.fitWall();
    await Promise.all(this.views.map((view) => view.redraw()));
  }

  hide() {
    this.follower.stop();
    this.poll.stop();
    clearInterval(this.timer);
    this.setWall(false);
  }

  leave() {
    for (const view of this.views) view.question?.stop().catch(() => {});
  }
}
