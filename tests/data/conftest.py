"""Files and a server to read tiny data sets from."""

import gzip
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

from tiny_sets import idx_bytes


@pytest.fixture
def write_idx(tmp_path: Path) -> Callable[..., Path]:
    def write(array: torch.Tensor, name: str = "array-idx-ubyte.gz", folder: str = ".") -> Path:
        path = tmp_path / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = idx_bytes(array)
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write


@pytest.fixture
def serve(monkeypatch):
    """Serve bytes at 127.0.0.1 under /<name>; `promise` more bytes than there are, to interrupt a download."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    content: dict[str, tuple[bytes, int]] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path not in content:
                self.send_error(404)
                return
            body, promise = content[self.path]
            self.send_response(200)
            self.send_header("Content-Length", str(promise))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()

    def put(name: str, body: bytes, promise: int | None = None) -> str:
        content[f"/{name}"] = (body, len(body) if promise is None else promise)
        return f"http://127.0.0.1:{server.server_port}/{name}"

    yield put
    server.shutdown()
    server.server_close()
    thread.join()
