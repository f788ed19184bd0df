"""Whoever shows a token is who the token says, and no text that is not signed by the right key lets anybody in."""

import base64
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
from api_parts import BASE, HELLO, ServedApi, served
from identity_parts import SECRET, KeyServer, SigningKey, bearer, claims, hs256, key_server
from pydantic import ValidationError
from starlette.requests import Request

from pai.protocol.errors import DeclarationError, Unauthenticated, Unavailable
from pai.settings import Settings
from pai_api.app import create_app
from pai_api.identity import Gate, gate
from pai_api.identity.key_set import KeySet
from pai_api.identity.tokens import Tokens


def now() -> int:
    return int(time.time())


@pytest.fixture(scope="module")
def rsa() -> SigningKey:
    return SigningKey.new("RS256", "one")


@pytest.fixture
def provider() -> Iterator[KeyServer]:
    with key_server() as server:
        yield server


def with_jwt(settings: Settings, **update: Any) -> Settings:
    return Settings(**{**settings.model_dump(), "identity": "jwt", **update})


@pytest.fixture
async def by_secret(settings: Settings) -> AsyncIterator[ServedApi]:
    options = {"jwt_secret": SECRET, "jwt_issuer": "issuer", "jwt_audience": ("pai", "pai-two")}
    async with served(with_jwt(settings, **options)) as api:
        yield api


@pytest.fixture
async def by_keys(settings: Settings, provider: KeyServer, rsa: SigningKey) -> AsyncIterator[ServedApi]:
    provider.keys = [rsa.public]
    async with served(with_jwt(settings, jwt_jwks=provider.url)) as api:
        yield api


async def status(api: ServedApi, token: str) -> int:
    answer = await api.client.get(f"{BASE}/threads", headers=bearer(token))
    if answer.status_code == 401:
        assert answer.json()["code"] == "unauthenticated"
        assert answer.headers["www-authenticate"] == "Bearer"
    return answer.status_code


def valid(**more: Any) -> dict[str, Any]:
    return {**claims(iss="issuer", aud="pai"), **more}


async def test_without_the_means_to_recognise_anybody_nobody_is_let_in(settings: Settings, rsa: SigningKey) -> None:
    """No settings lead there, so neither may anything else."""
    token = rsa.token()
    request = Request({"type": "http", "headers": [(b"authorization", f"Bearer {token}".encode())]})
    tokens = Tokens(with_jwt(settings, jwt_secret=SECRET, jwt_jwks="https://keys.example"))
    tokens.key_set = None
    with pytest.raises(Unauthenticated):
        await tokens(request)
    shut = Gate(keys=None, other=None, other_lasts=False, watch_token_ttl=timedelta(minutes=1))
    with pytest.raises(Unauthenticated):
        await shut(request)


async def test_the_subject_owns_what_it_makes(by_secret: ServedApi) -> None:
    anna, ben = bearer(hs256(valid(sub="anna"))), bearer(hs256(valid(sub="ben", aud=["x", "pai-two"])))
    await by_secret.client.post(f"{BASE}/threads/t1/send", json=HELLO, headers=anna)
    assert (await by_secret.client.get(f"{BASE}/threads/t1", headers=anna)).status_code == 200
    assert (await by_secret.client.get(f"{BASE}/threads/t1", headers=ben)).status_code == 404


def unsigned(payload: dict[str, Any], **header: Any) -> str:
    parts = [json.dumps({"alg": "none", "typ": "JWT", **header}).encode(), json.dumps(payload).encode()]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts) + "."


def tampered(token: str) -> str:
    head, _, signature = token.split(".")
    other = base64.urlsafe_b64encode(json.dumps(valid(sub="ben")).encode()).rstrip(b"=").decode()
    return f"{head}.{other}.{signature}"


