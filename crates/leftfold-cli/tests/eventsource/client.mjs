// Follows an event stream with npm's eventsource, through a proxy that cuts the connection after
// every message.
//
// Arguments: the daemon's port, the path, and the number of messages to read. Prints the messages
// as a JSON array.

import net from "node:net";
import { EventSource } from "eventsource";

const [port, path, count] = process.argv.slice(2);

// Forwards a response up to the end of its second message (the first is a heartbeat), and ends it
// there.
const proxy = net.createServer((client) => {
  const daemon = net.connect(Number(port), "127.0.0.1");
  let seen = "";
  client.on("data", (data) => daemon.write(data));
  daemon.on("data", (data) => {
    const before = seen.length;
    seen += data.toString("latin1");
    const first = seen.indexOf("\n\n");
    const second = first < 0 ? -1 : seen.indexOf("\n\n", first + 2);
    if (second < 0) {
      client.write(data);
    } else {
      client.end(data.subarray(0, second + 2 - before));
      daemon.destroy();
    }
  });
  for (const one of [client, daemon]) one.on("error", () => {});
  client.on("close", () => daemon.destroy());
  daemon.on("close", () => client.end());
});

proxy.listen(0, "127.0.0.1", () => {
  const source = new EventSource(`http://127.0.0.1:${proxy.address().port}${path}`);
  const messages = [];
  for (const kind of ["changed", "cart-opened", "item-added"]) {
    source.addEventListener(kind, (event) => {
      messages.push({ id: event.lastEventId, data: JSON.parse(event.data) });
      if (messages.length === Number(count)) {
        console.log(JSON.stringify(messages));
        process.exit(0);
      }
    });
  }
});
