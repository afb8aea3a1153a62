"""MCP server with two tools, over HTTP or, with --stdio, over stdio. It represents a server that the gateway gives to a CLI.

Over HTTP it answers only requests with the right token, prints its port, and writes each call to a file: the case that the
header X-Case names, and the tool.
"""

import http.server
import json
import os
import sys

TOKEN = "harbour-token-5150"
TOOLS = ["harbour_log", "harbour_gate"]


def answer(method, params):
    if method == "initialize":
        server = {"name": "harbour", "version": "1"}
        version = params.get("protocolVersion", "2025-06-18")
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
    if method == "tools/list":
        schema = {"type": "object", "properties": {"page": {"type": "string"}}}
        return {"tools": [{"name": name, "description": "Of the harbour.", "inputSchema": schema} for name in TOOLS]}
    if method == "tools/call":
        page = params.get("arguments", {}).get("page", "")
        text = "%s %s: berth 7 is free, says %s" % (params["name"], page, os.environ.get("HARBOUR_KEEPER", "the clerk"))
        return {"content": [{"type": "text", "text": text}]}
    return {} if method == "ping" else None


def reply(message):
    result = answer(message["method"], message.get("params") or {})
    if result is None:
        return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "unknown method"}}
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.headers.get("authorization") != "Bearer " + TOKEN:
            return self.finish_with(401, b"")
        message = json.loads(body)
        if "id" not in message or "method" not in message:
            return self.finish_with(202, b"")
        if message["method"] == "tools/call":
            with open(sys.argv[1], "a") as calls:
                calls.write("%s %s\n" % (self.headers.get("x-case"), message["params"]["name"]))
        self.finish_with(200, json.dumps(reply(message)).encode())

    def do_GET(self):
        self.finish_with(405, b"")

    def do_DELETE(self):
        self.finish_with(200, b"")

    def finish_with(self, status, body):
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if sys.argv[1] == "--stdio":
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            print(json.dumps(reply(message)), flush=True)
else:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()
