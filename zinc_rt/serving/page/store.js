// Chats are kept in this browser, one entry of its storage each; nothing of them goes to the server but as a question.
import { rows, state } from "./figures.js";
import { isPicture } from "./pictures.js";
import { place } from "./versions.js";

const CHAT = "zinc.chat.", SETTINGS = "zinc.settings", LOOK = "zinc.look";
const TEXTS = ["thought", "calls", "facts", "finish", "model", "replay"];

const read = (name) => {
  try {
    return JSON.parse(localStorage.getItem(name));
  } catch {
    return null; // no storage, or nothing that this page wrote
  }
};

export const fresh = () => ({ id: crypto.getRandomValues(new Uint32Array(3)).join("-"), title: "", changed: 0, turns: [] });

// A turn whose content is a list of parts, as OpenAI's form has it, as this page has it.
function plain(turn) {
  if (!Array.isArray(turn?.content)) return turn;
  const content = turn.content.map((part) => part?.text ?? "").join("");
  return { ...turn, content, pictures: turn.content.map((part) => part?.image_url?.url) };
}

const isObject = (found) => !!found && typeof found === "object";
const only = (found, fits) => Object.fromEntries(Object.entries(found).filter(([, value]) => fits(value)));

// What is well-formed in a list of turns, those of other versions, too.
const checkedTurns = (given) => given.map(plain).filter((t) => ["user", "assistant"].includes(t?.role) && typeof t.content === "string").map((t) => {
  const turn = { role: t.role, content: t.content };
  const pictures = Array.isArray(t.pictures) ? t.pictures.filter(isPicture) : [];
  if (pictures.length) turn.pictures = pictures;
  for (const name of TEXTS) if (typeof t[name] === "string") turn[name] = t[name];
  for (const [name, form] of [["seed", /^\d{1,20}$/], ["event", /^[\w.-]{1,160}$/], ["tokens", /^\d[\d,]*$/]])
    if (typeof t[name] === "string" && form.test(t[name])) turn[name] = t[name];
  if (isObject(t.request)) turn.request = t.request;
  if (isObject(t.figures)) turn.figures = only(t.figures, Number.isFinite);
  if (Array.isArray(t.odds)) turn.odds = t.odds.filter((pair) => typeof pair?.[0] === "string" && Number.isFinite(pair[1]));
  if (Array.isArray(t.versions)) {
    const all = t.versions.map((one) => (Array.isArray(one) ? checkedTurns(one) : one)).filter((one) => one === null || one?.length);
    if (all.length > 1 && all.filter((one) => one === null).length === 1) turn.versions = all;
  }
  return turn;
});

// What is well-formed in a chat from the storage or a file; null if there is no turn.
function checked(found, id) {
  const turns = Array.isArray(found?.turns) ? checkedTurns(found.turns) : [];
  if (!turns.length) return null;
  const settings = isObject(found.settings) && { settings: only(found.settings, (value) => typeof value === "string") };
  return { ...fresh(), id, title: String(found.title ?? "").slice(0, 200), changed: Number(found.changed) || 0, ...settings, turns };
}

export const chatOf = (id) => checked(read(CHAT + id), id);

export function chats() {
  let names = [];
  try {
    names = Object.keys(localStorage);
  } catch {} // no storage
  return names.filter((name) => name.startsWith(CHAT)).map((name) => chatOf(name.slice(CHAT.length))).filter(Boolean)
    .sort((a, b) => b.changed - a.changed);
}

// Throws where the storage is off or full.
export const keep = (chat) => localStorage.setItem(CHAT + chat.id, JSON.stringify(chat));
export const drop = (id) => localStorage.removeItem(CHAT + id);
export const isChat = (name, id) => name === CHAT + id;

export const settings = () => read(SETTINGS) ?? {};
export const keepSettings = (values) => localStorage.setItem(SETTINGS, JSON.stringify(values));
export const look = () => read(LOOK);
export const keepLook = (value) => localStorage.setItem(LOOK, JSON.stringify(value));

// ---- files

export const asJson = (some) => JSON.stringify({ zinc_chats: 1, chats: some }, null, 1);

export function asMarkdown(chat) {
  const quoted = (text) => text.trim().split("\n").map((line) => `> ${line}`).join("\n");
  const parts = chat.turns.flatMap((turn) => {
    const { at, of } = place(turn);
    const facts = [of > 1 && `version ${at + 1} of ${of}`, state(turn), ...rows(turn).map((row) => row.join(": "))].filter(Boolean);
    return [
      `## ${turn.role === "user" ? "You" : turn.model ?? "Model"}`,
      ...(turn.thought ? [quoted(turn.thought)] : []),
      ...(turn.pictures ?? []).map((url) => `![Picture](${url})`),
      turn.content,
      ...(turn.calls ? [`\`\`\`\n${turn.calls.trim()}\n\`\`\``] : []),
      ...(facts.length ? [`*${facts.join(" · ")}*`] : []),
    ];
  });
  const system = chat.settings?.system ? [`## System\n\n${chat.settings.system}`] : [];
  return [`# ${chat.title}`, ...system, ...parts].join("\n\n") + "\n";
}

// The chats of a file: what `asJson` wrote, or a list of messages in OpenAI's form. Throws an Error that says what is wrong.
export function fromJson(text) {
  let found;
  try {
    found = JSON.parse(text);
  } catch {
    throw new Error("the file is no JSON; give one that this page exported");
  }
  const given = Array.isArray(found) ? [{ turns: found }] : found?.chats;
  const some = Array.isArray(given) ? given.map((chat) => checked(chat, fresh().id)).filter(Boolean) : [];
  if (!some.length) throw new Error("the file holds no chats; give one that this page exported");
  return some;
}
