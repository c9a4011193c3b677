// Turns a model's text into nodes: paragraphs, headings, lists, quotes, tables, code, formulas, emphasis. Nothing of the
// text is ever parsed as HTML, no image is loaded, and a link shows which host it leads to.
import { button, element } from "./dom.js";
import { highlight } from "./highlight.js";
import { math } from "./math.js";

const node = (name, ...children) => element(name, {}, ...children);

// `code`, \(formula\), \[formula\], $$formula$$, $formula$, \*, **strong**, *weak*, ~~gone~~, [label](target), address
const INLINE = new RegExp([
  /(`+)(.+?)\1(?!`)/, /\\\((.+?)\\\)/, /\\\[(.+?)\\\]/, /\$\$(.+?)\$\$/, /\$(?=[^\s$])([^$\n]*?[^\s$\\])\$(?!\d)/,
  /\\([\\`*_{}[\]()#+.!|$~>-])/, /\*\*(?=\S)(.+?)\*\*/, /\*(?=[^\s*])(.+?)\*(?!\*)/, /~~(?=\S)(.+?)~~/,
  /!?\[([^\]\n]+)\]\(([^)\s]+)\)/, /<?(https?:\/\/[^\s<>"`]*[^\s<>"`.,;:!?)\]'*])>?/,
].map((part) => part.source).join("|"));

function inline(text) {
  const out = [];
  for (let rest = text; rest; ) {
    const found = INLINE.exec(rest);
    if (!found) {
      out.push(rest);
      break;
    }
    out.push(rest.slice(0, found.index));
    const [whole, , code, round, square, double, single, plain, strong, weak, gone, label, target, address] = found;
    if (code !== undefined) out.push(node("code", code));
    else if (round ?? single) out.push(math(round ?? single, false));
    else if (square ?? double) out.push(math(square ?? double, true));
    else if (plain) out.push(plain);
    else if (strong !== undefined) out.push(node("strong", ...inline(strong)));
    else if (weak !== undefined) out.push(node("em", ...inline(weak)));
    else if (gone !== undefined) out.push(node("del", ...inline(gone)));
    else if (address) out.push(...link(address, address));
    else out.push(...link(label, target));
    rest = rest.slice(found.index + whole.length);
  }
  return out;
}

function link(label, target) {
  if (!/^https?:\/\//i.test(target) || !URL.canParse(target)) return [`${label} (${target})`];
  const made = node("a", label);
  made.href = target;
  made.rel = "noreferrer noopener nofollow";
  made.target = "_blank";
  made.title = target;
  return label === target ? [made] : [made, ` (${made.host})`];
}

// Copies a text, also where the page came over plain HTTP and the browser has no clipboard for it; tells so on the button.
export async function copy(text, told) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = node("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
    told.focus();
  }
  const label = told.textContent;
  told.textContent = "Copied";
  setTimeout(() => { told.textContent = label; }, 1500);
}

function block(code, language) {
  const inner = node("code", ...highlight(code, language));
  const pre = node("pre", inner);
  const copying = button("Copy", () => copy(inner.textContent, copying), { ariaLabel: "Copy code" });
  const made = element("div", { className: "code" }, node("div", node("span", language), copying), pre);
  scrolls(pre, language ? `Code, ${language}` : "Code");
  return made;
}

// What may be wider than the page is reached by keys, too.
const scrolls = (made, name) => Object.assign(made, { tabIndex: 0, role: "group", ariaLabel: name });

const cells = (line) => line.trim().replace(/^\||(?<!\\)\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
const RULE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

function table(lines, start, out) {
  const sides = cells(lines[start + 1]).map((mark) => (mark.endsWith(":") ? (mark.startsWith(":") ? "middle" : "right") : ""));
  const row = (line, name) => node("tr", ...sides.map((side, i) => Object.assign(node(name, ...inline(cells(line)[i] ?? "")), { className: side })));
  const body = node("tbody");
  let i = start + 2;
  for (; i < lines.length && lines[i].includes("|"); i++) body.append(row(lines[i], "td"));
  const made = node("div", node("table", node("thead", row(lines[start], "th")), body));
  made.className = "table";
  out.append(scrolls(made, "Table"));
  return i;
}

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)/;
const ITEM = /^(\s*)(?:[-*+]|(\d{1,9})[.)])\s+(.*)$/;
const FORMULA = /^\s*(\$\$|\\\[)(.*)$/;

export function render(text, depth = 0) {
  const lines = text.split("\n");
  const out = document.createDocumentFragment();
  let paragraph = [], level = 2; // of the last heading: an answer has one of its own
  const flush = () => {
    if (!paragraph.length) return;
    const made = node("p");
    paragraph.forEach((line, i) => made.append(...(i ? [node("br")] : []), ...inline(line)));
    out.append(made);
    paragraph = [];
  };
  for (let i = 0; i < lines.length; i++) {
    const line = lines[i];
    const fence = FENCE.exec(line), formula = FORMULA.exec(line);
    const heading = /^ {0,3}(#{1,6})\s+(.*)$/.exec(line);
    const close = formula && (formula[1] === "$$" ? "$$" : "\\]");
    const last = formula ? lines.findIndex((l, at) => at >= i && (at > i ? l : formula[2]).trimEnd().endsWith(close)) : -1;
    if (fence) {
      flush();
      const code = [];
      while (++i < lines.length && !lines[i].trimStart().startsWith(fence[1])) code.push(lines[i]);
      out.append(block(code.join("\n"), fence[2]));
    } else if (last >= i) {
      flush();
      const whole = [formula[2], ...lines.slice(i + 1, last + 1)].join("\n").trimEnd();
      out.append(math(whole.slice(0, -2).trim(), true));
      i = last;
    } else if (heading) {
      flush();
      level = Math.min(6, heading[1].length + 2, level + 1);
      out.append(node(`h${level}`, ...inline(heading[2])));
    } else if (line.includes("|") && RULE.test(lines[i + 1] ?? "") && cells(line).length === cells(lines[i + 1]).length) {
      flush();
      i = table(lines, i, out) - 1;
    } else if (/^ {0,3}([-*_])( *\1){2,} *$/.test(line)) {
      flush();
      out.append(node("hr"));
    } else if (ITEM.test(line)) {
      flush();
      i = list(lines, i, out) - 1;
    } else if (depth < 9 && /^\s*>/.test(line)) {
      flush();
      const quoted = [];
      for (; i < lines.length && /^\s*>/.test(lines[i]); i++) quoted.push(lines[i].replace(/^\s*> ?/, ""));
      i--;
      out.append(node("blockquote", render(quoted.join("\n"), depth + 1)));
    } else if (!line.trim()) flush();
    else paragraph.push(line);
  }
  flush();
  return out;
}

// Lines from `start` on as one list, deeper ones inside; returns where it ends.
function list(lines, start, out, depth = 0) {
  const [, indent, number] = ITEM.exec(lines[start]);
  const made = node(number === undefined ? "ul" : "ol");
  if (number !== undefined) made.start = Number(number);
  out.append(made);
  let i = start;
  while (i < lines.length) {
    const item = ITEM.exec(lines[i]);
    if (!item || item[1].length < indent.length) break;
    if (item[1].length > indent.length + 1 && depth < 8) {
      i = list(lines, i, made.lastChild ?? made, depth + 1);
      continue;
    }
    if ((item[2] === undefined) !== (number === undefined)) break;
    made.append(node("li", ...inline(item[3])));
    i++;
  }
  return i;
}
