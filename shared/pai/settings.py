"""Settings: everything that an installation may choose, read once from `PAI_*` environment variables."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AliasChoices, BeforeValidator, Field, SecretStr, field_validator, model_validator
from pydantic_core import PydanticUndefined
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

MIB = 1024 * 1024
_SHORTEST_SECRET = 32
_ADDRESS = re.compile(r"https?://[^\s/?#]+", re.IGNORECASE)
_REVOKED_WITHIN = timedelta(minutes=1)


def _seconds(value: Any) -> Any:
    """`2.5` in an environment variable is a number of seconds."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _listed(value: Any) -> Any:
    """`a,b` -> two items."""
    return tuple(item.strip() for item in value.split(",") if item.strip()) if isinstance(value, str) else value


def _absolute(value: Any) -> Any:
    return Path(value).expanduser().absolute() if isinstance(value, str | Path) else value


Duration = Annotated[timedelta, BeforeValidator(_seconds), Field(gt=timedelta(0))]
Count = Annotated[int, Field(ge=1)]
Text = Annotated[str, Field(min_length=1)]
Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_listed)]
Folder = Annotated[Path, BeforeValidator(_absolute)]


def _of(default: Any, description: str) -> Any:
    """A setting; a timedelta is written in seconds."""
    return Field(default=default, description=description)


def _after(seconds: float, description: str) -> Any:
    return Field(default=timedelta(seconds=seconds), description=description)


def _provider(name: str, description: str) -> Any:
    """PAI's own variable, or the one that the provider's SDK reads."""
    return Field(
        default=None,
        validation_alias=AliasChoices(f"PAI_{name}", name, f"pai_{name.lower()}"),
        description=f"{description} Also read from `{name}`.",
    )


