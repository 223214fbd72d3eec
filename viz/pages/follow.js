// Following the server: it is asked again and again, as long as the page is looked at.

import * as api from "./api.js";

/** How often the newest snapshot is asked for: an answer without news is a few bytes, as its tag is the same. */
const NEWS_MS = 500;
/** So many times as long passes from one look to the next where the last one failed. */
const TROUBLED = 4;

export class Poll {
  /** `look` asks once; from its end to the next one `pauseMs` pass. */
  constructor(look, pauseMs) {
    Object.assign(this, { look, pauseMs });
    this.onVisibility = () => this.wake();
  }

  /** Look now, and again until it is stopped; resolve with the first look. */
  start() {
    this.isOn = true;
    document.addEventListener("visibilitychange", this.onVisibility);
    return this.now();
  }

  stop() {
    this.isOn = false;
    clearTimeout(this.timer);
    document.removeEventListener("visibilitychange", this.onVisibility);
  }

  /** One look at a time: a slow answer must not be overtaken by the next. */
  now() {
    clearTimeout(this.timer);
    this.looking ??= this.turn().finally(() => {
      this.looking = null;
      this.plan();
    });
    return this.looking;
  }

  async turn() {
    this.hasFailed = true;
    await this.look();
    this.hasFailed = false;
  }

  /** Have the next look follow; in a hidden tab nothing is asked until it is shown. */
  plan() {
    clearTimeout(this.timer);
    if (this.isOn && !document.hidden) this.timer = setTimeout(() => this.wake(), this.pauseMs * (this.hasFailed ? TROUBLED : 1));
  }

  wake() {
    clearTimeout(this.timer);
    // What fails now may work the next time; the frame says where the server is gone.
    if (!document.hidden) this.now().catch(() => {});
  }
}

/** Follows the archive: its newest snapshot. */
export class Follower {
  /** `on` holds news, called with the newest snapshot and since when it counts, and trouble, with a problem or null. */
  constructor(on) {
    this.on = on;
    this.news = null;
    this.poll = new Poll(() => this.look(), NEWS_MS);
    document.addEventListener("visibilitychange", () => this.see());
  }

  /** What was committed while nobody looked is late from the moment that somebody does. */
  see() {
    this.seenAt = Date.now();
  }

  start() {
    this.see();
    this.poll.start().catch(() => {});
  }

  stop() {
    this.poll.stop();
  }

  async look() {
    try {
      const news = await api.lookForNews(this.news?.id);
      this.on.trouble(null);
      if (!this.poll.isOn || news.id === this.news?.id) return;
      this.news = news;
      this.on.news(news, Math.max(Date.parse(news.time), this.seenAt));
    } catch (problem) {
      this.on.trouble(problem);
      throw problem;
    }
  }
}
