// What Explore says of what is seen, how it is computed, and how pictures are compared; `text.js` has the rest.

import { unitText } from "./units.js";

/** Lengths of time as adjectives of a statistic. */
const EVERY = { "10min": "ten-minute", "1h": "hourly", "6h": "six-hourly", "1day": "daily", month: "monthly", season: "seasonal", hour_of_day: "hour-of-day", day_of_year: "day-of-year", month_of_year: "month-of-year" };
const NOUNS = { mean: "means", min: "minima", max: "maxima", sum: "sums", count: "counts", median: "medians", sample: "samples", variance: "variances", standard_deviation: "standard deviations", circular_mean: "mean directions", rain_accumulation: "rain sums", trend: "trends", quantile: "quantiles" };
const VERBS = { mean: "averaged", min: "of which the lowest is taken", max: "of which the highest is taken", sum: "summed", count: "counted", median: "of which the median is taken", circular_mean: "averaged", rain_accumulation: "summed" };
const METHODS = { auto: "by the method that suits the stations best", recipe: "as suits the variable", ordinary_kriging: "by ordinary kriging", universal_kriging: "by universal kriging", simple_kriging: "by simple kriging", inverse_distance: "by inverse distances", nearest: "from the nearest station", natural_neighbour: "by natural neighbours", linear: "linearly" };
const words = (name) => String(name).replaceAll("_", " ");

export const EXPLORE = {
  see: {
    title: "What you see",
    time: "Time",
    earlier: "Earlier by the same length",
    later: "Later by the same length",
    dates: "Dates",
    datesShown: "From … until",
    datesWritten: (from, until) => `That is ${from} to ${until}.`,
    allReadings: "All readings",
    place: "Place",
    everywhere: "All stations",
    asShown: "What the map shows",
    mapArea: "Map this area",
    size: (width, height) => `${width} × ${height} km`,
    sizeOfMetres: (width, height) => `${width} × ${height} m`,
    statistic: "Statistic",
    statistics: { mean: "Mean", min: "Lowest", max: "Highest", median: "Median", sum: "Sum", count: "Number of values", standard_deviation: "Standard deviation", circular_mean: "Mean direction", rain_accumulation: "Rain sum", sample: "A sample" },
    asMeasured: "As measured",
    every: "Every",
    spans: { all: "Whole time", "10min": "10 minutes", "1h": "Hour", "6h": "6 hours", "1day": "Day", hour_of_day: "Hour of the day", month: "Month" },
    controls: "Change what you see",
    close: "✕ Back to the picture",
    how: "How it is computed",
    about: "About this picture",
    toAbout: "Notes, files, table ↓",
  },

  sentence: {
    stations: (count) => (count === 1 ? "1 station" : `${count} stations`),
    some: (count) => (count === 1 ? "1 chosen station" : `${count} chosen stations`),
    readings: (stations) => `Readings of ${stations}`,
    statistic: (name, every) => `${every && every !== "all" ? `${EVERY[every] ?? every} ` : ""}${NOUNS[name] ?? words(name)}`,
    of: (what, stations, length) => `${what[0].toUpperCase()}${what.slice(1)} of ${stations}${length ? ` over ${length}` : ""}`,
    between: (low, high) => `between ${low} and ${high}`,
    converted: (name) => `converted by ${words(name)}`,
    mapped: (method) => `mapped ${METHODS[method] ?? `by ${words(method)}`}`,
    inTime: "with gaps in time filled",
    then: (name, every, length) => `${VERBS[name] ?? `reduced to ${NOUNS[name] ?? words(name)}`} ${every === "all" ? `over ${length}` : every ? `to ${EVERY[every] ?? every} values` : "in space"}`,
    merged: (name) => `with the ${words(name)} from another query`,
    wholeTime: "the whole time",
    days: (count) => (count === 1 ? "one day" : `${count} days`),
    hours: (count) => (count === 1 ? "one hour" : `${count} hours`),
  },

  looking: {
    title: "Colours and cells",
    palette: "Colours",
    palettes: { sequential: "Viridis", cividis: "Cividis", inferno: "Inferno", plasma: "Plasma" },
    paletteHint: "Each brightens evenly; directions and differences keep colours of their own.",
    span: "Their scale",
    spans: { all: "The same for all times", picture: "Fitted to this picture" },
    hatch: "Uncertain cells",
    noHatch: "Not marked",
    hatchAbove: (percent) => `Hatched above ${percent} % of the scale`,
    hatched: (percent, limit, unit) => ` Hatched: ${percent} % of the cells, with a standard error above ${limit} ${unitText(unit)}.`,
    noHatchYet: " Cells are hatched once all are computed.",
    beyond: "Cells beyond the stations",
    extrapolated: { veil: "Faded, as extrapolated", same: "Like the others" },
    rangeOne: "the values of this picture alone",
    finer: "Refine the cells, and follow the map, while I look",
    compare: "Compared",
    compares: { beside: "Beside each other", swipe: "By a swipe" },
    swipe: "Divider",
    swipeWords: (percent) => `${percent} %`,
    notSwiped: "They show other places, so they stand beside each other.",
    noTime: "The query has no time of its own, so none comes before it: choose dates first.",
    before: "The time before",
    yearBefore: "The same time a year earlier",
    method: (name) => `Mapped ${METHODS[name] ?? `by ${words(name)}`}`,
    keys: "Arrows move the map, + and − zoom, Enter shows the cell in the middle over time.",
    closeCell: "Close the series of the cell",
    valueAt: (value, error, unit) => `${value}${error ? ` ± ${error}` : ""} ${unitText(unit)}`,
  },

  finer: {
    asking: (across, up) => `Sharpening to ${across} × ${up} cells …`,
    done: (across, up) => `Sharpened to ${across} × ${up} cells.`,
  },
};
