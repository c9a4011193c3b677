// What a chat's requests have besides its messages: model or adapter, system prompt, sampling. Each chat has its own; a new one
// begins with those used last. And how the page looks.
import * as api from "./api.js";
import { $, element } from "./dom.js";
import * as store from "./store.js";

const form = $("parameters"), picker = $("model"), look = $("look");
const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "max_tokens"];
let listed = []; // models and adapters of the server
let wanted = ""; // the chat's, which this server may not have
let waiting; // the timer of the next look at the models
let last = store.settings(); // those used last

const fields = () => [...form.elements].filter((field) => field.name); // the key has no name: it is kept nowhere

// As they are kept: texts by name.
export const settings = () => ({ model: wanted || picker.value,
  ...Object.fromEntries(fields().map((field) => [field.name, field.type === "checkbox" ? (field.checked ? "on" : "") : field.value])) });

// Notes what a chat uses: a new one begins with that.
export function used(values) {
  last = values;
  try {
    store.keepSettings(values);
  } catch {} // it holds until the page is closed
}

// Shows a chat's settings, or those used last.
export function showSettings(values = last) {
  for (const field of fields()) {
    if (field.type === "checkbox") field.checked = values[field.name] === "on";
    else field.value = values[field.name] ?? "";
  }
  wanted = values.model ?? "";
  drawModels();
}

export const seedGiven = () => form.elements.seed.value.trim();
export const modelMeta = () => listed.find((one) => one.id === picker.value)?.meta ?? {};

// The scale of the adapter that is chosen, where it is not 1.
function scale() {
  const { value } = form.elements.scale;
  return modelMeta().adapter === undefined || value === "" || Number(value) === 1 ? undefined : Number(value);
}

export const modelName = () => (picker.value || "Model") + (scale() === undefined ? "" : ` × ${scale()}`);

// As a request has them.
export function parameters() {
  const found = { ...(picker.value && { model: picker.value }), system: form.elements.system.value.trim() };
  for (const name of NUMBERS) if (form.elements[name].value !== "") found[name] = Number(form.elements[name].value);
  if (scale() !== undefined) found.lora = [{ id: modelMeta().adapter, scale: scale() }];
  return { ...found, ...(form.elements.logprobs.checked && { logprobs: true }) };
}

function drawModels() {
  const named = (one) => one.id + (one.parent ? `, adapter of ${one.parent}` : "") + (["unloaded", "loading"].includes(one.status?.value) ? `, ${one.status.value === "loading" ? "loading" : "not loaded"}` : "");
  const chat = listed.filter((one) => one.meta?.chat !== false); // not what embeds or ranks
  const own = (chat.length ? chat : listed).filter((one) => one.parent || (one.root ?? one.id) === one.id || one.id === wanted);
  const made = own.map((one) => element("option", { value: one.id, textContent: named(one) }));
  if (made.length !== picker.options.length || made.some((one, i) => !one.isEqualNode(picker.options[i]))) picker.replaceChildren(...made);
  const found = own.find((one) => one.id === wanted) ?? own[0];
  if (found) picker.value = found.id;
  picker.disabled = own.length < 2;
  const meta = modelMeta();
  for (const name of NUMBERS) form.elements[name].placeholder = meta.defaults?.[name] ?? form.elements[name].dataset.usual;
  form.elements.scale.closest("label").hidden = meta.adapter === undefined;
  $("picture").hidden = !meta.pictures;
  document.title = found ? `${found.id} - zinc chat` : "zinc chat";
}

// Asks the server what it has, again and again while it loads; `tell` gets what is wrong.
export async function showModels(tell) {
  const { status, found } = await api.models();
  clearTimeout(waiting);
  if (status === 503) waiting = setTimeout(() => showModels(tell), 1000);
  else if (status === 401) tell("The server wants an API key; it goes into the settings.");
  if (!found.length) return;
  listed = found;
  drawModels();
}

function paint() {
  if (look.value === "system") delete document.documentElement.dataset.look;
  else document.documentElement.dataset.look = look.value;
}
look.value = store.look() ?? "system";
paint();

// `changed`: called when the chat's settings are others.
export function watch(changed, tell) {
  look.addEventListener("change", () => {
    paint();
    try {
      store.keepLook(look.value);
    } catch {} // it holds until the page is closed
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", (event) => { if (event.target.name) changed(); });
  picker.addEventListener("change", () => {
    wanted = picker.value;
    drawModels();
    changed();
  });
  picker.addEventListener("focus", () => showModels(tell));
  $("key").addEventListener("change", () => showModels(tell));
}
