"""A client of curtail's cache tier (docs/reference/protocol-tiered.md), for notebooks and tests.

Python alone, no package needed; one thread, one request at a time. It addresses every request by
its key, so the network brings it to the cache node that has the key or to the key's back end:

    from curtail_tier import TierSession

    with TierSession("tier.toml") as tier:
        tier.put(b"key", b"value", expiry=1_900_000_000)     # or without an end; its version
        found = tier.get(b"key")                            # None if there is none
        print(found.value, found.from_cache)
        tier.delete(b"key")                                 # whether there was one

What is not answered is sent again, a `get` then past the cache nodes; a back end runs a write that
is sent again once. `Indeterminate` is the one error after which a write may have been carried out.
"""

import os
import socket
import struct
import time
import tomllib
from collections import namedtuple

from curtail import CurtailError, Indeterminate, Malformed, Refused, TimedOut, xxh64

__all__ = ["TierSession", "TierMap", "Found", "WrongPartition", "xxh3", "encode", "decode"]

MAGIC, VERSION = b"CT", 1
HEADER_BYTES, DATAGRAM_BYTES_MAX, KEY_BYTES_MAX = 104, 1452, 250
OPCODES = {"get": 1, "put": 2, "delete": 3, "reply": 8}
CACHED_GET, BACK_END, HOST = 0x02, 0x06, 0x0A
RETRY, FROM_CACHE, EXPIRES = 1, 2, 8
DONE, NOT_FOUND, WRONG_PARTITION, BUSY, TOO_LARGE, REFUSED = range(6)
NOT_CACHED = 9

HEAD = struct.Struct("<2sBBBBBBQQIIQQQQ16sH6sIIII")
FIELDS = (
    "magic", "protocol", "opcode", "flags", "status", "key_bytes", "load", "address", "seal",
    "sender", "epoch", "sequence", "version", "generation", "number", "client_ip", "client_port",
    "client_mac", "value_bytes", "item_flags", "exptime", "zero",
)
NO_MAC = bytes(6)

Found = namedtuple("Found", "value item_flags version from_cache")


class WrongPartition(CurtailError):
    """The back end has another map of keys to back ends; read tier.toml again."""


# XXH3 of 64 bits, seed 0, of keys: up to 250 bytes.

_MASK = (1 << 64) - 1
_P32 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_P64 = (
    0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)


def _u32(data, at):
    return int.from_bytes(data[at:at + 4], "little")


def _u64(data, at):
    return int.from_bytes(data[at:at + 8], "little")


def _left(word, bits):
    return (word << bits | word >> 64 - bits) & _MASK


def _folded(one, other):
    product = one * other
    return (product ^ product >> 64) & _MASK


def _avalanche(word):
    word ^= word >> 37
    word = word * 0x165667919E3779F9 & _MASK
    return word ^ word >> 32


def _avalanche64(word):
    word = (word ^ word >> 33) * _P64[1] & _MASK
    word = (word ^ word >> 29) * _P64[2] & _MASK
    return word ^ word >> 32


def _mix(data, at, secret):
    return _folded(
        _u64(data, at) ^ _u64(_SECRET, secret), _u64(data, at + 8) ^ _u64(_SECRET, secret + 8)
    )


def _short(data, size):
    if size > 8:
        low = _u64(data, 0) ^ _u64(_SECRET, 24) ^ _u64(_SECRET, 32)
        high = _u64(data, size - 8) ^ _u64(_SECRET, 40) ^ _u64(_SECRET, 48)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche((size + swapped + high + _folded(low, high)) & _MASK)
    if size > 3:
        word = _u32(data, size - 4) + (_u32(data, 0) << 32)
        word ^= _u64(_SECRET, 8) ^ _u64(_SECRET, 16)
        word ^= _left(word, 49) ^ _left(word, 24)
        word = word * 0x9FB21C651E98DF25 & _MASK
        word ^= (word >> 35) + size
        word = word * 0x9FB21C651E98DF25 & _MASK
        return word ^ word >> 28
    if size > 0:
        word = data[0] << 16 | data[size >> 1] << 24 | data[size - 1] | size << 8
        return _avalanche64(word ^ _u32(_SECRET, 0) ^ _u32(_SECRET, 4))
    return _avalanche64(_u64(_SECRET, 56) ^ _u64(_SECRET, 64))


