// What Node's `memcached` sees of a server: one line for each thing it did.
'use strict';

const Memcached = require('memcached');

const client = new Memcached(`127.0.0.1:${process.argv[2]}`, { retries: 0, timeout: 10000 });
let step = 0;

function shown(value) {
  if (value instanceof Error) return `error ${value.message}`;
  if (typeof value === 'string' && value.length > 40) return `${value.length} bytes`;
  return JSON.stringify(value);
}

function call(method, ...words) {
  return new Promise((resolve) => {
    client[method](...words, (error, data) => {
      resolve(error ? new Error(error.message || String(error)) : data);
    });
  });
}

async function say(what, ...calls) {
  const values = [];
  for (const [method, ...words] of calls) values.push(shown(await call(method, ...words)));
  step += 1;
  console.log(`memcached.js ${String(step).padStart(2, '0')} ${what}: ${values.join(' ')}`);
}

async function main() {
  const large = 'large value '.repeat(20000);
  await say('flush', ['flush']);
  await say('get of nothing', ['get', 'none']);
  await say('set', ['set', 'a', 'one', 100], ['get', 'a']);
  await say('add', ['add', 'a', 'x', 100], ['add', 'b', 'two', 100]);
  await say('replace', ['replace', 'a', 'three', 100], ['replace', 'none', 'x', 100]);
  await say('append', ['append', 'a', '+'], ['prepend', 'a', '-'], ['get', 'a']);
  await say('get of many', ['getMulti', ['a', 'b', 'none']]);
  await say('touch', ['touch', 'a', 100], ['touch', 'none', 100]);
  const found = await call('gets', 'b');
  await say('cas', ['cas', 'b', 'new', found.cas, 100], ['cas', 'b', 'late', found.cas, 100]);
  await say('after cas', ['get', 'b']);
  await say('delete', ['del', 'a'], ['del', 'a']);
  await say('count', ['set', 'n', 10, 100], ['incr', 'n', 5], ['decr', 'n', 20]);
  await say('count of nothing', ['incr', 'none', 1]);
  await say('structure', ['set', 's', { list: [1, 2, 3] }, 100], ['get', 's']);
  const bytes = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));
  await call('set', 'bytes', bytes, 100);
  const same = Buffer.compare(await call('get', 'bytes'), bytes) === 0;
  console.log(`memcached.js binary: ${same}`);
  await say('empty', ['set', 'empty', '', 100], ['get', 'empty']);
  await say('large', ['set', 'large', large, 100], ['get', 'large']);
  await say('expiry', ['set', 'brief', 'x', 1], ['get', 'brief']);
  const wanted = ['listed1', 'listed2', 'listed3'];
  for (const key of wanted) await call('set', key, 'x', 100);
  await new Promise((resolve) => setTimeout(resolve, 3000));
  await say('expired', ['get', 'brief']);
  const items = await call('items');
  const classes = Object.keys(items[0]).filter((name) => name !== 'server');
  const keys = [];
  for (const number of classes) {
    const listed = await call('cachedump', items[0].server, Number(number), 0);
    keys.push(...[].concat(listed || []).map((entry) => entry.key));
  }
  const listed = keys.filter((key) => wanted.includes(key));
  console.log(`memcached.js keys: ${listed.sort().join(' ')}`);
  const version = await call('version');
  console.log(`memcached.js version: ${version.length === 1}`);
  client.end();
}

main();
