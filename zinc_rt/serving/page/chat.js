// The chat page: a conversation with the server that sent this page, over its own OpenAI-compatible API.
import { render } from "./markdown.js";

const $ = (id) => document.getElementById(id);
const log = $("log"), text = $("text"), main = document.querySelector("main");

let turns = []; // {role, content, thought, request, facts}: all that a next request needs
let running = null; // the AbortController of the answer that is coming

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

function messagesBefore(index) {
  const system = $("parameters").elements.system.value.trim();
  const said = turns.slice(0, index).map(({ role, content }) => ({ role, content }));
  return system ? [{ role: "system", content: system }, ...said] : said;
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
  const made = element("article", { className: turn.role }, element("h2", { textContent: user ? "You" : "Model" }),
    thinking, said, facts, actions);
  const show = () => {
    if (user) said.textContent = turn.content;
    else said.replaceChildren(render(turn.content + (turn.calls ? `\n\n\`\`\`\n${turn.calls.trim()}\n\`\`\`` : "")));
    thought.textContent = turn.thought ?? "";
    thinking.hidden = !turn.thought;
    facts.textContent = turn.facts ?? "";
    facts.hidden = !turn.facts;
  };
  if (user) actions.append(button("Edit", () => edit(made, turn, index)));
  else actions.append(button("Copy", () => navigator.clipboard?.writeText(turn.content)),
    button("Retry", () => answer(index)), button("Replay", () => replay(turn, index)));
  show();
  return { made, show };
}

function redraw() {
  log.replaceChildren(...turns.map((turn, index) => article(turn, index).made));
  $("empty").hidden = turns.length > 0;
}

function edit(made, turn, index) {
  if (running) return;
  const field = element("textarea", { value: turn.content, rows: 3, ariaLabel: "Message" });
  const back = () => { redraw(); log.children[index]?.querySelector("button")?.focus(); };
  const send = () => {
    if (!field.value.trim()) return;
    turns = [...turns.slice(0, index), { role: "user", content: field.value }];
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
  turns = turns.slice(0, index);
  const request = { ...parameters(), messages: messagesBefore(index) };
  const turn = { role: "assistant", content: "", request };
  turns.push(turn);
  redraw();
  tell("");
  const shown = article(turn, index);
  log.lastChild.replaceWith(shown.made);
  shown.made.classList.add("busy");
  toEnd();
  const say = speaker();
  busy(new AbortController());
  let drawn = 0;
  const draw = (found) => {
    Object.assign(turn, { content: found.content, thought: found.thought, calls: found.calls });
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
    if (!turn.content && !turn.thought) turns.pop();
  } finally {
    busy(null);
    const follow = atEnd();
    redraw();
    if (follow) toEnd();
    text.focus();
  }
}

// Asks the same again with the same seed and compares every character.
async function replay(turn, index) {
  if (running || !turn.seed) return;
  tell("");
  busy(new AbortController());
  try {
    const found = await ask(turn.request, turn.seed, running.signal);
    if (found.finish === "stopped" && turn.finish !== "stopped") return;
    const stopped = turn.finish === "stopped";
    const again = stopped ? found.content.slice(0, turn.content.length) : found.content;
    let at = 0;
    while (at < again.length && again[at] === turn.content[at]) at++;
    const same = again === turn.content && (stopped || found.thought === turn.thought);
    turn.facts = `${turn.facts.split(" · replay")[0]} · replay: ${same ? "equal" : `differs from character ${at + 1} on`}`;
    $("spoken").textContent = same ? "The replay is equal." : "The replay differs.";
  } catch (error) {
    tell(error instanceof Refused ? error.message : "the server cannot be reached");
  } finally {
    busy(null);
    redraw();
    log.children[index]?.querySelectorAll("button")[2]?.focus();
  }
}

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  if (running || !text.value.trim()) return;
  turns.push({ role: "user", content: text.value });
  text.value = "";
  answer(turns.length);
});
text.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $("ask").requestSubmit();
  }
});
document.addEventListener("keydown", (event) => { if (event.key === "Escape") running?.abort(); });
$("stop").addEventListener("click", () => running?.abort());
$("new").addEventListener("click", () => {
  running?.abort();
  turns = [];
  tell("");
  redraw();
  text.focus();
});
$("parameters").addEventListener("submit", (event) => event.preventDefault());

async function showModel() {
  const answer = await fetch("v1/models", { headers: headers() }).catch(() => null);
  const found = answer?.ok ? await answer.json() : null;
  if (found) $("model").textContent = found.data[0].id;
  else if (answer?.status === 503) setTimeout(showModel, 1000); // it is being loaded
  else if (answer?.status === 401) tell("The server wants an API key; it goes into the settings.");
}
$("key").addEventListener("change", showModel);
showModel();
text.focus();
