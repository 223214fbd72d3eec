// What may follow in a text of CQL: names of streams, their columns, functions, keywords.

const MOST = 200;
/** Letters from which a word may be more than the name of a source. */
const NO_NAME = 3;
const WORD = /[A-Za-z_][\w]*$/;
const CLAUSES = /\b(select|from|join|where|group\s+by|having|on|union|except|intersect)\b/gi;
const NO_ALIAS = /^(as|where|group|having|join|on|union|except|intersect|sample|select|from|emit|and|or)$/i;

/** The word before the caret, with what stands before it: {start, word, owner}; the owner is the name before a dot. */
export function wordAt(text, caret) {
  const before = text.slice(0, caret);
  const word = WORD.exec(before)?.[0] ?? "";
  const start = caret - word.length;
  const owner = /([A-Za-z_]\w*)\.$/.exec(before.slice(0, start))?.[1] ?? "";
  return { start, word, owner };
}

/** Sources by the names that a text gives them: their own, and their aliases. */
export function aliasesIn(text, catalogue) {
  const found = new Map();
  for (const source of catalogue.sources) {
    const uses = new RegExp(`\\b${source.name}\\b\\s*(?:\\[[^\\]]*\\]\\s*)?(?:as\\s+)?([A-Za-z_]\\w*)?`, "gi");
    for (const [, alias] of text.matchAll(uses)) {
      found.set(source.name.toLowerCase(), source);
      if (alias && !NO_ALIAS.test(alias)) found.set(alias.toLowerCase(), source);
    }
  }
  return found;
}

const isOpen = (text, opening, closing) => text.lastIndexOf(opening) > text.lastIndexOf(closing);
const isQuoted = (text) => (text.match(/'/g) ?? []).length % 2 === 1;

/** Keywords as the examples write them: Group By. */
const titled = (word) => word.toLowerCase().replace(/\b[a-z]/g, (letter) => letter.toUpperCase());
const keywords = (words) => words.map((word) => ({ text: titled(word), kind: "keyword", unit: "" }));
const columnsOf = (sources) => sources.flatMap((source) => source.attributes.map((one) => ({ text: one.name, kind: "attribute", unit: one.unit ?? "", of: source.name })));

/** Whether a name may be given at a place: behind a source of the From clause. */
function isNaming(before) {
  const clause = [...before.matchAll(CLAUSES)].pop()?.[1].toLowerCase();
  return ["from", "join"].includes(clause) && /[\])\w]\s+$/.test(before) && !/\b(from|join)\s+$/i.test(before);
}

/** All that may stand at a place, the likeliest first. */
function candidates(text, caret, catalogue, owner) {
  const before = text.slice(0, caret);
  const known = aliasesIn(text, catalogue);
  if (owner) return columnsOf([known.get(owner.toLowerCase())].filter(Boolean));
  const used = [...new Set(known.values())];
  if (isOpen(before, "[", "]")) return [...keywords(catalogue.window_keywords), ...catalogue.time_units.map((unit) => ({ text: `${unit}s`, kind: "unit", unit: "" })), ...columnsOf(used)];
  const clause = [...before.matchAll(CLAUSES)].pop()?.[1].toLowerCase() ?? "";
  const sources = catalogue.sources.map((source) => ({ text: source.name, kind: source.kind, unit: "" }));
  const functions = catalogue.functions.map((one) => ({ text: `${one.name}(`, kind: one.kind, unit: "" }));
  if (clause === "from" || clause === "join") return [...sources, ...keywords(catalogue.keywords)];
  return [...columnsOf(used.length ? used : catalogue.sources.slice(0, 1)), ...functions, ...keywords(catalogue.keywords), ...sources];
}

/** What may be meant by the word before the caret: {start, options}; `wanted` is whether it was asked for without a word. */
export function complete(text, caret, catalogue, { wanted = false } = {}) {
  const { start, word, owner } = wordAt(text, caret);
  const nothing = { start, options: [] };
  if (isQuoted(text.slice(0, caret)) || (!word && !owner && !wanted)) return nothing;
  if (!wanted && /\bas\s+$/i.test(text.slice(0, start))) return nothing;
  // Enter behind a name of one's own begins a new line.
  if (!wanted && !owner && word.length < NO_NAME && isNaming(text.slice(0, start)) && !isOpen(text.slice(0, start), "[", "]")) return nothing;
  const low = word.toLowerCase();
  const all = new Map(candidates(text, caret, catalogue, owner).map((one) => [one.text.toLowerCase(), one]).reverse());
  const found = [...all.values()].reverse().filter((one) => one.text.toLowerCase().includes(low));
  const begins = (one) => (one.text.toLowerCase().startsWith(low) ? 0 : 1);
  found.sort((one, other) => begins(one) - begins(other));
  // A word that is complete needs no list.
  if (!wanted && found.length && found[0].text.toLowerCase() === low) return nothing;
  return { start, options: found.slice(0, MOST) };
}
