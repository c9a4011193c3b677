"""What a tree writes, as digests: texts, a state file and HTTP answers of the bundled model on the CPU.

    python benchmarks/same_bytes.py --tree ../before --tree .   # lines that differ; exit code 1 if there are any
    python benchmarks/same_bytes.py                             # this tree's digests

A change that only moves code must leave every line as it was. Ids, times and seeds of answers are taken
out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

NEW = re.compile(
    r'"(id|created|created_at|completed_at|item_id|response_id|seed|[a-z_]*(?:seconds|duration))"'
    r':\s*("[^"]*"|[\d.eE+-]+)'
)
MESSAGES = [{"role": "user", "content": "Tell me of a fox."}]
SEEDED: dict[str, Any] = {"seed": 7, "temperature": 0.9}
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 40, **SEEDED}),
    "chat, stream": ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 20, "stream": True, **SEEDED}),
    "chat, logprobs": (
        "/v1/chat/completions",
        {"messages": MESSAGES, "max_tokens": 6, "logprobs": True, "top_logprobs": 3, **SEEDED},
    ),
    "chat, schema": (
        "/v1/chat/completions",
        {
            "messages": MESSAGES,
            "max_tokens": 30,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "a", "schema": {"type": "object", "properties": {"n": {"type": "integer"}}}},
            },
            **SEEDED,
        },
    ),
    "completions": (
        "/v1/completions",
        {"prompt": ["Once", "A day"], "n": 2, "max_tokens": 12, "stop": ["cat"], **SEEDED},
    ),
    "completions, echo": (
        "/v1/completions",
        {"prompt": "Once upon a time", "max_tokens": 3, "echo": True, "logprobs": 2, **SEEDED},
    ),
    "completions, stream": ("/v1/completions", {"prompt": "Once", "max_tokens": 9, "stream": True, **SEEDED}),
    "penalties": (
        "/v1/completions",
        {"prompt": "Once", "max_tokens": 30, "frequency_penalty": 0.5, "presence_penalty": 0.5, "min_p": 0.1, **SEEDED},
    ),
    "responses": ("/v1/responses", {"input": "Tell me of a fox.", "max_output_tokens": 20, "store": False, "seed": 7}),
    "messages": (
        "/v1/messages",
        {"model": "zinc-story", "messages": MESSAGES, "max_tokens": 20, "temperature": 0, "stream": True},
    ),
    "embeddings": ("/v1/embeddings", {"input": ["a fox", "a day"]}),
    "ollama": (
        "/api/chat",
        {"model": "zinc-story", "messages": MESSAGES, "stream": False, "options": {"seed": 7, "num_predict": 12}},
    ),
    "tokenize": ("/tokenize", {"content": "Once upon a time"}),
    "wrong temperature": ("/v1/chat/completions", {"messages": MESSAGES, "temperature": -1}),
    "wrong top_p": ("/v1/completions", {"prompt": "Once", "top_p": "x"}),
    "unknown field": ("/v1/chat/completions", {"messages": MESSAGES, "no_such_field": 1, "max_tokens": 1, "seed": 1}),
    "no messages": ("/v1/chat/completions", {}),
}


def digest(data: object) -> str:
    """Sixteen hex digits of bytes, or of a value's JSON."""
    text = data if isinstance(data, bytes) else json.dumps(data, sort_keys=True, default=str).encode()
    return hashlib.sha256(text).hexdigest()[:16]


def library() -> dict[str, str]:
    """Texts, chats, logits and a state file through Python's interface."""
    import zinc_rt

    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder, zinc_rt.load(device="cpu", n_ctx=256, threads=1) as model:

        def pieces(prompt: str, **parameters: Any) -> list[Any]:
            return [(c.text, c.token_id, c.finish_reason) for c in model.stream(prompt, **parameters)]

        found["greedy"] = digest(pieces("Once upon a time", temperature=0, max_tokens=120))
        found["sampled"] = digest(pieces("The fox", seed=3, max_tokens=120, frequency_penalty=0.3, top_k=20))
        found["to the context's end"] = digest(pieces("The fox", seed=3, max_tokens=None, ignore_eos=True))
        found["stop"] = digest(pieces("A day", seed=3, max_tokens=120, stop=["the"]))
        found["logprobs"] = digest(repr(model.generate("A day", seed=3, max_tokens=9, logprobs=3).logprobs))
        found["many"] = digest([t.text for t in model.generate(["A", "The", "Once"], seed=5, max_tokens=30)])
        found["chat"] = digest(model.chat("Tell me of a cat.", seed=2, max_tokens=40).content)
        found["logits"] = digest(model.logits(model.tokenize("Once upon a time")).tobytes())
        model.save_state(f"{folder}/state", "Once upon a time there was a fox. " * 4)
        found["state file"] = digest(Path(f"{folder}/state").read_bytes())
    return found


def answers() -> dict[str, str]:
    """HTTP answers."""
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "zinc_rt", "serve", "--port", "0", "--device", "cpu", "-c", "256"]
        process = subprocess.Popen(
            [*command, "--records", f"{folder}/records"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            assert process.stdout is not None
            address = re.search(r"http://[\d.:]+\d", process.stdout.readline())
            assert address is not None
            for name, (path, body) in BODIES.items():
                request = urllib.request.Request(address[0] + path, json.dumps(body).encode())
                request.add_header("Content-Type", "application/json")
                try:
                    with urllib.request.urlopen(request, timeout=120) as answer:
                        status, text = answer.status, answer.read()
                except urllib.error.HTTPError as error:
                    status, text = error.code, error.read()
                shown = NEW.sub(r'"\1":0', re.sub(r"(?m)^id: .*$", "id:", text.decode()))
                found[f"HTTP {name}"] = f"{status} {digest(shown.encode())}"
                if os.environ.get("SHOW"):
                    print(name, status, shown, file=sys.stderr)
        finally:
            process.terminate()
            process.wait(60)
    return found


def of_tree(tree: Path) -> dict[str, str]:
    """The digests of another tree, from a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(tree.resolve())}
    command = [sys.executable, str(Path(__file__).resolve()), "--json"]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, cwd=tree)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Print the digests, or what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--tree", type=Path, action="append", help="a checkout; the first one is what others must equal"
    )
    parser.add_argument("--json", action="store_true", help="the importable zinc_rt, as JSON")
    options = parser.parse_args()
    if options.json:
        print(json.dumps({**library(), **answers()}))
        return
    first, *others = [of_tree(tree) for tree in options.tree or [Path(__file__).resolve().parents[1]]]
    differing = 0
    for name, value in first.items():
        found = [other.get(name) for other in others]
        same = all(other == value for other in found)
        differing += not same
        print(f"{name:<24} {value}" + ("" if same else f"  DIFFERS: {', '.join(map(str, found))}"))
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()
