#!/usr/bin/env python3
"""A server that behaves as docs/CONTRACT.md says, without a model: for tests of the page, and to look at it.

    tests/web/mock_server.py [PORT]      serves web/ and the endpoints the page uses, on 127.0.0.1

What it answers depends on words of the last message: `markdown` a text with everything Markdown has, `think`
thinks first, `long` goes on until it is stopped, anything else is said back. A token is a word with the blank
before it. Tests change its behaviour through the fields of Behaviour. It counts what it saw, so that a test
can tell that a stopped answer was really left."""

import json
import mimetypes
import re
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

WEB = Path(__file__).resolve().parents[2] / "web"

MARKDOWN = """Here is **bold**, *emphasis*, ~~gone~~, `code` and [a link](https://example.org/a_b_c).

## A heading

1. First, with a list inside:
   - one
   - two
2. Second

| name | size | share |
| :--- | ---: | :---: |
| weights | 4.2 GiB | 71 % |
| kv | 512 MiB | 9 % |

> A quotation of
> two lines.

```python
def fib(n: int) -> int:
    \"\"\"The n-th number.\"\"\"
    a, b = 0, 1
    for _ in range(n):  # n steps
        a, b = b, a + b
    return a
```

The formula \\(a^2 + b^2 = c^2\\) stays; <script>alert(1)</script> and <img src=x onerror=alert(2)> are text.

\\[ x = \\frac{-b \\pm \\sqrt{b^2 - 4ac}}{2a}, \\qquad
\\sum_{i=1}^{n} i = \\begin{cases} 0 & n < 1 \\\\ \\frac{n(n+1)}{2} & \\text{else} \\end{cases} \\]

And $\\unknown{x}$ stays as it was.

- [x] done
- [ ] open

[never](javascript:alert(3))
"""

THOUGHT = "The reader asks something simple. Two ways:\n\n1. short\n2. *long*\n\nThe short one. "


def pieces(text):
    return re.findall(r"\s*\S+|\s+$", text)


class Slot:
    def __init__(self, number):
        self.id, self.task, self.busy = number, -1, False
        self.prompt = self.processed = self.cached = self.made = 0

    def json(self, context):
        return {
            "id": self.id,
            "id_task": self.task,
            "n_ctx": context,
            "is_processing": self.busy,
            "n_prompt_tokens": self.prompt,
            "n_prompt_tokens_processed": self.processed,
            "n_prompt_tokens_cache": self.cached,
            "next_token": [{"n_decoded": self.made}],
        }


