// Formulas in LaTeX's words as MathML. What is not known here stays as it was written.
const NAMES = {};
const add = (kind, words) => words.trim().split(/\s+/).forEach((word, i, all) => { if (i % 2) NAMES[all[i - 1]] = [kind, word]; });
add("mi", `alpha α beta β gamma γ delta δ epsilon ϵ varepsilon ε zeta ζ eta η theta θ vartheta ϑ iota ι kappa κ lambda λ
  mu μ nu ν xi ξ pi π rho ρ sigma σ tau τ upsilon υ phi ϕ varphi φ chi χ psi ψ omega ω Gamma Γ Delta Δ Theta Θ Lambda Λ
  Xi Ξ Pi Π Sigma Σ Phi Φ Psi Ψ Omega Ω infty ∞ partial ∂ nabla ∇ ell ℓ hbar ℏ emptyset ∅ varnothing ∅ Re ℜ Im ℑ`);
add("mo", `times × cdot · div ÷ pm ± mp ∓ le ≤ leq ≤ ge ≥ geq ≥ ne ≠ neq ≠ approx ≈ equiv ≡ sim ∼ simeq ≃ cong ≅ propto ∝
  ll ≪ gg ≫ to → rightarrow → leftarrow ← leftrightarrow ↔ Rightarrow ⇒ Leftarrow ⇐ Leftrightarrow ⇔ implies ⇒ iff ⇔
  mapsto ↦ in ∈ notin ∉ ni ∋ subset ⊂ subseteq ⊆ supset ⊃ supseteq ⊇ cup ∪ cap ∩ setminus ∖ forall ∀ exists ∃ neg ¬
  lnot ¬ land ∧ wedge ∧ lor ∨ vee ∨ oplus ⊕ otimes ⊗ circ ∘ bullet • star ⋆ ast ∗ ldots … dots … cdots ⋯ vdots ⋮ ddots ⋱
  mid ∣ parallel ∥ perp ⊥ angle ∠ therefore ∴ because ∵ int ∫ iint ∬ oint ∮ langle ⟨ rangle ⟩ lfloor ⌊ rfloor ⌋ lceil ⌈
  rceil ⌉ prime ′ { { } } | ∥ lbrace { rbrace } colon :`);
add("limits", "sum ∑ prod ∏ bigcup ⋃ bigcap ⋂ lim lim max max min min sup sup inf inf argmax argmax argmin argmin");
add("function", "sin sin cos cos tan tan cot cot log log ln ln exp exp det det dim dim gcd gcd deg deg ker ker Pr Pr sinh sinh cosh cosh tanh tanh arcsin arcsin arccos arccos arctan arctan");
add("over", "hat ^ widehat ^ bar ¯ overline ¯ vec → dot ˙ ddot ¨ tilde ~ widetilde ~");
const SPACES = { ",": ".17em", ":": ".22em", ";": ".28em", " ": ".25em", "!": "0", quad: "1em", qquad: "2em" };
const FENCES = { matrix: ["", ""], pmatrix: ["(", ")"], bmatrix: ["[", "]"], vmatrix: ["|", "|"], cases: ["{", ""], aligned: ["", ""], "align*": ["", ""], align: ["", ""], gathered: ["", ""] };
const DOUBLE = { R: "ℝ", N: "ℕ", Z: "ℤ", Q: "ℚ", C: "ℂ", P: "ℙ", E: "𝔼" };
const TOKEN = /\s*(\\[A-Za-z]+|\\[^]|\d+(?:\.\d+)?|[^\s])/y;

const node = (name, ...children) => {
  const made = document.createElementNS("http://www.w3.org/1998/Math/MathML", name);
  made.append(...children);
  return made;
};

class Unknown extends Error {}

