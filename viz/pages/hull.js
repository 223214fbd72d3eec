// The convex hull of the stations that a map is made of: beyond it values are extrapolated.

import * as api from "./api.js";

/** Hulls by snapshot, variable and selected stations: one that is shown again and again is asked for once. */
const known = new Map();
/** Hulls that are kept: a page may be open for weeks. */
const MOST = 50;

/** Area that is none but rounding [degree²]: a tenth of a metre squared. */
const NOTHING = 1e-12;

/** Twice the area of a triangle, positive where its corners run anticlockwise. */
const turn = ([ax, ay], [bx, by], [cx, cy]) => (bx - ax) * (cy - ay) - (by - ay) * (cx - ax);

/** Corners of the convex hull of points, anticlockwise (Andrew's monotone chain); none of points on one line. */
export function hullOf(points) {
  const ordered = [...points].sort(([ax, ay], [bx, by]) => ax - bx || ay - by);
  const chain = (all) => {
    const corners = [];
    for (const point of all) {
      while (corners.length > 1 && turn(corners.at(-2), corners.at(-1), point) <= NOTHING) corners.pop();
      corners.push(point);
    }
    return corners.slice(0, -1);
  };
  const corners = [...chain(ordered), ...chain([...ordered].reverse())];
  return corners.length > 2 ? corners : [];
}

/** Whether a point lies in a hull or on its edge. */
export const isWithin = (hull, point) => hull.length > 0 && hull.every((corner, at) => turn(corner, hull[(at + 1) % hull.length], point) >= -NOTHING);

/** Share of the cells of a surface whose centres lie beyond a hull: each row crosses it in one stretch. */
export function shareBeyond(hull, surface) {
  const [row, column] = surface.dims;
  const across = surface[column];
  const within = surface[row].reduce((count, y) => count + across.filter(between(...crossing(hull, y))).length, 0);
  return 1 - within / (surface[row].length * across.length);
}

const between = (west, east) => (x) => x >= west && x <= east;

/** Where a line from west to east crosses a hull: from one longitude to another; nowhere as an empty stretch. */
function crossing(hull, y) {
  const met = hull.flatMap(([ax, ay], at) => {
    const [bx, by] = hull[(at + 1) % hull.length];
    if (Math.min(ay, by) > y || Math.max(ay, by) < y) return [];
    return ay === by ? [ax, bx] : [ax + ((y - ay) / (by - ay)) * (bx - ax)];
  });
  return met.length ? [Math.min(...met) - NOTHING, Math.max(...met) + NOTHING] : [1, 0];
}

/** The hull of the stations that measure a query's variable and are selected by it; null where none has a position. */
export function hullOfQuery({ variable, select }, snapshot) {
  const key = JSON.stringify([snapshot, variable, select?.station]);
  if (!known.has(key)) {
    const hull = askForHull(variable, select?.station);
    hull.catch(() => known.delete(key));
    if (known.size >= MOST) known.delete(known.keys().next().value);
    known.set(key, hull);
  }
  return known.get(key);
}

async function askForHull(variable, station) {
  const chosen = station === undefined ? null : new Set([station].flat());
  const { features } = await api.look(`stations?${new URLSearchParams({ variable })}`);
  const used = features.filter(({ id, geometry, properties }) => geometry && (!chosen || chosen.has(id) || chosen.has(properties.name)));
  return used.length ? hullOf(used.map(({ geometry }) => geometry.coordinates.slice(0, 2))) : null;
}

/** A hull as columns of a polygon that covers a box outside of it, and of its outline; null as nothing. */
export function asColumns(hull, [west, east], [south, north]) {
  if (!hull) return { beyond: { xs: [], ys: [] }, hull: { xs: [], ys: [] } };
  const closed = hull.length ? [...hull, hull[0]] : [];
  const inner = clipped(hull, west, east, south, north);
  const box = [[west, south], [east, south], [east, north], [west, north]];
  const rings = (axis) => [[box, ...(inner.length ? [inner] : [])].map((ring) => ring.map((point) => point[axis]))];
  const outline = (axis) => (closed.length ? [closed.map((point) => point[axis])] : []);
  return { beyond: { xs: [rings(0)], ys: [rings(1)] }, hull: { xs: outline(0), ys: outline(1) } };
}

/** The part of a hull within a box (Sutherland and Hodgman): the hole of a polygon must not leave it. */
function clipped(hull, west, east, south, north) {
  const sides = [[0, west, 1], [0, east, -1], [1, south, 1], [1, north, -1]];
  return sides.reduce((corners, [axis, edge, sign]) => {
    const isIn = (point) => sign * (point[axis] - edge) >= 0;
    return corners.flatMap((point, at) => {
      const before = corners.at(at - 1);
      const share = (edge - before[axis]) / (point[axis] - before[axis]);
      const crossing = isIn(point) === isIn(before) ? [] : [before.map((value, place) => value + share * (point[place] - value))];
      return [...crossing, ...(isIn(point) ? [point] : [])];
    });
  }, hull);
}