REFUSED: dict[str, Callable[[], str]] = {
    "another secret": lambda: hs256(valid(), secret="another secret of thirty-two bytes or so"),
    "expired": lambda: hs256(valid(exp=now() - 120)),
    "not yet": lambda: hs256(valid(nbf=now() + 120)),
    "issued in the future": lambda: hs256(valid(iat=now() + 120)),
    "without an end": lambda: hs256({key: value for key, value in valid().items() if key != "exp"}),
    "ends at no time": lambda: hs256(valid(exp="tomorrow")),
    "another issuer": lambda: hs256(valid(iss="other")),
    "no issuer": lambda: hs256({key: value for key, value in valid().items() if key != "iss"}),
    "another audience": lambda: hs256(valid(aud="other")),
    "no audience": lambda: hs256({key: value for key, value in valid().items() if key != "aud"}),
    "no subject": lambda: hs256({key: value for key, value in valid().items() if key != "sub"}),
    "an empty subject": lambda: hs256(valid(sub="")),
    "a subject of another type": lambda: hs256(valid(sub=["anna"])),
    "a subject that is true": lambda: hs256(valid(sub=True)),
    "a subject that is too long": lambda: hs256(valid(sub="x" * 2_000)),
    "a subject that is no text": lambda: hs256(valid(sub="\ud800")),
    "none": lambda: unsigned(valid()),
    "None": lambda: unsigned(valid(), alg="None"),
    "no algorithm": lambda: unsigned(valid(), alg=None),
    "an algorithm of another type": lambda: unsigned(valid(), alg=["HS256"]),
    "tampered": lambda: tampered(hs256(valid())),
    "another algorithm of the kind": lambda: jwt.encode(valid(), SECRET + SECRET, algorithm="HS512"),
    "critical and unknown": lambda: hs256(valid(), crit=["x"], x=1),
    "infinite": lambda: jwt.api_jws.encode(
        json.dumps(valid()).replace(str(valid()["exp"]), "1e999").encode(), SECRET, algorithm="HS256"
    ),
    "deep": lambda: jwt.api_jws.encode(b"[" * 5_000 + b"]" * 5_000, SECRET, algorithm="HS256"),
    "no object": lambda: jwt.api_jws.encode(b"[]", SECRET, algorithm="HS256"),
    "no JSON": lambda: jwt.api_jws.encode(b"\xff\xfe", SECRET, algorithm="HS256"),
    "garbage": lambda: "garbage",
    "dots": lambda: "...",
    "two parts": lambda: "a.b",
    "an API key": lambda: "pai_0123456789abcdef_" + "x" * 43,
    "huge": lambda: hs256(valid(x="y" * 17_000)),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_is_not_right_in_every_way_is_refused(by_secret: ServedApi, name: str) -> None:
    assert await status(by_secret, hs256(valid())) == 200
    assert await status(by_secret, REFUSED[name]()) == 401


@pytest.mark.parametrize("value", ["", "Bearer", "Basic YTpi", "bearer a b", "Bearer \xff"])
async def test_a_header_that_is_no_bearer_token_is_refused(by_secret: ServedApi, value: str) -> None:
    answer = await by_secret.client.get(f"{BASE}/threads", headers=[(b"authorization", value.encode("latin-1"))])
    assert answer.status_code in (400, 401)  # 400: what the HTTP server itself does not take
    assert (await by_secret.client.get(f"{BASE}/threads")).status_code == 401


async def test_clocks_may_be_a_little_apart(by_secret: ServedApi) -> None:
    assert await status(by_secret, hs256(valid(exp=now() - 10))) == 200
    assert await status(by_secret, hs256(valid(nbf=now() + 20, iat=now() + 20))) == 200


@pytest.mark.parametrize("digits", [19, 310, 4000])
async def test_the_end_may_be_as_far_away_as_an_integer_says(by_secret: ServedApi, digits: int) -> None:
    assert await status(by_secret, hs256(valid(exp=10**digits))) == 200


async def test_the_scheme_is_not_case_sensitive(by_secret: ServedApi) -> None:
    answer = await by_secret.client.get(BASE, headers={"authorization": f"bEARER  {hs256(valid())}"})
    assert answer.status_code == 200


@pytest.mark.parametrize("subject", ["Zoë 🦉", "a/b", "a%2Fb", "../x", "x\x00y", " ", "auth0|123", "ä" * 160])
async def test_any_text_may_be_a_subject(by_secret: ServedApi, subject: str) -> None:
    mine, other = bearer(hs256(valid(sub=subject))), bearer(hs256(valid(sub=f"{subject}~")))
    sent = await by_secret.client.post(f"{BASE}/threads/t1/send", json=HELLO, headers=mine)
    assert sent.status_code == 202
    [item] = (await by_secret.client.get(f"{BASE}/threads", headers=mine)).json()["items"]
    assert item["threadId"] == "t1"
    assert (await by_secret.client.get(f"{BASE}/threads", headers=other)).json()["items"] == []


async def test_claims_have_the_names_that_the_settings_give(settings: Settings) -> None:
    names = {"jwt_subject_claim": "uid", "jwt_tenant_claim": "org", "jwt_trusted_claim": "https://pai/trusted"}
    resolve = gate(with_jwt(settings, jwt_secret=SECRET, **names))

    async def identity(**more: Any) -> Any:
        from starlette.requests import Request

        token = hs256(claims(**more))
        headers = [(b"authorization", f"Bearer {token}".encode())]
        return await resolve(Request({"type": "http", "headers": headers, "query_string": b""}))

    found = await identity(uid=7, org="acme", **{"https://pai/trusted": True})
    assert (found.subject, found.tenant, found.trusted, found.claims["org"]) == ("7", "acme", True, "acme")
    for not_true in ("true", 1, "yes", [True], None, False):
        assert not (await identity(uid="u", org="acme", **{"https://pai/trusted": not_true})).trusted
    for missing in ({"uid": "u"}, {"org": "acme"}, {"uid": None, "org": "acme"}, {"uid": "u", "org": ""}):
        with pytest.raises(Exception, match="The token has no"):
            await identity(**missing)


async def test_nobody_is_trusted_unless_a_claim_is_named(settings: Settings) -> None:
    from starlette.requests import Request

    resolve = gate(with_jwt(settings, jwt_secret=SECRET))
    headers = [(b"authorization", f"Bearer {hs256(claims(trusted=True))}".encode())]
    assert not (await resolve(Request({"type": "http", "headers": headers, "query_string": b""}))).trusted


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
async def test_public_keys_of_every_kind_verify(by_keys: ServedApi, provider: KeyServer, algorithm: str) -> None:
    key = SigningKey.new(algorithm, f"a {algorithm} key")
    provider.keys = [{"kty": "oct", "k": "c2VjcmV0", "kid": "s"}, {"kty": "?"}, {}, key.public]
    assert await status(by_keys, key.token()) == 200
    assert await status(by_keys, SigningKey.new(algorithm, key.kid).token()) == 401


async def test_a_public_key_is_no_shared_secret(by_keys: ServedApi, rsa: SigningKey) -> None:
    """The classic: HMAC with the public key, which everybody knows, as the secret."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    pem = rsa.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    assert await status(by_keys, rsa.token()) == 200
    for secret in (pem, json.dumps(rsa.public).encode(), rsa.public["n"].encode()):
        parts = [json.dumps({"alg": "HS256", "kid": "one"}).encode(), json.dumps(claims()).encode()]
        signed = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
        signature = base64.urlsafe_b64encode(hmac.digest(secret, signed, "sha256")).rstrip(b"=")
        assert await status(by_keys, (signed + b"." + signature).decode()) == 401


async def test_a_key_is_used_for_its_own_algorithm_only(settings: Settings, provider: KeyServer) -> None:
    key = SigningKey.new("RS256", "one")
    provider.keys = [{**key.public, "alg": "RS256"}]
    async with served(with_jwt(settings, jwt_jwks=provider.url, jwt_algorithms=("RS256", "PS256"))) as api:
        assert await status(api, key.token()) == 200
        assert await status(api, jwt.encode(claims(), key.private, algorithm="PS256", headers={"kid": "one"})) == 401


async def test_a_key_for_encryption_or_a_small_one_verifies_nothing(by_keys: ServedApi, provider: KeyServer) -> None:
    from cryptography.hazmat.primitives.asymmetric import rsa as rsa_keys

    encrypting = SigningKey.new("RS256", "encrypting")
    small = SigningKey("RS256", rsa_keys.generate_private_key(public_exponent=65537, key_size=1024), "small")
    algorithm = jwt.get_algorithm_by_name("RS256")
    small.public = {**algorithm.to_jwk(small.private.public_key(), as_dict=True), "kid": "small"}
    provider.keys = [{**encrypting.public, "use": "enc"}, small.public]
    assert await status(by_keys, encrypting.token()) == 401
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        token = small.token()
    assert await status(by_keys, token) == 401


async def test_a_token_without_a_key_id_is_taken_when_one_key_can_be_meant(
    settings: Settings, provider: KeyServer
) -> None:
    one, two, other = SigningKey.new("RS256", None), SigningKey.new("RS256", "two"), SigningKey.new("ES256", "three")
    provider.keys = [one.public, other.public]
    async with served(with_jwt(settings, jwt_jwks=provider.url, jwt_cache=0.001)) as api:
        assert await status(api, one.token()) == 200
        provider.keys = [one.public, two.public]
        assert await status(api, one.token()) == 401
        assert await status(api, two.token()) == 200


async def test_a_new_key_is_found_and_an_old_one_forgotten(settings: Settings, provider: KeyServer) -> None:
    old, new = SigningKey.new("ES256", "old"), SigningKey.new("ES256", "new")
    provider.keys = [old.public]
    async with served(with_jwt(settings, jwt_jwks=provider.url, jwt_cache=0.001)) as api:
        assert (await status(api, old.token()), await status(api, new.token())) == (200, 401)
        provider.keys = [old.public, new.public]
        assert (await status(api, old.token()), await status(api, new.token())) == (200, 200)
        provider.keys = [new.public]
        assert (await status(api, old.token()), await status(api, new.token())) == (401, 200)


async def test_made_up_key_ids_cause_no_requests(by_keys: ServedApi, provider: KeyServer, rsa: SigningKey) -> None:
    assert await status(by_keys, rsa.token()) == 200
    for number in range(20):
        assert await status(by_keys, rsa.token(kid=f"made up {number}")) == 401
    assert provider.asked == 1


async def test_a_provider_that_is_down_is_no_reason_to_refuse_known_keys(
    settings: Settings, provider: KeyServer, rsa: SigningKey
) -> None:
    async with served(with_jwt(settings, jwt_jwks=provider.url, jwt_cache=0.001)) as api:
        provider.status = 500
        answer = await api.client.get(BASE, headers=bearer(rsa.token()))
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert int(answer.headers["retry-after"]) >= 1
        provider.keys, provider.status = [rsa.public], 200
        assert await status(api, rsa.token()) == 200
        provider.status = 500
        assert await status(api, rsa.token()) == 200
        provider.status, provider.answer = 200, b"<html>"
        assert await status(api, rsa.token()) == 200


async def test_keys_that_were_read_long_ago_are_not_used_for_ever(
    provider: KeyServer, rsa: SigningKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.keys = [rsa.public]
    keys = KeySet(provider.url, cache_seconds=0.0)
    assert await keys.find("one", "RS256") is not None
    provider.status = 500
    monkeypatch.setattr("pai_api.identity.key_set.STALE_SECONDS", 0.0)
    with pytest.raises(Unavailable):
        await keys.find("one", "RS256")


@pytest.mark.parametrize(
    "answer",
    [b"", b"[]", b"{}", b'{"keys": []}', b'{"keys": {}}', b'{"keys": [{"kty": "oct", "k": "eA"}]}', b"x" * 2**21],
)
async def test_a_wrong_key_set_says_so(provider: KeyServer, answer: bytes) -> None:
    provider.answer = answer
    with pytest.raises(ValueError, match=r"jwks\.json: "):
        await KeySet(provider.url, cache_seconds=1).read()


async def test_a_file_may_hold_the_keys(settings: Settings, rsa: SigningKey, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [rsa.public]}))
    async with served(with_jwt(settings, jwt_jwks=str(file), jwt_cache=0.001)) as api:
        assert await status(api, rsa.token()) == 200
        other = SigningKey.new("ES256", "two")
        file.write_text(json.dumps({"keys": [other.public]}))
        assert (await status(api, other.token()), await status(api, rsa.token())) == (200, 401)


async def test_a_secret_and_keys_may_be_used_together(settings: Settings, provider: KeyServer, rsa: SigningKey) -> None:
    provider.keys = [rsa.public]
    async with served(with_jwt(settings, jwt_jwks=provider.url, jwt_secret=SECRET)) as api:
        assert (await status(api, rsa.token()), await status(api, hs256())) == (200, 200)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"jwt_secret": SECRET, "jwt_algorithms": ("RS256",)},
        {"jwt_jwks": "keys.json", "jwt_algorithms": ("HS256",)},
        {"jwt_secret": SECRET, "jwt_algorithms": ("none",)},
        {"jwt_secret": SECRET, "jwt_algorithms": ("hs256",)},
    ],
)
def test_settings_that_cannot_work_are_named(settings: Settings, options: dict[str, Any]) -> None:
    from api_parts import registry

    with pytest.raises(DeclarationError, match="PAI_JWT"):
        create_app(with_jwt(settings, **options), registry())


def test_a_secret_that_can_be_guessed_is_refused() -> None:
    for name in ("jwt_secret", "secret"):
        with pytest.raises(ValidationError, match="32 bytes"):
            Settings(**{name: "short"})
