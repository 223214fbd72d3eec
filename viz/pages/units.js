// Units as people write them; `unit_symbol` of hypergrid/core/units.py does the same for texts made in Python.

const SYMBOLS = { degree: "°", degrees: "°", um: "µm" };
const SUPERSCRIPTS = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

/** "°C" for "degC", "W m⁻²" for "W m-2". */
export function unitText(unit) {
  const words = String(unit ?? "").replace(/\bdeg([CF])\b/g, "°$1").split(" ").map((word) => SYMBOLS[word] ?? word);
  return words.map((word) => word.replace(/(?<=[A-Za-z)])-?\d+$/, (power) => [...power].map((sign) => SUPERSCRIPTS[sign]).join(""))).join(" ");
}
