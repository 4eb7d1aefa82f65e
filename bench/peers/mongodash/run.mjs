// Runs mongodash's reactive tasks on a database with its best settings: concurrency 50, no
// debounce, no messages. Prints one JSON value: tasks per second, and milliseconds from a write to
// its handler.
import mongodash from "mongodash";
import { MongoClient } from "mongodb";

const [url, documents, latencies, perSecond] = [process.argv[2], ...process.argv.slice(3).map(Number)];
const client = await MongoClient.connect(url);
const orders = client.db().collection("orders");

let handled = 0;
let wake = () => {};
const times = new Map();
await mongodash.init({
  mongoClient: client,
  onInfo: () => {},
  reactiveTaskConcurrency: 50,
  monitoring: { enabled: false },
});
await mongodash.reactiveTask({
  task: "bench",
  collection: "orders",
  debounce: 0,
  handler: async (context) => {
    const order = await context.getDocument();
    times.set(order.number, performance.now());
    handled += 1;
    wake();
  },
});
await mongodash.startReactiveTasks();

async function handledAre(count) {
  while (handled < count) {
    await new Promise((resolve) => (wake = resolve));
  }
}

async function write(from, count) {
  for (let first = from; first < from + count; first += 1000) {
    const numbers = Array.from({ length: Math.min(1000, from + count - first) }, (_, at) => first + at);
    await orders.insertMany(numbers.map((number) => ({ _id: `o${String(number).padStart(7, "0")}`, number })));
  }
}

// Once the first document is handled, mongodash's change stream is running.
await write(0, 1);
await handledAre(1);

const begun = performance.now();
await write(1, documents);
await handledAre(1 + documents);
const seconds = (performance.now() - begun) / 1000;

const first = 1 + documents;
const written = [];
for (let number = first; number < first + latencies; number += 1) {
  written.push(performance.now());
  await write(number, 1);
  await new Promise((resolve) => setTimeout(resolve, 1000 / perSecond));
}
await handledAre(first + latencies);
const took = written.map((at, index) => times.get(first + index) - at);

console.log(JSON.stringify({ tasksPerSecond: documents / seconds, latencies: took }));
process.exit(0);
