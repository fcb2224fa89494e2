"""A client of curtail's native protocol (docs/reference/protocol.md), for notebooks and tests.

Python alone, no package needed; one thread, plain sockets:

    from curtail import Session

    with Session("127.0.0.1", 11312) as session:
        session.set(b"key", b"value")              # returns when the write is accepted
        print(session.get(b"key").value)           # b"value"
        print(session.increment(b"visits", 1))     # waits for the result
        session.write(delete(b"key"))              # accepted; what came of it is waived
        session.many(set_(b"key %d" % i, b"x") for i in range(1000))   # 32 at a time

*Accepted* means: ordered, held once in the memory of the server's kernel, executed once if that
kernel keeps running. It never means stable storage; a server that promises that says *durable*.
A node of a cluster accepts a write if no other node holds its key; it acknowledges all others when
they are *executed*, or *replicated*: at every node in sync, which are several.

A request that gets no answer in time raises `TimedOut` if nothing can have happened, and
`Indeterminate` if a write may have been executed, or may still be. Sequence numbers are never used
again, so that a delayed copy of an abandoned request cannot take another's place.
"""

import os
import random
import selectors
import socket
import struct
import time
from collections import namedtuple

__all__ = [
    "Session", "Command", "Accepted", "Result", "CurtailError", "Indeterminate", "TimedOut",
    "NotStored",
    "Refused", "NoSession", "Malformed", "set_", "add", "replace", "append", "prepend", "delete",
    "increment", "decrement", "touch", "get", "get_touch", "flush",
]

MAGIC, VERSION = b"CN", 1
HEADER_BYTES, RESULT_BYTES = 64, 88
DATAGRAM_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX = 1984, 250, 1 << 30
SLOTS, SEQUENCE_MAX = 64, (1 << 46) - 1

OPCODES = {
    "hello": 1, "confirm": 2, "close": 3, "ping": 4, "get": 5, "get_touch": 6, "set": 8, "add": 9,
    "replace": 10, "append": 11, "prepend": 12, "delete": 13, "increment": 14, "decrement": 15,
    "touch": 16, "flush": 17,
}
NILEXT, WAIVE_RESULT, COMPARE, FRAGMENT = 1, 2, 4, 8

# Which fields an opcode has; the others are zero.
KEYED = {5, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16}
VALUED = {8, 9, 10, 11, 12}
EXPIRING = {6, 8, 9, 10, 16}
FLAGGED = {8, 9, 10}
ARGUED = {1, 2, 4, 14, 15}

COOKIE, GRANT, ACK, NACK, PONG, RESULT, ERROR = range(129, 136)
PROMISES = {1: "accepted", 2: "durable", 3: "executed", 4: "replicated"}
NO_QUEUE = 0xFFFF
NACKS = {1: "Full", 2: "NotReady", 3: "Busy"}
STATUSES = {
    1: "Done", 2: "Value", 3: "NotFound", 4: "NotStored", 5: "Exists", 6: "NotANumber",
    7: "OutOfMemory", 8: "TooLarge", 9: "Executed",
}
ERRORS = {
    1: "Malformed", 2: "Version", 3: "Opcode", 4: "Flags", 5: "NotNilext", 6: "Fragment",
    7: "TooLarge", 8: "Checksum", 9: "Session", 10: "Cookie", 11: "Sessions", 12: "Unsupported",
}

HEAD = struct.Struct("<2sBBHBBQIIQQIIIIQ")
REPLY = struct.Struct("<2sBBBBHQIIQQIIQQ")
TAIL = struct.Struct("<QQII")

Accepted = namedtuple("Accepted", "promise queue pos incarnation durable_pos credits copies")
Result = namedtuple("Result", "status version number item_flags value queue pos")
Grant = namedtuple(
    "Grant", "index generation token incarnation slots queues credits lease_ms datagram_bytes_max"
)


class CurtailError(Exception):
    """Anything that went wrong."""


class Indeterminate(CurtailError):
    """A write was sent, and it is not known whether it was, or will be, executed."""


class TimedOut(CurtailError):
    """No answer in time, and nothing was done."""


class Refused(CurtailError):
    """The server refused the request, and nothing was done."""


class NotStored(CurtailError):
    """The server executed a marked write and could not store it, for lack of room for example."""


class NoSession(CurtailError):
    """The server granted no session."""


class Malformed(CurtailError):
    """Bytes that are no packet of this protocol, or a request that cannot be one."""


