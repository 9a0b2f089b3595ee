"""Streams: which there are in a generation, and which one a partition's changes go to. Pure.

As in Scylla: each vnode (a range of tokens that ends at a `range_end`) has one stream per shard of the node that owns it. A
stream id is 16 bytes: a token of the vnode that belongs to the shard, then 38 random bits, the vnode's index (22 bits) and the
version (4 bits). Tables of tablets have one stream per tablet, with the tablet's last token.
"""

import bisect
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass

_BIAS = 1 << 63
_MASK = (1 << 64) - 1
_IGNORED_BITS = 12  # `murmur3_partitioner_ignore_msb_bits`
_INDEX_BITS, _VERSION_BITS = 22, 4


@dataclass(frozen=True, slots=True)
class VnodeStreams:
    """Streams of one vnode, by shard, and the last token of its range."""

    range_end: int
    streams: tuple[bytes, ...]


def shard_of(token: int, shards: int) -> int:
    """The shard that owns the token, on a node with `shards` shards."""
    return ((((token + _BIAS) << _IGNORED_BITS) & _MASK) * shards) >> 64


def first_token(start: int, end: int, shard: int, shards: int) -> int:
    """The first token in (start, end] of the shard; `end` where none is. A range may wrap around."""
    token = start + 1 if start < _BIAS - 1 else -_BIAS
    if shard_of(token, shards) != shard:
        biased = token + _BIAS
        period = 1 << (64 - _IGNORED_BITS)
        # The shard's first token in each period of the biased tokens.
        inside = -(-(shard << 64) // shards) + (1 << _IGNORED_BITS) - 1 >> _IGNORED_BITS
        base = biased - biased % period + inside
        token = ((base if base >= biased else base + period) & _MASK) - _BIAS
    width = (end - start) & _MASK or 1 << 64
    return token if ((token - start) & _MASK or 1 << 64) <= width else end


def stream_id(token: int, index: int, chance: random.Random, version: int = 1) -> bytes:
    """A stream id."""
    low = chance.getrandbits(38) << (_INDEX_BITS + _VERSION_BITS) | index << _VERSION_BITS | version
    return struct.pack(">qQ", token, low)


def vnode_streams(
    vnodes: int, shards: int | Sequence[int], nodes: int = 1, seed: int | None = None
) -> list[VnodeStreams]:
    """A generation: `nodes` nodes with `vnodes` vnodes each, and `shards` shards each (one number, or one per node).

    >>> sum(len(each.streams) for each in vnode_streams(256, 72, 4))
    73728
    """
    chance = random.Random(seed)  # noqa: S311  # not a secret
    per_node = [shards] * nodes if isinstance(shards, int) else list(shards)
    if len(per_node) != nodes or vnodes < 1 or min(per_node) < 1:
        raise ValueError(f"{nodes} node(s) with {vnodes} vnode(s) and {shards} shard(s) are no cluster")
    ends = sorted(chance.randrange(-_BIAS + 1, _BIAS) for _ in range(vnodes * nodes))
    owners = [node for node in range(nodes) for _ in range(vnodes)]
    chance.shuffle(owners)
    result: list[VnodeStreams] = []
    for index, (end, owner) in enumerate(zip(ends, owners, strict=True)):
        count, start = per_node[owner], ends[index - 1]
        tokens = (first_token(start, end, shard, count) for shard in range(count))
        result.append(VnodeStreams(end, tuple(stream_id(token, index, chance) for token in tokens)))
    return result


def tablet_streams(tablets: int, seed: int | None = None) -> list[tuple[int, bytes]]:
    """Last token and stream of each tablet of a table with `tablets` tablets, a power of two."""
    if tablets < 1 or tablets & (tablets - 1):
        raise ValueError(f"a table has a power of two of tablets, not {tablets}")
    chance = random.Random(seed)  # noqa: S311  # not a secret
    width = (1 << 64) // tablets
    ends = [(index + 1) * width - 1 - _BIAS for index in range(tablets)]
    return [(end, stream_id(end, index, chance)) for index, end in enumerate(ends)]


def vnode_of(token: int, range_ends: Sequence[int]) -> int:
    """Index of the vnode that the token is in; past the last end the ring begins again."""
    return bisect.bisect_left(range_ends, token) % len(range_ends)


@dataclass(frozen=True, slots=True)
class Ring:
    """The mapping of tokens to streams in one generation; for tablets each entry has one stream."""

    start_ms: int
    range_ends: tuple[int, ...]
    streams: tuple[tuple[bytes, ...], ...]

    def stream(self, token: int) -> bytes:
        """The stream of a partition with that token."""
        streams = self.streams[vnode_of(token, self.range_ends)]
        return streams[shard_of(token, len(streams))]


def token_of(key: Sequence[bytes]) -> int:
    """The token of a partition from the cells of its key."""
    from cassandra.metadata import Murmur3Token  # the driver takes a while to import

    if len(key) == 1:
        return int(Murmur3Token.hash_fn(key[0]))
    return int(Murmur3Token.hash_fn(b"".join(struct.pack(">H", len(cell)) + cell + b"\0" for cell in key)))
