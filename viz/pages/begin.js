// Before all else: has the browser fetch the modules of the page that the address names, while it still reads BokehJS.

{
  const modules = JSON.parse(document.currentScript.dataset.modules ?? "{}");
  const [name] = location.hash.slice(1).split("?");
  for (const file of modules[name] ?? modules.overview ?? []) {
    document.head.append(Object.assign(document.createElement("link"), { rel: "modulepreload", href: `static/${file}` }));
  }
}
