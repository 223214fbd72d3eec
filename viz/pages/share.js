// Sharing what a page shows: pinned to a board, as a short link, and as a line that embeds it.

import * as api from "./api.js";
import { ask } from "./dialog.js";
import { button, choice, copy, field, h } from "./dom.js";
import { following, LENGTHS, lengthWords, panelOf, spanOf } from "./panels.js";
import { T } from "./text.js";

const KINDS = { explore: ["picture", "number"], stations: ["series", "number"] };
const [WIDTH_PX, HEIGHT_PX] = [800, 500];
const MARGIN_PX = 8;
const USUAL_LENGTH = "1day";
/** The board that was chosen last. */
let lastBoard = "";

const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll('"', "&quot;").replaceAll("<", "&lt;");

export class Share {
  /** Buttons of a page; what they share is its address. */
  constructor(frame, { page, mayPin = true }) {
    Object.assign(this, { frame, page });
    /** What follows "#" in the address that is shared, and its title, where it has one. */
    this.address = () => location.hash.slice(1);
    this.title = () => "";
    this.words = h("p", { class: "quiet", role: "status" });
    this.text = h("pre", { tabindex: 0 });
    // It lies over the page, which stays where it is; Escape and a press elsewhere close it as well.
    this.result = h("div", { class: "shared", popover: "auto" }, button("✕", () => this.result.hidePopover(), { class: "icon", "aria-label": T.share.close, title: T.share.close }), this.words, this.text);
    const act = (what) => () => this.frame.attempt(what);
    this.element = h("div", { class: "share", hidden: !frame.may("write") },
      h("div", { class: "buttons small", role: "group", "aria-label": T.share.group },
        mayPin ? button(T.share.pin, act(() => this.pin()), { id: `pin-${page}` }) : null,
        button(T.share.link, act(() => this.link()), { id: `link-of-${page}` }),
        button(T.share.embed, act(() => this.embed()), { id: `embed-${page}`, title: T.share.embedHint })),
      this.result);
    if (frame.isEmbedded) this.element.hidden = true;
  }

  /** A short link to what is shown: the server keeps its address. */
  async make({ address = this.address(), title = this.title() } = {}) {
    return api.createLink({ address, ...(title ? { title } : {}) });
  }

  async link() {
    const { name } = await this.make();
    await this.copy(new URL(`l/${name}`, location.href.split(/[?#]/)[0]).href);
  }

  /** The line that embeds what is shown, or something else of the page. */
  async embed(other) {
    const { name, title } = await this.make(other);
    const address = new URL(`embed/${name}`, location.href.split(/[?#]/)[0]).href;
    await this.copy(`<iframe src="${address}" title="${escaped(title || document.title)}" width="${WIDTH_PX}" height="${HEIGHT_PX}" loading="lazy"></iframe>`);
  }

  async copy(text) {
    this.text.textContent = text;
    this.open(text);
    await copy(text, this.result);
  }

  /** Open what came of it: words, and below them a text where there is one. */
  open(text) {
    this.text.hidden = !text;
    if (this.result.matches(":popover-open")) return;
    this.result.showPopover();
    this.follow();
  }

  /** Keep what came of it beside the buttons, which move as the page below it is drawn, until it is closed. */
  follow() {
    if (!this.result.matches(":popover-open")) return;
    this.place();
    requestAnimationFrame(() => this.follow());
  }

  /** Put what came of it below the buttons, or above them where there is room only there, inside the window. */
  place() {
    const [at, { offsetWidth: wide, offsetHeight: high }] = [this.element.getBoundingClientRect(), this.result];
    this.result.style.left = `${Math.max(MARGIN_PX, Math.min(at.right - wide, window.innerWidth - wide - MARGIN_PX))}px`;
    const isAbove = at.bottom + high + MARGIN_PX > window.innerHeight && at.top - high >= MARGIN_PX;
    this.result.style.top = `${isAbove ? at.top - high : at.bottom}px`;
  }

  async pin() {
    const panel = panelOf(this.page, new URLSearchParams(location.hash.split(/\?(.*)/s)[1] ?? ""));
    if (!panel) throw new api.Problem(T.share.nothing, T.share.nothingAdvice);
    const boards = await api.look("boards");
    const board = await askForBoard(boards, panel, KINDS[this.page]);
    if (!board) return;
    lastBoard = board.name;
    const open = h("a", { href: `#boards?${new URLSearchParams({ board: board.name })}`, on: { click: () => this.result.hidePopover() } }, T.share.open);
    this.words.replaceChildren(T.share.pinned(board.title), " ", open);
    this.open("");
  }
}

/** Ask where and how a panel is pinned, and pin it; resolves with the board, or with null where that was cancelled. */
function askForBoard(boards, panel, kinds) {
  const span = panel.query ? spanOf(panel.query) : panel.last ?? "";
  const lengths = [...new Set([...LENGTHS, ...(span ? [span] : [])])];
  const chosen = { board: boards.some(({ name }) => name === lastBoard) ? lastBoard : (boards[0]?.name ?? "") };
  const select = (id, pairs, value, on = () => {}) => choice(id, pairs, on, value);
  const title = h("input", { id: "pin-board-title", type: "text", maxlength: 200 });
  const titleField = field(T.share.boardTitle, title);
  const board = select("pin-board", [...boards.map((one) => [one.name, one.title]), ["", T.share.newBoard]], chosen.board, (name) => (titleField.hidden = Boolean(name)));
  const panelTitle = h("input", { id: "pin-title", type: "text", maxlength: 200 });
  const reduce = select("pin-reduce", Object.entries(T.panels.reductions), "latest");
  const reduceField = field(T.share.reduce, reduce);
  const kind = select("pin-kind", kinds.map((name) => [name, T.panels.kinds[name]]), kinds[0], (name) => (reduceField.hidden = name !== "number"));
  const last = select("pin-last", [...lengths.map((length) => [length, T.share.follow(lengthWords(length))]), ...(panel.query ? [["", T.share.fixed]] : [])], span || USUAL_LENGTH);
  const columns = select("pin-columns", Object.entries(T.share.widths), "1");
  titleField.hidden = Boolean(chosen.board);
  reduceField.hidden = true;
  const pin = async () => {
    const made = { ...(last.value ? following(panel, last.value) : panel), kind: kind.value, title: panelTitle.value.trim(), columns: Number(columns.value) };
    if (kind.value === "number") {
      delete made.view;
      made.reduce = reduce.value;
    }
    if (board.value) return addPanel(board.value, made);
    if (!title.value.trim()) throw new api.Problem(T.problems.failed, T.share.noTitle);
    return api.createBoard({ title: title.value.trim(), panels: [made] });
  };
  return ask(T.share.title, [field(T.share.board, board), titleField, field(T.share.panelTitle, panelTitle, T.share.panelTitleHint), field(T.share.kind, kind), reduceField, field(T.share.time, last), field(T.share.columns, columns)], { submit: T.share.submit, act: pin });
}

/** Add a panel to a board as it is now; once more where somebody else changed it at the same moment. */
async function addPanel(name, panel, isAgain = false) {
  const board = await api.lookAtBoard(name);
  try {
    return await api.changeBoard({ name, title: board.title, version: board.version, changed: board.changed, panels: [...board.panels, panel] });
  } catch (problem) {
    if (problem.status !== 409 || isAgain) throw problem;
    return addPanel(name, panel, true);
  }
}