class Formula {
  constructor(source) {
    this.source = source;
    this.at = 0;
    this.depth = 0;
  }
  peek() {
    TOKEN.lastIndex = this.at;
    return TOKEN.exec(this.source)?.[1] ?? "";
  }
  take() {
    const found = this.peek();
    if (found) this.at = TOKEN.lastIndex;
    return found;
  }
  expect(token) {
    if (this.take() !== token) throw new Unknown();
  }
  row(...ends) {
    if (++this.depth > 50) throw new Unknown();
    const made = node("mrow");
    while (!ends.includes(this.peek())) {
      if (!this.peek()) throw new Unknown();
      made.append(this.scripted());
    }
    this.depth--;
    return made;
  }
  scripted() {
    const base = this.atom();
    while (["\\limits", "\\nolimits"].includes(this.peek())) this.take();
    let below = null, above = null;
    for (let mark; (mark = this.peek()) === "_" || mark === "^" || mark === "'"; ) {
      this.take();
      if (mark === "_" && !below) below = this.atom();
      else if (mark === "^" && !above) above = this.atom();
      else if (mark === "'") above = above ? node("mrow", above, node("mo", "′")) : node("mo", "′");
      else throw new Unknown();
    }
    const limits = base.limits && this.display;
    if (below && above) return node(limits ? "munderover" : "msubsup", base, below, above);
    if (below) return node(limits ? "munder" : "msub", base, below);
    if (above) return node(limits ? "mover" : "msup", base, above);
    return base;
  }
  group() {
    this.expect("{");
    const made = this.row("}");
    this.take();
    return made;
  }
  raw() { // the letters of a group
    const found = /\s*\{([^{}]*)\}/y;
    found.lastIndex = this.at;
    const text = found.exec(this.source);
    if (!text) throw new Unknown();
    this.at = found.lastIndex;
    return text[1];
  }
  atom() {
    const token = this.take();
    if (token === "{") {
      const made = this.row("}");
      this.take();
      return made;
    }
    if (/^\d/.test(token)) return node("mn", token);
    if (/^\p{L}$/u.test(token)) return node("mi", token);
    if (token.startsWith("\\") && token.length > 1) return this.command(token.slice(1));
    if (!token || "}&^_\\$#%".includes(token)) throw new Unknown();
    return node("mo", token === "-" ? "−" : token);
  }
  command(name) {
    const [kind, shown] = Object.hasOwn(NAMES, name) ? NAMES[name] : [];
    if (kind === "over") return node("mover", this.atom(), node("mo", shown));
    if (kind === "limits") return Object.assign(node("mo", shown), { limits: true });
    if (kind === "function") return node("mi", shown);
    if (kind) return node(kind, shown);
    if (Object.hasOwn(SPACES, name)) {
      const made = node("mspace");
      made.setAttribute("width", SPACES[name]);
      return made;
    }
    if (["%", "$", "#", "&", "_"].includes(name)) return node("mo", name);
    if (["frac", "dfrac", "tfrac"].includes(name)) return node("mfrac", this.atom(), this.atom());
    if (name === "binom") {
      const made = node("mfrac", this.atom(), this.atom());
      made.setAttribute("linethickness", "0");
      return node("mrow", node("mo", "("), made, node("mo", ")"));
    }
    if (name === "sqrt") {
      if (this.peek() !== "[") return node("msqrt", this.atom());
      this.take();
      const degree = this.row("]");
      this.take();
      return node("mroot", this.atom(), degree);
    }
    if (["text", "textbf", "textit", "mbox"].includes(name)) return node("mtext", this.raw().replace(/^ | $/g, "\u00a0"));
    if (["mathrm", "operatorname"].includes(name)) return node("mi", this.raw());
    if (name === "mathbb") return node("mi", [...this.raw()].map((letter) => DOUBLE[letter] ?? letter).join(""));
    if (["mathbf", "boldsymbol", "mathcal", "mathit", "boxed", "underline"].includes(name)) return this.group();
    if (name === "left") {
      const first = this.fence(), inside = this.row("\\right");
      this.take();
      return node("mrow", first, inside, this.fence());
    }
    if (["displaystyle", "textstyle", "big", "Big", "bigl", "bigr", "Bigl", "Bigr"].includes(name)) return node("mrow");
    if (name === "begin") return this.table(this.raw());
    throw new Unknown();
  }
  fence() {
    const token = this.take();
    if (token === ".") return node("mo", "");
    if (token.startsWith("\\")) return this.command(token.slice(1));
    if (!"()[]|/<>".includes(token)) throw new Unknown();
    return node("mo", token);
  }
  table(kind) {
    if (!Object.hasOwn(FENCES, kind)) throw new Unknown();
    const made = node("mtable");
    let row = node("mtr");
    for (;;) {
      row.append(node("mtd", this.row("&", "\\\\", "\\end")));
      const end = this.take();
      if (end !== "&") {
        made.append(row);
        row = node("mtr");
      }
      if (end === "\\end") break;
    }
    if (this.raw() !== kind) throw new Unknown();
    const [first, last] = FENCES[kind];
    return node("mrow", node("mo", first), made, node("mo", last));
  }
}

// A formula as a node: MathML, or what was written where it has words that are not known here.
export function math(source, display) {
  const formula = new Formula(`${source.trim()}\\relax`); // a command of no meaning marks the end
  formula.display = display;
  try {
    const made = node("math", formula.row("\\relax"));
    if (formula.at + formula.peek().length < formula.source.length) throw new Unknown();
    if (display) made.setAttribute("display", "block");
    made.setAttribute("aria-label", source);
    return made;
  } catch (error) {
    if (!(error instanceof Unknown)) throw error;
    const made = document.createElement(display ? "pre" : "code");
    made.className = "formula";
    made.textContent = source;
    return made;
  }
}
