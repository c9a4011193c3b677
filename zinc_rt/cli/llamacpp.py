"""llama.cpp's everyday options and what each does here: one table for the parser, its errors and docs/use/cli.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Does(StrEnum):
    """What the command does with an option of llama.cpp."""

    same = "same"
    """An option of the verbs that have a use for it."""
    nothing = "nothing to do"
    """Taken without effect: it is always so here, or no text depends on it."""
    other = "another name"
    """Read as an option of ours."""
    refused = "not supported"
    """An error that names the option and says what to do."""


@dataclass(frozen=True, slots=True)
class Theirs:
    """An option of llama.cpp: a row of the table.

    value: how its value is shown, "" for none. `N` must be a whole number, `a|b` one of these; a value in brackets may
    be left out. note: what a user should know, or do instead. to: the option of zinc that it stands for, with {} for
    the value.
    """

    names: tuple[str, ...]
    does: Does
    value: str = ""
    note: str = ""
    to: tuple[str, ...] = ()

    @property
    def choices(self) -> tuple[str, ...]:
        """The values that there are; empty where any is taken."""
        return tuple(self.value.strip("[]").split("|")) if "|" in self.value else ()


def _same(*names: str, value: str = "", note: str = "") -> Theirs:
    return Theirs(names, Does.same, value, note)


def _nothing(*names: str, value: str = "", note: str = "") -> Theirs:
    return Theirs(names, Does.nothing, value, note)


def _other(*names: str, to: str, value: str = "", note: str = "") -> Theirs:
    return Theirs(names, Does.other, value, note or f"`{to.replace(' {}', '')}`", tuple(to.split()))


def _refused(*names: str, note: str, value: str = "") -> Theirs:
    return Theirs(names, Does.refused, value, note)


_SWITCH: Final = "[on|off|auto]"
_ORDER: Final = "the stages of sampling are those of docs/how/sampling.md: --temp, --top-k, --top-p, --min-p, penalties"
_ROPE: Final = "positions are scaled as the model's file says; leave it out"
_PLACES: Final = "layers are not divided between devices; --device chooses what runs all of them"
_CPUS: Final = "`taskset` and `numactl` choose the cores of a process"
_LOG: Final = "standard error has the log; redirect it"
_DRAFT: Final = "--draft-max and --draft-min bound the guesses; the speed of steps decides between them"

TABLE: Final = (
    _same("-h", "--help"),
    _same("--version"),
    _same("-v", "--verbose"),
    _other("--log-disable", to="--quiet"),
    _refused("--log-file", value="FILE", note=_LOG),
    _refused("-lv", "--verbosity", "--log-verbosity", value="N", note="-v, -q; --log-level in a server"),
    _nothing("--log-prefix", "--log-timestamps", "--log-colors", "--no-log-colors", note="none of these is shown"),
    _nothing("--color", "-co", value=_SWITCH, note="terminals get colour unless NO_COLOR is set"),
    _nothing("--simple-io", "-mli", "--multiline-input", note='a \\ or """ continues a message of `zinc chat`'),
    _nothing("--perf", "--no-perf", "--show-timings", "--no-show-timings", note="-q leaves the speeds out"),
    _same("-m", "--model", value="FILE", note="or the name of a downloaded model"),
    _same("-hf", "--hf-repo", value="REPO[:QUANT]"),
    _other("-hfr", to="-hf {}", value="REPO[:QUANT]"),
    _refused("-hff", "--hf-file", value="FILE", note="-hf REPO:QUANT chooses the file"),
    _refused("-hft", "--hf-token", value="TOKEN", note="set HF_TOKEN, which other users cannot see"),
    _refused("-mu", "--model-url", value="URL", note="download the file, and give it with -m"),
    _refused("-dr", "--docker-repo", value="REPO", note="-hf takes models of the Hugging Face hub"),
    _refused("--offline", note="set HF_HUB_OFFLINE=1"),
    _same("-c", "--ctx-size", value="N"),
    _same("-n", "--predict", value="N"),
    _other("--n-predict", to="--predict {}", value="N"),
    _same("-b", "--batch-size", value="N"),
    _nothing("-ub", "--ubatch-size", value="N", note="a batch is computed at once"),
    _same("-t", "--threads", value="N"),
    _nothing("-tb", "--threads-batch", value="N", note="prompts are computed with the threads of -t"),
    _nothing("-fa", "--flash-attn", value=_SWITCH, note="attention is always computed in one pass over the cache"),
    _other("-ctk", "--cache-type-k", to="--kv {}", value="f16|q8_0", note="`--kv`; -ctk and -ctv must be the same"),
    _other("-ctv", "--cache-type-v", to="--kv {}", value="f16|q8_0", note="`--kv`; -ctk and -ctv must be the same"),
    _nothing("--mmap", "--no-mmap", "--mlock", note="weights are kept as the device needs them"),
    _nothing("--warmup", "--no-warmup", note="nothing is warmed up"),
    _nothing("--repack", "--no-repack", "-nr", note="formats are repacked where it pays"),
    _nothing("--swa-full", note="windows keep what they need"),
    _nothing("-dt", "--defrag-thold", value="N", note="the cache is not fragmented"),
    _nothing("--no-context-shift", note="a full context is never shifted"),
    _nothing("--check-tensors", note="shapes and sizes are always checked"),
    _refused("--context-shift", note="a full context ends a text; `zinc chat` drops the oldest turns"),
    _refused("--keep", value="N", note="a full context is never shifted; leave it out"),
    _refused("-nkvo", "--no-kv-offload", note="the cache is where the weights are; --kv-memory bounds it in a server"),
    _same("-ngl", "--gpu-layers", "--n-gpu-layers", value="N", note="0 is the CPU, any other number --device"),
    _same("--device", value="NAME", note="names of `zinc check`"),
    _other("-dev", to="--device {}", value="NAME"),
    _refused("--list-devices", note="`zinc check` lists them"),
    _refused("-sm", "--split-mode", value="MODE", note=_PLACES),
    _refused("-ts", "--tensor-split", value="N,N", note=_PLACES),
    _refused("-mg", "--main-gpu", value="N", note="--device gpu@CARD chooses the card"),
    _refused("-ot", "--override-tensor", value="PATTERN=PLACE", note=_PLACES),
    _refused("-cmoe", "--cpu-moe", note=_PLACES),
    _refused("-ncmoe", "--n-cpu-moe", value="N", note=_PLACES),
    _refused("--override-kv", value="KEY=TYPE:VALUE", note="the file's own metadata count"),
    _refused("-C", "--cpu-mask", value="MASK", note=_CPUS),
    _refused("-Cr", "--cpu-range", value="RANGE", note=_CPUS),
    _refused("--cpu-strict", "--poll", "--prio", value="N", note=_CPUS),
    _refused("--numa", value="TYPE", note=_CPUS),
    _same("--lora", value="FILE", note="or FILE:SCALE"),
    _same("--lora-scaled", value="FILE:SCALE"),
    _same("--lora-init-without-apply"),
    _refused("--control-vector", "--control-vector-scaled", value="FILE", note="the model runs as its file is"),
    _refused("--rope-scaling", value="TYPE", note=_ROPE),
    _refused("--rope-scale", "--rope-freq-base", "--rope-freq-scale", value="N", note=_ROPE),
    _refused("--yarn-orig-ctx", "--yarn-ext-factor", "--yarn-attn-factor", value="N", note=_ROPE),
    _refused("--yarn-beta-slow", "--yarn-beta-fast", value="N", note=_ROPE),
    _same("-md", "--model-draft", value="FILE"),
    _same("--draft-max", "--draft", "--draft-n", value="N"),
    _same("--draft-min", "--draft-n-min", value="N"),
    _refused("-hfd", "--hf-repo-draft", value="REPO", note="`zinc pull REPO`, then -md NAME"),
    _refused("--draft-p-min", "--draft-p-split", value="N", note=_DRAFT),
    _nothing("-ngld", "--gpu-layers-draft", "-cd", "--ctx-size-draft", "-td", "--threads-draft", value="N",
             note="the draft model runs as the model does"),
    _same("--mmproj", "--image", value="FILE"),
    _same("--no-mmproj"),
    _nothing("--mmproj-auto", note="a projector beside the model is found"),
    _same("-p", "--prompt", value="TEXT"),
    _same("-f", "--file", value="FILE"),
    _refused("-bf", "--binary-file", value="FILE", note="a prompt is text; -f reads UTF-8 and UTF-16"),
    _same("-sys", "--system-prompt", value="TEXT"),
    _same("-sysf", "--system-prompt-file", value="FILE"),
    _same("-e", "--escape"),
    _nothing("--no-escape", note="escapes are read with -e only"),
    _refused("--in-prefix", "--in-suffix", value="TEXT", note="the chat template puts messages together"),
    _same("--display-prompt", "--no-display-prompt"),
    _refused("-sp", "--special", note="`--json` and `zinc tokenize` show tokens"),
    _refused("--verbose-prompt", note="`zinc tokenize` shows the tokens of a text"),
    _refused("--prompt-cache", value="FILE", note="--save-state and --load-state keep what was computed of a text"),
    _same("-cnv", "--conversation", "-i", "--interactive", note="a conversation, as `zinc chat` holds it"),
    _refused("-if", "--interactive-first", note="`zinc chat` waits for the first message"),
    _same("-no-cnv", "--no-conversation", note="continue the prompt as it is"),
    _same("-st", "--single-turn", note="answer the prompt as a message, and end"),
    _nothing("--jinja", note="chat templates are always rendered by Jinja"),
    _refused("--no-jinja", note="chat templates are always rendered by Jinja"),
    _same("--chat-template-file", value="FILE"),
    _same("--chat-template", value="TEXT", note="Jinja; names of templates in llama.cpp are refused"),
    _refused("--chat-template-kwargs", value="JSON", note="--think and --no-think; a field of requests to a server"),
    _nothing("--reasoning-format", value="auto|deepseek", note="reasoning is kept apart from the answer"),
    _refused("--reasoning-budget", value="N", note="--no-think asks for an answer without reasoning"),
    _same("-s", "--seed", value="N"),
    _same("--temp", value="X"),
    _same("--top-k", value="N"),
    _same("--top-p", value="X"),
    _same("--min-p", value="X"),
    _same("--repeat-penalty", value="X"),
    _same("--repeat-last-n", value="N"),
    _same("--presence-penalty", value="X"),
    _same("--frequency-penalty", value="X"),
    _same("-l", "--logit-bias", value="ID+X"),
    _same("--ignore-eos"),
    _other("-r", "--reverse-prompt", to="--stop {}", value="TEXT"),
    _same("-j", "--json-schema", value="FILE|TEXT"),
    _same("-jf", "--json-schema-file", value="FILE"),
    _same("--grammar", value="TEXT", note="GBNF or Lark, in `zinc run`"),
    _same("--grammar-file", value="FILE", note="GBNF or Lark, in `zinc run`"),
    _refused("--samplers", "--sampler-seq", "--sampling-seq", value="LIST", note=_ORDER),
    _refused("--top-nsigma", "--top-n-sigma", "--typical", value="X", note=_ORDER),
    _refused("--xtc-probability", "--xtc-threshold", value="X", note=_ORDER),
    _refused("--dry-multiplier", "--dry-base", "--dry-allowed-length", "--dry-penalty-last-n",
             "--dry-sequence-breaker", value="X", note=_ORDER),
    _refused("--dynatemp-range", "--dynatemp-exp", value="X", note=_ORDER),
    _refused("--mirostat", "--mirostat-lr", "--mirostat-ent", value="X", note=_ORDER),
    _same("--host", value="ADDRESS"),
    _same("--port", value="N"),
    _same("-a", "--alias", value="NAME"),
    _same("-np", "--parallel", value="N"),
    _same("--api-key", value="KEY", note="other users of the machine see it; --api-key-file hides it"),
    _same("--api-key-file", value="FILE", note="lines of `zinc keys new`, which hold no keys"),
    _other("--ssl-cert-file", to="--ssl-certfile {}", value="FILE"),
    _other("--ssl-key-file", to="--ssl-keyfile {}", value="FILE"),
    _same("--embeddings"),
    _other("--embedding", to="--embeddings"),
    _same("--pooling", value="KIND"),
    _nothing("-cb", "--cont-batching", "--metrics", "--slots", "--props", "--webui", note="always so"),
    _nothing("--cache-prompt", note="prefixes are always kept"),
    _nothing("--cache-reuse", value="N", note="prefixes are always kept"),
    _nothing("--threads-http", value="N", note="requests take no threads"),
    _refused("-nocb", "--no-cont-batching", note="-np 1 computes one request at a time"),
    _refused("-to", "--timeout", value="N", note="`seconds` in the file of --tenants limits requests"),
    _refused("--slot-save-path", value="FOLDER", note="prefixes are kept in memory: --kv-memory"),
    _nothing("--reranking", "--rerank", note="a model that ranks is served so"),
)  # fmt: skip

OF_MODELS: Final = frozenset({"run", "chat", "serve", "bench", "perplexity", "embed", "rerank"})
"""The verbs that take the table's options."""

BY_NAME: Final = {name: row for row in TABLE for name in row.names}


def markdown() -> Iterator[str]:
    """The table for docs/use/cli.md."""
    yield "| option | here | |"
    yield "|---|---|---|"
    for row in TABLE:
        names = ", ".join(f"`{name}`" for name in row.names)
        value = f" `{row.value}`".replace("|", "\\|") if row.value else ""
        yield f"| {names}{value} | {row.does} | {row.note} |"
