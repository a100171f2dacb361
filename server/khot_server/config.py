"""The settings of the service: flags, `KHOT_*` variables or a TOML file, checked once.

A flag wins over a variable, a variable over the file, the file over the default.
"""

import argparse
import ipaddress
import os
import ssl
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Self

import platformdirs
from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    CliSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from khot_server.control import PULSE_S
from khot_server.logs import Format, Level


class Settings(BaseSettings):
    """Run the khot service on this machine until SIGTERM or Ctrl-C, then drain and stop."""

    model_config = SettingsConfigDict(
        env_prefix="KHOT_",
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,  # neither can be told to another process in JSON
        cli_prog_name="khot-server",
        cli_kebab_case=True,
        cli_hide_none_type=True,
        cli_avoid_json=True,
    )

    config: Path | None = Field(None, description="TOML file with any of these settings")

    # where
    address: str = Field("127.0.0.1:50551", description="where to serve gRPC, host:port")
    metrics_address: str = Field(
        "127.0.0.1:9551", description="where to serve the status page and Prometheus, host:port"
    )
    grafana_url: str | None = Field(
        None, description="where the dashboards are; the status page has a link to it"
    )
    state_dir: Path = Field(
        default_factory=lambda: platformdirs.user_data_path("khot"),
        description="where jobs are stored (default: the platform's user data directory)",
    )
    data_dir: Path | None = Field(
        None, description="where mnist and fashion-mnist are; else they are downloaded when needed"
    )

    # who
    tokens: Path | None = Field(
        None, description="TOML file of bearer tokens; required unless loopback or anonymous"
    )
    anonymous: bool = Field(
        False, description="serve without tokens all who can connect, wherever from; for containers"
    )
    tls_cert: Path | None = Field(None, description="certificate chain, PEM")
    tls_key: Path | None = Field(None, description="its private key, PEM")
    tls_client_ca: Path | None = Field(
        None, description="authority, PEM, of which callers must show a certificate"
    )

    # engines
    device: str = Field(
        "cpu", description="cpu, cuda or cuda:N, or several with commas; jobs run on the first"
    )
    engines_per_device: int = Field(1, gt=0, description="engine processes for each device")
    engine_silence_s: float = Field(
        1.0, ge=2 * PULSE_S, description="how long an engine without a pulse is left alive"
    )
    spare_engine: bool = Field(
        True, description="have one more engine loaded, for when one dies; some 150 MB"
    )

    # jobs
    job_slots: int = Field(1, gt=0, description="jobs that run side by side, on a core each")
    job_threads: int = Field(
        1, gt=0, description="torch threads of a job; with one, an interruption changes no bit"
    )
    warm_attempts: bool = Field(
        True, description="keep torch loaded for jobs too, so that they begin at once"
    )
    checkpoint_s: float = Field(
        1.0, ge=0, description="how often jobs write checkpoints, at most 2 % of their time"
    )
    job_ttl_s: float = Field(
        30 * 86400.0, gt=0, description="how long a job is kept after it has ended"
    )
    job_quota_bytes: int = Field(
        20 << 30, gt=0, description="what the files of jobs may take; the oldest ended ones go"
    )
    job_backoff_s: float = Field(
        1.0, ge=0, description="how long a job waits after a lost attempt; doubled each time"
    )
    max_dataset_bytes: int = Field(1 << 30, gt=0, description="largest file that may be uploaded")
    max_tenant_dataset_bytes: int = Field(
        10 << 30, gt=0, description="uploaded files of one tenant in all"
    )

    # batches
    max_batch_rows: int = Field(4096, gt=0, description="rows that share a batch")
    max_batch_elements: int = Field(1 << 18, gt=0, description="scores that share a batch")
    max_batch_s: float = Field(60.0, gt=0, description="the longest that a batch may take")
    max_wait_us: int = Field(
        0, ge=0, description="how long an item waits for others to share its batch"
    )
    bulk_patience_s: float = Field(
        0.5, ge=0, description="how much later interactive items may come and pass bulk ones"
    )

    # limits
    max_message_bytes: int = Field(64 << 20, gt=0, description="largest request or reply")
    max_queue_elements: int = Field(
        1 << 26, gt=0, description="scores that may wait or be computed; more are refused"
    )
    max_tenant_queue_elements: int = Field(
        1 << 26, gt=0, description="scores of one tenant that may wait or be computed"
    )
    max_caller_calls: int = Field(
        1024, gt=0, description="calls of one caller under way; more are refused"
    )
    max_stream_calls: int = Field(
        256, gt=0, description="requests of one stream in flight; more are not read"
    )
    max_connection_calls: int = Field(
        4096, gt=0, description="calls of one connection under way; more wait at the caller"
    )
    max_tenant_jobs: int = Field(
        1000, gt=0, description="jobs of one tenant that may wait or run; more are refused"
    )

    # times
    keepalive_s: float = Field(
        20.0, ge=1, description="a connection silent so long is asked, and so long again given up"
    )
    drain_s: float = Field(10.0, ge=0, description="time for calls under way at shutdown")
    lease_s: float = Field(30.0, gt=0, description="how long a silent runner keeps its job")
    heartbeat_s: float = Field(5.0, gt=0, description="how often a runner says it is alive")

    # logs
    log_level: Level = Field("info", description="debug has a line for each request")
    log_format: Format = Field(
        "auto", description="json, console for people, or auto: console on a terminal"
    )

    @field_validator("address", "metrics_address")
    @classmethod
    def _host_and_port(cls, value: str) -> str:
        host, colon, port = value.rpartition(":")
        if not (host and colon and port.isdecimal() and int(port) < 1 << 16):
            raise ValueError(f"must be host:port; got {value!r}")
        return value

    @field_validator("grafana_url")
    @classmethod
    def _web_address(cls, value: str | None) -> str | None:
        # anything else, such as javascript:, would run in the page that links to it
        if value is not None and not value.startswith(("http://", "https://")):
            raise ValueError(f"must begin with http:// or https://; got {value!r}")
        return value

    @field_validator("device")
    @classmethod
    def _each_device_once(cls, value: str) -> str:
        names = [name.strip() for name in value.split(",")]
        # torch's name for the first one
        known = ["cuda:0" if name == "cuda" else name for name in names]
        if not all(names) or len(set(known)) < len(known):
            raise ValueError(f"must be devices with commas between, each once; got {value!r}")
        return ",".join(names)

    @property
    def devices(self) -> tuple[str, ...]:
        """Each device that gets engines."""
        return tuple(self.device.split(","))

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls-cert and tls-key must be given together; got one of them")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise ValueError("tls-client-ca must come with tls-cert; got it alone")
        if self.tokens is not None and self.anonymous:
            raise ValueError("tokens and anonymous must not be given together; got both")
        if not (self.tokens or self.anonymous or is_loopback(self.address)):
            raise ValueError(
                "tokens must be given where address is not loopback, or anyone could submit jobs, "
                f"which anonymous allows; got address {self.address!r} and neither"
            )
        for name in ("tokens", "tls_cert", "tls_key", "tls_client_ca"):
            path = getattr(self, name)
            if path is not None and not path.is_file():
                raise ValueError(f"{name.replace('_', '-')} must be a file; got {str(path)!r}")
        if self.tls_cert is not None:
            _check_tls(self.tls_cert, self.tls_key, self.tls_client_ca)
        if self.data_dir is not None and not self.data_dir.is_dir():
            raise ValueError(f"data-dir must be a directory; got {str(self.data_dir)!r}")
        if self.heartbeat_s >= self.lease_s:
            raise ValueError(
                f"heartbeat-s must be less than lease-s; got {self.heartbeat_s} and {self.lease_s}"
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        del dotenv_settings, file_secret_settings
        file = TomlConfigSettingsSource(settings_cls, toml_file=_config_file.get())
        return init_settings, env_settings, file


# The file is named by the very settings it is part of, so its path goes ahead of them.
_config_file: ContextVar[Path | None] = ContextVar("_config_file", default=None)


class BadSettings(Exception):
    """Settings that do not fit; the message has a line for each fault."""


def load(arguments: Sequence[str]) -> Settings:
    """Return the settings for these command line arguments.

    Raises:
        BadSettings: something is missing, unknown or does not fit together.
    """
    path = _config_path(arguments)
    if path is not None and not Path(path).is_file():
        raise BadSettings(f"khot-server: config must be a file; got {path!r}")
    of_this_call = _config_file.set(None if path is None else Path(path))
    try:
        flags: Any = CliSettingsSource(Settings, cli_parse_args=list(arguments))
        return Settings(_cli_settings_source=flags)  # type: ignore[call-arg]
    except ValidationError as error:
        raise BadSettings("\n".join(_line(fault) for fault in error.errors())) from None
    finally:
        _config_file.reset(of_this_call)


def _config_path(arguments: Sequence[str]) -> str | None:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config", default=os.environ.get("KHOT_CONFIG"))
    path: str | None = parser.parse_known_args(arguments)[0].config
    return path


def _line(fault: Any) -> str:
    """One fault in the form `who: what it must be; got what it was`."""
    name = "-".join(str(part) for part in fault["loc"]).replace("_", "-")
    if fault["type"] == "extra_forbidden":  # whose value may be anything, a secret too
        return f"khot-server: {name}: must be a setting that there is; got one that is not"
    text = str(fault["msg"]).removeprefix("Value error, ")
    text = text[0].lower() + text[1:]
    got = "" if "; got" in text else f"; got {fault['input']!r}"
    return f"khot-server: {name + ': ' if name else ''}{text}{got}"


def _check_tls(cert: Path, key: Path | None, client_ca: Path | None) -> None:
    """Refuse files that gRPC would only say do not work, or would let nobody in with."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # an empty password, lest the user of an encrypted key be asked for one
        context.load_cert_chain(cert, key, password="")
    except ssl.SSLError as error:
        raise ValueError(
            "tls-cert and tls-key must be a certificate chain and its key without a password, PEM; "
            f"got {str(cert)!r} and {str(key)!r} ({error.reason})"
        ) from None
    try:
        if client_ca is not None:
            context.load_verify_locations(client_ca)
    except ssl.SSLError as error:
        raise ValueError(
            f"tls-client-ca must be a certificate, PEM; got {str(client_ca)!r} ({error.reason})"
        ) from None


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach the host of `host:port`."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
