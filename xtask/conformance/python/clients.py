"""What Python's pymemcache sees of a server: one line for each thing it did."""

import sys
import time

from pymemcache.client.base import Client

client = Client(("127.0.0.1", int(sys.argv[1])), timeout=10, default_noreply=False)
step = 0


def say(what, *calls):
    global step
    step += 1
    values = []
    for method, *words in calls:
        try:
            value = getattr(client, method)(*words)
            text = repr(value)
        except Exception as error:
            text = f"{type(error).__name__}({error})"
        values.append(text if len(text) < 300 else f"{len(text)} characters")
    print(f"pymemcache {step:02} {what}: {' '.join(values)}")


say("flush", ("flush_all",))
say("rows of nothing", ("stats", "items"), ("stats", "cachedump", "1", "0"))
say("get of nothing", ("get", "none"))
say("set", ("set", "a", "one"), ("get", "a"))
say("add", ("add", "a", "x"), ("add", "b", "two"))
say("replace", ("replace", "a", "three"), ("replace", "none", "x"))
say("append", ("append", "a", "+"), ("prepend", "a", "-"), ("get", "a"))
say("many", ("set_many", {"c": "see", "d": "4"}), ("get_many", ["a", "b", "c", "d", "none"]))
say("delete", ("delete", "a"), ("delete", "a"), ("delete_many", ["c", "d", "none"]))
say("touch", ("touch", "b", 100), ("touch", "none", 100))
say("get and touch", ("gat", "b", 100), ("gat", "none", 100))
version = client.gets("b")[1]
say("cas", ("cas", "b", "new", version), ("cas", "b", "late", version), ("get", "b"))
say("count", ("set", "n", "10"), ("incr", "n", 5), ("decr", "n", 20), ("incr", "none", 1))
say("count of a text", ("incr", "b", 1))
say("binary", ("set", "bytes", bytes(range(256))), ("get", "bytes"))
say("empty", ("set", "empty", ""), ("get", "empty"))
say("large", ("set", "large", b"large value " * 20_000), ("get", "large"))
say("too large", ("set", "large", b"x" * (3 << 20)), ("get", "large"))
say("brief", ("set", "brief", "x", 1), ("get", "brief"))
time.sleep(3)
say("expired", ("get", "brief"))
stats = client.stats()
names = [b"pid", b"uptime", b"version", b"curr_items", b"bytes", b"get_hits", b"evictions"]
print("pymemcache statistics:", *(name for name in names if name in stats))
say("quit", ("quit",))
