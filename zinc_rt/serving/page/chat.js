// The chat page: a conversation with the server that sent this page, over its own OpenAI-compatible API.
import { Refused, ask } from "./api.js";
import * as chats from "./chats.js";
import { $, button, element } from "./dom.js";
import { figuresOf } from "./figures.js";
import * as pictures from "./pictures.js";
import * as settings from "./settings.js";
import * as store from "./store.js";
import { article, speaker } from "./turns.js";
import { choose, fork, place } from "./versions.js";

const log = $("log"), text = $("text"), main = document.querySelector("main");

let chat = store.fresh(); // its turns {role, content, pictures, thought, request, seed, ...} are all that a next request needs
let running = null; // the AbortController of the answer that is coming
const shown = []; // the pictures of the message that is being written

// A turn's request as the server takes it: its parameters, and the turns before it.
function asked({ system, ...request }, turns) {
  const said = turns.map((turn) => ({ role: turn.role, content: pictures.content(turn.content, turn.pictures) }));
  return { ...request, messages: system ? [{ role: "system", content: system }, ...said] : said };
}

// ---- what is shown

const atEnd = () => main.scrollHeight - main.scrollTop - main.clientHeight < 60;
const toEnd = () => { main.scrollTop = main.scrollHeight; };
const tell = (message) => { $("alert").textContent = message; };

const drawn = (turn, index) => article(turn, index, index === chat.turns.length - 1, acts);

// Draws all turns; what is unfolded stays so.
function redraw() {
  const open = [...log.querySelectorAll("article > details[open]")].map((one) => [[...log.children].indexOf(one.parentNode), one.classList[0]]);
  log.replaceChildren(...chat.turns.map((turn, index) => drawn(turn, index).made));
  for (const [index, kind] of open) log.children[index]?.querySelector(`details.${kind}`)?.setAttribute("open", "");
  $("empty").hidden = chat.turns.length > 0;
}

const focusOn = (index, name) => log.children[index]?.querySelector(`.actions [name=${name}]`)?.focus();

// The address names the chat, so that a reload shows it again.
const address = () => history.replaceState(null, "", `#${chat.turns.length ? chat.id : "new"}`);

function keep(kept, changed = Date.now()) {
  if (!kept.turns.length || kept.gone) return;
  kept.changed = changed;
  kept.title ||= kept.turns[0].content.trim().split("\n")[0].slice(0, 60) || "Picture";
  try {
    store.keep(kept);
  } catch {
    tell("This browser's storage is off or full: the chat is gone when the page is closed. Export it, or delete others.");
  }
  address();
  chats.listChats();
}

function show(other) {
  running?.abort();
  chat = other;
  chats.unname();
  tell("");
  address();
  settings.showSettings(chat.settings);
  chats.listChats();
  log.replaceChildren();
  redraw();
  toEnd();
  chats.showList(false);
  text.focus();
}

function remove(id) {
  const gone = store.chatOf(id);
  store.drop(id);
  chat.gone = true; // an answer may still be on its way into it
  show(store.fresh());
  if (!gone) return;
  tell(`“${gone.title}” is deleted. `);
  $("alert").append(button("Undo", () => { store.keep(gone); show(gone); }));
}

// ---- what can be done

function busy(controller) {
  running = controller;
  $("stop").hidden = !controller;
  $("send").hidden = !!controller;
  if (!controller) log.querySelector(".busy")?.classList.remove("busy");
}

const size = (turn) => turn.content.length + (turn.thought?.length ?? 0) + (turn.calls?.length ?? 0);
const goesOn = (turn, held) => ["content", "thought", "calls"].every((name) => (turn[name] ?? "").startsWith(held[name] ?? ""));

// What of an answer is kept in its turn. `event` and `tokens` let it go on if it does not end.
function take(turn, found) {
  const { content, thought, calls, seed, event, tokens, odds } = found;
  Object.assign(turn, { content, thought, calls, seed, event, tokens, ...(odds.length && { odds }) });
}

function finish(turn, found) {
  take(turn, found);
  const full = found.usage && found.usage.total_tokens >= settings.modelMeta().n_ctx;
  turn.finish = found.finish === "length" && full ? "context" : found.finish;
  turn.figures = figuresOf(found);
  if (!["length", "stopped"].includes(turn.finish)) {
    delete turn.event;
    delete turn.tokens;
  }
}

