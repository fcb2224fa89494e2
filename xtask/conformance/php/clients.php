<?php
// What PHP's Memcached extension (libmemcached) sees of a server: one line for each thing it did.

$client = new Memcached();
$client->setOption(Memcached::OPT_BINARY_PROTOCOL, false);
$client->addServer('127.0.0.1', (int) $argv[1]);
$step = 0;

function shown($value): string
{
    if (is_bool($value)) {
        return $value ? 'true' : 'false';
    }
    if (is_array($value)) {
        ksort($value);
        return json_encode($value);
    }
    $text = (string) $value;
    return strlen($text) > 40 ? strlen($text) . ' bytes' : "'$text'";
}

function say(string $what, ...$values): void
{
    global $client, $step;
    $code = $client->getResultCode();
    $step += 1;
    printf("php %02d %s: %s, result %d\n", $step, $what, implode(' ', array_map('shown', $values)), $code);
}

$binary = implode('', array_map('chr', range(0, 255)));
$large = str_repeat('large value ', 20000);
$client->setOption(Memcached::OPT_COMPRESSION, false);
say('flush', $client->flush());
say('get of nothing', $client->get('none'));
say('set', $client->set('a', 'one'), $client->get('a'));
say('add', $client->add('a', 'x'), $client->add('b', 'two'));
say('replace', $client->replace('a', 'three'), $client->replace('none', 'x'));
say('set of many', $client->setMulti(['c' => 'see', 'd' => 4]));
say('get of many', $client->getMulti(['a', 'b', 'c', 'd', 'none']));
say('append', $client->append('a', '+'), $client->prepend('a', '-'), $client->get('a'));
say('append to nothing', $client->append('none', 'x'));
say('delete', $client->delete('a'), $client->delete('a'));
say('delete of many', count($client->deleteMulti(['c', 'd', 'none'])));
say('count', $client->set('n', 10), $client->increment('n', 5), $client->decrement('n', 20));
say('count of nothing', $client->increment('none'));
say('count of a text', $client->increment('b'));
$found = $client->get('b', null, Memcached::GET_EXTENDED);
say('cas', $client->cas($found['cas'], 'b', 'new'), $client->cas($found['cas'], 'b', 'late'));
say('after cas', $client->get('b'));
say('touch', $client->touch('b', 100), $client->touch('none', 100));
say('binary', $client->set('bytes', $binary), $client->get('bytes') === $binary);
say('empty', $client->set('empty', ''), $client->get('empty'));
say('large', $client->set('large', $large), $client->get('large') === $large);
say('too large', $client->set('large', str_repeat('x', 3 << 20)));
say('after too large', $client->get('large'));
say('structure', $client->set('s', ['list' => [1, 2, 3]]), $client->get('s'));
say('bad key', $client->set("a key", 'x'));
say('expiry', $client->set('brief', 'x', 1), $client->get('brief'));
foreach (['listed1', 'listed2', 'listed3'] as $key) {
    $client->set($key, 'x');
}
sleep(3);
say('expired', $client->get('brief'));
$client->getDelayed(['b', 'n', 'none'], true);
$fetched = $client->fetchAll();
say('delayed', count($fetched));
$stats = array_values($client->getStats())[0];
$names = ['pid', 'uptime', 'version', 'curr_items', 'bytes', 'cmd_get', 'get_hits', 'evictions'];
say('stats', array_values(array_intersect($names, array_keys($stats))));
$keys = $client->getAllKeys();
say('all keys', count(array_intersect($keys ?: [], ['listed1', 'listed2', 'listed3'])));
say('version', count($client->getVersion()));
say('quit', $client->quit());
