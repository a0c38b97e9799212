// Puts changed parts in place as the computer sends them. Without it, the page is read again by hand.
"use strict";

const source = document.body.dataset.events;

function isAtEnd() {
  return window.innerHeight + window.scrollY >= document.body.scrollHeight - 80;
}

function replacePart(name, content) {
  const part = document.getElementById(name);
  if (part) part.innerHTML = content;
}

function updateEntries(changed, order) {
  const list = document.getElementById("entries");
  for (const [id, content] of changed) {
    const template = document.createElement("template");
    template.innerHTML = content;
    const known = document.getElementById(id);
    if (known) known.replaceWith(template.content);
    else list.append(template.content);
  }
  const wanted = new Set(order);
  for (const entry of [...list.children]) if (!wanted.has(entry.id)) entry.remove();
}

function show(event) {
  const parts = JSON.parse(event.data);
  const wasAtEnd = isAtEnd();
  if (parts.entries) updateEntries(parts.entries, parts.order);
  for (const name of ["head", "live", "questions", "list"]) {
    if (parts[name] !== undefined) replacePart(name, parts[name]);
  }
  if (wasAtEnd && !parts.list) window.scrollTo(0, document.body.scrollHeight);
}

if (source) {
  new EventSource(source).addEventListener("message", show);
  if (document.getElementById("entries")) window.scrollTo(0, document.body.scrollHeight);
}

// The QR code has the pairing code behind #, which is not sent to anybody.
const pairingCode = new URLSearchParams(location.hash.slice(1)).get("code");
const codeField = document.querySelector("input[name=code]");
if (pairingCode && codeField) {
  codeField.value = pairingCode;
  history.replaceState(null, "", location.pathname);
  document.querySelector("input[name=name]").focus();
}
