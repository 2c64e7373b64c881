#!/usr/bin/env python3
"""Load that counts what a client loses: `load.py http HOST:PORT [PAGE]` or `load.py fastcgi SOCKET [PAGE]`.

Eight threads, each with a fresh connection a request, until SIGTERM. Says "begun" after the first right answer, and takes
no end before ENOUGH of them, or 20 s. Then one line of JSON: answers that were right,
answers that were not, connections that were refused, the longest wait in ms, and the first complaints. A page is
right with status 200 and PAGE in it, which is "Hostler works" unless given.
"""

import json
import signal
import socket
import struct
import sys
import threading
import time

WANTED = (sys.argv[3] if len(sys.argv) > 3 else "Hostler works").encode()
ENVIRONMENT = {
    "GATEWAY_INTERFACE": "CGI/1.1",
    "REQUEST_METHOD": "GET",
    "SCRIPT_NAME": "/",
    "DOCUMENT_URI": "/",
    "REQUEST_URI": "/",
    "QUERY_STRING": "",
    "SERVER_PROTOCOL": "HTTP/1.1",
    "SERVER_NAME": "localhost",
    "SERVER_PORT": "80",
    "REMOTE_ADDR": "127.0.0.1",
}

# Right answers without which a load proves nothing.
ENOUGH = 50

over = threading.Event()
lock = threading.Lock()
total = {"right": 0, "wrong": 0, "refused": 0, "longest_ms": 0, "complaints": []}


def http(address):
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=20) as peer:
        peer.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = to_the_end(peer)
    return answer.startswith(b"HTTP/1.1 200") and WANTED in answer, answer


def fastcgi(path):
    pairs = b"".join(
        bytes((len(name), len(value))) + name.encode() + value.encode() for name, value in ENVIRONMENT.items()
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(20)
        peer.connect(path)
        peer.sendall(
            record(1, struct.pack(">HB5x", 1, 0)) + record(4, pairs) + record(4, b"") + record(5, b"")
        )
        answer = to_the_end(peer)
    # The last record is END_REQUEST: an answer without it was cut off.
    whole = len(answer) >= 16 and answer[-16:-14] == b"\x01\x03"
    return whole and WANTED in answer and b"Status: 5" not in answer, answer


def record(kind, content):
    return struct.pack(">BBHHBx", 1, kind, 1, len(content), 0) + content


def to_the_end(peer):
    parts = []
    while part := peer.recv(65536):
        parts.append(part)
    return b"".join(parts)


def count(kind, started, complaint=None):
    with lock:
        total[kind] += 1
        if kind == "right" and total["right"] == 1:
            print("begun", flush=True)
        total["longest_ms"] = max(total["longest_ms"], round((time.monotonic() - started) * 1000))
        if complaint and len(total["complaints"]) < 5:
            total["complaints"].append(complaint)


def client(ask, address):
    while not over.is_set():
        started = time.monotonic()
        try:
            right, answer = ask(address)
            if right:
                count("right", started)
            else:
                count("wrong", started, f"answered {answer[:200]!r} and {len(answer)} bytes in all")
        except (ConnectionRefusedError, FileNotFoundError, BlockingIOError) as fault:
            count("refused", started, repr(fault))
            time.sleep(0.01)
        except OSError as fault:
            count("wrong", started, repr(fault))
        time.sleep(0.002)


def main():
    ask, address = {"http": http, "fastcgi": fastcgi}[sys.argv[1]], sys.argv[2]
    asked = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: asked.set())
    threads = [threading.Thread(target=client, args=(ask, address)) for _ in range(8)]
    for thread in threads:
        thread.start()
    asked.wait()
    end = time.monotonic() + 20
    while total["right"] < ENOUGH and time.monotonic() < end:
        time.sleep(0.05)
    over.set()
    for thread in threads:
        thread.join()
    print(json.dumps(total))


main()
