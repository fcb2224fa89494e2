"""Tests of the pure-Python client: the golden packets, and a server if one is named.

    python3 clients/python/test_curtail.py                              packets alone
    CURTAIL_NATIVE=127.0.0.1:11312 python3 clients/python/test_curtail.py
"""

import os
import pathlib
import random
import re
import socket
import struct
import threading
import time
import unittest

import curtail
from curtail import Command, Malformed, Reply, Session

PACKETS = pathlib.Path(__file__).parents[2] / "crates" / "codec" / "tests" / "native"
SESSION = (3, 2, 0x1122334455667788)
SERVER = os.environ.get("CURTAIL_NATIVE")


def packets(name):
    """The packets of a file: what stands behind the equals sign, and the bytes.

    One that is made `of` a request has the request's lines where it shows none.
    """
    good = packets("requests.txt") if name == "refused.txt" else {}
    found, label = {}, None
    for line in (PACKETS / name).read_text().splitlines():
        if line.startswith("= "):
            label, _, of = line[2:].partition(" of ")
            found[label] = good[of.split(":")[0]] if of else b""
        elif re.match(r"\s*\d+  ", line):
            place, shown = int(line.split()[0]), bytes.fromhex(line.split(None, 1)[1])
            found[label] = found[label][:place] + shown + found[label][place + 8:]
    return found


def requests():
    """What crates/codec/tests/native.rs says the packets of requests.txt are."""
    nonce = 0x0102030405060708
    plain = dict(slot=5, sequence=1001, stamp=0xAABBCCDD)
    stranger = dict(slot=0, sequence=0, stamp=1)
    last = dict(plain, slot=63, sequence=(1 << 46) - 1)
    return {
        "hello": (Command("hello", argument=nonce), (0, 0, 0), stranger),
        "confirm": (Command("confirm", argument=nonce), (0, 0, 0xC00C1E), stranger),
        "close": (Command("close"), SESSION, plain),
        "ping": (Command("ping", argument=15), SESSION, plain),
        "get": (curtail.get(b"key"), SESSION, plain),
        "get_touch": (curtail.get_touch(b"key", 2592001), SESSION, plain),
        "set_nilext": (curtail.set_(b"key", b"value", 60, 7).marked(), SESSION, plain),
        "set_empty": (curtail.set_(b"k", b""), SESSION, plain),
        "set_compare": (curtail.set_(b"key", b"new").if_version(99), SESSION, plain),
        "add": (curtail.add(b"key", b"v"), SESSION, plain),
        "append_waived": (curtail.append(b"key", b"tail").marked(), SESSION, plain),
        "increment_waived": (curtail.increment(b"counter", 10).marked(), SESSION, plain),
        "delete_last_sequence": (curtail.delete(b"key").marked(), SESSION, last),
        "flush": (curtail.flush(), SESSION, plain),
    }


