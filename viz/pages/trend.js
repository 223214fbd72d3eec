// A small line of values over time, without axes: how a number came to be.

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT, RIM] = [200, 48, 3];

export class Trend {
  constructor() {
    this.element = document.createElementNS(SVG, "svg");
    this.line = document.createElementNS(SVG, "path");
    for (const [name, value] of Object.entries({ class: "trend", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" })) this.element.setAttribute(name, value);
    this.element.append(this.line);
  }

  /** Draw values at times [ms]; `words` describe the line. Missing values are gaps. */
  draw(times, values, words) {
    const finite = values.filter(Number.isFinite);
    const [low, high] = [Math.min(...finite), Math.max(...finite)];
    const across = (time) => ((time - times[0]) / Math.max(times[times.length - 1] - times[0], 1)) * WIDTH;
    const up = (value) => HEIGHT - RIM - ((value - low) / (high - low || 1)) * (HEIGHT - 2 * RIM);
    let isPen = false;
    const path = values.map((value, at) => {
      const step = Number.isFinite(value) ? `${isPen ? "L" : "M"}${across(times[at]).toFixed(1)} ${up(value).toFixed(1)}` : "";
      isPen = Boolean(step);
      return step;
    });
    this.line.setAttribute("d", path.join(""));
    this.element.setAttribute("aria-label", words);
    this.element.toggleAttribute("hidden", finite.length < 2);
  }
}