// Lets the turn at an index, which is the chat's, become an answer to those before it. held: what it goes on with. Returns
// whether anything of it is to stay.
async function fill(own, index, how, held) {
  const turn = own.turns[index];
  tell("");
  keep(own);
  redraw();
  const view = drawn(turn, index);
  log.children[index].replaceWith(view.made);
  view.made.classList.add("busy");
  toEnd();
  const say = speaker(held?.content.length);
  busy(new AbortController());
  const { signal } = running;
  let due = 0, cost = 0, kept = performance.now(), found;
  const back = () => held && size(found) < size(held); // it is on the way to where it was
  const draw = () => {
    due = 0;
    if (running?.signal !== signal || !found) return; // it is over
    if (!back()) take(turn, found);
    if (found.loading) $("spoken").textContent = "The model is being loaded.";
    const began = performance.now(), follow = atEnd();
    view.show(found.loading && `${found.loading} is being loaded …`);
    if (follow) toEnd();
    say(found.content, false);
    cost = performance.now() - began;
  };
  // Once a frame, of a long text in a quarter of the time, and every two seconds where the page is hidden and has no frames.
  const took = (some) => {
    found = some;
    due ||= cost < 8 ? requestAnimationFrame(draw) : setTimeout(() => requestAnimationFrame(draw), 3 * cost);
    if (performance.now() - kept < 2000) return;
    draw();
    keep(own);
    kept = performance.now();
  };
  try {
    found = await ask(asked(turn.request, own.turns.slice(0, index)), how, signal, took);
    if (found.finish === "stopped" && back()) return false;
    finish(turn, found);
    say(found.content, true);
  } catch (error) {
    draw();
    tell(error instanceof Refused ? error.message : "the server cannot be reached; Retry asks again");
  } finally {
    busy(null);
  }
  return size(turn) > size(held ?? { content: "" }) || turn.finish !== "broken";
}

function done(own) {
  keep(own);
  settings.showModels(tell);
  if (own !== chat) return;
  const follow = atEnd();
  redraw();
  if (follow) toEnd();
  text.focus();
}

// Answers the turns before an index; what stood there is another version.
async function answer(index) {
  if (running) return;
  const own = chat, before = own.turns; // another chat may be shown before the answer is whole
  settings.used(own.settings = settings.settings());
  const turn = { role: "assistant", content: "", model: settings.modelName(), request: settings.parameters(), finish: "broken" };
  own.turns = fork(before, index, turn);
  if (!(await fill(own, index, { seed: settings.seedGiven() }))) own.turns = before;
  done(own);
}

// Goes on with an answer that was stopped or cut: the same request with the same seed, of which what is known is not computed
// again. So the whole is what it would have been without the stop.
async function goOn(index) {
  if (running) return;
  const own = chat, before = own.turns, held = before[index], request = { ...held.request };
  if (held.finish === "length") {
    const made = held.figures?.made ?? 0;
    request.max_tokens = made + (settings.parameters().max_tokens ?? Math.max(made, 256));
  }
  own.turns = before.with(index, { ...held, request, finish: "broken" });
  delete own.turns[index].replay;
  const { seed, event, tokens } = held;
  if (!(await fill(own, index, { seed, event, tokens }, held))) own.turns = before;
  else if (!goesOn(own.turns[index], held)) {
    own.turns = fork(before, index, own.turns[index]);
    tell("The server gives another text now, from another model or release; the old one is another version.");
  }
  done(own);
}

// Asks the same again with the same seed and compares every character.
async function replay(index) {
  const own = chat, turn = own.turns[index];
  if (running || !turn.seed) return;
  tell("");
  busy(new AbortController());
  const cut = ["stopped", "broken"].includes(turn.finish), whole = running; // only its beginning is there
  try {
    const enough = (found) => { if (cut && found.content.length >= turn.content.length && size(found) >= size(turn)) whole.abort(); };
    const found = await ask(asked(turn.request, own.turns.slice(0, index)), { seed: turn.seed }, running.signal, enough);
    if (found.finish === "stopped" && !(cut && size(found) >= size(turn))) return;
    const again = cut ? found.content.slice(0, turn.content.length) : found.content;
    let at = 0;
    while (at < again.length && again[at] === turn.content[at]) at++;
    const same = again === turn.content && (cut || (found.thought ?? "") === (turn.thought ?? ""));
    turn.replay = `replay: ${same ? "equal, the same seed gave the same text" : `differs from character ${at + 1} on`}`;
    $("spoken").textContent = same ? "The replay is equal." : "The replay differs.";
  } catch (error) {
    tell(error instanceof Refused ? error.message : "the server cannot be reached");
  } finally {
    busy(null);
    keep(own);
    if (own === chat) {
      redraw();
      focusOn(index, "replay");
    }
  }
}

