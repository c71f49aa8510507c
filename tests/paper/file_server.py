"""A publisher on this machine who misbehaves as told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import PurePosixPath


@dataclass
class Publisher:
    """Files by name, and how requests for each of them go.

    Ways: ``ok``; ``silent`` (never answer); a number (that status).
    """

    files: dict[str, bytes] = field(default_factory=dict)
    ways: dict[str, str] = field(default_factory=dict)
    #: The file of every request.
    asked: list[str] = field(default_factory=list)
    url: str = ""
    over: threading.Event = field(default_factory=threading.Event)


@contextmanager
def serving(publisher: Publisher) -> Iterator[Publisher]:
    """The publisher at ``publisher.url``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = PurePosixPath(self.path).name
            publisher.asked.append(name)
            answer(self, publisher, name, publisher.ways.get(name, "ok"))

        def log_message(self, *arguments: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *arguments: object) -> None:
            """Say nothing of those who hang up."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    publisher.url = f"http://127.0.0.1:{server.server_port}/climdiv/"
    try:
        yield publisher
    finally:
        publisher.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def answer(handler: BaseHTTPRequestHandler, publisher: Publisher, name: str, way: str) -> None:
    if way == "silent":
        publisher.over.wait(30)
        return
    if way.isdigit() or name not in publisher.files:
        handler.send_error(int(way) if way.isdigit() else 404)
        return
    body = publisher.files[name]
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)
