"""The pages of the KV cache: how many page tables refer to each, and the contents of full pages.

A page is in one of three states. Free: its contents are not known. Used: page tables refer to it. Cached: no page table
refers to it, but its contents are known, so it can be found again, or taken for other contents. A page with known
contents has a key and is read-only. Its parent is the page before it in the text, so cached texts form trees.

A page table that refers to a page also refers to its parent, and lets go of its last page first. So a parent is always
used later than its children, and the cached page that was unused for longest has no children: taking it cuts no text in
two.

A page's key is a hash of everything that its contents depend on: the key of its parent, and its own 16 token ids. The
parent of a first page is a root, a hash of the model, the formats and the tenant. Equal keys mean equal texts up to the
page's end, and so equal contents, unless two texts have the same hash. Therefore a lookup compares ids and parent, too.

docs/how/kv_cache.md has a drawing.
"""

from __future__ import annotations

import struct
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from zinc_rt.errors import IntegrityError
from zinc_rt.mem.errors import PagesExhausted
from zinc_rt.numerics import PAGE_TOKENS

KEY_BYTES: Final = 16
# Tags keep the domains apart: no root is ever a page's key.
_ROOT: Final = b"zinc kv root"
_PAGE: Final = b"zinc kv page"
_IDS: Final = struct.Struct(f"<{PAGE_TOKENS}i")
_PICTURE_IDS: Final = struct.Struct(f"<{PAGE_TOKENS}q")
ROOT: Final = -1
"""In place of the parent of a text's first page."""


def root_key(*fields: bytes) -> bytes:
    """The parent key of first pages: 16 bytes, of fields in their order; where one ends is part of it."""
    digest = blake2b(digest_size=KEY_BYTES, person=_ROOT)
    for data in fields:
        digest.update(struct.pack("<Q", len(data)))
        digest.update(data)
    return digest.digest()


def page_key(parent: bytes, ids: bytes) -> bytes:
    """The key of a page, 16 bytes, from its parent's and its ids as `packed` gives them."""
    return blake2b(parent + ids, digest_size=KEY_BYTES, person=_PAGE).digest()


def packed(ids: Sequence[int]) -> bytes:
    """The ids of a full page as 16 int32, little endian, or int64 where it has rows of pictures. Raises `struct.error`
    for another count, and for ids outside the range.
    """
    return (_IDS if min(ids, default=0) >= 0 else _PICTURE_IDS).pack(*ids)


@dataclass(slots=True)
class Contents:
    """The known contents of a page. parent: the page before it, or `ROOT`; ids: its tokens, as `packed` gives them;
    children: the known pages behind it.
    """

    key: bytes
    parent: int
    ids: bytes
    children: set[int] = field(default_factory=set)


