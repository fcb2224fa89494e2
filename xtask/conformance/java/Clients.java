// What Java's two memcached clients see of a server: one line for each thing they did.

import java.net.InetSocketAddress;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import net.rubyeye.xmemcached.KeyIterator;
import net.rubyeye.xmemcached.XMemcachedClient;
import net.spy.memcached.CASResponse;
import net.spy.memcached.CASValue;
import net.spy.memcached.MemcachedClient;

public final class Clients {
    private static final String LARGE = "large value ".repeat(20_000);

    // Keys that are listed.
    private static final List<String> LISTED = List.of("listed1", "listed2", "listed3");

    private final String name;
    private int step;

    private Clients(String name) {
        this.name = name;
    }

    public static void main(String[] arguments) throws Exception {
        InetSocketAddress address =
                new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0]));
        new Clients("spymemcached").spy(address);
        new Clients("xmemcached").x(address);
        System.exit(0);
    }

    private void say(String what, Callable<?>... calls) {
        StringBuilder text = new StringBuilder();
        for (Callable<?> call : calls) {
            try {
                text.append(' ').append(shown(call.call()));
            } catch (Exception error) {
                Throwable cause = error.getCause() == null ? error : error.getCause();
                text.append(' ').append(cause.getClass().getSimpleName());
            }
        }
        System.out.printf("%s %02d %s:%s%n", name, ++step, what, text);
    }

    private static String shown(Object value) {
        if (value instanceof byte[]) {
            return ((byte[]) value).length + " bytes";
        }
        String text = String.valueOf(value);
        return text.length() > 60 ? text.length() + " characters" : "'" + text + "'";
    }

    private static byte[] everyByte() {
        byte[] bytes = new byte[256];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) i;
        }
        return bytes;
    }

    private void spy(InetSocketAddress address) throws Exception {
        MemcachedClient client = new MemcachedClient(address);
        say("flush", () -> client.flush().get());
        say("rows of nothing", () -> client.getStats("items").get(address));
        say("get of nothing", () -> client.get("none"));
        say("set", () -> client.set("a", 100, "one").get(), () -> client.get("a"));
        say("add", () -> client.add("a", 100, "x").get(), () -> client.add("b", 100, "two").get());
        say("replace", () -> client.replace("a", 100, "three").get(),
                () -> client.replace("none", 100, "x").get());
        say("append", () -> client.append("a", "+").get(), () -> client.prepend("a", "-").get(),
                () -> client.get("a"));
        say("get of many", () -> new TreeMap<>(client.getBulk("a", "b", "none")));
        say("touch", () -> client.touch("a", 100).get(), () -> client.touch("none", 100).get());
        CASValue<Object> found = client.gets("b");
        say("cas", () -> client.cas("b", found.getCas(), "new"),
                () -> client.cas("b", found.getCas(), "late") == CASResponse.EXISTS,
                () -> client.get("b"));
        say("delete", () -> client.delete("a").get(), () -> client.delete("a").get());
        say("count", () -> client.set("n", 100, "10").get(), () -> client.incr("n", 5),
                () -> client.decr("n", 20));
        say("count of nothing", () -> client.incr("none", 1), () -> client.incr("m", 1, 40));
        say("binary", () -> client.set("bytes", 100, everyByte()).get(),
                () -> Arrays.equals((byte[]) client.get("bytes"), everyByte()));
        say("empty", () -> client.set("empty", 100, "").get(), () -> client.get("empty"));
        say("large", () -> client.set("large", 100, LARGE).get(), () -> client.get("large"));
        say("structure", () -> client.set("s", 100, List.of(1, 2)).get(), () -> client.get("s"));
        say("brief", () -> client.set("brief", 1, "x").get(), () -> client.get("brief"));
        for (String key : LISTED) {
            client.set(key, 100, "x").get();
        }
        Thread.sleep(3000);
        say("expired", () -> client.get("brief"));
        Map<String, String> items = client.getStats("items").get(address);
        TreeSet<String> keys = new TreeSet<>();
        for (String row : items.keySet()) {
            String[] words = row.split(":");
            if (words[2].equals("number")) {
                Map<String, String> listed =
                        client.getStats("cachedump " + words[1] + " 0").get(address);
                keys.addAll(listed.keySet());
            }
        }
        keys.retainAll(LISTED);
        System.out.println("spymemcached keys: " + keys);
        say("versions", () -> client.getVersions().size());
        client.shutdown();
    }

    private void x(InetSocketAddress address) throws Exception {
        XMemcachedClient client = new XMemcachedClient(address);
        client.setOpTimeout(10_000);
        client.flushAll();
        say("get of nothing", () -> client.get("none"));
        say("set", () -> client.set("a", 100, "one"), () -> client.get("a"));
        say("add", () -> client.add("a", 100, "x"), () -> client.add("b", 100, "two"));
        say("replace", () -> client.replace("a", 100, "three"),
                () -> client.replace("none", 100, "x"));
        say("append", () -> client.append("a", "+"), () -> client.prepend("a", "-"),
                () -> client.get("a"));
        say("get of many", () -> new TreeMap<>(client.get(List.of("a", "b", "none"))));
        say("touch", () -> client.touch("a", 100), () -> client.touch("none", 100));
        long version = client.gets("b").getCas();
        say("cas", () -> client.cas("b", 100, "new", version),
                () -> client.cas("b", 100, "late", version), () -> client.get("b"));
        say("delete", () -> client.delete("a"), () -> client.delete("a"));
        say("count", () -> client.incr("n", 5, 10), () -> client.incr("n", 5),
                () -> client.decr("n", 20));
        say("binary", () -> client.set("bytes", 100, everyByte()),
                () -> Arrays.equals((byte[]) client.get("bytes"), everyByte()));
        say("empty", () -> client.set("empty", 100, ""), () -> client.get("empty"));
        say("large", () -> client.set("large", 100, LARGE), () -> client.get("large"));
        say("brief", () -> client.set("brief", 1, "x"), () -> client.get("brief"));
        for (String key : LISTED) {
            client.set(key, 100, "x");
        }
        Thread.sleep(3000);
        say("expired", () -> client.get("brief"));
        TreeSet<String> keys = new TreeSet<>();
        KeyIterator iterator = client.getKeyIterator(address);
        while (iterator.hasNext()) {
            keys.add(iterator.next());
        }
        keys.retainAll(LISTED);
        System.out.println("xmemcached keys: " + keys);
        say("statistics", () -> client.getStats().get(address).containsKey("curr_items"));
        client.flushAll();
        say("after a flush", () -> client.get("b"));
        client.shutdown();
    }
}
