// Nodes of the page: made, and brought up to date.
export const $ = (id) => document.getElementById(id);

export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

export function button(label, act, properties = {}) {
  const made = element("button", { type: "button", textContent: label, ...properties });
  made.addEventListener("click", act);
  return made;
}

// Gives a node the children of another one. Those that are equal stay, with a selection in them, and are not laid out anew.
export function settle(shown, made) {
  let at = shown.firstChild;
  for (const next of [...made.childNodes]) {
    const here = at;
    at = at?.nextSibling;
    if (!here) shown.append(next);
    else if (here.isEqualNode(next)) continue;
    else if (here.nodeType === Node.ELEMENT_NODE && here.cloneNode().isEqualNode(next.cloneNode())) settle(here, next);
    else here.replaceWith(next);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}
