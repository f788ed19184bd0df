"""Who asks: one gate per process, chosen by `PAI_IDENTITY`. A new way to know callers is one more file here."""

from pai.protocol.errors import DeclarationError
from pai.settings import Settings
from pai_api.identity.anonymous import Anonymous
from pai_api.identity.custom import load
from pai_api.identity.gate import Gate
from pai_api.identity.keys import Keys
from pai_api.identity.resolver import Resolver


def gate(settings: Settings) -> Gate:
    """What the settings name. Raises DeclarationError for a wrong name, or for settings that cannot work."""
    names = [name.strip() for name in settings.identity.split(",")]
    both = len(names) == 2 and names.count("keys") == 1 and "anonymous" not in names
    if len(names) != 1 and not both:
        raise DeclarationError(
            f"PAI_IDENTITY={settings.identity}: expected `anonymous`, `jwt`, `keys`, `module:function`, "
            "or `keys` and one of the others but `anonymous`."
        )
    keys = Keys(settings.key_cache) if "keys" in names else None
    other = next((name for name in names if name != "keys"), None)
    return Gate(
        keys=keys,
        other=None if other is None else _other(other, settings),
        other_lasts=other in ("anonymous", "jwt"),
        watch_token_ttl=settings.watch_token_ttl,
    )


def _other(name: str, settings: Settings) -> Resolver:
    match name:
        case "anonymous":
            return Anonymous(settings)
        case "jwt":
            # Brings a library for cryptography, which no other way needs.
            from pai_api.identity.tokens import Tokens

            return Tokens(settings)
    return load(name)


__all__ = ["Gate", "Resolver", "gate"]
