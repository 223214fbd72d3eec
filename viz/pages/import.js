// Import: most visits do not need it, so that it is loaded when it is shown for the first time.

export function open(root, frame) {
  let page = null;
  return {
    async show(params) {
      page ??= import("./importing.js").then((module) => module.open(root, frame));
      await (await page).show(params);
    },
    hide: () => page?.then((opened) => opened.hide()),
    redraw: () => page?.then((opened) => opened.redraw()),
  };
}