class Packets(unittest.TestCase):
    def test_every_request_is_written_to_the_byte(self):
        golden, ours = packets("requests.txt"), requests()
        self.assertEqual(sorted(golden), sorted(ours))
        for name, (command, session, where) in ours.items():
            with self.subTest(name):
                frame = curtail.encode_request(command, session, **where)
                self.assertEqual(frame.hex(), golden[name].hex())

    def test_every_reply_is_read(self):
        golden = packets("replies.txt")
        self.assertGreater(len(golden), 8)
        kinds = {name: Reply.decode(frame) for name, frame in golden.items()}
        ack = kinds["ack_accepted"].accepted()
        self.assertEqual(ack, curtail.Accepted("accepted", 15, 70000, 0x1234, 69000, 4000, 1))
        replicated = kinds["ack_replicated"].accepted()
        self.assertEqual((replicated.promise, replicated.copies), ("replicated", 3))
        self.assertEqual(kinds["ack_executed"].accepted().promise, "executed")
        self.assertEqual(kinds["ack_durable"].accepted().promise, "durable")
        found = kinds["result_value"].result()
        self.assertEqual((found.status, found.value, found.item_flags), ("Value", b"value", 7))
        self.assertEqual(kinds["result_counted"].result().number, 42)
        self.assertEqual(kinds["cookie"].sequence, 0xC00C1E)
        self.assertEqual((kinds["grant"].slot, kinds["grant"].queue), (64, 16))
        self.assertEqual(curtail.ERRORS[kinds["error_session"].status], "Session")
        self.assertEqual(curtail.NACKS[kinds["nack_full"].status], "Full")

    def test_a_bit_that_turned_is_noticed(self):
        for name, frame in packets("replies.txt").items():
            for bit in range(0, len(frame) * 8, 7):
                damaged = bytearray(frame)
                damaged[bit // 8] ^= 1 << bit % 8
                with self.subTest(name, bit=bit), self.assertRaises(Malformed):
                    Reply.decode(bytes(damaged))

    def test_the_table_of_classes_is_the_shared_one(self):
        text = (PACKETS / "abi.h").read_text()
        table = [int(byte, 16) for byte in re.findall(r"0x([0-9a-f]{2}),", text)]
        self.assertEqual(len(table), 256)
        for opcode in curtail.OPCODES.values():
            for flags in range(8):
                rejected = table[opcode << 3 | flags] & 7 == 0
                self.assertEqual(curtail.is_allowed(opcode, flags), not rejected, (opcode, flags))

    def test_what_makes_no_sense_is_not_written(self):
        for command in [
            curtail.get(b""), curtail.get(b"k" * 251), curtail.get(b"k").marked(),
            Command("get", b"k", b"v"), Command("get", b"k", exptime=1), Command("flush", b"k"),
            Command("set", b"k", b"v", argument=1), Command("set", b"k", b"v", flags=8),
        ]:
            with self.assertRaises(Malformed):
                curtail.encode_request(command, SESSION, 0, 1, 0)


class Lossy:
    """A way to the server that loses, repeats and delays datagrams, by a seed."""

    def __init__(self, server, seed):
        self.random, self.server = random.Random(seed), server
        self.inner = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.inner.connect(server)
        self.outer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.outer.bind(("127.0.0.1", 0))
        self.client, self.ends = None, False
        for each in (self.inner, self.outer):
            each.settimeout(0.05)
        self.threads = [
            threading.Thread(target=self.relay, args=way) for way in ((True,), (False,))
        ]
        for thread in self.threads:
            thread.start()

    def relay(self, inwards):
        while not self.ends:
            try:
                if inwards:
                    datagram, self.client = self.outer.recvfrom(4096)
                else:
                    datagram = self.inner.recv(4096)
            except OSError:
                continue
            if self.random.random() < 0.1:
                continue
            for _ in range(self.random.choice([1, 1, 1, 2, 3])):
                if self.random.random() < 0.2:
                    delay = self.random.uniform(0, 0.01)
                    threading.Timer(delay, self.send, (inwards, datagram)).start()
                else:
                    self.send(inwards, datagram)

    def send(self, inwards, datagram):
        try:
            if inwards:
                self.inner.send(datagram)
            elif self.client:
                self.outer.sendto(datagram, self.client)
        except OSError:
            pass

    def close(self):
        self.ends = True
        for thread in self.threads:
            thread.join()
        time.sleep(0.02)
        self.inner.close()
        self.outer.close()


@unittest.skipUnless(SERVER, "CURTAIL_NATIVE names no server")
class AgainstAServer(unittest.TestCase):
    def setUp(self):
        host, port = SERVER.rsplit(":", 1)
        self.address = (host, int(port))
        self.session = Session(*self.address, patience=20)
        self.addCleanup(self.session.close)

    def test_every_command_does_what_it_says(self):
        session, key = self.session, b"python key"
        session.call(curtail.delete(key))
        self.assertEqual(session.get(key).status, "NotFound")
        self.assertEqual(session.set(key, b"value", item_flags=9).promise, "accepted")
        found = session.get(key)
        self.assertEqual((found.status, found.value, found.item_flags), ("Value", b"value", 9))
        self.assertEqual(session.call(curtail.add(key, b"x")).status, "NotStored")
        self.assertEqual(session.call(curtail.replace(key, b"b")).status, "Done")
        self.assertEqual(session.call(curtail.append(key, b"c")).status, "Done")
        session.write(curtail.prepend(key, b"a"))
        found = session.call(curtail.get_touch(key, 100))
        self.assertEqual(found.value, b"abc")
        self.assertEqual(session.call(curtail.touch(key, 100)).status, "Done")
        wrong = curtail.set_(key, b"x").if_version(found.version + 12345)
        self.assertEqual(session.call(wrong).status, "Exists")
        self.assertEqual(session.delete(key).status, "Done")
        self.assertEqual(session.delete(key).status, "NotFound")

    def test_a_version_is_compared(self):
        session, key = self.session, b"python version"
        self.assertEqual(session.call(curtail.set_(key, b"one")).status, "Done")
        version = session.get(key).version
        self.assertGreater(version, 0)
        change = curtail.set_(key, b"two").if_version(version)
        self.assertEqual(session.call(change).status, "Done")
        self.assertEqual(session.call(change).status, "Exists")
        self.assertEqual(session.get(key).value, b"two")

    def test_counters(self):
        session, key = self.session, b"python counter"
        session.set(key, b"10")
        self.assertEqual(session.increment(key, 5).number, 15)
        self.assertEqual(session.decrement(key, 20).number, 0)
        session.write(curtail.increment(key, 7))
        self.assertEqual(int(session.get(key).value), 7)
        session.set(key, b"text")
        self.assertEqual(session.increment(key).status, "NotANumber")

    def test_many_writes_are_under_way_at_a_time(self):
        names = [b"python many %d" % i for i in range(300)]
        outcomes = self.session.many(curtail.set_(name, name) for name in names)
        self.assertTrue(all(isinstance(each, curtail.Accepted) for each in outcomes), outcomes)
        reads = self.session.many(curtail.get(name) for name in names)
        self.assertEqual([read.value for read in reads], names)

    def test_large_values_go_over_the_stream(self):
        value = random.Random(1).randbytes(200_000)
        self.session.set(b"python large", value)
        self.assertEqual(self.session.get(b"python large").value, value)
        self.session.set(b"python large", b"small")
        self.assertEqual(self.session.get(b"python large").value, b"small")

    def test_increments_are_counted_once_on_a_bad_network(self):
        key = b"python once"
        self.session.set(key, b"0")
        network = Lossy(self.address, 7)
        self.addCleanup(network.close)
        with Session("127.0.0.1", network.outer.getsockname()[1], patience=30) as session:
            outcomes = session.many(curtail.increment(key) for _ in range(200))
            resent = session.resent
        self.assertTrue(all(isinstance(each, curtail.Accepted) for each in outcomes), outcomes)
        self.assertGreater(resent, 10)
        self.assertEqual(int(self.session.get(key).value), 200)

    def test_a_stranger_gets_no_more_than_it_sends(self):
        stranger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(stranger.close)
        stranger.connect(self.address)
        stranger.settimeout(0.2)
        for frame in packets("refused.txt").values():
            stranger.send(frame[:1400])
            try:
                answer = stranger.recv(4096)
            except TimeoutError:
                continue
            self.assertEqual(len(answer), curtail.HEADER_BYTES)
            self.assertLessEqual(len(answer), len(frame))
            self.assertEqual(Reply.decode(answer).kind, curtail.ERROR)

    def test_a_queue_tells_how_far_it_is(self):
        accepted = self.session.set(b"python far", b"x")
        self.session.get(b"python far")
        end = time.monotonic() + 20
        while self.session.ping(accepted.queue).number <= accepted.pos:
            self.assertLess(time.monotonic(), end)


class Granter:
    """A port that grants sessions, keeps the requests that come, and answers none of them. It ends
    the first stream with some bytes behind its first request, and answers on the second."""

    def __init__(self, last_words=b""):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port, self.requests = self.listener.getsockname()[1], []
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", self.port))
        self.threads = [
            threading.Thread(target=self.serve),
            threading.Thread(target=self.stream, args=(last_words,)),
        ]
        for thread in self.threads:
            thread.start()

    def stream(self, last_words):
        for is_first in (True, False):
            with self.listener.accept()[0] as stream, stream.makefile("rwb") as file:
                head = file.read(curtail.HEADER_BYTES)
                if len(head) < curtail.HEADER_BYTES:
                    return
                fields = curtail.HEAD.unpack(head)
                file.read(fields[5] + fields[13])
                self.requests.append(fields)
                reply = curtail.REPLY.pack(
                    curtail.MAGIC, curtail.VERSION, curtail.ACK, 3, fields[4], curtail.NO_QUEUE, 0,
                    fields[7], fields[8], 5, fields[10], fields[11], 32, 0, 0,
                )
                file.write(last_words if is_first else curtail._sealed(reply))
                file.flush()
                if last_words or not is_first:
                    file.read(1)

    def serve(self):
        while True:
            frame, sender = self.socket.recvfrom(4096)
            if not frame:
                return
            fields = curtail.HEAD.unpack_from(frame)
            opcode, stamp, nonce = fields[2], fields[11], fields[15]
            if opcode > 2:
                self.requests.append(fields)
                continue
            kind, slots, queues, last = (
                (curtail.COOKIE, 0, 0, 0) if opcode == 1
                else (curtail.GRANT, 64, 16, 1400 << 32 | 60_000)
            )
            reply = curtail.REPLY.pack(
                curtail.MAGIC, curtail.VERSION, kind, 0, slots, queues, 0, 0, 1, 5, 77, stamp, 32,
                nonce, last,
            )
            self.socket.sendto(curtail._sealed(reply), sender)

    def close(self):
        end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        end.sendto(b"", ("127.0.0.1", self.port))
        end.close()
        try:
            socket.create_connection(("127.0.0.1", self.port)).close()
            socket.create_connection(("127.0.0.1", self.port)).close()
        except OSError:
            pass
        for thread in self.threads:
            thread.join()
        self.socket.close()
        self.listener.close()


class Interrupted(unittest.TestCase):
    def setUp(self):
        self.granter = Granter()
        self.addCleanup(self.granter.close)
        self.session = Session("127.0.0.1", self.granter.port, patience=0.2)
        self.addCleanup(self.session.close)

    def test_a_number_that_was_sent_is_never_given_to_another_request(self):
        send = self.session._send

        def send_and_be_interrupted(frame):
            send(frame)
            raise KeyboardInterrupt

        self.session._send = send_and_be_interrupted
        with self.assertRaises(KeyboardInterrupt):
            self.session.set(b"first", b"value")
        self.session._send = send
        with self.assertRaises(curtail.Indeterminate):
            self.session.set(b"second", b"value")
        end = time.monotonic() + 5
        while len({fields[10] for fields in self.granter.requests}) < 2:
            self.assertLess(time.monotonic(), end, "both requests have one number")
            time.sleep(0.01)

    def test_a_field_out_of_range_fails_its_own_request(self):
        wrong = [
            curtail.set_(b"key", b"value", exptime=-1), curtail.increment(b"key", 1 << 64),
            curtail.set_(b"key", b"value", item_flags=1 << 32), curtail.set_(b"key", b"v", 0.5),
        ]
        outcomes = self.session.many([curtail.set_(b"good", b"value")] + wrong)
        self.assertIsInstance(outcomes[0], curtail.Indeterminate)
        for outcome in outcomes[1:]:
            self.assertIsInstance(outcome, Malformed)


class BrokenStream(unittest.TestCase):
    def set_on_a_stream_that_ends_with(self, last_words):
        granter = Granter(last_words)
        self.addCleanup(granter.close)
        with Session("127.0.0.1", granter.port, patience=20) as session:
            self.assertEqual(session.set(b"key", bytes(100_000)).promise, "executed")
        one, two = granter.requests[:2]
        self.assertEqual(one[10], two[10], "the same request, sent again")

    def test_a_request_is_sent_again_over_another_stream(self):
        self.set_on_a_stream_that_ends_with(b"")

    def test_a_stream_is_left_that_carries_no_replies(self):
        self.set_on_a_stream_that_ends_with(b"x" * curtail.HEADER_BYTES)


class ManyFiles(unittest.TestCase):
    def test_a_program_with_a_thousand_open_files_can_use_it(self):
        try:
            import resource
        except ImportError:
            self.skipTest("no limit of open files here")
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = 1200
        if limits[1] != resource.RLIM_INFINITY and limits[1] < wanted:
            self.skipTest("the hard limit of open files is below %d" % wanted)
        granter = Granter()
        self.addCleanup(granter.close)
        if limits[0] != resource.RLIM_INFINITY and limits[0] < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, limits[1]))
            self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        files = [os.open(os.devnull, os.O_RDONLY)]
        while files[-1] < 1024:
            files.append(os.dup(files[0]))
        try:
            with Session("127.0.0.1", granter.port, patience=20) as session:
                self.assertGreater(session._socket.fileno(), 1024)
                # The first stream ends; the answer comes over the second.
                self.assertEqual(session.set(b"key", bytes(100_000)).promise, "executed")
        finally:
            for file in files:
                os.close(file)


class Nobody(unittest.TestCase):
    def test_a_silent_port_is_an_error_in_time(self):
        deaf = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(deaf.close)
        deaf.bind(("127.0.0.1", 0))
        with self.assertRaises(curtail.NoSession):
            Session("127.0.0.1", deaf.getsockname()[1], patience=0.1)


if __name__ == "__main__":
    unittest.main()
