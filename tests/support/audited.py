"""An app that keeps every rule that an app can keep, and what can be changed about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keepfast import App
from keepfast.audit import AuditRule, Profile, Result, Subject, examine

GROUP = "shop.charge"
README = f"# shop\n\nThe consumer group is `{GROUP}`.\n\n## Configuration\n\n`KAFKA_BROKERS`\n"
DOCKERFILE = """\
FROM python:3.13-slim
ENV PIP_NO_CACHE_DIR=1
COPY pyproject.toml ./
RUN pip install .
COPY src ./src
USER 1000:1000
EXPOSE 8080
HEALTHCHECK --interval=30s --timeout=10s --start-period=40s --retries=3 \\
  CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://localhost:8080/health')"]
ENTRYPOINT ["shop-consumer"]
"""
FILES: Mapping[str, str] = {
    "README.md": README,
    "Dockerfile": DOCKERFILE,
    ".dockerignore": ".git\n",
    "compose.yaml": "services: {}\n",
    "pyproject.toml": '[project]\n\n[project.scripts]\nshop-consumer = "shop.app:main"\n',
    "src/shop/__init__.py": "",
    "tests/test_shop.py": "",
}
OPTIONS: Mapping[str, Any] = {"idempotent": True, "timeout_s": 10}


@dataclass(frozen=True, slots=True)
class Payment:
    id: str


def charge(payment: Payment) -> None:
    """What a good handler takes."""


def anything(value: dict) -> None:  # type: ignore[type-arg] # as a newcomer writes it
    """Takes what comes."""


def raw(value: bytes) -> None:
    """Decodes by itself."""


def subject(
    folder: Path,
    *,
    handler: Callable[..., None] = charge,
    options: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    files: Mapping[str, str | None] | None = None,
    topic: str = "orders.payment.v1",
) -> Subject:
    """The good app with these differences; a file that is None is left out."""
    app = App("shop", **(settings or {}))
    app.consumer(topic, name="charge", **{**OPTIONS, **(options or {})})(handler)
    for name, text in {**FILES, **(files or {})}.items():
        path = folder / name
        if text is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return Subject.of(app, cwd=folder, folder=folder, environ=environ or {})


def result_of(audited: Subject, rule: AuditRule) -> Result:
    """Audit one rule."""
    [result] = examine(audited, [Profile(rule.profile, rule.profile, (rule,))])
    return result