# The checksum: XXH64.

_MASK = (1 << 64) - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def _left(word, bits):
    return (word << bits | word >> 64 - bits) & _MASK


def _round(lane, word):
    return _left((lane + word * _P2) & _MASK, 31) * _P1 & _MASK


def xxh64(data, seed=0):
    """XXH64 of some bytes."""
    at, size = 0, len(data)
    if size >= 32:
        lanes = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed, (seed - _P1) & _MASK]
        for stripe in struct.iter_unpack("<4Q", data[:size & ~31]):
            lanes = [_round(lane, word) for lane, word in zip(lanes, stripe)]
        at = size & ~31
        value = sum(_left(lane, turn) for lane, turn in zip(lanes, (1, 7, 12, 18))) & _MASK
        for lane in lanes:
            value = ((value ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        value = (seed + _P5) & _MASK
    value = (value + size) & _MASK
    while at + 8 <= size:
        word, = struct.unpack_from("<Q", data, at)
        value = (_left(value ^ _round(0, word), 27) * _P1 + _P4) & _MASK
        at += 8
    if at + 4 <= size:
        word, = struct.unpack_from("<I", data, at)
        value = (_left(value ^ (word * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        value = _left(value ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    value = (value ^ value >> 33) * _P2 & _MASK
    value = (value ^ value >> 29) * _P3 & _MASK
    return value ^ value >> 32


def checksum(frame):
    """The checksum that a frame should carry: of bytes 16 to the end, seeded with bytes 0 to 7."""
    return xxh64(frame[16:], int.from_bytes(frame[:8], "little"))


def _sealed(frame):
    return frame[:8] + checksum(frame).to_bytes(8, "little") + frame[16:]


# Requests.

class Command:
    """One request, before it has a session, a slot and a number."""

    def __init__(self, opcode, key=b"", value=b"", exptime=0, item_flags=0, argument=0, flags=0):
        self.opcode = OPCODES[opcode] if isinstance(opcode, str) else opcode
        self.key, self.value = bytes(key), bytes(value)
        self.exptime, self.item_flags = exptime, item_flags
        self.argument, self.flags = argument, flags

    def marked(self):
        """The same, to be answered when it is accepted, with every other answer waived."""
        flags = self.flags | NILEXT
        if self.opcode != OPCODES["set"] or self.flags & COMPARE:
            flags |= WAIVE_RESULT
        return self._with(flags=flags)

    def if_version(self, version):
        """The same, only if the item has this version."""
        command = self._with(flags=self.flags | COMPARE, argument=version)
        return command.marked() if self.is_marked else command

    @property
    def is_marked(self):
        return bool(self.flags & NILEXT)

    @property
    def is_read(self):
        return self.opcode in (OPCODES["get"], OPCODES["ping"])

    def encode(self, grant, slot, sequence, stamp):
        """The frame of this request in a session."""
        name = (grant.index, grant.generation, grant.token)
        return encode_request(self, name, slot, sequence, stamp)

    def _with(self, **changes):
        fields = dict(
            opcode=self.opcode, key=self.key, value=self.value, exptime=self.exptime,
            item_flags=self.item_flags, argument=self.argument, flags=self.flags,
        )
        return Command(**{**fields, **changes})


def set_(key, value, exptime=0, item_flags=0):
    return Command("set", key, value, exptime, item_flags)


def add(key, value, exptime=0, item_flags=0):
    return Command("add", key, value, exptime, item_flags)


def replace(key, value, exptime=0, item_flags=0):
    return Command("replace", key, value, exptime, item_flags)


def append(key, value):
    return Command("append", key, value)


def prepend(key, value):
    return Command("prepend", key, value)


def delete(key):
    return Command("delete", key)


def increment(key, delta=1):
    return Command("increment", key, argument=delta)


def decrement(key, delta=1):
    return Command("decrement", key, argument=delta)


def touch(key, exptime):
    return Command("touch", key, exptime=exptime)


def get(key):
    return Command("get", key)


def get_touch(key, exptime):
    return Command("get_touch", key, exptime=exptime)


def flush():
    return Command("flush")


def is_allowed(opcode, flags):
    """Whether the table of the protocol has an opcode with these flags."""
    compares, nilext, waived = flags & COMPARE, flags & NILEXT, flags & WAIVE_RESULT
    if flags & ~(NILEXT | WAIVE_RESULT | COMPARE):
        return False
    if compares and opcode not in (8, 10, 13):
        return False
    if opcode in (1, 2, 3, 4, 5, 6, 17):
        return flags == 0
    if not nilext:
        return True
    return bool(waived) or (opcode == 8 and not compares)


def encode_request(command, session, slot, sequence, stamp):
    """The frame of a request; raises Malformed if it makes no sense."""
    opcode, flags, key, value = command.opcode, command.flags, command.key, command.value
    if opcode not in OPCODES.values() or not is_allowed(opcode, flags):
        raise Malformed("opcode %s with flags %s" % (opcode, flags))
    if (len(key) in range(1, KEY_BYTES_MAX + 1)) != (opcode in KEYED):
        raise Malformed("a key of %d bytes" % len(key))
    if len(value) > (VALUE_BYTES_MAX if opcode in VALUED else 0):
        raise Malformed("a value of %d bytes" % len(value))
    fields = [
        (command.exptime, opcode in EXPIRING), (command.item_flags, opcode in FLAGGED),
        (command.argument, opcode in ARGUED or flags & COMPARE),
    ]
    if any(field and not has for field, has in fields):
        raise Malformed("a field that the opcode does not have")
    index, generation, token = session
    try:
        head = HEAD.pack(
            MAGIC, VERSION, opcode, flags, slot, len(key), 0, index, generation, token, sequence,
            stamp & 0xFFFFFFFF, command.exptime, len(value), command.item_flags, command.argument,
        )
    except struct.error as error:
        raise Malformed("a field out of range: %s" % error) from error
    return _sealed(head + key + value)


# Replies.

class Reply:
    """What a server answered; `kind` says which fields mean something."""

    __slots__ = (
        "kind", "status", "slot", "queue", "index", "generation", "incarnation", "sequence",
        "stamp", "credits", "pos", "durable_pos", "version", "number", "item_flags", "value",
    )

    @classmethod
    def decode(cls, frame):
        """The reply that a whole frame is; raises Malformed."""
        if len(frame) < HEADER_BYTES or frame[:2] != MAGIC:
            raise Malformed("no reply of this protocol")
        fields = REPLY.unpack_from(frame)
        if fields[1] != VERSION:
            raise Malformed("version %d" % fields[1])
        reply = cls()
        (reply.kind, reply.status, reply.slot, reply.queue) = fields[2:6]
        (reply.index, reply.generation, reply.incarnation, reply.sequence) = fields[7:11]
        (reply.stamp, reply.credits, reply.pos, reply.durable_pos) = fields[11:]
        reply.version = reply.number = reply.item_flags = 0
        reply.value = b""
        if reply.kind == RESULT:
            if len(frame) < RESULT_BYTES:
                raise Malformed("a result that is too short")
            tail = TAIL.unpack_from(frame, HEADER_BYTES)
            reply.version, reply.number, value_bytes, reply.item_flags = tail
            reply.value = bytes(frame[RESULT_BYTES:])
            if len(reply.value) != value_bytes:
                raise Malformed("a value of another length")
        elif len(frame) != HEADER_BYTES or reply.kind not in range(COOKIE, ERROR + 1):
            raise Malformed("kind %d of %d bytes" % (reply.kind, len(frame)))
        if fields[6] != checksum(frame):
            raise Malformed("the checksum does not match")
        return reply

    def accepted(self):
        """What the acknowledgement of a write says, or a result that comes in its place."""
        copies = max(1, self.pos) if self.queue == NO_QUEUE else 1
        promise = PROMISES.get(self.status, "?")
        if self.kind == RESULT:
            promise = "replicated" if copies > 1 else "executed"
        return Accepted(
            promise, self.queue, self.pos, self.incarnation, self.durable_pos, self.credits,
            copies,
        )

    def result(self):
        return Result(
            STATUSES.get(self.status, "?"), self.version, self.number, self.item_flags,
            self.value, self.queue, self.pos,
        )


# Sessions.

class _Job:
    """One request that is under way."""

    def __init__(self, number, command, slot, sequence, give_up):
        self.number, self.command = number, command
        self.slot, self.sequence, self.give_up = slot, sequence, give_up
        self.by_stream, self.stream = False, None
        self.resend, self.wait, self.errors = 0.0, RESEND_MIN, 0
        self.stamps = {}


RESEND_MIN, RESEND_MAX = 0.02, 1.0
PAUSE_MIN, PAUSE_MAX = 0.0005, 0.05
DOUBTFUL = {"Malformed", "Version", "Opcode", "Flags", "NotNilext", "Fragment", "Session"}

# select() fails for descriptors above 1023; poll() needs none of its own.
Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)


class Session:
    """One session with a server; to be used by one thread."""

    def __init__(self, host="127.0.0.1", port=11312, patience=5.0, window=32):
        self.patience, self.window_max = patience, window
        self._stream, self._input = None, bytearray()
        self._stamp = random.randrange(1 << 32)
        self.grant = None
        self.resent = self.refused = 0
        self._heard = 0.0
        self._sequences = [0] * SLOTS
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        for left, (family, _, _, _, address) in zip(range(len(addresses), 0, -1), addresses):
            self._address = address
            self._socket = socket.socket(family, socket.SOCK_DGRAM)
            try:
                self._socket.connect(address)
                self._socket.setblocking(False)
                self._open(patience / len(addresses))
                return
            except (CurtailError, OSError):
                self._socket.close()
                if left == 1:
                    raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # Requests.

    def write(self, command):
        """A write that ends when it is accepted; returns where it stands."""
        return self._one(command.marked())

    def call(self, command):
        """A request that ends with its result."""
        return self._one(command)

    def many(self, commands):
        """Marks writes, sends some at a time, and returns what came of each, errors included."""
        return self._run([c if c.is_read else c.marked() for c in commands])

    def set(self, key, value, exptime=0, item_flags=0):
        return self.write(set_(key, value, exptime, item_flags))

    def get(self, key):
        return self.call(get(key))

    def delete(self, key):
        return self.call(delete(key))

    def increment(self, key, delta=1):
        return self.call(increment(key, delta))

    def decrement(self, key, delta=1):
        return self.call(decrement(key, delta))

    def flush(self):
        return self.call(flush())

    def ping(self, queue=0):
        """The first position of a queue that is not executed yet, as the result's number."""
        return self.call(Command("ping", argument=queue))

    def executed(self, accepted, within=5.0):
        """Waits until an accepted write is executed; False if it is not within that time. At a node
        of a cluster `accepted.promise` and `accepted.copies` say whether several nodes have it
        ("replicated")."""
        if accepted.promise in ("executed", "replicated"):
            return True
        return self._ask_until(accepted, within, lambda told: accepted.pos < told.pos)

    def durable(self, accepted, within=5.0):
        """Waits until an accepted write is durable; False if it is not within that time."""
        if accepted.promise == "durable":
            return True
        return self._ask_until(accepted, within, lambda told: accepted.pos < told.durable_pos)

    def _ask_until(self, accepted, within, is_right):
        """Asks a write's queue until its answer is right. Without a queue no more will be told."""
        end = time.monotonic() + within
        while accepted.queue != NO_QUEUE:
            self.ping(accepted.queue)
            if self._told.incarnation != accepted.incarnation:
                raise Indeterminate("the server has new queues: the write may be lost")
            if is_right(self._told):
                return True
            if time.monotonic() >= end:
                break
            time.sleep(0.01)
        return False

    def close(self):
        """Gives the session back."""
        if self.grant is not None:
            self._sequences[0] += 1
            frame = Command("close").encode(self.grant, 0, self._sequences[0], 0)
            self._send(frame)
            self.grant = None
        self._cut()
        self._socket.close()

    # The handshake.

    def _open(self, patience=None):
        """Says hello until there is a cookie, and confirms it until there is a session."""
        end, said = time.monotonic() + (patience or self.patience), None
        self.grant = None
        while time.monotonic() < end:
            nonce = int.from_bytes(os.urandom(8), "little")
            cookie = self._greet("hello", nonce, 0, end)
            if isinstance(cookie, Reply) and cookie.kind == COOKIE:
                granted = self._greet("confirm", nonce, cookie.sequence, end)
                if isinstance(granted, Reply) and granted.kind == GRANT:
                    self._granted(granted)
                    return
                cookie = granted
            said = ERRORS.get(cookie.status) if isinstance(cookie, Reply) else said
            time.sleep(0.02)
        raise NoSession("the server granted no session: %s" % (said or "no answer"))

    def _greet(self, opcode, nonce, token, end):
        wait = RESEND_MIN
        while time.monotonic() < end:
            self._stamp = (self._stamp + 1) & 0xFFFFFFFF
            command = Command(opcode, argument=nonce)
            self._send(encode_request(command, (0, 0, token), 0, 0, self._stamp))
            until = min(end, time.monotonic() + wait)
            while time.monotonic() < until:
                for reply in self._receive(until - time.monotonic()):
                    is_ours = reply.kind in (COOKIE, GRANT) and reply.pos == nonce
                    is_error = reply.kind == ERROR and reply.stamp == self._stamp
                    wanted = COOKIE if opcode == "hello" else GRANT
                    if is_error or (is_ours and reply.kind == wanted):
                        return reply
            wait = min(2 * wait, RESEND_MAX)
        return None

    def _granted(self, reply):
        lease_ms, datagram = reply.durable_pos & 0xFFFFFFFF, reply.durable_pos >> 32
        self.grant = Grant(
            reply.index, reply.generation, reply.sequence, reply.incarnation,
            min(reply.slot, SLOTS), reply.queue, reply.credits, lease_ms,
            min(datagram, DATAGRAM_BYTES_MAX),
        )
        self._sequences = [0] * SLOTS
        self._heard = time.monotonic()

    # Under way.

    def _one(self, command):
        outcome, = self._run([command])
        if isinstance(outcome, CurtailError):
            raise outcome
        return outcome

    def _run(self, commands):
        """Carries out some commands, a few at a time; what came of each, in their order."""
        outcomes = [None] * len(commands)
        waiting = list(enumerate(commands))[::-1]
        jobs, self._window = {}, float(min(self.window_max, self.grant.credits if self.grant else 1))
        while waiting or jobs:
            self._renew_if_idle(jobs)
            while waiting and len(jobs) < max(1, min(int(self._window), self.grant.slots)):
                number, command = waiting.pop()
                try:
                    job = self._begin(number, command, jobs)
                except Malformed as error:
                    outcomes[number] = error
                    continue
                jobs[job.slot] = job
            if not jobs:
                continue
            due = min(min(job.resend, job.give_up) for job in jobs.values())
            for reply in self._receive(max(0.0, due - time.monotonic())):
                self._reply(reply, jobs, outcomes, waiting)
            self._overdue(jobs, outcomes)
        return outcomes

    def _renew_if_idle(self, jobs):
        lease = self.grant.lease_ms / 1000 if self.grant and self.grant.lease_ms else 1e9
        if not jobs and (self.grant is None or time.monotonic() - self._heard > 0.75 * lease):
            self._open()

    def _begin(self, number, command, jobs):
        slot = next(slot for slot in range(self.grant.slots) if slot not in jobs)
        give_up = time.monotonic() + self.patience
        job = _Job(number, command, slot, self._sequences[slot] + 1, give_up)
        frame_bytes = HEADER_BYTES + len(command.key) + len(command.value)
        job.by_stream = frame_bytes > self.grant.datagram_bytes_max
        # Before the first byte leaves: whatever interrupts the rest, the number is used up.
        self._sequences[slot] = job.sequence
        self._transmit(job)
        return job

    def _transmit(self, job):
        self._stamp = (self._stamp + 1) & 0xFFFFFFFF
        frame = job.command.encode(self.grant, job.slot, job.sequence, self._stamp)
        job.stamps[self._stamp] = job.by_stream
        now = time.monotonic()
        if not job.by_stream:
            job.resend = now + job.wait * random.uniform(1.0, 1.2)
            self._send(frame)
            return
        job.resend = now + self.patience
        try:
            if self._stream is None:
                self._stream = socket.create_connection(self._address[:2], timeout=self.patience)
            job.stream = self._stream
            self._stream.sendall(frame)
        except OSError:
            self._cut()
            job.stream, job.resend = None, now + RESEND_MIN

    def _reply(self, reply, jobs, outcomes, waiting):
        job = jobs.get(reply.slot)
        is_ours = (
            job is not None and self.grant is not None and reply.sequence == job.sequence
            and (reply.index, reply.generation) == (self.grant.index, self.grant.generation)
        )
        if not is_ours or reply.kind in (COOKIE, GRANT):
            return
        self._heard = time.monotonic()
        self._told = reply
        if reply.kind == ACK and job.command.is_marked:
            self._end(job, reply.accepted(), jobs, outcomes)
        elif reply.kind == RESULT:
            name = STATUSES.get(reply.status)
            if not job.command.is_marked:
                outcome = reply.result()
            elif name in ("OutOfMemory", "TooLarge"):
                outcome = NotStored("the server could not store it: %s" % name)
            else:
                outcome = reply.accepted()
            self._end(job, outcome, jobs, outcomes)
        elif reply.kind == PONG:
            result = Result("Done", 0, reply.pos, 0, b"", reply.queue, reply.pos)
            self._end(job, result, jobs, outcomes)
        elif reply.kind == NACK:
            self.refused += 1
            if NACKS.get(reply.status) == "Full":
                self._window = max(1.0, self._window / 2)
            job.wait = min(max(PAUSE_MIN, 2 * job.wait), PAUSE_MAX)
            job.resend = self._heard + job.wait * random.uniform(0.5, 1.5)
        elif reply.kind == ERROR:
            self._error(reply, job, jobs, outcomes, waiting)

    def _error(self, reply, job, jobs, outcomes, waiting):
        name = ERRORS.get(reply.status, "?")
        by_stream = job.stamps.get(reply.stamp)
        if by_stream is None:
            return  # the answer to damaged bytes; sent again in time
        job.errors += name in DOUBTFUL
        believed = 2 if name == "Session" else 3
        if name == "Checksum" or (name in DOUBTFUL and job.errors < believed):
            # It may come from bytes that were damaged on their way.
            job.stamps.pop(reply.stamp)
            job.resend = self._heard
        elif name == "Session":
            self._lost(jobs, outcomes, waiting)
        elif name == "TooLarge" and not job.by_stream:
            job.by_stream = True
            self._transmit(job)
        elif name != "TooLarge" or by_stream:
            self._end(job, Refused(name), jobs, outcomes)

    def _lost(self, jobs, outcomes, waiting):
        """The session is gone: writes are indeterminate, reads are asked again."""
        for job in list(jobs.values()):
            if job.command.is_read:
                waiting.append((job.number, job.command))
                del jobs[job.slot]
            else:
                self._end(job, Indeterminate("the session ended"), jobs, outcomes)
        self.grant = None
        self._cut()

    def _overdue(self, jobs, outcomes):
        now = time.monotonic()
        for job in list(jobs.values()):
            if now >= job.give_up:
                what = "no answer within %g s" % self.patience
                error = TimedOut(what) if job.command.is_read else Indeterminate(what)
                self._end(job, error, jobs, outcomes)
            elif now >= job.resend or job.stream is not None and job.stream is not self._stream:
                self.resent += 1
                job.wait = min(2 * job.wait, RESEND_MAX)
                self._transmit(job)

    def _end(self, job, outcome, jobs, outcomes):
        outcomes[job.number] = outcome
        del jobs[job.slot]
        if not isinstance(outcome, CurtailError):
            self._window = min(self._window + 1 / self._window, float(self.window_max))

    # Sockets.

    def _send(self, frame):
        try:
            self._socket.send(frame)
        except OSError:
            pass  # as good as lost, and sent again

    def _receive(self, wait):
        """Waits a little, and returns the replies that came."""
        sockets = [self._socket] + ([self._stream] if self._stream else [])
        with Selector() as selector:
            for each in sockets:
                selector.register(each, selectors.EVENT_READ)
            ready = [key.fileobj for key, _ in selector.select(min(max(wait, 0.0), 0.1))]
        replies = []
        while self._socket in ready:
            try:
                replies.append(Reply.decode(self._socket.recv(4096)))
            except Malformed:
                continue
            except OSError as error:
                if isinstance(error, BlockingIOError):
                    break  # nothing more; otherwise the port was closed, and that is told once
        if self._stream in ready:
            replies += self._receive_stream()
        return replies

    def _receive_stream(self):
        try:
            chunk = self._stream.recv(1 << 18)
        except OSError:
            chunk = b""
        if not chunk:
            self._cut()
            return []
        self._input += chunk
        replies = []
        while len(self._input) >= HEADER_BYTES:
            frame_bytes = HEADER_BYTES
            if self._input[3] == RESULT:
                if len(self._input) < RESULT_BYTES:
                    break
                frame_bytes = RESULT_BYTES + int.from_bytes(self._input[80:84], "little")
            if len(self._input) < frame_bytes:
                break
            try:
                replies.append(Reply.decode(bytes(self._input[:frame_bytes])))
            except Malformed:
                self._cut()  # where its next reply begins is not known
                break
            del self._input[:frame_bytes]
        return replies

    def _cut(self):
        """Ends the stream; what was under way on it is sent again in time."""
        if self._stream is not None:
            self._stream.close()
        self._stream = None
        self._input.clear()
