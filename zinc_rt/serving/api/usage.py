"""The usage of a request, as each API counts it. Tokens count that the client got, not those computed for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zinc_rt.serving.api.choice import AnswerChoice


def prompt_tokens(answers: Sequence[AnswerChoice]) -> int:
    """Tokens of the prompts, each counted once however many answers it has."""
    return sum(len(prompt) for prompt in {id(a.request.prompt): a.request.prompt for a in answers}.values())


def cached_tokens(answers: Sequence[AnswerChoice]) -> int:
    """Tokens of the prompts that came from the cache, for the first answer of each."""
    seen: set[int] = set()
    total = 0
    for answer in answers:
        if id(answer.request.prompt) not in seen:
            seen.add(id(answer.request.prompt))
            total += answer.cached
    return total


def completion_tokens(answers: Sequence[AnswerChoice]) -> int:
    """Tokens generated, up to the one that completes a stop string."""
    return sum(a.n_tokens for a in answers)


def chat_usage(answers: Sequence[AnswerChoice]) -> dict[str, Any]:
    """`usage` of chat completions and completions."""
    prompt, made = prompt_tokens(answers), completion_tokens(answers)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": made,
        "total_tokens": prompt + made,
        "prompt_tokens_details": {"cached_tokens": cached_tokens(answers), "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": sum(a.n_reasoning for a in answers),
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def own_usage(answers: Sequence[AnswerChoice]) -> dict[str, Any]:
    """`usage.zinc`: the seed, times in seconds, and of a stream that was resumed the tokens from before."""
    used = [a.usage for a in answers if a.usage is not None]
    resumed = sum(a.n_resumed for a in answers)
    return {
        "seed": answers[0].request.seed,
        "queue_seconds": max((a.queue_seconds for a in answers), default=0.0),
        "prefill_seconds": sum(u.prefill_seconds for u in used),
        "decode_seconds": max((u.decode_seconds for u in used), default=0.0),
        "engine_seconds": sum(u.engine_seconds for u in used),
        "preemptions": sum(u.preemptions for u in used),
        **({"resumed_tokens": resumed} if resumed else {}),
    }
