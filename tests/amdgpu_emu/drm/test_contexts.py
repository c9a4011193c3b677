"""Contexts and lists of buffers."""

from __future__ import annotations

import errno

import pytest

from amdgpu_emu.abi import cs
from amdgpu_emu.profiles import LINUX_6_17, LINUX_7_3
from tests.amdgpu_emu.drm.card import Card, refused
from tests.amdgpu_emu.drm.checks import covers

FREE, GET_PSTATE, SET_PSTATE = (
    cs.AMDGPU_CTX_OP_FREE_CTX,
    cs.AMDGPU_CTX_OP_GET_STABLE_PSTATE,
    cs.AMDGPU_CTX_OP_SET_STABLE_PSTATE,
)


@covers("4.ctx-ids")
def test_ids_are_the_lowest_free_ones(card: Card) -> None:
    assert [card.ctx() for _ in range(3)] == [1, 2, 3]
    card.ctx(FREE, 2)
    assert [card.ctx(), card.ctx()] == [2, 4]


@covers("4.ctx-max")
@pytest.mark.parametrize(("machine", "limited"), [(LINUX_6_17, True), (LINUX_7_3, False)], indirect=["machine"])
def test_how_many(card: Card, limited: bool) -> None:
    for _ in range(4095):
        card.ctx()
    if not limited:
        assert card.ctx() == 4096
        return
    with refused(errno.ENOSPC):
        card.ctx()


@covers("4.ctx-query", "4.ctx-reset")
def test_resets_are_seen_once_by_one_query_and_for_ever_by_the_other(card: Card) -> None:
    old = card.ctx()
    assert (card.query(old), card.query2(old)) == (cs.AMDGPU_CTX_NO_RESET, 0)
    with card.machine.lock:
        card.file.gpu.reset(whole=False)
    new = card.ctx()
    assert [card.query(old), card.query(old), card.query(new)] == [cs.AMDGPU_CTX_UNKNOWN_RESET, 0, 0]
    assert [card.query2(old), card.query2(old), card.query2(new)] == [cs.AMDGPU_CTX_QUERY2_FLAGS_RESET] * 2 + [0]


@pytest.mark.parametrize("machine", [{"uid": 0}], indirect=True)
def test_root_may_have_a_high_priority(card: Card) -> None:
    assert card.ctx(priority=cs.AMDGPU_CTX_PRIORITY_VERY_HIGH) == 1


def test_stable_power_states(card: Card) -> None:
    number = card.ctx()
    card.ctx_call(SET_PSTATE, number, flags=3)
    assert card.ctx_call(GET_PSTATE, number).out_pstate.flags == 3


@covers("4.list-ids", "4.list-empty", "4.list-destroy", "4.list-update")
def test_lists(card: Card) -> None:
    handle = card.create()
    assert [card.bo_list(0), card.bo_list(0, handles=(handle, handle))] == [1, 2]
    assert card.bo_list(1, 1) == 0
    assert card.bo_list(0) == 1
    assert card.bo_list(2, 2, handles=(card.create(),)) == 2


def test_a_list_keeps_its_buffers(card: Card) -> None:
    handle = card.create(8192)
    held = card.bo_list(0, handles=(handle,))
    card.close_gem(handle)
    assert sum(card.file.gpu.used.values()) == 8192
    card.bo_list(1, held)
    assert sum(card.file.gpu.used.values()) == 0


def test_a_list_that_is_refused_holds_nothing(card: Card) -> None:
    handle = card.create()
    with refused(errno.ENOENT):
        card.bo_list(0, handles=(handle, 99))
    card.close_gem(handle)
    assert sum(card.file.gpu.used.values()) == 0
