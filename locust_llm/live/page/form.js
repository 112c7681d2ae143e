// Locust's start form: labels that people read, and what the server says to a bad value.
//
// The one thing to know: Locust's page shows the "message" of an answer with status 200 and, for any other, only "An
// unknown error occurred". So a refusal of ours is handed to it as the kind of answer that it shows.

import { el } from "./words.js";

const CAMEL = /_([a-z])/g;
const TOAST_MS = 12000;
/** The dialog that edits a running test closes itself whatever the answer is, and takes so long. */
const DIALOG_MS = 600;

export function startForm() {
  const given = document.getElementById("locust-llm-fields");
  const fields = Object.entries(given ? JSON.parse(given.textContent) : {}).map(([dest, words]) => ({
    name: dest.replace(CAMEL, (_, letter) => letter.toUpperCase()), ...words,
  }));
  showRefusals();
  const root = document.getElementById("root");
  new MutationObserver(() => label(fields)).observe(document.body, { subtree: true, childList: true });
  if (root) label(fields);
}

function showRefusals() {
  const ask = window.fetch;
  window.fetch = async (...args) => {
    const answer = await ask(...args);
    const url = new URL(args[0] instanceof Request ? args[0].url : String(args[0]), document.baseURI);
    if (answer.status !== 400 || !url.pathname.endsWith("/swarm")) return answer;
    const message = (await answer.text()).trim();
    setTimeout(() => isShown(message) || toast(message), DIALOG_MS);
    return Response.json({ success: false, message });
  };
}

function isShown(message) {
  return [...document.querySelectorAll("[role=alert]")].some((alert) => alert.textContent.includes(message));
}

function toast(text) {
  const close = () => box.remove();
  const button = el("button", { type: "button", "aria-label": "close", style: CLOSE, onclick: close }, "✕");
  const words = el("span", { style: "flex:1" }, text);
  const box = el("div", { role: "alert", id: "locust-llm-toast", style: TOAST }, words, button);
  document.getElementById("locust-llm-toast")?.remove();
  document.body.append(box);
  setTimeout(close, TOAST_MS);
}

const CLOSE = "font:inherit;color:inherit;background:none;border:0;cursor:pointer;padding:0 4px";
const TOAST = "position:fixed;left:50%;top:80px;transform:translateX(-50%);z-index:3000;display:flex;gap:12px;"
  + "max-width:min(640px,90vw);padding:12px 16px;border-radius:4px;background:#b3261e;color:#fff;"
  + "font:14px/1.5 sans-serif;box-shadow:0 4px 16px #0006;overflow-wrap:anywhere";

/** Write labels and help into the fields that are there and have none of ours yet. */
function label(fields) {
  for (const { name, label: words, help } of fields) {
    for (const input of document.querySelectorAll(`[name="${name}"]:not([data-llm])`)) {
      input.dataset.llm = "yes";
      const control = input.closest(".MuiFormControl-root");
      const text = control?.querySelector("label");
      if (!text) continue;
      text.firstChild.nodeValue = words;
      const notch = control.querySelector("legend span");
      if (notch) notch.textContent = words;
      control.append(el("p", { style: "margin:3px 14px 0;font-size:0.75rem;line-height:1.5;opacity:0.7" }, help));
    }
  }
}