class PagePool:
    """`n_pages` pages.

    Attributes:
        refs: of each page, how many page tables refer to it.
        known: contents of pages that have a key.
        forgotten: called with a page whose contents are no longer known.
        evictions: cached pages that were taken for other contents. collisions: keys that two contents had.
    """

    def __init__(self, n_pages: int) -> None:
        self.n_pages = n_pages
        self.refs = [0] * n_pages
        self.known: dict[int, Contents] = {}
        self.forgotten: Callable[[int], None] = lambda page: None
        self.evictions = self.collisions = 0
        self._free = list(range(n_pages - 1, -1, -1))  # a stack; low pages first
        self._cached: OrderedDict[int, None] = OrderedDict()  # the one unused for longest first
        self._index: dict[bytes, int] = {}

    @property
    def n_free(self) -> int:
        """Pages without known contents."""
        return len(self._free)

    @property
    def n_cached(self) -> int:
        """Pages with known contents that no page table refers to."""
        return len(self._cached)

    @property
    def available(self) -> int:
        """Pages that `take` can give."""
        return len(self._free) + len(self._cached)

    def take(self) -> int:
        """A page to write to, referred to once: a free one, else the cached one that was unused for longest.

        Raises `PagesExhausted`.
        """
        if self._free:
            page = self._free.pop()
        elif self._cached:
            page = next(iter(self._cached))
            del self._cached[page]
            self._forget(page)
            self.evictions += 1
        else:
            raise PagesExhausted(f"all {self.n_pages} KV pages are in use")
        self.refs[page] = 1
        return page

    def share(self, page: int) -> None:
        """Refer to a page once more."""
        if not self.refs[page]:
            del self._cached[page]
        self.refs[page] += 1

    def drop(self, page: int) -> None:
        """Refer to a page once less. Without references it is cached if its contents are known, else free."""
        self.refs[page] -= 1
        if self.refs[page]:
            return
        if page in self.known:
            self._cached[page] = None
        else:
            self._free.append(page)

    def find(self, key: bytes, parent: int, ids: bytes) -> int | None:
        """The page with these contents, or None. Another page with the same key is none."""
        page = self._index.get(key)
        if page is None:
            return None
        contents = self.known[page]
        if contents.ids != ids or contents.parent != parent:
            self.collisions += 1
            return None
        return page

    def publish(self, page: int, key: bytes, parent: int, ids: bytes) -> int | None:
        """Say what a full page holds, so that it can be found.

        Returns the page that the page table shall have: this one, or an older one with the same contents. None if other
        contents have the key: then this page stays without one.
        """
        if key in self._index:
            return self.find(key, parent, ids)
        self.known[page] = Contents(key, parent, ids)
        self._index[key] = page
        if parent != ROOT:
            self.known[parent].children.add(page)
        return page

    def reopen(self, page: int) -> None:
        """Make a page writable that one page table refers to: forget its contents and the cached pages behind it."""
        if page not in self.known:
            return
        behind = list(self.known[page].children)
        for child in behind:
            behind += self.known[child].children
        for child in reversed(behind):
            del self._cached[child]
            self._forget(child)
            self._free.append(child)
        self._forget(page)

    def _forget(self, page: int) -> None:
        """Key and ids go at once: a stale one would be found."""
        contents = self.known.pop(page)
        del self._index[contents.key]
        if contents.parent != ROOT:
            self.known[contents.parent].children.discard(page)
        self.forgotten(page)

    def check(self, references: Mapping[int, int]) -> None:
        """Raise `IntegrityError` unless the books add up. references: of pages in page tables, how often."""
        self._check_places(references)
        self._check_known()

    def _check_places(self, references: Mapping[int, int]) -> None:
        places = Counter([*self._free, *self._cached, *(page for page, n in references.items() if n)])
        for page, count in places.items():
            if not 0 <= page < self.n_pages:
                raise IntegrityError(f"KV page {page} is outside 0 .. {self.n_pages - 1}")
            if count > 1:
                raise IntegrityError(f"KV page {page} is in {count} places; it must be free, cached or used")
        for page, refs in enumerate(self.refs):
            if refs != references.get(page, 0):
                raise IntegrityError(
                    f"KV page {page} counts {refs} references, page tables have {references.get(page, 0)}"
                )
        if len(places) != self.n_pages:
            lost = sorted(set(range(self.n_pages)) - set(places))[:8]
            raise IntegrityError(f"{self.n_pages - len(places)} KV pages are lost, among them {lost}")
        for page in self._free:
            if page in self.known:
                raise IntegrityError(f"KV page {page} is free, but its contents are known")
        for page in self._cached:
            if page not in self.known:
                raise IntegrityError(f"KV page {page} is cached, but its contents are not known")

    def _check_known(self) -> None:
        if self._index != {contents.key: page for page, contents in self.known.items()}:
            raise IntegrityError("the index of KV pages and their keys differ")
        older = {page: i for i, page in enumerate(self._cached)}
        for page, contents in self.known.items():
            if contents.parent == ROOT:
                continue
            parent = self.known.get(contents.parent)
            if parent is None:
                raise IntegrityError(f"KV page {page} follows page {contents.parent}, which is not known")
            if page not in parent.children or page_key(parent.key, contents.ids) != contents.key:
                raise IntegrityError(f"the key of KV page {page} does not follow from page {contents.parent}")
            if self.refs[page] > self.refs[contents.parent]:
                raise IntegrityError(f"KV page {page} is used more often than page {contents.parent} before it")
            if older.get(page, -1) > older.get(contents.parent, self.n_pages):
                raise IntegrityError(f"KV page {contents.parent} would be evicted before page {page} behind it")
        children = sum(len(contents.children) for contents in self.known.values())
        if children != sum(contents.parent != ROOT for contents in self.known.values()):
            raise IntegrityError("KV pages have children that do not name them as parents")
