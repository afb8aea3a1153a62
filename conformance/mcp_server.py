"""MCP server over stdio with one tool. It represents a user's own server in the homes of the conformance suite."""

import json
import sys

TOOL = {
    "name": "lamp_status",
    "description": "Reports whether the lamp is lit.",
    "inputSchema": {"type": "object", "properties": {}},
}


def answer(method, params):
    if method == "initialize":
        server = {"name": "lamp", "version": "1"}
        version = params.get("protocolVersion", "2025-06-18")
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": "The lamp burns."}]}
    return {} if method == "ping" else None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    result = answer(message["method"], message.get("params") or {})
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    if result is None:
        reply["error"] = {"code": -32601, "message": "unknown method"}
    else:
        reply["result"] = result
    print(json.dumps(reply), flush=True)
