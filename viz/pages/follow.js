// Following the archive: one poll of its newest snapshot, as long as the page is looked at.

import * as api from "./api.js";

/** An answer without news is a few bytes: its tag is the same. */
const AGAIN_MS = 500;
const TROUBLED_MS = 2000;

export class Follower {
  /** `on` holds news, called with the newest snapshot and since when it counts, and trouble, with a problem or null. */
  constructor(on) {
    this.on = on;
    this.news = null;
    this.seenAt = 0;
    document.addEventListener("visibilitychange", () => this.wake());
  }

  start() {
    this.isOn = true;
    this.seenAt = Date.now();
    this.wake();
  }

  stop() {
    this.isOn = false;
    clearTimeout(this.timer);
  }

  /** Poll at once, unless the tab is hidden: then nothing is asked until it is shown. */
  wake() {
    clearTimeout(this.timer);
    if (!this.isOn || document.hidden) {
      this.isAsleep = true;
      return;
    }
    if (this.isAsleep) this.seenAt = Date.now();
    this.isAsleep = false;
    this.poll();
  }

  poll() {
    this.polling ??= this.look().finally(() => {
      this.polling = null;
      clearTimeout(this.timer);
      if (this.isOn && !document.hidden) this.timer = setTimeout(() => this.poll(), this.isTroubled ? TROUBLED_MS : AGAIN_MS);
    });
  }

  async look() {
    try {
      const news = await api.lookForNews(this.news?.id);
      this.isTroubled = false;
      this.on.trouble(null);
      if (!this.isOn || news.id === this.news?.id) return;
      this.news = news;
      // What was committed while nobody looked is late from the moment that somebody does.
      this.on.news(news, Math.max(Date.parse(news.time), this.seenAt));
    } catch (problem) {
      this.isTroubled = true;
      this.on.trouble(problem);
    }
  }
}
