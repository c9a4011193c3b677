"""`agent_lines`: the lines that point coding agents at a server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from shlex import quote


def agent_lines(url: str, names: Sequence[str]) -> str:
    """Commands for a shell, for the first of the names that is one. url: of the server, without `/v1`."""
    name = next((name for name in names if name != "*"), "zinc")
    codex = {
        "model_providers.zinc.name": "zinc",
        "model_providers.zinc.base_url": f"{url}/v1",
        "model_providers.zinc.wire_api": "responses",
        "model_provider": "zinc",
        "model": name,
    }
    settings = " ".join(f"-c {quote(f'{key}={json.dumps(value)}')}" for key, value in codex.items())
    provider = {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": f"{url}/v1"}, "models": {name: {}}}
    opencode = json.dumps({"provider": {"zinc": provider}, "model": f"zinc/{name}"})
    claude = f"ANTHROPIC_BASE_URL={url} ANTHROPIC_API_KEY=- ANTHROPIC_MODEL={quote(name)}"
    lines = {
        "Codex": f"codex {settings}",
        "Claude Code": f"{claude} ANTHROPIC_SMALL_FAST_MODEL={quote(name)} claude",
        "OpenCode": f"OPENCODE_CONFIG_CONTENT={quote(opencode)} opencode",
        "Aider": f"OPENAI_API_BASE={url}/v1 OPENAI_API_KEY=- aider --model {quote(f'openai/{name}')}",
    }
    return "".join(f"# {who}\n{line}\n" for who, line in lines.items())
