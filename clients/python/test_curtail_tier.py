"""Tests of the pure-Python client of a cache tier: the golden datagrams, and a tier of processes.

    python3 clients/python/test_curtail_tier.py                              datagrams alone
    CURTAIL=target/debug/curtail python3 clients/python/test_curtail_tier.py
"""

import os
import pathlib
import re
import socket
import subprocess
import tempfile
import time
import unittest

import curtail_tier
from curtail import Indeterminate, Malformed, Refused, TimedOut
from curtail_tier import TierMap, TierSession, decode, encode, xxh3

DATAGRAMS = pathlib.Path(__file__).parents[2] / "crates" / "codec" / "tests" / "tiered"
CURTAIL = os.environ.get("CURTAIL")

# Of `xxhash`, the reference: a key of so many bytes 0, 1, 2, ...
HASHES = {
    0: 0x2D06800538D394C2, 1: 0xC44BDFF4074EECDB, 3: 0x5F4299FC161C9CBB,
    4: 0x60DAB036A58211F2, 8: 0x3A1C2D7C85AF88F8, 9: 0xE9612598145BB9DC,
    16: 0x8355E3A6F61770DB, 17: 0x9EF341A99DE37328, 32: 0x3523581FE96E4C05,
    33: 0xE68C56BA88991E58, 64: 0x6187EB9089B0ED55, 65: 0x6928C76CE90422D0,
    96: 0x278A3E12EA046DFB, 97: 0xE7220282DC4E14F4, 128: 0x85C6174C7FF4C46B,
    129: 0xEC7642B431BA3E5A, 200: 0xF42A8864FEAF0703, 240: 0x375A384D957FE865,
    241: 0x02E8CD95421C6D02, 250: 0x3A07E271A5DAB0A3,
}


def datagrams():
    """The datagrams of datagrams.txt, by name."""
    found, label = {}, None
    for line in (DATAGRAMS / "datagrams.txt").read_text().splitlines():
        if line.startswith("= "):
            label = line[2:]
            found[label] = b""
        elif re.match(r"\s*\d+  ", line):
            found[label] += bytes.fromhex(line.split(None, 1)[1])
    return found


class Datagrams(unittest.TestCase):
    def test_the_hash_is_the_reference_one(self):
        for size, expected in HASHES.items():
            self.assertEqual(xxh3(bytes(range(size))), expected, size)
        self.assertEqual(len({xxh3(bytes(size)) for size in range(1025)}), 1025)

    def test_requests_and_replies_are_the_golden_ones(self):
        golden = datagrams()
        for name in ("get", "get after a miss", "get again", "put", "delete", "reply"):
            head, key, value = decode(golden[name])
            self.assertEqual(encode(head, key, value), golden[name], name)
        head, key, value = decode(golden["put"])
        self.assertEqual((key, value), (b"key", b"value"))
        self.assertEqual(head["exptime"], 1_800_000_000)
        self.assertEqual(head["opcode"], curtail_tier.OPCODES["put"])
        # The tag and the back end that the Rust test gives it.
        address = curtail_tier.address_word(curtail_tier.BACK_END, 3, 0x1122334455)
        self.assertEqual(head["address"], address)

    def test_damaged_datagrams_are_refused(self):
        whole = datagrams()["reply"]
        for at in range(len(whole)):
            damaged = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:]
            with self.assertRaises(Malformed):
                decode(damaged)
            with self.assertRaises(Malformed):
                decode(whole[:at])

    def test_what_fits_no_datagram_is_refused(self):
        for key, value in ((b"", b""), (b"k" * 251, b""), (b"k", b"v" * 1348)):
            with self.assertRaises(Malformed):
                encode({}, key, value)
        self.assertEqual(len(encode({}, b"k", b"v" * 1347)), 1452)

    def test_a_further_back_end_takes_its_share_only(self):
        before, after = TierMap(1, 4), TierMap(2, 5)
        routes = [xxh3(b"%d" % number) for number in range(2000)]
        moved = [route for route in routes if before.owner(route) != after.owner(route)]
        self.assertTrue(all(after.owner(route) == 4 for route in moved))
        self.assertTrue(300 < len(moved) < 500, len(moved))


@unittest.skipUnless(CURTAIL, "no binary is named")
class Tier(unittest.TestCase):
    """A tier of processes that the class starts: a switch, a cache node, three back ends."""

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        words = ["cluster", "up", "--tiered", "--back-ends", "3", "--report-ms", "200"]
        words += ["--port", str(min(port, 65000)), "--dir", cls.directory.name]
        cls.process = subprocess.Popen(
            [CURTAIL, *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        cls.file = pathlib.Path(cls.directory.name) / "tier.toml"
        until = time.monotonic() + 30
        while time.monotonic() < until:
            try:
                with TierSession(cls.file) as tier:
                    tier.put(b"first", b"")
                    return
            except (OSError, Indeterminate, Refused):
                time.sleep(0.1)
        raise AssertionError("the tier does not start")

    @classmethod
    def tearDownClass(cls):
        cls.process.send_signal(2)
        cls.process.wait(30)
        cls.directory.cleanup()

    def test_items_come_and_go(self):
        with TierSession(self.file) as tier:
            self.assertIsNone(tier.get(b"none"))
            for number in range(60):
                key, value = b"key %d" % number, b"%d" % number * number
                version = tier.put(key, value, item_flags=number)
                found = tier.get(key)
                self.assertEqual(found[:3], (value, number, version))
            self.assertTrue(tier.delete(b"key 7"))
            self.assertFalse(tier.delete(b"key 7"))
            self.assertIsNone(tier.get(b"key 7"))
            tier.put(b"ended", b"x", expiry=int(time.time()) - 5)
            self.assertIsNone(tier.get(b"ended"))
            tier.put(b"ends", b"x", expiry=int(time.time()) + 100)
            self.assertEqual(tier.get(b"ends").value, b"x")
            long = b"k" * 250
            tier.put(long, b"v" * 1098)
            self.assertEqual(tier.get(long).value, b"v" * 1098)

    def test_the_cache_answers_for_a_hot_key_and_shows_every_write(self):
        with TierSession(self.file) as tier:
            tier.put(b"hot", b"0")
            until = time.monotonic() + 20
            while not tier.get(b"hot").from_cache:
                self.assertLess(time.monotonic(), until, "the key is never cached")
            cached = 0
            for number in range(200):
                tier.put(b"hot", b"%d" % number)
                found = tier.get(b"hot")
                self.assertEqual(found.value, b"%d" % number)
                cached += found.from_cache
            self.assertGreater(cached, 100)

    def test_an_unknown_map_is_told(self):
        with TierSession(self.file) as tier:
            tier.map = TierMap(tier.map.epoch, tier.map.back_ends - 1)
            with self.assertRaises(curtail_tier.WrongPartition):
                for number in range(100):
                    tier.get(b"key %d" % number)

    def test_nobody_there_is_told(self):
        text = re.sub(r'forwarder = "[^"]*"', 'forwarder = "127.0.0.1:1"', self.file.read_text())
        other = self.file.with_name("nobody.toml")
        other.write_text(text)
        with TierSession(other) as tier:
            with self.assertRaises(TimedOut):
                tier.get(b"key")
            with self.assertRaises(Indeterminate):
                tier.put(b"key", b"value")
        other.unlink()


if __name__ == "__main__":
    unittest.main()
