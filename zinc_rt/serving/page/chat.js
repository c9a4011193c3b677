// The chat page: a conversation with the server that sent this page, over its own OpenAI-compatible API.
import { copy, render } from "./markdown.js";
import * as pictures from "./pictures.js";
import * as store from "./store.js";

const $ = (id) => document.getElementById(id);
const log = $("log"), text = $("text"), main = document.querySelector("main");

let chat = store.fresh(); // its turns {role, content, pictures, thought, request, facts} are all that a next request needs
let running = null; // the AbortController of the answer that is coming
let sees = false; // whether the model reads pictures
const shown = []; // the pictures of the message that is being written
let naming = null; // the id of the chat whose title is being written

// ---- what the server is asked

function parameters() {
  const found = {};
  for (const name of ["temperature", "top_p", "top_k", "min_p", "max_tokens"]) {
    const field = $("parameters").elements[name];
    if (field.value !== "") found[name] = Number(field.value);
  }
  return found;
}

const seedGiven = () => $("parameters").elements.seed.value.trim();

// A turn's request as the server takes it: its parameters, and the turns before it.
function asked({ system, ...request }, turns) {
  const said = turns.map((turn) => ({ role: turn.role, content: pictures.content(turn.content, turn.pictures) }));
  return { ...request, messages: system ? [{ role: "system", content: system }, ...said] : said };
}

const headers = () => {
  const key = $("key").value.trim();
  return { "Content-Type": "application/json", ...(key && { Authorization: `Bearer ${key}` }) };
};

// A seed has 64 bits; JSON.stringify would round it, so it goes into the text as digits.
function body(request, seed) {
  const plain = JSON.stringify({ ...request, stream: true, stream_options: { include_usage: true } });
  return seed === "" ? plain : `${plain.slice(0, -1)},"seed":${seed}}`;
}

class Refused extends Error {}

async function* events(request, seed, signal) {
  const answer = await fetch("v1/chat/completions", { method: "POST", headers: headers(), body: body(request, seed), signal });
  if (!answer.ok) {
    const said = await answer.json().catch(() => null);
    throw new Refused(said?.error?.message ?? `the server answers ${answer.status}`);
  }
  yield { seed: answer.headers.get("x-zinc-seed") };
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Refused("the answer broke off; retry asks again");
    const parts = (waiting + value).split("\n\n");
    waiting = parts.pop();
    for (const part of parts) {
      const data = part.split("\n").filter((l) => l.startsWith("data:")).map((l) => l.slice(5).trim()).join("\n");
      if (data === "[DONE]") return;
      if (data) yield JSON.parse(data);
    }
  }
}

// Asks and hands each piece to `took`; returns what the answer was.
async function ask(request, seed, signal, took) {
  const answer = { content: "", thought: "", calls: "", finish: null, usage: null, seed, first: 0, last: 0 };
  try {
    for await (const event of events(request, seed, signal)) {
      if (event.error) throw new Refused(event.error.message);
      if (event.seed) answer.seed = event.seed;
      if (event.usage) answer.usage = event.usage;
      const choice = event.choices?.[0];
      if (!choice) continue;
      const { content, reasoning_content: thought, tool_calls: calls } = choice.delta;
      answer.content += content ?? "";
      answer.thought += thought ?? "";
      for (const { function: f } of calls ?? []) answer.calls += (f.name ? `\n${f.name} ` : "") + (f.arguments ?? "");
      if (content || thought || calls) {
        answer.last = performance.now();
        answer.first ||= answer.last;
        took?.(answer);
      }
      answer.finish = choice.finish_reason ?? answer.finish;
    }
  } catch (error) {
    if (error.name !== "AbortError") throw error;
    answer.finish = "stopped";
  }
  return answer;
}

// ---- what is shown

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

const button = (label, act) => {
  const made = element("button", { type: "button", textContent: label });
  made.addEventListener("click", act);
  return made;
};

const atEnd = () => main.scrollHeight - main.scrollTop - main.clientHeight < 60;
const toEnd = () => { main.scrollTop = main.scrollHeight; };

