// Puts changed parts in place as the computer sends them. Without it, the page is read again by hand.
"use strict";

const source = document.body.dataset.events;

// A paired device has a path of its own. Its cookie is sent there only, and not to others at this computer.
const ownPath = /^\/d\/[0-9a-f]{32}\//.exec(location.pathname);
if (ownPath) localStorage.setItem("own path", ownPath[0]);
else if (location.pathname === "/" && localStorage.getItem("own path")) location.replace(localStorage.getItem("own path"));

function isAtEnd() {
  return window.innerHeight + window.scrollY >= document.body.scrollHeight - 80;
}

// What a link or button leads to, and for a field nothing.
function targetOf(control) {
  const form = control.form || control.closest("form");
  return `${control.localName} ${control.getAttribute("href")} ${form && form.getAttribute("action")} ${control.value}`;
}

// Who uses the keyboard stays at the same link or button: it is another one with the same target now.
function replacePart(name, content) {
  const part = document.getElementById(name);
  if (!part) return;
  const focused = part.contains(document.activeElement) ? targetOf(document.activeElement) : null;
  part.innerHTML = content;
  if (focused === null) return;
  for (const control of part.querySelectorAll("a, button")) {
    if (targetOf(control) === focused) {
      control.focus({ preventScroll: true });
      return;
    }
  }
}

// Answers that were begun stay, even if another question comes or goes meanwhile.
function replaceQuestions(content) {
  const part = document.getElementById("questions");
  if (!part) return;
  const typed = new Map();
  let focused = null;
  for (const field of part.querySelectorAll("input[name=words]")) {
    const fingerprint = field.form.elements.fingerprint.value;
    typed.set(fingerprint, field.value);
    if (field === document.activeElement) focused = fingerprint;
  }
  part.innerHTML = content;
  for (const field of part.querySelectorAll("input[name=words]")) {
    const fingerprint = field.form.elements.fingerprint.value;
    if (typed.has(fingerprint)) field.value = typed.get(fingerprint);
    if (fingerprint === focused) field.focus();
  }
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
  for (const name of ["head", "live", "list"]) {
    if (parts[name] !== undefined) replacePart(name, parts[name]);
  }
  if (parts.questions !== undefined) replaceQuestions(parts.questions);
  if (wasAtEnd && !parts.list) window.scrollTo(0, document.body.scrollHeight);
}

if (source) {
  new EventSource(source).addEventListener("message", show);
  if (document.getElementById("entries")) window.scrollTo(0, document.body.scrollHeight);
}

// A message that is being written stays in this tab until the computer says that it has it. Its id
// stays with it, so that one that is sent again after the line broke is sent once.
const composer = document.querySelector("form.composer");
if (composer) {
  const place = `draft ${location.pathname}`;
  const address = new URLSearchParams(location.search);
  const draft = JSON.parse(sessionStorage.getItem(place) || "null");
  if (draft && draft.id === address.get("sent")) sessionStorage.removeItem(place);
  else if (draft) {
    composer.elements.text.value = draft.text;
    composer.elements.id.value = draft.id;
  }
  if (address.has("sent")) history.replaceState(null, "", location.pathname);
  composer.addEventListener("input", () => {
    const text = composer.elements.text.value;
    sessionStorage.setItem(place, JSON.stringify({ text, id: composer.elements.id.value }));
  });
}

// The QR code has the pairing code behind #, which is not sent to anybody.
const pairingCode = new URLSearchParams(location.hash.slice(1)).get("code");
const codeField = document.querySelector("input[name=code]");
if (pairingCode && codeField) {
  codeField.value = pairingCode;
  history.replaceState(null, "", location.pathname);
  document.querySelector("input[name=name]").focus();
}
