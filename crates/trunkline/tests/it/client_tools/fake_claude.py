# A claude that does what its prompt says, with tools of its client:
#   "call NAME ARGUMENTS" calls a tool; "and" calls another one at the same time; "then" waits for the results first.
#   "servers" answers with its MCP servers, and the values of their headers and variables backwards: secrets are masked;
#   "tools" answers with the names of its tools; "say TEXT" answers with the text.
import json, os, sys

seen = os.environ["SEEN"]
session = "00000000-0000-4000-8000-%012d" % os.getpid()
tools, waiting, number, servers = [], {}, 0, {}
if "--resume" in sys.argv:
    session = sys.argv[sys.argv.index("--resume") + 1]

def emit(message):
    print(json.dumps(message), flush=True)

def read():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)

def mcp(method, params):
    global number
    number += 1
    request = "mcp-%d" % number
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    emit({"type": "control_request", "request_id": request,
          "request": {"subtype": "mcp_message", "server_name": "client", "message": message}})
    return request

def answers(requests):
    got = {}
    while set(got) != set(requests):
        message = read()
        response = message.get("response", {})
        if message["type"] == "control_response" and response.get("request_id") in requests:
            got[response["request_id"]] = response["response"]["mcp_response"]
        elif message["type"] == "control_request":
            sys.exit(0)
    return [got[request]["result"] for request in requests]

def calls(step):
    requests = []
    for index, call in enumerate(step.split(" and ")):
        _, name, arguments = call.strip().split(" ", 2)
        use = {"type": "tool_use", "id": "toolu_%d_%d" % (number, index), "name": "mcp__client__" + name,
               "input": json.loads(arguments)}
        emit({"type": "assistant", "message": {"id": "m%d" % number, "content": [use]}, "session_id": session})
        requests.append(mcp("tools/call", {"name": name, "arguments": json.loads(arguments)}))
    texts = []
    for result in answers(requests):
        texts.append(("error: " if result["isError"] else "") + result["content"][0]["text"])
    return texts

def turn(text):
    emit({"type": "system", "subtype": "init", "session_id": session, "model": "fake"})
    if text.startswith("call "):
        said = []
        for step in text.split("\n")[0].split(" then "):
            said += calls(step)
        answer = json.dumps(said)
    elif text.startswith("servers"):
        backwards = lambda values: {name: value[::-1] for name, value in values.items()}
        hide = lambda server: {name: backwards(value) if name in ("headers", "env") else value for name, value in server.items()}
        answer = json.dumps({name: hide(server) for name, server in servers.items() if name != "client"}, sort_keys=True)
    elif text.startswith("tools"):
        answer = json.dumps([tool["name"] for tool in tools])
    else:
        answer = text
    emit({"type": "result", "subtype": "success", "is_error": False, "result": answer, "session_id": session,
          "usage": {"input_tokens": 30, "output_tokens": 20}})

with open(os.path.join(seen, "pid.%d" % os.getpid()), "w") as note:
    note.write("\0".join(sys.argv[1:]))
if "--input-format" not in sys.argv:
    turn(sys.stdin.read().rsplit("--- USER TASK ---\n", 1)[-1])
    sys.exit(0)
while True:
    message = read()
    subtype = message.get("request", {}).get("subtype")
    if subtype == "initialize":
        emit({"type": "control_response", "response": {"subtype": "success", "request_id": message["request_id"], "response": {}}})
    elif subtype == "mcp_set_servers":
        servers = message["request"]["servers"]
        if "client" in servers:
            answers([mcp("initialize", {"protocolVersion": "2025-11-25"})])
            tools = answers([mcp("tools/list", {})])[0]["tools"]
        if any("broken" in server.get("url", "") for server in servers.values()):
            emit({"type": "control_response", "response": {"subtype": "success", "request_id": message["request_id"],
                  "response": {"added": [], "removed": [], "errors": {"docs": "connection refused"}}}})
            continue
        emit({"type": "control_response", "response": {"subtype": "success", "request_id": message["request_id"],
                                                        "response": {"added": ["client"], "removed": [], "errors": {}}}})
    elif subtype == "interrupt":
        sys.exit(0)
    elif message["type"] == "user":
        turn(message["message"]["content"].rsplit("--- USER TASK ---\n", 1)[-1])
