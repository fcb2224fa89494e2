// What Go's gomemcache sees of a server: one line for each thing it did.
package main

import (
	"bytes"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

var step int

func say(what string, values ...any) {
	step++
	words := make([]string, len(values))
	for i, value := range values {
		words[i] = shown(value)
	}
	fmt.Printf("gomemcache %02d %s: %s\n", step, what, strings.Join(words, " "))
}

func shown(value any) string {
	switch value := value.(type) {
	case nil:
		return "ok"
	case *memcache.Item:
		if value == nil {
			return "nothing"
		}
		if len(value.Value) > 40 {
			return fmt.Sprintf("%d bytes", len(value.Value))
		}
		return fmt.Sprintf("%q with flags %d", value.Value, value.Flags)
	default:
		return fmt.Sprint(value)
	}
}

func item(key, value string) *memcache.Item {
	return &memcache.Item{Key: key, Value: []byte(value), Flags: 7}
}

func main() {
	client := memcache.New("127.0.0.1:" + os.Args[1])
	client.Timeout = 10 * time.Second
	get := func(key string) *memcache.Item {
		found, _ := client.Get(key)
		return found
	}
	say("ping", client.Ping())
	say("flush", client.FlushAll())
	_, err := client.Get("none")
	say("get of nothing", err)
	say("set", client.Set(item("a", "one")), get("a"))
	say("add", client.Add(item("a", "x")), client.Add(item("b", "two")))
	say("replace", client.Replace(item("a", "three")), client.Replace(item("none", "x")))
	say("append", client.Append(item("a", "+")), client.Prepend(item("a", "-")), get("a"))
	many, err := client.GetMulti([]string{"a", "b", "none"})
	keys := []string{}
	for key := range many {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	say("get of many", err, keys)
	say("touch", client.Touch("a", 100), client.Touch("none", 100))
	found, _ := client.Get("b")
	found.Value = []byte("new")
	say("cas", client.CompareAndSwap(found), client.CompareAndSwap(found), get("b"))
	say("delete", client.Delete("a"), client.Delete("a"))
	client.Set(item("n", "10"))
	counted, err := client.Increment("n", 5)
	say("increment", counted, err)
	counted, err = client.Decrement("n", 20)
	say("decrement", counted, err)
	_, err = client.Increment("none", 1)
	say("count of nothing", err)
	_, err = client.Increment("b", 1)
	say("count of a text", err)
	binary := make([]byte, 256)
	for i := range binary {
		binary[i] = byte(i)
	}
	err = client.Set(&memcache.Item{Key: "bytes", Value: binary})
	say("binary", err, bytes.Equal(get("bytes").Value, binary))
	say("empty", client.Set(item("empty", "")), get("empty"))
	say("large", client.Set(item("large", strings.Repeat("large value ", 20000))), get("large"))
	say("too large", client.Set(item("large", strings.Repeat("x", 3<<20))) != nil, get("large"))
	say("bad key", client.Set(item("a key", "x")))
	brief := item("brief", "x")
	brief.Expiration = 1
	say("expiry", client.Set(brief), get("brief"))
	time.Sleep(3 * time.Second)
	say("expired", get("brief"))
	say("delete all", client.DeleteAll(), get("b"))
}
