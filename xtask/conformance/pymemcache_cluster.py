"""pymemcache against a cluster, unchanged: its Client at one node, its HashClient over all of them
(which spreads keys over nodes by its own hash, not by where they are), and a Client at a random node
for each request. What one writes the others read. Usage: PORT PORT PORT; a line for each check."""

import random
import sys

from pymemcache.client.base import Client, PooledClient
from pymemcache.client.hash import HashClient

KEYS = 200
FAILED = []


def check(name, what):
    try:
        what()
    except Exception as error:  # a check that raises has failed, whatever it raises
        FAILED.append(name)
        print(f"FAILED {name}: {error!r}")
    else:
        print(f"ok {name}")


class AnyNode:
    """Sends each request to a node drawn at random."""

    def __init__(self, clients, seed):
        self.clients = clients
        self.draw = random.Random(seed)

    def __getattr__(self, name):
        return getattr(self.draw.choice(self.clients), name)


def single_keys(client, others, prefix):
    """Every command on one key, each seen by the others."""
    key = prefix + "one"
    assert client.set(key, b"1", noreply=False)
    for other in others:
        assert other.get(key) == b"1", key
    assert client.add(key, b"2", noreply=False) is False
    assert client.replace(key, b"5", noreply=False)
    assert client.append(key, b"0", noreply=False)
    assert client.prepend(key, b"1", noreply=False)
    assert all(other.get(key) == b"150" for other in others)
    assert client.incr(key, 7) == 157 and client.decr(key, 57) == 100
    value, token = client.gets(key)
    assert value == b"100"
    assert client.cas(key, b"cas", token, noreply=False) is True
    assert client.cas(key, b"late", token, noreply=False) is False
    assert client.touch(key, 100, noreply=False)
    assert all(other.get(key) == b"cas" for other in others)
    assert client.delete(key, noreply=False)
    assert all(other.get(key) is None for other in others)


def many_keys(client, others, prefix):
    """Many at a time: each client takes them apart, or not, as it does with any server."""
    items = {f"{prefix}{number}": b"v%d" % number for number in range(KEYS)}
    assert not client.set_many(items, noreply=False)
    for other in [client, *others]:
        assert other.get_many(list(items)) == items
    assert client.delete_many(list(items), noreply=False)
    for other in others:
        assert other.get_many(list(items)) == {}


def large_values(client, others, prefix):
    value = bytes(range(256)) * 2000
    for number in range(8):
        assert client.set(f"{prefix}large{number}", value, noreply=False)
    for number in range(8):
        assert all(other.get(f"{prefix}large{number}") == value for other in others)


def without_replies(client, others, prefix):
    """What is sent without asking for a reply is there for whoever asks on that connection next."""
    for number in range(KEYS):
        client.set(f"{prefix}quiet{number}", b"x", noreply=True)
    for number in range(KEYS):
        assert client.get(f"{prefix}quiet{number}") == b"x", number


def main():
    addresses = [("127.0.0.1", int(port)) for port in sys.argv[1:]]
    ones = [Client(address, timeout=20) for address in addresses]
    spread = HashClient(addresses, timeout=20, connect_timeout=20)
    pooled = HashClient(addresses, use_pooling=True, timeout=20, connect_timeout=20)
    anywhere = AnyNode([PooledClient(address, timeout=20) for address in addresses], seed=1)
    kinds = {"one": ones[0], "all": spread, "pooled": pooled, "any": anywhere}
    for name, client in kinds.items():
        others = [*ones, spread]
        for what in (single_keys, many_keys, large_values):
            check(f"{name} {what.__name__}", lambda: what(client, others, f"{name}-"))
        if name != "any":
            check(f"{name} without_replies", lambda: without_replies(client, others, f"{name}-"))
    check("flush", lambda: flush(ones))
    sys.exit(1 if FAILED else 0)


def flush(ones):
    ones[0].set("kept", b"x", noreply=False)
    assert ones[1].flush_all(noreply=False)
    assert all(client.get("kept") is None for client in ones)


main()