function edit(index, made) {
  if (running) return;
  const turn = chat.turns[index], field = element("textarea", { value: turn.content, rows: 3, ariaLabel: "Message" });
  const send = () => {
    if (!field.value.trim() && !turn.pictures) return;
    chat.turns = fork(chat.turns, index, { role: "user", content: field.value, ...turn.pictures && { pictures: turn.pictures } });
    answer(index + 1);
  };
  const back = () => { redraw(); focusOn(index, "edit"); };
  field.addEventListener("keydown", (event) => { if (event.key === "Escape") back(); });
  made.replaceChildren(field, element("div", { className: "actions" }, button("Send", send), button("Cancel", back)));
  field.focus();
}

function chooseVersion(index, number, from) {
  if (running) return;
  chat.turns = choose(chat.turns, index, number);
  keep(chat, chat.changed);
  redraw();
  focusOn(index, from);
  const { at, of } = place(chat.turns[index]);
  $("spoken").textContent = `Version ${at + 1} of ${of}`;
}

const acts = { edit, retry: answer, replay, goOn, choose: chooseVersion };

// ---- what a person does

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  if (running || !(text.value.trim() || shown.length)) return;
  chat.turns = [...chat.turns, { role: "user", content: text.value, ...shown.length && { pictures: shown.splice(0) } }];
  text.value = "";
  showPictures();
  answer(chat.turns.length);
});
text.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $("ask").requestSubmit();
  }
});

function showPictures() {
  $("shown").replaceChildren(...pictures.thumbnails(shown, (index) => { shown.splice(index, 1); showPictures(); text.focus(); }));
  text.required = !shown.length;
}

async function takePictures(some) {
  if (!some.length) return;
  const sees = !!settings.modelMeta().pictures;
  tell(sees ? "" : "This model reads no pictures; serve one with its projector (--mmproj).");
  if (sees) await pictures.add(shown, some).catch((error) => tell(error.message));
  showPictures();
}
text.addEventListener("paste", (event) => {
  const some = pictures.files(event.clipboardData);
  if (some.length) event.preventDefault();
  takePictures(some);
});
for (const kind of ["dragenter", "dragover", "dragleave", "drop"]) {
  $("page").addEventListener(kind, (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    $("page").classList.toggle("dropping", kind === "dragenter" || kind === "dragover");
    if (kind === "drop") takePictures(pictures.files(event.dataTransfer));
  });
}
$("picture").addEventListener("click", () => $("pictures").click());
$("pictures").addEventListener("change", () => {
  takePictures([...$("pictures").files]);
  $("pictures").value = "";
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  running?.abort();
  if (document.body.classList.contains("listing") && $("chats").contains(document.activeElement)) $("toggle").focus();
  chats.showList(false);
});
$("stop").addEventListener("click", () => running?.abort());
$("new").addEventListener("click", () => show(store.fresh()));

function changed() {
  settings.used(chat.settings = settings.settings());
  keep(chat, chat.changed);
}

// Another tab wrote: the list, or the chat that is shown here, is another one by now.
addEventListener("storage", (event) => {
  if (chats.named()) return;
  chats.listChats();
  const found = store.isChat(event.key, chat.id) && !running && store.chatOf(chat.id);
  if (!found) return;
  chat = found;
  redraw();
});
addEventListener("pagehide", () => { if (running) keep(chat); });

settings.watch(changed, tell);
chats.watch({ current: () => chat, keep, show, remove, tell });
settings.showModels(tell);
const named = location.hash.slice(1);
show(store.chatOf(named) ?? (named === "new" ? null : store.chats()[0]) ?? store.fresh());
