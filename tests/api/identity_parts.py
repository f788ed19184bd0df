"""An identity provider for tests: keys, tokens, and a server that publishes the public ones."""

import http.server
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

SECRET = "a secret of at least thirty-two bytes"


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def claims(subject: str = "anna", **more: Any) -> dict[str, Any]:
    return {"sub": subject, "exp": int(time.time()) + 600, **more}


def hs256(payload: dict[str, Any] | None = None, *, secret: str = SECRET, **headers: Any) -> str:
    return jwt.encode(payload or claims(), secret, algorithm="HS256", headers=headers)


@dataclass
class SigningKey:
    """A private key and what is published of it."""

    algorithm: str
    private: Any
    kid: str | None
    public: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def new(cls, algorithm: str, kid: str | None) -> "SigningKey":
        private: Any
        match algorithm:
            case "RS256" | "PS256":
                private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
            case "ES256":
                private = ec.generate_private_key(ec.SECP256R1())
            case _:
                private = ed25519.Ed25519PrivateKey.generate()
        public = jwt.get_algorithm_by_name(algorithm).to_jwk(private.public_key(), as_dict=True)
        named = {} if kid is None else {"kid": kid}
        return cls(algorithm, private, kid, {**public, **named, "use": "sig"})

    def token(self, payload: dict[str, Any] | None = None, **headers: Any) -> str:
        named = {} if self.kid is None else {"kid": self.kid}
        return jwt.encode(payload or claims(), self.private, algorithm=self.algorithm, headers={**named, **headers})


class KeyServer(http.server.ThreadingHTTPServer):
    """Publishes `keys`, or whatever `answer` is; counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.keys: list[dict[str, Any]] = []
        self.answer: bytes | None = None
        self.status = 200
        self.asked = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/jwks.json"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: KeyServer

    def do_GET(self) -> None:
        self.server.asked += 1
        body = self.server.answer
        if body is None:
            body = json.dumps({"keys": self.server.keys}).encode()
        self.send_response(self.server.status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def key_server() -> Iterator[KeyServer]:
    with KeyServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
