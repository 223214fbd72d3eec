// Dark or light: as the system has it, or as was chosen here.

const KEY = "hypergrid.theme";
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const listeners = [];

/** "system", "light" or "dark". */
export function chosen() {
  try {
    return localStorage.getItem(KEY) ?? "system";
  } catch {
    return document.documentElement.dataset.theme ?? "system";
  }
}

/** The theme that is shown. */
export const theme = () => (chosen() === "system" ? (dark.matches ? "dark" : "light") : chosen());

export function choose(value) {
  try {
    if (value === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, value);
  } catch {
    // A browser that keeps nothing has the choice until the page is left.
  }
  apply(value);
}

function apply(value) {
  if (value === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = value;
  for (const listener of listeners) listener();
}

export const onTheme = (listener) => listeners.push(listener);

apply(chosen());
dark.addEventListener("change", () => apply(chosen()));