function article(turn, index) {
  const user = turn.role === "user";
  const said = element("div", { className: "said" });
  const thought = element("div", { className: "thought" });
  const thinking = element("details", { hidden: true }, element("summary", { textContent: "Reasoning" }), thought);
  const facts = element("p", { className: "facts" });
  const actions = element("div", { className: "actions" });
  const who = user ? "You" : turn.model ?? "Model";
  const made = element("article", { className: turn.role }, element("h2", { textContent: who }),
    element("ul", { className: "pictures" }, ...pictures.thumbnails(turn.pictures ?? [])), thinking, said, facts, actions);
  const show = () => {
    if (user) said.textContent = turn.content;
    else said.replaceChildren(render(turn.content + (turn.calls ? `\n\n\`\`\`\n${turn.calls.trim()}\n\`\`\`` : "")));
    thought.textContent = turn.thought ?? "";
    thinking.hidden = !turn.thought;
    facts.textContent = turn.facts ?? "";
    facts.hidden = !turn.facts;
  };
  if (user) actions.append(button("Edit", () => edit(made, turn, index)));
  else {
    const again = button("Replay", () => replay(turn, index));
    again.title = "Asks the same again with the same seed, and compares each character";
    again.hidden = !turn.seed;
    actions.append(button("Copy", (event) => copy(turn.content, event.target)), button("Retry", () => answer(index)), again);
  }
  show();
  return { made, show };
}

function redraw() {
  log.replaceChildren(...chat.turns.map((turn, index) => article(turn, index).made));
  $("empty").hidden = chat.turns.length > 0;
}

// ---- the chats that are kept

function keep(kept, changed = Date.now()) {
  if (!kept.turns.length || kept.gone) return;
  kept.changed = changed;
  kept.title ||= kept.turns[0].content.trim().split("\n")[0].slice(0, 60) || "Picture";
  try {
    store.keep(kept);
  } catch {
    tell("This browser's storage is off or full: the chat is gone when the page is closed. Export it, or delete others.");
  }
  place();
  listChats();
}

// The address names the chat, so that a reload shows it again.
const place = () => history.replaceState(null, "", `#${chat.turns.length ? chat.id : "new"}`);

function listChats() {
  if (naming && $("list").querySelector("input")) return; // a title is being written
  const all = store.chats();
  $("list").replaceChildren(...all.map((one) => entry(one)));
  $("none").hidden = all.length > 0;
  $("export").hidden = !all.length;
}

function entry(one) {
  const current = one.id === chat.id;
  if (one.id === naming) return element("li", {}, nameField(one));
  const title = button(one.title, () => open(one.id));
  title.className = "title";
  const made = element("li", {}, title);
  if (current) {
    title.setAttribute("aria-current", "true");
    made.append(element("div", { className: "actions" },
      button("Rename", () => { naming = one.id; listChats(); $("list").querySelector("input").focus(); }),
      button("Delete", () => remove(one.id)),
      button("Export JSON", () => save(`${one.title}.json`, store.asJson([one]), "application/json")),
      button("Export Markdown", () => save(`${one.title}.md`, store.asMarkdown(one), "text/markdown"))));
  }
  return made;
}

function nameField(one) {
  const field = element("input", { value: one.title, ariaLabel: "Title", maxLength: 200 });
  const done = (title) => {
    if (naming !== one.id) return; // a field that is removed loses the focus, too
    naming = null;
    const kept = one.id === chat.id ? chat : one;
    if (title.trim()) kept.title = title.trim();
    keep(kept);
  };
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") done(field.value);
    else if (event.key === "Escape") done("");
  });
  field.addEventListener("blur", () => done(field.value));
  return field;
}

function show(other) {
  running?.abort();
  chat = other;
  naming = null;
  tell("");
  place();
  listChats();
  redraw();
  main.scrollTop = main.scrollHeight;
  showChats(false);
  text.focus();
}

