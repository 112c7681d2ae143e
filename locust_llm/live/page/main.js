// Puts the panel where it belongs: into Locust's tab "LLM", or into the page that has nothing else.
//
// The one thing to know: Locust's page is React's, and is drawn anew at will. We only append one element of our own to
// the container of the tabs, look after each change whether it is still there, and take it away with the tabs.

import { startForm } from "./form.js";
import { Panel } from "./panel.js";

const TAB = "llm";
const base = new URL("../../", import.meta.url).href;
const style = await (await fetch(new URL("style.css", import.meta.url))).text();
const panel = new Panel(base, style);
const own = document.getElementById("llm");

if (own) {
  own.append(panel.element);
  panel.show(true);
} else {
  startForm();
  new MutationObserver(place).observe(document.getElementById("root"), {
    subtree: true, childList: true, attributes: true, attributeFilter: ["aria-selected"],
  });
  addEventListener("popstate", place);
  place();
}

// A click may have switched the theme, or started, stopped or reset the test; nobody is told.
document.addEventListener("click", () => {
  setTimeout(() => panel.theme(), 50);
  setTimeout(() => panel.feed.look(), 500);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => panel.theme());

function place() {
  const list = document.querySelector("#root [role=tablist]");
  const tabs = list?.closest(".MuiContainer-root") || list?.closest("main");
  const shown = Boolean(tabs) && chosen();
  if (shown && tabs.lastElementChild !== panel.element) tabs.append(panel.element);
  if (!tabs && panel.element.isConnected) panel.element.remove();
  if (shown !== place.shown) panel.show(shown);
  place.shown = shown;
}

function chosen() {
  const selected = document.querySelector("#root [role=tab][aria-selected=true]");
  return selected ? selected.textContent.trim() === "LLM" : new URLSearchParams(location.search).get("tab") === TAB;
}
