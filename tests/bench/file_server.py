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
    """Files by name; how the next requests for each of them go (the last of a list goes on for ever).

    Ways: ``ok``; ``cut N`` (close after N bytes of the body); ``whole`` (pay no heed to Range); ``blind`` (heed Range
    but not If-Range, and give no mark); ``shifted`` (go on from another place); ``no length`` (close at the end, say
    nothing of it); ``silent`` (never answer); a number (that status); ``to URL`` (redirect).
    """

    files: dict[str, bytes] = field(default_factory=dict)
    marks: dict[str, dict[str, str]] = field(default_factory=dict)
    ways: dict[str, list[str]] = field(default_factory=dict)
    #: (file, its Range or None, its If-Range or None) of every request.
    asked: list[tuple[str, str | None, str | None]] = field(default_factory=list)
    url: str = ""
    over: threading.Event = field(default_factory=threading.Event)

    def ranges(self, name: str) -> list[str | None]:
        return [span for file, span, _ in self.asked if file == name]


@contextmanager
def serving(publisher: Publisher) -> Iterator[Publisher]:
    """The publisher at ``publisher.url``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = PurePosixPath(self.path).name
            publisher.asked.append((name, self.headers["Range"], self.headers["If-Range"]))
            ways = publisher.ways.get(name, [])
            answer(self, publisher, name, (ways.pop(0) if len(ways) > 1 else ways[0]) if ways else "ok")

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
    if way.startswith("to "):
        handler.send_response(302)
        handler.send_header("Location", way[3:])
        handler.end_headers()
        return
    if way.isdigit() or name not in publisher.files:
        handler.send_error(int(way) if way.isdigit() else 404)
        return
    body, marks = publisher.files[name], publisher.marks.get(name, {})
    span, wanted = handler.headers["Range"], handler.headers["If-Range"]
    start = int(span.removeprefix("bytes=").removesuffix("-")) if span else 0
    unchanged = wanted is None or wanted in marks.values() or way == "blind"
    if way == "whole" or not unchanged:
        start = 0
    if start >= len(body) > 0:
        handler.send_error(416)
        return
    handler.send_response(206 if start else 200)
    if start:
        said = start + 1 if way == "shifted" else start
        handler.send_header("Content-Range", f"bytes {said}-{len(body) - 1}/{len(body)}")
    if way != "no length":
        handler.send_header("Content-Length", str(len(body) - start))
    for key, value in marks.items() if way != "blind" or not start else ():
        handler.send_header(key, value)
    handler.end_headers()
    rest = body[start:]
    handler.wfile.write(rest[: int(way.split()[1])] if way.startswith("cut") else rest)
