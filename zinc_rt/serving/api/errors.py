"""`ApiError`: a refusal or a failure as HTTP shows it, in the forms of OpenAI, Anthropic and Ollama."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from zinc_rt.errors import ZincError
from zinc_rt.scheduler.messages import CancelReason, Failed, Fault

Headers = list[tuple[bytes, bytes]]

_TYPES: Final = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
_ANTHROPIC: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}
LONGEST_RETRY: Final = 60
"""Seconds of waiting beyond which a client is told not to try again."""


class ApiError(ZincError):
    """A request that is refused or that failed.

    status: of HTTP. param: the field at fault, as OpenAI names it. code: a word for programs. retry_after: seconds
    after which the same request may be taken; None where repeating does not help.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.retry_after = retry_after

    @property
    def kind(self) -> str:
        """The `type` of OpenAI's form."""
        return _TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")

    def openai(self) -> dict[str, Any]:
        """The body in OpenAI's form: all four members are always there."""
        return {"error": {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}}

    def anthropic(self) -> dict[str, Any]:
        """The body in Anthropic's form."""
        kind = _ANTHROPIC.get(self.status, "invalid_request_error" if self.status < 500 else "api_error")
        return {"type": "error", "error": {"type": kind, "message": str(self)}}

    def ollama(self) -> dict[str, Any]:
        """The body in Ollama's form."""
        return {"error": str(self)}

    def form(self, path: str) -> dict[str, Any]:
        """The body in the form of the endpoint at a path."""
        if path.startswith("/v1/messages"):
            return self.anthropic()
        return self.ollama() if path.startswith("/api/") else self.openai()

    def headers(self) -> Headers:
        """When to try again, or that trying again does not help. Clients of OpenAI read both."""
        if self.retry_after is None:
            return [(b"x-should-retry", b"false")]
        seconds = max(1, round(self.retry_after + 0.5))
        again = b"true" if seconds <= LONGEST_RETRY else b"false"
        return [(b"retry-after", b"%d" % seconds), (b"x-should-retry", again)]


def invalid(message: str, param: str | None = None, code: str | None = "invalid_value") -> ApiError:
    """A request that cannot be obeyed as it is."""
    return ApiError(400, message, param=param, code=code)


def unsupported(param: str, why: str) -> ApiError:
    """A field that changes the answer and is not obeyed here."""
    return ApiError(400, f"{param} is not supported: {why}", param=param, code="unsupported_parameter")


def too_long(tokens: int, n_ctx: int, param: str, at_least: bool = False) -> ApiError:
    """A prompt that leaves no room in the context for a token of text."""
    least = "at least " if at_least else ""
    return ApiError(
        400,
        f"the prompt has {least}{tokens} tokens, the context holds {n_ctx} with the answer; shorten the prompt",
        param=param,
        code="context_length_exceeded",
    )


_FAILED: Final = "the engine failed: {}"
FAULTS: Final[Mapping[Fault, tuple[int, str, float | None]]] = {
    Fault.empty_prompt: (400, "{}", None),
    Fault.prompt_too_long: (400, "{}", None),
    Fault.token_out_of_range: (400, "{}", None),
    Fault.prompt_never_fits: (400, "{}", None),
    Fault.invalid_sampling_param: (400, "{}", None),
    Fault.unknown_adapter: (404, "{}", None),
    Fault.grammar_error: (400, "{}", None),
    Fault.grammar_unavailable: (400, "{}", None),
    Fault.grammar_mismatch: (400, "{}", None),
    Fault.pictures_unavailable: (400, "{}", None),
    Fault.wrong_kind_of_model: (400, "{}", None),
    Fault.duplicate_request: (409, "{}", 1),
    Fault.too_many_tenants: (503, "{}", None),
    Fault.degenerate_logits: (500, _FAILED, None),
    Fault.engine_error: (500, _FAILED, None),
    Fault.poisoned: (500, _FAILED, None),
    Fault.engine_lost: (503, "the engine is gone: {}", 10),
    Fault.shutting_down: (503, "the server ends; send the request again", 5),
}
"""What the engine's faults are in HTTP: status, message around the engine's, and when to try again."""

CANCELLED: Final[Mapping[CancelReason, tuple[int, str, str]]] = {
    CancelReason.caller: (499, "cancelled", "the request was cancelled by request"),
    CancelReason.stop_string: (499, "cancelled", "the request was cancelled at a stop string"),
    CancelReason.deadline: (504, "deadline_exceeded", "the request was not done within its time"),
}
"""Status, code and message of requests that were ended before they were done."""


def failed(event: Failed) -> ApiError:
    """The error of a request that the engine could not go on with."""
    status, message, again = FAULTS[event.error]
    return ApiError(status, message.format(event.message), code=event.error.value, retry_after=again)


def cancelled(reason: CancelReason) -> ApiError:
    """The error of a request that was ended before it was done."""
    status, code, message = CANCELLED[reason]
    return ApiError(status, message, code=code)