class Behaviour:
    """What a test may change while the server runs, and what it may ask for."""

    def __init__(self):
        self.key = ""
        self.context = 4096
        self.token_s = 0.01
        self.prompt_s = 0.05
        self.busy = 0  # so many requests get a 429 before one is served
        self.retry_after = 1
        self.loading = False
        self.cut_after = 0  # the connection is dropped after so many tokens
        self.error_after = 0  # an error event after so many tokens
        self.requests = []  # bodies of chat requests
        self.left = 0  # streams whose client went away
        self.made = self.read = self.cached = self.tasks = 0
        self.ends = {"stop": 0, "length": 0, "abort": 0}
        self.slots = [Slot(0), Slot(1)]
        self.lock = threading.Lock()

    def answer_of(self, messages):
        """(thoughts, words) for a conversation."""
        said = messages[-1]["content"]
        thoughts = THOUGHT if "think" in said else ""
        if "markdown" in said:
            return thoughts, MARKDOWN
        if "long" in said:
            return thoughts, " ".join(f"word{i}" for i in range(5000))
        return thoughts, f"You said: {said}"

    def metrics(self):
        gib = 1 << 30
        lines = [
            f"llamacpp:prompt_tokens_total {self.read}",
            f"llamacpp:prompt_seconds_total {self.read / 900:.4f}",
            f"llamacpp:tokens_predicted_total {self.made}",
            f"llamacpp:requests_processing {sum(s.busy for s in self.slots)}",
            "llamacpp:requests_deferred 0",
            f"llamacpp:spec_decode_num_draft_tokens_total {self.made * 2}",
            f"llamacpp:spec_decode_num_accepted_tokens_total {self.made * 1.4:.0f}",
            f"vllm:prefix_cache_queries_total {self.read + self.cached}",
            f"vllm:prefix_cache_hits_total {self.cached}",
            f"vllm:kv_cache_usage_perc {sum(s.prompt + s.made for s in self.slots) / 2 / self.context:.4f}",
            *(f'vllm:request_success_total{{finished_reason="{k}"}} {n}' for k, n in self.ends.items()),
            f"mica_expert_hit_ratio {0.9 + 0.08 * abs((time.time() % 20) / 10 - 1):.4f}",
            'mica_bytes_per_token{tier="vram"} 2147483648',
            'mica_bytes_per_token{tier="ram"} 150000000',
            *(
                f'mica_vram_bytes{{device="hip:0",what="{what}"}} {n * gib:.0f}'
                for what, n in (
                    ("weights", 3.4),
                    ("experts", 8.1),
                    ("kv", 1.2),
                    ("state", 0.1),
                    ("scratch", 0.6),
                )
            ),
            f'mica_vram_total_bytes{{device="hip:0"}} {16 * gib}',
            f'mica_ram_bytes{{what="experts"}} {21.5 * gib:.0f}',
            f'mica_ram_bytes{{what="weights"}} {0.5 * gib:.0f}',
            f'mica_device_temperature_celsius{{device="hip:0"}} {58 + 8 * any(s.busy for s in self.slots)}',
            f'mica_device_power_watts{{device="hip:0"}} {120 + 90 * any(s.busy for s in self.slots)}',
        ]
        return "# HELP llamacpp:prompt_tokens_total Prompt tokens read.\n" + "\n".join(lines) + "\n"


