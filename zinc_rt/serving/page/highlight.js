// Colours for code: comments, strings, numbers and a language's words, found by one expression for each kind of languages.
const MOST = 100_000; // characters; more stay plain
const DOUBLE = /"(?:\\[^]|[^"\\\n])*"?/, SINGLE = /'(?:\\[^]|[^'\\\n])*'?/, BACK = /`(?:\\[^]|[^`\\])*`/;
const LETTER = /'(?:\\[^\n]{1,8}?|[^'\\\n])'/; // one character: in Rust 'a alone is a lifetime
const TRIPLE = /"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)/;
const SLASHES = /\/\/.*|\/\*[^]*?(?:\*\/|$)/, HASH = /(?<![\w$\\{&'"])#.*/, DASHES = /--\[\[[^]*?(?:\]\]|$)|--.*|\/\*[^]*?(?:\*\/|$)/;

// Names of languages, comments, strings, words.
const KINDS = [
  ["c h cpp c++ cc cxx hpp cs csharp java go golang rust rs kotlin kt swift zig cuda glsl scala", [SLASHES], [DOUBLE, LETTER, BACK],
    `#include #define #if #ifdef #ifndef #else #endif #pragma abstract as async auto await bool boolean break byte case catch chan
    char class const constexpr continue crate def default defer delete do double dyn else enum explicit extends extern false
    final finally float fn for foreach friend fun func go goto guard if impl implements import in inline instanceof int interface
    internal is let long loop match mod move mut namespace new nil noexcept null nullptr object operator out override package
    private protected pub public range readonly ref return sealed select self Self short signed sizeof static string struct super
    switch template this throw throws trait true try type typedef typename union unsafe unsigned use using val var virtual void
    volatile when where while yield i8 i16 i32 i64 u8 u16 u32 u64 usize isize f32 f64 str size_t int8_t int16_t int32_t int64_t
    uint8_t uint16_t uint32_t uint64_t`],
  ["js javascript jsx mjs ts typescript tsx json jsonc json5 php dart", [SLASHES], [DOUBLE, SINGLE, BACK],
    `abstract any as async await boolean break case catch class const continue debugger declare default delete do echo else enum
    export extends false finally for foreach from function get if implements import in instanceof interface keyof let namespace
    never new null number of private protected public readonly return set static string super switch this throw true try type
    typeof undefined unknown use var void while with yield`],
  ["css scss less", [SLASHES], [DOUBLE, SINGLE], "@media @import @supports @keyframes @font-face @layer @container @property important"],
  ["python py python3 pyi", [HASH], [TRIPLE, DOUBLE, SINGLE],
    `and as assert async await break case class continue def del elif else except False finally for from global if import in is
    lambda match None nonlocal not or pass raise return self True try type while with yield`],
  ["ruby rb elixir julia r perl", [HASH], [DOUBLE, SINGLE],
    `alias and begin break case class def defmodule do else elsif end ensure false fn for function if import in is local macro
    module mutable my next nil not NULL or our package redo require rescue retry return self struct sub super then true TRUE FALSE
    undef unless until use using when while yield`],
  ["sh bash zsh shell console dockerfile make makefile cmake", [HASH], [DOUBLE, SINGLE],
    `case do done echo elif else esac eval exec exit export fi for function if in local read return set shift source then unset
    until while FROM RUN COPY ADD CMD ENTRYPOINT ENV ARG WORKDIR EXPOSE USER VOLUME`],
  ["yaml yml toml ini conf", [/(?<!\S)[#;].*/], [TRIPLE, DOUBLE, SINGLE], "true false null yes no on off"],
  ["sql lua haskell hs ada", [DASHES], [DOUBLE, SINGLE],
    `add all alter and any as asc begin between by case column commit constraint create cross default delete desc distinct do drop
    else elseif end except exists false for foreign from full function group having if import in index inner insert intersect into
    is join key left let like limit local module nil not null of offset on or order outer over partition primary references repeat
    return right rollback select set table then true type union unique update until using values view when where while with`],
  ["html xml svg xhtml vue", [/<!--[^]*?(?:-->|$)/], [DOUBLE, SINGLE], ""],
  ["diff patch", [/^(?:@@|diff |index |--- |\+\+\+ ).*/], [/^\+.*/], ""],
];
const KNOWN = new Map();
for (const [names, comments, strings, words] of KINDS) {
  const some = (parts) => parts.map((part) => part.source).join("|");
  const tag = names.startsWith("html"), patch = names.startsWith("diff");
  const number = patch ? "^-.*" : tag ? "&[#\\w]+;" : "\\d[\\w.]*(?:(?<=[eE])[-+]\\d+)?";
  const word = tag ? "<[/!?]?[\\w:.-]+|[/?]?>" : "[#@]?[A-Za-z_][\\w]*";
  const kind = {
    parts: new RegExp(`(${some(comments)})|(${some(strings)})|(${number})|(${word})`, patch ? "gm" : "g"),
    words: tag ? { has: () => true } : new Set(words.split(/\s+/)),
    loud: names.startsWith("sql"), // SELECT is select
  };
  for (const name of names.split(" ")) KNOWN.set(name, kind);
}

// The nodes of a code.
export function highlight(code, language) {
  const kind = KNOWN.get(language.toLowerCase());
  if (!kind || code.length > MOST) return [code];
  const out = [];
  let from = 0;
  for (const found of code.matchAll(kind.parts)) {
    const [whole, comment, string, number, word] = found;
    if (word !== undefined && !kind.words.has(kind.loud ? word.toLowerCase() : word)) continue;
    const made = document.createElement("span");
    made.className = comment !== undefined ? "comment" : string !== undefined ? "string" : number !== undefined ? "number" : "word";
    made.textContent = whole;
    if (found.index > from) out.push(code.slice(from, found.index));
    out.push(made);
    from = found.index + whole.length;
  }
  out.push(code.slice(from));
  return out;
}