def _middle(data, size):
    word = size * _P64[0]
    if size <= 128:
        pairs = (size - 1) // 32
        for pair in range(pairs, -1, -1):
            word += _mix(data, 16 * pair, 32 * pair)
            word += _mix(data, size - 16 * (pair + 1), 32 * pair + 16)
        return _avalanche(word & _MASK)
    for turn in range(8):
        word += _mix(data, 16 * turn, 16 * turn)
    word = _avalanche(word & _MASK)
    for turn in range(8, size // 16):
        word += _mix(data, 16 * turn, 16 * (turn - 8) + 3)
    return _avalanche((word + _mix(data, size - 16, 136 - 17)) & _MASK)


def _long(data, size):
    lanes = [_P32[2], _P64[0], _P64[1], _P64[2], _P64[3], _P32[1], _P64[4], _P32[0]]
    stripes = [(64 * turn, 8 * turn) for turn in range((size - 1) // 64)] + [(size - 64, 121)]
    for at, secret in stripes:
        for lane in range(8):
            word = _u64(data, at + 8 * lane)
            keyed = word ^ _u64(_SECRET, secret + 8 * lane)
            lanes[lane ^ 1] += word
            lanes[lane] += (keyed & 0xFFFFFFFF) * (keyed >> 32)
    lanes = [lane & _MASK for lane in lanes]
    word = size * _P64[0]
    for pair in range(4):
        at = 11 + 16 * pair
        word += _folded(
            lanes[2 * pair] ^ _u64(_SECRET, at), lanes[2 * pair + 1] ^ _u64(_SECRET, at + 8)
        )
    return _avalanche(word & _MASK)


def xxh3(data):
    """XXH3 (64 bits, seed 0) of up to 1,024 bytes."""
    size = len(data)
    if size > 1024:
        raise ValueError("longer than any key")
    if size > 240:
        return _long(data, size)
    return _middle(data, size) if size > 16 else _short(data, size)


# Addresses.

class TierMap(namedtuple("TierMap", "epoch back_ends")):
    """How keys are divided among back ends."""

    def owner(self, route):
        """The back end of a key with this route hash: jump consistent hashing in integers."""
        owner, following = 0, 0
        while following < self.back_ends:
            owner = following
            route = (route * 2862933555777941757 + 1) & _MASK
            following = ((owner + 1) << 31) // ((route >> 33) + 1)
        return owner

    def address(self, address_class, key):
        """Class, back end and tag of a key."""
        route = xxh3(key)
        return address_word(address_class, self.owner(route), route >> 24)


def address_word(address_class, back_end, tag):
    """An address as it stands in the header."""
    return tag | back_end << 40 | address_class << 56


def to_ipv6(address, cluster):
    """The IPv6 address that an address of the tier is."""
    tag, back_end, address_class = address & (1 << 40) - 1, address >> 40 & 0xFFFF, address >> 56
    words = struct.pack(">HIHBxx", 0xFD00, cluster, back_end, address_class)
    return socket.inet_ntop(socket.AF_INET6, words + tag.to_bytes(5, "big"))


# Datagrams.

def encode(head, key, value=b""):
    """A client's datagram: a dictionary of the fields that are not zero, key and value."""
    if not 1 <= len(key) <= KEY_BYTES_MAX:
        raise Malformed("a key has 1 to 250 bytes")
    if HEADER_BYTES + len(key) + len(value) > DATAGRAM_BYTES_MAX:
        raise Malformed("key and value do not fit into a datagram")
    fields = dict.fromkeys(FIELDS, 0)
    fields.update(client_ip=bytes(16), client_mac=NO_MAC)
    fields.update(head, magic=MAGIC, protocol=VERSION)
    fields.update(key_bytes=len(key), value_bytes=len(value), seal=0)
    datagram = HEAD.pack(*(fields[name] for name in FIELDS)) + key + value
    seal = xxh64(datagram[:16] + datagram[24:])
    return datagram[:16] + seal.to_bytes(8, "little") + datagram[24:]


def decode(datagram):
    """Fields, key and value of a datagram; `Malformed` if it is none or damaged."""
    if not HEADER_BYTES <= len(datagram) <= DATAGRAM_BYTES_MAX:
        raise Malformed("no datagram of the tier has this length")
    head = dict(zip(FIELDS, HEAD.unpack_from(datagram)))
    if head["magic"] != MAGIC or head["protocol"] != VERSION:
        raise Malformed("another protocol, or another version of it")
    split = HEADER_BYTES + head["key_bytes"]
    if len(datagram) != split + head["value_bytes"]:
        raise Malformed("lengths do not add up")
    if xxh64(datagram[:16] + datagram[24:]) != head["seal"]:
        raise Malformed("the checksum does not match")
    return head, datagram[HEADER_BYTES:split], datagram[split:]


class TierSession:
    """A client of the tier that a file describes; `number` is one that no other client has."""

    FIRST_WAIT, WAIT_MAX, PATIENCE = 0.02, 0.32, 2.0

    def __init__(self, path, number=None):
        with open(path, "rb") as file:
            described = tomllib.load(file)
        self.map = TierMap(described.get("epoch", 1), len(described["back_ends"]))
        self.network = described["network"]
        # In a baseline every read goes to a cache node first.
        self.caches = len(described["caches"]) if "baseline" in described else 0
        # Below are cache nodes.
        self.number = number or 256 + int.from_bytes(os.urandom(4), "big") % ((1 << 32) - 256)
        # Above all that a client of this number has sent.
        self.sequence = time.time_ns()
        self.repeated = 0
        family, there = self._destination(address_word(BACK_END, 0, 0))
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(there)
            own = probe.getsockname()[0]
        self.socket = socket.socket(family, socket.SOCK_DGRAM)
        self.socket.bind((own, 0))
        mapped = own if family == socket.AF_INET6 else "::ffff:" + own
        self.client_ip = socket.inet_pton(socket.AF_INET6, mapped)
        self.client_port = self.socket.getsockname()[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def get(self, key):
        """The item of a key, or None."""
        head, value = self._ask("get", key)
        if head["status"] == NOT_FOUND:
            return None
        from_cache = bool(head["flags"] & FROM_CACHE)
        return Found(value, head["item_flags"], head["version"], from_cache)

    def put(self, key, value, item_flags=0, expiry=None):
        """Stores an item that ends at `expiry`, in Unix seconds, or never; its version."""
        fields = dict(item_flags=item_flags)
        if expiry is not None:
            fields.update(flags=EXPIRES, exptime=expiry)
        return self._ask("put", key, value, fields)[0]["version"]

    def delete(self, key):
        """Removes an item; whether there was one."""
        return self._ask("delete", key)[0]["status"] == DONE

    def _destination(self, address):
        if "forwarder" in self.network:
            host, _, port = self.network["forwarder"].rpartition(":")
            host = host.strip("[]")
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            return family, (host, int(port))
        if "ipv6" not in self.network:
            raise CurtailError("the tier has encoding mac, which this client does not speak: use a gateway")
        ipv6 = self.network["ipv6"]
        return socket.AF_INET6, (to_ipv6(address, ipv6["cluster"]), ipv6["port"])

    def _ask(self, opcode, key, value=b"", fields=()):
        self.sequence += 1
        address = self.map.address(CACHED_GET if opcode == "get" else BACK_END, key)
        if self.caches and opcode == "get":
            cache = (address >> 40 & 0xFFFF) % self.caches
            address = address_word(HOST, 0xFFFF, cache)
        head = dict(
            fields, opcode=OPCODES[opcode], address=address,
            sender=self.number, epoch=self.map.epoch, sequence=self.sequence,
            client_ip=self.client_ip, client_port=self.client_port,
        )
        began, wait, is_open = time.monotonic(), self.FIRST_WAIT, False
        while True:
            self._send(head, key, value)
            reply = self._receive(time.monotonic() + wait)
            if reply is None:
                is_open = True
            elif reply[0]["status"] == NOT_CACHED:
                if head["address"] >> 56 == HOST:
                    head.update(address=self.map.address(BACK_END, key))
                    continue
            elif reply[0]["status"] != BUSY:
                return _known(reply)
            else:
                time.sleep(wait)
            if time.monotonic() - began + wait >= self.PATIENCE:
                break
            self.repeated += 1
            if is_open:
                # Past the cache nodes.
                head.update(
                    flags=head.get("flags", 0) | RETRY, address=self.map.address(BACK_END, key)
                )
            wait = min(2 * wait, self.WAIT_MAX)
        if not is_open:
            raise Refused("the back end is busy; nothing was changed")
        if opcode == "get":
            raise TimedOut("no answer")
        raise Indeterminate("no answer; the write may have been carried out")

    def _send(self, head, key, value):
        _, there = self._destination(head["address"])
        try:
            self.socket.sendto(encode(head, key, value), there)
        except ConnectionRefusedError:
            pass  # An earlier datagram found nobody: as if it were lost.

    def _receive(self, until):
        while (left := until - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                reply = decode(self.socket.recv(DATAGRAM_BYTES_MAX + 1))
            except (TimeoutError, ConnectionRefusedError, Malformed):
                continue
            head = reply[0]
            asked = (OPCODES["reply"], self.number, self.sequence)
            if (head["opcode"], head["sender"], head["sequence"]) == asked:
                return head, reply[2]
        return None


def _known(reply):
    status = reply[0]["status"]
    if status in (DONE, NOT_FOUND):
        return reply
    if status == WRONG_PARTITION:
        raise WrongPartition(f"the back end has partition map {reply[0]['epoch']}")
    if status == TOO_LARGE:
        raise Malformed("key and value do not fit into a datagram")
    raise Refused("the back end's store is full, or its disk fails; nothing was changed")
