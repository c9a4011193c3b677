// The list of chats: search, titles, files.
import { $, button, element } from "./dom.js";
import * as store from "./store.js";
import { everyTurn } from "./versions.js";

const list = $("list"), search = $("search");
let page; // what the page does: `current()`, `keep(chat, changed)`, `show(chat)`, `remove(id)`, `tell(text)`
let naming = null; // the id of the chat whose title is being written

// ---- search

const words = () => search.value.toLowerCase().split(/\s+/).filter(Boolean);
const texts = (chat) => [chat.title, ...everyTurn(chat.turns).map((turn) => turn.content)];

// Whether each word stands somewhere in a chat.
function fits(chat, wanted) {
  const all = texts(chat).join("\n").toLowerCase();
  return wanted.every((word) => all.includes(word));
}

// The text around the first word that is in a message, marked; null if it is in the title alone.
function excerpt(chat, [word]) {
  for (const text of texts(chat).slice(1)) {
    const at = text.toLowerCase().indexOf(word);
    if (at < 0) continue;
    const start = Math.max(0, at - 24), end = at + word.length;
    return element("p", { className: "note" }, (start ? "…" : "") + text.slice(start, at), element("mark", { textContent: text.slice(at, end) }), text.slice(end, end + 60));
  }
  return null;
}

// ---- the list

export function listChats() {
  if (naming && list.querySelector("input")) return; // a title is being written
  const all = store.chats(), wanted = words();
  const found = wanted.length ? all.filter((one) => fits(one, wanted)) : all;
  list.replaceChildren(...found.map((one) => entry(one, wanted)));
  $("none").textContent = !all.length ? "Chats are kept in this browser, and are listed here."
    : !wanted.length ? "" : found.length ? `${found.length} of ${all.length} chats` : "No chat has these words.";
  $("export").hidden = !all.length;
}

function entry(one, wanted) {
  if (one.id === naming) return element("li", {}, nameField(one));
  const made = element("li", {}, button(one.title, () => open(one.id), { className: "title" }));
  const around = wanted.length ? excerpt(one, wanted) : null;
  if (around) made.append(around);
  if (one.id !== page.current().id) return made;
  made.firstChild.setAttribute("aria-current", "true");
  made.append(element("div", { className: "actions" },
    button("Rename", () => { naming = one.id; listChats(); list.querySelector("input").focus(); }),
    button("Delete", () => page.remove(one.id)),
    button("Export JSON", () => save(`${one.title}.json`, store.asJson([one]), "application/json")),
    button("Export Markdown", () => save(`${one.title}.md`, store.asMarkdown(one), "text/markdown"))));
  return made;
}

function nameField(one) {
  const field = element("input", { value: one.title, ariaLabel: "Title", maxLength: 200 });
  const done = (title, again) => {
    if (naming !== one.id) return; // a field that is removed loses the focus, too
    naming = null;
    const kept = one.id === page.current().id ? page.current() : one;
    if (title.trim()) kept.title = title.trim();
    page.keep(kept);
    if (again) list.querySelector("[aria-current]")?.focus();
  };
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== "Escape") return;
    event.preventDefault(); // not for the title that gets the focus
    event.stopPropagation();
    done(event.key === "Enter" ? field.value : "", true);
  });
  field.addEventListener("blur", () => done(field.value));
  return field;
}

export const named = () => naming !== null;
export const unname = () => { naming = null; };

function open(id) {
  const found = store.chatOf(id), [word] = words();
  if (id === page.current().id) showList(false);
  else if (found) page.show(found);
  else return listChats();
  const hit = word && [...$("log").children].find((one) => one.textContent.toLowerCase().includes(word));
  hit?.scrollIntoView();
}

export function showList(shown) {
  document.body.classList.toggle("listing", shown);
  $("toggle").setAttribute("aria-expanded", shown);
}

// ---- files

function save(name, contents, type) {
  const made = element("a", { href: URL.createObjectURL(new Blob([contents], { type })), download: name.replace(/[\\/:*?"<>|]/g, "_") });
  made.click();
  setTimeout(() => URL.revokeObjectURL(made.href), 10_000);
}

async function load(file) {
  try {
    const some = store.fromJson(await file.text());
    for (const one of some) page.keep(one, one.changed || undefined);
    page.show(some[0]);
  } catch (error) {
    page.tell(`${file.name}: ${error.message}`);
  }
}

export function watch(given) {
  page = given;
  search.addEventListener("input", listChats);
  search.addEventListener("keydown", (event) => { if (event.key === "Enter") list.querySelector(".title")?.click(); });
  $("toggle").addEventListener("click", () => {
    showList(!document.body.classList.contains("listing"));
    if (document.body.classList.contains("listing")) search.focus();
  });
  $("page").addEventListener("click", (event) => { if (event.target !== $("toggle")) showList(false); });
  $("export").addEventListener("click", () => save("chats.json", store.asJson(store.chats()), "application/json"));
  $("import").addEventListener("click", () => $("file").click());
  $("file").addEventListener("change", () => {
    if ($("file").files[0]) load($("file").files[0]);
    $("file").value = "";
  });
}
