# A gemini that speaks the Agent Client Protocol and calls the tools of its MCP server over HTTP, as its prompt says:
#   "call NAME ARGUMENTS" calls a tool; "probe" answers with what the server says to other requests;
#   "servers" answers with its other MCP servers, its rules about them, and how the session began.
import json, os, sys, urllib.error, urllib.request

server = {}
servers, began = [], ""
number = 0

def emit(message):
    print(json.dumps(dict(message, jsonrpc="2.0")), flush=True)

def http(method, body, token):
    head = {"content-type": "application/json", "accept": "application/json, text/event-stream",
            "authorization": "Bearer " + token}
    request = urllib.request.Request(server["url"], body, head, method=method)
    try:
        with urllib.request.urlopen(request) as reply:
            return reply.status, reply.headers["content-type"], reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, "", error.read().decode()

def token():
    return server["headers"][0]["value"].split(" ", 1)[1]

def mcp(method, params):
    global number
    number += 1
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    status, kind, text = http("POST", json.dumps(message).encode(), token())
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")] or [json.loads(text)]
    return events

def answer(prompt):
    if prompt.startswith("call "):
        _, name, arguments = prompt.split("\n")[0].split(" ", 2)
        events = mcp("tools/call", {"name": name, "arguments": dict(json.loads(arguments), wait_for_previous=True),
                                     "_meta": {"progressToken": "p"}})
        progress = [event["params"]["progress"] for event in events if event.get("method") == "notifications/progress"]
        result = events[-1]["result"]
        return json.dumps([progress, result["content"][0]["text"], result["isError"]])
    if prompt.startswith("probe"):
        ping = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
        note = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}).encode()
        status = lambda method, body, token: http(method, body, token)[0]
        return json.dumps({
            "get": status("GET", None, token()), "delete": status("DELETE", None, token()),
            "note": status("POST", note, token()), "no secret": status("POST", ping, ""),
            "wrong secret": status("POST", ping, token()[:-1] + "0x"), "large": status("POST", b"x" * (9 << 20), token()),
            "broken": http("POST", b"[" * 2000, token())[2].find("-32700") > 0,
            "arguments": token() in " ".join(sys.argv), "tools": [tool["name"] for tool in mcp("tools/list", {})[0]["result"]["tools"]],
        })
    if prompt.startswith("servers"):
        paths = [value for flag, value in zip(sys.argv, sys.argv[1:]) if flag == "--policy" and "/server-" in value]
        rules = [rule for path in paths for rule in open(path).read().splitlines() if rule.startswith(("mcpName", "toolName"))]
        return json.dumps([[entry["name"] for entry in servers], rules, began])
    return prompt

for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params", {})
    if method in ("session/new", "session/load"):
        began = method
        servers = [entry for entry in params["mcpServers"] if entry["name"] != "client"]
    if method == "session/load":
        old = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "from the past"}}
        emit({"method": "session/update", "params": {"sessionId": params["sessionId"], "update": old}})
    if method == "session/new":
        for entry in params["mcpServers"]:
            if entry["name"] == "client":
                server = entry
                mcp("initialize", {"protocolVersion": "2025-06-18"})
        emit({"id": message["id"], "result": {"sessionId": "session-%d" % len(server)}})
    elif method == "session/prompt":
        text = answer(params["prompt"][0]["text"].rsplit("--- USER TASK ---\n", 1)[-1])
        update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
        emit({"method": "session/update", "params": {"sessionId": params["sessionId"], "update": update}})
        emit({"id": message["id"], "result": {"stopReason": "end_turn"}})
    elif "id" in message:
        emit({"id": message["id"], "result": {}})
