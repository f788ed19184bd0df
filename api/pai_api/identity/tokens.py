"""Bearer JSON Web Tokens: signed with a shared secret, or with a key of a JSON Web Key Set.

Which keys may verify a token follows from the algorithms that the settings allow, never from the token alone: a secret
is used for HMAC only, a public key for its own kind only, and `none` is no algorithm.
"""

from collections.abc import Mapping
from typing import Any

import jwt
from starlette.requests import Request

from pai.protocol.errors import DeclarationError, Unauthenticated
from pai.protocol.identity import Identity
from pai.settings import Settings
from pai_api.identity.bearer import bearer_token
from pai_api.identity.key_set import KeySet

_SYMMETRIC = ("HS256", "HS384", "HS512")
_ASYMMETRIC = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_LATEST = 2**40


class Tokens:
    """Raises DeclarationError for settings that cannot work."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._secret = None if settings.jwt_secret is None else settings.jwt_secret.get_secret_value()
        self.key_set: KeySet | None = None
        if settings.jwt_jwks is not None:
            self.key_set = KeySet(settings.jwt_jwks, cache_seconds=settings.jwt_cache.total_seconds())
        self._algorithms = self._allowed(settings.jwt_algorithms)

    async def __call__(self, request: Request, /) -> Identity:
        """Raises Unauthenticated, and Unavailable when the keys cannot be read."""
        token = bearer_token(request)
        if token is None:
            raise Unauthenticated("A token is needed: `Authorization: Bearer ...`.")
        return self._identity(await self._verified(token))

    def _allowed(self, named: tuple[str, ...]) -> frozenset[str]:
        if self._secret is None and self.key_set is None:
            raise DeclarationError("PAI_IDENTITY=jwt needs PAI_JWT_SECRET or PAI_JWT_JWKS.")
        possible = (*(_SYMMETRIC if self._secret is not None else ()), *(_ASYMMETRIC if self.key_set else ()))
        if wrong := [name for name in named if name not in possible]:
            raise DeclarationError(f"PAI_JWT_ALGORITHMS: {', '.join(wrong)} is not one of {', '.join(possible)}.")
        return frozenset(named or {"HS256", "RS256", "ES256", "EdDSA"}.intersection(possible))

    async def _verified(self, token: str) -> dict[str, Any]:
        try:
            header = jwt.get_unverified_header(token)
            algorithm, kid = header.get("alg"), header.get("kid")
        except Exception:  # whatever a stranger's text does to the parser
            raise Unauthenticated("This is no token.") from None
        if not isinstance(algorithm, str) or algorithm not in self._algorithms:
            raise Unauthenticated("The token is signed in a way that is not accepted.")
        key: Any = self._secret if algorithm in _SYMMETRIC else None
        if algorithm not in _SYMMETRIC and self.key_set is not None:
            key = await self.key_set.find(kid if isinstance(kid, str) else None, algorithm)
        if key is None:
            raise Unauthenticated("The key that signed the token is not known.")
        settings = self._settings
        required = ["exp", *(["iss"] if settings.jwt_issuer else []), *(["aud"] if settings.jwt_audience else [])]
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                issuer=settings.jwt_issuer,
                audience=list(settings.jwt_audience) or None,
                leeway=settings.jwt_leeway,
                options={
                    "require": required,
                    "verify_aud": bool(settings.jwt_audience),
                    "verify_iss": settings.jwt_issuer is not None,
                    "verify_sub": False,  # another claim may be the subject; `_identity` checks the one that is
                    "verify_jti": False,
                    "enforce_minimum_key_length": True,
                },
            )
        except jwt.ExpiredSignatureError:
            raise Unauthenticated("The token is expired.") from None
        except jwt.ImmatureSignatureError:
            raise Unauthenticated("The token is not valid yet.") from None
        except Exception:
            raise Unauthenticated("The token is not valid.") from None
        return claims

    def _identity(self, claims: Mapping[str, Any]) -> Identity:
        settings = self._settings
        tenant = settings.jwt_tenant_claim
        trusted = settings.jwt_trusted_claim
        return Identity(
            subject=_named(claims, settings.jwt_subject_claim),
            tenant="default" if tenant is None else _named(claims, tenant),
            trusted=trusted is not None and claims.get(trusted) is True,
            claims=dict(claims),
            expires_at=min(int(claims["exp"]), _LATEST) + settings.jwt_leeway.total_seconds(),
        )


def _named(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    if type(value) is int:  # some providers number their users
        value = str(value)
    if not isinstance(value, str) or not value:
        raise Unauthenticated(f"The token has no `{name}`.")
    return value
