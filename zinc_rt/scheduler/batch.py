"""The data of the scheduler: tenants' limits, requests and their states, batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

TenantId = NewType("TenantId", int)  # u32, chosen by the caller
RequestId = NewType("RequestId", int)  # u64, given by the scheduler, never twice

MAX_U32 = (1 << 32) - 1


@dataclass(frozen=True)
class TenantLimits:
    """The limits of one tenant, each from 1 to 2**32 - 1.

    max_active_requests: requests queued or running at once; max_prefill_tokens_per_batch: prompt tokens of all its
    requests in one prefill batch; max_decode_slots: its requests in one decode batch.
    """

    max_active_requests: int = 1
    max_prefill_tokens_per_batch: int = 1024
    max_decode_slots: int = 1


@dataclass(frozen=True)
class RequestConfig:
    """The parameters of a request; both counts from 1 to 2**32 - 1."""

    tenant_id: TenantId
    prompt_tokens: int
    max_new_tokens: int


class RequestState(StrEnum):
    """The state of a request. The first three are active: they count against the tenant's quota."""

    queued_prefill = "queued_prefill"  # nothing of the prompt has been selected or computed
    prefilling = "prefilling"
    decoding = "decoding"  # the whole prompt is computed
    completed = "completed"
    cancelled = "cancelled"

    @property
    def active(self) -> bool:
        """Whether the request is neither completed nor cancelled."""
        return self not in (RequestState.completed, RequestState.cancelled)


class BatchKind(StrEnum):
    """The kind of a batch: prompt tokens or next tokens."""

    prefill = "prefill"
    decode = "decode"


READY = {
    BatchKind.prefill: (RequestState.queued_prefill, RequestState.prefilling),
    BatchKind.decode: (RequestState.decoding,),
}


@dataclass(frozen=True)
class Slot:
    """A request and its progress: a snapshot, which later calls do not change."""

    slot_id: int
    request_id: RequestId
    config: RequestConfig
    state: RequestState = RequestState.queued_prefill
    prefilled_tokens: int = 0
    generated_tokens: int = 0

    @property
    def tenant_id(self) -> TenantId:
        """The tenant of the request."""
        return self.config.tenant_id

    def prompt_remaining(self) -> int:
        """Number of prompt tokens not computed yet."""
        return self.config.prompt_tokens - self.prefilled_tokens

    def decode_done(self) -> bool:
        """Whether all requested tokens have been generated."""
        return self.generated_tokens >= self.config.max_new_tokens


@dataclass(frozen=True)
class BatchEntry:
    """One slot's share of a batch. tokens: the next prompt tokens to compute; 1 in a decode batch."""

    slot_id: int
    request_id: RequestId
    tenant_id: TenantId
    tokens: int


@dataclass(frozen=True)
class Batch:
    """A plan: at most one entry a slot, in the order in which the slots got their turns. May be empty."""

    kind: BatchKind
    entries: tuple[BatchEntry, ...]

    @property
    def n_tokens(self) -> int:
        """Rows that the batch adds to a step."""
        return sum(entry.tokens for entry in self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[BatchEntry]:
        return iter(self.entries)


def consistent(slot: Slot) -> bool:
    """Whether a request's progress is possible in its state."""
    prompt, most = slot.config.prompt_tokens, slot.config.max_new_tokens
    prefilled, generated = slot.prefilled_tokens, slot.generated_tokens
    if generated and prefilled != prompt:
        return False
    match slot.state:
        case RequestState.queued_prefill:
            return prefilled == 0
        case RequestState.prefilling:
            return 0 <= prefilled < prompt
        case RequestState.decoding:
            return prefilled == prompt and 0 <= generated < most
        case RequestState.completed:
            return prefilled == prompt and 1 <= generated <= most
        case RequestState.cancelled:
            return 0 <= prefilled <= prompt and 0 <= generated < most