class Mock(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, behaviour=None, port=0):
        super().__init__(("127.0.0.1", port), Handler)
        self.behaviour = behaviour or Behaviour()
        self.sockets = set()

    @property
    def port(self):
        return self.server_address[1]

    def start(self):
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def die(self):
        """As a killed process: the port closes and every connection breaks at once."""
        self.shutdown()
        self.server_close()
        for s in list(self.sockets):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def handle_error(self, request, client_address):
        pass  # connections of a browser end as they like


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def setup(self):
        super().setup()
        self.server.sockets.add(self.connection)

    def finish(self):
        self.server.sockets.discard(self.connection)
        super().finish()

    # ---- Answers ----

    def send(self, status, body, kind="application/json", **headers):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(body)

    def json(self, value, status=200, **headers):
        self.send(status, json.dumps(value).encode(), **headers)

    def fail(self, status, message, code=None, headers=None, **more):
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": code, **more}
        self.json({"error": error}, status, **(headers or {}))

    def allowed(self):
        b = self.server.behaviour
        if b.key and self.headers.get("Authorization") != f"Bearer {b.key}":
            self.fail(401, "this server wants its key", "invalid_api_key")
            return False
        return True

    def do_GET(self):
        path = self.path.split("?")[0]
        name = "index.html" if path == "/" else path[1:]
        if "/" not in name and (WEB / name).is_file():
            kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
            self.send(200, (WEB / name).read_bytes(), kind, Cache_Control="no-cache")
        elif path == "/health":
            if self.server.behaviour.loading:
                self.fail(503, "the model is loading", "unavailable")
            else:
                self.json({"status": "ok"})
        elif path in ("/props", "/slots", "/metrics", "/v1/models"):
            if self.allowed():
                self.look(path)
        else:
            self.fail(404, f"{path} is not here")

    def look(self, path):
        b = self.server.behaviour
        if path == "/metrics":
            self.send(200, b.metrics().encode(), "text/plain; version=0.0.4")
        elif path == "/slots":
            self.json([s.json(b.context) for s in b.slots])
        elif path == "/props":
            params = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "repeat_penalty": 1.0}
            self.json(
                {
                    "default_generation_settings": {"n_ctx": b.context, "params": params},
                    "total_slots": len(b.slots),
                    "model_alias": "mock-7b",
                    "model_path": "mock-7b.q4_k_m.gguf",
                    "build_info": "mock 1",
                }
            )
        else:
            meta = {"n_ctx_train": 32768, "n_params": 7241732096, "size": 4368439296}
            self.json({"object": "list", "data": [{"id": "mock-7b", "object": "model", "meta": meta}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        if not self.allowed():
            return
        if self.path == "/tokenize":
            self.json({"tokens": list(range(len(pieces(body["content"]))))})
        elif self.path == "/v1/chat/completions":
            self.chat(body)
        else:
            self.fail(404, f"{self.path} is not here")

    # ---- The chat ----

    def chat(self, body):
        b = self.server.behaviour
        if b.loading:
            return self.fail(503, "the model is loading", "unavailable")
        if b.busy > 0:
            b.busy -= 1
            return self.fail(429, "the queue is full", "queue_full", {"Retry_After": b.retry_after})
        b.requests.append(body)
        n_prompt = sum(len(pieces(m["content"])) + 4 for m in body["messages"])
        if n_prompt >= b.context:
            said = f"the prompt has {n_prompt} tokens, and the context holds {b.context}: shorten it"
            return self.fail(400, said, "context_length_exceeded", n_prompt_tokens=n_prompt, n_ctx=b.context)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        with b.lock:
            slot = next((s for s in b.slots if not s.busy), b.slots[0])
            b.tasks += 1
            slot.task, slot.busy = b.tasks, True
        try:
            self.stream(body, slot, n_prompt)
        except OSError:
            b.left += 1
            b.ends["abort"] += 1
        finally:
            slot.busy = False

    def chunk(self, delta, finish=None, **more):
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
        value = {
            "id": "x",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "mock-7b",
            "choices": choices,
        }
        self.wfile.write(b"data: " + json.dumps({**value, **more}).encode() + b"\n\n")
        self.wfile.flush()

    def stream(self, body, slot, n_prompt):
        b = self.server.behaviour
        slot.cached = min(slot.prompt, n_prompt // 2)
        slot.prompt, slot.processed, slot.made = n_prompt, slot.cached, 0
        self.wfile.write(b": reading\n\n")
        self.chunk({"role": "assistant", "content": None})
        while slot.processed < n_prompt:
            slot.processed = min(n_prompt, slot.processed + max(1, n_prompt // 4))
            self.chunk(
                {}, prompt_progress={"total": n_prompt, "processed": slot.processed, "cache": slot.cached}
            )
            time.sleep(b.prompt_s)
        b.read += n_prompt - slot.cached
        b.cached += slot.cached
        thoughts, words = b.answer_of(body["messages"])
        if body.get("chat_template_kwargs", {}).get("enable_thinking") is False:
            thoughts = ""
        finish = "stop"
        all_pieces = [("reasoning_content", p) for p in pieces(thoughts)] + [
            ("content", p) for p in pieces(words)
        ]
        for i, (field, piece) in enumerate(all_pieces):
            if i == body.get("max_tokens"):
                finish = "length"
                break
            if b.cut_after and i == b.cut_after:
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            if b.error_after and i == b.error_after:
                self.wfile.write(
                    b'data: {"error":{"message":"the device was lost","type":"server_error"}}\n\n'
                )
                return
            self.chunk({field: piece})
            slot.made += 1
            b.made += 1
            time.sleep(b.token_s)
        b.ends[finish] += 1
        self.finish_stream(slot, finish)

    def finish_stream(self, slot, finish):
        b = self.server.behaviour
        self.chunk({}, finish, timings={"predicted_per_second": 1 / max(b.token_s, 1e-3), "prompt_ms": 50.0})
        usage = {
            "prompt_tokens": slot.prompt,
            "completion_tokens": slot.made,
            "total_tokens": slot.prompt + slot.made,
            "prompt_tokens_details": {"cached_tokens": slot.cached},
        }
        self.chunk(None, usage=usage)
        self.wfile.write(b"data: [DONE]\n\n")


if __name__ == "__main__":
    mock = Mock(port=int(sys.argv[1]) if len(sys.argv) > 1 else 8090)
    print(f"http://127.0.0.1:{mock.port}/", file=sys.stderr)
    try:
        mock.serve_forever()
    except KeyboardInterrupt:
        pass
