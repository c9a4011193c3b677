// How turns look: text, state, figures, and what can be done with them.
import { $, button, element, settle } from "./dom.js";
import { rows, state, unfinished } from "./figures.js";
import { copy, render } from "./markdown.js";
import * as pictures from "./pictures.js";
import { place } from "./versions.js";

const UNLIKELY = 10; // tokens that are listed

const percent = (logprob) => `${(100 * Math.exp(logprob)).toFixed(logprob < -4.6 ? 2 : 0)} %`;

// Tokens with their probabilities: the least likely ones in words, and all of them marked.
function probabilities(odds) {
  const least = odds.toSorted((a, b) => a[1] - b[1]).slice(0, UNLIKELY);
  const kind = (logprob) => (logprob < -2.3 ? "rare" : logprob < -0.7 ? "unsure" : "");
  return [
    element("p", {}, ...odds.map(([token, logprob]) => element("span", { className: kind(logprob), title: percent(logprob), textContent: token }))),
    element("p", { textContent: "The least likely tokens:" }),
    element("ol", {}, ...least.map(([token, logprob]) => element("li", { textContent: `“${token}” ${percent(logprob)}` }))),
  ];
}

function figures(turn) {
  const found = rows(turn);
  const made = element("details", { className: "figures", hidden: !found.length }, element("summary", { textContent: "Tokens and time" }),
    element("dl", {}, ...found.flatMap(([label, value]) => [element("dt", { textContent: label }), element("dd", { textContent: value })])));
  if (turn.odds?.length) {
    made.addEventListener("toggle", () => made.append(element("div", { className: "odds" }, ...probabilities(turn.odds))), { once: true });
  }
  return made;
}

function versions(turn, choose) {
  const { at, of } = place(turn);
  const step = (by) => () => choose((at + by + of) % of, by < 0 ? "previous" : "next");
  const made = element("span", { className: "versions", role: "group", ariaLabel: "Versions", hidden: of < 2 },
    button("‹", step(-1), { name: "previous", ariaLabel: "Previous version" }),
    element("span", { textContent: `${at + 1}/${of}` }),
    button("›", step(1), { name: "next", ariaLabel: "Next version" }));
  return made;
}

// acts: what is called with the index: `edit`, `retry`, `replay`, `goOn`, `choose(index, version, button)`. last: no turn follows.
export function article(turn, index, last, acts) {
  const user = turn.role === "user";
  const said = element("div", { className: "said" }), thought = element("div", { className: "thought" });
  const thinking = element("details", { className: "thinking" }, element("summary", { textContent: "Reasoning" }), thought);
  const facts = element("p", { className: "facts" });
  const actions = element("div", { className: "actions" }, versions(turn, (number, from) => acts.choose(index, number, from)));
  const made = element("article", { className: turn.role }, element("h2", { textContent: user ? "You" : turn.model ?? "Model" }),
    element("ul", { className: "pictures" }, ...pictures.thumbnails(turn.pictures ?? [])), thinking, said, facts, figures(turn), actions);
  const show = (status = "") => {
    if (user) said.textContent = turn.content;
    else settle(said, render(turn.content + (turn.calls ? `\n\n\`\`\`\n${turn.calls.trim()}\n\`\`\`` : "")));
    thought.textContent = turn.thought ?? "";
    thinking.hidden = !turn.thought;
    facts.textContent = status || state(turn);
    facts.hidden = !facts.textContent;
    facts.classList.toggle("status", !!status);
  };
  if (user) actions.append(button("Edit", () => acts.edit(index, made), { name: "edit" }));
  else {
    actions.append(button("Copy", (event) => copy(turn.content, event.target), { name: "copy" }), button("Retry", () => acts.retry(index), { name: "retry" }));
    if (last && unfinished(turn)) actions.append(button("Go on", () => acts.goOn(index), { name: "goOn", title: "Goes on where the answer ended, as if it had not" }));
    if (turn.seed) {
      actions.append(button("Replay", () => acts.replay(index), { name: "replay", title: "Asks the same again with the same seed, and compares each character" }),
        button("?", () => {}, { ariaLabel: "What Replay shows", popoverTargetElement: $("same") }));
    }
  }
  show();
  return { made, show };
}

// The parts of a text that are whole sentences by now: screen readers hear those, not tokens.
export function speaker(spoken = 0) {
  return (content, all) => {
    const end = all ? content.length : Math.max(...[". ", "! ", "? ", "\n"].map((mark) => content.lastIndexOf(mark) + 1));
    if (end > spoken) {
      $("spoken").textContent = content.slice(spoken, end);
      spoken = end;
    }
  };
}
