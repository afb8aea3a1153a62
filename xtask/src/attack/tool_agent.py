"""An agent CLI that speaks ACP and calls the client's first tool through the MCP server that it is given.

It writes what it knows about the server to `port.json` in its folder, so that other processes can attack it, and the last
result to `result`.
"""

import asyncio
import json
import sys
from urllib.parse import urlsplit

CONCURRENT_CALLS = 900
MANY_CALLS = 10_000
# Calls that wait for results do not end until the client answers.
MAX_WAITING_CALLS = 300


def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


async def post(server, method, params):
    """Sends a message to the MCP server. `params` is JSON text. Returns the result."""
    body = '{"jsonrpc":"2.0","id":1,"method":"%s","params":%s}' % (method, params)
    place = urlsplit(server["url"])
    reader, writer = await asyncio.open_connection(place.hostname, place.port, limit=1 << 30)
    lines = [f"POST {place.path} HTTP/1.1", f"host: {place.netloc}", "connection: close", f"content-length: {len(body)}"]
    lines += [f"{header['name']}: {header['value']}" for header in server["headers"]]
    writer.write(("\r\n".join(lines) + "\r\n\r\n" + body).encode())
    reply = (await reader.read()).decode()
    writer.close()
    for line in reply.splitlines():
        start = line.find('{"')
        if start >= 0 and '"result"' in line:
            return json.JSONDecoder().raw_decode(line[start:])[0]["result"]
    raise SystemExit(f"no result: {reply[:500]}")


async def call(server, name, arguments):
    result = await post(server, "tools/call", '{"name":%s,"arguments":%s}' % (json.dumps(name), arguments))
    return result["isError"], result["content"][0]["text"]


async def call_often(server, name):
    free, refused, answered = asyncio.Semaphore(CONCURRENT_CALLS), [], []

    async def one():
        async with free:
            failed, text = await call(server, name, "{}")
        (refused if failed else answered).append(text)
        if len(refused) + len(answered) == MANY_CALLS - MAX_WAITING_CALLS:
            open("called-often", "w").close()

    await asyncio.gather(*(one() for _ in range(MANY_CALLS)))
    return json.dumps({"answered": len(answered), "refused": len(refused), "reasons": sorted(set(refused))})


async def turn(server, prompt):
    name = (await post(server, "tools/list", "{}"))["tools"][0]["name"]
    if "call often" in prompt:
        return await call_often(server, name)
    depth = 100_000 if "call deeply" in prompt else 0
    _, text = await call(server, name, '{"a":' * depth + "{}" + "}" * depth)
    with open("result", "wb") as file:
        file.write(text.encode())
    return "received"


server = None
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params", {})
    result = {}
    if method == "session/new":
        server = (params.get("mcpServers") or [None])[0]
        result = {"sessionId": "0190a1b2-0000-7000-8000-000000000001"}
    elif method == "session/prompt":
        with open("port.json", "w") as file:
            json.dump({"server": server, "argv": sys.argv}, file)
        text = asyncio.run(turn(server, params["prompt"][0]["text"]))
        update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
        send({"method": "session/update", "params": {"sessionId": params["sessionId"], "update": update}})
        result = {"stopReason": "end_turn"}
    if "id" in message:
        send({"id": message["id"], "result": result})