class Settings(BaseSettings):
    """Durations are given in seconds (`PAI_LEASE=10`), lists with commas. Raises pydantic.ValidationError."""

    model_config = SettingsConfigDict(
        env_prefix="PAI_", env_ignore_empty=True, extra="ignore", frozen=True, populate_by_name=True
    )

    home: Folder = Field(
        default_factory=lambda: Path(".pai").absolute(),
        description="Folder of the SQLite file and the embedded server. Default: `.pai` in the working directory.",
    )
    agents: Text = _of("pai.demo:registry", "`module:attribute` of the Registry to serve.")
    database_url: Text = Field(
        default_factory=lambda data: f"sqlite:///{data.get('home', Path('.pai').absolute())}/pai.db",
        description="`sqlite:///file` or `postgresql+psycopg://...`. Default: a SQLite file in the home folder.",
    )
    database_pool_size: Count = _of(
        10, "Connections to PostgreSQL that one process opens at most; a worker has one more."
    )
    redis_url: str | None = _of(None, "Redis or Valkey. Default: an embedded server on a socket in the home folder.")
    broker_url: str | None = _of(None, "Celery's broker. Default: the Redis of `PAI_REDIS_URL`.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = _of("INFO", "Of everything that PAI logs.")

    host: Text = _of("127.0.0.1", "Address that the API listens on.")
    port: Annotated[int, Field(ge=0, le=65535)] = _of(8460, "Port that the API listens on; 0 for any that is free.")
    cors_origins: Names = _of((), "Origins whose pages may call the API; `*` for any.")
    identity: Text = _of(
        "anonymous",
        "Who asks: `anonymous`, `jwt`, `keys`, both (`jwt,keys`), or `module:function`: request -> Identity.",
    )
    allow_anonymous: bool = _of(False, "Serve `anonymous` on an address that is not loopback, too.")
    jwt_secret: SecretStr | None = _of(None, "Shared secret of HS256, HS384, HS512 tokens: 32 bytes or more.")
    jwt_jwks: str | None = _of(None, "Public keys of tokens: the URL or the file of a JSON Web Key Set.")
    jwt_algorithms: Names = _of((), "Accepted algorithms. Default: HS256 with a secret; RS256, ES256, EdDSA with keys.")
    jwt_issuer: str | None = _of(None, "What `iss` must be.")
    jwt_audience: Names = _of((), "One of these must be in `aud`.")
    jwt_subject_claim: Text = _of("sub", "Claim that names the caller.")
    jwt_tenant_claim: str | None = _of(None, "Claim that names the caller's tenant; then every token must have it.")
    jwt_trusted_claim: str | None = _of(None, "Claim that is `true` for trusted callers. Default: nobody is.")
    jwt_leeway: Duration = _after(30, "How far clocks may be apart.")
    jwt_cache: Duration = _after(300, "How long public keys are used before they are read again.")
    key_cache: Duration = _after(15, "How long an API key is known without a look at the database.")
    secret: SecretStr | None = _of(
        None, "Signs watch tokens and file URLs: 32 bytes or more. Default: one that is kept in the database."
    )
    watch_token_ttl: Duration = _after(60, "How long a watch token opens watches.")
    recheck_interval: Duration = _after(20, "How often an open watch asks whether its caller still has access.")

    max_requests_per_second: Count | None = _of(None, "Requests of one identity. Default: any number.")
    max_request_burst: Count | None = _of(None, "Requests of one identity at once. Default: those of two seconds.")
    max_running_threads: Count | None = _of(None, "Threads of one identity that run at once. Default: any number.")
    max_queued_inputs: Count | None = _of(None, "Queued inputs of one identity in all threads. Default: any number.")
    max_stored_bytes: Count | None = _of(None, "Bytes of all files of one identity. Default: any number.")

    files: Text = Field(
        default_factory=lambda data: f"{data.get('home', Path('.pai').absolute())}/files",
        description="Where files are kept: a folder, or `s3://bucket/prefix`. Default: `files` in the home folder.",
    )
    s3_endpoint_url: str | None = _of(None, "Another S3-compatible server than Amazon's.")
    s3_region: str | None = _of(None, "Region of the bucket. Credentials are found as the AWS SDK finds them.")
    public_url: str | None = _of(None, "Where browsers reach the API, for file URLs. Default: what the request says.")
    max_file_bytes: Count = _of(100 * MIB, "Largest file that is uploaded.")
    file_types: Names = _of((), "Media types of files that are accepted, such as `image/*,application/pdf`.")
    upload_timeout: Duration = _after(3600, "How long an upload may take.")
    unused_file_age: Duration = _after(86_400, "How long a file is kept that no message uses.")
    file_url_ttl: Duration = _after(3600, "How long a file URL is good for, unless the request says.")
    max_file_url_ttl: Duration = _after(7 * 86_400, "How long a file URL may be good for.")
    max_attachments: Count = _of(20, "Attachments of one message.")
    model_file_bytes: Count = _of(32 * MIB, "Attached bytes that a model is given with one call, the newest first.")

    max_body_bytes: Count = _of(8 * MIB, "Largest JSON body of a request.")
    body_timeout: Duration = _after(30, "How long the JSON body of a request may take to arrive.")
    max_message_bytes: Count = _of(MIB, "Largest input message.")
    max_json_depth: Annotated[int, Field(ge=8, le=200)] = _of(64, "Deepest nesting of JSON in a request.")
    max_queued_messages: Count = _of(100, "Queued inputs of one thread.")
    max_thread_depth: Count = _of(8, "Threads that tools may start below each other.")
    max_client_tools: Count = _of(64, "Client tools that come with one request.")
    max_schema_bytes: Count = _of(64 * 1024, "Largest JSON Schema of a client tool.")
    output_max_bytes: Count = _of(MIB, "Largest output of a tool; a larger one is an error.")
    watcher_buffer: Count = _of(2_000, "Events that a slow watcher may fall behind before it is reset.")

    lease: Duration = _after(10, "How long a step belongs to a worker without renewal.")
    renew_interval: Duration = _after(2.5, "How often a worker renews its leases.")
    sweep_interval: Duration = _after(1, "How often a worker looks for what is due.")
    drain_seconds: Duration = _after(10, "How long a worker that is told to stop lets its steps go on.")
    worker_concurrency: Count = _of(200, "Steps that one worker process runs at once.")
    worker_metrics_port: Annotated[int, Field(ge=1, le=65535)] | None = _of(
        None, "Port that a worker serves Prometheus metrics on, at `PAI_HOST`. Default: none."
    )
    default_queue: Text = _of("pai", "Celery queue of the steps whose agent and tool name none.")
    queues: Names = _of((), "Queues that a worker serves. Default: the default queue and all that its agents name.")

    model_deadline: Duration = _after(600, "How long a model step waits out rate limits and overload.")
    model_tries: Count = _of(3, "Tries of a model step on other errors that may pass.")
    tool_timeout: Duration = _after(
        600, "Longest run of a tool that names no timeout, without its waits, and of a trigger."
    )
    trigger_fire_age: Duration = _after(30 * 86_400, "How long the rows of fires are kept, and so the keys of calls.")

    keepalive: Duration = _after(15, "Time between comments on a quiet event stream.")
    check_interval: Duration = _after(5, "How often watched threads are compared with the database.")
    log_ttl: Duration = _after(3600, "How long a thread's event log outlives its last event.")
    log_keep: Count = _of(1_000, "Events kept for late reconnects when a log is trimmed.")
    publish_timeout: Duration = _after(5, "How long a publication may take; a watcher that misses one repairs itself.")
    fold_interval: Duration = _after(10, "How often a streaming model step stores what it has.")
    fold_chunks: Count = _of(2_000, "Chunks after which a streaming model step stores what it has.")

    openai_api_key: SecretStr | None = _provider("OPENAI_API_KEY", "For `openai:` models.")
    openai_base_url: str | None = _provider("OPENAI_BASE_URL", "Any OpenAI-compatible server.")
    anthropic_api_key: SecretStr | None = _provider("ANTHROPIC_API_KEY", "For `anthropic:` models.")
    anthropic_base_url: str | None = _provider("ANTHROPIC_BASE_URL", "Another address of the Anthropic API.")
    google_api_key: SecretStr | None = _provider("GOOGLE_API_KEY", "For `google:` models.")
    google_base_url: str | None = _provider("GOOGLE_BASE_URL", "Another address of the Gemini API.")

    @model_validator(mode="after")
    def _renewed_in_time(self) -> Self:
        if self.renew_interval * 2 > self.lease:
            raise ValueError("renew_interval must be at most half of lease, or one slow renewal loses every step")
        return self

    @model_validator(mode="after")
    def _revoked_in_time(self) -> Self:
        if self.key_cache + self.recheck_interval > _REVOKED_WITHIN:
            raise ValueError("key_cache and recheck_interval together must be at most 60: what is revoked must end")
        return self

    @field_validator("jwt_secret", "secret")
    @classmethod
    def _long_enough(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value().encode()) < _SHORTEST_SECRET:
            raise ValueError(f"must have {_SHORTEST_SECRET} bytes or more, or it can be guessed")
        return value

    @field_validator(
        "public_url", "s3_endpoint_url", "openai_base_url", "anthropic_base_url", "google_base_url", mode="after"
    )
    @classmethod
    def _an_address(cls, value: str | None) -> str | None:
        if value is not None and not _ADDRESS.match(value):
            raise ValueError("must be an address such as https://example.com")
        return value

    @classmethod
    def table(cls) -> list[tuple[str, str, str]]:
        """`(variable, default, description)` of every setting, for people."""
        return [
            (f"PAI_{name.upper()}", _shown(field.default), field.description or "")
            for name, field in cls.model_fields.items()
        ]


def _shown(default: Any) -> str:
    if default is PydanticUndefined or default is None or default == ():
        return ""
    return f"{default.total_seconds():g}" if isinstance(default, timedelta) else str(default)
