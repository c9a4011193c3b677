// Turns a model's text into nodes: paragraphs, headings, lists, quotes, code, emphasis. Nothing of the text is ever
// parsed as HTML, no image is loaded, and a link shows where it leads.

const node = (name, ...children) => {
  const made = document.createElement(name);
  made.append(...children);
  return made;
};

const INLINE = /(`+)(.+?)\1(?!`)|\*\*(?=\S)(.+?)\*\*|\*(?=[^\s*])(.+?)\*(?!\*)|\[([^\]\n]+)\]\(([^)\s]+)\)/;

function inline(text) {
  const out = [];
  for (let rest = text; rest; ) {
    const found = INLINE.exec(rest);
    if (!found) {
      out.push(rest);
      break;
    }
    out.push(rest.slice(0, found.index));
    const [whole, , code, strong, weak, label, target] = found;
    if (code !== undefined) out.push(node("code", code));
    else if (strong !== undefined) out.push(node("strong", ...inline(strong)));
    else if (weak !== undefined) out.push(node("em", ...inline(weak)));
    else out.push(...link(label, target));
    rest = rest.slice(found.index + whole.length);
  }
  return out;
}

function link(label, target) {
  if (!/^https?:\/\//i.test(target)) return [`${label} (${target})`];
  const made = node("a", target);
  made.href = target;
  made.rel = "noreferrer noopener nofollow";
  made.target = "_blank";
  return [`${label} (`, made, ")"];
}

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)/;
const ITEM = /^(\s*)(?:[-*+]|(\d{1,9})[.)])\s+(.*)$/;

export function render(text) {
  const lines = text.split("\n");
  const out = document.createDocumentFragment();
  let paragraph = [];
  const flush = () => {
    if (!paragraph.length) return;
    const made = node("p");
    paragraph.forEach((line, i) => made.append(...(i ? [node("br")] : []), ...inline(line)));
    out.append(made);
    paragraph = [];
  };
  for (let i = 0; i < lines.length; i++) {
    const line = lines[i];
    const fence = FENCE.exec(line);
    const heading = /^ {0,3}(#{1,6})\s+(.*)$/.exec(line);
    if (fence) {
      flush();
      const code = [];
      while (++i < lines.length && !lines[i].trimStart().startsWith(fence[1])) code.push(lines[i]);
      const pre = node("pre", node("code", code.join("\n")));
      pre.tabIndex = 0;
      if (fence[2]) pre.setAttribute("aria-label", `Code, ${fence[2]}`);
      out.append(pre);
    } else if (heading) {
      flush();
      out.append(node(`h${Math.min(6, heading[1].length + 2)}`, ...inline(heading[2])));
    } else if (ITEM.test(line)) {
      flush();
      i = list(lines, i, out) - 1;
    } else if (/^\s*>/.test(line)) {
      flush();
      const quoted = [];
      for (; i < lines.length && /^\s*>/.test(lines[i]); i++) quoted.push(lines[i].replace(/^\s*> ?/, ""));
      i--;
      out.append(node("blockquote", render(quoted.join("\n"))));
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
