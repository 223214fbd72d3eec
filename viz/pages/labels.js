// Names and values beside the stations of a map, where there is room.

/** Height of a line and width of a letter, with some air [px]. */
const LINE_PX = 16;
const LETTER_PX = 7.2;
const GAP_PX = 3;
/** Least distance of a label from other stations and from other labels, so that it is clear whose it is [px]. */
const APART_PX = 8;
/** Labels at most, and stations from which discs may be covered by the labels of others. */
const MOST = 250;
const MANY = 300;
/** Sides of a disc in the order in which they are tried: where a label begins, and how it is aligned there. */
const SIDES = [
  { align: "left", baseline: "middle", right: 1, down: 0 },
  { align: "right", baseline: "middle", right: -1, down: 0 },
  { align: "center", baseline: "bottom", right: 0, down: -1 },
  { align: "center", baseline: "top", right: 0, down: 1 },
];

/**
 * Place labels so that none overlaps another, a disc or an obstacle; extremes first, with their names if these fit.
 *
 * `discs` hold lon, lat, size [px], text, name, value and isShown; returns columns of the labels' source.
 */
export function placeLabels(discs, plot, obstacles) {
  const { x_range: across, y_range: upwards, frame_width: wide, frame_height: high } = plot;
  const points = discs.map((disc) => ({
    ...disc,
    left: ((disc.lon - across.start) / (across.end - across.start)) * wide,
    top: ((upwards.end - disc.lat) / (upwards.end - upwards.start)) * high,
  })).filter(({ left, top }) => left > 0 && left < wide && top > 0 && top < high);
  const taken = [...obstacles];
  const others = points.length <= MANY ? points.map((point) => ({ point, box: wider(boxOf(point)) })) : [];
  const columns = { x: [], y: [], text: [], right: [], down: [], align: [], baseline: [] };
  for (const point of byInterest(points)) {
    if (columns.x.length >= MOST) break;
    const label = [`${point.name || point.station}  ${point.text}`, point.text].flatMap((text) => SIDES.map((side) => ({ text, ...side, box: labelBox(point, text, side) })))
      .find(({ box }) => box.left >= 0 && box.right <= wide && box.top >= 0 && box.bottom <= high && !taken.some((other) => overlap(box, other)) && !others.some((other) => other.point !== point && overlap(box, other.box)));
    if (!label) continue;
    taken.push(wider(label.box));
    const away = point.size / 2 + GAP_PX;
    columns.x.push(point.lon);
    columns.y.push(point.lat);
    columns.text.push(label.text);
    columns.right.push(label.right * away);
    columns.down.push(label.down * away);
    columns.align.push(label.align);
    columns.baseline.push(label.baseline);
  }
  return columns;
}

/** The lowest and the highest value first, then the others from both ends to the middle, then values without a colour. */
function byInterest(points) {
  const ordered = points.filter(({ isShown }) => isShown).sort((one, other) => one.value - other.value);
  return [...ordered.map((_, at) => (at % 2 ? ordered[ordered.length - (at + 1) / 2] : ordered[at / 2])), ...points.filter(({ isShown }) => !isShown)];
}

const boxOf = ({ left, top, size }) => ({ left: left - size / 2, right: left + size / 2, top: top - size / 2, bottom: top + size / 2 });

const wider = ({ left, right, top, bottom }) => ({ left: left - APART_PX, right: right + APART_PX, top, bottom });

function labelBox({ left, top, size }, text, { right, down }) {
  const away = size / 2 + GAP_PX;
  const width = text.length * LETTER_PX;
  const from = left + right * away - (right > 0 ? 0 : right < 0 ? width : width / 2);
  const above = top + down * away - (down > 0 ? 0 : down < 0 ? LINE_PX : LINE_PX / 2);
  return { left: from, right: from + width, top: above, bottom: above + LINE_PX };
}

const overlap = (one, other) => one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom;
