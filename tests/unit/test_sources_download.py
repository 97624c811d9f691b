"""A file arrives whole and checked, or not at all. The server is this process, on loopback."""

from __future__ import annotations

import hashlib
import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tfpipe.engine.sources.download import DownloadError, download

CONTENT = bytes(range(256)) * 3000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/missing":
            self.send_error(404)
            return
        self.send_response(200)
        if self.path != "/unsized":
            self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT[:1000] if self.path == "/cut" else CONTENT)
        if self.path == "/stall":
            threading.Event().wait(0.5)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def silent(done: int, total: int | None) -> None:
    pass


@pytest.mark.parametrize(("path", "total"), [("/whole", len(CONTENT)), ("/unsized", None)])
def test_a_file_arrives_with_progress(server: str, path: str, total: int | None, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    target = tmp_path / "new" / "file"
    download(server + path, target, sha256=SHA256, progress=lambda *state: seen.append(state))
    assert target.read_bytes() == CONTENT
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert seen[-1] == (len(CONTENT), total)
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize(
    ("path", "reason"),
    [("/missing", "HTTP 404 Not Found"), ("/cut", "checksum is wrong|IncompleteRead"), ("/whole", "checksum is wrong")],
)
def test_a_failed_download_leaves_the_old_state(server: str, path: str, reason: str, tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"old")
    sha256 = "0" * 64 if path == "/whole" else SHA256
    with pytest.raises(DownloadError, match=reason):
        download(server + path, target, sha256=sha256, progress=silent)
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_an_interrupted_download_leaves_nothing(server: str, tmp_path: Path) -> None:
    def interrupt(done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(server + "/whole", tmp_path / "file", sha256=SHA256, progress=interrupt)
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_does_not_answer_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        with pytest.raises(DownloadError, match="no answer"):
            download(url, tmp_path / "file", sha256=SHA256, progress=silent, stall_s=0.05)
    with pytest.raises(DownloadError, match="refused"):
        download(url, tmp_path / "file", sha256=SHA256, progress=silent)


def test_no_room_or_right_to_write(server: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DownloadError, match=r"(Not a directory|File exists): .*file"):
        download(server + "/whole", tmp_path / "file" / "below", sha256=SHA256, progress=silent)