function open(id) {
  if (id === chat.id) return showChats(false);
  const found = store.chatOf(id);
  if (found) show(found);
  else listChats();
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

function save(name, contents, type) {
  const made = element("a", { href: URL.createObjectURL(new Blob([contents], { type })), download: name.replace(/[\\/:*?"<>|]/g, "_") });
  made.click();
  setTimeout(() => URL.revokeObjectURL(made.href), 10_000);
}

async function load(file) {
  try {
    const some = store.fromJson(await file.text());
    for (const one of some) keep(one, one.changed || undefined);
    show(some[0]);
  } catch (error) {
    tell(`${file.name}: ${error.message}`);
  }
}

function showChats(shown) {
  document.body.classList.toggle("listing", shown);
  $("toggle").setAttribute("aria-expanded", shown);
}

function edit(made, turn, index) {
  if (running) return;
  const field = element("textarea", { value: turn.content, rows: 3, ariaLabel: "Message" });
  const back = () => { redraw(); log.children[index]?.querySelector("button")?.focus(); };
  const send = () => {
    if (!field.value.trim() && !turn.pictures) return;
    chat.turns = [...chat.turns.slice(0, index), { ...turn, content: field.value }];
    answer(index + 1);
  };
  made.replaceChildren(field, element("div", { className: "actions" }, button("Send", send), button("Cancel", back)));
  field.focus();
}

function tell(message) {
  $("alert").textContent = message;
}

// Screen readers hear whole sentences, not tokens.
function speaker() {
  let spoken = 0;
  return (content, all) => {
    const end = all ? content.length : Math.max(...[". ", "! ", "? ", "\n"].map((mark) => content.lastIndexOf(mark) + 1));
    if (end > spoken) {
      $("spoken").textContent = content.slice(spoken, end);
      spoken = end;
    }
  };
}

function factsOf(found) {
  const usage = found.usage, own = usage?.zinc, facts = [];
  const n = usage?.completion_tokens ?? 0;
  const seconds = own?.decode_seconds || (found.last - found.first) / 1000;
  if (n > 1 && seconds > 0) facts.push(`${((n - 1) / seconds).toFixed(1)} tokens/s`);
  if (usage) facts.push(`${n} tokens`, `${usage.prompt_tokens} in the prompt, ${usage.prompt_tokens_details?.cached_tokens ?? 0} of them cached`);
  if (found.seed) facts.push(`seed ${found.seed}`);
  if (found.finish && found.finish !== "stop") facts.push({ length: "cut at the limit", stopped: "stopped" }[found.finish] ?? found.finish);
  return facts.join(" · ");
}

// ---- what can be done

function busy(controller) {
  running = controller;
  $("stop").hidden = !controller;
  $("send").hidden = !!controller;
  if (!controller) log.querySelector(".busy")?.classList.remove("busy");
}

// Answers the turns before `index`; what stood there and behind is replaced.
async function answer(index) {
  if (running) return;
  const own = chat; // another one may be shown before the answer is whole
  own.turns = own.turns.slice(0, index);
  const system = $("parameters").elements.system.value.trim();
  const turn = { role: "assistant", content: "", model: $("model").textContent, request: { ...parameters(), system },
    finish: "broken", facts: "broken off" }; // as it stays where the page is left before its end
  const request = asked(turn.request, own.turns);
  own.turns.push(turn);
  tell("");
  keep(own);
  redraw();
  const shown = article(turn, index);
  log.lastChild.replaceWith(shown.made);
  shown.made.classList.add("busy");
  toEnd();
  const say = speaker();
  busy(new AbortController());
  let drawn = 0, kept = performance.now();
  const draw = (found) => {
    Object.assign(turn, { content: found.content, thought: found.thought, calls: found.calls, seed: found.seed });
    if (performance.now() - kept > 2000) {
      keep(own);
      kept = performance.now();
    }
    drawn ||= requestAnimationFrame(() => {
      drawn = 0;
      const follow = atEnd();
      shown.show();
      if (follow) toEnd();
    });
    say(found.content, false);
  };
  try {
    const found = await ask(request, seedGiven(), running.signal, draw);
    Object.assign(turn, { content: found.content, thought: found.thought, calls: found.calls, seed: found.seed, finish: found.finish, facts: factsOf(found) });
    say(found.content, true);
  } catch (error) {
    tell(error instanceof Refused ? error.message : "the server cannot be reached; retry asks again");
    if (!turn.content && !turn.thought) own.turns.pop();
  } finally {
    busy(null);
    keep(own);
    if (own === chat) {
      const follow = atEnd();
      redraw();
      if (follow) toEnd();
      text.focus();
    }
  }
}

// Asks the same again with the same seed and compares every character.
async function replay(turn, index) {
  if (running || !turn.seed) return;
  const own = chat;
  tell("");
  busy(new AbortController());
  try {
    const found = await ask(asked(turn.request, own.turns.slice(0, index)), turn.seed, running.signal);
    const stopped = ["stopped", "broken"].includes(turn.finish); // only its beginning is there
    if (found.finish === "stopped" && !stopped) return;
    const again = stopped ? found.content.slice(0, turn.content.length) : found.content;
    let at = 0;
    while (at < again.length && again[at] === turn.content[at]) at++;
    const same = again === turn.content && (stopped || found.thought === turn.thought);
    turn.facts = `${(turn.facts ?? "").split(" · replay")[0]} · replay: ${same ? "equal, the same seed gave the same text" : `differs from character ${at + 1} on`}`;
    $("spoken").textContent = same ? "The replay is equal." : "The replay differs.";
  } catch (error) {
    tell(error instanceof Refused ? error.message : "the server cannot be reached");
  } finally {
    busy(null);
    keep(own);
    if (own === chat) {
      redraw();
      log.children[index]?.querySelector(".actions button:nth-child(3)")?.focus();
    }
  }
}

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  if (running || !(text.value.trim() || shown.length)) return;
  chat.turns.push({ role: "user", content: text.value, ...shown.length && { pictures: shown.splice(0) } });
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

async function take(some) {
  if (!some.length) return;
  tell(sees ? "" : "This model reads no pictures; serve one with its projector (--mmproj).");
  if (sees) await pictures.add(shown, some).catch((error) => tell(error.message));
  showPictures();
}
text.addEventListener("paste", (event) => {
  const some = pictures.files(event.clipboardData);
  if (some.length) event.preventDefault();
  take(some);
});
for (const kind of ["dragenter", "dragover", "dragleave", "drop"]) {
  $("page").addEventListener(kind, (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    $("page").classList.toggle("dropping", kind === "dragenter" || kind === "dragover");
    if (kind === "drop") take(pictures.files(event.dataTransfer));
  });
}
$("picture").addEventListener("click", () => $("pictures").click());
$("pictures").addEventListener("change", () => {
  take([...$("pictures").files]);
  $("pictures").value = "";
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  running?.abort();
  showChats(false);
});
$("stop").addEventListener("click", () => running?.abort());
$("new").addEventListener("click", () => show(store.fresh()));
$("toggle").addEventListener("click", () => showChats(!document.body.classList.contains("listing")));
$("page").addEventListener("click", (event) => { if (event.target !== $("toggle")) showChats(false); });
$("export").addEventListener("click", () => save("chats.json", store.asJson(store.chats()), "application/json"));
$("import").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", () => {
  if ($("file").files[0]) load($("file").files[0]);
  $("file").value = "";
});
$("parameters").addEventListener("submit", (event) => event.preventDefault());
$("parameters").addEventListener("change", () => {
  const named = [...$("parameters").elements].filter((field) => field.name && field.value); // the key has no name
  try {
    store.keepSettings(Object.fromEntries(named.map((field) => [field.name, field.value])));
  } catch {} // they hold until the page is closed
});
// Another tab wrote: the list, or the chat that is shown here, is another one by now.
addEventListener("storage", (event) => {
  if (naming) return;
  listChats();
  const found = store.isChat(event.key, chat.id) && !running && store.chatOf(chat.id);
  if (!found) return;
  chat = found;
  redraw();
});
addEventListener("pagehide", () => { if (running) keep(chat); });

async function showModel() {
  const answer = await fetch("v1/models", { headers: headers() }).catch(() => null);
  const found = answer?.ok ? await answer.json() : null;
  if (found) {
    $("model").textContent = found.data[0].id;
    sees = !!found.data[0].meta?.pictures;
    $("picture").hidden = !sees;
    document.title = `${found.data[0].id} - zinc chat`;
  } else if (answer?.status === 503) setTimeout(showModel, 1000); // it is being loaded
  else if (answer?.status === 401) tell("The server wants an API key; it goes into the settings.");
}
$("key").addEventListener("change", showModel);
showModel();
for (const [name, value] of Object.entries(store.settings())) {
  if ($("parameters").elements[name]) $("parameters").elements[name].value = value;
}
const named = location.hash.slice(1);
show(store.chatOf(named) ?? (named === "new" ? null : store.chats()[0]) ?? store.fresh());
