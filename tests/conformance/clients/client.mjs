// @modelcontextprotocol/client 2.x: lists the tools, makes the calls of argv[2] (see test_clients.py).
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const { url, token, program, calls } = JSON.parse(process.argv[2]);
const transport = url
  ? new StreamableHTTPClientTransport(new URL(url), {
      requestInit: { headers: { Authorization: `Bearer ${token}` } },
    })
  : new StdioClientTransport(program);
const client = new Client({ name: "client", version: "1" });
await client.connect(transport);
const { tools } = await client.listTools();
const answers = [];
for (const each of calls) {
  answers.push(await client.callTool({ name: "search_knowledge", arguments: each }));
}
await client.close();
console.log(JSON.stringify({ tools: tools.map((tool) => tool.name), answers }));
