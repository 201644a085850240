"""Small data sets in their official layouts, and a server for them."""

import gzip
import hashlib
import io
import struct
import tarfile
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

from autogd.data.cifar import CifarSource
from autogd.data.fetch import RemoteFile


class Python2Pickle:
    """Writes pickles with the instructions of Python 2, as in the official CIFAR files."""

    def __init__(self) -> None:
        self.out = bytearray(b"\x80\x02")
        self.notes = 0

    def note(self) -> None:
        self.notes += 1
        self.out += b"q" + bytes([self.notes])

    def text(self, value: bytes) -> None:
        self.out += (b"U" + bytes([len(value)]) if len(value) < 256 else b"T" + struct.pack("<i", len(value))) + value
        self.note()

    def number(self, value: int) -> None:
        self.out += b"K" + bytes([value]) if 0 <= value < 256 else b"J" + struct.pack("<i", value)

    def array(self, shape: tuple[int, int], data: bytes) -> None:
        self.out += b"cnumpy.core.multiarray\n_reconstruct\n"
        self.note()
        self.out += b"cnumpy\nndarray\n"
        self.note()
        self.out += b"K\x00\x85"
        self.note()
        self.text(b"b")
        self.out += b"\x87"
        self.note()
        self.out += b"R"
        self.note()
        self.out += b"(K\x01"
        for side in shape:
            self.number(side)
        self.out += b"\x86"
        self.note()
        self.out += b"cnumpy\ndtype\n"
        self.note()
        self.text(b"u1")
        self.out += b"K\x00K\x01\x87"
        self.note()
        self.out += b"R"
        self.note()
        self.out += b"(K\x03"
        self.text(b"|")
        self.out += b"NNN"
        self.number(-1)
        self.number(-1)
        self.out += b"K\x00tb\x89"
        self.text(data)
        self.out += b"tb"

    def batch(self, images: torch.Tensor, labels: list[int], label_key: str) -> bytes:
        self.out += b"}"
        self.note()
        self.out += b"("
        self.text(b"batch_label")
        self.text(b"training batch 1 of 2")
        self.text(label_key.encode())
        self.out += b"]"
        self.note()
        self.out += b"("
        for label in labels:
            self.number(label)
        self.out += b"e"
        self.text(b"data")
        self.array((len(images), 3072), images.numpy().tobytes())
        self.out += b"u."
        return bytes(self.out)


def tiny_images(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def tiny_batch(count: int, seed: int = 0) -> bytes:
    return Python2Pickle().batch(tiny_images(count, seed), [i % 3 for i in range(count)], "labels")


def tar_gz(files: dict[str, bytes], special: tuple[tarfile.TarInfo, ...] = ()) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for info in special:
            tar.addfile(info, io.BytesIO(bytes(info.size)))
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


TINY_FILES = {
    "tiny-py/batches.meta": b"not read",
    "tiny-py/data_batch_1": tiny_batch(3, seed=1),
    "tiny-py/data_batch_2": tiny_batch(3, seed=2),
    "tiny-py/test_batch": tiny_batch(2, seed=3),
}


def tiny_source(archive: bytes, address: str = "http://127.0.0.1:9/tiny.tar.gz") -> CifarSource:
    return CifarSource(
        name="tiny",
        archive=RemoteFile("tiny.tar.gz", (address,), hashlib.md5(archive).hexdigest()),
        folder="tiny-py",
        train=("data_batch_1", "data_batch_2"),
        test=("test_batch",),
        label_key="labels",
        classes=3,
        samples=(6, 2),
    )


def idx_bytes(array: torch.Tensor) -> bytes:
    head = struct.pack(f">HBB{array.dim()}I", 0, 8, array.dim(), *array.shape)
    return head + array.numpy().tobytes()


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
